"""A vocabulary for tests of where windows begin and how buckets refill: unusual limits, and the truth about them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf

from reconverge.clock import ManualClock
from reconverge.hub.report import Answer, Batch
from reconverge.kernel.cell import Cell, floats, keeps_no_allowance
from reconverge.limit import FILLED, FIRST_HIT, FIXED_WINDOW, INTERVAL, Limit
from reconverge.simulation.judging.first_hits import OpenedWindow, fleet_windows
from reconverge_sync.memory import MemoryHub
from tests.support.node import Node, Truth

TWISTS = ("plain", "plain", "calendar", "first-hit", "initial", "interval", "initial and interval")
"""The unusual parts of a limit."""


class ToyCalendar:
    """Windows of very different lengths, each about as long as the limit's, so that a test need not wait for days."""

    longest_ns = 0

    def __init__(self, window_ns: int) -> None:
        self._round_ns = 4 * window_ns
        self._opens_ns = [0, window_ns // 2, 2 * window_ns, 2 * window_ns + window_ns // 4]
        self.longest_ns = 2 * window_ns

    def number(self, hub_ns: int) -> int:
        rounds, rest_ns = divmod(hub_ns, self._round_ns)
        return 4 * rounds + sum(1 for opens_ns in self._opens_ns[1:] if opens_ns <= rest_ns)

    def opens_ns(self, number: int) -> int:
        return number // 4 * self._round_ns + self._opens_ns[number % 4]


def twisted(limit: Limit, twist: str) -> Limit:
    """The limit with that twist, as far as its algorithm has one of the kind; calendars come with the node."""
    if twist == "first-hit" and limit.algorithm == FIXED_WINDOW:
        return replace(limit, align=FIRST_HIT)
    if limit.algorithm not in FILLED:
        return limit
    if "initial" in twist:
        limit = replace(limit, initial=limit.capacity // 3)
    return replace(limit, refill=INTERVAL) if "interval" in twist else limit


def follow_calendar(node: Node, limit: Limit, twist: str) -> None:
    """Puts the node's limit on the toy calendar, if that is the twist and the algorithm has windows of the kind."""
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        table = node.kernel.tables["limit"]
        table.calendar = ToyCalendar(limit.window_ns)  # type: ignore[assignment]
        table.choose_path()


class WatchedHub(MemoryHub):
    """A hub whose every answer is held against the truth about the keys in it."""

    def __init__(self, clock: ManualClock, truth: dict[str, Truth]) -> None:
        super().__init__(clock=clock)
        self._truth = truth
        self._knows_all = True
        self.too_free = -inf
        """By how much the hub has called more free at most than one central limiter would still admit."""

    def lose_data(self) -> None:
        """Forget everything; from here on the hub may not know what was used, and grants nothing for a while."""
        super().lose_data()
        self._knows_all = False

    def merge(self, batch: Batch) -> Answer:
        """Merge the batch, and compare the answer with the truth."""
        for report in batch.cells:
            truth = self._truth[report.key]
            if isinstance(truth, BucketTruth):
                truth.begins(batch.limits[report.limit].withheld)
        answer = super().merge(batch)
        for report, cell in zip(batch.cells, answer.cells, strict=False):
            truth = self._truth[report.key]
            if isinstance(truth, FirstHitTruth):
                truth.heard(cell.epoch, answer.generation)
            elif self._knows_all and truth.counts_at(cell.epoch):
                self.too_free = max(self.too_free, cell.free + truth.excess())
        return answer


class CalendarTruth(Truth):
    """Windows are numbered by the calendar."""

    def counts_at(self, epoch: int) -> bool:
        """Compare the hub's answer about the window that the calendar is in."""
        return epoch == ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())

    def excess(self) -> float:
        epoch = ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())
        return max(self._by_epoch[epoch], self._by_epoch[epoch + 1]) - self.limit.capacity


