"""Decides about requests that ask the hub and wait for its answer, for a limit of one or several tables.

`limiter/asking.py` makes the request wait.
"""

# Theory of operation.
#
# The node's memory settles a request if its cost fits into the node's own part of every quota, or if the reports of all
# nodes leave no room in one of them. Otherwise the request asks the hub, with one of three outcomes:
#
#     the cost fits into the allowances of the node      the request is charged
#     the hub has granted less than was asked for        the request is refused, if the report asked for it; a policy
#                                                        goes beyond the allowance only while the hub does not answer
#     the hub has not answered in time                   memory decides, by the rule of the policy
#
# Nothing is charged before the outcome is known, and then in one step under the lock, so a request that is cancelled
# while it waits has not been charged. It counts as demand from the moment when it begins to ask.
#
# The hub has answered a request if it has answered a report that was made after the request had joined (has begun to
# wait). An earlier report does not include the request. Another thread may send one between the request's first look at
# the key, which makes the key known, and its joining. So `join` reads the time after the request has joined.
#
# An answer is about an amount, and not about a request: the first request that comes uses the grant, even one that had
# not joined when the report was made. If the hub has granted the cost of all waiting requests, it has refused none of
# them, so a request that finds the grant used up asks again. Only if the hub has granted less is a request refused
# (`Cell.denied`).
#
# A hub that has lost its data grants nothing until all nodes have reported, and knows less than they do: its answers in
# that time settle nothing, and memory decides. The same holds for a hub that is full, and stores nothing about the key.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import cycle
from typing import Final, NamedTuple

from reconverge.clock import NEVER_NS
from reconverge.kernel.cell import Cell, closes_ns, floats, measure, note_ask, usable_allowance
from reconverge.kernel.composite.all_of import charges_of, explain_all, refuse_all
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.composite.gate import Costs
from reconverge.kernel.composite.withholding import learns, wait_out, withholds
from reconverge.kernel.engine import Decision, Reentry
from reconverge.kernel.reporting.requests import ask_at_once, take_interest
from reconverge.kernel.shard import ShardState
from reconverge.kernel.table.explain import is_certain
from reconverge.kernel.table.lookup import look_up
from reconverge.kernel.table.slow_path import commit, evaluate
from reconverge.kernel.table.table import Charged, Table


class DecidingRule(Enum):
    """The rule by which a node decides about a request that may ask the hub: by its allowances, or by its policy."""

    ALLOWANCE = auto()
    """The node's own part of the limit decides. This is for a request that has asked the hub and has an answer."""
    MEMORY = auto()
    """The policy decides, as in `hit`."""


class Word(Enum):
    """The state of a request that asks the hub: whether the hub has answered, and how."""

    ANSWERED = auto()
    UNSETTLED = auto()
    """The hub has answered, but it has lost its data or has no room for the key, so its answer settles nothing."""
    WITHHELD = auto()
    """The hub has answered that the cost is free, and will grant it when all nodes have had the time to report."""
    AWAITED = auto()
    MISSED = auto()
    """No batch has asked the hub for the request, and none will."""


FIRST_WORDS: Final = (Word.MISSED, Word.AWAITED, Word.UNSETTLED, Word.WITHHELD)
"""For a request to several quotas: its state is the first of these states that any quota is in, else ANSWERED."""


class Settled(NamedTuple):
    """A decision about a request that could ask the hub, and the charges made for the request."""

    decision: Decision
    charges: tuple[Charged, ...]


