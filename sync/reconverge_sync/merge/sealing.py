"""Sealed shares: the part of a small quota that each node may use in a later window if the hub has fallen silent.

Part of the merge rule, so `exchange.lua` does the same in Redis.
"""

# Theory of operation.
#
# The problem. A small quota is exact because its free part stays at the hub (`asking.py`), so while the hub is away
# nothing of it can be granted. If each node began to decide by itself, N nodes that are cut off would admit N times the
# quota. If each used a fixed part always, most of the quota would be refused while the hub is there.
#
# How it works. With the answers about a key that it keeps, the hub gives a node a sealed share of the key, in
# `Entry.base` (in fixed windows it may also be the allowance for the next window). All shares and all allowances that
# outlast a window sum to the capacity at most. A share is worth nothing while its node hears the hub. It opens, that
# is, becomes the node's allowance, in a window W if the window before W began long enough after `heard_us`, the hub's
# time in the last answer that the node has received:
#
#     node:  opens window W if  begin(W - 1) >= heard_us + SEALED_AFTER_S
#     hub:   `NodeRecord.heard_us`, as reported in the node's last batch, is never later than the node's own;
#            sets the share aside (counts it as an allowance) in window V if
#            begin(V) >= the reported heard_us + SEALED_AFTER_S
#
# So when a share opens in W, the hub has set it aside in W and in all of the window before, whose use still fades in W.
# Node and hub compare only times of the hub's clock; the clocks of nodes and the time that messages take do not matter.
# A node without answers cannot be distinguished from a dead one, so the share of a dead one stays aside until its lease
# is over.
#
# A node that returns. Its first batches report what it has used, 256 keys in each. With each answer `heard_us` rises,
# and the next batch reports that, although the share of a key that is reported later may have been open. So the record
# keeps when the node may have been apart (`apart_from_us`, `apart_until_us`), and the first answer that it received
# when it came back (`back_us`). An entry that was not reported since counts as opened in the windows that began in that
# time, and in the window after each, in which that use fades (and one more, as a clock may be fast).
#
# Fixed windows. Use ends with its window, so both rules are about `begin(W)` in place of `begin(W - 1)`. A node decides
# once, when it enters W, and so does the ledger (`Entry.catch_up`): a record that arrives later shows nothing else
# about W. When a window begins the sums contain all shares, until a scan takes out the closed ones. Nodes also begin
# windows with bases that are not sealed. What an entry's base is follows the node's reports alone (`Entry.sealed`): a
# node with a base reports no FLOATS, and gets no share before the base has gone back; a node with a share gets no base
# before that has gone back. So an answer that is lost leaves a node with what the ledger has, or with less.
#
# Only windows of clock time have shares, and only up to SEALED_WINDOW_MAX_S, so none of a calendar: a share of a longer
# window would not open before the lease ends. A node gets a share from the second request for a key on, so that a key
# that is asked for once costs no message to give the share back.

from __future__ import annotations

from dataclasses import dataclass

from reconverge.hub.headroom import SEALED_AFTER_S, SEALED_INTERVALS, SEALED_WINDOW_MAX_S, sealed_after_us
from reconverge.hub.report import WHOLE_MAX, Batch, CellReport
from reconverge_sync.merge.ledger import Entry, Floating, LedgerCell, LimitRule, NodeRecord

SEALED_REQUESTS = 2
"""A node gets a share of a key for which all nodes together have had at least this many requests in this window and the
last."""
APART_KEPT_US = 3 * SEALED_WINDOW_MAX_S * 1_000_000
"""For how many microseconds the hub remembers that a node was apart, that is, may have been without answers:
`may_have_opened` looks at three windows."""
AHEAD_US = 1_000_000
"""By how much a node's clock may be ahead of the hub's, in microseconds, when it opens a window."""


def seals(rule: LimitRule) -> bool:
    """Returns whether nodes may have sealed shares of the limit's keys."""
    by_the_clock = rule.sliding or (rule.fixed and not (rule.slots or rule.first_hit))
    return by_the_clock and rule.bounded and rule.window_us <= SEALED_WINDOW_MAX_S * 1_000_000


def says_sealed(report: CellReport, rule: LimitRule) -> bool:
    """Returns whether the node begins no window with its base while it hears the hub: it has none, or a share."""
    return rule.fixed and report.floats and seals(rule)


def heard(record: NodeRecord | None, batch: Batch, hub_us: int) -> NodeRecord:
    """Returns the new record of the node whose `batch` arrives at `hub_us`; `record` is its record so far."""
    # A node that has had no answer opens nothing before it has had this one.
    heard_us = batch.heard_us or hub_us
    apart = (0, 0, 0) if record is None else _apart(record, heard_us, hub_us)
    return NodeRecord(hub_us, batch.sequence, batch.interval_us, batch.lease_us, batch.leaving, heard_us, *apart)


def _apart(record: NodeRecord, heard_us: int, hub_us: int) -> tuple[int, int, int]:
    """Returns when the node was last apart, from and until, and the hub's time in the first answer after that."""
    if _opens_us(record) > hub_us + AHEAD_US or heard_us <= record.heard_us:
        return record.apart_from_us, record.apart_until_us, record.back_us
    goes_on = hub_us - record.apart_until_us <= APART_KEPT_US
    return record.apart_from_us if goes_on else _opens_us(record), hub_us + AHEAD_US, heard_us


