"""A table: one limit on this node with the counts of its keys, and the methods for callers. It does no I/O."""

# Theory of operation.
#
# A table is the state of one limit (`state.py`) with the methods for callers. The work on its cells is done by
# functions of a table and a cell in the modules beside this one, each of which can be read and tested alone:
#
#     lookup.py       finds, makes and drops cells
#     slow_path.py    decides: weighs a cost against a cell, and charges it
#     explain.py      the grounds of a decision, and the use of a key
#     corrections.py  settles, refunds, resets
#     waiter.py       lets waiting requests through
#     changes.py      adapts cells to another quota or policy
#     fast_path.py    charges without the lock; native.py hands the limit to the compiled kernel
#
# and in folders that other work on cells shares: `algorithms/` (how use is counted, when windows begin and end) and
# `reporting/requests.py` (which cells must be reported). These functions expect that the caller holds the lock. The
# methods here take it, and decide about a call in the middle of another one on the same thread (`kernel/lock.py`).
#
# `allow` and `hit` of an instance are replaced by the fastest code for its limit, in one place: `choose_path`.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeVarTuple

from reconverge.clock import NEVER_NS
from reconverge.errors import InvalidCost
from reconverge.kernel.algorithms.slots import lease_is_over
from reconverge.kernel.cell import Mark
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import COMPILED, Cell, Decision, Lock, Reentered, Reentry
from reconverge.kernel.keys import plain_key
from reconverge.kernel.node import Node
from reconverge.kernel.reporting.deferred import LimitInterval
from reconverge.kernel.reporting.requests import take_interest
from reconverge.kernel.table.changes import (
    adapt_to_policy,
    adapt_to_quota,
    bring_up_to,
    counted_otherwise,
    note_lowering,
    terms_of,
    why_not,
)
from reconverge.kernel.table.corrections import (
    HeldSlots,
    correct_at,
    date_reset_at,
    last_reset_at,
    mark,
    refund_at,
    release_at,
    reset_at,
    take_at_once,
)
from reconverge.kernel.table.explain import explain, usage_as_it_stands, usage_at
from reconverge.kernel.table.fast_path import charge_at_once, goes_straight_on
from reconverge.kernel.table.lookup import check_size, look_up
from reconverge.kernel.table.native import serve
from reconverge.kernel.table.slow_path import decide, decide_slowly, foresee
from reconverge.kernel.table.state import LimitState
from reconverge.kernel.table.tiers import fetch, home_of
from reconverge.kernel.table.waiter import waiter_for
from reconverge.limit.checks import cost_of
from reconverge.limit.limit import QUOTA_MAX, Limit
from reconverge.policies import Policy

COST_MAX = QUOTA_MAX
"""The largest cost that a correction can charge or give back; a request never costs more than its quota."""
REENTRY_RETRY_S: Final = 0.001
"""The `retry_after` of a request that was refused in the middle of another decision: decisions take microseconds."""
STRAIGHT_ON: Final = not COMPILED and goes_straight_on()
"""Whether Python, in place of the compiled kernel, decides on the fast path without the lock; see `fast_path.py`."""
_ONE = 1

Ts = TypeVarTuple("Ts")


class Verdict(NamedTuple):
    """One decision, with the number of its window, and its time by this node's estimate of the hub's clock."""

    allowed: bool
    epoch: int
    hub_ns: int
    known: bool
    """Whether the hub had answered about this key before the decision."""
    slice_number: int = 0
    """For `sliding-slices`, the number of the slice by the hub's clock; otherwise 0."""


class Charged(NamedTuple):
    """A charge to one quota that may be corrected later."""

    table: Table
    mark: Mark
    unit: int
    """The amount that the quota charges for a cost of 1: the cost of the request's kind (such as "POST"), or 1."""


