"""Reads the contracts that a hub keeps, on one node, and has them be in force until others come."""

# Theory of operation.
#
# `published/reader.py` reads, judges and posts again a signed document. Of contracts that is the index (`index.py`),
# and its pages belong to it: those are fetched that are not known yet, each of which must have the digest that the
# index names. Only when all of the document is together and makes sense is it handed on, as a whole; so a node
# obeys one version or the one before, and nothing in between.
#
# A node that starts knows no version, so it would believe an old index that is still signed and valid. The file of a
# node (`kept_file.py`) and the verifier's minimum close that: no version below is believed.
#
# The pages about former changes are lost with the data of a hub: no node holds them, so none puts them there again.

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from reconverge.contracts.store.stats import ContractsStats
from reconverge.errors import HubUnavailable
from reconverge.hub.port import ContractStore, Hub
from reconverge.published.envelope import Rejection, Verifier
from reconverge.published.reader import Reader, kind_of

if TYPE_CHECKING:
    from reconverge.contracts.on_demand.page_fetching import PagesOnDemand
    from reconverge.contracts.store.hints import HintListener

MISSING: Final = "page-missing"
DAMAGED: Final = "page-damaged"
INVALID: Final = "invalid"
FILE: Final = "file"
KEPT_AGAIN_S: Final = 60.0
"""So often at most the file is written again because further pages have come."""
ON_DEMAND_FROM: Final = 64
"""From so many pages of customers on they are fetched when a customer is met. Below, 2 MiB at most are held."""


class ContractsReader(Reader[Index, ContractStore]):
    """The reader of contracts.

    Args:
        verifier: judges what is read.
        clock: the node's.
        interval_ns: returns how often to look, in nanoseconds.
        apply: is called in the exchange loop with the version and the contracts that are in force from now on. If it
            raises, the contracts before stay in force.
        file: where the last contracts are kept for a start while the hub is away; None: nowhere.
        on_demand: fetches pages of customers when one of them is met; None: all are held.
        on_demand_from: from how many pages of customers on.
        hints: listens for changes at the hub; None: the reader only looks.
        random: for tests.
    """

    what = "contracts"
    may_mend = (*Reader.may_mend, MISSING, DAMAGED)
    brief = False
    """There may be many pages to read (`Follower.brief`)."""

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
        """The file does not have the contracts in force."""
        self._on_demand = on_demand
        self._on_demand_from = on_demand_from
        self._hints = hints
        self._kept_ns, self._looked_ns = clock.monotonic_ns(), 0
        """When the file was written last, and when the hub was looked at."""
        self._pages = Pages()
        self.document = NO_CONTRACTS
        """The contracts in force."""

    def stats(self) -> ContractsStats:
        """A snapshot."""
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
        """Put the contracts of the file in force, if they are valid; called once, before the first look."""
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
            problem = f"contracts in {self._file.path} are not obeyed: what was read {rejection.problem}"
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

    # ------------------------------------------------------------ when there is something to do

    def due_ns(self) -> int:
        """When to look, or to fetch a page that is wanted."""
        due_ns = self._due_look_ns()
        wanted_ns = None if self._on_demand is None else self._on_demand.due_ns()
        return due_ns if wanted_ns is None else min(due_ns, wanted_ns)

    def _due_look_ns(self) -> int:
        return self._look_ns if self._hints is None else self._hints.due_ns(self._look_ns, looked_ns=self._looked_ns)

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Look at the hub, and listen to it."""
        if self._hints is not None and isinstance(hub, ContractStore):
            self._hints.listen(hub)
        await super().follow(hub, cut_off=cut_off, timeout_s=timeout_s)

    async def part(self, timeout_s: float) -> None:
        """Listen no more."""
        if self._hints is not None:
            await self._hints.stop(timeout_s)

    async def _go_on(self, store: ContractStore, timeout_s: float) -> None:
        await self._fetch_wanted(store, timeout_s)
        demand, since_ns = self._on_demand, self._clock.monotonic_ns() - self._kept_ns
        more = demand is not None and demand.unkept and since_ns >= KEPT_AGAIN_S * SECOND_NS
        if self._unkept or more:
            await self._keep(timeout_s)

    async def _fetch_wanted(self, store: ContractStore, timeout_s: float) -> None:
        """Fetch the pages of customers that were met, and let go of those that are not in use."""
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

    # ------------------------------------------------------------ one version

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
        """The holder of the pages of such a version."""
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

    # ------------------------------------------------------------ keeping them

    async def _keep(self, timeout_s: float) -> None:
        """Write what is in force into the file, if there is one."""
        file, known = self._file, self._known
        if file is None or known is None:
            return
        self._kept_ns, self._unkept = self._clock.monotonic_ns(), False
        if self._on_demand is not None:
            self._on_demand.unkept = False
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail(FILE, f"contracts of another version of this program are not kept in {file.path}")
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(file.write, known, pages.values()), timeout_s)
        except OSError as error:  # TimeoutError, too
            self._fail(FILE, f"contracts cannot be written to {file.path}: {error}")

    def _payloads(self) -> dict[str, bytes] | None:
        """The pages that are held of what is in force; None if another version of this program has written them."""
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
            self._fail("restoring", "contracts that the hub has lost are of another version; publish them again")
            return False
        unheld = await put_pages(store, pages, index.outline.digests, keep_s=keep_s, timeout_s=timeout_s)
        if unheld:
            what = f"{len(unheld)} pages of the contracts that the hub has lost are not held by this node"
            self._fail("restoring", f"{what}; if no other node puts them there, publish the contracts again")
            return False
        swap = store.swap_index(payload, over=over, bytes_max=INDEX_BYTES_MAX, keep_s=keep_s)
        return await asyncio.wait_for(swap, timeout_s)


def _page_rejection(digest: str, error: Exception) -> Rejection:
    """The rejection of an index, or of one page, for that error."""
    if isinstance(error, MissingPage):
        return Rejection(MISSING, f"names the page {digest[:16]}..., which the hub does not have")
    if isinstance(error, DamagedPage):
        return Rejection(DAMAGED, f"names a page that {error}")
    return Rejection(INVALID, f"makes no sense: {error}")
