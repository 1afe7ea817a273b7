"""Decides, for a limit of one or several tables, when a request that waits in a queue may go.

A gate lets one request through or none, and returns when to try again. The queue decides which one comes first.
"""

# Theory of operation.
#
# `10/second; 1000/hour` must be charged to both in one moment or to neither. With a queue for each quota a request
# would hold a charge at one of them while it waits at the other, and would have to give it back when it is cancelled.
# So there is one queue for each key of a limit, and its first request asks all quotas at once, under the lock that they
# share.
#
# The next try is for the latest moment that a quota without room names, or for news of any of them. Quotas that have
# room are not asked for more, but what waits is in the need of all, and is demand of each once. Only quotas that refuse
# count a refusal.
#
# Where a node has an allowance of one quota and lacks the other, the allowance lies idle meanwhile. As a rule all that
# wait lack the same one.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

from reconverge.clock import SECOND_NS
from reconverge.kernel.cell import Cell, measure
from reconverge.kernel.composite.all_of import binding
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.engine import Decision, Reentry
from reconverge.kernel.reporting.requests import take_interest
from reconverge.kernel.table.explain import explain
from reconverge.kernel.table.lookup import check_size, look_up
from reconverge.kernel.table.table import Table

Costs: TypeAlias = tuple[int, ...]
"""The cost of a request by each quota, in the parts of one in which that counts; see `costs_of`."""


class Turn(NamedTuple):
    """The result of one try of a waiting request."""

    decision: Decision | None
    """The answer to the request that was let through, and charged in the same moment; None when none was."""
    again_ns: int
    """How long until the next try may succeed, unless there is news."""


class Gate(Protocol):
    """Lets waiting requests through. All methods raise CostExceedsQuota for a hopeless cost, and Reentry."""

    def try_turn(self, key: str, costs: Costs, *, again: bool) -> Turn:
        """Let a request through if it may go now; `again` when it waits, so that it has been counted as demand."""
        ...

    def queue_up(self, key: str, costs: Costs, cells: list[Cell]) -> None:
        """Note that a request waits, and have the hub asked for what it needs.

        The cells in which it waits are added to `cells`, each as soon as it does, so that none is left waiting for good
        by an exception out of a signal handler.
        """
        ...

    def step_out(self, cells: list[Cell], costs: Costs) -> None:
        """A request does not wait any more in the cells that `queue_up` has added, which are taken out of the list."""
        ...

    def turn_away(self, key: str, costs: Costs, *, ahead: Costs, waited: bool) -> Decision:
        """Refuse a request, behind costs of `ahead` that wait; `waited` when it was one of those itself."""
        ...

    def at_least_ns(self, key: str, costs: Costs, *, ahead: Costs) -> int:
        """How long a request has to wait in any case, if `ahead` goes before it and nothing is given back.

        Zero in a fleet, where others may hand on what they have left.
        """
        ...


