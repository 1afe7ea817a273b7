"""Limits with several quotas: a request needs room in all of them, and charges all or none."""

# Theory of operation.
#
# Each quota is a table of its own, with cells, allowances and totals of its own at the hub. All tables of one limit
# share one lock, so a decision about all of them happens in a single moment, as does a snapshot of their use; and since
# no thread ever holds two locks, no deadlock is possible. With a lock for each, decisions, settlements, snapshots,
# exchanges and evictions would all have to keep one order. All quotas are evaluated first and charged afterwards.
#
# If all quotas admit, the compiled kernel does `hit` in one call (`at_once.py`), and leaves the cells as this file
# would: the tests of the twins compare them. `allow` charges on its fast path, which computes less than that call.
#
# A decision has the numbers of one quota, the binding one, so that they belong together: among quotas that refuse, the
# one with the longest wait; when all admit, the one with the least left.
#
# `count_refused` keeps out a client that goes on asking. Beside a shorter quota it once had no effect: of `2/minute`
# and five attempts an hour, the minute refused, and the hour counted two. So an attempt that any quota refuses is
# counted by every quota that counts attempts, but only if a refusing quota is used up as far as the node knows: the
# client is not to blame for where the allowances are. The decision is computed after that: the attempt may have used up
# the quota that counts it, and the client must get the longer wait. A request that waits in a queue and is turned away
# has not been refused while it waited, so only the quotas that turn it away count it.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reconverge.errors import UnknownKind
from reconverge.kernel.cell import Cell
from reconverge.kernel.composite.at_once import hit_all, stores_of
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision, Lock, Reentry
from reconverge.kernel.keys import plain_key
from reconverge.kernel.reporting.requests import take_interest
from reconverge.kernel.table.corrections import correct_at, mark, refund_at, reset_at
from reconverge.kernel.table.explain import explain, usage_at
from reconverge.kernel.table.lookup import check_size, look_up
from reconverge.kernel.table.slow_path import commit, count_refused_elsewhere, evaluate, foresee, is_used_up
from reconverge.kernel.table.table import Charged, Table, Verdict


