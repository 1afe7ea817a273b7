"""Fetches a page of customers' contracts when one of them sends its first request, and again when the page changes."""

# Theory of operation.
#
# A page is a part of the contracts, and the index is the signed list of the pages. The plans and the index are always
# held. A page of customers is fetched when a request names a customer that may be on it, kept in a bounded cache, and
# dropped when none of its customers was looked up for an hour or two.
#
# A new version. The version before stays in force as a whole, while those held pages that have changed are fetched;
# then the new version comes into force as a whole. So a node never decides by a mixture of two versions, and no known
# customer becomes unknown again because its page has changed. If a page cannot be fetched, or is damaged, the version
# before stays in force, as it does where everything is held.
#
# When the customers are divided over another number of pages, all pages are new. Then the node fetches the pages that
# have the customers of its used pages: the numbers of pages are powers of two, so the customers of page 3 of 4 are on
# pages 3 and 7 of 8. If all customers were held before, it fetches the pages of the customers that have sent requests
# lately.
#
# A flood of names without a contract. Each page is fetched once, and there are 256 at most; names are looked up in it
# from then on. Only if the cache is full could such names make a node fetch and drop pages again and again. So a page
# none of whose customers has sent a request never takes the place of another page; the requested names are stored as
# absent; and a full cache fetches FULL_PAGES pages in an interval at most.
#
# A failed fetch is repeated after a pause, which grows up to a second: for one page if that is missing or damaged, and
# for all pages if the hub does not answer.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.on_demand.customers import ContractsDecider, Meanwhile, OnDemandCustomers
from reconverge.contracts.on_demand.packed_page import PackedPage, packed, this_moment
from reconverge.contracts.on_demand.page_table import PageTable
from reconverge.contracts.store.fetching import FETCHED_AT_ONCE, MissingPage, PageProblem, PagesOfHub
from reconverge.contracts.store.pages import (
    PAGE_BYTES_MAX,
    DamagedPage,
    Outline,
    digest_of,
    page_number,
    payload_of,
    table_in,
)
from reconverge.contracts.writing import table_of
from reconverge.errors import InvalidSetting
from reconverge.hub.port import ContractStore
from reconverge.runtime.backoff import backoff_ns

TABLE_BYTES: Final = 32 * 1024 * 1024
"""The memory of all held pages in bytes, by default. 100,000 customers take 3 MiB, and a million about 40 MiB."""
TABLE_BYTES_MIN: Final = 16 * PAGE_BYTES_MAX
"""The memory in bytes of the largest page, if each of its customers has a limit of its own."""
IDLE_S: Final = 3600.0
"""The seconds without a look-up of its customers after which a page is dropped; it takes up to twice this time."""
FULL_PAGES: Final = 16
"""The most pages that are fetched in a sync interval while the table of pages has no room."""
INLINE_BYTES_MAX: Final = 8 * 1024
"""The longest page, in bytes, that is parsed on the event loop, in a millisecond or two, and not in a thread."""


_Version = tuple[Document, tuple[str, Document], PageTable]
"""A version of the contracts: its document, its page of plans with the digest of that page, and the held pages of
customers."""


