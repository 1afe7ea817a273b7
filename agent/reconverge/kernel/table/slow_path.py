"""How one limit decides about one key, and explains what it has decided. The lock is held."""

from __future__ import annotations

from math import inf

from reconverge.clock import SECOND_NS, seconds
from reconverge.kernel.cell import DEMAND_MAX, Cell
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision
from reconverge.kernel.table.corrections import Corrections
from reconverge.policies import View


class SlowPath(Corrections):
    """Weighs a cost against a cell, charges it and explains the answer. Every caller of these methods holds the lock.

    An exception may come out of a signal handler wherever something is called; so what a charge consists of is written
    down without a call in between.
    """

    # ------------------------------------------------------------ deciding

    def _allow(self, key: str, cost: int, now_ns: int) -> bool:
        return self._charged(key, cost, now_ns) is not None or self._decide(key, cost, now_ns)[1]

    def _charged(self, key: str, cost: int, now_ns: int) -> Cell | None:
        """The cell to which `cost` was charged, if one comparison says that it may be."""
        cell = self.cells.get(key)
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
        # Under the same lock as the decision, so that there is one order of events.
        return self.explain(cell, cost, allowed, now_ns), cell.epoch

    def _decide(self, key: str, cost: int, now_ns: int) -> tuple[Cell, bool]:
        """The slow path: everything that the one comparison leaves out."""
        cell = self._look_up(key, cost, now_ns)
        spare, allowed = self.evaluate(cell, cost, now_ns)
        self.commit(cell, cost, spare, allowed, now_ns)
        return cell, allowed

    def evaluate(self, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
        """What fits below the line, and whether `cost` may be admitted; nothing is charged yet."""
        self.advance(cell, now_ns)
        spare = self.meter.spare(cell, self.usable_line(cell, now_ns), now_ns)
        allowed = cost <= spare
        if not allowed and not cell.shard.alone:
            allowed = cost <= self._spare(cell, cost, now_ns)
        return spare, allowed

    def commit(self, cell: Cell, cost: int, spare: int, allowed: bool, now_ns: int) -> None:
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
            # What is refused is demand as well: by what is admitted alone, a node with a short line would
            # never be granted a longer one.
            cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
            cell.ask = max(cell.ask, cost)
            self.cells.refused += 1
            if self.limit.count_refused and self.is_used_up(cell, cost, now_ns):
                self._count_refused(cell, cost, now_ns)
                spare -= cost
        if cell.shard.alone:
            self._set_room(cell, spare)
            return
        cell.touched_ns = now_ns  # a question is interest, too: what the others use is worth hearing again before long
        self._call(cell, now_ns)
        if spare < cell.low_water:
            self._ask_early(cell, spare, now_ns)
        if not cell.heard:
            self.request_early(cell, max(now_ns, cell.reported_ns + cell.back_off_ns))
            self._set_room(cell, meter.spare(cell, self._cold_reach(cell, now_ns), now_ns))
        elif cell.urgent or spare < cell.low_water:
            self._set_room(cell, spare)
        else:
            self._set_room(cell, spare - cell.low_water)

    def foresee(self, cell: Cell, cost: int, now_ns: int) -> bool:
        """Whether `cost` would be admitted."""
        self.advance(cell, now_ns)
        allowed = cost <= self._spare(cell, cost, now_ns)
        self.take_interest(cell, now_ns)
        return allowed

    def is_used_up(self, cell: Cell, cost: int, now_ns: int) -> bool:
        """Whether `cost` does not fit because the quota is used up, as far as this node knows.

        If it does not fit only because other nodes hold what is left, the caller that asks cannot be blamed for it.
        """
        return cell.shard.alone or (cell.heard and self.fleet_used(cell, now_ns) + cost > cell.capacity)

    def count_refused_elsewhere(self, cell: Cell, cost: int, spare: int, now_ns: int) -> bool:
        """Count what another quota of the same limit has refused, and return whether as much again would still fit."""
        self._count_refused(cell, cost, now_ns)
        spare -= cost
        if not cell.shard.alone:
            cell.touched_ns = now_ns
            self._call(cell, now_ns)
            if spare < cell.low_water:
                self._ask_early(cell, spare, now_ns)
        self._set_room(cell, spare)
        return cost <= spare or (not cell.shard.alone and cost <= self._spare(cell, cost, now_ns))

    def _count_refused(self, cell: Cell, cost: int, now_ns: int) -> None:
        """Have a refused request count as use; it is in no lifetime number."""
        self.measure(cell)
        cell.used += cost
        cell.counted = cell.used  # it was not charged
        self.meter.settle(cell, now_ns)
        self.set_until(cell, now_ns)

    def _spare(self, cell: Cell, cost: int, now_ns: int) -> int:
        """The cost that this node may still admit: below its line, or as far past it as the policy dares."""
        line = self.usable_line(cell, now_ns)
        if cell.shard.alone:
            reach = line
        elif not cell.heard:
            reach = max(line, self._cold_reach(cell, now_ns))
        else:
            reach = max(line, self.reach(cell, line, cost, now_ns))
        return self.meter.spare(cell, reach, now_ns)

    def reach(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """How far the policy lets this node's use go, on what it knows."""
        if not self.keeps_spare:
            return line  # a caller that needs more than that can ask
        return self.policy.reach(self._view(cell, line, cost, now_ns))

    def _cold_reach(self, cell: Cell, now_ns: int) -> int:
        """What may be admitted before the first answer: nothing to a key that may have been here before."""
        if cell.doubted:
            cell.doubted = self.evicted.recall(cell.key, now_ns)
            if cell.doubted:
                return 0
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
        if cost <= remaining:
            wait_ns = self.interval_ns
        else:
            wait_ns = self.meter.fleet_wait_ns(cell, cost, now_ns)
            if not cell.heard:
                # What this node has used itself is the least that was used; a bucket drains by lines, which it has yet
                # to be granted.
                wait_ns = wait_ns + self.interval_ns if self.meter.bucket else max(wait_ns, self.interval_ns)
        if cost <= line:
            return min(wait_ns, self.meter.wait_ns(cell, line, cost, now_ns))
        return max(wait_ns, cell.shard.lost_ns + self.relearns_ns - now_ns)

    def _staleness_s(self, cell: Cell, now_ns: int) -> float:
        if cell.shard.alone:
            return 0.0
        return seconds(max(0, now_ns - cell.heard_ns)) if cell.heard else inf
