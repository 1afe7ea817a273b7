"""The decisions about one limit on this node. No I/O, and no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from reconverge.clock import SECOND_NS, seconds
from reconverge.errors import InvalidCost
from reconverge.kernel._cell import DEMAND_MAX, Cell
from reconverge.kernel._compiled import serve
from reconverge.kernel._corrections import Corrections
from reconverge.kernel._decision import Usage
from reconverge.kernel._engine import Decision
from reconverge.kernel._lows import Mark
from reconverge.kinds import cost_of
from reconverge.limit import QUOTA_MAX, Limit
from reconverge.policies import Policy, View

if TYPE_CHECKING:
    from threading import Lock as LockType

    from reconverge.kernel._pure import Kernel

COST_MAX = QUOTA_MAX
"""The largest cost that can be charged afterwards or given back; a request never costs more than its quota."""
_ONE = 1


class Verdict(NamedTuple):
    """One decision, and the place in time that it belongs to by this node's reckoning."""

    allowed: bool
    epoch: int
    hub_ns: int
    known: bool
    """The hub had answered for this key before."""
    slice_number: int = 0
    """Of the hub's window, for `sliding-slices`."""


class Charged(NamedTuple):
    """What was charged to one quota for something that will be settled."""

    table: Table
    mark: Mark
    unit: int
    """What was charged for each unit of the estimate: the cost of its kind."""


