"""A bounded cache of the pages of contracts on a node. It first evicts pages of which no customer was looked up."""

from __future__ import annotations

from cachetools import Cache

from reconverge.contracts.on_demand.packed_page import PackedPage


class PageTable(Cache[int, PackedPage]):
    """A cache of pages of contracts, by page number. Together they take at most `bytes_max` bytes of memory.

    Only the fetching loop uses it. Decisions, in any thread, read only `held`, a plain dictionary of the same pages:
    that takes no lock, and unlike a look-up in the cache it reorders nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, getsizeof=lambda page: min(page.weight, bytes_max))  # one page always has room
        self.held: dict[int, PackedPage] = {}
        self.evicted = 0
        """The number of pages that were evicted to make room for others."""

    def has_room(self, page: PackedPage) -> bool:
        """Whether the page fits into the cache without the eviction of another page."""
        return bool(self.currsize + self.getsizeof(page) <= self.maxsize)

    def __setitem__(self, number: int, page: PackedPage) -> None:
        super().__setitem__(number, page)
        self.held[number] = page

    def __delitem__(self, number: int) -> None:
        super().__delitem__(number)
        self.held.pop(number, None)

    def popitem(self) -> tuple[int, PackedPage]:
        """Evicts a page, and returns its number and the page: the least recently used one.

        Pages of which no customer was ever looked up are evicted before all others.
        """
        number = min(self.held, key=lambda each: (self.held[each].met, self.held[each].last))
        page = self.held[number]
        del self[number]
        self.evicted += 1
        return number, page
