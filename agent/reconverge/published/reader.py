"""Reads a signed document that is published at the hub, for one node, and has the newest valid one be in force."""

# Theory of operation.
#
# The problem. Operators publish settings, and contracts, at the hub where nodes meet anyway. Any client of that hub can
# put something else in their place, an older document can be played back, and the hub can lose all of it; a node must
# neither obey what no operator has published, nor be without what was.
#
# How it works. Once in an interval, after the exchange and not within it, a node reads what is there. With the answer
# of the exchange, documents would be a part of the schema, of every hub and of both twins of the merge rule, to save a
# command that costs 90 us where the barest one costs 79. As long as the document is the same, a Redis answers with its
# mark alone.
#
#     what is read                               what becomes of it
#     ----------------------------------------   ---------------------------------------------------------------------
#     the document in force                      nothing
#     a valid one of a higher version            what belongs to it is fetched, and it is in force as a whole
#     premature, expired, or lacking a page      rejected, and judged again each time, as that may mend
#     any other                                  rejected, and not judged again
#     nothing, or an older one                   rejected; what is in force is posted again
#     no answer                                  what is in force stays so; the next look comes later each time
#
# Each rejection is counted by its reason, and logged once until something is accepted: a client with access to the hub
# could fill a log. A document that this node fails to apply is rejected like that, and the one before stays in force.
#
# A hub that has lost its data has lost the document, and a node that starts then would not know of it. So nodes that
# have it post it again, at random after RESTORED_AFTER_S, and only if it is still gone. Only nothing, or something
# older, is replaced: what is forged, malformed or premature may be what a publisher with a new secret or a better clock
# has just posted, and nodes that do not know that secret yet would undo a rotation.
#
# Settings and contracts differ in what they must:
#
#                           settings (`published/settings_reader.py`)      contracts (`contracts/store/reader.py`)
#     in force until        they expire: they may be an emergency's     others come: customers must not lose theirs; the
#                                                                       end is for nodes that start
#     belongs to them       nothing                                     pages, in part fetched when customers are met
#     posted again by       one write, whatever is there                pages, then a swap of what was read
#     looked at             once in an interval                         less often while the hub pushes hints
#     a start without hub   the node's own settings                     the last contracts, from a file
#     an old one, replayed  believed by a node that starts              not below the minimum that an operator has set

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
"""So long, at random, what is in force has to be gone before a node posts it again, so that not all of them do."""
UNFIT: Final = "unfit"
"""Rejects a valid document that this node has failed to apply."""
NO_STORE: Final = "no-store"

Store = TypeVar("Store")


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """The counters of one reader, and the version in force."""

    version: int = 0
    """Of what is in force; 0 if nothing is."""
    expires_in: float = inf
    """Seconds until a node that starts believes it no more; below zero since then. Infinite if nothing is in force."""
    accepted: int = 0
    """New documents that came into force."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """New documents that did not, by reason: `reconverge.published.envelope.REASONS`, and those of its reader."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Attempts to read, keep or post a document that failed, by class of failure."""
    restored: int = 0
    """Documents that the hub had lost, and that this node has posted again."""


