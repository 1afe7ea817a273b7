"""Defers reports of keys whose limits have sync intervals of their own, until an exchange in which they are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final, NamedTuple

from reconverge.kernel.cell import Cell
from reconverge.kernel.reporting.agenda import ShardFields
from reconverge.kernel.reporting.lanes import Lanes

SORTED_MAX: Final = 1024
"""The most keys that one call checks; further keys are reported as if they were due, which does no harm."""


class LimitInterval(NamedTuple):
    """The times between two reports of a limit's keys, in nanoseconds: the regular interval, and the shortest time."""

    interval_ns: int
    interval_min_ns: int
    """The shortest time between two reports of a key, in nanoseconds."""


class Later:
    """The changed keys of one shard that wait for a later exchange, grouped by the sync intervals of their limits."""

    def __init__(self) -> None:
        self._cells: dict[int, deque[Cell]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._cells.values()))

    @property
    def intervals_ns(self) -> list[int]:
        """Returns the sync intervals, in nanoseconds, of the limits that have at least one deferred key."""
        return [interval_ns for interval_ns, cells in self._cells.items() if cells]

    def holds(self, due: Container[int] | None) -> bool:
        """Returns whether any deferred key's limit has a sync interval in `due`, in nanoseconds; None means any."""
        return any(due is None or interval_ns in due for interval_ns in self.intervals_ns)

    def sort(self, waiting: Lanes, due: Container[int] | None, most: int) -> bool:
        """Takes the keys that are not due out of `waiting`, and puts up to `most` deferred keys that are due into it.

        `due` has the sync intervals, in nanoseconds, of the limits that are due; None means all limits. Returns whether
        more deferred keys are due.
        """
        if due is not None:
            self._put_aside(waiting, due)
        left = most
        for interval_ns in self.intervals_ns:
            if due is not None and interval_ns not in due:
                continue
            cells = self._cells[interval_ns]
            while cells and left > 0:
                cell = cells.popleft()
                if cell.dirty:  # and not reported out of its turn
                    waiting.append(cell)
                    left -= 1
            if cells:
                return True
            del self._cells[interval_ns]
        return False

    def give_back(self, shard: ShardFields) -> None:
        """Moves all deferred keys back into the shard's queue, to be sorted again by changed sync intervals."""
        for cells in self._cells.values():
            for cell in cells:
                if cell.dirty:
                    shard.dirty.append(cell)
        self._cells.clear()

    def _put_aside(self, waiting: Lanes, due: Container[int]) -> None:
        kept: list[Cell] = []
        for _ in range(min(len(waiting), SORTED_MAX)):
            cell = waiting.popleft()
            if cell.dirty != waiting.number:  # reported out of its turn
                continue
            interval_ns = cell.table.interval_ns
            if interval_ns in due:
                kept.append(cell)
            else:
                self._cells.setdefault(interval_ns, deque()).append(cell)
        for cell in kept:  # after the loop, which would otherwise meet them again
            waiting.append(cell)


def hold_back(shard: ShardFields, due: Container[int], now_ns: int, held: list[Cell]) -> None:
    """Moves to `held` those urgent keys of a shard that were reported too recently; `let_ask_again` puts them back.

    Keys of limits with a sync interval in `due` stay: the regular exchange reports them, however recent their last
    report is.
    """
    kept: list[Cell] = []
    for _ in range(min(len(shard.urgent), SORTED_MAX)):
        cell = shard.urgent.popleft()
        if not cell.urgent:
            continue
        if cell.early_ns > now_ns and cell.table.interval_ns not in due:
            held.append(cell)
        else:
            kept.append(cell)
    for cell in kept:  # as above
        shard.urgent.append(cell)


def let_ask_again(shard: ShardFields, held: list[Cell]) -> None:
    """Puts the keys that `hold_back` has moved to `held` back into the shard's queue of urgent keys."""
    for cell in held:
        shard.urgent.append(cell)
        shard.early_ns = min(shard.early_ns, cell.early_ns)
