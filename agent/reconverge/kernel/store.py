"""A store: a mapping from the keys of one limit to its cells. The compiled kernel has an equal store in C."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.cell import Cell, Shard

LOOKED_AROUND = 4096
"""How many places `look_around` visits in one call."""
PLACES_PASSED = 8
"""The most places that one call of `pass_by` visits, however many of them are empty."""
LISTED_MAX = 64
"""The most keys of a store that are listed in `homes`. A store with more keys is wide, and is searched instead."""

JUMP = 2654435769
"""The part of all places that a jump skips, times 2**32: with the golden ratio, the jumps spread evenly."""


class Store(dict[str, Cell]):
    """A mapping from keys to cells, which only the methods of this class change.

    A cell keeps its place until it is dropped, and the next cell gets the place that became empty last. So the order of
    places, in which cells are visited, does not depend on how keys are hashed.
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
        """The place from which the next `pass_by` goes on."""
        self.admitted = 0
        self.refused = 0
        self.overflow: Cell | None = None
        """The cell that counts the keys for which there is no room; it has no place."""
        self.overflowed = 0
        """The number of decisions about keys for which there is no room."""
        self.left_early = 0
        """The number of keys that were evicted to make room, before they were idle."""
        self.let_go_ns = -NEVER_NS
        """When the last key left that may come back while its use counts; see `kernel/evicted.py`."""
        self.beside: list[Store] | None = None
        """The wide stores of all limits that share their keys with this one; None if there are no such limits. Those
        limits share this list."""
        self.homes: dict[str, Store] | None = None
        """The store of each key that is not in a wide store. All limits that share their keys share this mapping."""
        self.wide = False

    def put(self, cell: Cell) -> None:
        """Adds a cell under its key, which must not be in the store yet."""
        self._list(cell.key)
        self[cell.key] = cell
        if self._empty:
            cell.place = self._empty.pop()
            self._places[cell.place] = cell
        else:
            cell.place = len(self._places)
            self._places.append(cell)

    def drop(self, cell: Cell) -> bool:
        """Removes a cell; returns whether it was in the store."""
        if self.get(cell.key) is not cell:
            return False
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1  # another thread may have found the cell, and be about to charge it
        self._places[cell.place] = None
        self._empty.append(cell.place)
        return True

    def hand_over(self, cell: Cell, other: Store) -> None:
        """Moves a cell from this store to another."""
        place = cell.place
        other.put(cell)  # first: a cell that is in two stores for a moment is not lost
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1
        self._places[place] = None
        self._empty.append(place)

    def _list(self, key: str) -> None:
        """Adds a key to the index of the keys in this store, unless the index is full."""
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
        """Returns all cells, in the order of their places."""
        return [cell for cell in self._places if cell is not None]

    def pass_by(self, count: int) -> list[Cell]:
        """Returns the next few cells, at most `count`, in the order of their places; begins again after the last."""
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
        """Skips some places, so that the cells that `pass_by` returns are a sample of all."""
        if self._places:
            places = len(self._places)
            self._hand = (self._hand + (places * JUMP >> 32)) % places

    def look_around(self, shard: Shard, first: int) -> int:
        """Makes the next decision about some cells of a shard take the slow path.

        Starts at place `first`; returns the place at which to go on, or 0 when all cells have been visited.
        """
        end = min(first + LOOKED_AROUND, len(self._places))
        for cell in self._places[first:end]:
            if cell is not None and cell.shard is shard:
                cell.room = -1
        return end if end < len(self._places) else 0

    def rest(self, key: str) -> bool:  # noqa: ARG002  # the compiled store uses it
        """Releases the Python object of a key until it is used again. Only the compiled store can do this."""
        return False

    def start_over(self) -> None:
        """Drops all cells and counters."""
        for cell in self.values():
            self._unlist(cell.key)
            cell.room = -1
        self.clear()
        self._places.clear()
        self._empty.clear()
        self._hand = self.admitted = self.refused = 0
