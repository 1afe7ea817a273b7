"""Makes a document from the pages at a hub, and fetches only the pages that it has not read before."""

# A page is named by a digest of its content, so a page that was read once need not be read again. The customers of each
# page are kept, as objects that the document shares. A customer is checked against the plans; if the plans have
# changed, the customers of unchanged pages are checked again, from these objects.
#
# Reading and checking 10,000 customers takes a few tenths of a second. The loop may be that of an application, so pages
# of more than INLINE_BYTES_MAX together are read in a thread.

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reconverge.contracts.model import Customer, Document
from reconverge.contracts.store.pages import (
    PAGE_BYTES_MAX,
    DamagedPage,
    Outline,
    customers_in,
    joined,
    plans_in,
    table_in,
    tables_of,
)
from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.port import ContractStore

FETCHED_AT_ONCE: Final = 3
"""The number of pages that are fetched side by side. A hub on Redis has one connection more, for exchanges."""
INLINE_BYTES_MAX: Final = 64 * 1024
"""The most bytes of pages that are parsed on the event loop, within a few milliseconds, and not in a thread."""


class MissingPage(Exception):  # its name is a fact, as all names of errors are here
    """Raised when the hub does not have a page of the contracts that their index, the signed list of pages, names."""


class PageProblem(NamedTuple):
    """A page of the contracts that could not be fetched or read: its digest, and the error."""

    digest: str
    error: Exception


class PagesOfHub:
    """Fetches the pages (parts) of a contracts document that it has not read before. For one event loop at a time."""

    def __init__(self) -> None:
        self.fetched = 0
        """The number of pages that were fetched."""
        self._unread: dict[str, bytes] = {}
        """Pages of an incomplete document, by digest, so that an interrupted reader need not fetch them again."""
        self._plans: tuple[str, Document] | None = None
        """The page of plans that was read last: its digest, and a document of its plans."""

    def _knows_plans(self, outline: Outline) -> bool:
        return self._plans is not None and self._plans[0] == outline.plans

    async def _unread_of(
        self, store: ContractStore, outline: Outline, customers: Iterable[str], timeout_s: float | None
    ) -> dict[str, bytes]:
        """Fetches the pages with the digests `customers` and, if new, that of plans; returns their bytes, by digest.

        Pages that an interrupted call has fetched are not fetched again.
        """
        # A thread that a cancelled call has left behind may still join pages: so each call has a table of its own.
        wanted = dict.fromkeys((*(() if self._knows_plans(outline) else (outline.plans,)), *customers))
        unread = self._unread = {digest: payload for digest, payload in self._unread.items() if digest in wanted}
        lacking = [digest for digest in wanted if digest not in unread]
        for start in range(0, len(lacking), FETCHED_AT_ONCE):
            await self._fetch(store, lacking[start : start + FETCHED_AT_ONCE], unread, timeout_s)
        return unread

    async def _fetch(
        self,
        store: ContractStore,
        digests: Sequence[str],
        found: dict[str, bytes],
        timeout_s: float | None,
        problems: list[PageProblem] | None = None,
    ) -> None:
        """Fetches pages concurrently, and adds their bytes to `found`, by digest.

        Appends the error of a missing or damaged page to `problems`; raises it if `problems` is None.
        """
        answers = await asyncio.gather(
            *(fetched_page(store, digest, timeout_s=timeout_s) for digest in digests), return_exceptions=True
        )
        failure: BaseException | None = None
        for digest, answer in zip(digests, answers, strict=True):
            if isinstance(answer, bytes):
                found[digest] = answer
                self.fetched += 1
            elif problems is not None and isinstance(answer, MissingPage | DamagedPage):
                problems.append(PageProblem(digest, answer))
            else:
                failure = failure or answer
        if failure is not None:
            raise failure

    def _plans_of(self, outline: Outline, payloads: Mapping[str, bytes]) -> tuple[tuple[str, Document], bool]:
        """Returns the page of plans, as (digest, document), and True if its plans equal those that were read before."""
        known = self._plans
        if known is not None and known[0] == outline.plans:
            return known, True
        plans = outline.plans, plans_in(table_in(payloads[outline.plans], outline.plans))
        return plans, known is not None and known[1].plans == plans[1].plans


