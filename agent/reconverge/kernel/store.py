"""A store: a mapping from the keys of one limit to its cells. The compiled kernel has an equal store in C."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.cell import Cell, Shard

LOOKED_AROUND = 4096
"""How many places `look_around` visits in one call."""
PLACES_PASSED = 8
"""The most places that one call of `pass_by` visits, however many of them are empty."""
LISTED_MAX = 64
"""The most keys that one store lists in `homes`, an index by which a key is found in one of several stores. A store
with more keys is wide: it lists no further keys, so a look-up searches the store itself."""

JUMP = 2654435769
"""The fraction of all places that `jump` skips, times 2**32. It is the golden ratio, so that jumps spread evenly."""


class Store(dict[str, Cell]):
    """A mapping from keys to cells, which only the methods of this class change.

    Each cell has a place, a number, until it is dropped; a new cell gets the place that became empty last. Cells are
    visited in the order of places, which does not depend on how keys are hashed.
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
        """The place at which the next call of `pass_by` begins."""
        self.admitted = 0
        self.refused = 0
        self.overflow: Cell | None = None
        """The overflow cell, which counts all keys for which the node has no room; None before there is such a key. It
        has no place."""
        self.overflowed = 0
        """The number of decisions about keys for which the node had no room."""
        self.left_early = 0
        """The number of keys that were evicted to make room although they were not idle."""
        self.let_go_ns = -NEVER_NS
        """When the last key was evicted whose use still counted, so that the key may come back; see
        `kernel/evicted.py`."""
        self.beside: list[Store] | None = None
        """The wide stores among those that share their keys with this store, as the plans of one limit do; None if none
        does. All these stores have this same list."""
        self.homes: dict[str, Store] | None = None
        """By key: the store that has it, for keys that are not in a wide store; None if no stores share keys. All
        stores that share keys have this same mapping."""
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
        """Removes a cell (the counts of one key); returns whether it was in the store."""
        if self.get(cell.key) is not cell:
            return False
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1  # another thread may have found the cell, and be about to charge it
        self._places[cell.place] = None
        self._empty.append(cell.place)
        return True

    def hand_over(self, cell: Cell, other: Store) -> None:
        """Moves a cell, the counts of one key, from this store to `other`."""
        place = cell.place
        other.put(cell)  # first: a cell that is in two stores for a moment is not lost
        self._unlist(cell.key)
        del self[cell.key]
        cell.room = -1
        self._places[place] = None
        self._empty.append(place)

    def _list(self, key: str) -> None:
        """Adds a key to `homes`, the index of several stores; a store with LISTED_MAX keys becomes wide instead."""
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
        """Returns all cells, each the counts of one key, in the order of their places."""
        return [cell for cell in self._places if cell is not None]

    def pass_by(self, count: int) -> list[Cell]:
        """Returns the next cells (each the counts of one key) in the order of places, at most `count`.

        After the last place it begins again with the first.
        """
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
        """Skips some places, so that the next calls of `pass_by` return cells from all over the store."""
        if self._places:
            places = len(self._places)
            self._hand = (self._hand + (places * JUMP >> 32)) % places

    def look_around(self, shard: Shard, first: int) -> int:
        """Makes the next decision about keys of `shard` take the slow path, for the next LOOKED_AROUND places.

        Starts at the place `first`. Returns the place at which the next call should start, or 0 when all cells were
        visited.
        """
        end = min(first + LOOKED_AROUND, len(self._places))
        for cell in self._places[first:end]:
            if cell is not None and cell.shard is shard:
                cell.room = -1
        return end if end < len(self._places) else 0

    def rest(self, key: str) -> bool:  # noqa: ARG002  # the compiled store uses it
        """Returns False. The compiled store releases the Python object of a key here, until the key is used again."""
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
