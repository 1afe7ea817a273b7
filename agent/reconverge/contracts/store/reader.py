"""Follows the contracts that a hub keeps, on one node: reads what has changed, and has it applied."""

# Theory of operation.
#
# Once in an interval the index is read; as long as it is the same, a Redis answers with its mark alone. A new index is
# judged (`index.py`): its size, its signature, and only then what it says. Then the pages are fetched that are not
# known yet, each of which must have the digest that the index names. Only when all of the document is together and
# makes sense is it handed on, as a whole; so a node obeys one version or the one before, and nothing in between.
#
# Whatever goes wrong leaves the contracts in force that were. It is counted by its reason each time something new is
# found, and logged once until something is accepted. What only the clock or a missing page speaks against is looked at
# again each time, since that may mend.
#
# A node that starts knows no version, so it would believe an old index that is still signed and valid. The file of a
# node (`kept_file.py`) and `minimum` close that: no version below is believed.
#
# A hub that has lost its data is told again, as with published settings and for the same reasons
# (`remote_settings/poller.py`): after 1 to 10 seconds at random, only where there is nothing or something older, and
# only if the index there is still the same. What was told of former changes is lost with the hub.

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.document import Document, InvalidContracts
from reconverge.contracts.on_demand.customers import OnDemandCustomers
from reconverge.contracts.store.changing import NO_CONTRACTS
from reconverge.contracts.store.fetching import MissingPage, Pages
from reconverge.contracts.store.index import INDEX_BYTES_MAX, Index
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.pages import DamagedPage, Outline, divided
from reconverge.contracts.store.stats import ContractsStats
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.answers import check_posted
from reconverge.hub.port import ContractStore, Hub
from reconverge.published.envelope import EXPIRED, OLD, PREMATURE, Rejection, Verifier
from reconverge.remote_settings.poller import PROBLEM_LENGTH_MAX, RESTORED_AFTER_S
from reconverge.runtime.backoff import backoff_ns
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.contracts.on_demand.page_fetching import PagesOnDemand
    from reconverge.contracts.store.hints import HintListener

logger = logging.getLogger("reconverge")

MISSING: Final = "page-missing"
DAMAGED: Final = "page-damaged"
INVALID: Final = "invalid"
UNFIT: Final = "unfit"
"""In force they would have been, and this node has failed to apply them."""
MENDED: Final = (PREMATURE, EXPIRED, MISSING, DAMAGED)
"""Reasons that another look may find gone."""
FILE: Final = "file"
KEPT_AGAIN_S: Final = 60.0
"""So often at most the file is written again because further pages have come."""
ON_DEMAND_FROM: Final = 64
"""From so many pages of customers on they are fetched when a customer is met. Below, 2 MiB at most are held."""
NO_STORE: Final = "no-store"


