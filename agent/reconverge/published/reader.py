"""Reads a signed document from the hub for one node, and puts the newest valid one in force."""

# Theory of operation.
#
# The problem. Operators publish settings and contracts at the hub, where nodes meet anyway. Any client of that hub can
# replace them by something else, an older document can be replayed, and the hub can lose everything. A node must
# neither apply a document that no operator has published, nor lose one that an operator has published.
#
# How it works. Once in an interval, after the exchange and separate from it, a node reads the document at the hub. If
# the answer to an exchange carried the document, the schema, every hub and both implementations of the merge rule would
# have to deal with it, only to save one command that costs 90 us, where the cheapest possible command costs 79. While
# the document is unchanged, Redis answers with a short mark of it instead of the document.
#
#     the hub returns                            the node
#     ----------------------------------------   ---------------------------------------------------------------------
#     the document in force                      does nothing
#     a valid one of a higher version            fetches its parts, and puts all of it in force at once
#     premature, expired, or lacking a page      rejects it, and checks it again each time, as this may resolve itself
#     any other                                  rejects it, and does not check it again
#     an older one                               rejects it, and posts the document in force again
#     nothing                                    posts the document in force again
#     no answer                                  keeps the document in force; each further look is delayed more
#
# Each rejection is counted by its reason, and logged once until a document is accepted: otherwise a client with access
# to the hub could fill a log. A document that this node fails to apply is rejected, too, and the one before stays in
# force.
#
# A hub that has lost its data has lost the document, and a node that starts then would not get it. So nodes that have
# it post it again, after a random time within RESTORED_AFTER_S, and only if it is still missing. Only an empty place or
# an older document is replaced: a forged, malformed or premature one may come from a publisher with a new secret or a
# better clock, and nodes that do not know the new secret yet would undo the change of secrets.
#
# Settings and contracts differ in their requirements:
#
#                           settings (`published/settings_reader.py`)   contracts (`contracts/store/reader.py`)
#     in force until        they expire: they may be an emergency's     new ones come: customers must not lose theirs;
#                                                                       the end is for nodes that start
#     further parts         none                                        pages, in part fetched as customers need them
#     posted again by       one write over any content                  pages, then a swap of the document just read
#     read                  once in an interval                         less often while the hub pushes hints
#     a start without hub   the node's own settings                     the last contracts, from a file
#     an old one, replayed  accepted by a node that starts              not below the minimum that an operator has set

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, ClassVar, Final, Generic, TypeVar

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.answers import check_posted
from reconverge.hub.port import Hub
from reconverge.published.envelope import EXPIRED, OLD, PREMATURE, Doc, Rejection, Verifier
from reconverge.runtime.backoff import backoff_ns
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

PROBLEM_LENGTH_MAX: Final = 400
RESTORED_AFTER_S: Final = (1.0, 10.0)
"""The least and the most seconds of a random delay before a node posts a lost document again. When it is over, another
node has mostly posted the document already."""
UNFIT: Final = "unfit"
"""The reason for rejecting a valid document that this node has failed to apply."""
NO_STORE: Final = "no-store"

Store = TypeVar("Store")


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """The counters of one reader, and the version in force."""

    version: int = 0
    """The version in force; 0 if there is none."""
    expires_in: float = inf
    """Seconds until starting nodes no longer accept the document; negative after that, infinite if none is in force."""
    accepted: int = 0
    """The number of new documents that came into force."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """The number of rejected new documents, by reason: one of `published.envelope.REASONS`, or the reader's own."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """The number of failed attempts to read, store or post a document, by class of failure."""
    restored: int = 0
    """The number of documents that the hub had lost and this node has posted again."""