class AllOf:
    """Lets a request go when all quotas have room; charges all in one moment, as they share a lock, or none."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._first = tables[0]

    def try_turn(self, key: str, costs: Costs, *, again: bool) -> Turn:
        """Tries; the next try is for when the last of the quotas that lack something may have it."""
        return self._first.lock.run(self._try_turn, key, costs, again, self._first.now_ns())

    def _try_turn(self, key: str, costs: Costs, again: bool, now_ns: int) -> Turn:
        cells = self._cells(key, costs, now_ns)
        parts = list(zip(self._tables, cells, costs, strict=True))
        weighed = [table.waiter.evaluate(cell, cost, now_ns) for table, cell, cost in parts]
        allowed = all(fits for _, fits in weighed)
        for (table, cell, cost), (spare, fits) in zip(parts, weighed, strict=True):
            if allowed:
                table.waiter.go(cell, cost, spare, now_ns)
            elif fits:
                take_interest(cell, now_ns)
            else:
                table.waiter.stay(cell, cost, spare, now_ns)
            if again:
                cell.head_cost = 0 if fits else table.waiter.indivisible(cost)
        if not allowed:
            lacking = [part for part, (_, fits) in zip(parts, weighed, strict=True) if not fits]
            return Turn(None, max(table.waiter.again_ns(cell, cost, now_ns) for table, cell, cost in lacking))
        if again:
            for _, cell, cost in parts:
                measure(cell)
                cell.arrived -= cost
        return Turn(binding([explain(table, cell, cost, True, now_ns) for table, cell, cost in parts]), 0)

    def queue_up(self, key: str, costs: Costs, cells: list[Cell]) -> None:
        self._first.lock.run(self._queue_up, key, costs, cells, self._first.now_ns())

    def _queue_up(self, key: str, costs: Costs, cells: list[Cell], now_ns: int) -> None:
        for table, cell, cost in zip(self._tables, self._cells(key, costs, now_ns), costs, strict=True):
            cells.append(cell)
            table.waiter.queue_up(cell, cost, now_ns)

    def step_out(self, cells: list[Cell], costs: Costs) -> None:
        try:
            self._first.lock.run(self._step_out, cells, costs)
        except Reentry:
            self._first.put_off(self.step_out, cells, costs)

    def _step_out(self, cells: list[Cell], costs: Costs) -> None:
        while cells:
            place = len(cells) - 1
            self._tables[place].waiter.step_out(cells[place], costs[place])
            cells.pop()

    def turn_away(self, key: str, costs: Costs, *, ahead: Costs, waited: bool) -> Decision:
        """Turns a request away with the answer of the quota to wait for longest, those ahead included.

        Only the quotas that refuse, to this request or to those ahead, count a refusal; or all, if none does but those
        ahead have not gone yet.
        """
        return self._first.lock.run(self._turn_away, key, costs, ahead, waited, self._first.now_ns())

    def _turn_away(self, key: str, costs: Costs, ahead: Costs, waited: bool, now_ns: int) -> Decision:
        cells = self._cells(key, costs, now_ns)
        parts = list(zip(self._tables, cells, costs, strict=True))
        fit = [table.waiter.evaluate(cell, cost, now_ns)[1] for table, cell, cost in parts]
        least_ns = [
            table.waiter.at_least_ns(cell, cost, before, now_ns)
            for (table, cell, cost), before in zip(parts, ahead, strict=True)
        ]
        refuse = [not fits or wait_ns > 0 for fits, wait_ns in zip(fit, least_ns, strict=True)]
        answers = []
        for (table, cell, cost), wait_ns, refuses in zip(parts, least_ns, refuse, strict=True):
            if refuses or not any(refuse):
                table.waiter.turn_away(cell, cost, now_ns, waited=waited)
                answer = explain(table, cell, cost, False, now_ns)
                answers.append(replace(answer, retry_after=max(answer.retry_after, wait_ns / SECOND_NS)))
            else:
                take_interest(cell, now_ns)
        return binding(answers)

    def at_least_ns(self, key: str, costs: Costs, *, ahead: Costs) -> int:
        """Returns the wait of the slowest quota."""
        return self._first.lock.run(self._at_least_ns, key, costs, ahead, self._first.now_ns())

    def _at_least_ns(self, key: str, costs: Costs, ahead: Costs, now_ns: int) -> int:
        cells = self._cells(key, costs, now_ns)
        for table, cell in zip(self._tables, cells, strict=True):
            table.edges.advance(cell, now_ns)
        if not (cells[0].shard.alone or any(cell.at_hub or not cell.table.keeps_spare for cell in cells)):
            return 0
        parts = zip(self._tables, cells, costs, ahead, strict=True)
        return max(table.waiter.at_least_ns(cell, cost, before, now_ns) for table, cell, cost, before in parts)

    def _cells(self, key: str, costs: Costs, now_ns: int) -> list[Cell]:
        """The cells of a key. Raises CostExceedsQuota, before any is made."""
        for table, cost in zip(self._tables, costs, strict=True):
            check_size(table, cost)
        return [look_up(table, key, now_ns) for table in self._tables]


class EitherOf:
    """Lets a request go when its share has room, or else when the parent's pool has.

    Waiters for the parent, or for other shares of it, have queues of their own: of what is left for all the first to
    try gets it, and those ahead may go by either way. So nothing is known beforehand of how long they take.
    """

    def __init__(self, limit: Decider) -> None:
        self._limit = limit
        self._share, self._pool = limit.tables

    def try_turn(self, key: str, costs: Costs, *, again: bool) -> Turn:
        again_ns: list[int] = []
        for gate in self._able(costs):
            turn = gate.try_turn(key, costs, again=again)
            if turn.decision is not None:
                if again_ns and not again:
                    self._count_for_share(key, costs)
                borrowed = turn.decision.binding == self._pool.name
                return turn._replace(decision=replace(turn.decision, borrowed=borrowed))
            again_ns.append(turn.again_ns)
        return Turn(None, min(again_ns))

    def queue_up(self, key: str, costs: Costs, cells: list[Cell]) -> None:
        """Queues at the share and at its parent."""
        for gate in self._able(costs):
            joined: list[Cell] = []
            try:
                gate.queue_up(key, costs, joined)
            finally:
                cells += joined

    def step_out(self, cells: list[Cell], costs: Costs) -> None:
        gates = self._able(costs)
        while cells:
            left = cells[-1:]
            gates[len(cells) - 1].step_out(left, costs)
            cells.pop()

    def turn_away(self, key: str, costs: Costs, *, ahead: Costs, waited: bool) -> Decision:  # noqa: ARG002  # see above
        """Turns a request away with the answer of the gate that may admit it first."""
        answers = [gate.turn_away(key, costs, ahead=(0,), waited=waited) for gate in self._able(costs)]
        return min(answers, key=lambda answer: answer.retry_after)

    def at_least_ns(self, key: str, costs: Costs, *, ahead: Costs) -> int:  # noqa: ARG002  # see above
        return min(gate.at_least_ns(key, costs, ahead=(0,)) for gate in self._able(costs))

    def _count_for_share(self, key: str, costs: Costs) -> None:
        """Counts the borrowed cost as demand on the share: a request came there, and left again."""
        share, cells = AllOf((self._share,)), list[Cell]()
        share.queue_up(key, costs, cells)
        share.step_out(cells, costs)

    def _able(self, costs: Costs) -> list[AllOf]:
        return [AllOf((table,)) for table in self._limit.able(costs)]


def gate_of(limit: Decider) -> Gate:
    """Returns the gate for the waiters of a limit."""
    return EitherOf(limit) if limit.is_share else AllOf(limit.tables)