class Reader(ABC, Generic[Doc, Store]):
    """Reads one kind of document at a hub; a `Follower` of the exchange driver.

    `interval_ns` returns how often to look, in nanoseconds.
    """

    what: ClassVar[str]
    """Its name in messages, in the plural."""
    may_mend: ClassVar[tuple[str, ...]] = (PREMATURE, EXPIRED)
    """Reasons that another look may find gone."""
    brief = True
    """A look is one small question (`Follower.brief`)."""

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
        """The one that was accepted last; none of its version or below is accepted any more."""
        self._known: bytes | None = None
        """The same, as it was read."""
        self._seen: bytes | None = None
        """The payload that was read last, believed or not."""
        self._reason = ""
        """The reason for which that was rejected; empty if it was not."""
        self._restore_ns: int | None = None
        """When to post again what is in force and lost, if that still is so."""
        self._accepted = self._restored = 0
        self._rejected: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._failures_in_a_row = 0
        self._logged = LoggedOnce()
        self.start_over()

    @property
    def version(self) -> int:
        """The version in force; 0 if none is."""
        return 0 if self.in_force is None else self.in_force.version

    def _counted(self) -> dict[str, Any]:
        """The fields of `ReaderStats`."""
        return {
            "version": self.version,
            "expires_in": inf if self.in_force is None else self.in_force.expires - self._now_s(),
            "accepted": self._accepted,
            "rejected": dict(self._rejected),
            "failures": dict(self._failures),
            "restored": self._restored,
        }

    # ------------------------------------------------------------ in which documents differ

    @abstractmethod
    def _store_in(self, hub: Hub) -> Store | None:
        """The hub as one that keeps such documents; None if it does not."""

    @abstractmethod
    async def _read(self, store: Store) -> bytes | None:
        """Read what is published; None if nothing is. Raises HubUnavailable."""

    @abstractmethod
    async def _prepared(self, store: Store, document: Doc, timeout_s: float) -> Callable[[], object] | Rejection:
        """Fetch what belongs to a document, and return what applies it, or why it cannot be.

        Raises HubUnavailable and TimeoutError; then it is tried again.
        """

    @abstractmethod
    async def _post(self, store: Store, payload: bytes, *, over: bytes | None, keep_s: float, timeout_s: float) -> bool:
        """Post again what the hub has lost, where it has `over` now; returns whether that was done.

        Raises HubUnavailable and TimeoutError.
        """

    async def _go_on(self, store: Store, timeout_s: float) -> None:
        """Do what else there is to do at the hub: after a look that was answered, or when no look is due."""

    def _due_look_ns(self) -> int:
        """When to look next."""
        return self._look_ns

    # ------------------------------------------------------------ as a follower

    def start_over(self) -> None:
        """Look as soon as there is another driver."""
        self._look_ns = self._clock.monotonic_ns()

    def due_ns(self) -> int:
        """When there is something to do, by the monotonic clock."""
        return self._due_look_ns()

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Look at the hub, if that is due; not while exchanges fail, which say why."""
        store, now_ns = self._store_in(hub), self._clock.monotonic_ns()
        if self._due_look_ns() > now_ns:
            if store is not None:
                await self._go_on(store, timeout_s)
            return
        self._look_ns = now_ns + self._interval_ns()
        if store is None:
            problem = f"{type(hub).__name__} keeps no {self.what}: {self.what} apply on this node only"
            self._say(NO_STORE, problem, level=logging.ERROR)
        elif not cut_off:
            await self._look(store, timeout_s)

    async def _look(self, store: Store, timeout_s: float) -> None:
        try:
            payload = await asyncio.wait_for(self._read(store), timeout_s)
            check_posted(payload)
            await self._judge(store, payload, timeout_s)
            await self._restore_if_lost(store, payload, timeout_s)
        except Exception as error:  # noqa: BLE001  # a bug, too, of the hub's or of ours: exchanges go on
            self._unreadable(error)
        else:
            if self._failures_in_a_row:
                self._failures_in_a_row = 0
                self._logged.forget(*self._failures)
            await self._go_on(store, timeout_s)

    # ------------------------------------------------------------ what was read

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
            sentence = f"{self.what} were published that are not obeyed: they are {rejection.reason}: what was read"
            self._reject(rejection, rejection.reason, f"{sentence} {rejection.problem}")

    async def _accept(self, store: Store, payload: bytes, timeout_s: float) -> Rejection | None:
        """Put a document in force with all that belongs to it; returns why not."""
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
        """Apply a document, or leave the one before in force; returns why."""
        try:
            apply()
        except Exception as error:
            logger.exception("reconverge: published %s (version %d) cannot be applied", self.what, document.version)
            return Rejection(UNFIT, f"cannot be applied: {type(error).__name__}")
        self._known, self._newest = payload, document
        self.in_force = document  # last, so that a reader of it sees its effects
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
        self._restore_ns = None  # if it is still lost, try again some time
        try:
            restored = await self._post(store, known, over=payload, keep_s=keep_s, timeout_s=timeout_s)
        except (HubUnavailable, TimeoutError) as error:
            self._fail_for(error, f"published {self.what} that the hub has lost cannot be posted again")
            return
        if restored:
            self._restored += 1
            logger.warning("reconverge: published %s were not at the hub any more; they were posted again", self.what)

    # ------------------------------------------------------------ what goes wrong

    def _unreadable(self, error: Exception) -> None:
        """Nothing could be read; wait for longer each time."""
        self._failures_in_a_row += 1
        self._look_ns = self._clock.monotonic_ns() + backoff_ns(self._interval_ns(), self._failures_in_a_row)
        self._fail_for(error, f"published {self.what} cannot be read, and what is in force stays so")

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
        """Log a fact once, until something is accepted; with the traceback of what was not foreseen."""
        if self._logged.is_new(fact):
            visible = "".join(letter if letter.isprintable() else " " for letter in problem[:PROBLEM_LENGTH_MAX])
            logger.log(level, "reconverge: %s", visible, extra={"kind": fact}, exc_info=bug)

    def _now_s(self) -> float:
        return self._clock.wall_ns() / SECOND_NS


def kind_of(error: Exception) -> str:
    """The class of failure of a hub that has not answered, or of a bug."""
    if isinstance(error, HubUnavailable):
        return error.kind
    return "timeout" if isinstance(error, TimeoutError) else f"bug:{type(error).__name__}"
