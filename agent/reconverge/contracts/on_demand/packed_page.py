"""One page of the contracts, with many customers, in a compact form in which a single customer can be looked up."""

# Theory of operation.
#
# A dict of customers takes 350 bytes for each of them, of which the name takes 20. A node that gets requests of 500
# customers needs 500 contracts, but they are on most of the pages: on 125 of 128, with 100,000 customers. So it is not
# enough to fetch few pages; the pages have to be small in memory.
#
# The names are in one string of bytes, in the order of the page, with a byte before each that occurs in no UTF-8.
# Looking up a name is one search in a few kilobytes, in C. Two arrays have the position of each name and the number of
# its contract. Customers that are on a plan and have nothing of their own share one contract.
#
#     names     ff a d a ff b o b ff c y ff
#     starts    0        4        8
#     which     0        1        0            contracts   (pro), (free, calls: 700/s)

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from reconverge.contracts.model import Customer, Plan, is_plain
from reconverge.contracts.store.pages import customers_in, tables_of

SEPARATOR: Final = b"\xff"
CONTRACT_BYTES: Final = 600
"""The estimated size in bytes of a contract that has more than a plan: a `Customer` with all that it contains."""
PAGE_BYTES: Final = 600
"""The estimated size in bytes of a page without its customers."""

_moments = count(1)


class PackedPage(Mapping[str, Customer]):
    """The customers of one page of the contracts, by name. Immutable, but `met` and `last` record look-ups."""

    __slots__ = ("_contracts", "_names", "_starts", "_which", "digest", "last", "met", "weight")

    def __init__(self, digest: str, customers: Mapping[str, Customer]) -> None:
        self.digest = digest
        self.met = False
        """Whether a customer on this page was ever looked up."""
        self.last = next(_moments)
        """A number that orders pages by their last look-up or, without one, by when they were made; higher is later."""
        names, starts, which = bytearray(), array("I"), array("I")
        numbers: dict[int, int] = {}
        contracts: list[Customer] = []
        for identity, customer in customers.items():
            starts.append(len(names))
            names += SEPARATOR + _bytes(identity)
            number = numbers.setdefault(id(customer), len(contracts))
            if number == len(contracts):
                contracts.append(customer)
            which.append(number)
        self._names, self._starts, self._which = bytes(names + SEPARATOR), starts, which
        self._contracts = tuple(contracts)
        own = sum(1 for each in contracts if not is_plain(each))
        self.weight = PAGE_BYTES + len(self._names) + 2 * starts.itemsize * len(starts) + CONTRACT_BYTES * own
        """About how many bytes of memory the page takes."""

    def peek(self, identity: str) -> Customer | None:
        """Returns the contract of a customer, without marking the page as used; None if the page does not have it."""
        position = self._names.find(SEPARATOR + _bytes(identity) + SEPARATOR)
        return None if position < 0 else self._contracts[self._which[bisect_left(self._starts, position)]]

    def __getitem__(self, identity: str) -> Customer:
        customer = self.peek(identity)
        if customer is None:
            raise KeyError(identity)
        self.met, self.last = True, next(_moments)
        return customer

    def __iter__(self) -> Iterator[str]:
        ends = [*self._starts[1:], len(self._names) - 1]
        for start, end in zip(self._starts, ends, strict=True) if self._starts else ():
            yield self._names[start + 1 : end].decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return len(self._starts)

    def items_quietly(self) -> Iterator[tuple[str, Customer]]:
        """Iterates over all customers with their contracts, without marking the page as used."""
        for identity, which in zip(self, self._which, strict=True):
            yield identity, self._contracts[which]

    def tables(self) -> dict[str, Any]:
        """Returns the page's customers as dicts of plain values, by their names, without marking the page as used."""
        return tables_of(dict(self.items_quietly()))


def this_moment() -> int:
    """Returns the next number of a counter by which look-ups of pages are ordered in time: higher than all before."""
    return next(_moments)


def packed(said: object, digest: str, plans: Mapping[str, Plan], *, number: int, pages: int) -> PackedPage:
    """Makes a page from `said`, its parsed JSON. Raises InvalidContracts, also if a customer belongs elsewhere."""
    return PackedPage(digest, customers_in(said, plans, number=number, pages=pages))


def _bytes(identity: str) -> bytes:
    return identity.encode("utf-8", "surrogatepass")
