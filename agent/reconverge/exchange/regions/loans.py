"""A region's loans from the wide hub, the hub of all regions: what it has granted, and what the nodes may be using."""

# Theory of operation.
#
# The problem. A part of every capacity belongs to no region. The wide hub lends it to the regions that need it, and
# wants it back when another region needs it more. But a loan is in use: as allowances of nodes that may be cut off from
# the hub of their region, and as charges that count until their window is over. No message can take it back at once.
#
# Why the naive way fails. A bridge that has asked the hub of its region to lend less could report this to the wide hub
# at once. The wide hub would lend the difference to another region while nodes of this one still use it: both regions
# together would exceed the limit.
#
# How it works. Three amounts are kept for each cell:
#
#     granted    what the wide hub lets the region have
#     amount     what the region's hub was last asked to lend its nodes
#     most()     the most that nodes of the region may hold, or have held so lately that it may still count
#
# They rise in this order and fall in the opposite order. The bridge reports `most()` to the wide hub, not `amount`:
#
#     more    the wide hub grants  ->  the region's hub lends  ->  nodes hold it
#     less    nodes hold less  ->  the region's hub confirms it  ->  the bridge reports a lower allowance
#
# If messages are lost, nodes lose the loan when it ends, at a moment on the clock of the region's hub. The wide hub
# keeps the region's allowance until all use of the loan has ceased to count: within one lease after the end of the loan
# a node has reported the key, or its allowances are void; within one more lease it has got its lower allowance; and
# what it had used until then counts for as long as its limit says (`hold_ns`).
#
# `most()` falls CLOCKS_APART_NS late. The clocks of two regions' hubs may differ by that time. So a window that is over
# in one region may be open in another one, where the same part could be used once more (`peak`).
#
# A node's allowance may be lowered below what the node has used. Under steady demand every charge that expires is
# followed by another one, so an allowance that was kept as high as the use would never fall.
#
# The other half is in `merge/loans.py` of the sync package.
#
# Why there are loans. With one Redis for all regions, every exchange would cross an ocean. Fixed parts alone waste what
# is unused: if all requests come to one of three regions, two thirds of the limit. So each region has a fixed part of
# every capacity (`region_share`), which is never lent and which it uses without asking. The rest is granted by one more
# hub, at which a region is a node: for each key it has an allowance and a need, and nothing is ever charged. Merge
# rule, leases and learning after a loss are those of every hub. The region's hub adds up the loans of all lenders, so
# bridges need no election.
#
# What follows. A region that is cut off has its own part for ever; with a share of zero it has nothing. `remaining`
# counts only what the region has left. After a region's hub has lost its data, the bridge does not rely on its numbers
# of what nodes hold until the wide lease has ended. That lease outlasts the end of a loan by twice the time for which a
# charge counts, three leases of a node and some intervals; for that long the loans of a bridge that was killed for good
# are lost: with a limit by the minute and leases of ten minutes, 34 to 68 minutes. A bridge has a lender for each
# doubling of that time, so a daily limit does not lengthen the loans of a limit by the minute.

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.hub.headroom import NEED_MARGIN, SLACK_KEPT
from reconverge.hub.report import CellAnswer, Loan, Wish
from reconverge.settings import MILLION

CLOCKS_APART_NS: Final = SECOND_NS
"""The largest difference between the clocks of two regions' hubs. A loan that was given back counts as held for this
long, as its window may still be open in another region."""
HYSTERESIS: Final = 0.05
"""The fraction by which a grant must exceed the region's fair part before the region gives the excess back. So loans do
not move to and fro."""