class BucketTruth(Truth):
    """A bucket that begins as the limit says, when it is first asked about, and refills as the limit says."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self._marked_ns = -1
        self._begun = False

    def asked(self) -> None:
        """A request has come: the bucket exists."""
        if self._marked_ns < 0:
            self._fill, self._marked_ns = float(self.limit.withheld), self._clock.wall_ns()

    def begins(self, withheld: int) -> None:
        """The hub hears of the key for the first time, by a limit that may have been edited since it was declared."""
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


class FirstHitTruth(Truth):
    """Windows begin with the first hit; the fleet's are those that the hub has told of, and those it never knew."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self._by_window: defaultdict[OpenedWindow, int] = defaultdict(int)
        self._of_hub: set[int] = set()
        self._of_this: set[int] = set()
        """Those of the hub's present data, each of which is a window of its own."""
        self._generation = ""

    def heard(self, epoch: int, generation: str) -> None:
        """The hub has told of a window."""
        if generation != self._generation:
            self._generation, self._of_this = generation, set()
        if epoch >= 0:
            assert all(abs(epoch - other) * 1000 >= self.limit.window_ns for other in self._of_this - {epoch})
            self._of_hub.add(epoch)
            self._of_this.add(epoch)

    def admitted_by(self, node: int, cost: int, epoch: int) -> None:
        """A node has put a charge into the window that it was in."""
        self._by_window[OpenedWindow(node, epoch)] += cost
        self.charged += cost

    def gave_back_by(self, node: int, cost: int, epoch: int) -> None:
        """A request of a node turned out to be cheaper."""
        self._by_window[OpenedWindow(node, epoch)] -= cost
        self.refunded += cost

    def excess(self) -> float:
        """Returns the excess in the worst of all windows."""
        totals: defaultdict[int, int] = defaultdict(int)
        places = fleet_windows(self._by_window, self.limit.window_ns // 1000, of_hub=self._of_hub)
        for opened, cost in self._by_window.items():
            totals[places[opened]] += cost
        return max(totals.values(), default=0) - self.limit.capacity


def truth_of(limit: Limit, clock: ManualClock, twist: str) -> Truth:
    """The truth about one key of that limit."""
    if limit.align == FIRST_HIT:
        return FirstHitTruth(limit, clock)
    if limit.algorithm in FILLED:
        return BucketTruth(limit, clock)
    by_calendar = twist == "calendar" and limit.algorithm == FIXED_WINDOW
    return CalendarTruth(limit, clock) if by_calendar else Truth(limit, clock)


def next_edge_ns(limit: Limit, clock: ManualClock, twist: str) -> int:
    """How long until the next window of the hub's clock opens."""
    now_ns = clock.wall_ns()
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        calendar = ToyCalendar(limit.window_ns)
        return calendar.opens_ns(calendar.number(now_ns) + 1) - now_ns
    return limit.window_ns - now_ns % limit.window_ns


def usable(cell: Cell, window: int) -> int:
    """How far a node may go in a window by itself.

    Who has yet to open it will start it with its base; who has left it cannot use it any more.
    """
    if floats(cell):
        return (
            max(0, cell.allowance - cell.used) if cell.epoch == window else 0
        )  # beside what it has in use, as that fades
    if keeps_no_allowance(cell) and cell.table.meter.bucket:
        used = cell.charged + cell.used - cell.counted - cell.confirmed[1]
        return max(0, cell.allowance - used)  # what is left of a grant; the level is at the hub
    if not cell.table.meter.aligned or cell.epoch == window:
        return cell.allowance
    if cell.table.limit.align != FIRST_HIT or window < 0:
        return cell.base if cell.epoch < window else 0
    window_us = cell.table.window_ns // 1000
    if cell.epoch >= 0:
        overlaps = abs(cell.epoch - window) < window_us
        return cell.allowance if overlaps else cell.base if cell.epoch < window else 0
    left = (cell.before_ns + cell.shard.offset_ns) // 1000 > window - window_us
    return 0 if left else cell.base
