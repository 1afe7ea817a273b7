"""The merge rule: how a hub turns the reports of all nodes into allowances that never sum to more than the capacity.

This is the definition; `exchange.lua` does the same in Redis, and a test feeds both the same batches. It does no I/O
and reads no clock.
"""

# Theory of operation.
#
# The problem. Every node decides alone, at once, and the limit belongs to all of them. Between two exchanges a node
# knows only the use that the others had reported when the hub last answered. If each admits while that total is below
# the limit, N nodes that are cut off from each other admit N times the limit.
#
# What does not work. The limit divided by N never exceeds it, and refuses most of it where traffic is uneven. Batches
# that nodes take from one counter are lost with a node that dies, and cannot be taken back from one that is idle. A
# node that hands capacity to another one directly needs an answer to know that it has arrived, and loses or doubles it
# when the answer is lost.
#
# How it works. For each key of a limit (a cell) the hub keeps one entry per node: what the node has used, and its
# allowance, the use up to which it may go alone. Two rules of order hold the sum of all allowances to the capacity, at
# every moment and on both sides of the network:
#
#       node                                           hub
#     1 lowers its allowance
#     2 reports use, allowance, need    --------------->  3 replaces the node's entry (never adds to it)
#                                                    4 free = capacity - allowances of all nodes - their debts
#                                                    5 raises the node's allowance towards its share of what is free
#     6 installs the allowance          <---------------    and answers with absolute numbers
#
#     allowances that nodes know of  <=  allowances in the ledger  <=  capacity
#
# If a report is lost, the ledger has the higher allowance, which is too careful. If an answer is lost, likewise: the
# node goes on below the allowance that the ledger has for it. A batch that arrives twice, or after a newer one, has a
# sequence number that is not higher than the last and changes nothing.
#
# An allowance comes back to the hub in two ways only: its node reports so, or the node's lease is over. A node counts
# its lease from when it sent the batch, the hub from when it merged it, so the node stops first. Whether a silent node
# is dead or cut off cannot be known; so its allowance counts as used until such use would have faded (`Entry.depart`).
# Even before its lease is over, the allowance of a node that misses SILENT_INTERVALS exchanges counts as used, and its
# need is ignored.
#
# A hub that has lost its data believes the allowances that nodes report, and grants nothing until all nodes that hold
# some have had the time to report (`_learning`). A node may also forget a key whose use still counts: it reports so,
# and the hub keeps that use as it keeps that of a node that has left (`_take_over`).
#
# What a merge may cost. A hub runs one batch at a time, and every node waits for it. So a merge works on sums that are
# kept as entries change, and reads all entries of a cell only when a sum may have become wrong by time alone: `_due`
# decides when that is, at most once in an interval, and SCANNED_MAX bounds the entries read for one batch. Each batch
# begins with another cell, so that a batch that runs out of scans does not leave out the same cells every time.
#
# Amounts are integers, and fractions are worked out with plain division, in the order written here, because Lua has
# nothing but doubles and both twins must agree to the last unit.
#
# Related: the escrow method (O'Neil, ACM TODS 1986) and the demarcation protocol (Barbara and Garcia-Molina, VLDB
# Journal 1994), which keep a sum below a bound by local limits that are lowered before others are raised; bounded
# counters (Balegas et al., SRDS 2015). Leases: Gray and Cheriton, SOSP 1989.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from reconverge.hub.report import (
    FORGOTTEN,
    NOT_TAKEN,
    Answer,
    Batch,
    CellAnswer,
    CellReport,
    Lent,
    LimitReport,
    Loan,
    Status,
    Totals,
    Wishes,
    cells_of,
)
from reconverge_sync.merge import bounds
from reconverge_sync.merge.asking import HubAsk, is_small, nodes_of, note_cost, stays_at_hub
from reconverge_sync.merge.bounds import Fill
from reconverge_sync.merge.granting import grant
from reconverge_sync.merge.hearing import follow_reset, lower, take_counts, within_fill
from reconverge_sync.merge.ledger import DEPARTED, Account, Entry, Floating, LedgerCell, LimitRule, NodeRecord
from reconverge_sync.merge.loans import Identity, Lending
from reconverge_sync.merge.recalling import Recalls
from reconverge_sync.merge.sealing import (
    Openings,
    heard,
    is_apart,
    is_closed,
    may_have_opened,
    may_have_share,
    opened_before,
    says_sealed,
    seals,
    set_aside,
)
from reconverge_sync.merge.windows import is_ahead, place_epoch, same_window

