"""The command `reconverge bridge`: borrows parts of limits for a region from the hub of all regions."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from secrets import token_hex
from typing import Annotated, Final, TypeAlias

import typer

from reconverge.cli.shared.options import NamespaceOption
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting
from reconverge.exchange.regions.bridge import Bridge
from reconverge.exchange.regions.driver import BridgeDriver, close_quietly
from reconverge.hub.port import Hub, Region
from reconverge.hub.registry import MEMORY, HubSettings, open_hub, redacted, scheme_of
from reconverge.limit.checks import check_name
from reconverge.settings import MILLION, check_seconds, checked_namespace

PATIENCE_S: Final = 3.0
LOAN_INTERVALS_MIN: Final = 3
WIDE: Final = ":wide"
"""The suffix of the agents' namespace at the wide hub, so that one Redis can be both hubs, and one set of rights is
enough."""


LocalOption: TypeAlias = Annotated[
    str,
    typer.Option(help="The region's hub, as its agents name it.", metavar="URL", envvar="RECONVERGE_HUB"),
]
MovableOption: TypeAlias = Annotated[
    float,
    typer.Option(
        help="The part of every limit that belongs to no region: 1 minus all shares. The same for all bridges.",
        metavar="SHARE",
    ),
]
LoanOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds for which a loan outlasts the wide hub's last answer.", metavar="SECONDS")
]


def bridge(
    region: Annotated[str, typer.Option(help="The region's name; each has another.", metavar="NAME")],
    local: LocalOption,
    wide: Annotated[str, typer.Option(help="The hub of all bridges.", metavar="URL", envvar="RECONVERGE_WIDE_HUB")],
    movable: MovableOption,
    namespace: NamespaceOption = "default",
    interval: Annotated[float, typer.Option(help="Seconds between two rounds.", metavar="SECONDS")] = 1.0,
    loan: LoanOption = 30.0,
    timeout: Annotated[float, typer.Option(help="Seconds that one answer may take.", metavar="SECONDS")] = 2.0,
) -> None:
    """Lend a region's agents (region_share below 1) more of their limits, while other regions need less of theirs.

    Runs until SIGTERM or SIGINT, and then gives back the lent parts that are not in use. A second bridge in the same
    region shares the work, and takes over if the first one fails.
    """
    check_name(region)
    checked_namespace(namespace + WIDE)
    _check_times(interval, timeout, loan)
    if not 0 < round(movable * MILLION) < MILLION:
        raise InvalidSetting(
            "movable", movable, "must be above 0 and below 1, such as 1 minus the shares of all regions"
        )
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    home, everywhere = _open_both(local, wide, namespace, timeout)
    made = Bridge(
        region,
        token_hex(8),
        movable_ppm=round(movable * MILLION),
        interval_ns=round(interval * SECOND_NS),
        loan_ns=round(loan * SECOND_NS),
        home_shards=home.shards,
        wide_shards=everywhere.shards,
    )
    driven = BridgeDriver(
        made,
        home,
        everywhere,
        home_name=redacted(local),
        wide_name=redacted(wide),
        clock=SystemClock(),
        interval_s=interval,
        timeout_s=timeout,
    )
    typer.echo(f"bridge of region {region}: {redacted(local)} borrows at {redacted(wide)}, every {interval:g} s")
    asyncio.run(_run(driven, home, everywhere))
    rest = "everything was given back" if made.free else f"{made.lent} keys still use their loans, until these end"
    typer.echo(f"bridge of region {region} has ended: {rest}")


def _check_times(interval: float, timeout: float, loan: float) -> None:
    """Raises InvalidSetting for invalid times; a loan has to outlast a few rounds and their answers."""
    check_seconds("interval", interval, 0.01, 60.0)
    check_seconds("timeout", timeout, 0.01, 60.0)
    check_seconds("loan", loan, LOAN_INTERVALS_MIN * interval + 2 * timeout, 3600.0)


def _open_both(local: str, wide: str, namespace: str, timeout: float) -> tuple[Region, Hub]:
    """Opens the region's hub and the hub of all bridges.

    Raises InvalidSetting if they are the same, or if the region's hub cannot lend its nodes more of their limits.
    """
    if local == wide:
        raise InvalidSetting("wide", redacted(wide), "is the region's own hub; name the one that all regions share")
    home = _open("local", local, namespace, timeout)
    if not isinstance(home, Region):
        raise InvalidSetting("local", redacted(local), "is a hub that cannot lend parts of limits; name a Redis")
    return home, _open("wide", wide, namespace + WIDE, timeout)


async def _run(driven: BridgeDriver, home: Region, wide: Hub) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        await driven.run(stopping, patience_s=PATIENCE_S)
    finally:
        await close_quietly(home.close, PATIENCE_S)
        await close_quietly(wide.close, PATIENCE_S)


def _open(option: str, url: str, namespace: str, timeout: float) -> Hub:
    if scheme_of(url) == MEMORY:
        raise InvalidSetting(option, redacted(url), "is no hub that processes share; name a Redis")
    return open_hub(url, HubSettings(namespace, timeout))
