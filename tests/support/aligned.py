"""A vocabulary for tests of where windows begin and how buckets refill: unusual limits, and the truth about them."""

from __future__ import annotations

from dataclasses import replace

from reconverge.clock import ManualClock
from reconverge.limit import FILLED, FIRST_HIT, FIXED_WINDOW, INTERVAL, Limit
from reconverge.simulation.explore.node import SmallNode
from reconverge.simulation.explore.observer import TrueUse, truth_of

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


def follow_calendar(node: SmallNode, limit: Limit, twist: str) -> None:
    """Puts the node's limit on the toy calendar, if that is the twist and the algorithm has windows of the kind."""
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        table = node.kernel.tables["limit"]
        table.calendar = ToyCalendar(limit.window_ns)  # type: ignore[assignment]
        table.choose_path()


class CalendarTruth(TrueUse):
    """Windows are numbered by the calendar."""

    def counts_at(self, epoch: int) -> bool:
        """Compare the hub's answer about the window that the calendar is in."""
        return epoch == ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())

    def excess(self) -> float:
        epoch = ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())
        return max(self._by_epoch.get(epoch, 0), self._by_epoch.get(epoch + 1, 0)) - self.limit.capacity


def twisted_truth(limit: Limit, clock: ManualClock, twist: str) -> TrueUse:
    """The truth about one key of a limit with that twist."""
    by_calendar = twist == "calendar" and limit.algorithm == FIXED_WINDOW
    return CalendarTruth(limit, clock) if by_calendar else truth_of(limit, clock)


def next_edge_ns(limit: Limit, clock: ManualClock, twist: str) -> int:
    """How long until the next window of the hub's clock opens."""
    now_ns = clock.wall_ns()
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        calendar = ToyCalendar(limit.window_ns)
        return calendar.opens_ns(calendar.number(now_ns) + 1) - now_ns
    return limit.window_ns - now_ns % limit.window_ns
