"""One request about several limits, each by a key of its own: all of them charge it in one moment, or none.

In doubt it asks the hub about all of them at once. What decides: `kernel/composite/joint.py`.
"""

# Theory of operation.
#
# What memory settles is decided at once. Of the others each limit that is in doubt joins the node's next batch, so that
# one exchange or two answer all; the request waits until each is answered, and has what was granted for it kept
# meanwhile. Then all limits are charged in one step, or none. As `asking.py` says for one limit: what the hub has
# answered about decides by the node's part of the limit, what it has not by what memory says; a limit for which no
# request may wait now does not keep the others from asking. Once one limit has refused for certain, the request waits
# for no other.

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

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
    binding_each,
    hit_all,
    hit_at_once,
    settle_jointly,
    stores_of,
)
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.patience import Patience
from reconverge.limiter.reservation import KEEP, Reservation
from reconverge.limiter.waiters import LoopWaker, thread_waker

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.limiter.asking import AskedCost, Asking
    from reconverge.limiter.faces.limiter import Limiter
    from reconverge.limiter.queue import Waker

Steps: TypeAlias = Generator[int, None, Joint]
"""Yields the nanoseconds to sleep; woken earlier by the waker."""


Answer: TypeAlias = "tuple[Decision, Reservation | None]"
"""One limit's decision, with the charge that can be settled later, if that was wanted and all limits have charged."""


class Asks(Protocol):
    """The claim of a request on one limit that asks the hub."""

    @property
    def request(self) -> AskedCost:
        """The question to the hub."""
        ...

    @property
    def marks(self) -> bool:
        """Whether its charge can be corrected later."""
        ...

    @property
    def would_be_admitted(self) -> bool:
        """Whether memory says so; nothing is charged."""
        ...

    @property
    def asking(self) -> Asking:
        """The object by which this limit asks the hub."""
        ...


@dataclass(slots=True)
class Member:
    """The claim of a request on one limit."""

    limiter: Limiter
    request: AskedCost
    marks: bool
    """Whether its charge can be corrected later."""

    @property
    def would_be_admitted(self) -> bool:
        """Whether memory says so; nothing is charged."""
        return self.limiter.test(self.request.key, self.request.cost, self.request.kind).allowed

    @property
    def asking(self) -> Asking:
        """The object by which this limit asks the hub."""
        return self.limiter.control.enforcement.on.asking


