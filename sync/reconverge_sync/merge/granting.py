"""Raises a node's allowances: towards its share of the nodes' need, never beyond the free part of the capacity.

Part of the merge rule, so `exchange.lua` does the same in Redis.
"""

# Theory of operation.
#
# Three kinds of allowances are raised here, each up to a sum of its own: the allowance (what is in use and may be used
# now), the base (the allowance with which the next fixed window begins) and the overdraft (what `balanced` may use past
# its allowance).
#
# Shares follow needs. A node's need is what it expects to use until its next exchange. If all needs fit into what is
# not used (`pool`), a node gets its need, and of the rest as much as it would keep (`slack_kept`): some of the rest
# stays free for a node that the hub has yet to hear of. If they do not fit, the pool is divided in proportion to the
# needs.
#
# The next node finds something. A node that comes first would get all that is free, and refuse nothing, while the
# second refuses until the first has given back: on a new key of a quota of a million, four nodes that came at once saw
# up to one request in nine refused. So a grant beyond a need stops at nine tenths of what is free (TAKEN_AT_ONCE); a
# need itself is granted whole.
#
# A node whose requests ask gets no more at once than an equal part of what is free for each node that has yet to come
# (`nodes` less those with a need), not even its need, but what waits now: the first request on a new key looks like a
# surge, and with a need of all the capacity no second node could admit one. What it lacks then, its requests ask for.
#
# Asks are whole. What a node had to refuse because it did not fit into its allowance is its ask. Two nodes that ask for
# 10 and get 6 each could both admit nothing, for ever. So the hub meets an ask whole or not at all, and the oldest one
# first: it saves up what comes free for that ask (`LedgerCell.first`, `LedgerCell.reserved`), and grants none of it to
# others. A node's share of the last free unit may be less than a request. An ask is met all the same: otherwise waiting
# nodes would for ever divide what is free, and each would get too little.
#
# The overdraft is what the fleet may use beyond the capacity. What allowances, departed nodes, and use that is covered
# by neither an allowance nor an overdraft take beyond the capacity counts as overdraft that is granted. Without
# the last of these, overdrafts of dead nodes would be granted anew: allowances beyond the capacity are not answered in
# full, so nodes report less than they have in use (`test_overdraft_of_leavers.py`).
#
# Bases are raised only for a node whose report is of the hub's own window. A node that has yet to open that window
# would open it with the base in this answer, while the ledger has counted its old base as its allowance: the allowances
# of one window would sum to more than the capacity. `TestProtocol` fails without `report.epoch == cell.epoch`.
#
# A bucket drains by its allowances: a node with an allowance of a third drains a third of the rate. A node in debt (use
# beyond its allowance) would drain it too slowly. Its debt is not free for the others anyway, so it may hold what is
# free up to that.

from __future__ import annotations

from math import ceil, floor, inf

from reconverge.hub.headroom import headroom_max, is_plenty, overdraft_max, slack_kept
from reconverge.hub.report import CellReport
from reconverge_sync.merge.ledger import Entry, LedgerCell, LimitRule

TAKEN_AT_ONCE = 0.9
"""The fraction of the free part that one node may take beyond its need, so that something is left for the next node."""


