"""The kernel of one node: all its limits, and the reports and answers that they exchange with the hub.

The kernel does no I/O, and has neither a clock nor randomness of its own: callers pass moments, answers and failures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable

from reconverge.clock import NEVER_NS, Clock
from reconverge.errors import InvalidLimit, LimitConflict
from reconverge.hub.report import Answer, LimitReport, Recall
from reconverge.kernel.cell import Cell
from reconverge.kernel.composite.registry import Composites
from reconverge.kernel.engine import Reentry, Reports, apply_answers, due_cells, rebase_cells, report_cells
from reconverge.kernel.evicted import HASH_KEY_BYTES
from reconverge.kernel.eviction import Room, let_leave
from reconverge.kernel.newcomers import NEW_KEYS_MAX, Newcomers
from reconverge.kernel.node import Node
from reconverge.kernel.reporting.asks import ASKS_MAX
from reconverge.kernel.reporting.cell_reports import unreport_cell
from reconverge.kernel.reporting.deferred import LimitInterval, hold_back, let_ask_again
from reconverge.kernel.reporting.renaming import (
    begin_under_new_name,
    give_up_allowance,
    give_up_lapsed_allowance,
    say_again,
)
from reconverge.kernel.reporting.requests import let_stay, mark_dirty, report_recalled, without_granted
from reconverge.kernel.shard import ShardState
from reconverge.kernel.table.dropping import Dropped
from reconverge.kernel.table.lookup import drop
from reconverge.kernel.table.state import NODES_LEASE_NS
from reconverge.kernel.table.table import Table
from reconverge.limit.limit import DRAINED, Limit
from reconverge.policies import Policy
from reconverge.settings import MILLION

COMPANIONS_MAX = 8
"""If no more cells than this wait for a report, an early exchange reports all of them, so that no regular exchange is
needed."""
LEASE_WINDOWS = 10
LEASE_MIN_NS = 30_000_000_000
LEASE_MAX_NS = 600_000_000_000
"""The longest lease: ten minutes. A lease lasts ten windows, but at least LEASE_MIN_NS and at most LEASE_MAX_NS. For
the allowances of a limit, these are ten of its own windows, or ten times the time in which its bucket drains; for the
node's name, ten of the longest windows of all limits. A node gives up allowances whose lease ends before that of its
name, one limit at a time."""


class Kernel(Node):
    """All limits of one node; it makes the reports about them to the hub, and applies the hub's answers."""

    def __init__(
        self,
        clock: Clock,
        *,
        namespace: str,
        interval_ns: int,
        interval_min_ns: int,
        keys_max: int,
        key_bytes_max: int,
        shards: int = 1,
        alone: bool = False,
        lease_ns: int | None = None,
        lease_min_ns: int = 0,
        new_keys_max: int = NEW_KEYS_MAX,
        asks_max: int = ASKS_MAX,
        hash_key: bytes = bytes(HASH_KEY_BYTES),
    ) -> None:
        super().__init__(
            clock,
            namespace=namespace,
            keys_max=keys_max,
            key_bytes_max=key_bytes_max,
            shards=shards,
            alone=alone,
            hash_key=hash_key,
            asks_max=asks_max,
        )
        self.interval_ns = interval_ns
        self.interval_min_ns = interval_min_ns
        self.intervals_ns: tuple[int, ...] = (interval_ns,)
        """The sync interval of the node and those of limits that have their own, in nanoseconds; the shortest first."""
        self.soonest_ns = interval_min_ns
        """The shortest time between two exchanges that the node or any limit allows, in nanoseconds."""
        self._lease_min_ns = max(LEASE_MIN_NS, lease_min_ns)
        self.lease_ns = lease_ns or self._lease_min_ns
        """The nanoseconds from the hub's last answer on for which the node's name and its allowances last."""
        self._lease_fixed = lease_ns is not None
        self.slot_lease_ns = NEVER_NS
        """The shortest lease of slots, in nanoseconds, within which the node must exchange; NEVER_NS without slots."""
        self.tables: dict[str, Table] = {}
        self._reported: dict[str, list[Table]] = {}
        """By a limit's name at the hub: this node's tables that are reported under that name and have other names
        here."""
        self.composites = Composites(self)
        self.room = Room(self)
        self.newcomers = Newcomers(self, new_keys_max)
        self.dropped = Dropped(self, self._reported, forget=self.newcomers.forget)
        self.take_in_again = self.dropped.take_in_again

    def declare(self, name: str, limit: Limit, policy: Policy) -> Table:
        """Returns the table of the limit `name`: the limit's keys and counts on this node. Makes it if there is none.

        Raises LimitConflict if the name has another limit or policy already.
        """
        self.composites.refuse(name, limit)
        return self.table(name, limit, policy)

    def table(self, name: str, limit: Limit, policy: Policy) -> Table:
        """Returns the table of a limit, or makes it, as `declare` does; `name` may also be that of one quota."""
        table = self.tables.get(name)
        if table is None:
            self._lengthen_lease(self.lease_with(limit))
            made = Table(self, name, limit, policy, lease_ns=self.lease_of(limit), peers=self.tables)
            # In one step: a signal handler may have declared it meanwhile, and counts in that table already.
            table = self.tables.setdefault(name, made)
            if limit.slots:
                self.slot_lease_ns = min(self.slot_lease_ns, limit.window_ns)
        elif table.limit != limit:
            raise LimitConflict(name, table.limit, limit)
        elif table.policy != policy:
            raise LimitConflict(name, f"{table.policy.name} ({table.limit})", policy.name)
        return table

    def tier(self, name: str, limit: Limit, policy: Policy, *, reported_as: str) -> Table:
        """Returns a table whose limit is named `reported_as` at the hub; see `table/tiers.py`.

        Tables with the same `reported_as` share their keys if their limits differ only in how much they admit
        (`changes.CHANGEABLE`): a request on one table moves its key to that table, with the key's use. A second call
        with the same arguments returns the same table.

        Raises:
            LimitConflict: `name` has another limit, or the other tables of `reported_as` have another policy.
            InvalidLimit: a table would share keys with `limit`, but its quota cannot change to that of `limit`.
        """
        known = self.tables.get(name) or self.dropped.held(name)
        if known is not None:
            if known.dropped:
                with contextlib.suppress(Reentry):  # the next request takes it in
                    known.lock.run(self.dropped.take_in_again, known)
            if (known.limit, known.reported_as) != (limit, reported_as):
                raise LimitConflict(name, known.limit, limit)
            return known
        self.composites.refuse(name, limit)
        self.composites.refuse(reported_as, limit)
        others = self._reported.get(reported_as, [])
        if not others and reported_as in self.tables:
            raise LimitConflict(reported_as, self.tables[reported_as].limit, limit)
        first = next((each for each in others if each.counts_like(limit)), None)
        if first is None:  # a request may still revive a dropped table
            first = next((each for each in self.dropped.held_of(reported_as) if each.counts_like(limit)), None)
        if first is not None and (problem := first.why_not(limit)) is not None:
            raise InvalidLimit(str(limit), f"{first.name!r} {problem}")
        beside = next(
            (each for each in others if each.limit.slots == limit.slots), None
        )  # tables that count apart may have another policy
        if beside is not None and beside.policy != policy:
            raise LimitConflict(name, beside.policy.name, policy.name)
        self._lengthen_lease(self.lease_with(limit))
        lease_ns = self.lease_of(limit)
        made = Table(
            self, name, limit, policy, lease_ns=lease_ns, peers=self.tables, reported_as=reported_as, counts_with=first
        )
        table = self.tables.setdefault(name, made)  # in one step, as in `table`
        if table is made:
            self._reported.setdefault(reported_as, []).append(table)
            table.join_tiers()
            if limit.slots:
                self.slot_lease_ns = min(self.slot_lease_ns, limit.window_ns)
        return table

    def lease_with(self, limit: Limit) -> int:
        """Returns the lease that the node's name has after `limit` is declared: nanoseconds from an exchange on."""
        if self._lease_fixed:
            return self.lease_ns
        if limit.slots:
            return max(self.lease_ns, limit.window_ns)
        return max(self.lease_ns, min(LEASE_WINDOWS * limit.window_ns, LEASE_MAX_NS))

    def lease_of(self, limit: Limit) -> int:
        """Returns for how many nanoseconds after the hub's last answer the node may use allowances on `limit`.

        Returns NODES_LEASE_NS if that is as long as the lease of the node's name. The node reports this lease to the
        hub, except for calendar windows: these are long, and a report has no field for their lease.
        """
        if limit.slots:
            return limit.window_ns  # for slots, window_ns is the lease; a shorter lease of the name ends it as well
        if self._lease_fixed or limit.calendar is not None:
            return NODES_LEASE_NS
        lasts_ns = limit.window_ns
        if limit.counts_as in DRAINED:
            counted = limit.counted
            lasts_ns = max(lasts_ns, limit.window_ns * counted.capacity // counted.quota)
        return max(min(LEASE_WINDOWS * lasts_ns, LEASE_MAX_NS), self._lease_min_ns)

    def _lengthen_lease(self, lease_ns: int) -> None:
        """Sets the lease of the node's name, after which every limit decides again whether to keep allowances small."""
        if lease_ns == self.lease_ns:
            return
        self.lease_ns = lease_ns
        self._choose_paths()

    def _choose_paths(self) -> None:
        for table in list(self.tables.values()):
            with table.lock:
                table.choose_path()

    def change_pace(self, pace: LimitInterval) -> None:
        """Sets the node's sync interval from now on. A limit with an interval of its own keeps it."""
        self.interval_ns, self.interval_min_ns = pace
        for table in list(self.tables.values()):
            table.take_pace()
        self.take_paces()

    def change_own_pace(self, tables: Iterable[Table], pace: LimitInterval | None) -> None:
        """Sets the sync interval of `tables` from now on; with None, they follow the node's interval."""
        for table in tables:
            table.own_pace = pace
            table.take_pace()
        self.take_paces()

    def take_paces(self) -> None:
        """Computes `intervals_ns` and `soonest_ns` from the intervals that the node and its limits have now."""
        paces = {table.own_pace for table in list(self.tables.values())} - {None}
        own = [pace for pace in paces if pace is not None]
        self.soonest_ns = min([self.interval_min_ns, *(pace.interval_min_ns for pace in own)])
        self.intervals_ns = tuple(sorted({self.interval_ns, *(pace.interval_ns for pace in own)}))

    def forget_everything(self) -> None:
        """Drops all cells, counts and allowances in a forked child, because they belong to the parent process."""
        for table in self.tables.values():
            table.start_over()
        self.dropped.start_over()
        self.composites.start_over()
        self.room.start_over()
        self.newcomers.start_over()
        self.start_over()

    @staticmethod
    def let_leave(table: Table, key: str) -> bool:
        """Drops a key with its use, or marks it for eviction; returns True if this node does not have the key any more.

        An eviction takes a few exchanges, so the caller repeats the call until it returns True. A key with new requests
        stays.
        """
        try:
            return table.lock.run(let_leave, table, key, table.now_ns())
        except Reentry:
            return False

    def due_ns(self, shard_index: int) -> tuple[int, int]:
        """Returns two moments: when the shard's next early exchange is due, and when its next regular exchange is."""
        shard = self.shards[shard_index]
        at_once = shard.dirty or shard.round or self.room.wanted or self.newcomers.any_wait(shard)
        regular_ns = -NEVER_NS if at_once else shard.agenda.due_ns()
        return shard.early_ns, regular_ns

    def pending(self, shard_index: int) -> int:
        """Returns how many keys wait for a report to this shard."""
        shard = self.shards[shard_index]
        return len(shard.dirty) + len(shard.round) + len(shard.later) + self.newcomers.waiting(shard)

    def take(
        self,
        shard_index: int,
        *,
        now_ns: int,
        cells_max: int,
        early: bool,
        in_touch: bool,
        begins: bool = False,
        due: Container[int] | None = None,
        leaving: bool = False,
    ) -> tuple[tuple[LimitReport, ...], Reports, bool, bool]:
        """Makes a batch: returns reports of limits, reports of keys, whether more are due, and whether no key waits.

        With `early`, reports only urgent keys, and the others if they are few. A regular exchange begins a round, a
        series of batches that reports all changed keys, if `begins` is True, and otherwise continues one. The batch is
        under way until `install` or `take_back` is called. `due` has the sync intervals whose limits are due, None for
        all intervals; of other limits, only urgent keys are reported. `leaving` is for a node that stops: it reports
        everything.
        """
        if shard_index in self.flights:
            self.take_back(shard_index)  # an exception out of a signal handler prevented it
        shard = self.shards[shard_index]
        more = handed_over = False
        held: list[Cell] = []
        indexes: dict[str, int] = {}
        if begins:
            shard.begin_round()
        waiting = shard.dirty if early else shard.round
        try:
            if len(self.intervals_ns) > 1 or len(shard.later):
                more = shard.later.sort(waiting, due, cells_max)
                if due is not None and not early:
                    hold_back(shard, due, now_ns, held)
            newer, again_ns = self.newcomers.hand_over(shard, waiting, now_ns, cells_max, unmetered=leaving)
            handed_over = True
            makes_room = not (early or leaving) and self.room.sweep(now_ns, shard)
            cells, later = due_cells(shard, now_ns, early, begins or leaving, COMPANIONS_MAX, cells_max)
            shard.early_ns = min(shard.early_ns, again_ns)
            if shard.askers and not leaving:
                cells = without_granted(shard, cells, now_ns)
            more = more or newer or makes_room or (leaving and bool(shard.dirty))
            if held:
                let_ask_again(shard, held)
            reports = report_cells(cells, indexes, now_ns, in_touch, self._drop)
            everything = not (shard.dirty or shard.round or self.room.wanted)
            limits = self._limit_reports(shard, indexes, now_ns, due)
            shard.under_way_ns = now_ns  # first: to take a key for one under way does no harm, as it only stays
            self.flights[shard_index] = reports
        except BaseException:  # out of a signal handler, say, if this is the main thread
            if not handed_over:
                self.newcomers.queue_again(shard)
            if shard_index not in self.flights:
                shard.under_way_ns = NEVER_NS
            self._put_back(shard, held, now_ns)
            raise
        return limits, reports, later or more, everything

    def round_goes_on(self, shard_index: int, due: Container[int] | None) -> bool:
        """Returns whether the round in progress still has keys to report; `due` has the sync intervals that are due."""
        shard = self.shards[shard_index]
        return bool(shard.round) or shard.later.holds(due)

    def install(self, shard_index: int, answer: Answer, *, heard_ns: int, now_ns: int) -> None:
        """Applies the hub's answer to the batch under way, and ends that batch."""
        reports = self.flights[shard_index]
        farewells = self.room.farewells(reports)  # first: after an exception here, the batch is still under way
        try:
            del self.flights[shard_index]
            self.shards[shard_index].under_way_ns = NEVER_NS
            news = apply_answers(reports, answer.cells, heard_ns, now_ns)
            self.room.hear(farewells, answer.cells, now_ns)
            self._tell(news)
            for table in list(self.tables.values()):
                table.tallies[shard_index].confirm()
            for each in self.after_answers:
                each(now_ns)
        except BaseException:  # likewise
            self.flights.pop(shard_index, None)
            self.shards[shard_index].under_way_ns = NEVER_NS
            self._hear_again(self.shards[shard_index], reports)
            raise

    def _tell(self, cells: Iterable[Cell]) -> None:
        """Wakes the requests that wait for the keys of these cells, because there may be room now."""
        for cell in cells:
            for table in self.tables[cell.table.name].tiers:
                self.tables[table.name].tell(cell.key)

    def _hear_again(self, shard: ShardState, reports: Reports) -> None:
        """Queues all keys of a batch again, because its answer was applied only in part; wakes waiting requests."""
        known = set(self._cells_of(shard))
        shard.unconfirmed = sum(cell.unconfirmed for cell in known)
        kept = [cell for cell in reports.cells if cell in known]
        for cell in kept:
            mark_dirty(cell)
        self._tell(cell for cell in kept if cell.waiters)

    def give_up_lapsed_allowances(self, shard_index: int, *, now_ns: int) -> None:
        """Drops the allowances whose lease had ended when the hub's answer came at `now_ns`.

        The hub may have granted these allowances to other nodes. The node keeps its name, so the hub goes on counting
        its use.
        """
        shard = self.shards[shard_index]
        for table in list(self.tables.values()):
            if table.lease_ns == NODES_LEASE_NS or now_ns < shard.leased_ns + table.lease_ns:
                continue
            if table.name in shard.voided or shard.leased_ns == -NEVER_NS:
                continue
            for cell in table.all_cells():
                if cell.shard is shard:
                    table.lock.run(give_up_lapsed_allowance, cell)
            shard.voided.add(table.name)  # last, so that an exception on the way leaves no allowance behind

    def rebase(self, shard_index: int, *, now_ns: int) -> None:
        """Moves all keys of a shard into the right windows, because the estimate of the hub's clock was corrected."""
        rebase_cells(self._cells_of(self.shards[shard_index]), now_ns)

    def take_back(self, shard_index: int) -> None:
        """Puts the reports of the batch under way, which got no answer, back into their queues to be sent again."""
        reports = self.flights.get(shard_index)
        if reports is None:
            return  # its answer was applied before something else failed
        for cell, report in zip(reports.cells, reports, strict=True):
            cell.table.lock.run(unreport_cell, cell, report)
        self.flights.pop(shard_index)  # last: after an exception all is done again, which does no harm
        self.shards[shard_index].under_way_ns = NEVER_NS

    def open_account(self, shard_index: int) -> None:
        """Subtracts what the hub has confirmed from each limit's sums of charges, because a new account begins at zero.

        An account is the name under which the hub sums up the node's charges.
        """
        for table in list(self.tables.values()):
            table.lock.run(table.tallies[shard_index].drop_confirmed)

    def say_everything_again(self, shard_index: int) -> None:
        """Queues every key of a shard to be reported in full, because the hub has lost its data.

        The hub's answers do not prolong the node's lease until it has all these reports.
        """
        shard = self.shards[shard_index]
        self._unconfirm_tallies(shard_index)
        shard.keeps_until_ns = -NEVER_NS
        for cell in self._cells_of(shard):
            cell.table.lock.run(say_again, cell)

    def start_under_new_name(self, shard_index: int, *, hub_remembers: bool, now_ns: int) -> None:
        """Drops every allowance of a shard, because the lease has ended and the node gets a new name.

        If `hub_remembers`, the hub goes on counting the reported use under the old name. Otherwise the hub has lost its
        data, and the node reports all use again.
        """
        shard = self.shards[shard_index]
        shard.unconfirmed = 0
        if not hub_remembers:
            self._unconfirm_tallies(shard_index)
        for cell in self._cells_of(shard):
            cell.table.lock.run(begin_under_new_name, cell, hub_remembers, now_ns)

    def give_up_allowances(self, shard_index: int, *, now_ns: int) -> None:
        """Marks all allowances of a shard to be given back with the last reports, because the node stops."""
        shard = self.shards[shard_index]
        for cell in self._cells_of(shard):
            cell.table.lock.run(give_up_allowance, cell, now_ns)

    def report_recalled(self, shard_index: int, recalls: Iterable[Recall] | None, now_ns: int) -> None:
        """Requests early reports of the keys that the hub has recalled, if this node holds allowances on them.

        The hub recalls a key if another node lacks capacity of it. If `recalls` is None, this hub does not recall keys;
        then no charges go unreported for long.
        """
        if (recalls is not None) != self.hub_recalls:
            self.hub_recalls = recalls is not None
            self._choose_paths()
        shard = self.shards[shard_index]
        for name, key, needs_milli in recalls or ():
            first = self.tables.get(name)
            for table in self._reported.get(name, []) + ([] if first is None else [first]):
                cell = table.cells.get(key)
                if cell is not None and cell.shard is shard:
                    table.lock.run(report_recalled, cell, needs_milli, now_ns)

    def look_around(self, shard_index: int) -> None:
        """Makes the next decision about each key take the slow path, which starts the exchange loop if none runs."""
        shard = self.shards[shard_index]
        for table in list(self.tables.values()):
            first = 0
            while True:
                first = table.lock.run(table.cells.look_around, shard, first)
                if first == 0:
                    break
            if table.overflow is not None:
                table.overflow.room = -1

    def _put_back(self, shard: ShardState, held: list[Cell], now_ns: int) -> None:
        """Puts the keys `held`, and all keys taken at `now_ns`, back into their queues. May be called twice."""
        let_ask_again(shard, held)
        for cell in self._cells_of(shard):
            if cell.reported_ns == now_ns or (cell.due_ns == NEVER_NS and not cell.dirty):
                mark_dirty(cell)  # it was reported, or taken off the agenda for a report
            elif cell.dirty and not cell.fresh:
                shard.dirty.append(cell)
            if cell.urgent:
                shard.urgent.append(cell)
                shard.early_ns = min(shard.early_ns, cell.early_ns)

    def _unconfirm_tallies(self, shard_index: int) -> None:
        for table in list(self.tables.values()):
            table.tallies[shard_index].unconfirm()

    def _drop(self, cell: Cell) -> None:
        """Drops a key of which nothing needs to be remembered."""
        let_stay(cell)
        cell.shard.agenda.forget(cell)
        if drop(self.tables[cell.table.name], cell):
            self.keys -= 1

    def _cells_of(self, shard: ShardState) -> list[Cell]:
        return [cell for table in list(self.tables.values()) for cell in table.all_cells() if cell.shard is shard]

    def _limit_reports(
        self, shard: ShardState, indexes: dict[str, int], now_ns: int, due: Container[int] | None
    ) -> tuple[LimitReport, ...]:
        """Returns the reports of the limits in `indexes`, and then those of due limits whose sums have changed."""
        for table in list(self.tables.values()):
            if table.tallies[shard.index].changed and (due is None or table.interval_ns in due):
                indexes.setdefault(table.name, len(indexes))
        return tuple(self._limit_report(self.tables[name], shard, now_ns) for name in indexes)

    def declared(self, table: Table, shard_index: int) -> LimitReport:
        """Returns the report of a table's limit with its present settings, and with 0 as its charges and refunds."""
        return self._declared(table, self.shards[shard_index], self.clock.monotonic_ns())

    def _limit_report(self, table: Table, shard: ShardState, now_ns: int) -> LimitReport:
        charged = refunded = 0
        # The hub keeps one account for all tables with the same name there.
        for each in self._reported.get(table.reported_as, (table,)):
            more, back = table.lock.run(each.tallies[shard.index].report)
            charged, refunded = charged + more, refunded + back
        return self._declared(table, shard, now_ns, charged, refunded)

    def _declared(
        self, table: Table, shard: ShardState, now_ns: int, charged: int = 0, refunded: int = 0
    ) -> LimitReport:
        limit, calendar, capacity = table.limit, table.calendar, table.capacity
        window_ns, window, opens_us, closes_us = table.window_ns, 0, 0, 0
        if calendar is not None:
            window_ns, window = calendar.longest_ns, calendar.number(now_ns + shard.offset_ns)
            opens_us, closes_us = calendar.opens_ns(window) // 1000, calendar.opens_ns(window + 1) // 1000
        # Positional arguments: this runs for each batch, and keywords would take three times as long.
        return LimitReport(
            table.reported_as,
            limit.counts_as,
            window_ns // 1000,
            table.quota,
            capacity,
            table.policy.overshoot_milli,
            charged,
            refunded,
            limit.variant,
            table.withheld,
            window,
            opens_us,
            closes_us,
            0 if table.own_pace is None else table.interval_ns // 1000,
            capacity - capacity * self.region_ppm // MILLION,
            0 if table.lease_ns == NODES_LEASE_NS else table.lease_ns // 1000,
        )
