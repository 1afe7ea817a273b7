"""The meters (the arithmetic) of buckets: `Bucket` drains steadily, `StepBucket` at the edges of windows."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.meter import CellMeter, Memory
from reconverge.kernel.cell import Cell, Mark, lease_until_ns, refilled_ns
from reconverge.kernel.history import Lows
from reconverge.limit.limit import Limit

IDLE_MAX_NS = NEVER_NS // 8
"""The longest time until a bucket counts as idle, eighteen years in nanoseconds, so that moments fit into 64 bits."""


class Bucket(CellMeter):
    """A bucket that each charge fills and that drains steadily: a token bucket that counts used tokens, not free ones.

    It is also GCRA, whose theoretical arrival time is the moment at which this bucket runs dry (Turner's leaky bucket
    as a meter, ITU-T I.371). If a node's allowance is a fraction of the capacity, its bucket drains at that fraction of
    the rate, so that all nodes together never drain faster than the quota allows. It drains by the node's own clock,
    not by the hub's.
    """

    bucket = True
    leaves_in_use = True

    def __init__(self, limit: Limit, *, merged_only: bool) -> None:
        self._window_ns = limit.window_ns
        self._quota = limit.quota
        self._capacity = limit.capacity
        self._merged_only = merged_only
        self.idle_ns = min(max(limit.window_ns, -(-limit.window_ns * limit.capacity // limit.quota)), IDLE_MAX_NS)

    # A bucket that is kept at the hub (`Cell.at_hub`) has no level here: the hub's own bucket holds all charges. This
    # node may charge `allowance` beyond its charges in the last answered report, and nothing drains here. `level` is
    # the part of later refunds that may have drained at the hub before, and that the hub must go on counting. `stored`
    # is the most that can be given back: charges of this node that the hub cannot have drained yet, even at its full
    # rate; `Lows` keeps its lowest values since each reservation, because those of one burst share what drains: if each
    # of ten were counted as drained for its time, the tenfold would be lost. `late` is what was given back since the
    # last answered report, `share` its part in the report under way: the hub drains charges that it does not know to be
    # given back, so `late` shrinks, and what it loses moves to `level`. `credit` is this node's part of the hub's
    # bucket, taken to drain at the full rate. It serves `own` alone and goes on draining when the key is not kept at
    # the hub any more.

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Stores `epoch`, the window's number. A bucket has no windows; the number serves only to measure demand."""
        cell.epoch = epoch

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Drains the bucket up to `now_ns`."""
        if cell.at_hub or cell.credit:
            cell.credit = self._own_at_hub(cell, now_ns)
        self._drain(cell, self._drained(cell, now_ns), now_ns)

    def _own_at_hub(self, cell: Cell, now_ns: int) -> int:
        """Returns the part of the hub's bucket that this node's charges fill at `now_ns`, in cost times nanoseconds."""
        used = cell.used * self._window_ns if cell.at_hub else 0
        return max(0, cell.credit + used - self._quota * max(0, now_ns - cell.marked_ns))

    def _drained(self, cell: Cell, now_ns: int) -> int:
        """Returns the amount that has drained since `cell.marked_ns`; nothing drains after the end of the lease."""
        # After the lease the hub may have granted the allowance to another node, and with the allowance the part of the
        # rate that drains here.
        until_ns = now_ns if self._merged_only else min(now_ns, max(cell.marked_ns, lease_until_ns(cell)))
        return max(0, until_ns - cell.marked_ns) * self._rate(cell) // self._capacity

    def _fill(self, cell: Cell, now_ns: int) -> int:
        """Returns how full the bucket is at `now_ns`, in cost times nanoseconds."""
        return max(0, cell.level + self._beside_level(cell) * self._window_ns - self._drained(cell, now_ns))

    def _beside_level(self, cell: Cell) -> int:
        """Returns the charged cost that `cell.level` does not contain yet.

        If the hub keeps the free part of the key, returns the cost charged since the last answered report.
        """
        if cell.at_hub:
            return max(0, cell.charged + cell.used - cell.counted - cell.confirmed[1])
        return cell.used

    def _drain(self, cell: Cell, drained: int, now_ns: int) -> None:
        """Adds new charges to the level, subtracts the drained amount, and stores the time of the new level."""
        if cell.lows is not None:
            cell.lows.note(max(0, cell.level - drained))  # as if all of `used` had been charged just now
        level = max(0, cell.level + (0 if cell.at_hub else cell.used * self._window_ns) - drained)
        marked_ns = max(cell.marked_ns, now_ns)
        cell.level = level
        if cell.at_hub:
            self._drain_at_hub(cell, self._quota * (marked_ns - cell.marked_ns), marked_ns)
        cell.marked_ns = marked_ns
        cell.counted = 0
        cell.used = 0

    def _drain_at_hub(self, cell: Cell, drained: int, marked_ns: int) -> None:
        """Adds new charges to `stored`, and takes the hub to have drained that amount of this node's charges alone."""
        if cell.lows is not None:
            cell.lows.note_at_hub(marked_ns, max(0, cell.stored - drained))
        left = cell.stored - drained  # as if all of `used` had been charged just now
        lost = cell.late - max(0, min(cell.late, left + cell.late))
        cell.stored = max(0, left + cell.used * self._window_ns)
        self._lose(cell, lost)

    @staticmethod
    def _lose(cell: Cell, lost: int) -> None:
        """Moves that part of `late` to `level`, as the hub may have drained it and must go on counting it."""
        cell.late -= lost
        cell.level += lost

    def until_ns(self, cell: Cell) -> int:
        """Returns the monotonic moment at which the bucket is empty.

        The caller must drain the bucket then, or its level would go below zero.
        """
        if cell.at_hub:
            return NEVER_NS
        return cell.marked_ns + (cell.level * self._capacity // rate if (rate := self._rate(cell)) else 0)

    def used(self, cell: Cell, now_ns: int) -> int:
        return -(-self._fill(cell, now_ns) // self._window_ns)

    def own(self, cell: Cell, now_ns: int) -> int:
        here = 0 if cell.at_hub else self._fill(cell, now_ns)
        return -(-(here + self._own_at_hub(cell, now_ns)) // self._window_ns)

    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        return (allowance * self._window_ns - cell.level) // self._window_ns - self._beside_level(cell)

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        excess = cell.level + (cell.used + cost - allowance) * self._window_ns
        rate = self._rate(cell)
        return max(1, -(-excess * self._capacity // rate)) if rate > 0 else NEVER_NS

    def others(self, cell: Cell, now_ns: int) -> float:
        if self._merged_only:
            return 0.0  # the cell's own level is that of all nodes
        kept = float(self._quota) * float(self._capacity - (0 if cell.at_hub else cell.allowance))
        others_drain = kept / float(self._capacity) / float(self._window_ns)
        drained = others_drain * refilled_ns(cell, cell.heard_ns, now_ns)
        return max(0.0, float(cell.others_current) / 1000 - drained)

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        excess = self._fleet_fill(cell, now_ns) + (cost - cell.capacity) * self._window_ns
        return max(1, -(-excess // self._quota))

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds for which the use of all nodes certainly leaves no room for `cost`.

        There is room only once this node's own level has drained enough, and the level reported by all nodes has
        drained enough at the full rate. The other nodes' levels have drained since their last reports, and the hub
        learns that from their next reports.
        """
        own, merged = self._own_excess(cell, cost, now_ns), self._merged_excess(cell, cost, now_ns)
        return max(own // self._quota, merged // self._quota - cell.lag_ns, 0)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        return -(-self._fleet_fill(cell, now_ns) // self._quota)

    def begin(self, cell: Cell, now_ns: int) -> None:
        """Prepares a new key: its bucket begins to drain now."""
        cell.marked_ns = now_ns

    def keep(self, cell: Cell, memory: Memory, now_ns: int) -> bool:
        return memory.keep_level(cell.key, cell.level, self._window_ns, now_ns)

    def recall(self, cell: Cell, memory: Memory, now_ns: int) -> None:
        cell.level = max(cell.level, memory.level_of(cell.key, self._window_ns, now_ns))

    def look(self, cell: Cell) -> int:
        """Returns the number by which `give_back` later finds a charge that is made now.

        It is the number of levels that `Lows` has stored; `Lows` stores levels from the first call of this method on.
        If the hub keeps the free part of the key, it is a negative number that encodes the time of the charge.
        """
        if cell.lows is None:
            cell.lows = Lows()
        return -1 - cell.marked_ns if cell.at_hub else cell.lows.looks

    def returnable(self, cell: Cell, cost: int) -> int:
        """Returns the whole `cost`: a bucket has no earlier window from which a part could be given back."""
        return cost

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Gives back the part of `amount` that has not drained since it was charged."""
        self.settle(cell, now_ns)
        whole = amount * self._window_ns
        if cell.at_hub:
            returned = min(whole, cell.stored) if mark is None else self._left_at_hub(cell, whole, mark.look, now_ns)
            if cell.lows is not None:
                cell.lows.lower_at_hub(returned)
            cell.stored = max(0, cell.stored - returned)
            cell.credit = max(0, cell.credit - returned)
            cell.late += returned
            cell.level += whole - returned
            cell.charged -= amount
            return
        returned = min(whole, cell.level)
        if mark is not None and mark.look < 0:
            returned = min(returned, self._undrained(whole, now_ns + 1 + mark.look))
        elif cell.lows is not None and mark is not None:
            returned = min(returned, cell.lows.since(mark.look))
        if cell.lows is not None:
            cell.lows.lower(returned)
        cell.level -= returned
        cell.charged -= amount

    def _left_at_hub(self, cell: Cell, whole: int, look: int, now_ns: int) -> int:
        """Returns the part of a charge of `whole`, found by `look`, that the hub certainly has not drained yet."""
        if look >= 0:  # charged before the hub kept the key
            return 0
        charged_ns = -1 - look
        low = 0 if cell.lows is None else cell.lows.since_at_hub(charged_ns, cell.stored)
        return max(min(whole, low), self._undrained(whole, now_ns - charged_ns))

    def _undrained(self, whole: int, passed_ns: int) -> int:
        """Returns the part of a charge of `whole` that cannot have drained in `passed_ns`, even at the full rate."""
        return max(0, whole - self._quota * passed_ns)

    def report(self, cell: Cell, now_ns: int) -> tuple[int, int]:
        """Returns the sum of all costs ever charged, and the bucket's level in thousandths of a unit of cost."""
        if cell.at_hub:
            cell.share = -(-1000 * cell.late // self._window_ns)
        return cell.charged, -(-1000 * self.taken(cell) // self._window_ns)

    def taken(self, cell: Cell) -> int:
        """Returns the part of the allowance that is in use: the level, in cost times nanoseconds of the window."""
        return cell.level

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """Computes the other nodes' use from `answer`, whose `previous` is the sum of all levels in thousandths."""
        if report.floats or cell.at_hub:
            self._move(cell, report)
        own = report.reset_us >= answer.reset_us and not (report.floats or cell.at_hub)
        cell.others_current = max(0, answer.previous - (report.previous if own else 0))
        cell.others_previous = answer.current
        cell.fleet_used = float(answer.previous) / 1000 + answer.silent
        if self._merged_only:
            drained = self._quota * refilled_ns(cell, heard_ns, now_ns)
            merged = max(0, answer.current * self._window_ns // 1000 - drained)
            cell.level = merged + (cell.charged - report.current) * self._window_ns

    def _move(self, cell: Cell, report: CellReport) -> None:
        reported = report.previous * self._window_ns // 1000
        drained = max(0, cell.level - reported) if report.floats else 0
        since = 0 if cell.at_hub else max(0, cell.charged - report.current) * self._window_ns
        cell.late = max(0, cell.late - cell.share * self._window_ns // 1000) if cell.at_hub else 0
        cell.credit = max(0, cell.credit - since) if report.floats else cell.credit + cell.level
        cell.level = drained + since
        cell.stored = cell.stored if cell.at_hub else 0

    def leave_hub(self, cell: Cell) -> None:
        """Drops the allowance of a bucket whose free part the hub no longer keeps; does nothing for another bucket.

        Also adds the charges that the hub may not have counted to this node's level.
        """
        if cell.at_hub:
            beside = self._beside_level(cell) * self._window_ns
            level = cell.level + beside
            cell.credit = max(0, cell.credit - beside)
            cell.at_hub = False
            cell.stored = 0
            cell.late = 0
            cell.allowance = 0
            cell.level = level
            cell.counted = 0
            cell.used = 0

    def disown(self, cell: Cell, now_ns: int) -> None:
        """Does nothing: use that the hub goes on counting also counts on this node until it has drained."""

    def _fleet_fill(self, cell: Cell, now_ns: int) -> int:
        """Returns the sum of all nodes' levels, as far as this node knows, in cost times nanoseconds."""
        return self._fill(cell, now_ns) + round(self.others(cell, now_ns) * self._window_ns)

    def _own_excess(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns by how much this node's level plus `cost` exceeds the capacity, in cost times nanoseconds."""
        return self._fill(cell, now_ns) + (cost - cell.capacity) * self._window_ns

    def _merged_excess(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns by how much all nodes' merged level plus `cost` exceeds the capacity, in cost times nanoseconds.

        The merged level is that of the hub's last answer, less what has drained since at the full rate.
        """
        drained = self._quota * refilled_ns(cell, cell.heard_ns, now_ns) if cell.heard else 0
        return cell.others_previous * self._window_ns // 1000 - drained + (cost - cell.capacity) * self._window_ns

    def _rate(self, cell: Cell) -> int:
        """Returns the amount that drains per nanosecond, multiplied by the capacity so that it is a whole number."""
        if cell.at_hub:
            return 0
        return self._quota * (self._capacity if self._merged_only else min(cell.allowance, self._capacity))


class StepBucket(Bucket):
    """A bucket that drains by a whole window's quota at once at each edge of a window, and not in between.

    On a node, it drains by a part of the quota: that part which the node's allowance is of the capacity. The edges are
    those of the hub's clock, and a node's bucket drains at an edge only when the edge has certainly passed.
    `cell.previous` is the cost charged since the first moment at which the next edge may have passed at the hub; it
    does not drain at that edge.
    """

    leaves_in_use = False

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Drains the bucket for the edges that have passed; nothing drains at an edge after the end of the lease."""
        edges, level = 0 if cell.at_hub else max(0, steps), cell.level
        if not self._merged_only:
            leased_until_ns = lease_until_ns(cell)
            edges = min(edges, max(0, (leased_until_ns - cell.opened_ns) // self._window_ns))
        if edges > 0:
            part = self._window_ns * self._rate(cell)
            after = min(level, cell.previous * self._window_ns)
            level = max(after, level - part // self._capacity)
            level = max(0, level - (edges - 1) * part // self._capacity)
        cell.epoch = epoch
        cell.level = level
        cell.credit = max(0, cell.credit - max(0, steps) * self._quota * self._window_ns)
        if cell.at_hub:
            self._lose(cell, cell.late)
        cell.stored = 0
        cell.previous = 0
        if cell.lows is not None:
            cell.lows.note(cell.level)

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Adds the cost charged since the last call to the level. Nothing drains within a window."""
        if cell.lows is not None:
            cell.lows.note(cell.level)
        used = 0 if cell.at_hub else cell.used
        after_edge = used if cell.marked_ns >= self._edge_from_ns(cell) else 0
        marked_ns = max(cell.marked_ns, now_ns)
        if cell.at_hub:  # the hub may have drained all at an edge that may have passed
            whole, before = cell.used * self._window_ns, marked_ns < self._edge_from_ns(cell)
            if cell.lows is not None:
                cell.lows.note_at_hub(marked_ns, cell.stored if before else 0)
            cell.stored = cell.stored + whole if before else 0
            cell.credit += whole
            if not before:
                self._lose(cell, cell.late)
        cell.marked_ns = marked_ns
        cell.level += used * self._window_ns
        cell.previous += after_edge
        cell.counted = 0
        cell.used = 0

    def _drained(self, cell: Cell, now_ns: int) -> int:
        return 0

    def _undrained(self, whole: int, passed_ns: int) -> int:
        """Returns 0: an edge that may have passed drains a whole quota at once."""
        return 0

    def _own_at_hub(self, cell: Cell, now_ns: int) -> int:
        return cell.credit + (cell.used * self._window_ns if cell.at_hub else 0)

    def until_ns(self, cell: Cell) -> int:
        """Returns the moment from which the next edge may have passed; from then on each charge takes the slow path."""
        edge_ns = self._edge_from_ns(cell)
        return edge_ns if cell.marked_ns < edge_ns else 0 if cell.lag_ns else NEVER_NS

    def _edge_from_ns(self, cell: Cell) -> int:
        return cell.opened_ns + self._window_ns - 2 * cell.lag_ns

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        excess = cell.level + (cell.used + cost - allowance) * self._window_ns
        return self._edges_ns(cell, excess * self._capacity, self._rate(cell), now_ns)

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        excess = self._fleet_fill(cell, now_ns) + (cost - cell.capacity) * self._window_ns
        return self._edges_ns(cell, excess, self._quota, now_ns)

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        excess = max(self._own_excess(cell, cost, now_ns), self._merged_excess(cell, cost, now_ns))
        return self._edges_ns(cell, excess, self._quota, now_ns) - cell.lag_ns if excess > 0 else 0

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        full = self._fleet_fill(cell, now_ns)
        return self._edges_ns(cell, full, self._quota, now_ns) if full > 0 else 0

    def _edges_ns(self, cell: Cell, amount: int, rate: int, now_ns: int) -> int:
        """Returns the nanoseconds until `amount` has drained, if each edge drains `rate` times a window's length."""
        if rate <= 0:
            return NEVER_NS
        edges = max(1, -(-amount // (rate * self._window_ns)))
        return max(1, cell.opened_ns + edges * self._window_ns - now_ns)
