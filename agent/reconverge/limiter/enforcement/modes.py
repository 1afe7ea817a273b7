"""Answers for a limit while it is on, in shadow or off: a class for each mode, with the methods of a limiter."""

# A limit that is on must not pay for switches: `limiter.allow` is the compiled store's own method, and to read a flag
# before it would take as long as the decision. So switching assigns another function to the attribute. Code that has
# kept `limiter.allow` in a variable while the limit was on goes on limiting, which errs on the safe side. The functions
# for *off* and *shadow* read the switch at each call, so none that was kept admits all requests for ever. Decisions of
# a limit that is not on are of a subclass, so that plain decisions have no further fields.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import inf
from typing import TYPE_CHECKING, Any, Final

from reconverge.clock import seconds
from reconverge.errors import CostExceedsQuota
from reconverge.kernel import Decision, Reentry, Shadowed, Unlimited, WouldRefuse, many_of
from reconverge.limiter.asking import Asking
from reconverge.limiter.enforcement.closed import AsksNothing, Closed, Marked
from reconverge.limiter.enforcement.switches import ON, SHADOW, Switch
from reconverge.limiter.waiting.waiters import waiting_at
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.locks import new_lock
from reconverge.runtime.threads import Total

if TYPE_CHECKING:
    from reconverge.kernel import Charged, Costs, Decider, Many, Table
    from reconverge.limiter.asking import AskedCost

GROUNDS: Final = tuple(field.name for field in fields(Shadowed))
"""The names of all fields of `Shadowed`, a decision of a limit in shadow."""


