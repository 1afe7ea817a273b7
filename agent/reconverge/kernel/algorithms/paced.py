"""The meters (the arithmetic) of paced limits: each request waits until the rate has paid off the request before."""

# Theory of operation.
#
# With N nodes, a node's part of the rate may be too small ever to hold a single request. So a request goes on credit,
# and the next one goes when the debt has been paid off, as in Guava's RateLimiter. The debt is paid off steadily, at
# the part of the rate that goes with the node's allowance, so that all nodes together never go faster than the quota
# allows; and each node may be ahead by one request at most, in `strict` as well. To wait for the price first would make
# the first request of an idle key late by one interval, and gain nothing over any longer time.
#
# All amounts are in cost times nanoseconds of the window, as in a bucket: whole numbers, of which a nanosecond pays off
# `quota * allowance / capacity`. Payments are rounded down, a price is rounded up, and so is the time until it is paid:
# no rounding lets a request through early. The price of warming up is the area under a straight line, so a rational
# number, and no root is needed.
#
# Timers are late. Without a correction, a queue would lose rate with every late wake-up. So the charge of a waiting
# request counts from the moment of its turn, at most CATCH_UP_NS ago.
#
# Stored permits go with the allowance: a part of them is lost when a part of the allowance is given away, and no
# permits come with an allowance that grows, so that none is stored twice. A key that was never used has been idle since
# its limit was declared, or since the fork; so forgetting an idle key changes nothing, and a limit that was just
# declared has stored nothing.
#
# Change of quota. As in Guava's `setRate`, a smooth limit that is changed keeps the time until the next request may go:
# the debt is the price of a request that has gone, at the rate that was in force then. So the debt is rescaled as the
# rate of the node is, and the stored permits as the most that can be stored. Guava ties the two together. Here a burst
# may grow while the rate does not, and then no permits are added: a burst that went back and forth would let out more
# each time. A leaky bucket keeps its level, like any bucket, and drains at the new rate: so waiting requests are let
# out at the new pace, in the same order. In a fleet a larger quota takes effect when the hub has raised the allowance,
# as for all limits.
#
# Units. All amounts are in thousandths of a request (`Limit.unit`; for a quota above 10^9 in larger units, so no number
# exceeds 10^12). With whole requests four nodes with 10/s would get 3, 3, 2 and 2 at best, and with 10/s burst 1 one
# node would have the whole rate. The table of a paced limit converts costs; the hub merges paced limits as buckets.
# Two declarations on either side of 10^9 are counted in different units during a rolling deploy, on the safe side.
#
# The bound. With N nodes and a largest cost c, leaky and warming-up limits let out rate * (t + 50 ms) + N*c over any
# time t, bursty ones rate * t + burst + N*c; without waiting there are no 50 ms. It is the same in every policy but
# `naive`, and the simulation judges by it. A request goes on credit for a hundred windows' worth at most, as a process
# that was restarted owes nothing and a crash loop needs a bound: four nodes with 5/s that are asked for 505 each admit
# 2020 at once, and nothing more for 404 seconds. A key that owes something does not leave a full node.
#
# A request that was let out of a queue is not reported as use, so that it does not tie up its node's allowance. A
# node's need is the cost that it expects and that waits, as a part of the drain, up to a hundred capacities; an
# allowance is lowered in steps of a tenth at least.
#
# Measured: four processes, one Redis, `strict`, ten seconds of saturation (`tests/limiter/test_outflow.py`). 100/s let
# out 100.1, by process 24.4 to 25.9; 10/s burst 1 with 8, 4, 2 and 2 waiting let out 10.0, by process 4.9, 2.6, 1.3 and
# 1.2. Allowances settle within about a tenth of a proportional part. `usage().allowance` is in whole requests, and may
# be 0.

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from reconverge.clock import MILLISECOND_NS, NEVER_NS
from reconverge.kernel.algorithms.bucket import Bucket
from reconverge.kernel.cell import Cell, lease_until_ns
from reconverge.limit.limit import LEAKY_BUCKET, SMOOTH_BURSTY, Limit

CATCH_UP_NS = 50 * MILLISECOND_NS
"""The longest delay of a waiting request, in nanoseconds, that costs no rate. Timers are late by a millisecond, and on
a busy machine by some tens of milliseconds."""


