"""Contracts as a hub keeps them: a document divided into pages, each of which is found by its digest."""

# Theory of operation.
#
# The problem. A document with 10,000 customers takes a megabyte or two. A change is mostly about one customer, and each
# node has to know of it within an interval; a megabyte for each node and change is far too much.
#
# How it works. One page has the plans and what holds for unknown customers. The customers are divided over further
# pages by a hash of their identity, so that a change of one customer changes one page. A page is JSON in one way of
# writing it, and is found by the SHA-256 of its bytes. So it never changes, what is the same in two versions is kept
# once, and a reader fetches what it has not yet. The digests stand in the index, which is signed; so a page is believed
# for its digest, and needs no signature of its own.
#
#     index, signed ---+--- plans            b52c...
#     version 8        +--- customers 0      90ef...   unchanged since version 3
#                      +--- customers 1      17aa...   new
#                      +--- change 8, 7, 6   what was changed, and of which pages that version was
#
# There are 1, 2, 4 ... 256 pages of customers: as few as keep each of them under PAGE_BYTES_WANTED. Another number
# changes all pages, so the number stays while the pages are neither too long nor far too many.

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from reconverge.contracts.document import checked, checked_customer
from reconverge.contracts.model import CUSTOMERS_MAX, Customer, Document, InvalidContracts, Plan
from reconverge.contracts.writing import table_of, table_of_customer

PAGES_MAX: Final = 256
"""Of customers. Their digests take 17 KiB of the index."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""A longer page is not looked at. With all pages that long, a node would hold 64 MiB."""
PAGE_BYTES_WANTED: Final = PAGE_BYTES_MAX // 4
"""A page that is longer is divided, as long as there may be more pages."""
PAGES_TOO_MANY: Final = 8
"""So many times more pages than are needed are brought together again."""
DIGEST_LENGTH: Final = 2 * sha256().digest_size


class DamagedPage(Exception):  # a fact, as all names of errors are here
    """Raised for bytes that are not the page of that digest, or no page at all."""


class Outline(NamedTuple):
    """Of which pages a document is made: their digests."""

    plans: str
    customers: tuple[str, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        """All of them."""
        return (self.plans, *self.customers)


@dataclass(frozen=True, slots=True)
class Divided:
    """A document as a hub keeps it."""

    outline: Outline
    pages: Mapping[str, bytes]
    """By digest."""


def digest_of(payload: bytes) -> str:
    """By what a page is found."""
    return sha256(payload).hexdigest()


def page_number(identity: str, pages: int) -> int:
    """On which of so many pages a customer is; the same wherever it is asked."""
    return sha256(identity.encode("utf-8", "surrogatepass")).digest()[0] % pages


def divided(document: Document, *, pages: int | None = None) -> Divided:
    """The pages of a document: as few as do, or as many as before if that is not far too many.

    Raises InvalidContracts if the plans, or the customers of one of PAGES_MAX pages, are longer than a page may be.
    """
    table = table_of(document)
    plans = payload_of({"plans": table["plans"], "unknown": table["unknown"]})
    _check_length(plans, "the plans take")
    least, customers = _fewest(table["customers"])
    if pages is not None and least < pages <= least * PAGES_TOO_MANY:
        customers = _customer_pages(table["customers"], pages)
    for each in customers:
        _check_length(each, f"the customers on one of {len(customers)} pages take")
    outline = Outline(digest_of(plans), tuple(map(digest_of, customers)))
    return Divided(outline, dict(zip(outline.digests, (plans, *customers), strict=True)))


def payload_of(said: object) -> bytes:
    """A page as it is kept. The order of plans, limits and customers is what the table has."""
    return json.dumps(said, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def table_in(payload: bytes, digest: str) -> Any:
    """Reads a page. Raises DamagedPage unless it is the page of that digest, and JSON."""
    if len(payload) > PAGE_BYTES_MAX:
        raise DamagedPage(f"is longer than {PAGE_BYTES_MAX} bytes")
    if digest_of(payload) != digest:
        raise DamagedPage(f"has {len(payload)} bytes with another digest")
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise DamagedPage("is not JSON") from None


def plans_in(said: object) -> Document:
    """The document without its customers, as the page of plans says. Raises InvalidContracts."""
    if isinstance(said, dict) and "customers" in said:
        raise InvalidContracts("stand on pages of their own", "customers")
    return checked(said)


def customers_in(said: object, plans: Mapping[str, Plan], *, number: int, pages: int) -> dict[str, Customer]:
    """The customers of one page. Raises InvalidContracts, also for a customer that belongs on another one."""
    if not isinstance(said, dict):
        raise InvalidContracts("a page of customers must be a table", "customers")
    customers: dict[str, Customer] = {}
    for identity, each in said.items():
        customers[identity] = checked_customer(identity, each, plans)
        if page_number(identity, pages) != number:
            raise InvalidContracts(f"is on page {number} of {pages}, where it does not belong", "customers", identity)
    return customers


def joined(plans: Document, pages: Iterable[Mapping[str, Customer]]) -> Document:
    """The whole document. Raises InvalidContracts if there are too many customers."""
    customers: dict[str, Customer] = {}
    for page in pages:
        customers.update(page)
    if len(customers) > CUSTOMERS_MAX:
        raise InvalidContracts(f"has {len(customers)} entries; at most {CUSTOMERS_MAX} are possible", "customers")
    return Document(plans.plans, customers, plans.unknown)


def tables_of(customers: Mapping[str, Customer]) -> dict[str, Any]:
    """Returns the tables of a page's customers."""
    return {identity: table_of_customer(each) for identity, each in customers.items()}


def _fewest(customers: Mapping[str, Any]) -> tuple[int, list[bytes]]:
    pages = 1
    while True:
        payloads = _customer_pages(customers, pages)
        if pages == PAGES_MAX or max(map(len, payloads)) <= PAGE_BYTES_WANTED:
            return pages, payloads
        most = -(-sum(map(len, payloads)) // PAGE_BYTES_WANTED)  # with fewer, one of them is longer than that
        pages *= 2
        while pages < min(most, PAGES_MAX):
            pages *= 2


def _customer_pages(customers: Mapping[str, Any], pages: int) -> list[bytes]:
    tables: list[dict[str, Any]] = [{} for _ in range(pages)]
    for identity in sorted(customers):
        tables[page_number(identity, pages)][identity] = customers[identity]
    return [payload_of(table) for table in tables]


def _check_length(payload: bytes, what: str) -> None:
    if len(payload) > PAGE_BYTES_MAX:
        raise InvalidContracts(f"{what} {len(payload)} bytes, and a page may have {PAGE_BYTES_MAX}; shorten it")