class Table(LimitState):
    """One limit on this node, with the methods that callers use."""

    is_share = False

    def __init__(
        self,
        kernel: Node,
        name: str,
        limit: Limit,
        policy: Policy,
        *,
        lease_ns: int,
        peers: Mapping[str, LimitState],
        reported_as: str | None = None,
        counts_with: LimitState | None = None,
    ) -> None:
        super().__init__(
            kernel,
            name,
            limit,
            policy,
            lease_ns=lease_ns,
            peers=peers,
            reported_as=reported_as,
            counts_with=counts_with,
        )
        self.choose_path()

    def count_by(self, pool: Limit) -> None:
        super().count_by(pool)
        self.waiter = waiter_for(self)

    def choose_path(self) -> None:
        """Lets the fastest code that supports this limit decide about its requests.

        Callers call this again when the limit has changed.

        This is the one place where `allow` and `hit` of an instance are replaced: by those of the compiled kernel, or
        by those of Python without the lock.
        """
        self.evicted.fade_ns = max(self.evicted.fade_ns, 2 * self.meter.idle_ns)
        self.evicted.slow_down(self.quota)
        if COMPILED:
            serve(self)
        elif STRAIGHT_ON and self.unit == 1:
            charge_at_once(self)

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        if cost is not _ONE or kind is not None:
            cost = self.cost_of(cost, kind)
        return self.allow_at(key, cost * self.unit, self.now_ns())

    def allow_at(self, key: str, cost: int, now_ns: int) -> bool:
        """Decides and charges as `allow` does, at `now_ns`; `cost` is in parts of a request, and has been checked."""
        if type(key) is not str:  # its conversion may run foreign code, so it comes before the lock is taken
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(_allow, self, key, cost, now_ns)
        except Reentry:
            return self.refuse_reentry().allowed

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        return self.hit_at(key, self.cost_of(cost, kind) * self.unit, self.now_ns())

    def hit_at(self, key: str, cost: int, now_ns: int) -> Decision:
        """Decides and charges as `hit` does, at `now_ns`; `cost` is in parts of a request, and has been checked."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(_hit, self, key, cost, now_ns)
        except Reentry:
            return self.refuse_reentry()

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether a quick check shows that this node decides with certainty, without asking the hub.

        The check is whether the request fits into this node's part of the limit on the fast path. Charges nothing.
        """
        cost = self.cost_of(cost, kind) * self.unit
        cell = self.cells.get(key) if type(key) is str else None
        if cell is None or not (cell.heard or cell.shard.alone):
            return False
        return cell.used + cost <= cell.room and self.now_ns() < cell.until_ns

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides and charges as `hit` does; also returns the charge, so that it can be corrected later."""
        unit = self.cost_of(1, kind)
        cost = self.cost_of(cost, kind) * self.unit
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._hit_and_mark, key, cost, unit, self.now_ns())
        except Reentry:
            return self.refuse_reentry(), ()

    def _hit_and_mark(self, key: str, cost: int, unit: int, now_ns: int) -> tuple[Decision, tuple[Charged, ...]]:
        cell, allowed = decide_slowly(self, key, cost, now_ns)  # for a mark, the meter must have counted the charge
        at = mark(self, cell)
        return explain(self, cell, cost, allowed, now_ns), (Charged(self, at, unit),)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        return self.test_at(key, self.cost_of(cost, kind) * self.unit, self.now_ns())

    def test_at(self, key: str, cost: int, now_ns: int) -> Decision:
        """Answers as `test` does, at `now_ns`; `cost` is in parts of a request, and has been checked."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._test, key, cost, now_ns)
        except Reentry:
            return self.refuse_reentry()

    def _test(self, key: str, cost: int, now_ns: int) -> Decision:
        check_size(self, cost)
        cell = look_up(self, key, now_ns)
        return explain(self, cell, cost, foresee(self, cell, cost, now_ns), now_ns, charged=False)

    def usage(self, key: str) -> Usage:
        """Returns how much of the limit `key` has used, and this node's allowance."""
        return self.usages(key)[self.name]

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns the usage of `key`, in a dictionary with one entry under the name of this table."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        now_ns = self.now_ns()
        try:
            return {self.name: self.lock.run(_usage, self, key, now_ns)}
        except Reentry:
            return {self.name: self.usage_as_it_stands(key)}

    def reset(self, key: str) -> None:
        """Forgets the use of `key`: on this node at once, on other nodes with their next exchange."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(_reset, self, key, self.now_ns())
        except Reentry:
            self.put_off(self._reset_now, key)

    def _reset_now(self, key: str) -> None:
        self.reset(key)
        self.tell(key)  # its own `tell` was too early

    def date_reset(self, key: str, moment_ns: int) -> bool:
        """Sets the moment of the last reset of `key` for all nodes to `moment_ns`, by this node's monotonic clock.

        Returns False if this node cannot report the moment; see `date_reset_at`.
        """
        try:
            return self.lock.run(date_reset_at, self, key, moment_ns, self.now_ns())
        except Reentry:
            return False

    def last_reset_ns(self, key: str) -> int:
        """Returns the monotonic moment at which `key` was last reset on any node; -NEVER_NS if none is known.

        Queues the key for a report, so that the hub's answer brings later resets.
        """
        try:
            return self.lock.run(last_reset_at, self, key, self.now_ns())
        except Reentry:
            return -NEVER_NS

    def warm(self, keys: Iterable[str]) -> None:
        """Queues for a report those of `keys` about which the hub has not answered, so that it grants allowances."""
        now_ns = self.now_ns()
        for each in keys:
            key = each if type(each) is str else plain_key(each, self.kernel.key_bytes_max)
            try:
                self.lock.run(self._warm, key, now_ns)
            except Reentry:
                self.put_off(self.warm, (key,))

    def _warm(self, key: str, now_ns: int) -> None:
        cell = look_up(self, key, now_ns)
        self.edges.advance(cell, now_ns)
        if not cell.heard:
            # The hub grants nothing to a node without demand, so demand one request per window until the next measure.
            cell.asked = max(cell.asked, self.unit)
            cell.demand = max(cell.demand, self.unit / self.window_s)
        take_interest(cell, now_ns)

    def correct(self, key: str, epoch: int, difference: int, *, at: Mark | None = None) -> None:
        """Charges `difference` more for a request admitted in window `epoch`, or gives it back if it is negative.

        The request has been served, so no charge is refused. A refund never takes the use below zero, and has no effect
        if the charge does not count any more: because its window has ended or, if `at` refers to the charge, also
        because the bucket has drained or the key was reset since then.
        """
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(_correct, self, key, epoch, difference * self.unit, at, self.now_ns())
        except Reentry:
            self.put_off(partial(Table.correct, self, key, epoch, difference, at=at))

    def refund(self, key: str, cost: int, kind: str | None = None, *, newest: bool = False) -> None:
        """Gives back the cost of a request that this node has charged at any time, as far as it still counts.

        With `newest`, the request was charged just now: the algorithms in which each charge expires by itself give its
        charge back, and not the oldest one.
        """
        cost = self.check_correction(self.cost_of(cost, kind))
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(_refund, self, key, cost * self.unit, newest, self.now_ns())
        except Reentry:
            self.put_off(self._refund_now, key, cost, newest)

    def _refund_now(self, key: str, cost: int, newest: bool) -> None:
        self.refund(key, cost, newest=newest)
        self.tell(key)

    def take_at_once(self, key: str, cost: int, held: HeldSlots) -> bool:
        """Takes `cost` slots for `held` if the fast path has room for them; returns whether it took them."""
        try:
            return self.lock.run(take_at_once, self, key, cost, held, self.now_ns())
        except Reentry:
            return False

    def explain_held(self, cell: Cell, cost: int) -> Decision:
        """Returns the decision for a request whose slots are taken already."""
        return self.lock.run(_explain_held, self, cell, cost, self.now_ns())

    def cell_in_use(self, key: str) -> Cell | None:
        """Returns the cell (the counts) of `key`, in which slots were just taken; None if there is none.

        The cell may be in another table by now, because the plan of the key may have changed; see `tiers.py`.
        """
        return self.lock.run(_cell_in_use, self, plain_key(key, self.kernel.key_bytes_max))

    def release(self, held: HeldSlots) -> None:
        """Gives back the slots in `held`. A second call for the same slots does nothing."""
        cell = held.cell
        try:
            done = self.lock.run(_release, self, held, self.now_ns())
        except Reentry:
            self.put_off(self.release, held)
            return
        if done and cell is not None:
            for tier in (self, *(each for each in self.tiers if each is not self)):
                for listener in list(tier.listeners.values()):
                    listener.tell(cell.key)

    def slots_in_use(self) -> tuple[int, int]:
        """Returns how many slots are in use on this node, and how many of these have a lease that has ended."""
        return self.lock.run(self._slots_in_use, self.now_ns())

    def _slots_in_use(self, now_ns: int) -> tuple[int, int]:
        used = past = 0
        for cell in self.all_cells():
            used += cell.used
            past += cell.used if lease_is_over(cell, now_ns) else 0
        return used, past

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict:
        """Decides and charges as `allow` does, at `now_ns`; returns a verdict, which tests and simulations check."""
        cost = self.check_cost(cost) * self.unit
        return self.lock.run(self._verdict, key, cost, now_ns)

    def _verdict(self, key: str, cost: int, now_ns: int) -> Verdict:
        cell, allowed = decide(self, key, cost, now_ns)
        return self.verdict(cell, allowed, now_ns)

    def observe(self, key: str, now_ns: int) -> Verdict:
        """Returns the verdict as if a request for `key` were refused at `now_ns`; counts nothing."""
        return self.lock.run(self._observe, key, now_ns)

    def _observe(self, key: str, now_ns: int) -> Verdict:
        cell = look_up(self, key, now_ns)
        self.edges.advance(cell, now_ns)
        return self.verdict(cell, False, now_ns)

    @staticmethod
    def verdict(cell: Cell, allowed: bool, now_ns: int) -> Verdict:
        """Returns the verdict for a decision about a key at `now_ns`, which has admitted the request if `allowed`."""
        slice_number = 0 if cell.history is None else cell.history.date + cell.history.shift
        return Verdict(allowed, cell.epoch, now_ns + cell.shard.offset_ns, cell.heard or cell.shard.alone, slice_number)

    def cost_of(self, cost: object, kind: str | None) -> int:
        """Returns the cost of `cost` requests of `kind`, in parts of a request. Raises InvalidCost or UnknownKind."""
        checked = self.check_cost(cost)
        return checked if kind is None else checked * cost_of(self.name, self.costs, kind)

    @staticmethod
    def check_cost(cost: object) -> int:
        """Returns `cost` if it is a whole number, and not negative. Raises InvalidCost otherwise."""
        if type(cost) is not int:
            kind = "; a kind is passed by its name, as kind='POST'" if isinstance(cost, str) else ""
            raise InvalidCost(cost, f"is of type {type(cost).__name__}{kind}")
        if cost < 0:
            raise InvalidCost(cost, "is negative")
        return cost

    @classmethod
    def check_correction(cls, cost: object) -> int:
        """Returns `cost` if it is not too large for a refund or another correction. Raises InvalidCost if it is."""
        checked = cls.check_cost(cost)
        if checked > COST_MAX:
            raise InvalidCost(cost, f"is more than {COST_MAX}, the most that is charged or given back at once")
        return checked

    def tell(self, key: str) -> None:
        """Wakes the requests that wait for `key`, because they may go now. The caller does not hold the lock."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        for listener in list(self.listeners.values()):
            listener.tell(key)

    def refuse_reentry(self) -> Decision:
        self.note_reentry()
        return Reentered(False, self.nominal // self.unit, 0, REENTRY_RETRY_S, 0.0, inf, self.name, certain=False)

    def note_reentry(self) -> None:
        """Counts a call made while its own thread was in a decision; the first such call of the node is logged."""
        self.reentered += 1
        self.kernel.note_reentry(self.name)

    def put_off(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Queues the call `work(*args)`, which must not be lost, until no lock is held any more."""
        self.note_reentry()
        self.kernel.put_off(partial(work, *args))

    def usage_as_it_stands(self, key: str) -> Usage:
        """Returns the usage of a key while another call may be changing its counts; changes nothing."""
        self.note_reentry()
        return usage_as_it_stands(self, key)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Returns all tables that decide about this limit: only this table, as the limit has one quota."""
        return (self,)

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Returns the tables that belong to this limit alone: only this table."""
        return (self,)

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Returns this table. Raises CostExceedsQuota if the limit could never admit the cost."""
        check_size(self, costs[0])
        return (self,)

    def take_note(self) -> None:
        """Does nothing: a single table has no copies of its limit or policy."""

    def check_key(self, key: object) -> str:
        """Returns `key` as a plain string. Raises InvalidKey if it is not a valid key."""
        return plain_key(key, self.kernel.key_bytes_max)

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost of a request in parts of a request, in a tuple of one, as a table has one quota.

        Raises InvalidCost or UnknownKind.
        """
        return (self.cost_of(cost, kind) * self.unit,)

    def leave(self, pool: Limit) -> None:
        """Makes `pool` decide from now on, the limit with the part of its quota that its shares leave.

        Called when one more share was declared, and only before the first request of the limit.
        """
        assert not self.cells, "allowances may have been granted"
        self.count_by(pool)
        self.choose_path()

    def share_lock(self, lock: Lock) -> None:
        """Uses `lock` from now on, which other tables use, too."""
        self.lock = lock
        self.choose_path()

    def start_over(self) -> None:
        super().start_over()
        self.choose_path()

    def join_tiers(self) -> None:
        """Adds this table to `tiers`, the tables of one limit's plans, unless it is the last one there already."""
        if self.tiers[-1:] != [self]:
            self.tiers.append(self)

    def take_over(self, key: str) -> None:
        """Moves `key` into this table, if another table of `tiers` has it."""
        if key not in self.cells:
            try:
                self.lock.run(_take_over, self, key, self.now_ns())
            except Reentry:
                self.put_off(self.take_over, key)

    def counts_like(self, limit: Limit) -> bool:
        """Returns whether `limit` counts requests as this table's limit does, and only admits more or less of them."""
        return not counted_otherwise(self.limit, limit)

    def why_not(self, limit: Limit) -> str | None:
        """Returns why this limit cannot become `limit` while it is in use, as a phrase; None if it can."""
        return why_not(self, limit)

    def change(self, limit: Limit) -> None:
        """Replaces the limit by `limit`; earlier use still counts. `why_not` must have returned None."""
        try:
            waited_for = self.lock.run(self._change, limit, self.now_ns())
        except Reentry:
            self.put_off(self.change, limit)
            return
        for key in waited_for:
            self.tell(key)  # the waiting request sleeps until a moment computed from the old quota

    def _change(self, limit: Limit, now_ns: int) -> list[str]:
        """Replaces the limit by `limit`; returns the keys for which requests wait."""
        cells, before = bring_up_to(self, now_ns), self.capacity
        terms = terms_of(self, cells)
        self.count_by(limit)
        self.take_terms(limit)
        note_lowering(self, before, now_ns)
        self.choose_path()
        for cell, former in zip(cells, terms, strict=True):
            adapt_to_quota(self, cell, before, former, now_ns)
        return [cell.key for cell in cells if cell.waiters]

    def set_policy(self, policy: Policy) -> None:
        """Decides by `policy` from now on; lowers each overdraft to this node's part of the policy's overshoot."""
        try:
            self.lock.run(self._set_policy, policy, self.now_ns())
        except Reentry:
            self.put_off(self.set_policy, policy)

    def _set_policy(self, policy: Policy, now_ns: int) -> None:
        cells = bring_up_to(self, now_ns)
        self.policy = policy
        self.choose_path()
        for cell in cells:
            adapt_to_policy(self, cell, now_ns)

    def leave_spare_at_hub(self, *, leave: bool = True) -> None:
        """Makes the hub keep the free part of the limit: this node holds no unused allowance. `leave=False` ends that.

        It takes effect with the next exchange. This is for small quotas whose requests wait for the hub when the node
        is in doubt. The free part is then in one place, and not spread over nodes in parts that are too small for a
        request. It costs an exchange for each admitted request. While the hub is away, a key that the hub knows is
        refused until the node has forgotten the key.

        It works only for logs and slices, and not with policies that decide by merged totals. For other limits, the hub
        itself keeps the last free requests of a key if requests ask about the key (`CellReport.asks`).
        """
        if self.dated is None or self.policy.keeps_allowances or self.policy.merged_only:
            return
        try:
            self.lock.run(self._leave_spare_at_hub, leave)
        except Reentry:
            self.put_off(self._leave_spare_at_hub, leave)

    def _leave_spare_at_hub(self, leave: bool) -> None:
        self.keeps_spare = not leave
        self.choose_path()

    def take_lease(self, lease_ns: int) -> None:
        """Sets the lease of allowances on this limit, in nanoseconds.

        Must be called before any allowance is granted.
        """
        self.lease_ns = lease_ns
        self.choose_path()

    def take_pace(self) -> None:
        """Applies the limit's own sync interval, or the node's if it has none, after one of them has changed."""
        try:
            self.lock.run(self._take_pace)
        except Reentry:
            self.put_off(self.take_pace)

    def _take_pace(self) -> None:
        kernel = self.kernel
        self.interval_ns, self.interval_min_ns = self.own_pace or LimitInterval(
            kernel.interval_ns, kernel.interval_min_ns
        )
        self.choose_path()


def _allow(table: Table, key: str, cost: int, now_ns: int) -> bool:
    return decide(table, key, cost, now_ns)[1]


def _hit(table: Table, key: str, cost: int, now_ns: int) -> Decision:
    cell, allowed = decide(table, key, cost, now_ns)
    # Under the same hold of the lock as the decision, so that the grounds are those of this decision.
    return explain(table, cell, cost, allowed, now_ns)


# A key's use is read and corrected in the table that has the key: none of these calls moves it to another plan.


def _take_over(table: Table, key: str, now_ns: int) -> None:
    fetch(table, key, now_ns)


def _usage(table: Table, key: str, now_ns: int) -> Usage:
    cell = table.cells.get(key)
    if cell is not None:
        return usage_at(table, cell, now_ns)
    home = home_of(table, key)
    return usage_at(home, look_up(home, key, now_ns), now_ns)


def _reset(table: Table, key: str, now_ns: int) -> None:
    reset_at(home_of(table, key), key, now_ns)


def _release(table: Table, held: HeldSlots, now_ns: int) -> bool:
    # The slots are in use in the key's present table, which may not be the one where they were taken: its plan may have
    # changed.
    cell = held.cell
    return release_at(table if cell is None else home_of(table, cell.key), held, now_ns)


def _explain_held(table: Table, cell: Cell, cost: int, now_ns: int) -> Decision:
    return explain(home_of(table, cell.key), cell, cost, True, now_ns)


def _cell_in_use(table: Table, key: str) -> Cell | None:
    home = home_of(table, key)
    cell = home.cells.get(key)
    return home.overflow if cell is None else cell


def _correct(table: Table, key: str, epoch: int, difference: int, at: Mark | None, now_ns: int) -> None:
    correct_at(home_of(table, key), key, epoch, difference, at, now_ns)


def _refund(table: Table, key: str, cost: int, newest: bool, now_ns: int) -> None:
    refund_at(home_of(table, key), key, cost, now_ns, newest=newest)
