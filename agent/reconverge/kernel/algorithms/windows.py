"""How use is measured against a line: the arithmetic of the algorithms, in whole numbers and exact.

A meter answers four questions about a cell at a moment: how much is used, what cost still fits below a line, how long
until a cost fits, and what the others use. It never decides.
"""

# Theory of operation.
#
# Every algorithm is a number that grows with each charge and shrinks with time, and a request is admitted while that
# number stays below the node's line. For lines to be added up, the number must be a sum over the nodes:
#
#     fixed window      charged in this window
#     sliding window    charged in this window + charged in the last one * part of that still covered
#     bucket            fill, which drains at the rate * line / capacity
#     slices, log       charges whose date is not over
#
# All are linear, so what the nodes use sums to what the fleet uses, and lines that sum to the capacity keep the fleet
# below it. A bucket drains on each node by the part of the rate that goes with its line: a full rate on each of N nodes
# would drain N times as fast.
#
# Whole numbers, and exact. A bucket's level is kept in cost times nanoseconds of the window, of which a nanosecond
# drains `quota * line / capacity`: so a look at it rounds off less than a nanosecond's worth, and the same calls give
# the same answer on every machine, in the compiled twin as well. Use is rounded up; what is spare and what drains are
# rounded down.
#
# Two clocks. What fades by the hub's windows is judged as of `lag_ns` ago, which is twice the error of what is known of
# the hub's clock: once because the hub grants by its own clock, once because another node's error may be the opposite.
# A bucket has no place in time, only a pace, so it goes by its node's own clock and has no lag. With one, a bucket of
# one never admitted anything once it had heard from a hub. A bucket that refills at edges has a place in time again
# (`StepBucket`): to take an edge for early admits too much, and so does to take it for late, because what was charged
# after the true edge would drain with it. The fuzz found 35 above a strict limit of 339 so, with a round trip of 76 ms.

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.dated import Dated
from reconverge.kernel.algorithms.dates import Moments, Slices
from reconverge.kernel.algorithms.meter import Meter
from reconverge.kernel.cell import Cell, Mark
from reconverge.kernel.history import Lows
from reconverge.limit.limit import BUCKETS, FIXED_WINDOW, INTERVAL, SLIDING_SLICES, Limit

IDLE_MAX_NS = NEVER_NS // 8
"""Eighteen years: a bucket that takes longer to run dry is as good as one that never does, and moments stay numbers."""


