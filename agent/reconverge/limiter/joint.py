"""Decides about one request by several limits, each with a key of its own: all limits charge it, or none does.

In doubt, the request asks the hub about all limits at once. `kernel/composite/joint.py` makes the decision.
"""

# Theory of operation.
#
# If the node's memory is certain about all limits, the request is decided at once. Otherwise each limit that is in
# doubt asks the hub with the node's next batch, so that one or two exchanges answer all. The request waits until each
# limit has its answer; meanwhile the node keeps the grants for it. Then all limits are charged in one step, or none. As
# in `asking.py` for one limit: a limit that has its answer decides by the node's part of the limit, any other by
# memory; a limit at which no request may wait now does not keep the others from asking. Once one limit has refused for
# certain, the request waits for no other.

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from reconverge.kernel import (
    Cell,
    Claimed,
    DecidingRule,
    Joint,
    Part,
    Reentry,
    Settled,
    ShardState,
    Word,
    hit_all,
    hit_at_once,
    settle_jointly,
    stores_of,
)
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.reservation import KEEP, Reservation
from reconverge.limiter.waiting.patience import Patience
from reconverge.limiter.waiting.running import run, run_blocking
from reconverge.limiter.waiting.waiters import LoopWaker, thread_waker

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel.engine import Store
    from reconverge.limiter.asking import AskedCost, Asking
    from reconverge.limiter.faces.limiter import Limiter
    from reconverge.limiter.waiting.queue import Waker

Steps: TypeAlias = Generator[int, None, Joint]
"""The steps of a request that asks the hub. The generator yields nanoseconds to sleep, which a waker may cut short, and
returns the joint decision."""


Stores: TypeAlias = "tuple[Store, ...]"
"""One compiled store of counts for each quota of a limit."""
Answer: TypeAlias = "tuple[Decision, Reservation | None]"
"""The answer of one limit: its decision, and a reservation if one was requested and all limits have charged."""


class Asks(Protocol):
    """The interface of a claim, one limit's part of a request: key and cost, and how to ask the hub about them."""

    @property
    def request(self) -> AskedCost:
        """Returns the question to the hub: the key and the cost."""
        ...

    @property
    def marks(self) -> bool:
        """Whether a reservation can correct the charge later."""
        ...

    @property
    def would_be_admitted(self) -> bool:
        """Whether this node's memory would admit the request now. Charges nothing."""
        ...

    @property
    def asking(self) -> Asking:
        """Returns the object by which requests to this limit ask the hub."""
        ...


@dataclass(slots=True)
class Member:
    """A claim: one limit's part of a request about which several limits decide together."""

    limiter: Limiter
    request: AskedCost
    marks: bool
    """Whether a reservation can correct the charge later."""

    @property
    def would_be_admitted(self) -> bool:
        return self.limiter.test(self.request.key, self.request.cost, self.request.kind).allowed

    @property
    def asking(self) -> Asking:
        return self.limiter.control.enforcement.on.asking


