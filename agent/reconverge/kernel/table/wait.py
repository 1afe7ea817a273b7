"""What waiters for a key ask of one quota. How all quotas of a limit are asked at once is decided above."""

from __future__ import annotations

from reconverge.clock import MICROSECOND_NS, NEVER_NS
from reconverge.kernel.cell import DEMAND_MAX, Cell
from reconverge.kernel.keys import plain_key
from reconverge.kernel.table.changes import Changes


class WaitTable(Changes):
    """A limit that can be waited for. The caller of what it does for waiters holds the lock.

    Demand is what arrives, so a waiter is counted on arrival, and not again with every try. Every limit lets the
    first in the queue through as soon as it would admit the request.
    """

    is_share = False

    @property
    def tables(self) -> tuple[WaitTable, ...]:
        """All tables that decide about this limit: this one."""
        return (self,)

    @property
    def own_tables(self) -> tuple[WaitTable, ...]:
        """The same."""
        return (self,)

    def able(self, costs: tuple[int, ...]) -> tuple[WaitTable, ...]:
        """This table. Raises CostExceedsQuota for a cost that could never be admitted."""
        self.check_size(costs[0])
        return (self,)

    def take_note(self) -> None:
        """Nothing is kept beside the table."""

    def check_key(self, key: object) -> str:
        """The key as a plain string. Raises InvalidKey."""
        return plain_key(key, self.kernel.key_bytes_max)

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """What a request costs, in parts of one, by quota: by this one. Raises InvalidCost or UnknownKind."""
        return (self.cost_of(cost, kind) * self.unit,)

    # ------------------------------------------------------------ a try

    def evaluate_turn(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """What is spare, and whether the first waiter may go; nothing is charged yet."""
        return self.evaluate(cell, cost, now_ns)

    def go(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """Charge the waiter that may go, as was weighed."""
        self.commit(cell, cost, spare, True, now_ns)

    def stay(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """Have the hub hear of what cannot go yet; the waiter has not been refused."""
        cell.ask = max(cell.ask, self.indivisible(cost))
        if not cell.shard.alone:
            self._go_on_asking(cell, spare, now_ns)

    def indivisible(self, cost: int) -> int:
        """The part of a cost that must fit into the line at once."""
        return cost

    def again_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """How long until what does not fit may fit, unless there is news."""
        remaining = max(0, cell.capacity - self.fleet_used(cell, now_ns))
        return self._retry_after_ns(cell, cost, remaining, now_ns)

    def at_least_ns(self, cell: Cell, cost: int, ahead: int, now_ns: int) -> int:
        """How long a request has to wait in any case, if `ahead` goes before it and nothing is given back.

        Zero in a fleet, where others may hand on what they have left, unless that is known to be nothing.
        """
        if not self.keeps_spare:
            return self.certainly_ns(cell, cost, now_ns)
        line = self.usable_line(cell, now_ns)
        together = min(cost + ahead, cell.capacity)
        if not cell.shard.alone or together <= self.meter.spare(cell, line, now_ns):
            return 0
        return min(self.meter.wait_ns(cell, line, together, now_ns), NEVER_NS)

    def certainly_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """How long there is certainly no room for a request, by what all nodes have said; zero if there may be some."""
        if not cell.heard:
            return 0
        self.advance(cell, now_ns)
        if self.meter.aligned and cell.used + self.meter.others(cell, now_ns) + cost <= cell.capacity:
            return 0
        wait_ns = self.meter.fleet_wait_ns(cell, cost, now_ns)
        return wait_ns if wait_ns > MICROSECOND_NS else 0

    # ------------------------------------------------------------ coming and leaving

    def queue_up(self, cell: Cell, cost: int, now_ns: int) -> None:
        """Note that a request waits."""
        if not cell.waiters:
            # Evaluated before the waiter counts, so that the time until now does not pass for the lateness of a timer.
            fits = self.evaluate_turn(cell, cost, now_ns)[1]
            cell.head_cost = 0 if fits else self.indivisible(cost)
        cell.waiters += 1
        cell.waiting += cost
        cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
        if not cell.shard.alone:
            cell.touched_ns = now_ns
            self._call(cell, now_ns)
            if not cell.heard:
                self.request_early(cell, now_ns)

    def step_out(self, cell: Cell, cost: int) -> None:
        """A request does not wait any more."""
        cell.waiters -= 1
        cell.waiting -= cost
        cell.head_cost = 0

    def turn_away(self, cell: Cell, cost: int, now_ns: int, *, waited: bool) -> None:
        """Count a refusal; a request that has `waited` has been counted as demand."""
        self.cells.refused += 1
        if not waited:
            cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
        if not cell.shard.alone:
            self._call(cell, now_ns)

    # ------------------------------------------------------------ inside

    def _go_on_asking(self, cell: Cell, spare: int, now_ns: int) -> None:
        cell.touched_ns = now_ns
        self._call(cell, now_ns)
        if not cell.heard:
            self.request_early(cell, now_ns)
        elif spare < cell.low_water:
            self._ask_early(cell, spare, now_ns)