SILENT_INTERVALS = 3
"""A node that has sent no batch for this many of its own intervals, and for at least an interval and SPEAK_UP_US, may
be using all of its allowances, so the hub counts them as used."""
SPEAK_UP_US = 1_000_000
"""The longest time, in microseconds, that a node waits between two attempts to reach its hub, or between two exchanges
if it has nothing to report. So once a hub is back, all nodes that reach it report within one interval and this time."""
ADOPTED_US = 1
"""The value of `born_us` after an operator has adopted a loss: so long ago that the hub waits for no report; see
`merge/orders.py`."""
CALM_INTERVALS = 8
"""The hub counts all nodes' entries of a key anew after this many intervals at the latest."""
SCANNED_MAX = 3000
"""The most entries of other nodes that the hub reads for one batch; the sums of further keys stay as they are. All
other nodes wait while the hub merges one batch."""
TURN = 61
"""For each batch of a node, the hub begins this many keys further on in the batch than for the node's last batch. This
is a prime number, so that every key comes first at some batch."""
TOMBSTONE_US = 3_600_000_000
"""How long the hub remembers the name of a departed node, in microseconds, so that its late messages change nothing."""
ACCOUNT_KEPT_US = 24 * 3_600_000_000
"""How long an account (the charges of one process) may be silent, in microseconds, before its numbers are added to the
sum of all closed accounts."""
SWEEP_US = 60_000_000
"""The microseconds between two searches for expired names, accounts and cells."""
SWEPT_AT_ONCE = 1000
"""The most keys that one step of a search for expired keys looks at."""
CELLS_MAX = 1 << 20
"""The most keys that a shard keeps by default, in about a gigabyte. A full shard goes on with the keys that it has, and
answers NOT_TAKEN about further keys."""
SWEEP_WHEN_FULL_US = 5_000_000
"""The microseconds between two searches of a full shard for expired keys."""


@dataclass(slots=True)
class Scans:
    """The entries that the merge rule may still read for one batch, and what it has read for all cells of the batch."""

    left: int
    """How many more entries may be read."""
    shortest_lease_us: int | None = None
    """The shortest lease of all known nodes; None until a cell has needed it."""