def member_of(limiter: Limiter, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Member:
    """Returns a request's claim on one limit, for `Jointly`.

    The claim waits at most `within_ns` nanoseconds for the hub; with 0 it does not ask. Raises InvalidKey, InvalidCost,
    UnknownKind or CostExceedsQuota.
    """
    asking = limiter.control.enforcement.on.asking
    request = asking.request(key, cost, kind, within_ns, marks=marks)
    asking.limit.able(request.costs)
    return Member(limiter, request, marks)


def can_be_joined(limiter: Limiter) -> bool:
    """Whether a limit can decide together with others: it is a rate limit that is on, and has no bans.

    The reasons: a limit that is off or in shadow refuses no request; slots are taken one by one, as each has to be
    given back; the tables of a limit, which decide here, do not know which keys are banned.
    """
    board = limiter.control.enforcement
    return board.answers is board.on and isinstance(limiter, RateLimiter) and limiter.control.bans is None


def is_closed(limiter: Limiter) -> bool:
    """Whether the limit is closed: a rate limit that is on and has a quota of 0, so that it refuses each request."""
    board = limiter.control.enforcement
    return board.refuses_all and board.answers is board.deciding and isinstance(limiter, RateLimiter)


def can_decide_together(limiters: Sequence[Limiter]) -> bool:
    """Whether several limits can decide together: all belong to one agent, and no quota belongs to two of them."""
    tables = [table for limiter in limiters for table in limiter.control.tables]
    return len(set(map(id, tables))) == len(tables) and len({id(table.kernel) for table in tables}) == 1


def hit_together(asked: Sequence[tuple[Limiter, str, int]], *, certain: bool) -> list[Decision] | int | None:
    """Decides about one request by several limits, without the hub. `asked` has each limit with its key and its cost.

    If all limits admit, charges all and returns their decisions. Otherwise charges nothing, and returns the index in
    `asked` of a limit that surely refuses, or None if this function cannot decide. With `certain`, it admits only if
    this node's own allowance of each limit is enough.
    """
    claims = [Claimed(limiter.control.enforcement.table, key, cost) for limiter, key, cost in asked]
    return hit_at_once(claims, certain=certain)


def stores_if_joint(limiter: Limiter) -> Stores:
    """Returns a limit's compiled stores (counts by key), one for each quota, to pass to `hit_stores`.

    The tuple is empty if `hit_stores` cannot decide about the limit, as with slots or bans.
    """
    joint = isinstance(limiter, RateLimiter) and limiter.control.bans is None
    return stores_of(limiter.control.enforcement.table) if joint else ()


hit_stores: Final = hit_all
"""Decides as `hit_together`. Takes stores from `stores_if_joint` in place of limiters, which is faster."""


@dataclass(slots=True)
class _Wait:
    """A claim (one limit's part of a request) that is in doubt, with the state of its question to the hub."""

    member: Asks
    shards: list[ShardState]
    rule: DecidingRule | None = None
    """The rule by which to decide the claim; None until the hub has answered or need not be asked."""
    joined: bool = False
    asked_ns: int = 0
    """The time, in nanoseconds of the monotonic clock, from which on reports to the hub ask for the claim's cost; 0
    before."""
    cells: list[Cell] = field(default_factory=list[Cell])


class Jointly:
    """One request to several limits that share no quota: all of them charge it, or none does.

    Its part for each limit is a claim.
    """

    def __init__(self, members: Sequence[Asks]) -> None:
        self._members = members
        self._waits: list[_Wait] = []
        self._now_ns = members[0].asking.now_ns

    def at_once(self, *, blocking: bool) -> list[Answer] | None:
        """Returns the answers if they are certain, or if this thread must not wait; else charges nothing, returns None.

        `blocking` is True if the caller would block its thread while it waits, and False in an event loop.
        """
        self._waits = self._in_doubt()
        first = self._members[0].asking
        if not self._waits or first.manual or (blocking and not first.may_block()):
            return self._answers(self._settle())
        return None

    async def ask(self) -> list[Answer]:
        """Returns each limit's answer; if in doubt, waits for the hub in the running event loop."""
        waker = LoopWaker()
        return self._answers(await run(self.steps(waker), waker.sleep))

    def ask_blocking(self) -> list[Answer]:
        """Returns each limit's answer; if in doubt, waits for the hub on the calling thread."""
        waker = thread_waker()
        return self._answers(run_blocking(self.steps(waker), waker.sleep))

    def _in_doubt(self) -> list[_Wait]:
        """Returns the claims that are in doubt; an empty list if any other claim would be refused."""
        waits = []
        try:
            for member in self._members:
                asking, request = member.asking, member.request
                if request.within_ns and asking.gate.in_doubt(request.key, request.costs):
                    waits.append(_Wait(member, asking.gate.shards(request.key)))
            doubtful = {id(each.member) for each in waits}
            settled = [member for member in self._members if waits and id(member) not in doubtful]
            return [] if any(not member.would_be_admitted for member in settled) else waits
        except Reentry:
            return []

    def steps(self, waker: Waker) -> Steps:
        """Asks the hub about the claims in doubt, then decides; from memory if the hub does not answer in time.

        A generator: yields each time to sleep, in nanoseconds, and returns the joint decision.
        """
        waits, began_ns = self._waits, self._now_ns()
        try:
            for each in waits:
                self._begin(each, waker, began_ns)
            within_ns = min(each.member.request.within_ns for each in waits)
            patience = Patience([shard for each in waits for shard in each.shards], within_ns, began_ns, self._now_ns())
            while any(each.rule is None for each in waits):
                sleep_ns = patience.sleep_ns(self._now_ns())
                if not sleep_ns or any(shard.in_vain for each in waits if each.rule is None for shard in each.shards):
                    break
                yield sleep_ns
                for each in waits:
                    self._look(each, waker, began_ns, patience)
            for each in waits:
                if each.rule is None:
                    each.member.asking.note_unanswered(each.shards, began_ns)
            return self._settle(waits, began_ns)
        finally:
            for each in waits:
                if each.joined:
                    each.member.asking.leave(each.member.request, each.shards, each.cells, waker)

    @staticmethod
    def _begin(each: _Wait, waker: Waker, began_ns: int) -> None:
        """Asks the hub about a claim, unless asking would be of no use."""
        asking, request = each.member.asking, each.member.request
        each.rule = asking.unasked(request, each.shards, began_ns)
        if each.rule is None:
            each.joined = True
            asked_ns = asking.join(request, each.shards, each.cells, waker)
            if asked_ns is None:
                asking.note("capped", began_ns)
                each.rule = DecidingRule.MEMORY
            else:
                each.asked_ns = asked_ns

    def _look(self, each: _Wait, waker: Waker, began_ns: int, patience: Patience) -> None:
        for shard in each.shards:
            shard.note_looked(waker)
        if each.rule is None:
            each.rule = self._answered(each, began_ns, patience)

    @staticmethod
    def _answered(each: _Wait, began_ns: int, patience: Patience) -> DecidingRule | None:
        """Returns the rule by which to decide a claim, if the hub has answered or there is room; None to wait on."""
        asking, request = each.member.asking, each.member.request
        if asking.gate.fits(request.key, request.costs):
            return DecidingRule.ALLOWANCE
        word = asking.gate.word_on(each.cells, request.costs, each.asked_ns)
        if word is Word.ANSWERED:
            return DecidingRule.ALLOWANCE
        if word is Word.UNSETTLED:
            asking.note("unsettled", began_ns)
            return DecidingRule.MEMORY
        if word is Word.WITHHELD:
            patience.begin_at(asking.gate.wait_out(each.cells), asking.now_ns())
        if word is Word.MISSED:
            asking.gate.ask_again(each.cells)
        return None

    def _settle(self, waits: Sequence[_Wait] = (), began_ns: int | None = None) -> Joint:
        """Charges all claims, or none if one is refused. Returns the joint decision."""
        of = {id(each.member): each for each in waits}
        parts = []
        for member in self._members:
            wait = of.get(id(member))
            rule = DecidingRule.MEMORY if wait is None or wait.rule is None else wait.rule
            request = member.request
            counted = wait is not None and wait.joined
            parts.append(Part(member.asking.limit, request.key, request.costs, rule, counted, request.units))
        try:
            joint = settle_jointly(parts)
        except Reentry:
            refused = [Settled(member.asking.limit.refuse_reentry(), ()) for member in self._members]
            return Joint(allowed=False, settled=refused)
        if began_ns is not None:
            for member, settled in zip(self._members, joint.settled, strict=True):
                wait = of.get(id(member))
                if wait is not None and wait.joined and wait.rule is DecidingRule.ALLOWANCE:
                    member.asking.note_answer(member.request, wait.cells, settled.decision, began_ns)
        return joint

    def _answers(self, joint: Joint) -> list[Answer]:
        """Returns each limit's decision, with a reservation if its claim requests one and all limits have charged."""
        answers: list[Answer] = []
        for member, settled in zip(self._members, joint.settled, strict=True):
            reservation = None
            if member.marks and joint.allowed:
                request = member.request
                reservation = Reservation(settled.charges, request.key, request.cost, settled.decision, KEEP)
            answers.append((settled.decision, reservation))
        return answers