class ContractsReader:
    """Reads, for one node, the contracts that its hub keeps; a `Follower` of the exchange driver.

    Args:
        verifier: judges what is read.
        clock: the node's.
        interval_ns: says how often to look, in nanoseconds.
        apply: is called in the exchange loop with the version and the contracts that are in force from now on. If it
            raises, the contracts before stay in force.
        file: where the last contracts are kept for a start while the hub is away; None: nowhere.
        on_demand: fetches pages of customers when one of them is met; None: all are held.
        on_demand_from: from how many pages of customers on.
        hints: listens for what the hub says of changes; None: it is only looked at.
        random: for tests.
    """

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
        self._verifier = verifier
        self._clock = clock
        self._interval_ns = interval_ns
        self._apply = apply
        self._file = file
        self._on_demand = on_demand
        self._on_demand_from = on_demand_from
        self._hints = hints
        self._kept_ns, self._looked_ns = clock.monotonic_ns(), 0
        """When the file was written last, and when the hub was looked at."""
        self._random = random or Random()
        self._pages = Pages()
        self.index: Index | None = None
        """What is in force."""
        self.document = NO_CONTRACTS
        self.accepted = self.restored = 0
        self.rejected: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._known: bytes | None = None
        """The index in force, as it was read."""
        self._seen: bytes | None = None
        """The index that was read last, whatever it was."""
        self._reason = ""
        """Why that was rejected; empty if it was not."""
        self._restore_ns: int | None = None
        """When to restore what is in force and lost, if that still is so."""
        self._logged = LoggedOnce()
        self._failures_in_a_row = 0
        self.start_over()

    @property
    def version(self) -> int:
        """Of the contracts in force; 0 if there are none."""
        return 0 if self.index is None else self.index.version

    def stats(self) -> ContractsStats:
        """A snapshot."""
        now_s, demand = self._clock.wall_ns() / SECOND_NS, self._on_demand
        return ContractsStats(
            version=self.version,
            expires_in=inf if self.index is None else self.index.expires - now_s,
            accepted=self.accepted,
            rejected=dict(self.rejected),
            failures=dict(self.failures),
            pages_fetched=self._pages.fetched + (0 if demand is None else demand.fetched),
            pages_held=None if demand is None or demand.customers is None else len(demand.held),
            page_bytes=0 if demand is None else demand.bytes_held,
            pages_dropped=0 if demand is None else demand.dropped,
            met_without_page=0 if demand is None or demand.customers is None else demand.customers.met_without,
            **({} if self._hints is None else self._hints.counted()),
            restored=self.restored,
        )

    def recall(self) -> None:
        """Have what the file has be in force, if that is to be believed; to be called once, before the first look."""
        if self._file is None:
            return
        try:
            kept = self._file.read()
        except (OSError, ValueError) as error:
            self._fail(FILE, f"contracts cannot be read from {self._file.path}: {error}")
            return
        if kept is None:
            return
        verdict = self._verifier.verify(kept.signed, now_s=self._clock.wall_ns() / SECOND_NS, known=self.version)
        if not isinstance(verdict, Rejection):
            try:
                pages = self._pages_of(verdict.outline)
                self._obey(kept.signed, verdict, pages.of_payloads(kept.pages, verdict.outline))
            except MissingPage as error:
                verdict = Rejection(MISSING, f"lacks the page {str(error)[:16]}...")
            except (DamagedPage, InvalidContracts) as error:
                verdict = Rejection(DAMAGED, f"has a page that {error}")
        if isinstance(verdict, Rejection):
            self.rejected[verdict.reason] += 1
            self._say(FILE, f"contracts in {self._file.path} are not obeyed: what was read {verdict.problem}")

    # ------------------------------------------------------------ as a follower

    brief = False
    """See `Follower.brief`: there may be many pages to read."""

    def due_ns(self) -> int:
        """See `Follower.due_ns`."""
        due_ns = self._next_ns
        if self._hints is not None:
            due_ns = self._hints.due_ns(due_ns, looked_ns=self._looked_ns)
        wanted_ns = None if self._on_demand is None else self._on_demand.due_ns()
        return due_ns if wanted_ns is None else min(due_ns, wanted_ns)

    def start_over(self) -> None:
        """See `Follower.start_over`."""
        self._next_ns = self._clock.monotonic_ns()

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """See `Follower.follow`."""
        now_ns = self._clock.monotonic_ns()
        look_ns, interval_ns = self._next_ns, self._interval_ns()
        if self._hints is not None:
            look_ns = self._hints.due_ns(look_ns, looked_ns=self._looked_ns)
        if look_ns > now_ns:
            if isinstance(hub, ContractStore):
                await self._fetch_wanted(hub, timeout_s)
            return
        self._next_ns = now_ns + interval_ns
        if not isinstance(hub, ContractStore):
            problem = f"{type(hub).__name__} keeps no contracts: contracts apply on this node only"
            self._say(NO_STORE, problem, level=logging.ERROR)
            return
        if self._hints is not None:
            self._hints.listen(hub)
        if cut_off:
            return
        before_ns, self._looked_ns = self._looked_ns, now_ns
        told = self._hints is not None and self._hints.take()
        try:
            payload = await asyncio.wait_for(hub.read_index(bytes_max=INDEX_BYTES_MAX), timeout_s)
            check_posted(payload)
            if self._hints is not None:
                self._hints.found(new=payload not in (self._seen, self._known), told=told, looked_ns=before_ns)
                self._next_ns = now_ns + self._hints.period_ns(interval_ns)
            await self._judge(hub, payload, timeout_s)
            await self._restore_if_lost(hub, payload, timeout_s)
        except HubUnavailable as error:
            self._unreadable(error.kind)
        except TimeoutError:
            self._unreadable("timeout")
        else:
            if self._failures_in_a_row:
                self._failures_in_a_row = 0
                self._logged.forget(*self.failures)
            await self._fetch_wanted(hub, timeout_s)

    async def part(self, timeout_s: float) -> None:
        """See `Parting.part`."""
        if self._hints is not None:
            await self._hints.stop(timeout_s)

    async def _fetch_wanted(self, store: ContractStore, timeout_s: float) -> None:
        """Have the pages of customers that were met, and let go of those that are not in use."""
        demand = self._on_demand
        if demand is None or demand.customers is None:
            return
        try:
            problems = await demand.fetch_wanted(store, interval_ns=self._interval_ns(), timeout_s=timeout_s)
        except (HubUnavailable, TimeoutError) as unavailable:
            demand.pause(self._interval_ns())
            kind = unavailable.kind if isinstance(unavailable, HubUnavailable) else "timeout"
            self.failures[kind] += 1
            self._say(f"page {kind}", f"a page cannot be read ({kind}); its customers are decided without it")
            return
        for each in problems:
            rejection = _page_rejection(each.digest, each.error)
            self.rejected[rejection.reason] += 1
            problem = f"customers are decided without their page: the index {rejection.problem}"
            self._say(f"{rejection.reason} {each.digest}", problem)
        demand.sweep()
        now_ns = self._clock.monotonic_ns()
        if demand.unkept and self._known is not None and now_ns - self._kept_ns >= KEPT_AGAIN_S * SECOND_NS:
            await self._keep(self._known, timeout_s)

    def _pages_of(self, outline: Outline) -> Pages | PagesOnDemand:
        """What holds the pages of such a version."""
        if self._on_demand is None or len(outline.customers) < self._on_demand_from:
            return self._pages
        return self._on_demand

    async def _judge(self, store: ContractStore, payload: bytes | None, timeout_s: float) -> None:
        again, before = payload == self._seen, self._reason
        if payload is None or payload == self._known:
            self._seen, self._reason = payload, ""
            return
        if again and before not in MENDED:
            return
        now_s = self._clock.wall_ns() / SECOND_NS
        verdict = self._verifier.verify(payload, now_s=now_s, known=self.version)
        rejection: Rejection | None
        if isinstance(verdict, Rejection):
            rejection = verdict
        else:
            rejection = await self._obey_pages(store, payload, verdict, timeout_s)
        self._seen, self._reason = payload, "" if rejection is None else rejection.reason
        if rejection is not None and not (again and rejection.reason == before):
            self.rejected[rejection.reason] += 1
            sentence = f"contracts were published that are not obeyed: they are {rejection.reason}: what was read"
            self._say(rejection.reason, f"{sentence} {rejection.problem}")

    async def _obey_pages(
        self, store: ContractStore, payload: bytes, index: Index, timeout_s: float
    ) -> Rejection | None:
        """Fetch what is new of this version, and have it be in force; returns why not."""
        try:
            document = await self._pages_of(index.outline).document(store, index.outline, timeout_s=timeout_s)
        except (MissingPage, DamagedPage, InvalidContracts) as error:
            return _page_rejection(str(error), error)
        try:
            self._obey(payload, index, document)
        except Exception as error:
            logger.exception("reconverge: contracts of version %d cannot be applied", index.version)
            return Rejection(UNFIT, f"cannot be applied: {type(error).__name__}")
        self._logged.forget_all()
        self.accepted += 1
        await self._keep(payload, timeout_s)
        return None

    def _obey(self, payload: bytes, index: Index, document: Document) -> None:
        self._apply(index.version, document)
        if isinstance(document.customers, OnDemandCustomers):
            assert self._on_demand is not None
            self._on_demand.be_in_force(document)
            self._pages.forget()
        elif self._on_demand is not None:
            self._on_demand.give_way()
        self._known, self.index, self.document = payload, index, document
        logger.info("reconverge: contracts (version %d) are in force", index.version)

    # ------------------------------------------------------------ keeping them

    async def _keep(self, payload: bytes, timeout_s: float) -> None:
        """Write what is in force into the file, if there is one."""
        file = self._file
        if file is None:
            return
        self._kept_ns = self._clock.monotonic_ns()
        if self._on_demand is not None:
            self._on_demand.unkept = False
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail(FILE, f"contracts of another version of this program are not kept in {file.path}")
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(file.write, payload, pages.values()), timeout_s)
        except OSError as error:  # TimeoutError, too
            self._fail(FILE, f"contracts cannot be written to {file.path}: {error}")

    def _payloads(self) -> dict[str, bytes] | None:
        """The pages that are held of what is in force; None if another version of this program has written them."""
        if self.index is None:
            return None
        if isinstance(self.document.customers, OnDemandCustomers):
            assert self._on_demand is not None
            return self._on_demand.payloads(self.index.outline) or None
        parts = divided(self.document, pages=len(self.index.outline.customers))
        return dict(parts.pages) if parts.outline == self.index.outline else None

    async def _restore_if_lost(self, store: ContractStore, payload: bytes | None, timeout_s: float) -> None:
        now_ns = self._clock.monotonic_ns()
        index, known = self.index, self._known
        if index is None or known is None or not (payload is None or self._reason == OLD):
            self._restore_ns = None
            return
        if self._restore_ns is None:
            self._restore_ns = now_ns + round(self._random.uniform(*RESTORED_AFTER_S) * SECOND_NS)
        keep_s = index.expires - self._clock.wall_ns() / SECOND_NS
        if now_ns < self._restore_ns or keep_s <= 0:
            return
        self._restore_ns = None  # if it is still lost, try again some time
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail("restoring", "contracts that the hub has lost are of another version; publish them again")
            return
        digests = list(dict.fromkeys(index.outline.digests))
        lacking = await asyncio.wait_for(store.keep_pages(digests, keep_s=keep_s), timeout_s)
        for digest in lacking:
            if digest in pages:
                await asyncio.wait_for(store.put_page(digest, pages[digest], keep_s=keep_s), timeout_s)
        unheld = [digest for digest in lacking if digest not in pages]
        if unheld:
            what = f"{len(unheld)} pages of the contracts that the hub has lost are not held by this node"
            self._fail("restoring", f"{what}; if no other node puts them there, publish the contracts again")
            return
        swap = store.swap_index(known, over=payload, bytes_max=INDEX_BYTES_MAX, keep_s=keep_s)
        if await asyncio.wait_for(swap, timeout_s):
            self.restored += 1
            logger.warning("reconverge: contracts were not at the hub any more; they were put there again")

    # ------------------------------------------------------------ what goes wrong

    def _unreadable(self, kind: str) -> None:
        """Nothing could be read; wait for longer each time."""
        self._failures_in_a_row += 1
        self._next_ns = self._clock.monotonic_ns() + backoff_ns(self._interval_ns(), self._failures_in_a_row)
        self._fail(kind, f"contracts cannot be read ({kind}); those in force stay so")

    def _fail(self, kind: str, problem: str) -> None:
        self.failures[kind] += 1
        self._say(kind, problem)

    def _say(self, kind: str, problem: str, *, level: int = logging.WARNING) -> None:
        """Log once for each kind, until something is accepted: an attacker with access to the hub could fill a log."""
        if self._logged.is_new(kind):
            visible = "".join(letter if letter.isprintable() else " " for letter in problem[:PROBLEM_LENGTH_MAX])
            logger.log(level, "reconverge: %s", visible, extra={"kind": kind})


def _page_rejection(digest: str, error: Exception) -> Rejection:
    """Why an index is not obeyed, or a page not held."""
    if isinstance(error, MissingPage):
        return Rejection(MISSING, f"names the page {digest[:16]}..., which the hub does not have")
    if isinstance(error, DamagedPage):
        return Rejection(DAMAGED, f"names a page that {error}")
    return Rejection(INVALID, f"makes no sense: {error}")