class Pages(PagesOfHub):
    """Fetches the pages of a contracts document, and keeps all its customers in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._customers: dict[tuple[int, str], dict[str, Customer]] = {}
        """The customers of each page of the last document, by the page's number and digest."""

    async def document(self, store: ContractStore, outline: Outline, *, timeout_s: float | None = None) -> Document:
        """Fetches the new pages that `outline` lists, and returns the document; waits at most `timeout_s` for a page.

        Raises HubUnavailable, TimeoutError, MissingPage, DamagedPage, and InvalidContracts.
        """
        new = [each for number, each in enumerate(outline.customers) if (number, each) not in self._customers]
        unread = await self._unread_of(store, outline, new, timeout_s)
        if sum(map(len, unread.values())) > INLINE_BYTES_MAX or not self._knows_plans(outline):
            return await asyncio.to_thread(self._join, outline, unread)
        return self._join(outline, unread)

    def of_payloads(self, payloads: Mapping[str, bytes], outline: Outline) -> Document:
        """Makes a document from `payloads`, the bytes of its pages by digest; `outline` lists these pages.

        Raises MissingPage, DamagedPage, and InvalidContracts.
        """
        for digest in outline.digests:
            if digest not in payloads:
                raise MissingPage(digest)
        return self._join(outline, payloads)

    def forget(self) -> None:
        """Drops all customers and plans, because pages are fetched on demand from now on."""
        self._plans, self._customers, self._unread = None, {}, {}

    def _join(self, outline: Outline, unread: Mapping[str, bytes]) -> Document:
        plans, same_plans = self._plans_of(outline, unread)
        pages = len(outline.customers)
        read: dict[tuple[int, str], dict[str, Customer]] = {}
        for number, digest in enumerate(outline.customers):
            known = self._customers.get((number, digest))
            if known is None or not same_plans:
                table = table_in(unread[digest], digest) if known is None else tables_of(known)
                known = customers_in(table, plans[1].plans, number=number, pages=pages)
            read[number, digest] = known
        document = joined(plans[1], read.values())
        self._plans, self._customers, self._unread = plans, read, {}
        return document


async def fetched_page(store: ContractStore, digest: str, *, timeout_s: float | None = None) -> bytes:
    """Fetches one page, and checks its digest. Raises HubUnavailable, TimeoutError, MissingPage and DamagedPage."""
    async with asyncio.timeout(timeout_s):
        payload = await store.get_page(digest, bytes_max=PAGE_BYTES_MAX)
    if payload is None:
        raise MissingPage(digest)
    if type(payload) is not bytes:
        raise HubUnavailable(
            "protocol",
            f"the hub returned {type(payload).__name__} for the page {digest} of contracts, not bytes; {ONE_VERSION}",
            applied=False,
        )
    table_in(payload, digest)
    return payload


async def put_pages(
    store: ContractStore,
    pages: Mapping[str, bytes],
    digests: Iterable[str],
    *,
    keep_s: float,
    timeout_s: float | None = None,
) -> list[str]:
    """Stores at the hub those of `pages` that it lacks, and makes it keep the pages `digests` for `keep_s` seconds.

    Returns the digests of pages that neither the hub nor `pages` has. Raises HubUnavailable and TimeoutError.
    """
    async with asyncio.timeout(timeout_s):
        lacking = await store.keep_pages(list(dict.fromkeys(digests)), keep_s=keep_s)
    for digest in lacking:
        if digest in pages:
            async with asyncio.timeout(timeout_s):
                await store.put_page(digest, pages[digest], keep_s=keep_s)
    return [digest for digest in lacking if digest not in pages]