class PacedTerms(NamedTuple):
    """The rate at which a key of a paced limit pays off its debt, and the most permits that it can store."""

    rate: int
    """The amount that one nanosecond pays off at the node's allowance, times `capacity`; zero without an allowance."""
    whole: int
    """The amount that one nanosecond pays off at the rate of the whole limit, times `capacity`."""
    capacity: int
    stored_most: int


class LeakyBucket(Bucket):
    """A bucket for which requests can also wait in a queue; the first of them goes when the bucket is empty.

    So the interval after a request from the queue is its cost divided by the node's part of the rate, even if several
    requests would fit into the bucket together. `cell.level` is how full the bucket is. `cell.credit` is the part of
    the level charged by requests from the queue: the allowance need not cover it, because it has drained before the
    next request goes.
    """

    leaves_in_use = False

    def __init__(self, limit: Limit, *, merged_only: bool) -> None:
        super().__init__(limit, merged_only=merged_only)
        self._quota *= limit.unit
        self._capacity *= limit.unit
        self._whole = limit.quota * limit.capacity * limit.unit**2

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Drains the bucket. While requests wait, keeps in `cell.late` what drains in vain, as timers fire late."""
        drained = self._drained(cell, now_ns)
        cell.credit = min(cell.credit, cell.level)  # a refund may have lowered the level
        surplus = drained - cell.level - cell.used * self._window_ns
        if cell.used or not cell.waiters:
            cell.late = 0
        elif surplus > 0:
            cell.late = max(cell.late, min(cell.late + surplus, self._late_most(cell)))
        cell.credit = max(0, cell.credit - drained)
        self._drain(cell, drained, now_ns)

    def own(self, cell: Cell, now_ns: int) -> int:
        return self.used(cell, now_ns)

    def turn_ns(self, cell: Cell, ahead: int, now_ns: int) -> int:
        """Returns the nanoseconds until a request may go behind requests of the cost `ahead`.

        Returns NEVER_NS if the node has no allowance.
        """
        return self._paid_off_ns(cell, cell.level + max(0, ahead * self._window_ns - cell.late), now_ns)

    def go(self, cell: Cell, cost: int) -> None:
        """Charges `cost` for a request that has waited for its turn in the queue.

        What has drained in vain since the bucket became empty (`cell.late`) pays for it first, so that a late timer
        costs no rate.
        """
        price = cost * self._window_ns
        level, late = cell.level + max(0, price - cell.late), max(0, cell.late - price)
        cell.late = late
        cell.level = level
        cell.credit = level

    def taken(self, cell: Cell) -> int:
        """Returns the used part of the allowance, in cost times nanoseconds; requests from the queue use none of it."""
        return max(0, cell.level - cell.credit)

    def bound(self, cell: Cell, now_ns: int) -> int:
        return -(-self.taken(cell) // self._window_ns)

    def headroom(self, cell: Cell, now_ns: int) -> int:
        return cell.allowance - self.bound(cell, now_ns)

    def owed(self, cell: Cell) -> float:
        return max(0, cell.level) / self._window_ns

    def terms(self, cell: Cell) -> PacedTerms:
        """Returns the rate at which a key's debt is paid off now, and the most permits that the key can store."""
        return PacedTerms(self._rate(cell), self._whole, self._capacity, 0)

    def take_over(self, cell: Cell, former: PacedTerms) -> None:  # a bucket stays as full as it is
        """Adapts a key's counts to a changed quota; `former` has the rate at which they were drained up to now.

        The key has its new allowance already.
        """
        cell.late = min(cell.late, self._late_most(cell))

    def _late_most(self, cell: Cell) -> int:
        """Returns the largest value of `cell.late`, the drain that late timers have left unused.

        It is at most the node's allowance, so that a short stall does not lead to a burst larger than the allowance.
        """
        return min(CATCH_UP_NS * self._rate(cell) // self._capacity, cell.allowance * self._window_ns)

    def _paid_off_ns(self, cell: Cell, owed: int, now_ns: int) -> int:
        """Returns the nanoseconds until a debt of `owed` is paid off; NEVER_NS if the node has no allowance."""
        if owed <= 0:
            return 0
        rate = self._rate(cell)
        if rate <= 0 or not (self._merged_only or now_ns < lease_until_ns(cell)):
            return NEVER_NS
        return -(-owed * self._capacity // rate)


class Smooth(LeakyBucket):
    """A paced limit that stores its unused rate as permits.

    The two smooth limits differ only in the price of stored permits.

    As in Guava's RateLimiter, by its documentation, the cost of a request decides how long the next request waits.
    `cell.level` is the debt, `cell.stored` the permits. When the node's allowance shrinks, its permits shrink in the
    same proportion; when the allowance grows, no permits are added, so that no permit is stored on two nodes.
    """

    def __init__(self, limit: Limit, *, merged_only: bool) -> None:
        super().__init__(limit, merged_only=merged_only)
        self._owed_most = limit.cost_max * limit.unit * limit.window_ns

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Pays off the debt with what has drained, and stores the rest as permits."""
        self._follow_allowance(cell, now_ns)
        drained = self._drained(cell, now_ns)
        surplus = max(0, drained - cell.level)
        level, marked_ns = max(0, cell.level - drained), max(cell.marked_ns, now_ns)
        cell.marked_ns = marked_ns
        cell.level = level
        if cell.lows is not None:
            cell.lows.note(cell.level)
        if surplus > 0:
            surplus = self._be_late(cell, surplus)
            cell.stored = max(cell.stored, min(cell.stored + surplus, self._stored_most(cell)))
        if cell.used:
            price = self._price(cell, cell.used * self._window_ns)
            cell.level += price
            cell.counted = 0
            cell.used = 0

    def until_ns(self, cell: Cell) -> int:
        """Returns 0, because the fast path may not charge a smooth limit."""
        return 0

    def used(self, cell: Cell, now_ns: int) -> int:
        """Returns the debt plus the permits that could still be stored, as cost, rounded up."""
        return -(-(self._missing(cell) + cell.used * self._window_ns) // self._window_ns)

    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        """Returns NEVER_NS (any cost fits) if the node has an allowance and the key no debt; otherwise -1."""
        return NEVER_NS if allowance > 0 and cell.level <= 0 else -1

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        return max(1, self._paid_off_ns(cell, cell.level, now_ns))

    def others(self, cell: Cell, now_ns: int) -> float:
        """Returns 0: allowances are parts of the rate, and no node can use up the part of another node."""
        return 0.0

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns the nanoseconds until the debt is paid off and all permits are stored."""
        longest_ns = 2 * self.idle_ns + cell.level // self._quota
        return min(self._paid_off_ns(cell, self._missing(cell), now_ns), longest_ns)

    def go(self, cell: Cell, cost: int) -> None:
        price = self._price(cell, cost * self._window_ns)
        level, late = cell.level + max(0, price - cell.late), max(0, cell.late - price)
        cell.late = late
        cell.level = level

    def taken(self, cell: Cell) -> int:
        """Returns 0: a request on credit uses no part of the allowance, it only makes the next request wait."""
        return 0

    def terms(self, cell: Cell) -> PacedTerms:
        return super().terms(cell)._replace(stored_most=self._stored_most(cell))

    def take_over(self, cell: Cell, former: PacedTerms) -> None:
        """Adapts a key's counts to a changed quota; `former` has the rate at which they were drained up to now.

        The next request may go at the same moment as before, and the same fraction of all permits is stored. If the
        burst grows by more than the rate, the stored permits grow only in proportion to the rate. On a node without an
        allowance, the debt changes in proportion to the rate of the whole limit. The change raises no debt above the
        largest cost that a request can have from now on.
        """
        terms = self.terms(cell)
        paid = former.rate > 0 and terms.rate > 0
        now = (terms.rate if paid else terms.whole) * former.capacity
        before = (former.rate if paid else former.whole) * terms.capacity
        level = min(-(-cell.level * now // before), max(cell.level, self._owed_most))
        stored = cell.stored * terms.stored_most // former.stored_most if former.stored_most else 0
        stored = min(stored, max(cell.stored, cell.stored * now // before))
        if cell.lows is not None:
            cell.lows.note(level)
        cell.level = level
        cell.stored = stored
        cell.share = cell.allowance
        super().take_over(cell, former)

    def _missing(self, cell: Cell) -> int:
        return cell.level + max(0, self._stored_most(cell) - cell.stored)

    def _be_late(self, cell: Cell, surplus: int) -> int:
        """Moves a part of `surplus`, capacity that has drained unused, to `cell.late` while requests wait.

        Waiting requests whose timers fire late use it up. Returns the rest, which becomes permits.
        """
        if not cell.waiters:
            surplus, cell.late = surplus + cell.late, 0
            return surplus
        late = max(0, min(surplus, self._late_most(cell) - cell.late))
        cell.late += late
        return surplus - late

    def _follow_allowance(self, cell: Cell, now_ns: int) -> None:
        if cell.allowance == cell.share:
            return
        if cell.share == 0:
            cell.stored = self._stored_at_first(cell, now_ns)
        elif cell.allowance < cell.share:
            cell.stored = cell.stored * cell.allowance // cell.share
            cell.late = cell.late * cell.allowance // cell.share
        cell.share = cell.allowance

    @abstractmethod
    def _stored_most(self, cell: Cell) -> int:
        """Returns the most permits that can be stored with the key's allowance, in cost times nanoseconds."""

    @abstractmethod
    def _stored_at_first(self, cell: Cell, now_ns: int) -> int:
        """Returns the permits that a key has stored when it gets its first allowance, in cost times nanoseconds."""

    @abstractmethod
    def _price(self, cell: Cell, amount: int) -> int:
        """Uses stored permits for a request of `amount`; returns the debt that the request leaves."""


class SmoothBursty(Smooth):
    """A smooth limit whose stored permits are free: a request makes a debt only of its cost beyond the stored permits.

    A new key on a node without a hub counts as idle since its limit was declared, and has stored permits since then. A
    node with a hub has stored none when it gets its first allowance.
    """

    def _stored_most(self, cell: Cell) -> int:
        return cell.allowance * self._window_ns

    def _stored_at_first(self, cell: Cell, now_ns: int) -> int:
        if not cell.shard.alone:
            return 0
        idle = max(0, cell.marked_ns - cell.table.born_ns) * self._rate(cell) // self._capacity
        return min(idle, self._stored_most(cell))

    def turn_ns(self, cell: Cell, ahead: int, now_ns: int) -> int:
        return self._paid_off_ns(cell, cell.level + max(0, ahead * self._window_ns - cell.stored), now_ns)

    def _late_most(self, cell: Cell) -> int:
        return 0  # stored permits make up for late timers

    def _price(self, cell: Cell, amount: int) -> int:
        taken = min(cell.stored, amount)
        cell.stored -= taken
        return amount - taken


class SmoothWarmingUp(Smooth):
    """A smooth limit that warms up: after an idle time requests go at a lower rate, until half of the permits are used.

    While at most half of all permits are stored, the interval between two permits is that of the full rate. With more
    stored permits it rises in a straight line, to three times that interval when all are stored. The price of permits
    is the area under that line, rounded up: a rational number, for which a square is computed and no root. If all
    permits are stored, it takes as long as the warm-up to use the upper half.
    """

    def __init__(self, limit: Limit, *, merged_only: bool) -> None:
        super().__init__(limit, merged_only=merged_only)
        self._warmup_ns = limit.warmup_ns

    def _stored_most(self, cell: Cell) -> int:
        return self._warmup_ns * self._rate(cell) // self._capacity

    def _stored_at_first(self, cell: Cell, now_ns: int) -> int:
        return self._stored_most(cell)  # cold

    def _price(self, cell: Cell, amount: int) -> int:
        most = self._stored_most(cell)
        taken = min(cell.stored, amount)
        # Twice the permits above the half, before and after.
        before = max(0, 2 * cell.stored - most)
        cell.stored -= taken
        after = max(0, 2 * cell.stored - most)
        return amount + (-((after - before) * (after + before) // (2 * most)) if taken else 0)


def pacer_for(limit: Limit, *, merged_only: bool) -> LeakyBucket:
    """Returns the meter, the arithmetic, of a paced limit.

    `merged_only` is for a policy that decides by merged totals: a key's level is then that of all nodes together, and
    drains at the full rate.
    """
    if limit.algorithm == LEAKY_BUCKET:
        return LeakyBucket(limit, merged_only=merged_only)
    kind = SmoothBursty if limit.algorithm == SMOOTH_BURSTY else SmoothWarmingUp
    return kind(limit, merged_only=merged_only)