class FixedWindow(Meter):
    """Counts start at zero with every window of the hub's clock."""

    aligned = True

    def __init__(self, limit: Limit) -> None:
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """The count starts at zero and the line at its base."""
        cell.line = cell.base
        cell.counted = 0
        cell.used = 0
        cell.epoch = epoch
        cell.others_current = 0

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Nothing changes within a window."""

    def until_ns(self, cell: Cell) -> int:
        """See `Meter`."""
        return NEVER_NS

    def used(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        return cell.used

    def spare(self, cell: Cell, line: int, now_ns: int) -> int:
        """See `Meter`."""
        return line - cell.used

    def wait_ns(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        return max(1, cell.table.closes_ns(cell) - now_ns)

    def others(self, cell: Cell, now_ns: int) -> float:
        """See `Meter`."""
        return cell.others_current

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        return max(1, cell.table.closes_ns(cell) - now_ns)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        return self.fleet_wait_ns(cell, 0, now_ns) if cell.used + cell.others_current > 0 else 0


class SlidingWindow(Meter):
    """This window's count, and the part of the last one's that a window ending now would still cover.

    The estimate of Cloudflare's counters: current + previous * (1 - share of this window that has passed).
    """

    def __init__(self, limit: Limit) -> None:
        self._window_ns = limit.window_ns
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Current becomes previous; what was previous is gone."""
        cell.previous = cell.used if steps == 1 else 0
        cell.epoch = epoch
        cell.counted = 0
        cell.used = 0
        cell.others_previous = cell.others_current if steps == 1 else 0
        cell.others_current = 0

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Fading is worked out when it is asked for."""

    def until_ns(self, cell: Cell) -> int:
        """See `Meter`."""
        return NEVER_NS

    def used(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        return cell.used + self._faded(cell.previous, cell, now_ns)

    def spare(self, cell: Cell, line: int, now_ns: int) -> int:
        """See `Meter`."""
        return line - cell.used - self._faded(cell.previous, cell, now_ns)

    def wait_ns(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        return self._wait_ns(cell.used, cell.previous, line - cost, cell, now_ns)

    def others(self, cell: Cell, now_ns: int) -> float:
        """See `Meter`."""
        left = float(self._left_ns(cell, now_ns)) / float(self._window_ns)
        return cell.others_current + cell.others_previous * left

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        current, previous = cell.used + cell.others_current, cell.previous + cell.others_previous
        return self._wait_ns(current, previous, cell.capacity - cost, cell, now_ns)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        if cell.used + cell.others_current > 0:
            return self._left_ns(cell, now_ns) + self._window_ns
        return self._left_ns(cell, now_ns) if cell.previous + cell.others_previous > 0 else 0

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """See `Meter`; the window before counts, too, as far as it has not faded."""
        super().hear_of_others(cell, report, answer, heard_ns, now_ns)
        counted = report.reset_us >= answer.reset_us
        if answer.epoch == cell.epoch:
            own_previous = report.previous if counted else 0
            if report.epoch != answer.epoch:
                own_previous = report.current if counted and report.epoch == answer.epoch - 1 else 0
            cell.others_previous = max(0, answer.previous - own_previous)
            left_ns = min(max(cell.opened_ns + self._window_ns - heard_ns, 0), self._window_ns)
            cell.fleet_used += answer.previous * (float(left_ns) / float(self._window_ns))
        elif answer.epoch == cell.epoch - 1:
            own_current = report.current if counted and report.epoch == answer.epoch else 0
            cell.others_previous = max(0, answer.current - own_current)

    def _left_ns(self, cell: Cell, now_ns: int) -> int:
        """How much of this window is surely still to come."""
        passed_ns = now_ns - cell.opened_ns - cell.lag_ns
        return self._window_ns - min(max(passed_ns, 0), self._window_ns)

    def _faded(self, amount: int, cell: Cell, now_ns: int) -> int:
        """What is left of the window before, rounded up."""
        return -(-amount * self._left_ns(cell, now_ns) // self._window_ns)

    def _wait_ns(self, current: int, previous: int, allowed: int, cell: Cell, now_ns: int) -> int:
        """How long until current + faded previous is at most `allowed`: in this window, or else in the next."""
        left_ns = self._left_ns(cell, now_ns)
        if current <= allowed:
            may_be_left_ns = (allowed - current) * self._window_ns // previous if previous > 0 else left_ns
            return max(1, left_ns - may_be_left_ns)
        may_be_left_ns = max(0, allowed) * self._window_ns // current if current > 0 else 0
        return max(1, left_ns + self._window_ns - may_be_left_ns)


class Bucket(Meter):
    """A bucket that every charge is poured into, and that drains steadily: a token bucket seen from above.

    Also GCRA, whose theoretical arrival time is the moment at which this bucket runs dry (Turner's leaky bucket as a
    meter, ITU-T I.371). A node that holds a share of the capacity drains at that share of the rate, so that all nodes
    together never drain faster than the quota allows. It drains by its own clock, whatever the hub's may say.
    """

    bucket = True

    def __init__(self, limit: Limit, *, merged_only: bool) -> None:
        self._window_ns = limit.window_ns
        self._quota = limit.quota
        self._capacity = limit.capacity
        self._merged_only = merged_only
        self.idle_ns = min(max(limit.window_ns, -(-limit.window_ns * limit.capacity // limit.quota)), IDLE_MAX_NS)

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """A bucket knows no windows; only demand is counted by them."""
        cell.epoch = epoch

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Let the bucket drain since it was last marked."""
        self._drain(cell, self._drained(cell, now_ns), now_ns)

    def _drained(self, cell: Cell, now_ns: int) -> int:
        """What runs out since the cell was last marked; nothing does after the lease."""
        # After the lease the hub may have granted the line to another node, and with the line the part of the
        # rate that drains here.
        until_ns = (
            now_ns if self._merged_only else min(now_ns, max(cell.marked_ns, cell.table.lease_until_ns(cell.shard)))
        )
        return max(0, until_ns - cell.marked_ns) * self._rate(cell) // self._capacity

    def _fill(self, cell: Cell, now_ns: int) -> int:
        """How full it is by then."""
        return max(0, cell.level + cell.used * self._window_ns - self._drained(cell, now_ns))

    def _drain(self, cell: Cell, drained: int, now_ns: int) -> None:
        """Pour in what was charged, let out what has run out, and mark the cell."""
        if cell.lows is not None:
            cell.lows.note(max(0, cell.level - drained))  # as if all of `used` had come just now
        level = max(0, cell.level + cell.used * self._window_ns - drained)
        marked_ns = max(cell.marked_ns, now_ns)
        cell.marked_ns = marked_ns
        cell.level = level
        cell.counted = 0
        cell.used = 0

    def until_ns(self, cell: Cell) -> int:
        """A bucket that has run dry must be marked anew, or it would go on draining below zero."""
        return cell.marked_ns + (cell.level * self._capacity // rate if (rate := self._rate(cell)) else 0)

    def used(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        return -(-self._fill(cell, now_ns) // self._window_ns)

    def spare(self, cell: Cell, line: int, now_ns: int) -> int:
        """See `Meter`."""
        return (line * self._window_ns - cell.level) // self._window_ns - cell.used

    def wait_ns(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        excess = cell.level + (cell.used + cost - line) * self._window_ns
        rate = self._rate(cell)
        return max(1, -(-excess * self._capacity // rate)) if rate > 0 else NEVER_NS

    def others(self, cell: Cell, now_ns: int) -> float:
        """See `Meter`."""
        if self._merged_only:
            return 0.0  # the cell's own level is the merged one
        kept = float(self._quota) * float(self._capacity - cell.line)
        others_drain = kept / float(self._capacity) / float(self._window_ns)
        drained = others_drain * cell.table.refilled_ns(cell, cell.heard_ns, now_ns)
        return max(0.0, float(cell.others_current) / 1000 - drained)

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        excess = self._fleet_fill(cell, now_ns) + (cost - cell.capacity) * self._window_ns
        return max(1, -(-excess // self._quota))

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        return -(-self._fleet_fill(cell, now_ns) // self._quota)

    def begin(self, cell: Cell, now_ns: int) -> None:
        """It begins to drain."""
        cell.marked_ns = now_ns

    def look(self, cell: Cell) -> int:
        """How often the level has been looked at; it is followed from the first charge on that may be corrected."""
        if cell.lows is None:
            cell.lows = Lows()
        return cell.lows.looks

    def returnable(self, cell: Cell, cost: int) -> int:
        """All of it: a bucket does not tell what was charged when."""
        return cost

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """See `Meter`; what has drained since cannot be given back any more."""
        self.settle(cell, now_ns)
        returned = min(amount * self._window_ns, cell.level)
        if cell.lows is not None:
            returned = returned if mark is None else min(returned, cell.lows.since(mark.look))
            cell.lows.lower(returned)
        cell.level -= returned
        cell.charged -= amount

    def report(self, cell: Cell, now_ns: int) -> tuple[int, int]:
        """All that was ever charged, and how full the bucket is, in thousandths."""
        return cell.charged, -(-1000 * self.taken(cell) // self._window_ns)

    def taken(self, cell: Cell) -> int:
        """What of the line is taken up by use, in cost times nanoseconds of the window."""
        return cell.level

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """See `Meter`; `previous` is how full all buckets are together, in thousandths."""
        counted = report.reset_us >= answer.reset_us
        cell.others_current = max(0, answer.previous - (report.previous if counted else 0))
        cell.fleet_used = float(answer.previous) / 1000 + answer.silent
        if self._merged_only:
            drained = self._quota * cell.table.refilled_ns(cell, heard_ns, now_ns)
            merged = max(0, answer.current * self._window_ns // 1000 - drained)
            cell.level = merged + (cell.charged - report.current) * self._window_ns

    def disown(self, cell: Cell, now_ns: int) -> None:
        """A bucket is left as it is: what counts twice has drained before long."""

    def _fleet_fill(self, cell: Cell, now_ns: int) -> int:
        """How full the buckets of all nodes are together, as far as this one knows."""
        return self._fill(cell, now_ns) + round(self.others(cell, now_ns) * self._window_ns)

    def _rate(self, cell: Cell) -> int:
        """What drains per nanosecond, times the capacity."""
        return self._quota * (self._capacity if self._merged_only else min(cell.line, self._capacity))


class StepBucket(Bucket):
    """A bucket that drains by its quota at once at each edge of a window, and not in between.

    A node's part of that goes with its line, as in a bucket that drains steadily; the edges are the hub's. The node
    takes an edge to have passed once it surely has, and what it charges from the moment on at which the edge may have
    passed does not drain with it: that is `previous`.
    """

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """So many edges have passed; those after the end of the lease bring nothing back to this node."""
        edges, level = max(0, steps), cell.level
        if not self._merged_only:
            lease_until_ns = cell.table.lease_until_ns(cell.shard)
            edges = min(edges, max(0, (lease_until_ns - cell.opened_ns) // self._window_ns))
        if edges > 0:
            part = self._window_ns * self._rate(cell)
            after = min(level, cell.previous * self._window_ns)
            level = max(after, level - part // self._capacity)
            level = max(0, level - (edges - 1) * part // self._capacity)
        cell.epoch = epoch
        cell.level = level
        cell.previous = 0
        if cell.lows is not None:
            cell.lows.note(cell.level)

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Nothing drains within a window."""
        if cell.lows is not None:
            cell.lows.note(cell.level)
        after_edge = cell.used if cell.marked_ns >= self._edge_from_ns(cell) else 0
        marked_ns = max(cell.marked_ns, now_ns)
        cell.marked_ns = marked_ns
        cell.level += cell.used * self._window_ns
        cell.previous += after_edge
        cell.counted = 0
        cell.used = 0

    def _drained(self, cell: Cell, now_ns: int) -> int:
        return 0

    def until_ns(self, cell: Cell) -> int:
        """Each charge has to be looked at from the moment on at which the edge may have passed."""
        edge_ns = self._edge_from_ns(cell)
        return edge_ns if cell.marked_ns < edge_ns else 0 if cell.lag_ns else NEVER_NS

    def _edge_from_ns(self, cell: Cell) -> int:
        return cell.opened_ns + self._window_ns - 2 * cell.lag_ns

    def wait_ns(self, cell: Cell, line: int, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        excess = cell.level + (cell.used + cost - line) * self._window_ns
        return self._edges_ns(cell, excess * self._capacity, self._rate(cell), now_ns)

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """See `Meter`."""
        excess = self._fleet_fill(cell, now_ns) + (cost - cell.capacity) * self._window_ns
        return self._edges_ns(cell, excess, self._quota, now_ns)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """See `Meter`."""
        full = self._fleet_fill(cell, now_ns)
        return self._edges_ns(cell, full, self._quota, now_ns) if full > 0 else 0

    def _edges_ns(self, cell: Cell, amount: int, rate: int, now_ns: int) -> int:
        """How long until so many edges have passed that `amount` has drained at `rate` per nanosecond."""
        if rate <= 0:
            return NEVER_NS
        edges = max(1, -(-amount // (rate * self._window_ns)))
        return max(1, cell.opened_ns + edges * self._window_ns - now_ns)


def meter_for(limit: Limit, *, merged_only: bool = False) -> Meter:
    """The arithmetic of `limit`; `merged_only` when the cell's level is the merged one and drains at the full rate."""
    if limit.algorithm in BUCKETS:
        bucket = StepBucket if limit.refill == INTERVAL else Bucket
        return bucket(limit, merged_only=merged_only)
    if limit.dated:
        return Dated(limit, Slices(limit) if limit.algorithm == SLIDING_SLICES else Moments(limit))
    return FixedWindow(limit) if limit.counts_as == FIXED_WINDOW else SlidingWindow(limit)
