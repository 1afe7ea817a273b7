"""Divides a contracts document into pages, which a hub stores under their digests, and joins pages to a document."""

# Theory of operation.
#
# The problem. A document with 10,000 customers takes a megabyte or two. A change is mostly about one customer, and each
# node has to know of it within an interval; a megabyte for each node and change is far too much.
#
# How it works. One page has the plans and the plan of unknown customers. The customers are divided over further pages
# by a hash of their identity, so that a change of one customer changes one page. A page is JSON in a fixed form, and is
# found by the SHA-256 of its bytes. So a page never changes, pages that are equal in two versions are stored once, and
# a reader fetches only the pages that it lacks. The digests are in the index, which is signed; so a page is verified by
# its digest, and needs no signature of its own.
#
#     index, signed ---+--- plans            b52c...
#     version 8        +--- customers 0      90ef...   unchanged since version 3
#                      +--- customers 1      17aa...   new
#                      +--- change 8, 7, 6   each change, and the pages of its version
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
from reconverge.contracts.model import CUSTOMERS_MAX, Customer, Document, InvalidContracts, Plan, check_identity
from reconverge.contracts.writing import table_of, table_of_customer

PAGES_MAX: Final = 256
"""The most pages of customers. Their digests take 17 KiB of the index."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""The most bytes of a page; a longer one is rejected. With all pages that long, a node would hold 64 MiB."""
PAGE_BYTES_WANTED: Final = PAGE_BYTES_MAX // 4
"""The size in bytes above which a page's customers are divided over more pages, up to PAGES_MAX."""
PAGES_TOO_MANY: Final = 8
"""The number of pages, as a multiple of the needed pages, above which customers are divided over fewer pages."""
DIGEST_LENGTH: Final = 2 * sha256().digest_size


class DamagedPage(Exception):  # its name is a fact, as all names of errors are here
    """Raised when bytes do not have the digest by which their page is named, or are no page at all."""


class Outline(NamedTuple):
    """The list of the pages of a document, by their digests: a page of plans, and pages of customers by page number."""

    plans: str
    customers: tuple[str, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        """Returns the digests of all pages: of the page of plans, and of the pages of customers."""
        return (self.plans, *self.customers)


@dataclass(frozen=True, slots=True)
class Divided:
    """A contracts document divided into pages: its outline (the list of pages), and the pages in bytes."""

    outline: Outline
    pages: Mapping[str, bytes]
    """The pages in bytes, by digest."""


def digest_of(payload: bytes) -> str:
    """Returns the digest under which a page of contracts is stored: the SHA-256 of its bytes, in hexadecimal."""
    return sha256(payload).hexdigest()


def page_number(identity: str, pages: int) -> int:
    """Returns which of `pages` pages of contracts has the customer, by number; the same in all processes."""
    return sha256(identity.encode("utf-8", "surrogatepass")).digest()[0] % pages


def divided(document: Document, *, pages: int | None = None) -> Divided:
    """Divides a document into pages: as few as possible, or `pages` pages of customers unless those are far too many.

    `pages` is the number of pages of customers before a change; with the same number, most pages stay the same.

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
    """Returns a page as JSON in bytes, in which plans, limits and customers have the order that they have in `said`."""
    return json.dumps(said, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def table_in(payload: bytes, digest: str) -> Any:
    """Returns the content of a page, parsed from JSON.

    Raises DamagedPage if the bytes are too many, have another digest than `digest`, or are not JSON.
    """
    if len(payload) > PAGE_BYTES_MAX:
        raise DamagedPage(
            f"has {len(payload)} bytes, and at most {PAGE_BYTES_MAX} are read; publish the contracts again"
        )
    if digest_of(payload) != digest:
        raise DamagedPage(f"has {len(payload)} bytes with another digest than {digest}; publish the contracts again")
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise DamagedPage(f"has the digest {digest}, and is not JSON; publish the contracts again") from None


def plans_in(said: object) -> Document:
    """Reads the parsed page of plans. Returns a document with these plans and no customers. Raises InvalidContracts."""
    if isinstance(said, dict) and "customers" in said:
        raise InvalidContracts(
            "the page of plans has customers, which must be on other pages; publish the contracts again", "customers"
        )
    return checked(said)


def customers_in(said: object, plans: Mapping[str, Plan], *, number: int, pages: int) -> dict[str, Customer]:
    """Makes the customers of a page from `said`, its parsed JSON; customers with equal entries share one `Customer`.

    Raises InvalidContracts, also for a customer that belongs on another page.
    """
    if not isinstance(said, dict):
        raise InvalidContracts(
            f"page {number} of {pages} is {type(said).__name__}, not a table of customers; publish the contracts again",
            "customers",
        )
    same: dict[str, Customer] = {}
    customers: dict[str, Customer] = {}
    for identity, each in said.items():
        key = repr(each)
        if key not in same:
            same[key] = checked_customer(identity, each, plans)
        check_identity(identity, "customers")
        if page_number(identity, pages) != number:
            raise InvalidContracts(
                f"this customer is on page {number} of {pages}, but belongs on another; publish the contracts again",
                "customers",
                identity,
            )
        customers[identity] = same[key]
    return customers


def joined(plans: Document, pages: Iterable[Mapping[str, Customer]]) -> Document:
    """Joins the plans and the pages of customers to a document. Raises InvalidContracts for too many customers."""
    customers: dict[str, Customer] = {}
    for page in pages:
        customers.update(page)
    if len(customers) > CUSTOMERS_MAX:
        raise InvalidContracts(
            f"has {len(customers)} entries; at most {CUSTOMERS_MAX} are possible; remove some", "customers"
        )
    return Document(plans.plans, customers, plans.unknown)


def tables_of(customers: Mapping[str, Customer]) -> dict[str, Any]:
    """Returns the contracts of a page's customers as dicts of plain values, by the customers' names."""
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
        raise InvalidContracts(f"{what} {len(payload)} bytes, and at most {PAGE_BYTES_MAX} fit; shorten entries")
