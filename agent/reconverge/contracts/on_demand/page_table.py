"""The pages that a node holds: a bounded table, from which what no customer was met of goes first."""

from __future__ import annotations

from cachetools import Cache

from reconverge.contracts.on_demand.packed_page import PackedPage


class PageTable(Cache[int, PackedPage]):
    """Pages by number, as many as `bytes_max` bytes have room for, and at most `PAGES_MAX` by their numbers.

    For the loop that fetches. Decisions look at `held` alone, a dictionary that always has the same pages: a look into
    it takes no lock, and does not reorder what another thread is about to change.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, getsizeof=lambda page: min(page.weight, bytes_max))  # one page always has room
        self.held: dict[int, PackedPage] = {}
        self.evicted = 0
        """How many had to go for others."""

    def has_room(self, page: PackedPage) -> bool:
        """Whether none has to go for it."""
        return bool(self.currsize + self.getsizeof(page) <= self.maxsize)

    def __setitem__(self, number: int, page: PackedPage) -> None:
        super().__setitem__(number, page)
        self.held[number] = page

    def __delitem__(self, number: int) -> None:
        super().__delitem__(number)
        self.held.pop(number, None)

    def popitem(self) -> tuple[int, PackedPage]:
        """Drop a page of which no customer was met, if there is one; else the one that was used longest ago."""
        number = min(self.held, key=lambda each: (self.held[each].met, self.held[each].last))
        page = self.held[number]
        del self[number]
        self.evicted += 1
        return number, page