@dataclass(slots=True)
class LedgerShard:
    """All data that a hub keeps for one shard: the records of nodes, the accounts, and the cells."""

    generation: str = ""
    born_us: int = 0
    """When these data began, by the hub's clock; 0 if it is certain that no node holds allowances from before them."""
    lost: bool = False
    """Whether a node has reported allowances from before these data began, so that earlier data were lost."""
    adopted: int = 0
    """How often an operator has adopted a loss of data, that is, ended the wait for reports."""
    grace_us: int = 0
    """How much longer than usual, in microseconds, the hub waits for the nodes' first reports to these data."""
    swept_us: int = 0
    calm_us: int = 0
    """The earliest moment of the hub's clock at which a node can count as silent, as of the hub's last look at all
    nodes."""
    stirred_us: int = 0
    """When a node last left or lost its lease, by the hub's clock, as far as the hub has noticed."""
    live: int = 0
    """How many nodes were live at the hub's last look at all nodes; 0 before the first look."""
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    cells: dict[tuple[str, str, int, str], LedgerCell] = field(default_factory=dict)
    lending: Lending = field(default_factory=Lending)
    recalls: Recalls = field(default_factory=Recalls)
    openings: Openings | None = None
    """When nodes may open sealed shares, as of the last look at all nodes; None before the first look."""
    cells_max: int = CELLS_MAX

    @property
    def full(self) -> bool:
        """Returns whether the shard has no room for further keys."""
        return len(self.cells) >= self.cells_max

    def merge(self, batch: Batch, *, hub_us: int, candidate: str) -> Answer:
        """Merges a batch and returns the answer; `candidate` names the data (generation) if they begin with it."""
        return next(filter(None, self.merging(batch, hub_us=hub_us, candidate=candidate)))

    def merging(self, batch: Batch, *, hub_us: int, candidate: str) -> Iterator[Answer | None]:
        """Merges a batch like `merge`, but one key for each step, so that the caller can do other work in between.

        Yields None after each key, and finally the answer. For a batch that no agent would send, raises HubUnavailable
        before anything has changed.
        """
        bounds.check(batch)
        if not self.generation:
            self.generation, self.born_us = candidate, hub_us
        record = self.nodes.get(batch.node)
        if record is not None and (record.gone or hub_us - record.seen_us > record.lease_us):
            record.gone = True
            self.stirred_us = hub_us
            yield Answer(hub_us, self.generation, Status.LAPSED, ())
            return
        if record is not None and batch.sequence <= record.sequence:
            yield Answer(hub_us, self.generation, Status.STALE, ())
            return
        # The node has seen other data than these: nodes may hold allowances that these data do not contain.
        if batch.generation not in ("", self.generation):
            self.lost = True
            self.born_us = self.born_us or hub_us
        if hub_us - self.swept_us > (SWEEP_WHEN_FULL_US if self.full else SWEEP_US):
            yield from self._sweep(hub_us)
        heard_us = hub_us if record is None else record.seen_us
        self.live += (record is None) - batch.leaving
        self.nodes[batch.node] = heard(record, batch, hub_us)
        self._look_around(batch, hub_us)
        account = self.accounts.setdefault(batch.account, Account(hub_us))
        account.seen_us = hub_us
        for limit in batch.limits:
            known = account.limits.get(limit.name, Totals(0, 0))
            # Both only ever rise, so the larger is the newer.
            account.limits[limit.name] = Totals(max(known.charged, limit.charged), max(known.refunded, limit.refunded))
        reports, scans = tuple(batch.cells), Scans(SCANNED_MAX)
        count = len(reports)
        first = batch.sequence % count * TURN % count if count > 0 else 0
        answers: dict[int, CellAnswer] = {}
        for turn in range(count):
            place = (first + turn) % count
            answers[place] = self._merge_cell(batch, reports[place], hub_us, scans)
            yield None
        in_order = tuple(answers[place] for place in range(count))
        recalls = self.recalls.since(heard_us, batch.node)
        yield Answer(hub_us, self.generation, Status.MERGED, in_order, recalls, max(self.live, 0))

    def _look_around(self, batch: Batch, hub_us: int) -> None:
        """Updates `calm_us`, `stirred_us` and `live` by the records of all nodes.

        Until the moment `calm_us`, no key's entries need to be counted anew because of silent nodes.
        """
        if batch.leaving:
            self.stirred_us = hub_us
        # To go through all nodes costs 0.3 us for each, so it waits until one of them may be silent.
        if hub_us <= self.calm_us and self.openings is not None:
            self.calm_us = min(self.calm_us, hub_us + _silent_after_us(batch.interval_us))
            self.openings.note(self.nodes[batch.node], hub_us)
            return
        silent_us: list[int] = []
        self.openings = Openings()
        for record in self.nodes.values():
            self.openings.note(record, hub_us)
            if not record.gone and hub_us - record.seen_us > record.lease_us:
                self.stirred_us = max(self.stirred_us, record.seen_us + record.lease_us)
            elif not record.gone:
                silent_us.append(record.seen_us + _silent_after_us(record.interval_us))
        self.calm_us = min(silent_us, default=0)
        self.live = len(silent_us)

    def totals(self) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes since the shard's data began, by limit."""
        all_accounts = Account(0)
        for account in self.accounts.values():
            all_accounts.add(account)
        return all_accounts.limits

    def wishes(self, hub_us: int) -> Wishes:
        lease_us = max((record.lease_us for record in self.nodes.values()), default=0)
        return Wishes(hub_us, self.generation, lease_us, self.lending.current(lease_us, hub_us))

    def lend(self, lender: str, sequence: int, loans: Sequence[Loan], hub_us: int) -> Lent:
        return self.lending.lend(self.cells, self.generation, lender, sequence, loans, hub_us)

    def _sweep(self, hub_us: int) -> Iterator[None]:
        """Removes nodes and accounts that have been silent for long, and expired keys; yields between its steps."""
        self.swept_us = hub_us
        for name, record in list(self.nodes.items()):
            if hub_us - record.seen_us > record.lease_us + TOMBSTONE_US:
                del self.nodes[name]
        for name, account in list(self.accounts.items()):
            # Nodes open a new account after half of this time, so that none that is folded comes back.
            if name != DEPARTED and hub_us - account.seen_us > ACCOUNT_KEPT_US:
                self.accounts.setdefault(DEPARTED, Account(hub_us)).add(account)
                del self.accounts[name]
        expired: list[tuple[str, str, int, str]] = []
        for number, (identity, cell) in enumerate(self.cells.items(), start=1):
            if hub_us > cell.expires_us:
                expired.append(identity)
            if number % SWEPT_AT_ONCE == 0:
                yield
        for identity in expired:
            del self.cells[identity]
            self.lending.forget(identity)

    def _merge_cell(self, batch: Batch, report: CellReport, hub_us: int, scans: Scans) -> CellAnswer:
        limit = batch.limits[report.limit]
        rule = LimitRule.of(limit)
        report = bounds.within_bounds(limit, report, bucket=rule.bucket, dated=rule.dated, slots=rule.slots)
        name, counted, window_us, variant = cells_of(limit)
        identity = (name, counted + variant, window_us, report.key)
        cell = self.cells.get(identity)
        if cell is not None and hub_us > cell.expires_us:
            cell = None
        epoch = place_epoch(limit, rule, report, None if cell is None else cell.epoch, hub_us)
        if cell is None:
            if self.full and identity not in self.cells:
                return _not_taken(epoch, rule)
            cell = self._begin(identity, epoch, rule, hub_us)
        cell.keep(rule.lives_us(batch), hub_us)
        cell.go_to(rule, epoch)
        report = follow_reset(cell, _in_window(limit, report, cell, rule), rule, hub_us)
        if rule.bucket:
            cell.drain_pool(rule, hub_us)
        entry = cell.entries.get(batch.node)
        if entry is None:
            entry = Entry(epoch=cell.epoch, reset_us=cell.reset_us)
            report, fill = within_fill(cell, entry, report, rule)
            self._welcome(cell, entry, batch, report, rule, hub_us, fill)
        else:
            entry.catch_up(rule, cell, closed=self._is_closed(cell, batch.node, entry, rule))
            cell.count(entry, -1)
            self._set_aside(cell, batch.node, entry, rule, hub_us)
            report, fill = within_fill(cell, entry, report, rule)
            lower(cell, entry, report, rule)
        if rule.sliding and seals(rule) and is_apart(self.nodes[batch.node], cell.begins_us(rule)):
            set_aside(entry, cell, rule, hub_us)
        take_counts(cell, entry, report, rule, hub_us, fill)
        entry.lease_us = rule.own_lease_us(batch)
        cell.entries[batch.node] = entry
        lent = self.lending.lent(identity, hub_us)
        note_cost(cell, report)
        asked = self._hear_ask(cell, batch, entry, report, rule, hub_us, fill)
        unsure = self._unsure(cell, rule)
        grants = scans.left > 0 or not unsure
        if scans.left > 0 and (
            unsure
            or self._due(cell, entry, batch, rule, hub_us)
            or (asked is not None and asked.needs_all(cell, entry, rule, hub_us, lent))
        ):
            scans.left -= len(cell.entries) - 1  # all but the node's own
            floating = self.scan(cell, batch, rule, hub_us)
            if asked is not None:
                asked.floating = floating
        if cell.first == batch.node:
            cell.first, cell.reserved = "", 0  # the hub saves up nothing for a node from that node's own allowance
        answer = self._answer(cell, batch, report, entry, rule, hub_us, lent, asked, scans, grants=grants)
        self.recalls.look(cell, entry, batch, report, rule, hub_us, asked)
        self.lending.look(identity, cell, rule, rule.pace_us(batch), hub_us)
        self._forget_if_empty(identity, batch, report, rule, hub_us, scans)
        return answer

    def _hear_ask(
        self,
        cell: LedgerCell,
        batch: Batch,
        entry: Entry,
        report: CellReport,
        rule: LimitRule,
        hub_us: int,
        fill: Fill,
    ) -> HubAsk | None:
        """Returns what a node asks for, if the hub keeps the key; None if it grants the node allowances in advance."""
        nodes = nodes_of(cell, self.live, batch.sequence)
        if entry.base > 0 and _is_share(entry, rule) and self._learning(cell, batch, rule, hub_us):
            nodes = max(nodes, 2)  # others held the rest, and may be cut off
        if batch.leaving or not stays_at_hub(cell, nodes, entry, report, rule, hub_us, rule.pace_us(batch)):
            return None
        small = is_small(cell, nodes)
        sealing = seals(rule) and may_have_share(batch)
        if rule.fixed:  # other keys begin windows with bases
            sealing = sealing and report.floats and (small or entry.base > 0)
        asked = HubAsk(report, small=small, sealing=sealing)
        asked.move_in(cell, entry, rule, hub_us, fill)
        return asked

    def _answer(
        self,
        cell: LedgerCell,
        batch: Batch,
        report: CellReport,
        entry: Entry,
        rule: LimitRule,
        hub_us: int,
        lent: int,
        asked: HubAsk | None,
        scans: Scans,
        *,
        grants: bool,
    ) -> CellAnswer:
        """Grants allowances to the node and returns the answer; then removes its entry if that is not needed."""
        forgotten = report.forgotten
        # A grant to a node that leaves, or forgets the key, would be lost.
        learns = self._learning(cell, batch, rule, hub_us)
        # A share that went back while the hub learns would be lost: no other node can be given it.
        kept = entry.base if learns and _is_share(entry, rule) and may_have_share(batch) and not batch.leaving else 0
        if asked is not None:
            asked.share = kept
        if grants and not (batch.leaving or forgotten):
            small_allowances = rule.small_allowances(rule.lease_of_us(batch))
            if asked is not None and learns:
                if kept > 0 and self._knows_shares(cell, batch, rule, hub_us, scans):
                    asked.grant_shares(cell, batch.node, entry, rule, hub_us)
            elif asked is not None:
                asked.grant(cell, batch.node, entry, rule, hub_us, lent, small_allowances=small_allowances)
            elif not learns:
                grant(
                    cell,
                    batch.node,
                    entry,
                    report,
                    rule,
                    hub_us,
                    lent,
                    nodes=nodes_of(cell, self.live, batch.sequence),
                    small_allowances=small_allowances,
                    may_be_silent=rule.may_be_silent(batch),
                )
        cell.count(entry)
        answer = cell.answer(rule, batch.node, entry, hub_us, lent)
        cell.note_dates(entry, rule)
        if asked is not None:
            answer = asked.with_ask(answer, entry, rule)
        elif rule.sliding or entry.sealed:
            # Beside an allowance a node needs no share.
            answer = answer._replace(base=min(kept, answer.base) if rule.sliding else 0)
        if forgotten or (entry.empty(rule) and not (asked is not None and rule.bucket)):
            cell.count(entry, -1)
            del cell.entries[batch.node]
        if not forgotten:
            return answer
        _take_over(cell, entry, rule, hub_us)
        # The hub has taken over the used overdraft as well: a node to which a request has come meanwhile may not use it
        # once more.
        return answer._replace(allowance=0, base=0, overdraft=0, nodes=FORGOTTEN)

    def _unsure(self, cell: LedgerCell, rule: LimitRule) -> bool:
        """Returns whether other nodes may use sealed shares that the cell's sum of allowances does not contain."""
        begins_us = cell.begins_us(rule)
        if rule.fixed or cell.bases == 0 or cell.scanned_us >= begins_us or not seals(rule):
            return False  # at the beginning of a fixed window, the sum contains all shares
        return self.openings is None or self.openings.possible(begins_us, rule.window_us)

    def _set_aside(self, cell: LedgerCell, name: str, entry: Entry, rule: LimitRule, hub_us: int) -> None:
        """Counts a node's sealed share as its allowance if the node may have begun to use it."""
        if entry.base == 0 or rule.fixed or not seals(rule):
            return
        record = self.nodes.get(name)
        if record is None or may_have_opened(record, entry, cell.begins_us(rule), rule):
            set_aside(entry, cell, rule, hub_us)

    def _is_closed(self, cell: LedgerCell, name: str, entry: Entry, rule: LimitRule) -> bool:
        """Returns whether the node begins the cell's window without its base."""
        return entry.epoch != cell.epoch and is_closed(self.nodes.get(name), entry, cell, rule)

    def _bring_up(self, cell: LedgerCell, name: str, entry: Entry, batch: Batch, rule: LimitRule, hub_us: int) -> None:
        """Changes the entry of a node, or that of all departed nodes, to its state at `hub_us`."""
        entry.catch_up(rule, cell, closed=self._is_closed(cell, name, entry, rule))
        entry.expire(rule, hub_us)
        if name == DEPARTED:
            entry.fade(rule, cell, hub_us)
            return
        if rule.sliding:
            entry.follow_use(rule, cell, hub_us)
        if name != batch.node:  # what that node has opened, it has just reported
            self._set_aside(cell, name, entry, rule, hub_us)

    def _begin(self, identity: Identity, epoch: int, rule: LimitRule, hub_us: int) -> LedgerCell:
        """Makes and returns the counts of a new key, in place of an expired cell of that identity."""
        self.lending.forget(identity)
        cell = self.cells[identity] = LedgerCell(epoch=epoch, capacity=rule.own, filled_us=hub_us)
        if rule.withheld > 0:
            cell.withhold(rule.withheld, hub_us)
        return cell

    def _forget_if_empty(
        self, identity: Identity, batch: Batch, report: CellReport, rule: LimitRule, hub_us: int, scans: Scans
    ) -> None:
        """Drops a key's counts at once if nothing is lost with them, and if the batch may still read all entries."""
        cell = self.cells[identity]
        if batch.node in cell.entries or scans.left <= 0 or not cell.forgettable(rule, hub_us):
            return
        if is_ahead(batch.limits[report.limit], rule, cell.epoch, hub_us):
            return
        scans.left -= len(cell.entries)
        if not cell.entries and identity not in self.lending.credits:
            del self.cells[identity]
            self.lending.forget(identity)

    def _welcome(
        self, cell: LedgerCell, entry: Entry, batch: Batch, report: CellReport, rule: LimitRule, hub_us: int, fill: Fill
    ) -> None:
        """Fills a node's new entry for a key with the allowances that the node reports.

        The hub had no entry of the node: either the node holds nothing, or the hub has lost its data since it granted
        the allowances.
        """
        entry.allowance, entry.overdraft = report.allowance, report.overdraft
        entry.base = 0 if rule.dated else report.base
        entry.sealed = says_sealed(report, rule)
        if rule.fixed and report.epoch < cell.epoch:
            # The node has yet to open this window, and will start from there.
            entry.allowance = 0 if is_closed(self.nodes[batch.node], entry, cell, rule) else report.base
        if rule.bucket and report.floats:
            cell.pour(rule, 0, hub_us, fill, least=1000 * cell.capacity)
            entry.current = report.current
        elif rule.bucket:
            entry.current = report.current - ceil(report.previous / 1000)
        # Other nodes, too, may hold allowances of this cell that these data do not contain: all must have had the time
        # to report before the hub grants anything new.
        if report.allowance > 0 or entry.base > 0 or report.overdraft > 0:
            until_us = hub_us + learning_us(batch, rule, lost=self.born_us != ADOPTED_US) + self.grace_us
            cell.learn_until_us = max(cell.learn_until_us, until_us)

    def _learning(self, cell: LedgerCell, batch: Batch, rule: LimitRule, hub_us: int) -> bool:
        """Returns whether nodes may hold allowances that they have not reported yet, so that nothing is granted now."""
        if hub_us < cell.learn_until_us:
            return True
        if not self.lost and (self.born_us == 0 or not rule.strict):
            return False
        return hub_us < self.born_us + learning_us(batch, rule, lost=self.lost) + self.grace_us

    def _knows_shares(self, cell: LedgerCell, batch: Batch, rule: LimitRule, hub_us: int, scans: Scans) -> bool:
        """Returns whether the hub may grant what nodes have reported as sealed shares, although it is `_learning`.

        No use from before the loss of data counts any more then, and what other nodes may hold fits beside the shares.
        """
        if rule.fixed or not rule.strict or self.born_us == ADOPTED_US:
            return False
        if hub_us < self.born_us + rule.counts_for_us + learning_us(batch, rule, lost=False) + self.grace_us:
            return False
        if scans.shortest_lease_us is None:  # to go through all nodes takes time
            scans.shortest_lease_us = min(record.lease_us for record in self.nodes.values())
        # A key may have been lost alone, and later. `learn_until_us` is a lease and that time after its first report.
        return hub_us >= cell.learn_until_us - scans.shortest_lease_us

    def _due(self, cell: LedgerCell, entry: Entry, batch: Batch, rule: LimitRule, hub_us: int) -> bool:
        """Returns whether all nodes' entries of a key must be counted anew, because the sums may have become wrong."""
        passed_us = hub_us - cell.scanned_us
        if cell.scanned_us == 0 or passed_us < 0 or passed_us >= CALM_INTERVALS * rule.pace_us(batch):
            return True
        if passed_us < rule.pace_us(batch):
            return False
        asked = cell.first != "" or entry.ask > 0
        if cell.restless or rule.dated or asked or cell.capacity < rule.own:
            return True
        return cell.scanned_us <= self.stirred_us or hub_us > self.calm_us

    def scan(self, cell: LedgerCell, batch: Batch, rule: LimitRule, hub_us: int) -> Floating:
        """Counts all nodes' entries of a key anew: takes out departed nodes, counts as used what silent nodes hold.

        The sums leave out the node that has sent the batch, as it gets its allowances afterwards. Returns the sums of
        the entries whose allowances float, that is, fall as their use fades (`Entry.floats`).
        """
        floating = Floating()
        cell.scanned_us = hub_us
        cell.clear(dated=rule.dated)
        first: tuple[int, str] | None = None
        lingers = False
        capacity = rule.own
        departed = Entry(cell.epoch, cell.reset_us, seen_us=hub_us)
        for name, entry in list(cell.entries.items()):
            self._bring_up(cell, name, entry, batch, rule, hub_us)
            if name == DEPARTED:
                continue
            record = self.nodes.get(name)
            seen_us = entry.seen_us if record is None else max(entry.seen_us, record.seen_us)
            lease_us = batch.lease_us if record is None else record.lease_us
            interval_us = batch.interval_us if record is None else record.interval_us
            if entry.lease_us > 0:
                lease_us = min(lease_us, entry.lease_us)
            left = record is not None and record.gone and name != batch.node
            lives_us = max(rule.lives_us(batch), rule.time_to_live_us(lease_us, interval_us))
            outlived = hub_us - seen_us > lease_us or hub_us - entry.seen_us > lives_us
            if outlived or (left and not rule.slots):
                if left and entry.allowance == 0 and entry.overdraft <= entry.debt:
                    entry.overdraft = 0  # the overdraft that a departed node has used is a part of its debt
                _let_go(cell, entry, rule, hub_us, seen_us + lease_us, record)
                departed.fold(entry, rule)
                del cell.entries[name]
                continue
            if hub_us - seen_us > _silent_after_us(max(interval_us, rule.interval_us)):
                entry.need_milli = entry.demand_milli = entry.ask = 0
                cell.silent += max(0, entry.allowance - floor(entry.used(rule, cell, hub_us)))
            lingers = lingers or left  # its work in progress may go on
            # In a rolling deployment nodes declare different capacities. The smallest is one that none of them exceeds.
            capacity = min(capacity, entry.capacity)
            if entry.ask > 0 and (first is None or (entry.ask_since_us, name) < first):
                first = (entry.ask_since_us, name)
            if name != batch.node:
                cell.count(entry)
                cell.note_dates(entry, rule)
                if entry.base > 0 or entry.need_milli > 0:
                    floating.shares.append(entry.base)
                if entry.floats(rule):
                    floating.add(entry)
        _fold_departed(cell, departed, rule, hub_us)
        if rule.sliding and DEPARTED in cell.entries:
            floating.add(cell.entries[DEPARTED])
        cell.capacity = capacity
        cell.first = "" if first is None else first[1]
        cell.reserved = 0 if first is None else _shortfall(cell, cell.entries[cell.first], rule, hub_us)
        cell.restless = cell.has_fading(rule) or first is not None or cell.silent > 0 or lingers
        return floating


