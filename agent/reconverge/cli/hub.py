"""The command `reconverge hub`: shows an operator the data of a hub, and ends its wait after a loss of data."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import typer

from reconverge.cli.shared.asking import check_shared
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption, example
from reconverge.errors import InvalidSetting
from reconverge.hub.adopting import HubData
from reconverge.hub.port import Adoptable, Hub
from reconverge.hub.registry import HubSettings, open_hub, redacted

logger = logging.getLogger("reconverge")

T = TypeVar("T")
PATIENCE_S: Final = 10.0
"""Seconds that one answer may take: longer than an agent waits, because the hub may have to search its keys."""
PROBLEM_STATUS: Final = 1
SECOND_US: Final = 1_000_000
PRICE: Final = (
    "To adopt this loss ends the wait. Use that nodes have reported since stays counted. The use of departed nodes "
    "before the loss, and the use of nodes that are cut off, may be admitted once more, even by strict limits."
)

hub = typer.Typer(
    name="hub",
    help="Show the data of a hub, and end its wait after a loss of data.",
    no_args_is_help=True,
)


@hub.callback()
def _about() -> None:
    """Show the data of a hub, and end its wait after a loss of data."""


@hub.command(epilog=example("hub adopt --hub redis://localhost --namespace shop"))
def adopt(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    generation: Annotated[
        list[str] | None,
        typer.Option(help="The data to go on with, as this command names them; once for each shard.", metavar="NAME"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a hub that has lost its data grant again, before all windows and leases from before the loss are over.

    Without --generation the command changes nothing: it shows the loss, and the cost of not waiting any longer.
    """
    opened = _open(hub, namespace)
    if not isinstance(opened, Adoptable):
        raise InvalidSetting(
            "hub",
            redacted(hub),
            "is a hub that cannot be made to grant again after a loss of data; name a Redis or a broker of MQTT",
        )

    async def run() -> list[dict[str, Any]]:
        tell: Callable[[str], object] = (lambda _sentence: None) if as_json else typer.echo
        return [await _adopt(opened, shard, set(generation or ()), tell) for shard in range(opened.shards)]

    shards = asyncio.run(_closing(opened, run))
    if as_json:
        typer.echo(json.dumps(shards, indent=2))
    if any(each["waits"] for each in shards):
        raise typer.Exit(PROBLEM_STATUS)


async def _adopt(opened: Adoptable, shard: int, named: set[str], tell: Callable[[str], object]) -> dict[str, Any]:
    """Prints the state of one shard's data, and ends the shard's wait after a loss of data if the user wants that.

    The user does if `named` contains the name of the present data, their generation. `tell` prints a sentence. Returns
    the state of the shard for JSON.
    """
    data = await opened.data(shard)
    stands: dict[str, Any] = {"shard": shard, "waits": data.waits, **data._asdict(), "problem": ""}
    tell(f"shard {shard}: {_shown(data)}")
    if not data.waits and data.generation not in named:
        return stands
    if data.generation not in named:
        tell(f"{PRICE}\nTo adopt it:\n  reconverge hub adopt --generation {data.generation}")
        return stands
    adoption = await opened.adopt(shard, data.generation)
    if adoption.problem:
        typer.echo(f"reconverge: shard {shard}: {adoption.problem}", err=True)
        return stands | {"waits": True, "problem": adoption.problem}
    logger.warning(
        "reconverge: the loss of all data before generation %s was accepted by `hub adopt` (shard %d)",
        data.generation,
        shard,
    )
    tell(f"shard {shard}: adopted; {adoption.cells} keys wait no longer (adoption {data.adopted + 1})")
    return stands | {"waits": False, "adopted": data.adopted + 1}


def _shown(data: HubData) -> str:
    if not data.generation:
        return "no node has reported to the hub yet"
    adopted = f", adopted {data.adopted} times" if data.adopted else ""
    if not data.waits:
        return f"the data {data.generation}{adopted} wait for nothing"
    begun = datetime.fromtimestamp(data.begun_us / SECOND_US, tz=UTC).isoformat(timespec="seconds")
    loss = "data were lost before" if data.lost else "no node has shown that there were others before"
    granted = (
        f"nothing more is granted of strict limits {data.until}" if data.holds_back else "strict limits are granted"
    )
    return (
        f"the data {data.generation} begin at {begun} ({loss}); {data.nodes} live nodes have reported since; {granted}"
    )


def _open(url: str, namespace: str) -> Hub:
    """Returns the hub of that URL, opened. Raises InvalidSetting for `memory://`, which exists in one process only."""
    check_shared(url, "it has no data to adopt")
    return open_hub(url, HubSettings(namespace, PATIENCE_S))


async def _closing(opened: Hub | Adoptable, run: Callable[[], Awaitable[T]]) -> T:
    try:
        return await run()
    finally:
        if isinstance(opened, Hub):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(opened.close(), PATIENCE_S)