class PagesOnDemand(PagesOfHub):
    """The pages of the contracts on a node that fetches only pages of customers that have sent requests.

    Args:
        decider: the object that decides requests by these contracts.
        clock: the node's clock.
        wake: makes the fetching loop check `due_ns`; decisions call it, so it must not wait.
        meanwhile: how a customer's requests are decided while its page is being fetched; see `Meanwhile`.
        bytes_max: about how many bytes of memory the pages may take.

    Raises:
        InvalidSetting: `bytes_max` has no room for the largest page.
    """

    def __init__(
        self,
        decider: ContractsDecider,
        clock: Clock,
        *,
        wake: Callable[[], None],
        meanwhile: Meanwhile = "unknown",
        bytes_max: int = TABLE_BYTES,
    ) -> None:
        if bytes_max < TABLE_BYTES_MIN:
            raise InvalidSetting(
                "page_bytes", bytes_max, f"must be at least {TABLE_BYTES_MIN} bytes, which one page may take"
            )
        super().__init__()
        self._decider = decider
        self._clock = clock
        self._wake = wake
        self._meanwhile: Meanwhile = meanwhile
        self._bytes_max = bytes_max
        self._idle = self._evicted = 0
        self.version: Document | None = None
        """The document in force; None if its pages are not fetched on demand."""
        self.unkept = False
        """Whether a page has come since this was last set to False."""
        self._next: _Version | None = None
        """The version that was read last and is not in force yet; None if there is none."""
        self._table = PageTable(bytes_max)
        self._heaviest = PAGE_BYTES_MAX
        """The memory of the heaviest page that was fetched; none heavier is expected."""
        self._not_before_ns: dict[int, int] = {}
        """For each page that was missing or damaged, by number: the moment at which it may be fetched again."""
        self._failures: dict[int, int] = {}
        self._pause_until_ns = self._failures_in_a_row = 0
        self._in_full = (0, 0)
        """The beginning of the present interval, and the number of pages fetched in it while the table was full."""
        self._swept_ns = clock.monotonic_ns()
        self._swept_at = this_moment()

    @property
    def customers(self) -> OnDemandCustomers | None:
        """Returns the customers of the contracts in force; None if those are not fetched on demand."""
        customers = None if self.version is None else self.version.customers
        return customers if isinstance(customers, OnDemandCustomers) else None

    @property
    def held(self) -> Mapping[int, PackedPage]:
        """Returns the pages of customers that this node holds, by page number."""
        return self._table.held

    @property
    def bytes_held(self) -> int:
        """Returns about how many bytes of memory the held pages take."""
        return int(self._table.currsize)

    @property
    def dropped(self) -> int:
        """Returns the number of pages that were dropped because they were not used, or to make room for others."""
        return self._idle + self._evicted + self._table.evicted

    # ------------------------------------------------------------ the pages of a new version

    async def document(self, store: ContractStore, outline: Outline, *, timeout_s: float | None = None) -> Document:
        """Fetches the plans and the needed pages of the next version, which `outline` lists, and returns its document.

        The needed pages are those with the customers of the pages that are held now.

        Raises HubUnavailable, TimeoutError, MissingPage, DamagedPage, and InvalidContracts.
        """
        numbers = self._numbers_to_hold(len(outline.customers))
        unchanged = {number for number in numbers if self._is_held(number, outline)}
        new = [outline.customers[number] for number in numbers if number not in unchanged]
        unread = await self._unread_of(store, outline, new, timeout_s)
        self._next = await asyncio.to_thread(self._joined, outline, numbers, unread)
        return self._next[0]

    def of_payloads(self, payloads: Mapping[str, bytes], outline: Outline) -> Document:
        """Makes a document from `payloads`, the bytes of its pages by digest; `outline` lists all its pages.

        Pages of customers may be missing. Raises MissingPage if the page of plans is missing, DamagedPage, and
        InvalidContracts.
        """
        if outline.plans not in payloads:
            raise MissingPage(outline.plans)
        numbers = [number for number, digest in enumerate(outline.customers) if digest in payloads]
        self._next = self._joined(outline, numbers, payloads)
        return self._next[0]

    def be_in_force(self, document: Document) -> None:
        """Holds the pages of `document`, which was just put in force. It must be the document that was read last."""
        before = self.customers
        if self._next is None or self._next[0] is not document:
            raise AssertionError(
                "the document of contracts put in force is not the one read last: a bug in ContractsReader; report it"
            )
        self._evicted += self._table.evicted
        self.version, self._plans, self._table = self._next
        self._next, self._unread = None, {}
        self._not_before_ns, self._failures = {}, {}
        if before is not None:
            before.release()

    def give_way(self) -> None:
        """Drops all pages, because the version now in force is held as a whole, by a `Pages`."""
        before, self.version, self._plans = self.customers, None, None
        self._table = PageTable(self._bytes_max)
        if before is not None:
            before.release()

    def payloads(self, outline: Outline) -> dict[str, bytes]:
        """Returns the plans and the held pages as bytes, by digest.

        A page is left out if its bytes do not have the digest that `outline` lists for it: another version of this
        program, which writes pages differently, has published it.
        """
        if self._plans is None:
            return {}
        said = table_of(self._plans[1])
        found = {outline.plans: payload_of({"plans": said["plans"], "unknown": said["unknown"]})}
        for page in list(self.held.values()):
            found[page.digest] = payload_of(page.tables())
        known = set(outline.digests)
        return {digest: each for digest, each in found.items() if digest in known and digest_of(each) == digest}

    def _numbers_to_hold(self, pages: int) -> list[int]:
        """Returns the numbers of the pages to hold when the next version of the contracts is in force.

        That version has `pages` pages of customers.
        """
        customers = self.customers
        if customers is None:
            return sorted({page_number(identity, pages) for identity in self._decider.met()})
        if len(customers.digests) == pages:
            return sorted(self.held)
        return [number for number in range(pages) if any(page.met for page in self._ancestors(number, pages))]

    def _is_held(self, number: int, outline: Outline) -> bool:
        customers, page = self.customers, self.held.get(number)
        same_pages = customers is not None and len(customers.digests) == len(outline.customers)
        return same_pages and page is not None and page.digest == outline.customers[number]

    def _ancestors(self, number: int, pages: int) -> list[PackedPage]:
        """Returns the held pages whose customers may be on page `number` if there are `pages` pages of contracts."""
        customers = self.customers
        fewer = pages if customers is None else min(pages, len(customers.digests))
        return [page for each, page in list(self.held.items()) if each % fewer == number % fewer]

    def _joined(self, outline: Outline, numbers: list[int], payloads: Mapping[str, bytes]) -> _Version:
        plans, same_plans = self._plans_of(outline, payloads)
        pages = len(outline.customers)
        customers = self.customers
        same_pages = customers is not None and len(customers.digests) == pages
        table = PageTable(self._bytes_max)
        found: list[tuple[int, PackedPage]] = []
        for number in numbers:
            digest, known = outline.customers[number], self.held.get(number) if same_pages else None
            if known is not None and known.digest == digest and same_plans:
                found.append((number, known))
                continue
            if digest in payloads:
                said = table_in(payloads[digest], digest)
            elif known is not None and known.digest == digest:
                said = known.tables()
            else:
                continue  # the page was dropped while others were fetched
            page = packed(said, digest, plans[1].plans, number=number, pages=pages)
            before = self._ancestors(number, pages)  # if the number of pages is the same: that page alone
            if before:
                page.met, page.last = any(each.met for each in before), max(each.last for each in before)
            found.append((number, page))
        for number, page in sorted(found, key=lambda each: (each[1].met, each[1].last)):
            table[number] = page
        now = OnDemandCustomers(outline.customers, table.held, meanwhile=self._meanwhile, wake=self._wake)
        if customers is not None:
            now.formers, now.met_without = customers.formers, customers.met_without
        return Document(plans[1].plans, now, plans[1].unknown), plans, table

    # ------------------------------------------------------------ pages that requests need

    def due_ns(self) -> int | None:
        """Returns the moment of the next fetch of a page, in nanoseconds of the clock; None if no page is wanted."""
        customers = self.customers
        wanted = [] if customers is None else list(customers.wanted)
        if not wanted:
            return None
        first_ns = min(self._not_before_ns.get(number, 0) for number in wanted)
        return max(first_ns, self._pause_until_ns)

    async def fetch_wanted(
        self, store: ContractStore, *, interval_ns: int, timeout_s: float | None = None
    ) -> list[PageProblem]:
        """Fetches the pages that requests need, if they may be fetched now. Returns pages that are missing or damaged.

        Raises HubUnavailable and TimeoutError; the pages stay wanted, and the next call fetches them.
        """
        problems: list[PageProblem] = []
        while (customers := self.customers) is not None:
            now_ns = self._clock.monotonic_ns()
            group = [number for number in list(customers.wanted) if self._not_before_ns.get(number, 0) <= now_ns]
            group = group[: self._allowed(now_ns, interval_ns, len(group))]
            if not group or now_ns < self._pause_until_ns:
                break
            found: dict[str, bytes] = {}
            await self._fetch(store, [customers.digests[number] for number in group], found, timeout_s, problems)
            self._failures_in_a_row = 0
            for number in group:
                customers.wanted.pop(number, None)
                payload = found.get(customers.digests[number])
                error = None if payload is None else await self._take(customers, number, payload)
                if error is not None:
                    problems.append(PageProblem(customers.digests[number], error))
                if payload is None or error is not None:
                    failures = self._failures[number] = self._failures.get(number, 0) + 1
                    self._not_before_ns[number] = self._clock.monotonic_ns() + backoff_ns(interval_ns, failures)
        return problems

    def pause(self, interval_ns: int) -> None:
        """Stops fetching for a while, because the hub does not answer; the pause grows with each failure in a row."""
        self._failures_in_a_row += 1
        self._pause_until_ns = self._clock.monotonic_ns() + backoff_ns(interval_ns, self._failures_in_a_row)

    def sweep(self) -> None:
        """Drops pages that were not used for IDLE_S, and former limits that have ended; at most once per IDLE_S."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._swept_ns < IDLE_S * SECOND_NS:
            return
        idle = [number for number, page in self.held.items() if page.last < self._swept_at]
        for number in idle:
            del self._table[number]
        self._idle += len(idle)
        self._swept_ns, self._swept_at = now_ns, this_moment()
        customers = self.customers
        if customers is not None:
            now_s = self._clock.wall_ns() / SECOND_NS
            for identity, formers in list(customers.formers.items()):
                if all(each.until <= now_s for each in formers):
                    customers.formers.pop(identity, None)
        self._decider.forget_standings()

    def _allowed(self, now_ns: int, interval_ns: int, wanted: int) -> int:
        """Returns how many of `wanted` pages may be fetched together now: few while the memory for pages is full."""
        if self._table.currsize + self._heaviest <= self._table.maxsize:
            return FETCHED_AT_ONCE
        begun_ns, fetched = self._in_full
        if now_ns - begun_ns >= interval_ns:
            begun_ns, fetched = now_ns, 0
        allowed = min(FETCHED_AT_ONCE, FULL_PAGES - fetched)
        self._in_full = begun_ns, fetched + max(0, min(allowed, wanted))
        if allowed <= 0 and wanted:
            self._pause_until_ns = begun_ns + interval_ns
        return max(0, allowed)

    async def _take(self, customers: OnDemandCustomers, number: int, payload: bytes) -> Exception | None:
        document = self.version
        if document is None or document.customers is not customers:
            return None
        digest, pages = customers.digests[number], len(customers.digests)
        try:
            if len(payload) > INLINE_BYTES_MAX:
                page = await asyncio.to_thread(_read, payload, digest, document, number, pages)
            else:
                page = _read(payload, digest, document, number, pages)
            self._decider.check_customers(page.items_quietly(), document)
        except (DamagedPage, InvalidContracts) as error:
            return error
        self._heaviest = max(self._heaviest, page.weight)
        self._failures.pop(number, None)
        self._decider.arrived(customers, lambda: self._hold(customers, number, page))
        customers.release([number])
        return None

    def _hold(self, customers: OnDemandCustomers, number: int, page: PackedPage) -> list[str]:
        """Stores a page of contracts if there is room, or if one of its customers has sent requests.

        Returns the customers that have sent requests before the page came.
        """
        pending = customers.pending_of(number)
        if self._table.has_room(page) or any(page.peek(identity) is not None for identity in pending):
            self._table[number] = page
            self.unkept = True
        else:
            customers.are_absent(pending)
        return pending


def _read(payload: bytes, digest: str, document: Document, number: int, pages: int) -> PackedPage:
    return packed(table_in(payload, digest), digest, document.plans, number=number, pages=pages)
