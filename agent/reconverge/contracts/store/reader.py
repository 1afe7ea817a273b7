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
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.document import Document, InvalidContracts
from reconverge.contracts.store.changing import NO_CONTRACTS
from reconverge.contracts.store.fetching import MissingPage, Pages
from reconverge.contracts.store.index import INDEX_BYTES_MAX, Index, IndexVerifier
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.pages import DamagedPage, divided
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.checking.answers import check_posted
from reconverge.hub.port import ContractStore, Hub
from reconverge.remote_settings.poller import PROBLEM_LENGTH_MAX, RESTORED_AFTER_S
from reconverge.remote_settings.signed import EXPIRED, OLD, PREMATURE, VERSION_MAX, Rejection
from reconverge.runtime.backoff import backoff_ns
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

MINIMUM_VARIABLE: Final = "RECONVERGE_CONTRACTS_MIN_VERSION"
MISSING: Final = "page-missing"
DAMAGED: Final = "page-damaged"
INVALID: Final = "invalid"
UNFIT: Final = "unfit"
"""In force they would have been, and this node has failed to apply them."""
MENDED: Final = (PREMATURE, EXPIRED, MISSING, DAMAGED)
"""Reasons that another look may find gone."""
FILE: Final = "file"
NO_STORE: Final = "no-store"


@dataclass(frozen=True, slots=True)
class ContractsStats:
    """What one node knows of the contracts of its fleet."""

    version: int = 0
    """Of those in force; 0 if there are none."""
    expires_in: float = inf
    """Seconds until nodes that start reject them; below zero since they do. Infinite if there are none."""
    accepted: int = 0
    """How often something new was accepted."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """How often something new was not, by reason: `reconverge.remote_settings.signed.REASONS`, and those of here."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """How often nothing could be read, written or restored, by class of failure."""
    pages_fetched: int = 0
    restored: int = 0
    """How often this node has put at the hub again what that had lost."""


def minimum_as_said() -> int:
    """The least version that the environment says to believe, or to publish; 0 if it says none.

    Raises InvalidSetting if it is no version.
    """
    said = os.environ.get(MINIMUM_VARIABLE, "")
    if not said:
        return 0
    if not said.isascii() or not said.isdecimal() or int(said[:20]) > VERSION_MAX:
        raise InvalidSetting(MINIMUM_VARIABLE, said, "is no version; they are whole numbers, as in 58")
    return int(said)


class ContractsReader:
    """Reads, for one node, the contracts that its hub keeps; a `Follower` of the exchange driver.

    Args:
        verifier: judges what is read.
        clock: the node's.
        interval_ns: says how often to look, in nanoseconds.
        apply: is called in the exchange loop with the version and the contracts that are in force from now on. If it
            raises, the contracts before stay in force.
        file: where the last contracts are kept for a start while the hub is away; None: nowhere.
        random: for tests.
    """

    def __init__(
        self,
        verifier: IndexVerifier,
        clock: Clock,
        *,
        interval_ns: Callable[[], int],
        apply: Callable[[int, Document], None],
        file: KeptFile | None = None,
        random: Random | None = None,
    ) -> None:
        self._verifier = verifier
        self._clock = clock
        self._interval_ns = interval_ns
        self._apply = apply
        self._file = file
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
        now_s = self._clock.wall_ns() / SECOND_NS
        return ContractsStats(
            version=self.version,
            expires_in=inf if self.index is None else self.index.expires - now_s,
            accepted=self.accepted,
            rejected=dict(self.rejected),
            failures=dict(self.failures),
            pages_fetched=self._pages.fetched,
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
                self._obey(kept.signed, verdict, self._pages.of_payloads(kept.pages, verdict.outline))
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
        return self._next_ns

    def start_over(self) -> None:
        """See `Follower.start_over`."""
        self._next_ns = self._clock.monotonic_ns()

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """See `Follower.follow`."""
        now_ns = self._clock.monotonic_ns()
        self._next_ns = now_ns + self._interval_ns()
        if not isinstance(hub, ContractStore):
            problem = f"{type(hub).__name__} keeps no contracts: contracts apply on this node only"
            self._say(NO_STORE, problem, level=logging.ERROR)
            return
        if cut_off:
            return
        try:
            payload = await asyncio.wait_for(hub.read_index(bytes_max=INDEX_BYTES_MAX), timeout_s)
            check_posted(payload)
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
            document = await self._pages.document(store, index.outline, timeout_s=timeout_s)
        except MissingPage as error:
            return Rejection(MISSING, f"names the page {str(error)[:16]}..., which the hub does not have")
        except DamagedPage as error:
            return Rejection(DAMAGED, f"names a page that {error}")
        except InvalidContracts as error:
            return Rejection(INVALID, f"makes no sense: {error}")
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
        self._known, self.index, self.document = payload, index, document
        logger.info("reconverge: contracts (version %d) are in force", index.version)

    # ------------------------------------------------------------ keeping them

    async def _keep(self, payload: bytes, timeout_s: float) -> None:
        """Write what is in force into the file, if there is one."""
        file = self._file
        if file is None:
            return
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail(FILE, f"contracts of another version of this program are not kept in {file.path}")
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(file.write, payload, pages.values()), timeout_s)
        except OSError as error:  # TimeoutError, too
            self._fail(FILE, f"contracts cannot be written to {file.path}: {error}")

    def _payloads(self) -> dict[str, bytes] | None:
        """The pages of what is in force; None if another version of this program has written them otherwise."""
        if self.index is None:
            return None
        outline = self.index.outline
        parts = divided(self.document, pages=len(outline.customers))
        return dict(parts.pages) if parts.outline == outline else None

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
        self._restore_ns = None  # if it is still lost when it is read next, try again some time
        pages = await asyncio.to_thread(self._payloads)
        if pages is None:
            self._fail("restoring", "contracts that the hub has lost are of another version; publish them again")
            return
        lacking = await asyncio.wait_for(store.keep_pages(list(pages), keep_s=keep_s), timeout_s)
        for digest in lacking:
            await asyncio.wait_for(store.put_page(digest, pages[digest], keep_s=keep_s), timeout_s)
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