def _is_share(entry: Entry, rule: LimitRule) -> bool:
    return seals(rule) and (rule.sliding or entry.sealed)


def _let_go(
    cell: LedgerCell, entry: Entry, rule: LimitRule, hub_us: int, until_us: int, record: NodeRecord | None
) -> None:
    """Ends the entry of a departed node. If it held allowances, it may have used them until `until_us`."""
    if rule.sliding and seals(rule) and opened_before(record, until_us):
        set_aside(entry, cell, rule, hub_us)
    held = entry.allowance > 0 or entry.overdraft > 0
    idle_us = until_us if held else entry.seen_us
    entry.depart(rule, cell, hub_us, idle_us)
    cell.drain_by_spare(entry, rule, hub_us, idle_us)


def _silent_after_us(interval_us: int) -> int:
    """Returns the microseconds without a batch after which a node that exchanges every `interval_us` counts as silent.

    A node with nothing to report sends a batch after SPEAK_UP_US.
    """
    return max(SILENT_INTERVALS * interval_us, SPEAK_UP_US + interval_us)


def _in_window(limit: LimitReport, report: CellReport, cell: LedgerCell, rule: LimitRule) -> CellReport:
    """Returns `report`; if windows begin with a charge, as a report of the cell's window or of the one before."""
    if not rule.first_hit:
        return report
    behind = not same_window(limit, report.epoch, cell.epoch)
    return report._replace(epoch=cell.epoch - behind)


