"""Cells that wait for a later exchange than the next one, because their limits have sync intervals of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final, NamedTuple

from reconverge.kernel.cell import Cell
from reconverge.kernel.reporting.agenda import ShardFields
from reconverge.kernel.reporting.lanes import Lanes

SORTED_MAX: Final = 1024
"""The most cells that one call sorts; further cells are reported as if they were due, which does no harm."""


class LimitInterval(NamedTuple):
    """The time between two exchanges of a limit's cells: the regular interval and the shortest one, in nanoseconds."""

    interval_ns: int
    interval_min_ns: int
    """The shortest time between two exchanges of a cell."""


class Later:
    """The changed cells of one shard whose limits are not due for an exchange yet, by their limits' sync intervals."""

    def __init__(self) -> None:
        self._cells: dict[int, deque[Cell]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._cells.values()))

    @property
    def intervals_ns(self) -> list[int]:
        """Returns the sync intervals of the limits that have at least one deferred cell."""
        return [interval_ns for interval_ns, cells in self._cells.items() if cells]

    def holds(self, due: Container[int] | None) -> bool:
        """Returns whether any cell is deferred whose limit has a sync interval in `due`; None stands for all."""
        return any(due is None or interval_ns in due for interval_ns in self.intervals_ns)

    def sort(self, waiting: Lanes, due: Container[int] | None, most: int) -> bool:
        """Defers the cells in `waiting` that are not due; puts up to `most` deferred cells that are due back into it.

        `due` has the sync intervals whose limits are due; None stands for all. Returns whether more deferred cells are
        due.
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
        """Moves all deferred cells back into the shard's queue to be sorted again, as sync intervals have changed."""
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
    """Moves urgent cells that may not be reported again yet from the shard to `held`; `let_ask_again` puts them back.

    Urgent cells of limits with a sync interval in `due` stay: the regular exchange reports them, however recent their
    last report is.
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
    """Puts the cells that `hold_back` has moved to `held` back into the shard's queue of urgent cells."""
    for cell in held:
        shard.urgent.append(cell)
        shard.early_ns = min(shard.early_ns, cell.early_ns)