class AskGate:
    """Decides about requests of one limit that may ask the hub. All methods raise CostExceedsQuota and Reentry."""

    def __init__(self, limit: Decider) -> None:
        self._limit = limit
        self._now_ns = limit.tables[0].now_ns

    def in_doubt(self, key: str, costs: Costs) -> bool:
        """Returns whether this node is in doubt about a request: it has no room, but another node or the hub may."""
        now_ns = self._now_ns()
        groups = self._groups(costs)
        if any(group.fits_at_once(key, costs, now_ns) for group in groups):
            return False
        # The parent may have room for a request that its share refuses for certain.
        doubts = [group.in_doubt(key, costs, now_ns) for group in groups]
        return any(doubts) and (len(groups) == 1 or not any(group.fits(key, costs, now_ns) for group in groups))

    def fits(self, key: str, costs: Costs) -> bool:
        """Returns whether the node's own part of the limit has room for the request."""
        now_ns = self._now_ns()
        return any(group.fits(key, costs, now_ns) for group in self._groups(costs))

    def join(self, key: str, costs: Costs, cells: list[Cell]) -> int | None:
        """Counts a request as waiting for its key, so that the next reports ask the hub for its cost.

        Returns the moment, in monotonic nanoseconds, from which on each report asks for that cost; None if the hub is
        not asked. Adds the key's cell at each quota to `cells` as soon as the request waits there.
        """
        now_ns = self._now_ns()
        asked = [group.join(key, costs, cells, now_ns) for group in self._groups(costs)]
        return self._now_ns() if all(asked) else None

    def ask_again(self, cells: Sequence[Cell]) -> bool:
        """Queues the keys of `cells` to ask the hub again; returns whether any of them will be reported."""
        now_ns = self._now_ns()
        asked = [cell.table.lock.run(ask_at_once, cell, now_ns) for cell in cells]
        return any(asked)

    @staticmethod
    def leave(cells: list[Cell], costs: Costs) -> None:
        """Removes a waiting request from the `cells` to which `join` has added it; empties that list."""
        while cells:
            place = len(cells) - 1
            _leave(cells[place], costs[place % len(costs)])
            cells.pop()

    def settle(
        self, key: str, costs: Costs, rule: DecidingRule, *, refuse: bool, counted: bool, units: Costs | None = None
    ) -> Settled | None:
        """Decides about a request by `rule`, and charges an admitted one.

        Returns None for a refusal unless `refuse` is True.

        `counted` means that `join` has counted the request as demand already. `units[i]` is what quota i charges for a
        cost of 1; with `units`, the returned charges can be corrected later.
        """
        now_ns = self._now_ns()
        groups = self._groups(costs)
        for group in groups:
            settled = group.decide(key, costs, rule, now_ns, refuse=False, counted=counted, units=units)
            if settled is not None:
                return self._with_borrowed(settled, group)
        if not refuse:
            return None
        answers: list[Decision] = []
        for group in groups:
            settled = group.decide(key, costs, rule, now_ns, refuse=True, counted=counted, units=units)
            if settled is not None and settled.decision.allowed:
                return self._with_borrowed(settled, group)  # another thread has made room since, and this is charged
            if settled is not None:
                answers.append(settled.decision)
        certain = all(answer.certain for answer in answers)
        return Settled(replace(min(answers, key=lambda answer: answer.retry_after), certain=certain), ())

    def _with_borrowed(self, settled: Settled, group: Together) -> Settled:
        """Returns `settled`, an admission by `group`, marked as `borrowed` if the group is the parent's pool."""
        borrowed = self._limit.is_share and group.tables[0] is self._limit.tables[-1]
        return settled._replace(decision=replace(settled.decision, borrowed=True)) if borrowed else settled

    def shards(self, key: str) -> list[ShardState]:
        """Returns the shard of the hub that counts `key`, for each quota of the limit."""
        return [table.shard_of(key) for table in self._limit.tables]

    def learns(self, shards: Sequence[ShardState]) -> bool:
        """Returns whether any shard has lost its data and has not received the reports of all nodes since.

        `shards` has one shard for each quota, as `AskGate.shards` returns them.
        """
        now_ns, tables = self._now_ns(), self._limit.tables
        return any(learns(shard, table, now_ns) for shard, table in zip(shards, tables, strict=True))

    def word_on(self, cells: Sequence[Cell], costs: Costs, since_ns: int) -> Word:
        """Returns the state of a request for `costs`, about which all reports of `cells` since `since_ns` ask the hub.

        `since_ns` is the moment that `join` returned. Raises Reentry.
        """
        now_ns = self._now_ns()
        words = [
            cell.table.lock.run(_word_on, cell, cost, since_ns, now_ns)
            for cell, cost in zip(cells, cycle(costs), strict=False)
        ]
        return next((word for word in FIRST_WORDS if word in words), Word.ANSWERED)

    def wait_out(self, cells: Sequence[Cell]) -> int:
        """Queues reports that ask the hub once more for quota that it withholds; returns when it will grant that."""
        return max(cell.table.lock.run(wait_out, cell) for cell in cells)

    @staticmethod
    def refused_until_ns(cells: Sequence[Cell]) -> int:
        """Returns when the first fixed window of any quota ends: its next one begins at zero, so a request may fit.

        Returns NEVER_NS if no quota has fixed windows.
        """
        ends_ns = [closes_ns(cell) for cell in cells if cell.table.meter.aligned and not cell.table.meter.slots]
        return min(ends_ns, default=NEVER_NS)

    def _groups(self, costs: Costs) -> list[Together]:
        return groups_of(self._limit, costs)


