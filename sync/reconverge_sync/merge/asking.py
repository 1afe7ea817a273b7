"""Decides for which keys the hub grants single requests rather than allowances, and how much it grants to them.

Part of the merge rule, so `exchange.lua` does the same in Redis.
"""

# Theory of operation.
#
# The problem. An allowance is granted ahead of the requests that will use it, so one node may hold it unused while
# another refuses. With a large quota for each node that matters little. Of five a minute, four nodes hold one each and
# no node the fifth; of thirty-two nodes most hold nothing, and refuse while others are idle.
#
# How it works. A node whose requests ask in doubt reports that, and how much cost waits for the answer
# (`CellReport.waiting`). The free part of a key that is scarce for its nodes then stays at the hub, and the hub grants
# a node the waiting cost, as far as there is room, and nothing in advance. The next report gives back what was not
# used. A node that does not ask is granted allowances in advance, as usual, from what is left.
#
# Vouchers. A sliding window's use fades on its node and at the hub alike. With allowances in whole requests each node
# would keep the fraction that has faded until it amounts to a request, and has been reported. So the grant to an ask is
# no allowance but a number of vouchers, which are valid in the window of the answer only: with them a node charges, and
# its other use fades for the benefit of all. The most that a node may have in use at any moment, its right, is its
# present use and its vouchers:
#
#     node: charged in this window <= charged when it reported + vouchers; in the next window it has none
#     hub:  right of a node that floats = charged when it reported + vouchers + what has not faded of the window before
#
# The first line is at most the second at every moment and on both sides of a window's edge, so rights that sum to the
# capacity at most keep the fleet below it. The ledger keeps them as an allowance of what was in use, rounded up, and
# the vouchers (`Entry.allowance`), which is at least the right. So a batch that may read no more entries counts
# allowances alone, which is too careful and never too much. Sums of fractions are made of whole numbers (`Floating`),
# so that both twins add up the same in any order.
#
# A charge with a date counts whole until it expires, so it leaves no parts of requests behind, and the grant to an ask
# is an allowance, as in a fixed window. The hub does not know the dates: a node reports that a charge has expired, and
# until then the charge is in its allowance, which is too careful and never too much.
#
# The hub's own bucket. A bucket drains on its node at the node's allowance's part of the rate. Once all nodes have used
# some of it, each has room for a part of a request, and none for a whole one. So the level of a bucket that is kept at
# the hub is at the hub: the entry of departed nodes holds it, and it drains at the part of the rate that no node has as
# an allowance. A node that reports pours into it what it has charged since its last report, and holds nothing but
# vouchers, with which nothing drains:
#
#     level of the fleet <= level at the hub + vouchers <= capacity - allowances
#
# A charge that its node has yet to report counts as a voucher, which does not drain; so the hub's level may also drain
# at the vouchers' part of the rate: at all of the rate that allowances do not take. That changes with allowances, so
# the hub drains it at every merge (`LedgerCell.drain_pool`), whether the key is kept at the hub or not.
#
# A node may begin or cease to keep its bucket at the hub, which is called to float, with any answer; its report shows
# which (`CellReport.floats`), and its bucket's level moves with the answer. If the answer is lost, the level counts on
# both sides until it has drained. If a node floats and the hub's data have no entry of it, the hub takes its bucket to
# be full.
#
# The level that a node gives back may have drained meanwhile; the node computes and reports by how much at most.
#
# Which keys. The hub keeps a key if fewer than SMALL requests, or SMALL_BUCKET, come to each node that gets requests
# for it. A request counts by its cost: 1000 an hour are five requests of cost 200, and allowances of the rest on each
# node would be too small for any of them. The cost is a mean (`LedgerCell.unit`), so that one dear request does not
# make a thousand cheap ones ask; and the hub keeps the mean, since most reports come while no request waits. Of other
# keys the hub keeps the last requests, as a grant in advance would lie idle on a node without requests; but only if
# asking about all that the limit admits costs no more than a few exchanges would. A key that was not asked about in the
# window before may be asked about by all nodes any moment.

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from reconverge.hub.report import AT_HUB, SEALED, CellAnswer, CellReport
from reconverge_sync.merge.bounds import Fill
from reconverge_sync.merge.granting import raise_base
from reconverge_sync.merge.ledger import DEPARTED, Entry, Floating, LedgerCell, LimitRule
from reconverge_sync.merge.sealing import lacks_share, raise_share