def member_of(limiter: Limiter, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Member:
    """Makes the claim of a request on a limit; `within_ns` is how long it may wait for that, 0 for not at all.

    Raises InvalidKey, InvalidCost, UnknownKind or CostExceedsQuota.
    """
    asking = limiter.control.enforcement.on.asking
    request = asking.request(key, cost, kind, within_ns, marks=marks)
    asking.limit.able(request.costs)
    return Member(limiter, request, marks)


def can_be_joined(limiter: Limiter) -> bool:
    """Whether a limit decides and charges as declared: one that is off, or in shadow, refuses nothing.

    Slots are taken one by one: each has to be given back. So is a limit asked that bans, whose tables know no bans.
    """
    board = limiter.control.enforcement
    return board.answers is board.on and isinstance(limiter, RateLimiter) and limiter.control.bans is None


def can_decide_together(limiters: Sequence[Limiter]) -> bool:
    """Whether limits are of one agent, and none of their quotas is asked twice."""
    tables = [table for limiter in limiters for table in limiter.control.tables]
    return len(set(map(id, tables))) == len(tables) and len({id(table.kernel) for table in tables}) == 1


def hit_together(asked: Sequence[tuple[Limiter, str, int]], *, certain: bool) -> list[Decision] | int | None:
    """The decisions, if all limits admit the request, and all have charged it.

    Else nothing has been charged: the place of a limit that refuses it for certain, or None if that takes a closer
    look.
    With `certain` only what fits into the node's own part of each limit is admitted.
    """
    claims = [Claimed(limiter.control.enforcement.table, key, cost) for limiter, key, cost in asked]
    return hit_at_once(claims, certain=certain)


def hit_stores(arguments: Sequence[object], sizes: Sequence[int]) -> list[Decision] | None:
    """`hit_together` of `certain`, and of each quota of all limits its store, the key and the cost.

    `sizes` are how many quotas each limit has. None where `hit_together` is to be asked.
    """
    decisions = hit_all(*arguments)
    return binding_each(decisions, sizes) if isinstance(decisions, list) else None


def stores_if_joint(limiter: Limiter) -> tuple[object, ...]:
    """Returns the store of each quota, for `hit_stores`; empty for a limit that takes a closer look."""
    joint = isinstance(limiter, RateLimiter) and limiter.control.bans is None
    return stores_of(limiter.control.enforcement.table) if joint else ()


@dataclass(slots=True)
class _Wait:
    """The state of one member while the request waits for the hub."""

    member: Asks
    shards: list[ShardState]
    rule: DecidingRule | None = None
    """The rule by which the member is decided, once that is known."""
    joined: bool = False
    asked_ns: int = 0
    """Since when reports ask for it, once it has joined."""
    cells: list[Cell] = field(default_factory=list[Cell])


class Jointly:
    """One request to several limits, or to one limit by several keys, which decides about all together."""

    def __init__(self, members: Sequence[Asks]) -> None:
        self._members = members
        self._waits: list[_Wait] = []
        self._now_ns = members[0].asking.now_ns

    def at_once(self, *, blocking: bool) -> list[Answer] | None:
        """Decide if memory settles the request, or it must not wait here; None in doubt, and nothing is charged."""
        self._waits = self._in_doubt()
        first = self._members[0].asking
        if not self._waits or first.manual or (blocking and not first.may_block()):
            return self._answers(self._settle())
        return None

    async def ask(self) -> list[Answer]:
        """Decide in doubt, waiting in the running event loop."""
        waker = LoopWaker()
        steps = self.steps(waker)
        try:
            while True:
                try:
                    sleep_ns = next(steps)
                except StopIteration as end:
                    return self._answers(end.value)
                await waker.sleep(sleep_ns)
        finally:
            steps.close()

    def ask_blocking(self) -> list[Answer]:
        """The same on the calling thread."""
        waker = thread_waker()
        steps = self.steps(waker)
        try:
            while True:
                try:
                    sleep_ns = next(steps)
                except StopIteration as end:
                    return self._answers(end.value)
                waker.sleep(sleep_ns)
        finally:
            steps.close()

    def _in_doubt(self) -> list[_Wait]:
        """Those that could ask; none if any member is refused for certain."""
        waits = []
        try:
            for member in self._members:
                asking, request = member.asking, member.request
                if request.within_ns and asking.in_doubt(request):
                    waits.append(_Wait(member, asking.shards(request)))
            doubtful = {id(each.member) for each in waits}
            settled = [member for member in self._members if waits and id(member) not in doubtful]
            return [] if any(not member.would_be_admitted for member in settled) else waits
        except Reentry:
            return []

    def steps(self, waker: Waker) -> Steps:
        """Ask about a request that is in doubt, and decide as the hub answers, or from memory."""
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
                    self._look(each, waker, began_ns)
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
        """Lets a member ask, if there is use in it."""
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

    def _look(self, each: _Wait, waker: Waker, began_ns: int) -> None:
        for shard in each.shards:
            shard.note_looked(waker)
        if each.rule is None:
            each.rule = self._answered(each, began_ns)

    @staticmethod
    def _answered(each: _Wait, began_ns: int) -> DecidingRule | None:
        """By what a member is decided, if the hub has answered about it, or there is room without."""
        asking, request = each.member.asking, each.member.request
        if asking.fits(request):
            return DecidingRule.ALLOWANCE
        word = asking.word_on(each.cells, each.asked_ns)
        if word is Word.ANSWERED:
            return DecidingRule.ALLOWANCE
        if word is Word.UNSETTLED:
            asking.note("unsettled", began_ns)
            return DecidingRule.MEMORY
        if word is Word.MISSED:
            asking.ask_again(each.cells)
        return None

    def _settle(self, waits: Sequence[_Wait] = (), began_ns: int | None = None) -> Joint:
        """All are charged, or none."""
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
        """Returns the answer of each limit, with what can be settled later where that was wanted and charged."""
        answers: list[Answer] = []
        for member, settled in zip(self._members, joint.settled, strict=True):
            reservation = None
            if member.marks and joint.allowed:
                request = member.request
                reservation = Reservation(settled.charges, request.key, request.cost, settled.decision, KEEP)
            answers.append((settled.decision, reservation))
        return answers
