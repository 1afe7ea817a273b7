"""Decides when one quota admits a request that waits; `composite/gate.py` does so for all quotas of a limit."""

# Theory of operation.
#
# Demand counts arrivals, so a waiting request is counted when it arrives, and not again with every try. A limit lets
# the first request in the queue through as soon as it would admit a new request; a paced limit, as soon as the request
# before is paid for.
#
# A paced limit lets a request go on credit: it goes when there is no debt, and its cost is paid off at the node's part
# of the rate before the next request goes. So requests from the queue are not reported as use: they would use up the
# node's allowance (the cost that the node may use by itself), and nodes with a queue would ask for more than they need.
#
# An allowance of a paced limit is a part of the rate. A part that is given back is unused until another node has
# exchanged; so it is given back in steps of some size (`state.PACED_GIVE_BACK_MIN`).

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.algorithms.paced import LeakyBucket
from reconverge.kernel.cell import DEMAND_MAX, usable_allowance
from reconverge.kernel.engine import Cell
from reconverge.kernel.reporting.requests import ask_early, report_soon, request_early
from reconverge.kernel.table.explain import next_turn_ns, nothing_free_ns, retry_after_ns, waits_in_vain
from reconverge.kernel.table.slow_path import commit, evaluate, unheard_reach, view_of
from reconverge.kernel.table.state import LimitState