def _not_taken(epoch: int, rule: LimitRule) -> CellAnswer:
    """Returns the answer about a key for which the shard has no room."""
    nothing = CellAnswer(*(0 for _ in CellAnswer._fields))
    return nothing._replace(epoch=epoch, capacity=rule.own, nodes=NOT_TAKEN)


def _take_over(cell: LedgerCell, entry: Entry, rule: LimitRule, hub_us: int) -> None:
    """Counts the use of a node that forgets the key, and that holds no allowance, as use of departed nodes."""
    entry.depart(rule, cell, hub_us, hub_us)
    departed = Entry(cell.epoch, cell.reset_us, seen_us=hub_us)
    departed.fold(entry, rule)
    kept = cell.entries.get(DEPARTED)
    if kept is not None:
        kept.catch_up(rule, cell)
        cell.count(kept, -1)
        kept.expire(rule, hub_us)
        kept.fade(rule, cell, hub_us)
    _fold_departed(cell, departed, rule, hub_us)
    cell.restless = cell.restless or cell.has_fading(rule)


def _fold_departed(cell: LedgerCell, departed: Entry, rule: LimitRule, hub_us: int) -> None:
    """Adds the use of nodes that have just departed to the entry of all departed nodes, and that entry to the sums.

    The caller has brought the earlier entry to the present, and taken it out of the sums.
    """
    kept = cell.entries.pop(DEPARTED, None)
    if kept is not None:
        departed.seen_us = hub_us if departed.allowance > 0 else kept.seen_us
        departed.fold(kept, rule)
    if not departed.empty(rule):
        cell.entries[DEPARTED] = departed
        cell.count(departed)
        cell.note_dates(departed, rule)


def learning_us(batch: Batch, rule: LimitRule, *, lost: bool) -> int:
    """Returns how long, in microseconds, nothing new is granted after a loss of data; `lost` if it is certain.

    A node that is cut off may use its allowances until its lease ends, and its use counts for a while after that. Slots
    do not count after the lease.
    """
    if lost and rule.strict and rule.slots:
        return max(rule.lease_of_us(batch), learning_us(batch, rule, lost=False))
    if lost and rule.strict:
        return batch.lease_us + rule.counts_for_us
    return max(2 * batch.interval_us, batch.interval_us + SPEAK_UP_US)


def _shortfall(cell: LedgerCell, entry: Entry, rule: LimitRule, hub_us: int) -> int:
    """Returns how much the node's allowance lacks to admit the request that the node asks for; 0 if it suffices."""
    return max(0, ceil(entry.ask - (entry.allowance - entry.used(rule, cell, hub_us))))