def groups_of(limit: Decider, costs: Costs) -> list[Together]:
    """Returns the groups of quotas of a limit, any one of which may admit a request of `costs`.

    A share and its parent's pool are a group each; the quotas of any other limit are one group. Raises CostExceedsQuota
    if no group could ever admit the request.
    """
    if limit.is_share:
        return [Together((table,)) for table in limit.able(costs)]
    return [Together(limit.able(costs))]


class Together:
    """A group of quotas that share a lock; a request that the group admits has room in all of them."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables
        self.lock = tables[0].lock

    def fits_at_once(self, key: str, costs: Costs, now_ns: int) -> bool:
        """Returns whether all quotas have room on their fast paths. Takes no lock."""
        for table, cost in zip(self.tables, costs, strict=True):
            cell = table.cells.get(key)
            if cell is None or not (cell.heard or cell.shard.alone):
                return False
            if cell.used + cost > cell.room or now_ns >= cell.until_ns:
                return False
        return True

    def fits(self, key: str, costs: Costs, now_ns: int) -> bool:
        """Returns whether all quotas certainly have room for the request."""
        return self.lock.run(self._fits, key, costs, now_ns)

    def _fits(self, key: str, costs: Costs, now_ns: int) -> bool:
        parts = [(table, look_up(table, key, now_ns), cost) for table, cost in zip(self.tables, costs, strict=True)]
        return all(cell.heard and _within_allowance(table, cell, cost, now_ns)[1] for table, cell, cost in parts)

    def in_doubt(self, key: str, costs: Costs, now_ns: int) -> bool:
        """Returns whether neither an admission nor a refusal of the request would be certain."""
        return self.lock.run(self._in_doubt, key, costs, now_ns)

    def _in_doubt(self, key: str, costs: Costs, now_ns: int) -> bool:
        fits = True
        for table, cost in zip(self.tables, costs, strict=True):
            cell = look_up(table, key, now_ns)
            note_ask(cell, now_ns)
            within = _within_allowance(table, cell, cost, now_ns)[1]
            if within and (cell.heard or cell.shard.alone):
                continue
            admits = evaluate(table, cell, cost, now_ns)[1]
            if not admits and (_is_no_use(table, cell, now_ns) or is_certain(table, cell, cost, False, now_ns)):
                return False
            fits = fits and admits and _is_no_use(table, cell, now_ns)
        return not fits

    def join(self, key: str, costs: Costs, cells: list[Cell], now_ns: int) -> bool:
        return self.lock.run(self._join, key, costs, cells, now_ns)

    def _join(self, key: str, costs: Costs, cells: list[Cell], now_ns: int) -> bool:
        asked = True
        for table, cost in zip(self.tables, costs, strict=True):
            cell = look_up(table, key, now_ns)
            table.waiter.queue_up(cell, cost, now_ns, cells)
            cell.ask = max(cell.ask, cost) if cell.waiters > 1 else cost
            asked = ask_at_once(cell, now_ns) and asked
        return asked

    def decide(
        self,
        key: str,
        costs: Costs,
        rule: DecidingRule,
        now_ns: int,
        *,
        refuse: bool,
        counted: bool,
        units: Costs | None = None,
    ) -> Settled | None:
        return self.lock.run(self._decide, key, costs, rule, now_ns, refuse, counted, units)

    def _decide(
        self, key: str, costs: Costs, rule: DecidingRule, now_ns: int, refuse: bool, counted: bool, units: Costs | None
    ) -> Settled | None:
        weighed = self.weigh(key, costs, rule, now_ns)
        if weighed.fits:
            return weighed.charge(now_ns, counted=counted, units=units)
        return weighed.refuse(now_ns, counted=counted) if refuse else None

    def weigh(self, key: str, costs: Costs, rule: DecidingRule, now_ns: int) -> Weighed:
        """Returns how much room the request finds at each quota, by `rule`.

        The caller holds the lock of the group until it has charged or refused the request. So no other thread charges
        these quotas before.
        """
        weigh = evaluate if rule is DecidingRule.MEMORY else _within_allowance
        cells = [look_up(table, key, now_ns) for table in self.tables]
        spares = []
        for table, cell, cost in zip(self.tables, cells, costs, strict=True):
            spares.append(weigh(table, cell, cost, now_ns))
            cell.room = -1
        return Weighed(self.tables, cells, costs, spares)


class Weighed(NamedTuple):
    """The room that a request has found at each quota of a group. The caller holds the lock of the group."""

    tables: Sequence[Table]
    cells: list[Cell]
    costs: Costs
    spares: list[tuple[int, bool]]

    @property
    def fits(self) -> bool:
        """Returns whether all quotas have room for the request."""
        return all(fits for _, fits in self.spares)

    def charge(self, now_ns: int, *, counted: bool, units: Costs | None) -> Settled:
        """Charges the request to all quotas; returns the admission."""
        for table, cell, cost, (spare, _) in zip(self.tables, self.cells, self.costs, self.spares, strict=True):
            commit(table, cell, cost, spare, True, now_ns)
            measure(cell)
        charges = () if units is None else charges_of(self.tables, self.cells, units)
        self._uncount(counted=counted)
        found = [(cell, True) for cell in self.cells]
        return Settled(explain_all(self.tables, found, self.costs, now_ns), charges)

    def refuse(self, now_ns: int, *, counted: bool) -> Settled:
        """Counts the request as refused; returns the refusal."""
        asks = [cell.ask for cell in self.cells]
        found = refuse_all(self.tables, self.cells, self.costs, self.spares, now_ns)
        for cell, ask in zip(self.cells, asks, strict=True):
            if cell.waiters:
                cell.ask = ask  # the largest cost that still waits, without this request's
        self._uncount(counted=counted)
        return Settled(explain_all(self.tables, found, self.costs, now_ns), ())

    def look(self, now_ns: int, *, counted: bool) -> Settled:
        """Returns what these quotas would answer to a request that another limit refuses; charges nothing."""
        for cell in self.cells:
            take_interest(cell, now_ns)
        self._uncount(counted=counted)
        found = [(cell, fits) for cell, (_, fits) in zip(self.cells, self.spares, strict=True)]
        return Settled(explain_all(self.tables, found, self.costs, now_ns, charged=False), ())

    def _uncount(self, *, counted: bool) -> None:
        if counted:  # its demand was counted when it began to ask
            for cell, cost in zip(self.cells, self.costs, strict=True):
                cell.arrived = max(0, cell.arrived - cost)


def _within_allowance(table: Table, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
    """Returns how much cost fits into the node's own part of the limit, and whether `cost` does."""
    table.edges.advance(cell, now_ns)
    spare = table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns)
    return spare, cost <= spare