SMALL = 8
"""The hub grants a key to single requests, not by allowances in advance, if the capacity is fewer requests than this
for each node."""
SMALL_BUCKET = 32
"""The value of SMALL for buckets. It is larger, because the part of a bucket that no node holds drains nothing."""
TIGHT_FIXED = 2
"""In a fixed window, the hub grants a key to single requests while at most this many requests for each node are
left."""
TIGHT = 16
"""The value of TIGHT_FIXED for sliding windows and buckets, in which nodes come to the last requests again and
again."""
JOINING = 16
"""After this many batches of a node, all nodes that were started at the same time have joined."""
NODES_MIN = 4
"""In a fleet of this many nodes or more, at least this many count as nodes of any key, because nodes with few requests
for a key come and go."""
UNIT_WEIGHT = 8
"""The mean cost of requests that ask moves towards each new cost by their difference divided by this number. A mean of
1, as at the beginning, becomes the new cost at once."""
CHEAP = 3
"""The hub grants no key to single requests if its limit admits more requests than this for each node and interval.
Their asks would cost much more than the exchanges that they replace."""


def nodes_of(cell: LedgerCell, live: int, sequence: int) -> int:
    """Returns how many nodes may receive requests for a key, including the node that has sent the batch.

    The cell's sums must not contain that node's entry during the call. A new node, whose batch has a low `sequence`,
    does not count as the only node, because others may be about to join.
    """
    known = max(cell.active + 1, live if cell.last_demand == 0 else min(live, NODES_MIN))
    return known if sequence > JOINING else max(known, 2)


def note_cost(cell: LedgerCell, report: CellReport) -> None:
    """Updates the mean cost of a request for the key from the report, if a request on its node waits for an answer."""
    cost = min(report.ask, report.waiting)
    if cost > 0:
        cell.unit = cost if cell.unit == 1 else cell.unit + (cost - cell.unit) // UNIT_WEIGHT


def is_small(cell: LedgerCell, nodes: int) -> bool:
    """Returns whether the key's capacity is so small for `nodes` nodes that they begin windows without allowances."""
    return cell.capacity < SMALL * nodes * cell.unit


def stays_at_hub(
    cell: LedgerCell, nodes: int, entry: Entry, report: CellReport, rule: LimitRule, hub_us: int, pace_us: int
) -> bool:
    """Returns whether the hub grants this key to the reporting node by the request, not by allowances in advance.

    It does so if requests on the node ask about the key, and if its capacity, or the free part of it, is small.
    """
    if not report.asks or nodes < 2 or not rule.bounded:
        return False
    # Judged by the admissions that the limit allows and not by the demand, which changes: a key that moves to and fro
    # is worse off than at either place. A refused request asks no more than once in an interval.
    admitted = rule.quota if rule.bucket else cell.capacity
    if float(admitted) * pace_us > float(CHEAP * nodes * cell.unit) * rule.window_us:
        return False
    if is_small(cell, nodes) or (rule.bucket and cell.capacity < SMALL_BUCKET * nodes * cell.unit):
        return True
    pool = cell.capacity - (cell.used(rule, hub_us) + entry.used(rule, cell, hub_us)) - cell.silent
    return pool < (TIGHT_FIXED if rule.fixed else TIGHT) * nodes * cell.unit