class Waiter:
    """Counts the waiting requests of one limit and decides when they may go. The caller holds the lock."""

    def __init__(self, table: LimitState) -> None:
        self._table = table

    def evaluate(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """Returns how much cost fits into the allowance, and whether the first waiting request may go."""
        return evaluate(self._table, cell, cost, now_ns)

    def go(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """Charges a waiting request that may go; `spare` is the room that `evaluate` has returned."""
        commit(self._table, cell, cost, spare, True, now_ns)

    def stay(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """Queues a report about a request that cannot go yet and continues to wait."""
        cell.ask = max(cell.ask, self.indivisible(cost))
        if self._table.asks:
            cell.asking_ns = now_ns
        if not cell.shard.alone:
            self._go_on_asking(cell, spare, now_ns)

    def indivisible(self, cost: int) -> int:
        """Returns the part of `cost` that must fit into the allowance at once: all of it, but for a paced limit."""
        return cost

    def again_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds until a cost that does not fit may fit, if no answer of the hub comes before."""
        table = self._table
        left = max(0, cell.capacity - table.meter.fleet_used(cell, now_ns))
        return retry_after_ns(table, cell, cost, left, now_ns)

    def at_least_ns(self, cell: Cell, cost: int, ahead: int, now_ns: int) -> int:
        """Returns the least nanoseconds that a request must wait behind requests of the cost `ahead`.

        On a node with a hub, it is the time for which the use of all nodes certainly leaves no room for the request
        alone, without `ahead`: other nodes may give back allowances that they do not use.
        """
        table = self._table
        if table.meter.slots:
            return 0  # a slot may be given back at any moment
        if not cell.shard.alone:
            return self.certainly_ns(cell, cost, now_ns)
        allowance = usable_allowance(cell, now_ns)
        together = min(cost + ahead, cell.capacity)
        if together <= table.meter.spare(cell, allowance, now_ns):
            return 0
        return min(table.meter.wait_ns(cell, allowance, together, now_ns), NEVER_NS)

    def certainly_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns for how many nanoseconds certainly no node has room for `cost`; 0 if one may have room."""
        table = self._table
        if not cell.heard or table.smooth or table.meter.slots:
            return 0  # a larger allowance pays off a debt faster, and a slot may be given back at any moment
        table.edges.advance(cell, now_ns)
        if cost <= table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns):
            return 0
        return nothing_free_ns(table, cell, cost, now_ns)

    def queue_up(self, cell: Cell, cost: int, now_ns: int, cells: list[Cell]) -> None:
        """Counts a request as waiting for the key of `cell`, and adds the cell to `cells`."""
        if not cell.waiters:
            # Evaluated before the waiter counts, so that the time until now is not taken for the delay of a timer.
            fits = self.evaluate(cell, cost, now_ns)[1]
            cell.head_cost = 0 if fits else self.indivisible(cost)
        # No signal handler runs between these three statements, so an exception out of one finds all done, or none.
        cell.waiters += 1
        cell.waiting += cost
        cells.append(cell)
        if self._table.asks:
            cell.asking_ns = now_ns
        cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
        if not cell.shard.alone:
            cell.touched_ns = now_ns
            report_soon(cell, now_ns)
            if not cell.heard:
                request_early(cell, now_ns)

    def step_out(self, cell: Cell, cost: int) -> None:
        """Called when a request no longer waits.

        If the hub has granted an allowance for it that was not charged, the node gives that back at once.
        """
        cell.waiters -= 1
        cell.waiting -= cost
        cell.head_cost = 0
        if self._table.asks:
            cell.ask = min(cell.ask, cell.waiting)  # a request that was refused has had its answer
        if cell.at_hub and not cell.waiters:
            now_ns = self._table.now_ns()
            if self._table.meter.headroom(cell, now_ns) > 0:
                report_soon(cell, now_ns)
                request_early(cell, now_ns)

    def turn_away(self, cell: Cell, cost: int, now_ns: int, *, waited: bool) -> None:
        """Counts a refusal, and `cost` as demand; if the request has `waited`, its cost was counted before."""
        self._table.cells.refused += 1
        if not waited:
            cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
        if not cell.shard.alone and not waits_in_vain(self._table, cell, cost, now_ns):
            report_soon(cell, now_ns)

    @staticmethod
    def _go_on_asking(cell: Cell, spare: int, now_ns: int) -> None:
        cell.touched_ns = now_ns
        report_soon(cell, now_ns)
        if not cell.heard:
            request_early(cell, now_ns)
        elif spare < cell.low_water:
            ask_early(cell, spare, now_ns)


class PacedWaiter(Waiter):
    """A `Waiter` for a paced limit: requests go one by one, each when the request before it is paid off."""

    def __init__(self, table: LimitState, pacer: LeakyBucket) -> None:
        super().__init__(table)
        self._pacer = pacer

    def evaluate(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """Returns a number for `go`, and whether a request may go: if there is no debt, and this node has an allowance.

        The number is no amount of cost. `go` only derives from it whether to request an early exchange: it is below the
        low-water mark if the node has no allowance, and at the mark if it has one.
        """
        self._table.edges.advance(cell, now_ns)
        spare = -1 if cell.allowance <= 0 else cell.low_water
        return spare, cell.level <= 0 and self._reach(cell, cost, now_ns) > 0

    def go(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        table = self._table
        tally, requests = table.tallies[cell.shard.index], cost // table.unit
        arrived = min(cell.arrived + cost, DEMAND_MAX)
        cell.charged += cost
        tally.charged += requests
        cell.arrived = arrived
        table.cells.admitted += 1
        self._pacer.go(cell, cost)
        table.edges.set_until(cell, now_ns)
        cell.room = -1
        if not cell.shard.alone:
            self._go_on_asking(cell, spare, now_ns)

    def indivisible(self, cost: int) -> int:  # noqa: ARG002  # no part of it has to fit
        """Returns 0: a request of a paced limit goes on credit, so no part of its cost has to fit."""
        return 0

    def again_ns(self, cell: Cell, cost: int, now_ns: int) -> int:  # noqa: ARG002  # it goes on credit
        return next_turn_ns(self._table, cell, now_ns)

    def at_least_ns(self, cell: Cell, cost: int, ahead: int, now_ns: int) -> int:  # noqa: ARG002  # likewise
        """Returns the nanoseconds until a request may go behind a cost of `ahead`, at the present allowance.

        Returns 0 if the node has no allowance.
        """
        turn_ns = self._pacer.turn_ns(cell, ahead, now_ns)
        return 0 if turn_ns >= NEVER_NS else turn_ns  # an exchange may bring an allowance at any time

    def _reach(self, cell: Cell, cost: int, now_ns: int) -> int:
        table = self._table
        allowance = usable_allowance(cell, now_ns)
        if allowance > 0 or cell.shard.alone:
            return allowance
        unheard = unheard_reach(table, cell, cost, now_ns)
        return table.policy.reach(view_of(table, cell, allowance, cost, now_ns)) if unheard is None else unheard


def waiter_for(table: LimitState) -> Waiter:
    """Returns the `Waiter` for a limit: a `PacedWaiter` if the limit is paced."""
    return Waiter(table) if table.pacer is None else PacedWaiter(table, table.pacer)