class Table(Corrections):
    """What callers ask of one limit."""

    def __init__(self, kernel: Kernel, name: str, limit: Limit, policy: Policy, now_ns: Callable[[], int]) -> None:
        super().__init__(kernel, name, limit, policy, now_ns)
        serve(self)

    def leave(self, pool: Limit) -> None:
        """See `Cells.leave`."""
        super().leave(pool)
        serve(self)

    def share_lock(self, lock: LockType) -> None:
        """Hold that lock from now on, as other tables do."""
        self.lock = lock
        serve(self)

    def start_over(self) -> None:
        """See `Cells.start_over`."""
        super().start_over()
        serve(self)

    # ------------------------------------------------------------ what callers ask

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether `cost` may be used by `key`; if so it is charged. Never waits."""
        if cost is not _ONE or kind is not None:
            cost = self.cost_of(cost, kind)
        return self.allow_at(key, cost, self.now_ns())

    def allow_at(self, key: str, cost: int, now_ns: int) -> bool:
        """The same at a given moment, with the lock."""
        with self.lock:
            return self._charged(key, cost, now_ns) is not None or self._decide(key, cost, now_ns)[1]

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """As `allow`, with the grounds. Never waits."""
        return self.hit_in_epoch(key, cost if kind is None else self.cost_of(cost, kind))[0]

    def hit_in_epoch(self, key: str, cost: int) -> tuple[Decision, int]:
        """As `hit`, with the number of the window that was charged."""
        self.check_cost(cost)
        now_ns = self.now_ns()
        with self.lock:
            return self._hit(key, cost, now_ns)

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """As `hit`, for a charge that will be corrected later."""
        unit = self.cost_of(1, kind)
        cost = self.cost_of(cost, kind)
        now_ns = self.now_ns()
        with self.lock:
            cell, allowed = self._decide(key, cost, now_ns)
            mark = self.mark(cell)
            return self.explain(cell, cost, allowed, now_ns), (Charged(self, mark, unit),)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """What `hit` would answer, without charging anything."""
        cost = self.cost_of(cost, kind)
        now_ns = self.now_ns()
        with self.lock:
            cell = self._look_up(key, cost, now_ns)
            return self.explain(cell, cost, self.foresee(cell, cost, now_ns), now_ns, charged=False)

    def usage(self, key: str) -> Usage:
        """How much of the limit `key` has used, and how far this node may go."""
        return self.usages(key)[self.name]

    def usages(self, key: str) -> dict[str, Usage]:
        """The same, by the name of the quota."""
        now_ns = self.now_ns()
        with self.lock:
            return {self.name: self.usage_at(key, now_ns)}

    def reset(self, key: str) -> None:
        """Forget what `key` has used, here at once and on the other nodes with their next exchange."""
        now_ns = self.now_ns()
        with self.lock:
            self.reset_at(key, now_ns)

    def warm(self, keys: Iterable[str]) -> None:
        """Have the hub asked about `keys`, as far as it never was, and for a line on each."""
        now_ns = self.now_ns()
        for key in keys:
            with self.lock:
                cell = self.look_up(key, now_ns)
                self.advance(cell, now_ns)
                if not cell.heard:
                    # Who expects nothing is granted nothing: expect a request in every window, and forget it as such.
                    cell.asked = max(cell.asked, self.unit)
                    cell.demand = max(cell.demand, self.unit / self.window_s)
                self.take_interest(cell, now_ns)

    def correct(self, key: str, epoch: int, difference: int, *, mark: Mark | None = None) -> None:
        """Charge `difference` more for a request admitted in `epoch`, or give some back when it is negative.

        Nothing is asked and nothing refused: the request has happened. What is given back never takes the meter
        below zero, and is lost if what it was charged to has passed. Without a `mark` only a window's end counts as
        that, and not that a bucket has drained or the key was reset.
        """
        now_ns = self.now_ns()
        with self.lock:
            self.correct_at(key, epoch, difference, mark, now_ns)

    def refund(self, key: str, cost: int, kind: str | None = None) -> None:
        """Give back what was charged on this node, whenever that was, as far as it still counts."""
        cost = self.check_correction(self.cost_of(cost, kind))
        now_ns = self.now_ns()
        with self.lock:
            self.refund_at(key, cost * self.unit, now_ns)

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict:
        """As `allow` at a given moment, with what an observer needs to check the answer."""
        self.check_cost(cost)
        with self.lock:
            cell, allowed = self._charged(key, cost, now_ns), True
            if cell is None:
                cell, allowed = self._decide(key, cost, now_ns)
            return self.verdict(cell, allowed, now_ns)

    def observe(self, key: str, now_ns: int) -> Verdict:
        """The place in time of a refusal that nobody has asked for; changes nothing."""
        with self.lock:
            cell = self.look_up(key, now_ns)
            self.advance(cell, now_ns)
            return self.verdict(cell, False, now_ns)

    @staticmethod
    def verdict(cell: Cell, allowed: bool, now_ns: int) -> Verdict:
        """The decision that was made about a cell, for an observer."""
        slice_number = 0 if cell.history is None else cell.history.date + cell.history.shift
        return Verdict(allowed, cell.epoch, now_ns + cell.shard.offset_ns, cell.heard or cell.shard.alone, slice_number)

    def cost_of(self, cost: object, kind: str | None) -> int:
        """The cost of so many requests of `kind`. Raises InvalidCost or UnknownKind."""
        checked = self.check_cost(cost)
        return checked if kind is None else checked * cost_of(self.name, self.costs, kind)

    @staticmethod
    def check_cost(cost: object) -> int:
        """Raise InvalidCost unless `cost` is a whole number of zero or more."""
        if type(cost) is not int:
            raise InvalidCost(cost, f"is of type {type(cost).__name__}")
        if cost < 0:
            raise InvalidCost(cost, "is negative")
        return cost

    @classmethod
    def check_correction(cls, cost: object) -> int:
        """Raise InvalidCost unless so much can be charged afterwards or given back."""
        checked = cls.check_cost(cost)
        if checked > COST_MAX:
            raise InvalidCost(cost, f"is more than {COST_MAX}, the most that is charged or given back at once")
        return checked

    # ------------------------------------------------------------ deciding; whoever calls these holds the lock

    def _charged(self, key: str, cost: int, now_ns: int) -> Cell | None:
        """The cell to which `cost` was charged, if one comparison says that it may be."""
        try:
            cell = self.cells.get(key)
        except TypeError:  # a list, say; the slow path tells what is wrong with it
            return None
        if cell is not None and cell.used + cost <= cell.room and now_ns < cell.until_ns:
            cell.used += cost
            self.cells.admitted += 1
            return cell
        return None

    def _hit(self, key: str, cost: int, now_ns: int) -> tuple[Decision, int]:
        """Decide, by one comparison if that will do, and explain."""
        cell, allowed = self._charged(key, cost, now_ns), True
        if cell is None:
            cell, allowed = self._decide(key, cost, now_ns)
        return self.explain(cell, cost, allowed, now_ns), cell.epoch

    def _decide(self, key: str, cost: int, now_ns: int) -> tuple[Cell, bool]:
        """The slow path: everything that the one comparison leaves out."""
        cell = self._look_up(key, cost, now_ns)
        spare, allowed = self.weigh(cell, cost, now_ns)
        self.book(cell, cost, spare, allowed, now_ns)
        return cell, allowed

    def weigh(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """What fits below the line, and whether `cost` may be admitted; nothing is charged yet."""
        self.advance(cell, now_ns)
        spare = self.meter.spare(cell, self.usable_line(cell, now_ns), now_ns)
        allowed = cost <= spare
        if not allowed and not cell.shard.alone:
            allowed = cost <= self._spare(cell, cost, now_ns)
        return spare, allowed

    def book(self, cell: Cell, cost: int, spare: int, allowed: bool, now_ns: int) -> None:
        """Charge `cost`, or note that it was refused, as was weighed."""
        meter = self.meter
        if allowed:
            cell.used += cost
            spare -= cost
            self.cells.admitted += 1
            if meter.bucket or not self.additive:
                self.measure(cell)
                meter.settle(cell, now_ns)
                self.set_until(cell, now_ns)
        else:
            cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
            cell.ask = max(cell.ask, cost)
            self.cells.refused += 1
            if self.limit.count_refused:
                spare -= self._count_refused(cell, cost, now_ns)
        if cell.shard.alone:
            self._set_room(cell, spare)
            return
        cell.touched_ns = now_ns  # a question is interest, too: what the others use is worth hearing again before long
        self._call(cell, now_ns)
        if spare < cell.water:
            self._ask_early(cell, spare, now_ns)
        if not cell.heard:
            self.want(cell, now_ns)
            self._set_room(cell, meter.spare(cell, self._cold_reach(cell), now_ns))
        elif cell.wanted or spare < cell.water:
            self._set_room(cell, spare)
        else:
            self._set_room(cell, spare - cell.water)

    def foresee(self, cell: Cell, cost: int, now_ns: int) -> bool:
        """Whether `cost` would be admitted."""
        self.advance(cell, now_ns)
        allowed = cost <= self._spare(cell, cost, now_ns)
        self.take_interest(cell, now_ns)
        return allowed

    def _count_refused(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Have a refused request count as use, and return for how much.

        Not if it had to be refused because the others hold what is left, which nobody who asks can be blamed for.
        """
        if not cell.shard.alone and (not cell.heard or self.fleet_used(cell, now_ns) + cost <= cell.capacity):
            return 0
        self.measure(cell)
        cell.used += cost
        cell.counted = cell.used  # it was not charged
        self.meter.settle(cell, now_ns)
        self.set_until(cell, now_ns)
        return cost

    def _spare(self, cell: Cell, cost: int, now_ns: int) -> int:
        """The cost that this node may still admit: below its line, or as far past it as the policy dares."""
        line = self.usable_line(cell, now_ns)
        if cell.shard.alone:
            reach = line
        elif not cell.heard:
            reach = max(line, self._cold_reach(cell))
        else:
            reach = max(line, self.reach(cell, line, cost, now_ns))
        return self.meter.spare(cell, reach, now_ns)

    def reach(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """How far the policy lets this node's use go, on what it knows."""
        return self.policy.reach(self._view(cell, line, cost, now_ns))

    def _cold_reach(self, cell: Cell) -> int:
        """What may be admitted before the first answer."""
        return int(self.policy.cold_allowance * max(0, cell.capacity - self.withheld))

    def _view(self, cell: Cell, line: int, cost: int, now_ns: int) -> View:
        window_ns = self.closes_ns(cell) - cell.opened_ns
        passed_ns = min(max(now_ns - cell.opened_ns, 0), window_ns)
        staleness_ns = max(0, now_ns - cell.heard_ns)
        heard = self.meter.others(cell, now_ns)
        interval_ns = self.interval_ns
        horizon_ns = interval_ns + cell.shard.round_trip_ns
        unheard_ns = staleness_ns + horizon_ns
        if staleness_ns <= 3 * interval_ns:
            unheard_ns = min(unheard_ns, 3 * horizon_ns)
        if self.meter.aligned:
            unheard_ns = min(unheard_ns, passed_ns)
            heard += cell.silent
        meanwhile = max(0.0, cell.fleet_demand - cell.demand) * unheard_ns / SECOND_NS
        return View(
            capacity=cell.capacity,
            quota=self.quota,
            window_ns=window_ns,
            aligned=self.meter.aligned,
            cost=cost,
            own=self.meter.used(cell, now_ns),
            line=line,
            overdraft=cell.overdraft,
            heard=heard,
            others=heard + meanwhile,
            demand=cell.fleet_demand,
            own_demand=cell.demand,
            last_demand=cell.last_demand,
            nodes=cell.nodes,
            passed_ns=passed_ns,
            staleness_ns=staleness_ns,
            interval_ns=interval_ns,
        )

    # ------------------------------------------------------------ explaining

    def explain(self, cell: Cell, cost: int, allowed: bool, now_ns: int, *, charged: bool = True) -> Decision:
        """The answer with its grounds; `charged` says whether what was admitted is counted already."""
        used = self.fleet_used(cell, now_ns)
        nominal = min(self.nominal, cell.capacity)
        remaining = max(0, nominal - used)
        left = max(0, cell.capacity - used)
        return Decision(
            allowed,
            nominal,
            remaining if allowed else max(0, min(remaining, cost - 1)),
            0.0 if allowed else seconds(self._retry_after_ns(cell, cost, left, now_ns)),
            seconds(self.meter.fleet_reset_ns(cell, now_ns)),
            self._staleness_s(cell, now_ns),
            self.name,
            allowed and self.soft and (used if charged else used + cost) > nominal,
        )

    def usage_at(self, key: str, now_ns: int) -> Usage:
        """See `usage`."""
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        self.take_interest(cell, now_ns)
        return Usage(
            own=self.meter.used(cell, now_ns),
            total=self.fleet_used(cell, now_ns),
            limit=min(self.nominal, cell.capacity),
            line=self.usable_line(cell, now_ns),
            staleness=self._staleness_s(cell, now_ns),
        )

    def _retry_after_ns(self, cell: Cell, cost: int, remaining: int, now_ns: int) -> int:
        """When the line lets it through, or when the next exchange may bring what the fleet has left."""
        line = self.usable_line(cell, now_ns)
        if cell.shard.alone:
            return self.meter.wait_ns(cell, line, cost, now_ns)
        if cost <= remaining or not cell.heard:
            wait_ns = self.interval_ns
        else:
            wait_ns = self.meter.fleet_wait_ns(cell, cost, now_ns)
        return min(wait_ns, self.meter.wait_ns(cell, line, cost, now_ns)) if cost <= line else wait_ns

    def _staleness_s(self, cell: Cell, now_ns: int) -> float:
        if cell.shard.alone:
            return 0.0
        return seconds(max(0, now_ns - cell.heard_ns)) if cell.heard else inf
