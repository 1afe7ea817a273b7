"""Charging at once: one comparison and one addition, and no lock.

CPython gives another thread its turn, handles signals and collects garbage where something is called, where a function
begins and where a loop begins again. What goes straight on in between is done in one moment, so it needs no lock,
unless somebody who holds the limit's lock had to stop in the middle of something. Whether that is so can be seen
without a call, too. Decision 50 has the argument.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from reconverge.kernel.lock import Lock
    from reconverge.kernel.table.table import Table

NOT_KNOWN: Final = (3, 15)
"""The first version of Python of which nobody has looked whether that is so."""
_ONE = 1

Allow: TypeAlias = Callable[..., bool]


def goes_straight_on() -> bool:
    """Whether nobody interrupts this interpreter where nothing is called."""
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return platform.python_implementation() == "CPython" and sys.version_info < NOT_KNOWN and has_lock()


class Held:
    """Which lock a table has. That work goes on under it is seen in attributes; to ask the lock would be a call."""

    __slots__ = ("lock",)

    lock: Lock


def charge_at_once(table: Table) -> None:
    """Have a table allow without its lock; to be called again when the limit has changed."""
    held: Held = vars(table).setdefault("held", Held())  # the same for all who were made before
    held.lock = table.lock
    # Attributes of the instance hide the methods of its class.
    vars(table)["allow"] = allow_at_once(table, held)


def allow_at_once(table: Table, held: Held) -> Allow:
    """`Table.allow` for one table, with everything at hand."""
    cells, find, now_ns_of = table.cells, table.cells.get, table.now_ns

    def allow(key: str, cost: int = 1, kind: str | None = None) -> bool:
        if cost is not _ONE or kind is not None:
            cost = table.cost_of(cost, kind)
        now_ns = now_ns_of()
        try:
            cell = find(key)
        except TypeError:
            cell = None
        if cell is None:
            return table.allow_at(key, cost, now_ns)
        # Nothing may be called in here; and all is on one line, because tracers may run something between two.
        if not held.lock.owner and cell.used + cost <= cell.room and now_ns < cell.until_ns: cell.used += cost  # fmt: skip  # noqa: E501,E701
        else: return table.allow_at(key, cost, now_ns)  # fmt: skip  # noqa: E701
        cells.admitted += 1
        return True

    return allow
