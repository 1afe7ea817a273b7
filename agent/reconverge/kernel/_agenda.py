"""Which cells of a shard have something to say, and when quiet ones are looked at again."""

from __future__ import annotations

import heapq
from collections import deque

from reconverge.clock import NEVER_NS
from reconverge.kernel._cell import Cell
from reconverge.kernel._exchange import look_again

LOOKS_MAX = 512
"""So many promises are looked at in one go: those who decide, and those who share a loop, are held up no longer."""
PASSED_MAX = 4096
"""So many cells that were reported meanwhile are passed by in one go."""


class Agenda:
    """Promises to look at quiet cells again, the next one first. Each cell has one, which the next one replaces."""

    __slots__ = ("_numbers", "_promises")

    def __init__(self) -> None:
        self._promises: list[tuple[int, int, Cell]] = []
        self._numbers = 0

    def promise(self, cell: Cell, due_ns: int) -> None:
        """Look at a cell again at `due_ns`, in place of any earlier promise."""
        cell.due_ns = due_ns
        self._numbers += 1  # breaks ties, as cells have no order
        heapq.heappush(self._promises, (due_ns, self._numbers, cell))

    def due_ns(self) -> int:
        """When the next cell has to be looked at; or an earlier moment, after many promises that were replaced."""
        for _ in range(LOOKS_MAX):
            if not self._promises or self._promises[0][2].due_ns == self._promises[0][0]:
                break
            heapq.heappop(self._promises)
        return self._promises[0][0] if self._promises else NEVER_NS

    def is_due(self, now_ns: int) -> bool:
        """Whether there is a promise to look at by now, which may have been replaced."""
        return bool(self._promises) and self._promises[0][0] <= now_ns

    def pop(self) -> Cell | None:
        """The cell of the next promise, of which there is one; None if it was replaced by another."""
        due_ns, _, cell = heapq.heappop(self._promises)
        if cell.due_ns != due_ns:
            return None
        cell.due_ns = NEVER_NS
        return cell


class ShardFields:
    """What `ShardState` keeps for those who decide and those who exchange."""

    early_ns: int
    stirred: deque[Cell]
    """Cells with something new since their last report."""
    wanted: deque[Cell]
    """Cells that ask not to wait for the next regular exchange."""
    agenda: Agenda
    """When to look at the others."""

    def begin(self) -> None:
        """Nothing is to be said."""
        # Deques, because deciding threads append while the exchanging one takes, each without the other's lock.
        self.stirred = deque()
        self.wanted = deque()
        self.agenda = Agenda()


class TallyFields:
    """What `Tally` keeps its numbers in."""

    __slots__ = ("charged", "refunded")

    charged: int
    refunded: int


class KernelFields:
    """What `Kernel` counts its keys in."""

    keys: int
    """Kept in all limits, overflow cells not among them."""
    keys_max: int


def due_cells(
    shard: ShardFields, now_ns: int, early: bool, companions_max: int, cells_max: int
) -> tuple[list[Cell], bool]:
    """The cells to report now, each once, in the order in which they asked; and whether there are more of them.

    For an early exchange those that asked for it; and the others, if there are no more than `companions_max`.
    """
    cells: dict[Cell, None] = {}
    more = _take_wanted(shard, now_ns, early, cells, cells_max)
    if not more and (not early or (cells and len(shard.stirred) <= companions_max)):
        more = _take_stirred(shard, cells, cells_max)
    if not more:
        more = _take_promised(shard, now_ns, cells, cells_max)
    return list(cells), more


def _take_wanted(shard: ShardFields, now_ns: int, early: bool, cells: dict[Cell, None], cells_max: int) -> bool:
    """Those that are in a hurry; returns whether there may be more."""
    shard.early_ns = NEVER_NS
    passed = 0
    for _ in range(len(shard.wanted)):
        if passed == PASSED_MAX:
            shard.early_ns = now_ns
            return True
        cell = shard.wanted.popleft()
        if not cell.wanted or cell in cells:
            passed += 1  # reported meanwhile
        elif early and cell.early_ns > now_ns:
            shard.wanted.append(cell)
            shard.early_ns = min(shard.early_ns, cell.early_ns)
        elif len(cells) < cells_max:
            cells[cell] = None
        else:
            shard.wanted.appendleft(cell)
            shard.early_ns = now_ns
            return True
    return False


def _take_stirred(shard: ShardFields, cells: dict[Cell, None], cells_max: int) -> bool:
    """Those that have something new; returns whether there may be more."""
    passed = 0
    for _ in range(len(shard.stirred)):
        if passed == PASSED_MAX:
            return True
        cell = shard.stirred.popleft()
        if not cell.stirred or cell in cells:
            passed += 1
        elif len(cells) == cells_max:
            shard.stirred.appendleft(cell)
            return True
        else:
            cells[cell] = None
    return False


def _take_promised(shard: ShardFields, now_ns: int, cells: dict[Cell, None], cells_max: int) -> bool:
    """Those that were promised another look, and turn out to be worth it; returns whether there may be more."""
    for _ in range(LOOKS_MAX):
        if not shard.agenda.is_due(now_ns):
            return False
        cell = shard.agenda.pop()
        if cell is None or cell.stirred or cell in cells:
            continue
        if len(cells) == cells_max:
            shard.agenda.promise(cell, now_ns)
            return True
        with cell.table.lock:
            if look_again(cell, now_ns):
                cells[cell] = None
    return shard.agenda.is_due(now_ns)
