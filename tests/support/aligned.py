"""A vocabulary for tests of windows' beginnings and buckets' refills: unusual limits, and the truth about them."""

from __future__ import annotations

from dataclasses import replace

from reconverge.clock import ManualClock
from reconverge.limit import FILLED, FIRST_HIT, FIXED_WINDOW, INTERVAL, Limit
from reconverge.simulation.explore.node import SmallNode
from reconverge.simulation.explore.observer import TrueUse, truth_of

TWISTS = ("plain", "plain", "calendar", "first-hit", "initial", "interval", "initial and interval")
"""The unusual properties of a limit."""


class ToyCalendar:
    """A calendar whose windows differ much in length, and are about as long as the limit's.

    So tests need not wait for days.
    """

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
    """Returns the limit with that property, if its algorithm can have it; the node sets calendars."""
    if twist == "first-hit" and limit.algorithm == FIXED_WINDOW:
        return replace(limit, align=FIRST_HIT)
    if limit.algorithm not in FILLED:
        return limit
    if "initial" in twist:
        limit = replace(limit, initial=limit.capacity // 3)
    return replace(limit, refill=INTERVAL) if "interval" in twist else limit


def follow_calendar(node: SmallNode, limit: Limit, twist: str) -> None:
    """Puts the node's limit on the toy calendar, if that is the property and the algorithm has such windows."""
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        table = node.kernel.tables["limit"]
        table.calendar = ToyCalendar(limit.window_ns)  # type: ignore[assignment]
        table.choose_path()


class CalendarTruth(TrueUse):
    """The truth about a limit whose windows are numbered by the calendar."""

    def counts_at(self, epoch: int) -> bool:
        """Returns whether the hub's answer is about the calendar's present window, and can be compared."""
        return epoch == ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())

    def excess(self) -> float:
        epoch = ToyCalendar(self.limit.window_ns).number(self._clock.wall_ns())
        return max(self._by_epoch.get(epoch, 0), self._by_epoch.get(epoch + 1, 0)) - self.limit.capacity


def twisted_truth(limit: Limit, clock: ManualClock, twist: str) -> TrueUse:
    """Returns the truth about one key of a limit with that property."""
    by_calendar = twist == "calendar" and limit.algorithm == FIXED_WINDOW
    return CalendarTruth(limit, clock) if by_calendar else truth_of(limit, clock)


def next_edge_ns(limit: Limit, clock: ManualClock, twist: str) -> int:
    """Returns the time until the next window of the hub's clock opens, in nanoseconds."""
    now_ns = clock.wall_ns()
    if twist == "calendar" and limit.algorithm == FIXED_WINDOW:
        calendar = ToyCalendar(limit.window_ns)
        return calendar.opens_ns(calendar.number(now_ns) + 1) - now_ns
    return limit.window_ns - now_ns % limit.window_ns
