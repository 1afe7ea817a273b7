"""A hub's memory: for each cell an entry of each node and their sums, and records of nodes and accounts.

The sums are kept as the entries change, so that a merge costs the same for four nodes and for four hundred; now and
then the merge rule counts them anew. `exchange.lua` keeps the same numbers in a hash.
"""

# Theory of operation.
#
# A merge reads one entry and writes one entry: it takes the entry out of the sums, changes it, and adds it again
# (`LedgerCell.count`). Every field of an entry that `count` adds up must therefore be changed only between the two, or
# while all sums are cleared and counted anew.
#
# Use fades with time, without any report. In a sliding window the sums stay as they are, and `LedgerCell.used` is asked
# for a moment. A bucket is as full as its nodes last reported. Changes that show in single entries only, such as the
# end of a date or of a lease, wait for the next scan; until then too much counts as used, and never too little.
#
# Departed nodes are one entry. When a node's lease is over, its entry is turned into what it may have used by then and
# is folded into DEPARTED; so a cell keeps one entry for all nodes that ever left. What they used goes on fading by the
# limit's own rule:
#
# - a window forgets it or lets it fade, as it does any count;
# - a bucket drains at the part of the rate that goes with no node's allowance: it is the hub's own bucket
#   (`LedgerCell.drain_pool`);
# - use with dates is kept in two parts, `current` and `previous`, each with the latest end of its members. A new
#   departure joins `current`; `previous` is never prolonged. With one part, nodes that leave now and then would
#   prolong the use of all that left before, again and again.
#
# The rate of a bucket is divided as its capacity is, and no part of the rate may be used twice. A node's bucket drains
# by the node's allowance and by nothing else: its debt (use beyond the allowance) does not drain there. The hub's own
# bucket drains by the rest of the rate. So the bucket of a node that departs has drained by its allowance, and not by
# its debt: the hub's bucket has used that part of the rate. The part that the hub's bucket did not need since the last
# merge (`LedgerCell.spare_milli`) is unused. It drains a departed node's bucket from the moment on at which that node
# could charge nothing any more; vouchers (grants to single requests) drain in no other way. If two nodes of one limit
# declare different bursts, each drains by the smaller part of the two.
#
# A key that begins without a part of its capacity (`initial`) has that part in DEPARTED from the start, where it drains
# as use does (`LedgerCell.withhold`). A key is new if the hub does not know it; nodes forget keys too easily to judge.
# So the hub remembers such keys for REMEMBERED_US.
#
# Slots (of a limit on work in progress) are counted like a fixed window that never ends: a node's `current` is what it
# has in progress, and each report replaces it. Only a departure differs. When a node's lease is over, the hub no longer
# counts what the node has in progress: the node starts nothing new then, and the slots of a process that was killed
# would never come free. A node that leaves gives back its unused slots at once. What it has in progress goes on after
# its last report, so that counts until its lease is over. A node that comes back reports what it still has in progress
# as a debt, without an allowance.
#
# The allowances that nodes report may sum to more than the capacity: after a loss of data, after a move from another
# hub, when a loan has ended or a quota was lowered. The ledger keeps them, because nodes may be using them; but
# `LedgerCell.answer` grants each node no more than there is room for. If the ledger were cut at once and the answer got
# lost, the difference would be granted to another node while the first still uses it.
from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor

from reconverge.hub.headroom import SILENCE_MAX_S, longest_silence
from reconverge.hub.report import UNBOUNDED, WHOLE_MAX, Batch, CellAnswer, LimitReport, Totals, add_totals
from reconverge.limit.limit import CONCURRENCY, DATED, DRAINED, FIRST_HIT, FIXED_WINDOW, INTERVAL
from reconverge_sync.merge.bounds import WINDOW_MAX_US, Fill


@dataclass(slots=True)
class NodeRecord:
    """The moment, number, interval and lease of a node's last batch, and whether the node has gone since."""

    seen_us: int
    sequence: int
    interval_us: int
    lease_us: int
    gone: bool
    heard_us: int = 0
    """The hub's time in the last answer that the node is known to have received (`Batch.heard_us`)."""
    apart_from_us: int = 0
    apart_until_us: int = 0
    """Between these moments the node may have been without answers, and so have used sealed shares; see
    `merge/sealing.py`."""
    back_us: int = 0
    """The hub's time in the first answer that the node received after that."""


