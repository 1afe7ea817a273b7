"""Measures windows of requests: how long requests took, how many ran at once, and whether any was dropped."""

# Theory of operation.
#
# A single round trip says little: it may have been a cheap request, or one behind a pause of the garbage collector. So
# an algorithm gets the measurements of a window: the mean of the round trips that ended in the window, the most
# requests that ran at once, and whether any was dropped. A window lasts for at least a tenth of a second, for at least
# twice the shortest round trip in it, and until it has ten round trips. In Netflix's library it lasts for a second.
#
# A dropped request's time is that of a timeout, which is a setting and no measurement: it never enters the mean, or a
# service whose requests all time out would seem to have a steady round trip.

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconverge.clock import MILLISECOND_NS

WINDOW_NS_MIN: Final = 100 * MILLISECOND_NS
WINDOW_NS_MAX: Final = 1000 * MILLISECOND_NS
"""No window has to last longer than this, however long its round trips are."""
ROUND_TRIPS_MIN: Final = 10
QUIET_NS: Final = 10_000 * MILLISECOND_NS
"""A window that still has too few round trips after this time is dropped, as they are too old to be averaged."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one window of requests.

    `round_trip_ns` is the mean duration of served requests, 0 if none was served; `in_flight` is the most that ran at
    once. `full_at` is the largest number that ran when a request was refused, 0 if none was refused. It is less than
    the limit if slots are left free for more important classes.
    """

    round_trip_ns: int
    in_flight: int
    dropped: bool = False
    full_at: int = 0


class SampleWindow:
    """Gathers round trips until the window is full, and makes a `Sample` of them. Callers pass the time."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._sum_ns = 0
        self._served = 0
        self._dropped = 0
        self._shortest_ns = 0
        self._in_flight = 0

    def add(self, now_ns: int, round_trip_ns: int, in_flight: int, *, dropped: bool, full_at: int = 0) -> Sample | None:
        """Adds a request that ended at `now_ns`. Returns the window's sample if the window is full now; else None.

        `in_flight` is the number of requests that ran when this one began, itself included. `full_at` is the largest
        number of requests in progress at a refusal since the last window; 0 without refusals.
        """
        if not self._served and not self._dropped:
            self._begin(now_ns)
        if in_flight > self._in_flight:  # noqa: PLR1730  # each request comes here, and a call takes longer
            self._in_flight = in_flight
        if dropped:
            self._dropped += 1
        else:
            self._served += 1
            self._sum_ns += round_trip_ns
            if not self._shortest_ns or round_trip_ns < self._shortest_ns:
                self._shortest_ns = round_trip_ns
        lasted_ns = now_ns - self._began_ns
        if lasted_ns < WINDOW_NS_MIN:
            return None
        if lasted_ns < min(max(WINDOW_NS_MIN, 2 * self._shortest_ns), WINDOW_NS_MAX):
            return None
        if self._served + self._dropped < ROUND_TRIPS_MIN:
            if lasted_ns >= QUIET_NS:
                self._begin(now_ns)
            return None
        mean_ns = self._sum_ns // self._served if self._served else 0
        sample = Sample(mean_ns, self._in_flight, self._dropped > 0, full_at)
        self._begin(now_ns)
        return sample