def _opens_us(record: NodeRecord) -> int:
    """Returns from when the node counts as apart: if a window begins then or later, shares open in the one after."""
    return record.heard_us + sealed_after_us()


def is_apart(record: NodeRecord, begins_us: int) -> bool:
    """Returns whether a node may open its shares in the window that begins at `begins_us`, or in the next one.

    The node's reports arrive, but perhaps it receives no answer. Even if it has opened nothing yet, its share is not
    free: the node may open it in the next window, in which use of this one still fades.
    """
    return _opens_us(record) <= begins_us


def may_have_opened(record: NodeRecord, entry: Entry, begins_us: int, rule: LimitRule) -> bool:
    """Returns whether use of a share that the node may have opened can count in the window from `begins_us` on."""
    if is_apart(record, begins_us):
        return True
    # Closed by an answer that the node has heard, or reported since. In a fixed window that answer does not close it,
    # as it may be about a report of the window before.
    if entry.seen_us >= record.back_us + rule.fixed:
        return False
    # A share that opened in a sliding window did so because the one before began in that time. Its use fades in the one
    # after.
    windows = (begins_us - steps * rule.window_us for steps in range(1 if rule.fixed else 3))
    return any(record.apart_from_us <= each < record.apart_until_us for each in windows)


def is_closed(record: NodeRecord | None, entry: Entry, cell: LedgerCell, rule: LimitRule) -> bool:
    """Returns whether a node certainly begins the cell's fixed window without its base, which is a sealed share."""
    if not entry.sealed or record is None or not seals(rule):
        return False
    return not may_have_opened(record, entry, cell.begins_us(rule), rule)


def opened_before(record: NodeRecord | None, until_us: int) -> bool:
    """Returns whether a node that is gone may have opened shares before its lease ended at `until_us`."""
    return record is None or _opens_us(record) <= until_us


def set_aside(entry: Entry, cell: LedgerCell, rule: LimitRule, hub_us: int) -> None:
    """Counts a sealed share, which its node may be using, as the allowance of its entry.

    The cell's sums must not contain the entry during the call.
    """
    if entry.base > entry.allowance:
        entry.allowance, entry.vouchers = entry.base, 0
        entry.follow_use(rule, cell, hub_us)


def may_have_share(batch: Batch) -> bool:
    """Returns whether the node of `batch` exchanges so often that it opens no share between two exchanges."""
    return SEALED_INTERVALS * batch.interval_us <= SEALED_AFTER_S * 1_000_000


def lacks_share(cell: LedgerCell, entry: Entry) -> bool:
    """Returns whether `raise_share` may change the share of the node, whose `entry` the cell's sums do not contain."""
    part = cell.capacity // (cell.active + 1)
    return entry.base > part + 1 or (entry.base <= part and cell.bases + entry.base < cell.capacity)


def raise_share(cell: LedgerCell, entry: Entry, report: CellReport, rule: LimitRule, others: Floating) -> int:
    """Raises the node's share to an equal part for each node that needs the key. Returns the share to answer.

    The cell's sums must not contain the node's `entry` during the call, and `others` is of a scan in the same merge. If
    the parts leave a rest, the first nodes get one more, while the others' parts still fit. A share that has to shrink
    is answered at once as the smaller one; the ledger keeps the larger one until the node has reported the smaller.
    """
    demand = cell.last_demand + cell.window_demand + report.window_demand
    if entry.base == 0 and demand < SEALED_REQUESTS * cell.unit:
        return 0
    part = cell.capacity // (len(others.shares) + 1)
    if cell.capacity > part + sum(max(part, share) for share in others.shares):
        part += 1
    # Allowances that float, and those of fixed windows, end with their window; all others last, and so does a share.
    lasting = cell.allowances + cell.debts - others.held if rule.sliding else 0
    if rule.sliding or report.epoch == cell.epoch:  # the ledger has counted the old share in the cell's window
        entry.base = max(entry.base, min(part, cell.capacity - cell.bases - lasting))
    return min(entry.base, part)


@dataclass(slots=True)
class Openings:
    """When any node of a shard may open shares, as far as the records show that `note` was called with."""

    opens_us: int = WHOLE_MAX
    """No node opens a share in a window that begins before this moment."""
    apart_until_us: int = 0
    """When the last of the nodes that were apart came back, or lost its lease."""

    def note(self, record: NodeRecord, hub_us: int) -> None:
        """Takes a node's record into account. A node opens no share after its lease has ended."""
        until_us = record.seen_us + record.lease_us
        if record.gone and hub_us <= until_us:
            return  # it has left, and given its shares back
        if hub_us <= until_us:
            self.opens_us = min(self.opens_us, _opens_us(record))
        elif opened_before(record, until_us):
            self.apart_until_us = max(self.apart_until_us, until_us)
        self.apart_until_us = max(self.apart_until_us, record.apart_until_us)

    def possible(self, begins_us: int, window_us: int) -> bool:
        """Returns whether use of a share that any node has opened can count in the window from `begins_us` on."""
        return self.opens_us <= begins_us or begins_us - 2 * window_us < self.apart_until_us