@dataclass(slots=True)
class Account:
    """The charges of one process to each limit, and when it last reported them."""

    seen_us: int
    limits: dict[str, Totals] = field(default_factory=dict)

    def add(self, other: Account) -> None:
        """Adds the charges and refunds of another account, which is being closed."""
        add_totals(self.limits, other.limits)


DEPARTED = ""
"""The name of the entry to which the counts of departed nodes are added; no node can have this name."""
REMEMBERED_US = 7 * 24 * 3_600_000_000
"""How long the hub remembers, after its last use, a key that began without a part of its capacity: a week, in
microseconds."""


@dataclass(frozen=True, slots=True)
class LimitRule:
    """The parts of a limit's declaration that the merge rule needs."""

    window_us: int
    quota: int
    capacity: int
    fixed: bool
    """Whether a charge counts in full until its window or its slot ends: in fixed windows and for slots."""
    bucket: bool
    dated: bool
    """Whether each charge expires at a date of its own. A node then reports the sum of its charges, and for how long
    they count at most."""
    overshoot_milli: int
    first_hit: bool = False
    stepwise: bool = False
    withheld: int = 0
    interval_us: int = 0
    """The sync interval of the limit in microseconds; 0 if it is the interval of the batch."""
    apart: int = 0
    lease_us: int = 0
    """The lease of the limit's allowances in microseconds, if it is shorter than the node's lease; else 0."""
    slots: bool = False
    """Whether the limit counts work in progress, which no window ends."""

    @classmethod
    def of(cls, limit: LimitReport) -> LimitRule:
        """Returns the rule for a limit as a node declares it."""
        return cls(
            limit.window_us,
            limit.quota,
            limit.capacity,
            limit.algorithm in (FIXED_WINDOW, CONCURRENCY),
            limit.algorithm in DRAINED,
            limit.algorithm in DATED,
            limit.overshoot_milli,
            first_hit=limit.variant == FIRST_HIT,
            stepwise=limit.variant == INTERVAL,
            withheld=limit.withheld,
            interval_us=limit.interval_us,
            apart=min(limit.apart, limit.capacity),
            lease_us=limit.lease_us,
            slots=limit.algorithm == CONCURRENCY,
        )

    @property
    def own(self) -> int:
        """Returns the part of the capacity that can be granted without a loan."""
        return self.capacity - self.apart

    @property
    def sliding(self) -> bool:
        """Returns whether the use of the last window fades during the present window."""
        return not (self.fixed or self.bucket or self.dated)

    @property
    def strict(self) -> bool:
        """Returns whether the limit may never be exceeded, so that requests are refused in doubt."""
        return self.overshoot_milli == 0

    @property
    def bounded(self) -> bool:
        """Returns whether over-admission has a bound on this limit."""
        return self.overshoot_milli != UNBOUNDED

    def small_allowances(self, lease_us: int) -> bool:
        """Returns whether use counts for longer than `lease_us`, so that allowances stay small (`hub/headroom.py`)."""
        if self.slots:
            return False  # slots: the capacity that a node held is free when its lease ends
        runs_out_us: float = self.window_us
        if self.bucket:
            drains_us = float(self.window_us) * self.capacity / self.quota
            runs_out_us = max(runs_out_us, drains_us) if self.stepwise else drains_us
        return self.bounded and runs_out_us > lease_us

    def pace_us(self, batch: Batch) -> int:
        """Returns the microseconds between two exchanges of this limit's keys by the node of `batch`."""
        return self.interval_us or batch.interval_us

    def lease_of_us(self, batch: Batch) -> int:
        """Returns how long allowances on this limit belong to the batch's node, in microseconds."""
        return min(self.lease_us or batch.lease_us, batch.lease_us)

    def may_be_silent(self, batch: Batch) -> bool:
        """Returns whether the node of `batch` may leave charged keys of this limit out of its reports for a while."""
        return longest_silence(self.window_us, self.pace_us(batch), SILENCE_MAX_S * 1_000_000) > 0

    def own_lease_us(self, batch: Batch) -> int:
        """Returns the lease of allowances on this limit in microseconds, if it is shorter than the node's; else 0."""
        lease_us = self.lease_of_us(batch)
        return lease_us if lease_us < batch.lease_us else 0

    def time_to_live_us(self, lease_us: int, interval_us: int) -> int:
        """Returns for how many microseconds a key or an entry is kept after a report with that lease and interval.

        A node that holds allowances on a key reports the key again at the latest with the first exchange after twice
        the time in which its use runs out. Use runs out as a window ends, or a bucket drains. Exchanges are no further
        apart than a lease, or the allowances are void. The node's use until then counts for no longer than its use
        takes to run out once more.
        """
        lives_us = self.counts_for_us + 2 * lease_us + 4 * max(interval_us, self.interval_us)
        return max(lives_us, REMEMBERED_US) if self.withheld > 0 else lives_us

    def lives_us(self, batch: Batch) -> int:
        """Returns for how many microseconds a key or an entry is kept after a report in this batch."""
        return self.time_to_live_us(self.lease_of_us(batch), batch.interval_us)

    @property
    def counts_for_us(self) -> int:
        """Returns the microseconds after which a charge counts no more, with any algorithm."""
        runs_out_us = self.window_us
        if self.bucket:
            drains_us = min(float(self.window_us) * self.capacity / self.quota, float(WINDOW_MAX_US))
            runs_out_us = max(runs_out_us, ceil(drains_us))
        return 2 * runs_out_us

    def refilled_us(self, since_us: int, until_us: int) -> int:
        """Returns for how many microseconds between two moments a bucket has drained.

        A bucket that drains in steps drains one window's worth at each edge of a window; any other bucket drains all
        the time.
        """
        if not self.stepwise:
            return until_us - since_us
        return (until_us // self.window_us - since_us // self.window_us) * self.window_us

    def drained_milli(self, passed_us: int, allowance: int, declared: int) -> float:
        """Returns by how much a node drains a bucket in `passed_us` by its `allowance`, in thousandths of a unit.

        The node drains the same part of the rate as its allowance is of the capacity that the node has `declared`. This
        rule may come from the report of another node, with another capacity.
        """
        part = float(allowance) * self.own / self.capacity / max(self.own, declared, 1)
        return float(max(0, passed_us)) * self.quota * part / self.window_us * 1000

    def drained_by_hub_milli(self, passed_us: int, share: int) -> float:
        """Returns by how much the hub's own bucket drains in `passed_us`, in thousandths of a unit.

        `share` is the part of the capacity that is no node's allowance.
        """
        return float(max(0, passed_us)) * self.quota * share / self.capacity / self.window_us * 1000


@dataclass(slots=True)
class Entry:
    """One node's last report about one key, and the allowances that the hub has granted since then."""

    epoch: int
    reset_us: int
    seen_us: int = 0
    current: int = 0
    previous: int = 0
    """The cost charged in the window before; for a bucket, its level in thousandths at `seen_us`; for charges with
    dates, a part of departed nodes' use, which expires at `previous_until_us`."""
    allowance: int = 0
    base: int = 0
    overdraft: int = 0
    debt: int = 0
    """The use beyond the allowance, by an overdraft or by settling a request for more than was reserved."""
    need_milli: int = 0
    ask: int = 0
    ask_since_us: int = 0
    demand_milli: int = 0
    window_demand: int = 0
    capacity: int = 0
    current_until_us: int = 0
    """For charges with dates, the moment at which `current` counts no more."""
    previous_until_us: int = 0
    """For charges with dates: in the entry of departed nodes, the moment at which `previous` counts no more; in a
    node's entry, the moment before which no part of `current` expires."""
    lease_us: int = 0
    """The lease of these allowances in microseconds, if it is shorter than the node's own lease; else 0."""
    vouchers: int = 0
    """The part of the allowance that was granted to single requests that asked; see `floats`."""
    sealed: bool = False
    """Whether the node of a fixed window's key has no `base`, or has it as a sealed share; see `merge/sealing.py`."""

    def floats(self, rule: LimitRule) -> bool:
        """Returns whether the node's allowance floats: is only an upper bound, which falls as the node's use fades.

        In a sliding window this is so for a node that holds nothing, or only vouchers (amounts granted to single
        requests that asked). As its use fades, such a node admits nothing more. So it may have in use only its use that
        has not faded, and its vouchers.
        """
        return rule.sliding and (self.allowance == 0 or self.vouchers > 0)

    @property
    def uncovered(self) -> int:
        """Returns the use that neither the allowance nor the overdraft covers.

        A node has such use if its reported allowance is smaller than what it has used: the hub granted it less than it
        had used already, or the node is leaving.
        """
        return max(0, self.debt - self.overdraft)

    def follow_use(self, rule: LimitRule, cell: LedgerCell, hub_us: int) -> None:
        """Lowers the debt, and an allowance that floats, by the use that has faded in a sliding window."""
        used = ceil(self.used(rule, cell, hub_us))
        if self.vouchers > 0:
            self.allowance = min(self.allowance, used + self.vouchers)
        self.debt = min(self.debt, max(0, used - self.allowance))

    def catch_up(self, rule: LimitRule, cell: LedgerCell, *, closed: bool = False) -> None:
        """Moves the entry into the key's present window, and clears its use from before the key's last reset.

        A fixed window begins with the base; with nothing if the base is a sealed share that is certainly `closed`.
        """
        steps = cell.epoch - self.epoch
        if steps != 0:
            self.window_demand = 0
            if rule.fixed:
                # A node that departed between two windows may have begun the next without a report, and used its base
                # in it.
                keeps = rule.first_hit and self.epoch < 0 and abs(cell.epoch) - self.seen_us < rule.window_us
                self.current = self.current if keeps else 0
                self.allowance, self.debt, self.ask = max(0 if closed else self.base, self.current), 0, 0
            elif rule.sliding:
                self.previous = self.current if steps == 1 else 0
                self.current = 0
            self.epoch = cell.epoch
        if self.reset_us < cell.reset_us:
            self.previous = self.debt = 0
            if not rule.bucket:
                self.current = 0
            self.reset_us = cell.reset_us

    def used(self, rule: LimitRule, cell: LedgerCell, hub_us: int) -> float:
        """Returns the use in this entry that still counts, at `hub_us`."""
        if rule.fixed:
            return self.current
        if rule.bucket:
            return self.previous / 1000
        if rule.dated:
            return self.current + self.previous
        return self.current + _faded(self.previous, rule, cell, hub_us)

    def expire(self, rule: LimitRule, hub_us: int) -> None:
        """Removes charges with dates (of logs and slices) that count no more at `hub_us`, by the node's last report."""
        if rule.dated and hub_us >= self.current_until_us:
            self.current = self.debt = 0
        if rule.dated and hub_us >= self.previous_until_us:
            self.previous = 0

    @property
    def lasts_until_us(self) -> int:
        """Returns the moment before which no charge with a date (of a log or slices) in this entry expires."""
        if self.previous == 0:
            return self.previous_until_us if self.current > 0 else WHOLE_MAX
        return min(self.previous_until_us, self.current_until_us if self.current > 0 else WHOLE_MAX)

    def depart(self, rule: LimitRule, cell: LedgerCell, hub_us: int, idle_us: int) -> None:
        """Takes back the allowances of a node that has gone; counts as used what it may have used without a report."""
        counts = rule.bounded and (rule.bucket or hub_us - idle_us <= rule.counts_for_us)
        held = self.allowance + self.overdraft if counts else 0
        if rule.slots:
            self.current = self.allowance = 0
        elif rule.bucket:
            # The reported level may have drained by then, and been used anew, to the last thousandth. Since then the
            # node's allowance has drained it; vouchers drain nothing.
            drained = rule.drained_milli(
                rule.refilled_us(idle_us, hub_us), self.allowance - self.vouchers, self.capacity
            )
            self.previous = max(0, max(self.previous, 1000 * held) - floor(drained))
            self.allowance = ceil(self.previous / 1000)
        else:
            used = ceil(self.used(rule, cell, hub_us))
            if rule.dated and held > 0:
                # The charges that it had reported may have expired before the lease did, and then it may have used
                # the same allowance once more.
                self.current_until_us = max(self.current_until_us, idle_us + rule.window_us)
            self.previous_until_us = 0
            self.current += max(0, held - used)
            self.allowance = max(used, held)
        self.base = self.overdraft = self.debt = self.need_milli = self.ask = self.demand_milli = self.vouchers = 0
        self.sealed = False

    def fold(self, other: Entry, rule: LimitRule) -> None:
        """Adds the counts of `other`, the entry of a node that has departed, to this entry of departed nodes."""
        self.current += 0 if rule.bucket else other.current
        self.previous += other.previous
        self.allowance += other.allowance
        self.window_demand += other.window_demand
        self.current_until_us = max(self.current_until_us, other.current_until_us)
        self.previous_until_us = max(self.previous_until_us, other.previous_until_us)

    def fade(self, rule: LimitRule, cell: LedgerCell, hub_us: int) -> None:
        """Lowers the allowance in this entry of departed nodes to the use that still counts."""
        if rule.bucket:
            self.allowance = ceil(
                self.previous / 1000
            )  # the bucket has drained when the merge began, by `LedgerCell.drain_pool`
        elif rule.dated:
            if self.previous == 0:
                # So that later departures do not make this use count for longer, again and again.
                self.previous, self.previous_until_us = self.current, self.current_until_us
                self.current = self.current_until_us = 0
            self.allowance = self.current + self.previous
        elif not rule.fixed:
            self.allowance = ceil(self.used(rule, cell, hub_us))

    def empty(self, rule: LimitRule) -> bool:
        """Returns whether the entry contains nothing, as if the hub did not know the node."""
        allowances = self.allowance or self.base or self.overdraft or self.debt
        counts = self.previous or (self.current and not rule.bucket)
        return not (allowances or counts or self.need_milli or self.ask or self.window_demand)


@dataclass(slots=True)
class LedgerCell:
    """The entries of all nodes for one key of one limit, and the sums of these entries."""

    epoch: int
    capacity: int
    filled_us: int
    """The moment of `fill_milli`; for charges with dates, the moment before which none in the cell expires."""
    entries: dict[str, Entry] = field(default_factory=dict)
    fill_milli: float = 0.0
    """The level in thousandths, as of `filled_us`, of one bucket into which all nodes' charges were poured."""
    reset_us: int = 0
    scanned_us: int = 0
    """The moment at which the sums were last counted anew from all entries, by the hub's clock; 0 if the next merge
    must do so."""
    learn_until_us: int = 0
    expires_us: int = 0
    last_demand: int = 0
    first: str = ""
    """The name of the node whose ask (a request that did not fit) has waited longest; empty if none waits."""
    reserved: int = 0
    """The amount that the node `first` lacks, which the hub saves up for it."""
    restless: bool = False
    """Whether the last scan of the entries found use that fades or expires, or a node that waits for its ask."""
    silent: int = 0
    allowances: int = 0
    bases: int = 0
    overdrafts: int = 0
    debts: int = 0
    uncovered: int = 0
    """The sum of all use that neither an allowance nor an overdraft covers; see `Entry.uncovered`."""
    needs_milli: int = 0
    demand_milli: int = 0
    current: int = 0
    previous: int = 0
    window_demand: int = 0
    active: int = 0
    vouchers: int = 0
    carry_milli: float = 0.0
    """The fraction of a thousandth by which the hub's own bucket has drained up to `filled_us`, and by which its level
    has yet to be lowered."""
    spare_milli: int = 0
    """By how much more the hub's own bucket could have drained between the last two merges if it had been fuller, in
    thousandths."""
    spare_share: int = 0
    """The part of the capacity that was no node's allowance between the last two merges; the hub's own bucket drained
    by its part of the rate."""
    unit: int = 1
    """The mean cost of recent requests that asked the hub; see `merge/asking.py`."""

    def keep(self, lives_us: int, hub_us: int) -> None:
        """Makes the key's counts expire no earlier than `lives_us` microseconds from now.

        A later end is set a quarter of `lives_us` later still, so that the stored end has to be changed seldom.
        """
        if self.expires_us < hub_us + lives_us:
            self.expires_us = hub_us + lives_us + lives_us // 4

    def forgettable(self, rule: LimitRule, hub_us: int) -> bool:
        """Returns whether nothing would be lost by dropping the cell: nothing in it is held, used or needed.

        The caller checks separately whether another node has an entry in it, because all entries must be read for that.

        Some empty cells would be lost: the cell of a key that begins without a part of its capacity, as the key would
        begin so again; a cell with a reset, while charges from before the reset may yet be reported; and a cell whose
        window began with a hit, until the next window may begin.
        """
        if self.allowances or self.current or self.previous or self.needs_milli:
            return False
        if rule.withheld > 0 or hub_us < self.learn_until_us:
            return False
        if self.fill_milli > 0 or (rule.first_hit and abs(self.epoch) > hub_us - rule.window_us * (self.epoch >= 0)):
            return False
        return self.reset_us == 0 or hub_us - self.reset_us > rule.counts_for_us

    def go_to(self, rule: LimitRule, epoch: int) -> None:
        """Moves the key into the window `epoch`, unless that is the window just before the present one.

        A late report may be of that window.
        """
        if epoch > self.epoch or epoch < self.epoch - 1:
            self.roll(rule, epoch)

    def begins_us(self, rule: LimitRule) -> int:
        """Returns when the key's present window begins; only for windows of one length, without gaps between them."""
        return self.epoch * rule.window_us

    def roll(self, rule: LimitRule, epoch: int) -> None:
        """Opens the window `epoch` in place of the key's present one.

        In a fixed window the allowances start from the nodes' bases (allowances for a next window), of which the next
        scan takes out sealed shares that are closed; in a sliding window, `current` becomes `previous`.
        """
        if rule.first_hit:
            ended_us = -self.epoch if self.epoch < 0 else self.epoch + rule.window_us
            follows = abs(epoch) - ended_us < rule.window_us
        else:
            follows = epoch == self.epoch + 1
        if not (follows and self.resting(rule)):
            self.last_demand = self.window_demand if follows else 0
        self.window_demand = 0
        self.scanned_us = 0
        if rule.fixed:
            self.allowances, self.debts, self.current, self.silent = self.bases, 0, 0, 0
            self.uncovered = 0
            self.first, self.reserved = "", 0
        elif rule.sliding:
            self.previous = self.current if follows else 0
            self.current = 0
        self.epoch = epoch

    def resting(self, rule: LimitRule) -> bool:
        """Returns whether no window is open: nothing counts, and nodes start the next one with their bases."""
        return rule.first_hit and self.epoch < 0

    def has_fading(self, rule: LimitRule) -> bool:
        """Returns whether departed nodes have use that only `scan` removes; never for a bucket, which merges drain."""
        return DEPARTED in self.entries and not rule.bucket

    @property
    def allowances_of_nodes(self) -> int:
        """Returns the sum of the allowances that nodes hold; in this proportion nodes drain a bucket.

        The amount that the hub keeps in its own bucket, and amounts granted to single requests that asked, do not
        count.
        """
        pool = self.entries.get(DEPARTED)
        return self.allowances - (0 if pool is None else pool.allowance) - max(0, self.vouchers)

    def drain_pool(self, rule: LimitRule, hub_us: int) -> None:
        """Drains the hub's own bucket for the time since the last merge.

        Each node drains its own bucket by a part of the limit's rate, in proportion to its allowance. The hub's bucket
        drains by the rest. Must be called before any other change for the key. The rule is that of the present report,
        which may declare a smaller capacity.
        """
        pool = self.entries.get(DEPARTED)
        share = max(0, min(self.capacity, rule.own) - self.allowances_of_nodes)
        drained = self.carry_milli + rule.drained_by_hub_milli(rule.refilled_us(self.filled_us, hub_us), share)
        self.spare_milli, self.carry_milli, self.spare_share = floor(drained), 0.0, share
        if pool is None:
            return
        self._take_pool(pool, rule)
        self.spare_milli = max(0, floor(drained) - pool.previous)
        self.carry_milli = drained - floor(drained)
        self._fill_pool(pool, pool.previous - floor(drained), hub_us)

    def drain_by_spare(self, entry: Entry, rule: LimitRule, hub_us: int, since_us: int) -> None:
        """Drains a departed node's bucket from `since_us` on, by the rate that the hub's own bucket did not need."""
        if not rule.bucket:
            return
        drained = rule.drained_by_hub_milli(rule.refilled_us(since_us, hub_us), self.spare_share)
        spent_milli = min(self.spare_milli, floor(drained), entry.previous)
        entry.previous -= spent_milli
        self.spare_milli -= spent_milli
        entry.allowance = ceil(entry.previous / 1000)

    @property
    def pooled_milli(self) -> int:
        """Returns the level of the hub's own bucket, in thousandths of a unit."""
        pool = self.entries.get(DEPARTED)
        return 0 if pool is None else pool.previous

    def pour(self, rule: LimitRule, milli: int, hub_us: int, fill: Fill, *, least: int = 0) -> None:
        """Adds `milli` thousandths to the hub's own bucket; takes them out if `milli` is negative, down to zero.

        Afterwards the bucket is at least as full as `least`, and no fuller than `fill` allows.
        """
        pool = self.entries.get(DEPARTED)
        if pool is None:
            pool = Entry(self.epoch, self.reset_us)
        else:
            self._take_pool(pool, rule)
        self._fill_pool(pool, min(max(pool.previous + milli, least), fill.beside(pool.previous)), hub_us)

    def _take_pool(self, pool: Entry, rule: LimitRule) -> None:
        """Subtracts `pool`, the hub's own bucket, from the sums, so that it can be changed."""
        pool.catch_up(rule, self)
        self.count(pool, -1)

    def _fill_pool(self, pool: Entry, milli: int, hub_us: int) -> None:
        """Sets the level of `pool`, the hub's own bucket, and adds it to the sums again; removes an empty bucket."""
        pool.previous = max(0, milli)
        pool.allowance = ceil(pool.previous / 1000)
        pool.seen_us = hub_us
        if pool.allowance > 0 or pool.window_demand > 0:
            self.entries[DEPARTED] = pool
            self.count(pool)
        else:
            self.entries.pop(DEPARTED, None)
            self.carry_milli = 0.0

    def withhold(self, amount: int, hub_us: int) -> None:
        """Counts `amount`, the part of the capacity that a new key begins without, as used by departed nodes.

        In a bucket this part then drains like the use of departed nodes.
        """
        entry = Entry(self.epoch, self.reset_us, seen_us=hub_us, previous=1000 * amount, allowance=amount)
        self.entries[DEPARTED] = entry
        self.fill_milli = 1000.0 * amount
        self.count(entry)

    def forget(self, rule: LimitRule, reset_us: int) -> None:
        """Sets the counts to zero, because of a reset at `reset_us`; the allowances stay as they are."""
        self.reset_us = reset_us
        self.previous = self.debts = self.uncovered = 0
        self.fill_milli = 0.0
        self.scanned_us = 0
        if not rule.bucket:
            self.current = 0

    def used(self, rule: LimitRule, hub_us: int) -> float:
        """Returns the use of all entries together that still counts, at `hub_us`."""
        if rule.fixed:
            return self.current
        if rule.bucket:
            return self.previous / 1000
        if rule.dated:
            return self.current + self.previous
        return self.current + _faded(self.previous, rule, self, hub_us)

    def clear(self, *, dated: bool = False) -> None:
        """Sets all sums to zero, so that the caller can add all entries anew with `count`."""
        self.silent = self.allowances = self.bases = self.overdrafts = self.debts = self.vouchers = 0
        self.uncovered = 0
        self.filled_us = WHOLE_MAX if dated else self.filled_us
        self.needs_milli = self.demand_milli = self.current = self.previous = self.window_demand = self.active = 0

    def note_dates(self, entry: Entry, rule: LimitRule) -> None:
        """Notes when the first charge of `entry` expires, if its limit gives dates to charges."""
        if rule.dated:
            self.filled_us = min(self.filled_us, entry.lasts_until_us)

    def lasts_us(self, hub_us: int) -> int:
        """Returns for how many microseconds no charge with a date to this key expires; 0 if there is none."""
        return 0 if self.filled_us == WHOLE_MAX else max(0, self.filled_us - hub_us)

    def count(self, entry: Entry, sign: int = 1) -> None:
        """Adds an entry to the sums; subtracts it if `sign` is -1."""
        self.allowances += sign * entry.allowance
        self.bases += sign * entry.base
        self.overdrafts += sign * entry.overdraft
        self.debts += sign * entry.debt
        self.uncovered += sign * entry.uncovered
        self.needs_milli += sign * entry.need_milli
        self.demand_milli += sign * entry.demand_milli
        self.current += sign * entry.current
        self.previous += sign * entry.previous
        self.window_demand += sign * entry.window_demand
        self.active += sign if entry.need_milli > 0 else 0
        self.vouchers += sign * entry.vouchers

    def answer(self, rule: LimitRule, node: str, entry: Entry, hub_us: int, lent: int = 0) -> CellAnswer:
        """Returns the answer to `node`, whose entry is `entry`; `lent` is the amount lent to the cell now.

        Nodes may have reported more allowances than there is capacity, or may hold a loan that is over. These stay in
        the ledger until the nodes have given them back, but the answer to a node grants no more than there is room for.
        """
        capacity, overdraft = self.capacity + lent, entry.overdraft
        if rule.overshoot_milli >= 0:
            overdraft = _within(overdraft, self.overdrafts, floor(float(self.capacity) * rule.overshoot_milli / 1000))
        return CellAnswer(
            epoch=self.epoch,
            allowance=_within(entry.allowance, self.allowances, capacity),
            base=_within(entry.base, self.bases, self.capacity),
            overdraft=overdraft,
            capacity=capacity,
            free=max(0, capacity - self.allowances - self.debts),
            reserved=0 if self.first == node else self.reserved,
            current=min(ceil(self.fill_milli), WHOLE_MAX) if rule.bucket else self.current + self.previous * rule.dated,
            previous=self.lasts_us(hub_us) if rule.dated else self.previous,
            silent=self.silent,
            needs_milli=self.needs_milli,
            demand_milli=self.demand_milli,
            nodes=self.active,
            last_demand=self.last_demand,
            window_demand=self.window_demand,
            reset_us=self.reset_us,
        )


@dataclass(slots=True)
class Floating:
    """The sums of the entries whose allowances float, and so fall as their use fades; see `Entry.floats`."""

    held: int = 0
    """The sum of the allowances and debts of these entries, which the cell's sums contain."""
    current: int = 0
    """The sum of these entries' charges in the present window, and of their vouchers."""
    previous: int = 0
    vouchers: int = 0
    shares: list[int] = field(default_factory=list)
    """The sealed shares of the other nodes that have one, or need the key."""

    def add(self, entry: Entry) -> None:
        """Adds an entry, which must be in the cell's window, to these sums."""
        self.held += entry.allowance + entry.debt
        self.current += entry.current + entry.vouchers
        self.previous += entry.previous
        self.vouchers += entry.vouchers

    def rights(self, rule: LimitRule, cell: LedgerCell, hub_us: int) -> float:
        """Returns the most that the nodes of these entries may have in use.

        That is their charges that still count, and their vouchers (amounts granted to single requests).
        """
        return self.current + _faded(self.previous, rule, cell, hub_us)


def _within(amount: int, total: int, room: int) -> int:
    """Returns the part of `amount` that may stay if `total`, which contains it, must fall to `room`."""
    return max(0, amount - max(0, total - room))


def _faded(amount: int, rule: LimitRule, cell: LedgerCell, hub_us: int) -> float:
    """Returns the part of `amount`, the count of the last window, that still counts at `hub_us` in a sliding window."""
    passed_us = min(max(hub_us - cell.begins_us(rule), 0), rule.window_us)
    return float(amount) * (rule.window_us - passed_us) / rule.window_us
