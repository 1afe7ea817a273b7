"""What those who wait for a key ask of one limit. Who of them comes first is decided above."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.kernel._cell import Cell
from reconverge.kernel._engine import Decision
from reconverge.kernel._keys import plain_key
from reconverge.kernel._table import Table


class Turn(NamedTuple):
    """What came of a try."""

    decision: Decision
    again_ns: int
    """How long until the next try may succeed, unless there is news."""


class WaitTable(Table):
    """A limit that can be waited for.

    Demand is what arrives, so whoever waits is counted on arrival, and not again with every try. Every limit lets the
    first in the queue through as soon as it would admit the request.
    """

    @property
    def tables(self) -> tuple[WaitTable, ...]:
        """All tables that decide about this limit: this one."""
        return (self,)

    def check_key(self, key: object) -> str:
        """The key as a plain string. Raises InvalidKey."""
        return plain_key(key, self.kernel.key_bytes_max)

    def try_turn(self, key: str, cost: int, *, again: bool) -> Turn:
        """Let a request through if it may go now; it is charged then. `again` when it has been counted as demand."""
        now_ns = self.now_ns()
        with self.lock:
            cost *= self.unit
            cell, allowed = self._take_turn(key, cost, now_ns)
            if again:
                cell.foremost = 0 if allowed else self._indivisible(cost)
                self.measure(cell)
                cell.arrived -= cost
            decision = self.explain(cell, cost, allowed, now_ns)
            again_ns = 0 if allowed else self._again_ns(cell, cost, now_ns)
            return Turn(decision, again_ns)

    def queue_up(self, key: str, cost: int, *, counted: bool) -> Cell:
        """Note that a request waits; `counted` when it has been counted as demand."""
        now_ns = self.now_ns()
        with self.lock:
            cost *= self.unit
            cell = self._look_up(key, cost, now_ns)
            if not cell.waiters:
                self.advance(cell, now_ns)  # whatever has passed so far has nothing to do with waiting
                cell.foremost = self._indivisible(cost)
            cell.waiters += 1
            cell.waiting += cost
            if not counted:
                cell.arrived += cost
                cell.touched_ns = now_ns
            if not cell.shard.alone:
                self._call(cell, now_ns)
                if not cell.heard:
                    self._want(cell, now_ns)
            return cell

    def step_out(self, cell: Cell, cost: int) -> None:
        """A request does not wait any more."""
        with self.lock:
            cell.waiters -= 1
            cell.waiting -= cost * self.unit
            cell.foremost = 0

    def turn_away(self, key: str, cost: int, *, ahead: int, counted: bool) -> Decision:
        """Refuse a request, behind a cost of `ahead` that waits."""
        now_ns = self.now_ns()
        with self.lock:
            cost *= self.unit
            cell = self._look_up(key, cost, now_ns)
            self.advance(cell, now_ns)
            self.cells.refused += 1
            if not counted:
                cell.arrived += cost
            if not cell.shard.alone:
                self._call(cell, now_ns)
            decision = self.explain(cell, cost, False, now_ns)
            retry_s = self._at_least_ns(cell, cost, ahead * self.unit, now_ns) / SECOND_NS
            if retry_s <= decision.retry_after:
                return decision
            return replace(decision, retry_after=retry_s)

    def at_least_ns(self, key: str, cost: int, *, ahead: int) -> int:
        """How long a request has to wait in any case, if `ahead` goes before it and nothing is given back.

        Zero in a fleet, where others may hand on what they have left.
        """
        now_ns = self.now_ns()
        with self.lock:
            cell = self._look_up(key, cost * self.unit, now_ns)
            self.advance(cell, now_ns)
            if not cell.shard.alone:
                return 0
            return self._at_least_ns(cell, cost * self.unit, ahead * self.unit, now_ns)

    # ------------------------------------------------------------ what paced limits do in another way

    def _take_turn(self, key: str, cost: int, now_ns: int) -> tuple[Cell, bool]:
        """Decide, but only if the answer is yes: whoever waits has not been refused."""
        cell = self._look_up(key, cost, now_ns)
        self.advance(cell, now_ns)
        spare = self.meter.spare(cell, self.usable_line(cell, now_ns), now_ns)
        if cost <= self._spare(cell, cost, now_ns):
            return self._decide(key, cost, now_ns)
        cell.ask = max(cell.ask, cost)
        self._go_on_asking(cell, cost, spare, now_ns)
        return cell, False

    def _go_on_asking(self, cell: Cell, cost: int, spare: int, now_ns: int) -> None:
        """Have the hub hear of what cannot go yet."""
        cell.arrived += cost
        if cell.shard.alone:
            return
        cell.touched_ns = now_ns
        self._call(cell, now_ns)
        if not cell.heard:
            self._want(cell, now_ns)
        elif spare < cell.water:
            self._ask_early(cell, spare, now_ns)

    def _indivisible(self, cost: int) -> int:
        """The part of a cost that must fit into the line at once."""
        return cost

    def _again_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        remaining = max(0, cell.capacity - self.fleet_used(cell, now_ns))
        return self._retry_after_ns(cell, cost, remaining, now_ns)

    def _at_least_ns(self, cell: Cell, cost: int, ahead: int, now_ns: int) -> int:
        line = self.usable_line(cell, now_ns)
        together = min(cost + ahead, cell.capacity)
        if not cell.shard.alone or together <= self.meter.spare(cell, line, now_ns):
            return 0
        return min(self.meter.wait_ns(cell, line, together, now_ns), NEVER_NS)