class AllQuotas:
    """A limit with several quotas, all of which must admit a request. Implements `composite.decider.Decider`."""

    is_share = False

    def __init__(self, name: str, tables: Sequence[Table]) -> None:
        self.name = name
        self.tables = tuple(tables)
        """The table of each quota, in the order in which the quotas were declared."""
        self.now_ns = tables[0].now_ns
        self.share_lock()
        self.take_note()

    def take_note(self) -> None:
        """Copies the limit, the policy and the stores of the tables, after one of them has changed."""
        self.limit = self.tables[0].limit
        self.policy = self.tables[0].policy
        self._kinds = any(table.costs is not None for table in self.tables)
        self._stores = stores_of(self)

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Returns the tables of all quotas."""
        return self.tables

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Returns the tables of all quotas.

        Raises CostExceedsQuota if one of them could never admit its cost in `costs`.
        """
        for table, cost in zip(self.tables, costs, strict=True):
            check_size(table, cost)
        return self.tables

    def share_lock(self) -> None:
        """Gives all tables one new lock, in place of their own locks."""
        self.lock = Lock(self.tables[0].kernel)
        for table in self.tables:
            table.share_lock(self.lock)

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether all quotas have room for the request; if so, charges it to all of them."""
        costs = self.costs_of(cost, kind)
        if type(key) is not str:
            key = self.check_key(key)
        try:
            return self.lock.run(self._allow, key, costs, self.now_ns())
        except Reentry:
            return self.refuse_reentry().allowed

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides and charges as `allow` does; returns the decision of the binding quota (see `binding`)."""
        if (
            kind is None
            and self._stores
            and isinstance(decisions := hit_all(False, [self._stores], [key], [cost]), list)
        ):
            return decisions[0]
        costs = self.costs_of(cost, kind)
        if type(key) is not str:
            key = self.check_key(key)
        try:
            return self.lock.run(self._hit, key, costs, self.now_ns())
        except Reentry:
            return self.refuse_reentry()

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether this node can decide about each quota with certainty, without asking the hub.

        Charges nothing.
        """
        costs = self.costs_of(cost, kind)
        plain = self.check_key(key)
        pairs = zip(self.tables, costs, strict=True)
        return all(table.settles(plain, each // table.unit) for table, each in pairs)

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides and charges as `hit` does; also returns the charge to each quota, for a later correction."""
        units = self.costs_of(1, kind)
        costs = self.costs_of(cost, kind)
        if type(key) is not str:
            key = self.check_key(key)
        try:
            return self.lock.run(self._hit_and_mark, key, costs, units, self.now_ns())
        except Reentry:
            return self.refuse_reentry(), ()

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        costs = self.costs_of(cost, kind)
        if type(key) is not str:
            key = self.check_key(key)
        try:
            return self.lock.run(self._test, key, costs, self.now_ns())
        except Reentry:
            return self.refuse_reentry()

    def usage(self, key: str) -> Usage:
        """Returns the usage of the quota of which `key` has the least left."""
        return min(self.usages(key).values(), key=lambda usage: usage.limit - usage.total)

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns the usage of every quota, all at the same moment, by the quota's name."""
        if type(key) is not str:
            key = self.check_key(key)
        try:
            return self.lock.run(self._usages, key, self.now_ns())
        except Reentry:
            return {table.name: table.usage_as_it_stands(key) for table in self.tables}

    def reset(self, key: str) -> None:
        """Forgets what `key` has used of every quota."""
        if type(key) is not str:
            key = self.check_key(key)
        try:
            self.lock.run(self._reset, key, self.now_ns())
        except Reentry:
            self.tables[0].put_off(self._reset_now, key)

    def refund(self, key: str, cost: int, kind: str | None = None, *, newest: bool = False) -> None:
        """Gives the cost of a request back to every quota, as `Table.refund` does."""
        costs = self.costs_of(cost, kind)
        if type(key) is not str:
            key = self.check_key(key)
        for table, each in zip(self.tables, costs, strict=True):
            table.check_correction(each // table.unit)
        self._refund(key, costs, newest)

    def warm(self, keys: Iterable[str]) -> None:
        """Queues `keys` to be reported under every quota, so that the hub grants allowances before requests come."""
        keys = list(keys)
        for table in self.tables:
            table.warm(keys)

    def decide(self, key: str, cost: int, now_ns: int) -> tuple[Verdict, ...]:
        """Decides as `allow` does, at `now_ns`; each quota's verdict has whether all quotas admit, and its window."""
        costs = self.costs_of(cost, None)
        with self.lock:
            if self._at_once(key, costs, now_ns):
                cells, allowed = [table.cells[key] for table in self.tables], True
            else:
                parts, allowed = self._decide(key, costs, now_ns)
                cells = [cell for cell, _ in parts]
            return tuple(table.verdict(cell, allowed, now_ns) for table, cell in zip(self.tables, cells, strict=True))

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost for each quota, in the unit of that quota: whole requests, or parts of a request.

        A quota with `costs` by kind charges its cost of `kind`. Raises InvalidCost or UnknownKind.
        """
        if kind is None:
            cost = Table.check_cost(cost)
            return tuple([cost * table.unit for table in self.tables])
        if not self._kinds:
            raise UnknownKind(self.name, kind, ())
        return tuple(table.cost_of(cost, None if table.costs is None else kind) * table.unit for table in self.tables)

    def refuse_reentry(self) -> Decision:
        """Returns the refusal, by the first quota, of a request made while its own thread is in a decision already.

        The quotas share one lock, so none of them can decide then.
        """
        return self.tables[0].refuse_reentry()

    def check_key(self, key: object) -> str:
        """Returns `key` as a plain string. Raises InvalidKey if it is not a valid key.

        Callers check a key before they take the lock, because a key of another type may run code of its own.
        """
        return self.tables[0].check_key(key)

    def _refund(self, key: str, costs: Sequence[int], newest: bool) -> None:
        try:
            self.lock.run(self._refund_at, key, costs, newest, self.now_ns())
        except Reentry:
            self.tables[0].put_off(self._refund_now, key, costs, newest)

    def _reset_now(self, key: str) -> None:
        self.reset(key)
        self._tell(key)

    def _refund_now(self, key: str, costs: Sequence[int], newest: bool) -> None:
        self._refund(key, costs, newest)
        self._tell(key)

    def _tell(self, key: str) -> None:
        for table in self.tables:
            table.tell(key)

    def _allow(self, key: str, costs: Sequence[int], now_ns: int) -> bool:
        return self._at_once(key, costs, now_ns) or self._decide(key, costs, now_ns)[1]

    def _hit(self, key: str, costs: Sequence[int], now_ns: int) -> Decision:
        return explain_all(self.tables, self._decide(key, costs, now_ns)[0], costs, now_ns)

    def _hit_and_mark(
        self, key: str, costs: Sequence[int], units: Sequence[int], now_ns: int
    ) -> tuple[Decision, tuple[Charged, ...]]:
        parts, _ = self._decide(key, costs, now_ns)
        charges = charges_of(self.tables, [cell for cell, _ in parts], units)
        return explain_all(self.tables, parts, costs, now_ns), charges

    def _test(self, key: str, costs: Sequence[int], now_ns: int) -> Decision:
        cells = self._cells(key, costs, now_ns)
        parts = [
            (cell, foresee(table, cell, each, now_ns))
            for table, cell, each in zip(self.tables, cells, costs, strict=True)
        ]
        return explain_all(self.tables, parts, costs, now_ns, charged=False)

    def _usages(self, key: str, now_ns: int) -> dict[str, Usage]:
        return {table.name: usage_at(table, look_up(table, key, now_ns), now_ns) for table in self.tables}

    def _reset(self, key: str, now_ns: int) -> None:
        for table in self.tables:
            reset_at(table, key, now_ns)

    def _refund_at(self, key: str, costs: Sequence[int], newest: bool, now_ns: int) -> None:
        for table, each in zip(self.tables, costs, strict=True):
            refund_at(table, key, each, now_ns, newest=newest)

    def _at_once(self, key: str, costs: Sequence[int], now_ns: int) -> bool:
        """Charges all quotas and returns True if each has room on its fast path; otherwise only returns False."""
        cells = []
        for table, cost in zip(self.tables, costs, strict=True):
            cell = table.cells.get(key)
            if cell is None or cell.used + cost > cell.room or now_ns >= cell.until_ns:
                return False
            cells.append(cell)
        for table, cell, cost in zip(self.tables, cells, costs, strict=True):
            cell.used += cost
            table.cells.admitted += 1
        return True

    def _decide(self, key: str, costs: Sequence[int], now_ns: int) -> tuple[list[tuple[Cell, bool]], bool]:
        """Decides; returns each quota's cell and whether it has room, and whether all quotas were charged."""
        cells = self._cells(key, costs, now_ns)
        weighed = [
            evaluate(table, cell, cost, now_ns) for table, cell, cost in zip(self.tables, cells, costs, strict=True)
        ]
        if all(fits for _, fits in weighed):
            for table, cell, cost, (spare, fits) in zip(self.tables, cells, costs, weighed, strict=True):
                commit(table, cell, cost, spare, fits, now_ns)
            return [(cell, True) for cell in cells], True
        return refuse_all(self.tables, cells, costs, weighed, now_ns), False

    def _cells(self, key: str, costs: Sequence[int], now_ns: int) -> list[Cell]:
        """Returns the cells of a key, one for each quota.

        Raises InvalidKey or CostExceedsQuota before any cell is made.
        """
        return [look_up(table, key, now_ns) for table in self.able(tuple(costs))]


def charges_of(tables: Sequence[Table], cells: Sequence[Cell], units: Sequence[int]) -> tuple[Charged, ...]:
    """Returns the charges of a request, for a later correction; `units[i]` is what quota i charges for a cost of 1."""
    return tuple(
        Charged(table, mark(table, cell), unit // table.unit)
        for table, cell, unit in zip(tables, cells, units, strict=True)
    )


def refuse_all(
    tables: Sequence[Table],
    cells: Sequence[Cell],
    costs: Sequence[int],
    weighed: Sequence[tuple[int, bool]],
    now_ns: int,
) -> list[tuple[Cell, bool]]:
    """Counts a refused request; returns for each quota its cell (the key's counts), and whether it has room afterwards.

    `weighed[i]` is the room at quota i, and whether `costs[i]` fits. A quota with `count_refused` also counts a request
    that another quota refuses because it is used up: so a client that asks again has to wait for both quotas.
    """
    parts = list(zip(tables, cells, costs, weighed, strict=True))
    counting = any(table.limit.count_refused for table in tables)
    used_up = [
        counting and not fits and is_used_up(table, cell, cost, now_ns) for table, cell, cost, (_, fits) in parts
    ]
    counts = any(used_up)
    answers = []
    for (table, cell, cost, (spare, fits)), counted in zip(parts, used_up, strict=True):
        has_room = fits
        if not fits:
            commit(table, cell, cost, spare, fits, now_ns)  # it counts the request if this quota is used up
        if counts and not counted and table.limit.count_refused:
            has_room = count_refused_elsewhere(table, cell, cost, spare, now_ns) and fits
        elif fits:
            take_interest(cell, now_ns)  # a request has asked about the key, but not charged it
        answers.append((cell, has_room))
    return answers


def explain_all(
    tables: Sequence[Table],
    parts: Sequence[tuple[Cell, bool]],
    costs: Sequence[int],
    now_ns: int,
    *,
    charged: bool = True,
) -> Decision:
    """Returns the decision to show, the binding quota's. `parts[i]` has quota i's cell, and whether it has room."""
    refused = not all(fits for _, fits in parts)
    answers = [
        explain(table, cell, cost, fits, now_ns, charged=charged)
        for table, (cell, fits), cost in zip(tables, parts, costs, strict=True)
        if not (refused and fits)
    ]
    return binding(answers)


def binding(answers: Sequence[Decision]) -> Decision:
    """Returns the binding one of several quotas' answers: the refusal with the longest wait, or the least left.

    If all quotas admit, that is the answer of the quota with the least left; it is certain if all answers are. A
    returned refusal is certain if any of the refusals is.
    """
    found = answers[0]
    certain = found.certain
    if found.allowed:
        for answer in answers[1:]:
            certain = certain and answer.certain
            if _scarcity(answer) < _scarcity(found):
                found = answer
    else:
        for answer in answers[1:]:
            certain = certain or answer.certain
            if answer.retry_after > found.retry_after:
                found = answer
    return found if found.certain == certain else replace(found, certain=certain)


def _scarcity(answer: Decision) -> tuple[bool, int, float]:
    return not answer.over_quota, answer.remaining, -answer.reset_after


def settle(charges: Sequence[Charged], key: str, difference: int) -> None:
    """Charges `difference` more to each quota in `charges`, or gives it back if it is negative, all in one moment."""
    table = charges[0].table
    if type(key) is not str:
        key = plain_key(key, table.kernel.key_bytes_max)
    try:
        # The quotas of a limit share one lock, so that of the first table guards all charges.
        table.lock.run(_settle, charges, key, difference, table.now_ns())
    except Reentry:
        table.put_off(_settle_now, charges, key, difference)


def _settle(charges: Sequence[Charged], key: str, difference: int, now_ns: int) -> None:
    for table, at, unit in charges:
        if difference * unit:
            correct_at(table, key, at.epoch, difference * unit * table.unit, at, now_ns)


def _settle_now(charges: Sequence[Charged], key: str, difference: int) -> None:
    settle(charges, key, difference)
    for charge in charges:
        charge.table.tell(key)
