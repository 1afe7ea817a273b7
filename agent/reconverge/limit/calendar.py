"""Calendar windows: the days, weeks, months and years of a time zone, in times of the hub's clock.

A window opens at the first midnight of its first day, by the zone's clocks, and closes when the next one opens, however
many hours later that is. The module reads no clock: callers pass all moments.
"""

# Windows of a calendar have no common length: a day lasts 23 to 25 hours, and now and then there is no midnight at all.
# The merge rule runs inside Redis, which has no time zones. So windows are numbered without gaps here, and each report
# names the window that its node is in, with the moments at which it opens and closes. `window_us` of such a report is
# the longest that a window of the kind may last, with a day to spare; the hub uses it only to expire data. Zones are
# read from the machine's tables when a limit is declared, and not while deciding. Nodes whose tables differ about a
# change of clocks differ by as much about the edge of a window.

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from reconverge.clock import SECOND_NS

_DAY_S: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_S: Final = 0
LAST_S: Final = 253_000_000_000
"""The last moment, in the year 9987, in seconds since the epoch. A later moment counts as in the last window, and a
moment before the epoch as in the first window: no hub's clock is that wrong."""


class Unit(NamedTuple):
    """A unit of the calendar, such as a week. Each window is one such unit; windows are numbered without gaps."""

    name: str
    window_s: int
    """The window, in seconds, by which a `Limit` stands for this unit: 30 days stand for a month."""
    longest_s: int
    """A number of seconds that no window of this unit exceeds: the longest unit by the calendar, and a day more,
    because some zones have put their clocks back by a day."""
    number_of: Callable[[date], int]
    first_day: Callable[[int], date]


UNITS: Final = (
    Unit("day", _DAY_S, 2 * _DAY_S, date.toordinal, date.fromordinal),
    Unit(
        "week",
        7 * _DAY_S,
        8 * _DAY_S,
        lambda day: (day.toordinal() - 1) // 7,  # the first day of all was a Monday
        lambda number: date.fromordinal(7 * number + 1),
    ),
    Unit(
        "month",
        30 * _DAY_S,
        32 * _DAY_S,
        lambda day: 12 * day.year + day.month - 1,
        lambda number: date(number // 12, number % 12 + 1, 1),
    ),
    Unit("year", 360 * _DAY_S, 367 * _DAY_S, lambda day: day.year, lambda number: date(number, 1, 1)),
)


def unit_of(window_ns: int) -> Unit | None:
    """Returns the calendar unit that a window of this length means, such as a month for 30 days; None for others."""
    return next((unit for unit in UNITS if unit.window_s * SECOND_NS == window_ns), None)


@lru_cache(maxsize=256)
def is_zone(name: str) -> bool:
    """Returns whether this machine knows a time zone named `name`."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no name at all; the name of a folder
        return False
    return True


class CalendarWindows:
    """The windows of one unit in one zone. Moments are nanoseconds of the hub's clock."""

    def __init__(self, unit: Unit, zone: str) -> None:
        self.unit = unit
        self.zone = zone
        self._zone = ZoneInfo(zone)
        self._found = (0, 0, 0)
        """The last window that was looked up: its number, and when it opens and closes, in nanoseconds. Most calls are
        about the same window."""

    @property
    def longest_ns(self) -> int:
        """Returns a length in nanoseconds that no window exceeds."""
        return self.unit.longest_s * SECOND_NS

    def number(self, hub_ns: int) -> int:
        """Returns the number of the window that contains the moment `hub_ns`."""
        number, opens_ns, closes_ns = self._found
        if opens_ns <= hub_ns < closes_ns:
            return number
        moment_s = min(max(hub_ns // SECOND_NS, FIRST_S), LAST_S)
        number = self.unit.number_of(self._day(moment_s))
        # Where clocks are put back across midnight, a day comes twice; it counts from its first moment on.
        while moment_s < self._opens_s(number):
            number -= 1
        while moment_s >= self._opens_s(number + 1):
            number += 1
        self._found = (number, self.opens_ns(number), self.opens_ns(number + 1))
        return number

    def opens_ns(self, number: int) -> int:
        """Returns the moment at which window `number` begins, in nanoseconds; the previous window ends then."""
        known, opens_ns, closes_ns = self._found
        if number == known:
            return opens_ns
        return closes_ns if number == known + 1 else self._opens_s(number) * SECOND_NS

    def _opens_s(self, number: int) -> int:
        """Returns the first midnight of the first day of window `number`, in seconds since the epoch.

        If the zone's clocks skip that midnight, returns the moment at which it would have come without the skip.
        """
        day = self.unit.first_day(number)
        return (datetime(day.year, day.month, day.day, tzinfo=self._zone) - _EPOCH) // timedelta(seconds=1)

    def _day(self, moment_s: int) -> date:
        return datetime.fromtimestamp(moment_s, self._zone).date()
