"""A limit whose lines are parts of a rate, counted in parts of a request."""

# With whole requests as units, of `10/s` four nodes get 3, 3, 2 and 2 at best, whatever they need; of `10/s burst 1`
# one node has all of the rate for as long as it needs it. So everything in here is in thousandths of a request. What
# was let out of a queue is not reported as use: it is paid for before anything else goes, so it need not tie up the
# line, and lines settle in proportion to needs. Lines that move cost rate: what is given back is used by no node until
# another one's next exchange. Hence GIVE_BACK_MIN.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reconverge.clock import NEVER_NS
from reconverge.kernel.algorithms.paced import LeakyBucket, pacer_for
from reconverge.kernel.cell import DEMAND_MAX, Cell, Mark
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision
from reconverge.kernel.table.cells import Node
from reconverge.kernel.table.table import Charged, Verdict
from reconverge.kernel.table.wait import WaitTable
from reconverge.limit.limit import Limit
from reconverge.policies import Policy

NEED_SHARES_MAX: Final = 100
NEED_MAX: Final = 10**11
"""Needs beyond the capacity are told apart up to so much, so that lines settle in proportion to them; thousandths of
those of many nodes have to sum up exactly in Lua."""
GIVE_BACK_MIN: Final = 0.1
"""Lines follow demand in steps of at least a tenth of them: what is given back is of no use until it is granted."""


class PacedTable(WaitTable):
    """Callers speak of requests; in here everything is counted in parts of one, `unit` of them to a request.

    So the lines of many nodes can sum to the whole of a small capacity, whatever part each of them has.
    """

    particular = True

    def __init__(self, kernel: Node, name: str, limit: Limit, policy: Policy, now_ns: Callable[[], int]) -> None:
        self._pacer = pacer_for(limit, merged_only=policy.merged_only)
        super().__init__(kernel, name, limit, policy, now_ns)
        self.need_max = min(NEED_SHARES_MAX * self.capacity, NEED_MAX)
        self.give_back_min = GIVE_BACK_MIN

    @property
    def staked(self) -> bool:
        """See `Cells.staked`; a smooth limit's line is a part of the rate, of which nothing is held unused."""
        return not self.limit.smooth and super().staked

    def _make_meter(self) -> LeakyBucket:
        return self._pacer

    # ------------------------------------------------------------ what callers ask

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """See `Table.allow`."""
        return super().allow(key, self.cost_of(cost, kind) * self.unit)

    def hit_in_epoch(self, key: str, cost: int) -> tuple[Decision, int]:
        """See `Table.hit_in_epoch`."""
        self.check_cost(cost)
        return super().hit_in_epoch(key, cost * self.unit)

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """See `Table.hit_and_mark`."""
        decision, charges = super().hit_and_mark(key, self.cost_of(cost, kind) * self.unit)
        unit = self.cost_of(1, kind)
        return decision, tuple(charge._replace(unit=unit) for charge in charges)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """See `Table.test`."""
        return super().test(key, self.cost_of(cost, kind) * self.unit)

    def usage_at(self, key: str, now_ns: int) -> Usage:
        """See `Table.usage_at`; the line is rounded down to whole requests."""
        usage = super().usage_at(key, now_ns)
        own, total = -(-usage.own // self.unit), -(-usage.total // self.unit)
        return Usage(own, total, usage.limit // self.unit, usage.line // self.unit, usage.staleness)

    def correct(self, key: str, epoch: int, difference: int, *, mark: Mark | None = None) -> None:
        """See `Table.correct`."""
        super().correct(key, epoch, difference * self.unit, mark=mark)

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict:
        """See `Table.decide`."""
        self.check_cost(cost)
        return super().decide(key, cost * self.unit, now_ns)

    # ------------------------------------------------------------ inside

    def explain(self, cell: Cell, cost: int, allowed: bool, now_ns: int, *, charged: bool = True) -> Decision:
        """See `Table.explain`."""
        decision = super().explain(cell, cost, allowed, now_ns, charged=charged)
        return replace(decision, limit=decision.limit // self.unit, remaining=decision.remaining // self.unit)

    def _retry_after_ns(self, cell: Cell, cost: int, remaining: int, now_ns: int) -> int:
        if not self.limit.smooth:
            return super()._retry_after_ns(cell, cost, remaining, now_ns)
        return self.again_ns(cell, cost, now_ns)

    def _ask_early(self, cell: Cell, spare: int, now_ns: int) -> None:
        """A line is a part of the rate, of which nothing is used up: only a node without one is in a hurry."""
        if cell.line <= 0 or not self.limit.smooth:
            super()._ask_early(cell, spare, now_ns)

    def low_water(self, headroom: int) -> int:
        """See `Cells.low_water`; less than a request is low in any case."""
        return max(self.unit, super().low_water(headroom))

    # ------------------------------------------------------------ waiting

    def evaluate_turn(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """A waiter may go, on credit, if nothing is owed and the node has a part of the rate."""
        self.advance(cell, now_ns)
        spare = -1 if cell.line <= 0 else cell.low_water
        return spare, cell.level <= 0 and self._reach(cell, cost, now_ns) > 0

    def go(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """See `WaitTable.go`."""
        tally, requests = self.tallies[cell.shard.index], cost // self.unit
        arrived = min(cell.arrived + cost, DEMAND_MAX)
        cell.charged += cost
        tally.charged += requests
        cell.arrived = arrived
        self.cells.admitted += 1
        self._pacer.go(cell, cost)
        self.set_until(cell, now_ns)
        cell.room = -1
        if not cell.shard.alone:
            self._go_on_asking(cell, spare, now_ns)

    def _reach(self, cell: Cell, cost: int, now_ns: int) -> int:
        line = self.usable_line(cell, now_ns)
        if line > 0 or cell.shard.alone:
            return line
        return self.policy.reach(self._view(cell, line, cost, now_ns)) if cell.heard else self._cold_reach(cell, now_ns)

    def indivisible(self, cost: int) -> int:
        """See `WaitTable.indivisible`: it goes on credit."""
        return 0

    def again_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """See `WaitTable.again_ns`."""
        again_ns = self._pacer.turn_ns(cell, 0, now_ns)
        if cell.shard.alone or 0 < again_ns < NEVER_NS:
            return max(1, again_ns)
        return self.interval_ns  # an exchange may have brought a line by then

    def at_least_ns(self, cell: Cell, cost: int, ahead: int, now_ns: int) -> int:
        """See `WaitTable.at_least_ns`; in a fleet, as far as the line that the node has."""
        turn_ns = self._pacer.turn_ns(cell, ahead, now_ns)
        return 0 if turn_ns >= NEVER_NS else turn_ns  # an exchange may bring a line at any time
