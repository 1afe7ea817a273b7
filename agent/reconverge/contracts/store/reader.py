"""Reads the contracts at a hub on one node, and puts each valid version in force."""

# Theory of operation.
#
# `published/reader.py` reads and verifies a signed document, and stores it again at a hub that has lost it. For
# contracts that document is the index (`index.py`), the list of pages. The pages are fetched unless they are known, and
# each must have the digest that the index names. Only if the document is complete and valid is it put in force, as a
# whole; so a node decides by one version or the version before, and never by a mixture.
#
# A node that starts knows no version, so it would accept an old index that is still signed and valid. The file of a
# node (`kept_file.py`) and the verifier's minimum prevent that: no lower version is accepted.
#
# The pages about former changes are lost with the data of a hub: no node holds them, so none stores them there again.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.on_demand.customers import OnDemandCustomers
from reconverge.contracts.store.changing import NO_CONTRACTS
from reconverge.contracts.store.fetching import MissingPage, Pages, put_pages
from reconverge.contracts.store.index import INDEX_BYTES_MAX, Index
from reconverge.contracts.store.kept_file import Kept, KeptFile
from reconverge.contracts.store.pages import DamagedPage, Outline, divided
from reconverge.errors import HubUnavailable
from reconverge.hub.port import ContractStore, Hub
from reconverge.published.envelope import Rejection, Verifier
from reconverge.published.reader import Reader, ReaderStats, kind_of

if TYPE_CHECKING:
    from reconverge.contracts.on_demand.page_fetching import PagesOnDemand
    from reconverge.contracts.store.hints import HintListener

MISSING: Final = "page-missing"
DAMAGED: Final = "page-damaged"
INVALID: Final = "invalid"
FILE: Final = "file"
KEPT_AGAIN_S: Final = 60.0
"""The least seconds between two writes of the file that are made because further pages have come."""
ON_DEMAND_FROM: Final = 64
"""The number of pages of customers from which on pages are fetched on demand. Fewer pages have at most 2 MiB."""


@dataclass(frozen=True, slots=True)
class ContractsStats(ReaderStats):
    """The counters of a node that reads its contracts at the hub: of versions, of pages and of hints."""

    pages_fetched: int = 0
    pages_held: int | None = None
    """The number of pages of customers that are held, if they are fetched on demand; None if all are held."""
    page_bytes: int = 0
    """About how many bytes of memory the held pages take."""
    pages_dropped: int = 0
    """The number of pages that were dropped because they were not used, or to make room for others."""
    met_without_page: int = 0
    """The number of look-ups of a customer whose page was not there yet."""
    hinted: int = 0
    """The number of hints by the hub that the contracts may have changed."""
    hints_lost: int = 0
    """The number of changes that were found without a hint, while the node was listening for hints."""
    hint_floods: int = 0
    """The number of times that so many hints came within a second that the node stopped listening for some seconds."""


