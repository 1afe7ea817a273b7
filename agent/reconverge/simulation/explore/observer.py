"""Counts all that the nodes of a small world have admitted, with full knowledge, by code that the nodes do not use."""

# Theory of operation.
#
# Each request that a node admits is entered at once, with its moment, in the window or slice to which its node charged
# it. So the books follow the rule that the nodes have to keep, and depend on no message. Entries that can count no more
# are dropped, so that worlds that differ only in what is long past have equal books.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf

from reconverge.clock import MICROSECOND_NS, ManualClock
from reconverge.hub.merge_rule import MergeRule
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.kernel import Cell, Table
from reconverge.kernel.cell import floats, keeps_no_allowance
from reconverge.limit import FILLED, FIRST_HIT, FIXED_WINDOW, INTERVAL, SLIDING_LOG, SLIDING_SLICES, Limit
from reconverge.limit.limit import CONCURRENCY, PACED
from reconverge.simulation.explore.node import SmallNode
from reconverge.simulation.in_progress.world import Work
from reconverge.simulation.judging.first_hits import OpenedWindow, fleet_windows
from reconverge.simulation.truth import at_once

WINDOWS_KEPT = 4
"""The number of windows for which the observer's accounts keep an entry after its own window."""


class TrueUse:
    """The observer's account of one key: the cost that all nodes together have admitted, by window and by slice."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        self.limit = limit
        self._clock = clock
        self._by_epoch: defaultdict[int, int] = defaultdict(int)
        self._by_slice: defaultdict[int, int] = defaultdict(int)
        self._log: list[tuple[int, int]] = []
        """The time and the cost of each charge of the last window; kept for a sliding log alone."""
        self._fill = 0.0
        self._filled_ns = 0
        self.charged = 0
        """The cost of all requests that any node has ever admitted."""
        self.refunded = 0

    def admitted(self, cost: int, epoch: int, slice_number: int) -> None:
        """Counts a request that a node admits at this moment, in window `epoch` and in slice `slice_number`."""
        self._enter(cost, epoch, slice_number)
        self._fill += cost
        self.charged += cost

    def gave_back(self, cost: int, epoch: int, slice_number: int) -> None:
        """Counts a refund: a request admitted at this moment turns out to cost `cost` less than was charged."""
        self._enter(-cost, epoch, slice_number)
        self._fill = max(0.0, self._fill - cost)
        self.refunded += cost

    def _enter(self, cost: int, epoch: int, slice_number: int) -> None:
        self._drain()
        for books, number, kept in (
            (self._by_epoch, epoch, WINDOWS_KEPT),
            (self._by_slice, slice_number, WINDOWS_KEPT * (self.limit.slices or 1)),
        ):
            books[number] += cost
            for old in [old for old in books if old < number - kept]:
                del books[old]
        if self.limit.counts_as != SLIDING_LOG:
            return
        now_ns = self._clock.monotonic_ns()
        since_ns = now_ns - self.limit.window_ns
        self._log = [*((at_ns, each) for at_ns, each in self._log if at_ns > since_ns), (now_ns, cost)]

    def counts_at(self, epoch: int) -> bool:
        """Whether the free cost in the hub's answer about window `epoch` can be compared with `excess` at this moment.

        It cannot when the window is over; for sliding logs and slices, whose excess is that of the worst of several
        windows; and for paced limits, whose allowances are parts of a rate.
        """
        if self.limit.algorithm in PACED or self.limit.counts_as in (SLIDING_LOG, SLIDING_SLICES):
            return False
        return self.limit.bucket or epoch == self._clock.wall_ns() // self.limit.window_ns

    def excess(self) -> float:
        """Returns the cost by which the limit is exceeded at this moment; negative when it is not exceeded."""
        now_ns = self._clock.wall_ns()
        epoch, passed_ns = divmod(now_ns, self.limit.window_ns)
        if self.limit.bucket:
            self._drain()
            return self._fill - at_once(self.limit)
        if self.limit.counts_as == SLIDING_LOG:
            since_ns = self._clock.monotonic_ns() - self.limit.window_ns
            return sum(cost for at_ns, cost in self._log if at_ns > since_ns) - self.limit.capacity
        if self.limit.counts_as == SLIDING_SLICES:
            return self._worst_slices(now_ns) - self.limit.capacity
        used = self._by_epoch.get
        if self.limit.counts_as == FIXED_WINDOW:
            return max(used(epoch, 0), used(epoch + 1, 0)) - self.limit.capacity
        left = 1 - passed_ns / self.limit.window_ns
        return used(epoch, 0) + used(epoch - 1, 0) * left - self.limit.capacity

    def _worst_slices(self, now_ns: int) -> int:
        """Returns the highest cost in any row of slices as long as a window, up to the slice of `now_ns`."""
        slices = self.limit.slices or 1
        present = now_ns * slices // self.limit.window_ns
        return max(
            sum(cost for number, cost in self._by_slice.items() if last - slices < number <= last)
            for last in [*self._by_slice, present]
        )

    def _drain(self) -> None:
        now_ns = self._clock.monotonic_ns()
        drained = self.limit.quota * (now_ns - self._filled_ns) / self.limit.window_ns
        self._fill = max(0.0, self._fill - drained)
        self._filled_ns = now_ns


class BucketTruth(TrueUse):
    """The observer's account of a bucket, which exists from the first request for its key, and drains as it should."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self._marked_ns = -1
        self._begun = False

    def asked(self) -> None:
        """Begins the bucket at the first request for its key, whether that request is admitted or not."""
        if self._marked_ns < 0:
            self._fill, self._marked_ns = float(self.limit.withheld), self._clock.wall_ns()

    def begins(self, withheld: int) -> None:
        """Corrects the bucket when the hub has its first report: a new key then lacks `withheld` of the capacity.

        That may be less than the declared limit withholds, as the limit may have changed since the first request.
        """
        if not self._begun:
            self._begun = True
            self.asked()
            self._drain()
            self._fill = max(0.0, self._fill - max(0, self.limit.withheld - withheld))

    def _drain(self) -> None:
        if self._marked_ns < 0:
            return
        now_ns, window_ns = self._clock.wall_ns(), self.limit.window_ns
        if self.limit.refill == INTERVAL:
            drained = float(self.limit.quota * (now_ns // window_ns - self._marked_ns // window_ns))
        else:
            drained = self.limit.quota * (now_ns - self._marked_ns) / window_ns
        self._fill = max(0.0, self._fill - drained)
        self._marked_ns = now_ns


class FirstHitTruth(TrueUse):
    """The observer's account of windows that begin with a hit: those in the hub's answers, and those of nodes alone."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self.by_window: defaultdict[OpenedWindow, int] = defaultdict(int)
        self._of_hub: set[int] = set()
        self._of_this: set[int] = set()
        """The windows in answers that the hub gave from its present data; no two of them overlap."""
        self._generation = ""

    def heard(self, epoch: int, generation: str) -> None:
        """Notes that an answer of the hub names window `epoch`, which counts from then on."""
        if generation != self._generation:
            self._generation, self._of_this = generation, set()
        if epoch >= 0:
            assert all(abs(epoch - other) * MICROSECOND_NS >= self.limit.window_ns for other in self._of_this - {epoch})
            self._of_hub.add(epoch)
            self._of_this.add(epoch)
            self._drop_old()

    def _drop_old(self) -> None:
        since_us = (self._clock.wall_ns() - 2 * WINDOWS_KEPT * self.limit.window_ns) // MICROSECOND_NS
        for opened in [opened for opened in self.by_window if opened.began_us < since_us]:
            del self.by_window[opened]
        self._of_hub = {epoch for epoch in self._of_hub if epoch >= since_us}
        self._of_this = {epoch for epoch in self._of_this if epoch >= since_us}

    def admitted_by(self, node: int, cost: int, epoch: int) -> None:
        """Counts a request that node number `node` has admitted, in the window that this node has opened."""
        self.by_window[OpenedWindow(node, epoch)] += cost
        self.charged += cost

    def gave_back_by(self, node: int, cost: int, epoch: int) -> None:
        """Counts a refund: a request at node number `node` costs `cost` less than was charged."""
        self.by_window[OpenedWindow(node, epoch)] -= cost
        self.refunded += cost

    def excess(self) -> float:
        """Returns the cost by which the fullest window exceeds the limit; negative if no window exceeds it."""
        totals: defaultdict[int, int] = defaultdict(int)
        places = fleet_windows(self.by_window, self.limit.window_ns // MICROSECOND_NS, of_hub=self._of_hub)
        for opened, cost in self.by_window.items():
            totals[places[opened]] += cost
        return max(totals.values(), default=0) - self.limit.capacity


class SlotTruth(TrueUse):
    """The observer's account of slots: the work in progress, except for work that is marked `apart`."""

    held: list[Work[SmallNode]]

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self.held = []

    def begins(self, node: SmallNode, key: str, cost: int) -> None:
        """Counts work that a node has just begun and that occupies `cost` slots."""
        self.held.append(Work(node, key, cost, node.kernel.tables["limit"].cell_in_use(key), cost))
        self.charged += cost

    def ends(self, node: SmallNode, table: Table) -> None:
        """Ends the oldest work in progress on a node, if there is any."""
        for one in [one for one in self.held if one.node is node][:1]:
            self.refunded += one.cost
            table.release(one)
            self.held.remove(one)

    def vanishes(self, node: SmallNode) -> None:
        """Removes all work of `node`, whose process has ended."""
        self.held = [one for one in self.held if one.node is not node]

    def counts_at(self, epoch: int) -> bool:  # noqa: ARG002
        """Returns True: slots have a single window, which never ends."""
        return True

    def marks_lapsed(self) -> None:
        """Marks the work of each node whose lease is over. The world calls it before an exchange can renew a lease."""
        now_ns = self._clock.monotonic_ns()
        for one in self.held:
            one.look(now_ns)

    def excess(self) -> float:
        return sum(one.slots for one in self.held if not one.apart) - self.limit.capacity


def truth_of(limit: Limit, clock: ManualClock) -> TrueUse:
    """Returns an empty account of one key, of the class that the limit's algorithm and windows need."""
    if limit.algorithm == CONCURRENCY:
        return SlotTruth(limit, clock)
    if limit.align == FIRST_HIT:
        return FirstHitTruth(limit, clock)
    return BucketTruth(limit, clock) if limit.algorithm in FILLED else TrueUse(limit, clock)


class WatchedHub:
    """A merge rule that compares the free cost in each of its answers with the observer's account of the key."""

    def __init__(self, rule: MergeRule, truth: Mapping[str, TrueUse]) -> None:
        self.rule = rule
        self._truth = truth
        self._knows_all = True
        self.too_free = -inf
        """The largest amount by which an answer has reported more cost as free than one central limiter would still
        admit."""

    def lose_data(self) -> None:
        """Makes the hub lose its data, after which it may not know all use: its answers are no longer compared."""
        self.rule.lose_data()
        self._knows_all = False

    def merge(self, batch: Batch) -> Answer:
        """Merges the batch and returns the answer, after comparing it with the observer's accounts."""
        for report in batch.cells:
            truth = self._truth.get(report.key)
            if isinstance(truth, BucketTruth):
                truth.begins(batch.limits[report.limit].withheld)
        answer = self.rule.merge(batch)
        for report, cell in zip(batch.cells, answer.cells, strict=False):
            truth = self._truth.get(report.key)
            if isinstance(truth, FirstHitTruth):
                truth.heard(cell.epoch, answer.generation)
            elif truth is not None and self._knows_all and truth.counts_at(cell.epoch):
                self.too_free = max(self.too_free, cell.free + truth.excess())
        return answer

    def sums(self) -> dict[str, Totals]:
        return self.rule.sums()


def usable(cell: Cell, window: int) -> int:
    """Returns the use up to which a node may admit in `window` without asking the hub, in the cell's units.

    A node that has not opened the window yet will start it with its base (the allowance for a next window), but with no
    sealed share before it may open that; a node that has left the window cannot use it any more.
    """
    if floats(cell):
        # Only what it has beyond its present use, which fades by itself.
        return max(0, cell.allowance - cell.used) if cell.epoch == window else 0
    if keeps_no_allowance(cell) and cell.table.meter.bucket:
        used = cell.charged + cell.used - cell.counted - cell.confirmed[1]
        return max(0, cell.allowance - used)  # the rest of a grant; the level is at the hub
    if not cell.table.meter.aligned or cell.epoch == window:
        return cell.allowance
    if cell.sealed and window * cell.table.window_ns < cell.shard.opens_us * MICROSECOND_NS:
        return 0
    if cell.table.limit.align != FIRST_HIT or window < 0:
        return cell.base if cell.epoch < window else 0
    window_us = cell.table.window_ns // MICROSECOND_NS
    if cell.epoch >= 0:
        overlaps = abs(cell.epoch - window) < window_us
        return cell.allowance if overlaps else cell.base if cell.epoch < window else 0
    left = (cell.before_ns + cell.shard.offset_ns) // MICROSECOND_NS > window - window_us
    return 0 if left else cell.base


def sum_of_shares(shares: list[tuple[int, int]]) -> tuple[int, int]:
    """Returns the sum of fractions as (numerator, denominator), not reduced: faster than a sum of `Fraction`s."""
    above, below = 0, 1
    for part, whole in shares:
        above, below = above * whole + part * below, below * whole
    return above, below
