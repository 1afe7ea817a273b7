"""A store: a mapping from the keys of one limit to its cells; the compiled kernel has the same one."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.cell import Cell, Shard

LOOKED_AROUND = 4096
"""So many places are gone through without anything in between."""
PLACES_PASSED = 8
"""So many places are looked at in one go, however many of them are empty."""
LISTED_MAX = 64
"""The keys of a store that has more are not listed with those beside it: the store is looked through instead."""

JUMP = 2654435769
"""The part of all places that a jump covers, times 2**32: by the golden ratio, jumps come down evenly spread."""


class Store(dict[str, Cell]):
    """A mapping from keys to cells; `put` and `drop` alone change it.

    A cell keeps its place from when it is put until it is dropped, and the next one that is put gets the place that
    became empty last. So the order of places, in which cells are gone through, does not depend on how keys are hashed.
    """

    __slots__ = (
        "_empty",
        "_hand",
        "_places",
        "admitted",
        "beside",
        "homes",
        "left_early",
        "let_go_ns",
        "overflow",
        "overflowed",
        "refused",
        "wide",
    )

    def __init__(self) -> None:
        super().__init__()
        self._places: list[Cell | None] = []
        self._empty: list[int] = []
        self._hand = 0
        """The place at which to go on passing by."""
        self.admitted = 0
        self.refused = 0
        self.overflow: Cell | None = None
        """In which the keys are counted together that find no room; it has no place."""
        self.overflowed = 0
        """Decisions about such keys."""
        self.left_early = 0
        """Keys that have left to make room, before they had been quiet for so long that they leave by themselves."""
        self.let_go_ns = -NEVER_NS
        """When a key left last that could come back while its use counts; see `kernel/evicted.py`."""
        self.beside: list[Store] | None = None
        """Of the stores of the limits that count with this one those that are wide; None if none can count with it."""
        self.homes: dict[str, Store] | None = None
        """The store of each key that is in one of them which is not wide; all of them share it, and the list."""
        self.wide = False

    def put(self, cell: Cell) -> None:
        """Keep a cell under its key, of which there is none yet."""
        self._list(cell.key)
        self[cell.key] = cell
        if self._empty:
            cell.place = self._empty.pop()
            self._places[cell.place] = cell
        else:
            cell.place = len(self._places)
            self._places.append(cell)

    def drop(self, cell: Cell) -> bool:
        """Forget a cell; returns whether it was here."""
        if self.get(cell.key) is not cell:
            return False
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1  # another thread may have found it, and be about to charge it
        self._places[cell.place] = None
        self._empty.append(cell.place)
        return True

    def hand_over(self, cell: Cell, other: Store) -> None:
        """Moves a cell of this store to another."""
        place = cell.place
        other.put(cell)  # first: a cell that is in two stores for a moment is not lost
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1
        self._places[place] = None
        self._empty.append(place)

    def _list(self, key: str) -> None:
        """Note of a key that this store has it, unless it has too many."""
        if self.homes is None or self.beside is None or self.wide:
            return
        if len(self) >= LISTED_MAX:
            self.beside.append(self)
            self.wide = True  # a listed key stays so until it leaves
        else:
            self.homes[key] = self

    def _unlist(self, key: str) -> None:
        if self.homes is not None and self.homes.get(key) is self:
            del self.homes[key]

    def in_order(self) -> list[Cell]:
        """All cells, in the order of their places."""
        return [cell for cell in self._places if cell is not None]

    def pass_by(self, count: int) -> list[Cell]:
        """The next few cells, at most `count`, in the order of their places and round again."""
        passed: list[Cell] = []
        for _ in range(min(PLACES_PASSED, len(self._places))):
            cell = self._places[self._hand]
            self._hand = (self._hand + 1) % len(self._places)
            if cell is not None:
                passed.append(cell)
                if len(passed) == count:
                    break
        return passed

    def jump(self) -> None:
        """Moves the hand some way on, so that the cells passed by are a sample of all."""
        if self._places:
            places = len(self._places)
            self._hand = (self._hand + (places * JUMP >> 32)) % places

    def look_around(self, shard: Shard, first: int) -> int:
        """Sends the next decision about some cells of that shard down the slow path.

        These are some from place `first` on; returns at which to go on, which is 0 when there are no more.
        """
        end = min(first + LOOKED_AROUND, len(self._places))
        for cell in self._places[first:end]:
            if cell is not None and cell.shard is shard:
                cell.room = -1
        return end if end < len(self._places) else 0

    def rest(self, key: str) -> bool:  # noqa: ARG002  # the compiled store's has the same face
        """Do without the object of a key until it is asked about; only the compiled store can."""
        return False

    def start_over(self) -> None:
        """Drop all cells and numbers."""
        for cell in self.values():
            self._unlist(cell.key)
            cell.room = -1
        self.clear()
        self._places.clear()
        self._empty.clear()
        self._hand = self.admitted = self.refused = 0