@dataclass(eq=False, slots=True)
class Holding:
    """A region's loan for one key of one limit: what the wide hub has granted, and what nodes may hold of it."""

    wish: Wish
    shard: int
    """The number of the shard of the region's hub that keeps the cell."""
    movable: int
    """The part of the cell's capacity that belongs to no region, and is therefore lent."""
    lender: Lender
    need: int = 0
    granted: int = 0
    """The amount that the wide hub has granted and that the bridge may lend."""
    answer: CellAnswer | None = None
    """The wide hub's last answer about this cell; None before the first."""
    acked_ns: int | None = None
    """The moment at which the bridge sent the last answered batch with a report of this cell; None before the first."""
    amount: int = 0
    """The amount that the bridge last asked the region's hub to lend to nodes."""
    confirmed: bool = True
    """Whether the region's hub has confirmed `amount`."""
    maybe: int = 0
    """The most of the loan that nodes of the region may hold."""
    ends_ns: int = 0
    """The moment at which the loan ends that was last lent to nodes, in nanoseconds of the monotonic clock."""
    until_us: int = 0
    doubtful_until_ns: int = 0
    """The moment until which the region's hub does not know how much its nodes hold, as it has lost its data; 0 if it
    knows."""
    peak: int = 0
    peak_before: int = 0
    rotated_ns: int = 0
    reported: int = 0
    """The amount that the bridge last reported to the wide hub as held."""

    def most(self, now_ns: int) -> int:
        """Returns the most of the loan that nodes of the region may hold now, or may have held in the last second.

        The last second counts because another region's clock may be a second late, so that a window that has ended here
        may still be open there.
        """
        if now_ns > self.ends_ns + self.lender.hold_ns:
            self.maybe = 0
        self.peak = max(self.peak, self.maybe)
        # A node may have used the loan in a window that is over here and open in another region. So the highest amount
        # of the last second counts.
        if now_ns - self.rotated_ns >= CLOCKS_APART_NS:
            self.peak_before, self.peak, self.rotated_ns = self.peak, self.maybe, now_ns
        return max(self.peak, self.peak_before)

    def target(self, now_ns: int, loan_ns: int) -> int:
        """Returns the amount to lend to the region's nodes: the smaller of the grant and of `fair()`.

        Returns 0 if the region needs nothing, or if the wide hub has not answered for `loan_ns` nanoseconds.
        """
        if self.acked_ns is None or now_ns >= self.acked_ns + loan_ns or self.need == 0:
            return 0
        return min(self.granted, self.fair())

    def fair(self) -> int:
        """Returns the part of the grant that the region may keep, in proportion to the needs of all regions.

        These needs are those in the wide hub's last answer.
        """
        if self.need == 0 or self.answer is None:
            return 0
        pool = max(0, self.answer.capacity - self.answer.current - self.answer.silent)
        needs = max(self.answer.needs_milli / 1000, float(self.need))
        share = self.need / needs
        kept = self.need + SLACK_KEPT * (pool - needs) * share if pool >= needs else pool * share
        return self.granted if self.granted <= ceil(kept * (1 + HYSTERESIS)) else ceil(kept)


class LendCall(NamedTuple):
    """The arguments of one call of `Region.lend`, by which the bridge lends to its region, and the loans' records."""

    lender: Lender
    sequence: int
    loans: tuple[Loan, ...]
    holdings: tuple[Holding, ...]


@dataclass(eq=False, slots=True)
class Lender:
    """A name under which the bridge reports to one shard of the wide hub, as a node would, and the loans of that name.

    The wide hub must keep some loans longer than others. The bridge has one lender for each such time, `hold_ns`.
    """

    name: str
    shard: int
    hold_ns: int
    name_number: int = 0
    sequence: int = 0
    generation: str = ""
    holdings: dict[str, Holding] = field(default_factory=dict)
    under_way: tuple[Holding, ...] | None = None
    first: int = 0
    """The index of the loan at which the next batch begins, because one batch may not have room for all loans."""
    left: bool = False

    @property
    def node(self) -> str:
        """Returns the lender's name at the wide hub; the lender takes a new name after its lease has ended."""
        return f"{self.name}.{self.name_number}"


def need_of(wish: Wish, lent: int, interval_ns: int) -> int:
    """Returns how much a region must borrow for a key: what its nodes need, less the region's own part of the capacity.

    The nodes need what they have used and will use in the next two rounds, or more if their demand lasts.
    """
    per_s = wish.demand_milli / 1000
    carrying = per_s * wish.window_us / MILLION * wish.capacity / wish.quota
    soon = wish.used + NEED_MARGIN * per_s * 2 * interval_ns / SECOND_NS
    expected = wish.used + wish.needs_milli / 1000
    lacking = wish.own + lent + wish.reserved if wish.reserved else -inf
    return max(0, ceil(max(min(carrying, wish.capacity), soon, expected, lacking)) - wish.own)