class ContractsReader(Reader[Index, ContractStore]):
    """Reads the contracts at the hub: looks for a new version, fetches its pages, and puts it in force.

    Args:
        verifier: verifies the index that was read.
        clock: the node's clock.
        interval_ns: returns the nanoseconds between two reads of the index.
        apply: is called in the exchange loop with each new version and its contracts, to put them in force. If it
            raises, the previous contracts stay in force.
        file: the file of the last contracts, for a start while the hub is away; None: no file.
        on_demand: fetches a page when one of its customers sends a request; None: all pages are held.
        on_demand_from: the number of pages of customers from which on `on_demand` is used.
        hints: listens for hints of changes at the hub; None: the node reads the index in every interval.
        random: the source of random delays; for tests.
    """

    what = "contracts"
    may_mend = (*Reader.may_mend, MISSING, DAMAGED)
    brief = False
    """False: there may be many pages to read, so reads are made beside the exchanges."""

    def __init__(
        self,
        verifier: Verifier[Index],
        clock: Clock,
        *,
        interval_ns: Callable[[], int],
        apply: Callable[[int, Document], None],
        file: KeptFile | None = None,
        on_demand: PagesOnDemand | None = None,
        on_demand_from: int = ON_DEMAND_FROM,
        hints: HintListener | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(verifier, clock, interval_ns=interval_ns, random=random)
        self._apply = apply
        self._file = file
        self._unkept = False
        """Whether the file does not have the contracts in force."""
        self._on_demand = on_demand
        self._on_demand_from = on_demand_from
        self._hints = hints
        self._kept_ns, self._looked_ns = clock.monotonic_ns(), 0
        """When the file was last written, and when the index was last read, in nanoseconds of the monotonic clock."""
        self._pages = Pages()
        self.document = NO_CONTRACTS
        """The contracts in force."""

    def stats(self) -> ContractsStats:
        """Returns the counters of the reader and of its pages."""
        demand = self._on_demand
        return ContractsStats(
            **self._counted(),
            pages_fetched=self._pages.fetched + (0 if demand is None else demand.fetched),
            pages_held=None if demand is None or demand.customers is None else len(demand.held),
            page_bytes=0 if demand is None else demand.bytes_held,
            pages_dropped=0 if demand is None else demand.dropped,
            met_without_page=0 if demand is None or demand.customers is None else demand.customers.met_without,
            **({} if self._hints is None else self._hints.counted()),
        )

    def recall(self) -> None:
        """Puts the contracts of the file in force, if they are valid. Called once, before the first read of the hub."""
        if self._file is None:
            return
        try:
            kept = self._file.read()
        except (OSError, ValueError) as error:
            self._fail(FILE, f"contracts cannot be read from {self._file.path}: {error}")
            return
        if kept is None:
            return
        rejection = self._accept_kept(kept)
        if rejection is not None:
            problem = f"contracts in {self._file.path} are not in force: the index in the file {rejection.problem}"
            self._reject(rejection, FILE, problem)

    def _accept_kept(self, kept: Kept) -> Rejection | None:
        index = self._verify(kept.signed)
        if isinstance(index, Rejection):
            return index
        try:
            document = self._pages_of(index.outline).of_payloads(kept.pages, index.outline)
        except MissingPage as error:
            return Rejection(MISSING, f"lacks the page {str(error)[:16]}...")
        except (DamagedPage, InvalidContracts) as error:
            return Rejection(DAMAGED, f"has a page that {error}")
        return self._put_in_force(kept.signed, index, partial(self._apply_whole, index, document))

    # ------------------------------------------------------------ called by the exchange driver

    def due_ns(self) -> int:
        """Returns when to read the hub's index, or to fetch a page that requests need, in nanoseconds of the clock."""
        due_ns = self._due_look_ns()
        wanted_ns = None if self._on_demand is None else self._on_demand.due_ns()
        return due_ns if wanted_ns is None else min(due_ns, wanted_ns)

    def _due_look_ns(self) -> int:
        return self._look_ns if self._hints is None else self._hints.due_ns(self._look_ns, looked_ns=self._looked_ns)

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Starts to listen for hints, then reads the hub's index if a read is due, as `Reader.follow` does."""
        if self._hints is not None and isinstance(hub, ContractStore):
            self._hints.listen(hub)
        await super().follow(hub, cut_off=cut_off, timeout_s=timeout_s)

    async def part(self, timeout_s: float) -> None:
        """Stops listening for hints, and waits at most `timeout_s` seconds for the end of the connection."""
        if self._hints is not None:
            await self._hints.stop(timeout_s)

    async def _go_on(self, store: ContractStore, timeout_s: float) -> None:
        await self._fetch_wanted(store, timeout_s)
        demand, since_ns = self._on_demand, self._clock.monotonic_ns() - self._kept_ns
        more = demand is not None and demand.unkept and since_ns >= KEPT_AGAIN_S * SECOND_NS
        if self._unkept or more:
            await self._keep(timeout_s)

    async def _fetch_wanted(self, store: ContractStore, timeout_s: float) -> None:
        """Fetches the pages that requests need, logs failures, and drops pages that are not used."""
        demand = self._on_demand
        if demand is None or demand.customers is None:
            return
        try:
            problems = await demand.fetch_wanted(store, interval_ns=self._interval_ns(), timeout_s=timeout_s)
        except (HubUnavailable, TimeoutError) as unavailable:
            demand.pause(self._interval_ns())
            kind = kind_of(unavailable)
            self._failures[kind] += 1
            self._say(f"page {kind}", f"a page cannot be read ({kind}); its customers are decided without it")
            return
        for each in problems:
            rejection = _page_rejection(each.digest, each.error)
            problem = f"customers are decided without their page: the index {rejection.problem}"
            self._reject(rejection, f"{rejection.reason} {each.digest}", problem)
        demand.sweep()

    # ------------------------------------------------------------ reading a version and putting it in force

    def _store_in(self, hub: Hub) -> ContractStore | None:
        return hub if isinstance(hub, ContractStore) else None

    async def _read(self, store: ContractStore) -> bytes | None:
        hints = self._hints
        if hints is None:
            return await store.read_index(bytes_max=INDEX_BYTES_MAX)
        now_ns, before_ns = self._clock.monotonic_ns(), self._looked_ns
        self._looked_ns = now_ns
        hinted = hints.take()
        payload = await store.read_index(bytes_max=INDEX_BYTES_MAX)
        hints.found(new=payload not in (self._seen, self._known), hinted=hinted, looked_ns=before_ns)
        self._look_ns = now_ns + hints.period_ns(self._interval_ns())
        return payload

    def _pages_of(self, outline: Outline) -> Pages | PagesOnDemand:
        """Returns the object that holds the pages of `outline`: all of them or, if there are many, those on demand."""
        if self._on_demand is None or len(outline.customers) < self._on_demand_from:
            return self._pages
        return self._on_demand

    async def _prepared(
        self, store: ContractStore, document: Index, timeout_s: float
    ) -> Callable[[], object] | Rejection:
        try:
            whole = await self._pages_of(document.outline).document(store, document.outline, timeout_s=timeout_s)
        except (MissingPage, DamagedPage, InvalidContracts) as error:
            return _page_rejection(str(error), error)
        return partial(self._apply_whole, document, whole)

    def _apply_whole(self, index: Index, document: Document) -> None:
        self._apply(index.version, document)
        if isinstance(document.customers, OnDemandCustomers):
            assert self._on_demand is not None
            self._on_demand.be_in_force(document)
            self._pages.forget()
        elif self._on_demand is not None:
            self._on_demand.give_way()
        self.document = document

    async def _accept(self, store: ContractStore, payload: bytes, timeout_s: float) -> Rejection | None:
        rejection = await super()._accept(store, payload, timeout_s)
        self._unkept |= rejection is None
        return rejection

    # ------------------------------------------------------------ storing contracts in the file and at the hub

    async def _keep(self, timeout_s: float) -> None:
        file, known = self._file, self._known
        if file is None or known is None:
            return
        self._kept_ns, self._unkept = self._clock.monotonic_ns(), False
        if self._on_demand is not None:
            self._on_demand.unkept = False
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail(FILE, f"contracts that another version of reconverge has published are not kept in {file.path}")
            return
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(file.write, known, pages.values())
        except OSError as error:  # TimeoutError, too
            self._fail(FILE, f"contracts cannot be written to {file.path}: {error}")

    def _payloads(self) -> dict[str, bytes] | None:
        """Returns the held pages of the contracts in force, in bytes by digest.

        Returns None if no contracts of the hub are in force, or if the bytes would not have the digests that the index
        names, because another version of this program wrote the pages.
        """
        index = self.in_force
        if index is None:
            return None
        if isinstance(self.document.customers, OnDemandCustomers):
            assert self._on_demand is not None
            return self._on_demand.payloads(index.outline) or None
        parts = divided(self.document, pages=len(index.outline.customers))
        return dict(parts.pages) if parts.outline == index.outline else None

    async def _post(
        self, store: ContractStore, payload: bytes, *, over: bytes | None, keep_s: float, timeout_s: float
    ) -> bool:
        index = self.in_force
        pages = await asyncio.to_thread(self._payloads)
        if pages is None or index is None:
            self._fail(
                "restoring",
                "the hub has lost contracts that another version of reconverge has published; publish them again",
            )
            return False
        unheld = await put_pages(store, pages, index.outline.digests, keep_s=keep_s, timeout_s=timeout_s)
        if unheld:
            what = f"the hub has lost {len(unheld)} pages of contracts that this node does not hold"
            self._fail("restoring", f"{what}; if no other node restores them, publish the contracts again")
            return False
        async with asyncio.timeout(timeout_s):
            return await store.swap_index(payload, over=over, bytes_max=INDEX_BYTES_MAX, keep_s=keep_s)


def _page_rejection(digest: str, error: Exception) -> Rejection:
    if isinstance(error, MissingPage):
        return Rejection(MISSING, f"names the page {digest[:16]}..., which the hub does not have")
    if isinstance(error, DamagedPage):
        return Rejection(DAMAGED, f"names a page that {error}")
    return Rejection(INVALID, f"is invalid: {error}")