def grant(
    cell: LedgerCell,
    node: str,
    entry: Entry,
    report: CellReport,
    rule: LimitRule,
    hub_us: int,
    lent: int,
    *,
    nodes: int,
    small_allowances: bool,
    may_be_silent: bool,
) -> None:
    """Raises the node's allowances towards its share of all needs, by no more than is free.

    The cell's sums must not contain the node's `entry` during the call. A `lent` amount raises only the allowance of
    the present window: in the base, with which the node begins the next one, it would outlast the loan. `nodes` is how
    many nodes may receive requests for the key (`nodes_of`). `small_allowances` is true for windows that last longer
    than the node's lease, `may_be_silent` for those during which the node may be silent about the key.
    """
    capacity = cell.capacity + lent
    used = entry.used(rule, cell, hub_us)
    if rule.bucket:
        _cover_debt(cell, entry, capacity, used)
    if entry.need_milli == 0:
        return
    need, needs = entry.need_milli / 1000, (cell.needs_milli + entry.need_milli) / 1000
    share = need / needs
    pool = max(0.0, capacity - (cell.used(rule, hub_us) + used) - cell.silent)
    if not rule.fixed or (report.epoch == cell.epoch and not cell.resting(rule)):
        # Debts are use beyond allowances, and the reserved amount is saved up for the oldest ask.
        sealed = cell.bases + lent if rule.sliding and cell.bases > 0 else 0  # no lasting part of a loan beside shares
        free, target = capacity - cell.allowances - cell.debts - entry.allowance - cell.reserved - sealed, pool * share
        if pool >= needs:
            most = max(need, entry.allowance - used + ceil(TAKEN_AT_ONCE * free))
            asks = report.asks and not (may_be_silent and is_plenty(pool, needs, capacity))
            slack = slack_kept(fixed=rule.fixed, dated=rule.dated, asks=asks)
            target = min(need + slack * (pool - needs) * share, most)
            if small_allowances:
                target = min(target, headroom_max(need, pool))
        if report.asks and not rule.slots:
            target = min(target, _most_at_once(entry.allowance - used, report.waiting, free, nodes - cell.active))
        # The used part of a window does not come back for an ask; slots do, so they are saved up for it.
        left = float(capacity) if rule.slots else pool
        if report.asked > 0 or target >= 1 or 0 < entry.ask <= left:
            entry.allowance += _raise(cell, node, entry, target, left, used, free)
            entry.debt = max(0, ceil(used) - entry.allowance)
    raise_base(cell, entry, report, rule, small_allowances=small_allowances)
    if rule.overshoot_milli > 0:
        _raise_overdraft(cell, entry, rule, capacity, small_allowances=small_allowances)


def _cover_debt(cell: LedgerCell, entry: Entry, capacity: int, used: float) -> None:
    """Gives a node in debt what is free up to its debt: a bucket drains by its allowances, so no other node loses."""
    entry.allowance += max(0, min(entry.debt, capacity - cell.allowances - entry.allowance))
    entry.debt = max(0, ceil(used) - entry.allowance)


def _most_at_once(head: float, waiting: int, free: int, to_come: int) -> float:
    """Returns the most headroom of a node with `head` unused, if so many nodes are yet to come, itself included."""
    return max(head + max(0, ceil(free / to_come)), waiting) if to_come > 1 else inf


def raise_base(cell: LedgerCell, entry: Entry, report: CellReport, rule: LimitRule, *, small_allowances: bool) -> None:
    """Raises the allowance with which the next window begins, towards the node's share of the capacity."""
    own = cell.capacity
    need = entry.need_milli / 1000
    if not rule.fixed or rule.slots or report.epoch != cell.epoch or entry.need_milli == 0:
        return
    if entry.base > 0 and entry.sealed:
        return  # a share goes back before a base is granted: the answer that unseals it may be lost
    share = need / ((cell.needs_milli + entry.need_milli) / 1000)
    if report.asked > 0 or own * share >= 1:
        # Only for a node in this window: a node that has yet to open it would open it with the base in this answer.
        start = ceil(own * share)
        if small_allowances:
            start = min(start, ceil(headroom_max(need, own)))
        entry.base += max(0, min(start - entry.base, own - cell.bases - entry.base))
        entry.sealed = False


def _raise_overdraft(cell: LedgerCell, entry: Entry, rule: LimitRule, capacity: int, *, small_allowances: bool) -> None:
    """Raises the node's overdraft towards an equal part of all overdrafts; `capacity` includes loans to the hub."""
    own = cell.capacity
    overdrafts = floor(float(own) * rule.overshoot_milli / 1000)
    held = cell.allowances + entry.allowance + cell.uncovered + entry.uncovered
    overdrafts -= max(0, held - capacity)
    part = max(0, floor(overdrafts / (cell.active + 1)))
    if small_allowances:
        part = min(part, overdraft_max(own))
    free = ceil(TAKEN_AT_ONCE * (overdrafts - cell.overdrafts - entry.overdraft))
    entry.overdraft += max(0, min(part - entry.overdraft, free))


def _raise(cell: LedgerCell, node: str, entry: Entry, target: float, pool: float, used: float, free: int) -> int:
    """Returns by how much to raise the node's allowance.

    The oldest ask (a cost that did not fit into an allowance) is met in full or not at all.
    """
    head = entry.allowance - used
    wanted = ceil(target - head)
    if not 0 < entry.ask <= pool:
        return max(0, min(wanted, free))
    if not cell.first:
        wanted = max(wanted, ceil(entry.ask - head))
    raised = max(0, min(wanted, free))
    if head + raised >= entry.ask:
        return raised
    if not cell.first:
        cell.first, cell.reserved = node, ceil(entry.ask - head)
    return 0
