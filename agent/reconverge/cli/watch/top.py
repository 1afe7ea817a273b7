"""The command `reconverge top`: shows a fleet live, by limit, node or key, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from reconverge.cli.shared.asking import advised, ask_hub
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.cli.shared.tables import table_lines
from reconverge.cli.watch.look import LIMIT, VIEWS, WatchLook, check_view, look
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.port import Hub
from reconverge.hub.registry import redacted

MOST: Final = 20
MOST_MAX: Final = 1000
"""The largest number of rows: a terminal shows fewer, and for programs there are `usage` and `status`."""
INTERVAL_S: Final = 2.0
INTERVAL_MIN_S: Final = 0.2
"""The shortest interval: each look costs the hub a few reads, and people cannot read faster."""
ByOption: TypeAlias = Annotated[str, typer.Option(help=f"What the rows are: {', '.join(VIEWS)}.", metavar="NAME")]
MostOption: TypeAlias = Annotated[int, typer.Option(help="How many rows to show.", min=1, max=MOST_MAX, metavar="N")]
IntervalOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds between two looks.", min=INTERVAL_MIN_S, max=3600.0, metavar="SECONDS")
]
Tell: TypeAlias = Callable[[list[str]], None]


def top(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    by: ByOption = LIMIT,
    most: MostOption = MOST,
    interval: IntervalOption = INTERVAL_S,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch a fleet: the charges to each limit, the load of each node, or the keys that use most, the largest first.

    Shows only what the hub knows already. Nodes and keys are those of metered usage; keys are those of the present
    minute. Ends with Ctrl-C. With --json each look is one line.
    """
    check_view(by)
    said = ""  # the last error, so that an outage of hours prints one line

    async def watch(opened: Hub) -> None:
        before: WatchLook | None = None
        while True:
            before = await _show_next(opened, before, once=once)
            if once:
                return
            await asyncio.sleep(interval)

    async def _show_next(opened: Hub, before: WatchLook | None, *, once: bool) -> WatchLook | None:
        nonlocal said
        clock = SystemClock()
        try:
            seen = await look(opened, clock, by=by, most=most, before=before)
        except HubUnavailable as error:
            if once:
                raise
            problem = f"{advised(error, redacted(hub))}; trying again every {interval:g} s"
            if problem != said and as_json:
                typer.echo(f"reconverge: {problem}", err=True)
            elif problem != said:
                tell([problem])
            said = problem
            return before
        said = ""
        tell([json.dumps(seen.as_json(clock.wall_ns() / SECOND_NS))] if as_json else _lines(seen, namespace))
        return seen

    with _screen(live=not as_json and not once) as tell:
        ask_hub(hub, namespace, watch, what="there is no fleet to watch")


@contextmanager
def _screen(*, live: bool) -> Generator[Tell]:
    """Yields a function that shows lines: on a terminal in place of the lines before, else below them.

    When the block ends, with or without an error, the terminal is as it was before.
    """
    console = Console(highlight=False)
    if not live or not console.is_terminal:
        yield lambda lines: typer.echo("\n".join(lines))
        return
    with console.screen() as screen:
        yield lambda lines: screen.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))


def _lines(seen: WatchLook, namespace: str) -> list[str]:
    nodes = "" if seen.nodes is None else f", {seen.nodes} live nodes"
    heads, rows = seen.table()
    lines = [f"{namespace} by {seen.by}{nodes}", *(table_lines(heads, rows) if rows else ())]
    if not rows:
        lines.append(seen.remark or "no node has reported to the hub yet")
    if seen.left_out:
        lines.append(f"and {seen.left_out} more")
    return lines
