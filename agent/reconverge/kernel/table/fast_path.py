"""The fast path of a decision: one comparison and one addition, without a lock."""

# Theory of operation.
#
# The problem. `allow` in Python cost 12 increments of a dictionary, a third of which was the lock. But two threads that
# compare and add without a lock could both find room for the last request.
#
# Why it may be done without the lock.
#
# 1. CPython gives up its lock, handles signals and (since 3.12) collects garbage only where it looks at its eval
#    breaker: where a function begins, in jumps backward, and after calls. Python 3.11 to 3.14 are alike in that. From
#    `find(key)` to the addition there is no call, no loop and no function written in Python: only comparisons and sums
#    of whole numbers, slots of a cell, and `held.lock.owner`. In 3.11 the collector runs when containers are made, and
#    none is. So comparison and addition are one step.
# 2. `lock.owner` is 0 only while no work goes on under the lock: it is set between taking the lock and the work, and
#    reset to 0 after the work and before the release. After an exception it stays set, so that the next decision takes
#    the slow path. `lock.locked()` would be a call, and a property of a `methodcaller` costs a fifth more.
# 3. All other work on a cell (deciding, advancing, reporting, applying answers, correcting, resetting, evicting,
#    several quotas, shares, waiting) holds the lock of its limit. Only `forget_everything` does not, in a forked child
#    that has no other thread yet. So at the moment of the comparison either the lock is held, and `allow_at` waits for
#    it; or no change is in progress, and the cell's fields agree.
# 4. Between finding a cell and charging it another thread may drop it, because a call ends in between. `Store.drop`
#    takes its room away, so that the comparison fails.
#
# So in `allow` no function may be called between finding the cell and the addition. Both are on one line, because a
# tracer written in Python runs between two lines and lets other threads run; a tracer of single instructions can still
# lose a charge.
#
# In interpreters for which this is not known (not CPython, no interpreter lock, a newer Python) `allow` takes the lock,
# as `hit` and all other methods do. It also takes the lock for limits that count in parts of a request.
#
# Setting `room = -1` before any work on a cell would do as well, but all code that writes to cells would have to do it,
# and mere reads such as `usage` would close cells that the compiled kernel leaves open.

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from reconverge.kernel.engine import Lock, Store, runs_without_lock

NOT_KNOWN: Final = (3, 15)
"""The first version of Python in which another thread might interrupt the fast path: that has not been checked."""
_ONE = 1

Allow: TypeAlias = Callable[..., bool]


def goes_straight_on() -> bool:
    """Returns whether this interpreter never switches threads in the middle of code without calls and loops."""
    known = platform.python_implementation() == "CPython" and sys.version_info < NOT_KNOWN
    return known and not runs_without_lock()


class Decides(Protocol):
    """The part of a table that the fast path needs: the fields it reads, and the method for all other decisions."""

    lock: Lock
    cells: Store
    now_ns: Callable[[], int]

    def cost_of(self, cost: object, kind: str | None, /) -> int:
        """Returns the cost of `cost` requests of `kind`, after checking `cost`."""
        ...

    def allow_at(self, key: str, cost: int, now_ns: int, /) -> bool:
        """Decides and charges as `allow` does, at `now_ns`, with the lock held."""
        ...


class HeldLock:
    """An object whose attribute is the lock of a table, so that the lock can be replaced by another.

    The fast path reads an attribute, because a call would take longer.
    """

    __slots__ = ("lock",)

    lock: Lock


def charge_at_once(table: Decides) -> None:
    """Replaces a table's `allow` by a version without a lock. Callers call this again when the limit has changed."""
    held: HeldLock = vars(table).setdefault("held", HeldLock())  # earlier versions of `allow` share it
    held.lock = table.lock
    # Attributes of the instance hide the methods of its class.
    vars(table)["allow"] = allow_at_once(table, held)


def allow_at_once(table: Decides, held: HeldLock) -> Allow:
    """Returns a function that decides as `Table.allow` does, without the lock if the fast path has room.

    All that the function reads is in local variables, which makes it fast.
    """
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
        # No call may stand here, and all is on one line, because tracers may run code between two lines.
        if not held.lock.owner and cell.used + cost <= cell.room and now_ns < cell.until_ns: cell.used += cost  # fmt: skip  # noqa: E501,E701
        else: return table.allow_at(key, cost, now_ns)  # fmt: skip  # noqa: E701
        cells.admitted += 1
        return True

    return allow
