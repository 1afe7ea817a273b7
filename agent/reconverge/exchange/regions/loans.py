"""A region's loans, by key: the amount that the wide hub grants, and the part that the region's nodes may be using."""

# Theory of operation.
#
# The problem. A part of every capacity belongs to no region. The wide hub lends it to the regions that need it, and
# wants it back when another region needs it more. But what is lent is in use: as allowances of nodes that may be cut
# off from the hub of their region, and as charges that count until their window is over. No message takes it back at
# once.
#
# Why the naive way fails. A bridge that has asked the hub of its region for something back could tell the wide hub so
# at once. The wide hub would lend it to another region, while nodes of this one still use it: both regions together
# would exceed the limit.
#
# How it works. Three amounts are kept for each cell:
#
#     granted    what the wide hub lets the region have
#     amount     what the region's hub was last asked to lend its nodes
#     most()     the most that nodes of the region may hold, or have held so lately that it may still count
#
# They rise in that order and fall in the opposite one. The bridge reports `most` to the wide hub, never what was asked
# for:
#
#     more    the wide hub grants  ->  the region's hub lends  ->  nodes hold it
#     less    nodes hold less  ->  the region's hub confirms it  ->  the bridge reports a lower allowance
#
# If messages are lost, the end of a loan does the same. It is a moment on the clock of the region's hub. The wide hub
# keeps the region's allowance until all that was used under it has ceased to count: within one lease after the end of
# the loan a node has reported the cell, or its allowances are void; within one more it has got its lower allowance; and
# what it had used until then counts for as long as its limit says (`hold_ns`).
#
# `most` falls CLOCKS_APART_NS late. The clocks of two regions' hubs may differ by that, so a window that is over here
# may be open there, and what was used in it here could be used in it there once more (`peak`).
#
# A node's allowance is lowered even below what it has used. Under steady demand every charge that expires is followed
# by another one, so an allowance that was kept as high as the use would never fall.
#
# The other half is in `merge/loans.py` of the sync package.
#
# Why there are loans. One Redis for all regions would put an ocean into every exchange. Fixed parts alone waste what is
# unused: of three regions of which one is asked for 1.5 times the limit, two thirds. So each region has a fixed part of
# every capacity (`region_share`), which is never lent and needs no consent, and the rest is granted by one more hub, at
# which a region is a node: a cell per key with a right and a need, in which nothing is ever charged. Merge rule, leases
# and learning are those of every hub. Loans are kept by lender and added up, so bridges need no election.
#
# What follows. A region that is cut off has its own part for ever, and with a share of zero nothing. `remaining` is
# that of the region. After a region's hub has lost its data, the bridge does not believe its numbers of what nodes hold
# for the time of the wide lease. That lease outlasts the end of a loan by twice the time for which a charge counts,
# three leases of a node and some intervals; so the loans of a bridge that was killed for good are lost for that long:
# with a limit by the minute and leases of ten minutes, 34 to 68 minutes. A bridge has a name for each doubling of that
# time, so a daily limit keeps nothing of one by the minute.

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
    """A region's loan for one cell (one key of one limit): the wide hub's grant, and what nodes may hold of it."""

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

        The last second counts because another region's clock may be late by a second, and still in a window that is
        over here.
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
        """Returns the amount to lend to the region: the grant, or the fair part if less; 0 if none is needed."""
        if self.acked_ns is None or now_ns >= self.acked_ns + loan_ns or self.need == 0:
            return 0
        return min(self.granted, self.fair())

    def fair(self) -> int:
        """Returns the part of the grant that the region may keep, by all regions' needs in the wide hub's answer."""
        if self.need == 0 or self.answer is None:
            return 0
        pool = max(0, self.answer.capacity - self.answer.current - self.answer.silent)
        needs = max(self.answer.needs_milli / 1000, float(self.need))
        share = self.need / needs
        kept = self.need + SLACK_KEPT * (pool - needs) * share if pool >= needs else pool * share
        return self.granted if self.granted <= ceil(kept * (1 + HYSTERESIS)) else ceil(kept)


class LendCall(NamedTuple):
    """The arguments of one call of `Region.lend`, and the `Holding` of each of its loans."""

    lender: Lender
    sequence: int
    loans: tuple[Loan, ...]
    holdings: tuple[Holding, ...]


@dataclass(eq=False, slots=True)
class Lender:
    """A name under which the bridge reports to one shard of the wide hub, as if the bridge were a node.

    The bridge has one lender for each length of time for which the wide hub must keep a loan. The cells of a lender are
    those whose loans need that time.
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
    """Returns the amount that a region needs beyond its own part: for two rounds, or its lasting demand if more."""
    per_s = wish.demand_milli / 1000
    carrying = per_s * wish.window_us / MILLION * wish.capacity / wish.quota
    soon = wish.used + NEED_MARGIN * per_s * 2 * interval_ns / SECOND_NS
    expected = wish.used + wish.needs_milli / 1000
    lacking = wish.own + lent + wish.reserved if wish.reserved else -inf
    return max(0, ceil(max(min(carrying, wish.capacity), soon, expected, lacking)) - wish.own)
