"""Decides when a request that waits in a queue may go, for a limit of one or several tables.

A gate is asked about one request at a time: it admits the request, or returns when to try again. The queue decides
which request tries first.
"""

# Theory of operation.
#
# A request to `10/second; 1000/hour` must be charged to both quotas in one moment or to neither. With a queue for each
# quota, a request would hold a charge at one while it waits at the other, and would have to give it back when it is
# cancelled. So there is one queue for each key of a limit, and its first request tries all quotas at once, under the
# lock that they share.
#
# Each quota without room names the moment at which it may have room. The next try comes at the latest of these moments,
# or when the hub has answered about any quota. Quotas with room do not ask the hub for more, but the waiting cost is a
# part of the need that they report, and counts once as demand. Only quotas that refuse count a refusal.
#
# If a node has an allowance for one quota and lacks one for another, the first allowance is unused meanwhile. As a rule
# all waiting requests lack an allowance for the same quota.

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
"""The cost of a request for each quota, in the unit of that quota; see `Decider.costs_of`."""


class Turn(NamedTuple):
    """The result of an attempt to admit a waiting request."""

    decision: Decision | None
    """The decision about the request, if it was admitted and charged; None if it must go on waiting."""
    again_ns: int
    """The nanoseconds until the next attempt may succeed. It may succeed earlier, after an answer of the hub."""


class Gate(Protocol):
    """Decides when the waiting requests of one limit may go.

    All methods raise CostExceedsQuota for a cost that can never fit, and Reentry.
    """

    def try_turn(self, key: str, costs: Costs, *, again: bool) -> Turn:
        """Admits and charges a request if it may go now.

        `again` means that the request waits already, so that its demand has been counted.
        """
        ...

    def queue_up(self, key: str, costs: Costs, cells: list[Cell]) -> None:
        """Counts a request as waiting for a key, so that the next report asks the hub for its cost.

        Adds the key's cell (its counts) at each quota to `cells` as soon as the request counts there. So the caller can
        remove the request again even if a signal handler raises an exception halfway.
        """
        ...

    def step_out(self, cells: list[Cell], costs: Costs) -> None:
        """Removes a waiting request from the `cells` to which `queue_up` has added it; empties that list."""
        ...

    def turn_away(self, key: str, costs: Costs, *, ahead: Costs, waited: bool) -> Decision:
        """Refuses a request. `ahead[i]` is the cost at quota i of the requests that wait in the queue before it.

        `waited` means that the request itself has waited in the queue.
        """
        ...

    def at_least_ns(self, key: str, costs: Costs, *, ahead: Costs) -> int:
        """Returns the least nanoseconds that a request must wait behind requests of the costs `ahead`.

        On a node with a hub, other nodes may give back allowances that they do not use. So there it is the time for
        which the use of all nodes certainly leaves no room. Cost that is given back may shorten the wait.
        """
        ...


class AllOf:
    """A gate, which decides when waiting requests may go, for quotas that all must have room.

    The quotas share a lock, so that all are charged at once or none is.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._first = tables[0]

    def try_turn(self, key: str, costs: Costs, *, again: bool) -> Turn:
        """Admits and charges a request if all quotas have room.

        Otherwise, the next attempt is due when the last of the quotas may have room.
        """
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
            table.waiter.queue_up(cell, cost, now_ns, cells)

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
        """Refuses a request; returns the refusal of the quota with the longest wait, which includes requests ahead.

        Only quotas that lack room for this request or for the requests ahead count a refusal. If all have room, but the
        requests ahead have not gone yet, all quotas count a refusal.
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
        """Returns the longest wait at any quota, in nanoseconds."""
        return self._first.lock.run(self._at_least_ns, key, costs, ahead, self._first.now_ns())

    def _at_least_ns(self, key: str, costs: Costs, ahead: Costs, now_ns: int) -> int:
        cells = self._cells(key, costs, now_ns)
        for table, cell in zip(self._tables, cells, strict=True):
            table.edges.advance(cell, now_ns)
        parts = zip(self._tables, cells, costs, ahead, strict=True)
        if not cells[0].shard.alone:
            return max(table.waiter.certainly_ns(cell, cost, now_ns) for table, cell, cost, _ in parts)
        return max(table.waiter.at_least_ns(cell, cost, before, now_ns) for table, cell, cost, before in parts)

    def _cells(self, key: str, costs: Costs, now_ns: int) -> list[Cell]:
        """Returns the cells of a key, one for each quota. Raises CostExceedsQuota before any cell is made."""
        for table, cost in zip(self._tables, costs, strict=True):
            check_size(table, cost)
        return [look_up(table, key, now_ns) for table in self._tables]


class EitherOf:
    """A gate, which decides when waiting requests may go, for a share of a parent's quota.

    A request may go when its share or the parent's pool has room. Requests to the parent, or to its other shares, wait
    in queues of their own, and the first request that tries gets the room in the pool; requests ahead may use the share
    or the pool. So no wait is known beforehand.
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
        """Counts a request as waiting at the share and at its parent's pool, as `Gate.queue_up` does."""
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
        """Refuses a request at the gates of the share and of the pool; returns the answer with the shorter wait."""
        answers = [gate.turn_away(key, costs, ahead=(0,), waited=waited) for gate in self._able(costs)]
        return min(answers, key=lambda answer: answer.retry_after)

    def at_least_ns(self, key: str, costs: Costs, *, ahead: Costs) -> int:  # noqa: ARG002  # see above
        return min(gate.at_least_ns(key, costs, ahead=(0,)) for gate in self._able(costs))

    def _count_for_share(self, key: str, costs: Costs) -> None:
        """Counts a cost that the pool has admitted as demand on the share, so that the hub grants the share more."""
        share, cells = AllOf((self._share,)), list[Cell]()
        share.queue_up(key, costs, cells)
        share.step_out(cells, costs)

    def _able(self, costs: Costs) -> list[AllOf]:
        return [AllOf((table,)) for table in self._limit.able(costs)]


def gate_of(limit: Decider) -> Gate:
    """Returns the `Gate` of a limit, which decides when the limit's waiting requests may go."""
    return EitherOf(limit) if limit.is_share else AllOf(limit.tables)