@dataclass(slots=True)
class HubAsk:
    """The waiting requests by which a node asks the hub about a key, and the amount that the hub grants to them."""

    report: CellReport
    small: bool
    """Whether the key's capacity is so small that nodes begin windows without allowances."""
    floating: Floating | None = None
    """The sums of all other entries whose allowances float (`Entry.floats`); None if not all entries were read, so that
    their allowances count in full."""
    granted: int = 0
    sealing: bool = False
    """Whether the node may have a sealed share of the key, for windows in which the hub is away; see
    `merge/sealing.py`."""
    share: int = 0
    """The node's sealed share of the key."""
    holds: int = 0
    """For a bucket, the allowance that the node had before the hub kept the key, and may use until it has received the
    answer."""

    def move_in(self, cell: LedgerCell, entry: Entry, rule: LimitRule, hub_us: int, fill: Fill) -> None:
        """For a bucket, moves the level at the node into the hub's own bucket; the answer informs the node.

        Then clears the entry's ask, because the request waits for this answer only, so the hub need save nothing up for
        it. The ask stays for slots, and for a bucket of which other nodes hold allowances, as these do not end with a
        window.
        """
        if rule.bucket:
            self.holds = entry.allowance
            cell.pour(rule, entry.previous, hub_us, fill._replace(own_milli=entry.previous))
            entry.previous = entry.debt = 0
        if not rule.slots and (not rule.bucket or cell.allowances_of_nodes == 0):
            entry.ask = 0

    def needs_all(self, cell: LedgerCell, entry: Entry, rule: LimitRule, hub_us: int, lent: int) -> bool:
        """Returns whether all entries must be read to find out whether there is room for the waiting cost.

        They must be read if the allowances of all nodes leave too little room, while their use in the sliding window
        leaves some. In a fixed window they are read to find the node's share.
        """
        if rule.fixed and self.sealing:
            return lacks_share(cell, entry)
        waiting = self.report.waiting
        if waiting == 0 or not rule.sliding:
            return False
        used, capacity = entry.used(rule, cell, hub_us), cell.capacity + lent
        if capacity - cell.allowances - cell.debts - cell.reserved - max(entry.allowance, ceil(used)) >= waiting:
            return False
        return capacity - cell.used(rule, hub_us) - used >= 1

    def grant(
        self,
        cell: LedgerCell,
        node: str,
        entry: Entry,
        rule: LimitRule,
        hub_us: int,
        lent: int,
        *,
        small_allowances: bool,
    ) -> None:
        """Grants the node's waiting requests as much of their cost as there is room for.

        The cell's sums must not contain the node's `entry` during the call.
        """
        report = self.report
        if self.sealing:
            self.share = entry.base if self.floating is None else raise_share(cell, entry, report, rule, self.floating)
        elif not self.small:
            raise_base(cell, entry, report, rule, small_allowances=small_allowances)
        self._grant(cell, node, entry, rule, hub_us, cell.capacity + lent)

    def grant_shares(self, cell: LedgerCell, node: str, entry: Entry, rule: LimitRule, hub_us: int) -> None:
        """Grants as `grant` does, but no more in all than the sealed shares that nodes have reported.

        What nodes may hold that have reported nothing since the hub lost its data fits beside these shares.
        """
        self._grant(cell, node, entry, rule, hub_us, min(cell.capacity, cell.bases + entry.base))

    def _grant(self, cell: LedgerCell, node: str, entry: Entry, rule: LimitRule, hub_us: int, capacity: int) -> None:
        report = self.report
        if report.waiting == 0 or (rule.fixed and (report.epoch != cell.epoch or cell.resting(rule))):
            return
        used = entry.used(rule, cell, hub_us)
        others: float = cell.allowances + cell.debts
        if self.floating is not None:
            others = others - self.floating.held + self.floating.rights(rule, cell, hub_us)
        if rule.bucket and DEPARTED in cell.entries:
            pool = cell.entries[DEPARTED]
            others = others - pool.allowance + pool.previous / 1000
        room = floor(capacity - others - cell.reserved - max(entry.allowance, used))
        most = report.waiting if room >= report.ask else report.waiting - report.ask  # a smaller one than the largest
        self.granted = max(0, min(most, room))
        if self.granted == 0:
            if entry.ask > 0 and not cell.first:
                cell.first, cell.reserved = node, entry.ask
            return
        entry.ask = 0
        entry.vouchers = self.granted if entry.floats(rule) or (rule.bucket and self.holds == 0) else 0
        entry.allowance = max(entry.allowance, ceil(used)) + self.granted
        entry.debt = 0

    def with_ask(self, answer: CellAnswer, entry: Entry, rule: LimitRule) -> CellAnswer:
        """Returns `answer` for a key that the hub keeps: marked as such, and with the granted amount as its allowance.

        The use in the returned answer includes vouchers of other nodes: amounts granted to single requests that asked.
        """
        current = answer.current + (0 if self.floating is None else self.floating.vouchers)
        allowance = answer.allowance
        if rule.sliding:
            allowance = min(entry.current + self.granted, answer.capacity)
        elif rule.bucket:
            allowance = min(self.granted, answer.allowance)
        base = answer.base
        if rule.sliding or self.sealing:
            base = min(self.share, base)
        elif self.small or entry.sealed:
            base = 0
        nodes = answer.nodes + AT_HUB + (SEALED if rule.fixed and self.sealing else 0)
        return answer._replace(allowance=allowance, base=base, current=current, nodes=nodes)