class On:
    """Answers for a limit that is on: one method for each method of a limiter.

    With `marks`, an answer contains the charges, so that a reservation can correct them later.
    """

    def __init__(self, table: Decider) -> None:
        self._table = table
        self.allow: Callable[..., bool] = table.allow
        self.hit: Callable[..., Decision] = table.hit
        self.allow_many = many_of(table)
        self.settles: Callable[[str, int, str | None], bool] = table.settles
        self.asking = Asking(table)

    def test(self, key: str, cost: int, kind: str | None) -> Decision:
        return self._table.test(key, cost, kind)

    def hit_and_mark(self, key: str, estimate: int, kind: str | None) -> Marked:
        return self._table.hit_and_mark(key, estimate, kind)

    async def wait(
        self, key: str, cost: int, kind: str | None, timeout: float | None, max_queue: int | None, within_ns: int
    ) -> Decision:
        doubt = self._doubt(key, cost, kind, timeout, within_ns)
        if doubt is not None:
            began_ns = self.asking.now_ns()
            decision = (await self.asking.ask(doubt)).decision
            if decision.allowed or timeout == 0:
                return decision
            timeout = self._left_s(timeout, began_ns)
        costs = self._table.costs_of(cost, kind)
        try:
            return await waiting_at(self._table).wait(key, costs, timeout, max_queue)
        except Reentry:
            return self._table.refuse_reentry()

    def wait_blocking(
        self, key: str, cost: int, kind: str | None, timeout: float | None, max_queue: int | None, within_ns: int
    ) -> Decision:
        doubt = None if has_a_loop() else self._doubt(key, cost, kind, timeout, within_ns)
        if doubt is not None:
            began_ns = self.asking.now_ns()
            decision = self.asking.ask_blocking(doubt).decision
            if decision.allowed or timeout == 0:
                return decision
            timeout = self._left_s(timeout, began_ns)
        costs = self._table.costs_of(cost, kind)
        try:
            return waiting_at(self._table).wait_blocking(key, costs, timeout, max_queue)
        except Reentry:  # no wait: the decision that this thread is in the middle of cannot end before this call
            return self._table.refuse_reentry()

    def _doubt(self, key: str, cost: int, kind: str | None, timeout: float | None, within_ns: int) -> AskedCost | None:
        """Returns the question that `wait` asks the hub before it queues a request; None if it does not ask.

        It asks if the node would admit by a guess, as for a key that is new to it, and no other request waits for the
        key. If the node would refuse, it asks only with a timeout of 0.
        """
        first = self._table.tables[0]
        if not within_ns or self.asking.manual or self._table.settles(key, cost, kind):
            return None
        if waiting_at(self._table).waiters(first.check_key(key)):
            return None
        tested = self.test(key, cost, kind)
        if tested.certain or not (tested.allowed or timeout == 0):
            return None
        return self.asking.request(key, cost, kind, within_ns)

    def _left_s(self, timeout: float | None, began_ns: int) -> float | None:
        """Returns the seconds left of `timeout`, which began at `began_ns`; None if `timeout` is None."""
        return None if timeout is None else max(0.0, timeout - seconds(self.asking.now_ns() - began_ns))

    async def ask(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Marked:
        if not marks and self._table.settles(key, cost, kind):
            return self._table.hit(key, cost, kind), ()
        return await self.asking.ask(self.asking.request(key, cost, kind, within_ns, marks=marks))

    def ask_blocking(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Marked:
        if not marks and self._table.settles(key, cost, kind):
            return self._table.hit(key, cost, kind), ()
        return self.asking.ask_blocking(self.asking.request(key, cost, kind, within_ns, marks=marks))


class InShadow(AsksNothing):
    """Answers for a limit in shadow: decides and charges as usual, but admits also the requests that it would refuse.

    It raises the usual errors except CostExceedsQuota, because shadow may be used to find out the right quota. `ask`
    and `wait` return at once, with the decision that a limit that is on would make without waiting.
    """

    def __init__(self, enforcement: Enforcement) -> None:
        self._board = enforcement

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Decides and charges, and returns True even if the limit would refuse.

        A caller may keep this function; after a switch it decides as the new mode does.
        """
        board = self._board
        if board.answers is not self:
            return board.answers.allow(key, cost, kind)
        try:
            allowed = board.deciding.allow(key, cost, kind)
        except CostExceedsQuota:
            allowed = False
        if not allowed:
            board.note(would_refuse=1)
        return True

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the decision. A caller may keep this function; after a switch it decides as the new mode does."""
        board = self._board
        if board.answers is not self:
            return board.answers.hit(key, cost, kind)
        return self._shadowed(lambda: board.deciding.hit(key, cost, kind))

    def allow_many(self, keys: Sequence[str], costs: Many | None) -> list[bool]:
        """Decides and charges for each key, and returns True for each, even if its cost exceeds the quota."""
        try:
            answers = self._board.deciding.allow_many(keys, costs)
        except CostExceedsQuota:
            return [self.allow(key, cost) for key, cost in zip(keys, costs or (), strict=True)]
        self._board.note(would_refuse=answers.count(False))
        return [True] * len(answers)

    def test(self, key: str, cost: int, kind: str | None) -> Decision:
        """Returns the decision without charging anything or counting it: a test is no request."""
        return self._shadowed(lambda: self._board.deciding.test(key, cost, kind), count=0)

    def hit_and_mark(self, key: str, estimate: int, kind: str | None) -> Marked:
        """Returns the decision with its charges, for a reservation to correct; no charges if the limit would refuse."""
        charges: tuple[Charged, ...] = ()

        def marked() -> Decision:
            nonlocal charges
            decision, made = self._board.deciding.hit_and_mark(key, estimate, kind)
            charges = made if decision.allowed else ()
            return decision

        return self._shadowed(marked), charges

    def wait_blocking(
        self,
        key: str,
        cost: int,
        kind: str | None,
        timeout: float | None,  # noqa: ARG002  # no request waits
        max_queue: int | None,
        within_ns: int,  # noqa: ARG002  # likewise
    ) -> Decision:
        return self._shadowed(lambda: self._board.deciding.wait_blocking(key, cost, kind, 0, max_queue, 0))

    def let_out(self, key: str, costs: Costs) -> Decision:  # noqa: ARG002  # nothing is charged
        """Admits a request that was waiting when the limit was switched into shadow; returns the decision."""
        self._board.note(would_refuse=1)
        return _admission(WouldRefuse, self._board.table.name, _quota_of(self._board), remaining=0)

    def _shadowed(self, ask: Callable[[], Decision], count: int = 1) -> Decision:
        try:
            decision = ask()
        except CostExceedsQuota as error:
            self._board.note(would_refuse=count)
            return _admission(WouldRefuse, error.limit, error.quota, remaining=0, retry_after=inf)
        grounds: dict[str, Any] = {name: getattr(decision, name) for name in GROUNDS}
        if decision.allowed:
            return Shadowed(**grounds)
        self._board.note(would_refuse=count)
        grounds["allowed"] = True
        return WouldRefuse(**grounds)


class Off(AsksNothing):
    """Answers for a limit that is off: admits each request; charges and checks nothing, so it raises no error."""

    def __init__(self, enforcement: Enforcement) -> None:
        self._board = enforcement

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns True. A caller may keep this function; after a switch it decides as the new mode does."""
        board = self._board
        if board.answers is not self:
            return board.answers.allow(key, cost, kind)
        board.note(unlimited=1)
        return True

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns an admission. A caller may keep this function; after a switch it decides as the new mode does."""
        board = self._board
        if board.answers is not self:
            return board.answers.hit(key, cost, kind)
        board.note(unlimited=1)
        return self._unlimited()

    def allow_many(self, keys: Sequence[str], costs: Many | None) -> list[bool]:  # noqa: ARG002  # see the class
        self._board.note(unlimited=len(keys))
        return [True] * len(keys)

    def test(self, key: str, cost: int, kind: str | None) -> Decision:  # noqa: ARG002  # likewise
        return self._unlimited()

    def let_out(self, key: str, costs: Costs) -> Decision:  # noqa: ARG002  # likewise
        """Admits a request that was waiting when the limit was switched off; returns the decision."""
        self._board.note(unlimited=1)
        return self._unlimited()

    def _unlimited(self) -> Decision:
        quota = _quota_of(self._board)
        return _admission(Unlimited, self._board.table.name, quota, remaining=quota)


def _admission(
    kind: type[Unlimited | WouldRefuse], limit: str, quota: int, *, remaining: int, retry_after: float = 0.0
) -> Decision:
    return kind(
        allowed=True,
        limit=quota,
        remaining=remaining,
        retry_after=retry_after,
        reset_after=0.0,
        staleness=0.0,
        binding=limit,
    )


def _quota_of(enforcement: Enforcement) -> int:
    table = enforcement.table.tables[0]
    return table.nominal // table.unit


class Enforcement:
    """Stores the mode of a limit (on, shadow or off) and the object that answers in this mode.

    It also counts the requests that the limit's tables do not count.
    """

    def __init__(self, table: Decider, on: On | None = None) -> None:
        self.table = table
        self.on = On(table) if on is None else on
        """The answers of the limit while it is on and no quota is 0. Requests in doubt ask the hub through this
        object."""
        self._closed = Closed(self)
        self.refuses_all = any(table.limit.refuses_all for table in self.tables)
        """Whether a quota is 0. Set before the tables get the quota 0, and cleared after they get a larger one."""
        self._shadow = InShadow(self)
        self._off = Off(self)
        self.state: Switch = ON
        self.answers: On | Closed | InShadow | Off = self.deciding
        self.turning = new_lock()
        """The lock that a thread holds while it changes the mode."""
        self.start_over()

    def start_over(self) -> None:
        """Sets the counts to zero, because they belong to the parent process. Called in a forked child."""
        self._unlimited, self._would_refuse = Total(), Total()
        self._refused_all = {table.name: Total() for table in self.tables}
        self.slots_dropped = 0
        """The number of slots given back only because the interpreter deleted their objects."""
        self._disregarded: dict[str, int] = {}
        self._began = {table.name: 0 for table in self.tables}
        self.on.asking.start_over()

    @property
    def deciding(self) -> On | Closed:
        """Returns the object that decides while the limit is on, or in shadow (where refusals have no effect)."""
        return self._closed if self.refuses_all else self.on

    def turn(self, state: Switch) -> None:
        """Switches to the mode `state`. If no request waits in that mode, all waiting requests return at once."""
        for table in self.tables:
            if self.state == SHADOW:
                self._disregarded[table.name] = self.disregarded(table)
            self._began[table.name] = table.refused
        self.state = state
        answers = self.answers = self.deciding if state == ON else self._shadow if state == SHADOW else self._off
        waiting_at(self.table).let_out(None if isinstance(answers, On) else answers.let_out)

    def note(self, *, unlimited: int = 0, would_refuse: int = 0, closed: int = 0) -> None:
        """Adds to the counts of requests admitted while off, admitted only by shadow, and refused by a quota of 0."""
        self._unlimited.add(unlimited)
        self._would_refuse.add(would_refuse)
        if self.state == ON:
            self._refused_all[self.closed_by].add(closed)

    @property
    def closed_by(self) -> str:
        """Returns the name of the quota that is 0; the name of the first quota if none is 0."""
        return next((table.name for table in self.tables if table.limit.refuses_all), self.tables[0].name)

    def refused_all(self, table: Table) -> int:
        """Returns the number of requests that the limit of `table` refused because a quota was 0."""
        return self._refused_all[table.name].value

    @property
    def unlimited(self) -> int:
        """Returns the number of requests that came while the limit was off."""
        return self._unlimited.value

    @property
    def would_refuse(self) -> int:
        """Returns the number of requests that were admitted only because the limit was in shadow."""
        return self._would_refuse.value

    def disregarded(self, table: Table) -> int:
        """Returns how many of the refusals counted by `table` had no effect, because the limit was in shadow."""
        now = table.refused - self._began[table.name] if self.state == SHADOW else 0
        return self._disregarded.get(table.name, 0) + now

    @property
    def tables(self) -> tuple[Table, ...]:
        """Returns the tables that count the limit's own quotas, without its parent's table."""
        return self.table.own_tables
