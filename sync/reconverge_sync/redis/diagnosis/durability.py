"""Checks whether a Redis keeps its data over a restart, which long windows need, and whether it has lost data.

After a loss of data, the nodes of a hub report their use again. Nodes that left before the loss cannot, and within a
month most nodes have left, because they were deployed anew. So long windows need a server that keeps its data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from reconverge.hub.adopting import HubData
from reconverge.hub.diagnosis import COMMAND, Finding, Level

DURABILITY: Final = "durability"
LOSS: Final = "loss"
LONG_US: Final = 86_400_000_000
"""Longer windows than this, a day in microseconds, count as long: within them, fleets are deployed anew."""
DAY_US: Final = 86_400_000_000
SECOND_US: Final = 1_000_000
_CELL: Final = re.compile(rb"[^{}]*:\{\d+\}:c\d+:[^{}:]*:[^:]*:(\d+)")
"""The pattern of the key of a cell, whose group is the window of its limit in microseconds; see `_cells_of` in
hub.py."""


def window_of(name: bytes | str) -> int:
    """Returns the window in microseconds of the limit to which a hub's key belongs; 0 for a key of no limit."""
    found = _CELL.match(name if isinstance(name, bytes) else name.encode())
    return int(found[1]) if found else 0


def judge_durability(longest_us: int, info: Mapping[str, Any], *, saves: bool | None) -> Finding | None:
    """Returns the finding on whether a restart loses counts of windows of `longest_us`; None if these are not long.

    `saves` is whether the server takes snapshots by itself; None if that is unknown.
    """
    if longest_us <= LONG_US or "aof_enabled" not in info:
        return None
    shown = f"limits with windows of {longest_us / DAY_US:.3g} days are counted here"
    if int(info["aof_enabled"]):
        return Finding(DURABILITY, Level.OK, f"{shown}, and the server writes each change to disk (appendonly)")
    remedy = (
        "Have the server write each change to disk, also in its configuration file; docs/operate/long-windows.md has "
        f"other ways:\n{COMMAND}redis-cli CONFIG SET appendonly yes"
    )
    if saves:
        fact = f"{shown}, and a restart loses the counts since the last snapshot of nodes that have left since"
    elif saves is None:
        fact = f"{shown}, and the server does not write each change to disk; whether it takes snapshots is not known"
    else:
        fact = f"{shown}, and the server keeps nothing on disk: a restart loses the counts of nodes that have left"
    return Finding(DURABILITY, Level.WARNING, fact, remedy)


def judge_loss(data: HubData, longest_us: int) -> Finding | None:
    """Returns the finding on a loss of data that still has consequences, adopted by an operator or not; else None."""
    if data.adopted:
        fact = (
            f"a loss of data was adopted ({data.adopted} times, data {data.generation}): strict limits may be exceeded"
        )
        remedy = "That was an operator's decision. It ends with the windows that were open then."
        return Finding(LOSS, Level.WARNING, fact, remedy)
    waited_us = data.hub_us - data.begun_us
    if not (data.waits and data.lost) or longest_us <= LONG_US or waited_us > 2 * longest_us:
        return None
    begun = datetime.fromtimestamp(data.begun_us / SECOND_US, tz=UTC).isoformat(timespec="seconds")
    fact = (
        f"data were lost before {begun}; of strict limits with windows of {longest_us / DAY_US:.3g} days nothing more "
        "is granted for a lease and two windows"
    )
    remedy = (
        "Restore the server's data if you can. Or see the consequences of going on without them:\n"
        f"{COMMAND}reconverge hub adopt"
    )
    return Finding(LOSS, Level.WARNING, fact, remedy)