class Reader(ABC, Generic[Doc, Store]):
    """Reads one kind of signed document at a hub. The exchange driver calls it as a `Follower` at each exchange.

    `interval_ns` returns the time between two reads of the hub, in nanoseconds.
    """

    what: ClassVar[str]
    """The name of the documents in messages, such as "settings"."""
    may_mend: ClassVar[tuple[str, ...]] = (PREMATURE, EXPIRED)
    """The reasons for rejection that may pass with time. A document rejected for one of them is checked again at each
    later read."""
    brief = True
    """Whether a read sends the hub at most one short command (`Follower.brief`)."""

    def __init__(
        self,
        verifier: Verifier[Doc],
        clock: Clock,
        *,
        interval_ns: Callable[[], int],
        random: Random | None = None,
    ) -> None:
        self._verifier = verifier
        self._clock = clock
        self._interval_ns = interval_ns
        self._random = random or Random()
        self.in_force: Doc | None = None
        self._newest: Doc | None = None
        """The last accepted document; documents up to its version are no longer accepted."""
        self._known: bytes | None = None
        """The payload of the last accepted document."""
        self._seen: bytes | None = None
        """The payload that was read last, accepted or not."""
        self._reason = ""
        """The reason why the last payload was rejected; empty if it was not."""
        self._restore_ns: int | None = None
        """When to post the document again, if the hub has lost it and it is still missing then; None if the hub has
        it."""
        self._accepted = self._restored = 0
        self._rejected: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._failures_in_a_row = 0
        self._logged = LoggedOnce()
        self.start_over()

    @property
    def version(self) -> int:
        """Returns the version of the document in force; 0 if there is none."""
        return 0 if self.in_force is None else self.in_force.version

    def _counted(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "expires_in": inf if self.in_force is None else self.in_force.expires - self._now_s(),
            "accepted": self._accepted,
            "rejected": dict(self._rejected),
            "failures": dict(self._failures),
            "restored": self._restored,
        }

    # ------------------------------------------------------------ methods for one kind of document

    @abstractmethod
    def _store_in(self, hub: Hub) -> Store | None:
        """Returns the part of the hub that stores documents of this kind; None if the hub cannot store them."""

    @abstractmethod
    async def _read(self, store: Store) -> bytes | None:
        """Reads the published document; returns None if there is none. Raises HubUnavailable."""

    @abstractmethod
    async def _prepared(self, store: Store, document: Doc, timeout_s: float) -> Callable[[], object] | Rejection:
        """Fetches the further parts of a document. Returns a function that applies the document, or a rejection.

        Raises HubUnavailable and TimeoutError; then the reader tries again at its next read.
        """

    @abstractmethod
    async def _post(self, store: Store, payload: bytes, *, over: bytes | None, keep_s: float, timeout_s: float) -> bool:
        """Posts a document again that the hub has lost. Returns whether it was posted.

        If the hub's store can compare, it posts only if the hub still has `over` in that place. `keep_s` is how many
        seconds the hub keeps the document. Raises HubUnavailable and TimeoutError.
        """

    async def _go_on(self, store: Store, timeout_s: float) -> None:
        """For further work of a subclass at the hub: called after each answered read, and when no read is due."""

    def _due_look_ns(self) -> int:
        """Returns the moment of the next read of the hub, in nanoseconds of the monotonic clock."""
        return self._look_ns

    # ------------------------------------------------------------ called by the exchange driver

    def start_over(self) -> None:
        """Makes the next read due at once, because a new exchange driver has started."""
        self._look_ns = self._clock.monotonic_ns()

    def due_ns(self) -> int:
        """Returns the moment at which `follow` has work again, in nanoseconds of the monotonic clock."""
        return self._due_look_ns()

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Reads the document at the hub if a read is due.

        If `cut_off` is True, exchanges with the hub fail at present; then the reader does not ask the hub.
        """
        store, now_ns = self._store_in(hub), self._clock.monotonic_ns()
        if self._due_look_ns() > now_ns:
            if store is not None:
                await self._go_on(store, timeout_s)
            return
        self._look_ns = now_ns + self._interval_ns()
        if store is None:
            problem = f"{type(hub).__name__} stores no {self.what}; use another hub if {self.what} are published"
            self._say(NO_STORE, problem, level=logging.ERROR)
        elif not cut_off:
            await self._look(store, timeout_s)

    async def _look(self, store: Store, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                payload = await self._read(store)
            check_posted(payload)
            await self._judge(store, payload, timeout_s)
            await self._restore_if_lost(store, payload, timeout_s)
        except Exception as error:  # noqa: BLE001  # including bugs of the hub or of this class: exchanges must go on
            self._unreadable(error)
        else:
            if self._failures_in_a_row:
                self._failures_in_a_row = 0
                self._logged.forget(*self._failures)
            await self._go_on(store, timeout_s)

    # ------------------------------------------------------------ checking a document and putting it in force

    async def _judge(self, store: Store, payload: bytes | None, timeout_s: float) -> None:
        again, before = payload == self._seen, self._reason
        if payload is None or payload == self._known:
            self._seen, self._reason = payload, ""
            return
        if again and before not in self.may_mend:
            return
        rejection = await self._accept(store, payload, timeout_s)
        self._seen, self._reason = payload, "" if rejection is None else rejection.reason
        if rejection is not None and not (again and rejection.reason == before):
            sentence = f"published {self.what} were rejected as {rejection.reason}: the document"
            self._reject(rejection, rejection.reason, f"{sentence} {rejection.problem}")

    async def _accept(self, store: Store, payload: bytes, timeout_s: float) -> Rejection | None:
        document = self._verify(payload)
        if isinstance(document, Rejection):
            return document
        prepared = await self._prepared(store, document, timeout_s)
        if isinstance(prepared, Rejection):
            return prepared
        rejection = self._put_in_force(payload, document, prepared)
        if rejection is None:
            self._logged.forget_all()
            self._accepted += 1
        return rejection

    def _verify(self, payload: bytes) -> Doc | Rejection:
        known = 0 if self._newest is None else self._newest.version
        return self._verifier.verify(payload, now_s=self._now_s(), known=known)

    def _put_in_force(self, payload: bytes, document: Doc, apply: Callable[[], object]) -> Rejection | None:
        """Applies a document, and returns None; if that fails, keeps the former in force and returns a rejection."""
        try:
            apply()
        except Exception as error:
            logger.exception(
                "reconverge: published %s (version %d) cannot be applied; the former stay in force",
                self.what,
                document.version,
            )
            return Rejection(UNFIT, f"cannot be applied: {type(error).__name__}")
        self._known, self._newest = payload, document
        self.in_force = document  # last, so that code that reads it finds its effects
        logger.info("reconverge: published %s (version %d) are in force", self.what, document.version)
        return None

    async def _restore_if_lost(self, store: Store, payload: bytes | None, timeout_s: float) -> None:
        document, known, now_ns = self.in_force, self._known, self._clock.monotonic_ns()
        if document is None or known is None or not (payload is None or self._reason == OLD):
            self._restore_ns = None
            return
        if self._restore_ns is None:
            self._restore_ns = now_ns + round(self._random.uniform(*RESTORED_AFTER_S) * SECOND_NS)
        keep_s = document.expires - self._now_s()
        if now_ns < self._restore_ns or keep_s <= 0:
            return
        self._restore_ns = None  # if it is still missing, try again later
        try:
            restored = await self._post(store, known, over=payload, keep_s=keep_s, timeout_s=timeout_s)
        except (HubUnavailable, TimeoutError) as error:
            self._fail_for(error, f"published {self.what} that the hub has lost could not be posted again")
            return
        if restored:
            self._restored += 1
            logger.warning("reconverge: published %s were missing at the hub, and were posted again", self.what)

    # ------------------------------------------------------------ failures

    def _unreadable(self, error: Exception) -> None:
        self._failures_in_a_row += 1
        self._look_ns = self._clock.monotonic_ns() + backoff_ns(self._interval_ns(), self._failures_in_a_row)
        self._fail_for(error, f"published {self.what} cannot be read; the last ones stay in force")

    def _fail_for(self, error: Exception, problem: str) -> None:
        kind, foreseen = kind_of(error), isinstance(error, HubUnavailable | TimeoutError)
        self._failures[kind] += 1
        self._say(kind, f"{problem} ({kind})", bug=None if foreseen else error)

    def _reject(self, rejection: Rejection, fact: str, problem: str) -> None:
        self._rejected[rejection.reason] += 1
        self._say(fact, problem)

    def _fail(self, kind: str, problem: str) -> None:
        self._failures[kind] += 1
        self._say(kind, problem)

    def _say(self, fact: str, problem: str, *, level: int = logging.WARNING, bug: Exception | None = None) -> None:
        """Logs `problem`, unless a problem was logged for the same `fact` since the last document was accepted.

        `bug` is an error whose traceback is logged, too.
        """
        if self._logged.is_new(fact):
            visible = "".join(letter if letter.isprintable() else " " for letter in problem[:PROBLEM_LENGTH_MAX])
            logger.log(level, "reconverge: %s", visible, extra={"kind": fact}, exc_info=bug)

    def _now_s(self) -> float:
        return self._clock.wall_ns() / SECOND_NS


def kind_of(error: Exception) -> str:
    """Returns the class of a failure: the kind of a HubUnavailable, "timeout", or "bug:" with the name of the error."""
    if isinstance(error, HubUnavailable):
        return error.kind
    return "timeout" if isinstance(error, TimeoutError) else f"bug:{type(error).__name__}"