def _is_no_use(table: Table, cell: Cell, now_ns: int) -> bool:
    """Returns whether asking the hub about a request cannot help.

    That is so if the policy decides by merged totals alone, or if the next request of a smooth limit may go soon.
    """
    return table.policy.merged_only or (table.smooth and cell.heard and usable_allowance(cell, now_ns) > 0)


def _word_on(cell: Cell, cost: int, since_ns: int, now_ns: int) -> Word:
    shard, table = cell.shard, cell.table
    under_way = cell.reported_ns > shard.acked_ns
    if (
        shard.acked_ns >= since_ns
        and cell.reported_ns >= since_ns
        # Of two reports the later may be under way; the earlier carried the ask if the last answered batch had it.
        and (not under_way or cell.heard_ns >= shard.acked_ns)
    ):
        assert isinstance(table, Table)
        # If the cell has no answer after all, the hub has no room for the key.
        if not cell.heard or learns(shard, table, now_ns):
            return Word.UNSETTLED
        # A grant for the window of the report does not count in the next window.
        of_one_window = table.meter.aligned or floats(cell)
        void = of_one_window and cell.confirmed[0] != cell.epoch
        if not void and (cell.denied or _is_no_use(table, cell, now_ns)):
            return Word.WITHHELD if cell.denied and withholds(cell, cost) else Word.ANSWERED
    # A cell that another request has queued may wait for the next regular exchange, which is too late for an ask.
    leaves = cell.urgent and shard.asking_ns < NEVER_NS
    return Word.AWAITED if leaves or under_way else Word.MISSED


def _leave(cell: Cell, cost: int) -> None:
    table = cell.table
    assert isinstance(table, Table)
    try:
        table.lock.run(table.waiter.step_out, cell, cost)
    except Reentry:
        table.put_off(_leave, cell, cost)
