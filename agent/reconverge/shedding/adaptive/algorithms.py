"""Algorithms that adapt the limit on requests in progress to their durations (round trips): AIMD, Vegas, Gradient2."""

# Theory of operation.
#
# By Little's law a service that answers r requests a second, each in w seconds, has r w of them in progress. Below the
# capacity of the service, more requests in progress give more answers; beyond it they only wait for each other, and w
# grows. So the limit can be found from w, as TCP finds its congestion window from round trips. The three algorithms are
# those that Netflix's concurrency-limits documents, implemented anew:
#
#   AIMD       one more after a window without drops, a tenth fewer after one with drops.
#   Vegas      the queue is estimated as limit * (1 - no-load round trip / round trip). With s = log10(limit), the limit
#              grows by 6 s if the queue is at most s, and by s if the queue is below 3 s. Above 6 s it falls by s.
#   Gradient2  the limit is multiplied by a gradient, tolerance * (no-load round trip / round trip) between 0.5 and 1,
#              and gets room for a queue of 4 on top; each window moves it a fifth of the way to that value.
#
# Five known faults of that library are avoided here, and each has its test.
#
# 1. *Growth without load.* Short round trips prove nothing about a limit that is not reached. All three algorithms grow
#    only in windows in which at least half the limit was running.
# 2. *Growth without end* (concurrency-limits #134). In that library a limit below 20 grows even at a gradient of 0.8,
#    because the room of 4 adds more than the gradient takes away; with room of sqrt(limit), so does a limit below 25.
#    In time the baseline, a long average, includes the queue, and the gradient is 1 again. Here the room is 4 only
#    without a queue (gradient 1), and 0 from a gradient of 0.8 down, so a gradient of 0.8 lowers every limit. And the
#    baseline is no average that includes the queue, see 3.
# 3. *Drift of the no-load round trip.* Under steady load every round trip has a queue in it, the shortest too; taken as
#    the baseline it hides the queue, the limit grows, and the next baseline is longer. So the baseline is measured by a
#    probe. After `PROBE_WINDOWS` windows, the number of requests in progress is lowered for two windows, to 7/8 of the
#    number that would run without a queue according to the present baseline. The queue drains in the first window, and
#    the second window is measured. Slots that are left free for more important classes do not count in that number:
#    when a third of the limit was left free, a probe that counted them emptied half of the workers. For the same
#    reason, fewer slots are left free for these classes during a probe: their demand counts without the requests that
#    only queue. Between probes the baseline only falls. A baseline that was measured in a queue falls by an eighth with
#    each probe. If a service becomes slower without a queue, its limit falls, and each time that it has halved, a probe
#    begins at once. If a probe finds a longer round trip, the baseline rises by half of the difference, and another
#    probe follows soon. A probe costs the least important class an eighth of its requests in two windows, and those
#    that would have queued. The baseline is a mean, and not the shortest round trip, because requests differ: the
#    cheapest of a window may take a tenth of the others' time, and all others would seem to queue.
# 4. *A plateau of timeouts.* Where every request times out, round trips are equal and seem to be without a queue. So
#    drops lower the limit by a tenth in all three algorithms, and the time of a dropped request is no round trip. A
#    window without a served request never ends a probe.
# 5. *A race between testing the limit and counting the request.* See `slots.py`.
#
# Callers pass windows, limits and round trips; this module has no clock and draws no random numbers.

from __future__ import annotations

import math
from typing import Final, Protocol

from reconverge.errors import InvalidSetting
from reconverge.shedding.adaptive.sample import Sample

LIMIT_INITIAL: Final = 20
LIMIT_MIN: Final = 1
LIMIT_MAX: Final = 1000
LIMIT_CEILING: Final = 1_000_000
"""The highest limit that any algorithm sets."""
BACKOFF: Final = 0.9
RISE: Final = 0.5
"""If a probe measures a longer round trip than the baseline (the round trip without a queue), the baseline rises by
this fraction of the difference. It is less than 1, as ten requests may be untypical."""
RISEN: Final = 0.2
"""If a probe's round trip exceeds the baseline by more than this fraction of it, the next probe comes early."""
AGAIN: Final = 10
"""The usual number of windows between two probes is divided by this if a probe must follow early. So a new baseline is
known within seconds."""
FALL: Final = 0.2
"""If the round trip of a window is shorter than the baseline, the baseline falls by this fraction of the difference.
It is less than 1, as the window's requests may have been cheap."""
ROOM_UNTIL: Final = 0.2
"""The limit leaves full room for a queue at a gradient of 1, and none from 1 minus this value down; in between, the
room grows linearly. The gradient is the tolerance times the baseline, divided by the round trip."""
PROBE_WINDOWS: Final = 100
"""The number of windows between two probes of the no-load round trip; they take at least ten seconds."""
EARLY: Final = 0.5
"""If the limit falls below this fraction of its highest value since the last probe, a probe begins at once, as the
service itself may have become slower."""
PROBE_FRACTION: Final = 0.875
PROBE_FRACTION_MIN: Final = 0.25
"""A probe (a measurement without a queue) lowers the number of requests in progress to no less than this fraction."""


class Algorithm(Protocol):
    """An algorithm that finds the limit on concurrent requests. Not thread-safe: the caller holds a lock."""

    @property
    def limit(self) -> int:
        """Returns the present limit: how many requests may run at once."""
        ...

    def update(self, sample: Sample) -> int:
        """Adapts the limit to the measurements of one window of requests, and returns it."""
        ...


class Baseline:
    """The measured round trip of requests without a queue. It falls at any time, and rises only in a probe.

    A probe is a window with a lower limit, in which the queue drains.
    """

    def __init__(self, probe_windows: int) -> None:
        self.round_trip_ns = 0
        """The baseline, in nanoseconds; 0 before the first window."""
        self._last_ns = 0
        self._full_at = 0
        """The largest number of requests in progress when one was refused, in the last window before a probe. It is 0
        if none was refused."""
        self._every = probe_windows
        self._left = probe_windows
        self._probing = 0
        self._reference = 0.0
        """The highest limit since the last probe."""

    @property
    def probing(self) -> bool:
        """Returns whether the limit is lowered for the present window, to measure round trips without a queue."""
        return self._probing > 0

    @property
    def scale(self) -> float:
        """Returns the fraction to which a probe lowers the requests in progress; 1 while there is no probe."""
        return self._without_queue() if self._probing else 1.0

    def _without_queue(self) -> float:
        return min(1.0, self.round_trip_ns / self._last_ns) if self._last_ns else 1.0

    def lowered(self, limit: float) -> float:
        """Returns `limit`, or during a probe a lower limit, at which the queue drains."""
        if not self._probing:
            return limit
        fraction = max(PROBE_FRACTION * self._without_queue(), PROBE_FRACTION_MIN)
        running = min(self._full_at or limit, limit)
        return math.ceil(limit - running * (1.0 - fraction))

    def update(self, sample: Sample, limit: float) -> None:
        """Updates the baseline from one window that ended under `limit`; begins or ends a probe if it is time."""
        round_trip_ns = sample.round_trip_ns
        if not round_trip_ns:
            return
        if self._probing == 2:
            self._probing = 1  # what ran in this window began before the limit was lowered
        elif self._probing == 1:
            self._probing = 0
            rise_ns = round_trip_ns - self.round_trip_ns
            risen = rise_ns > RISEN * self.round_trip_ns
            self._left = max(1, self._every // AGAIN) if risen else self._every
            self.round_trip_ns += int(RISE * rise_ns) if rise_ns > 0 else rise_ns
            self._reference = 0.0
            return
        else:
            self._left -= 1
            self._last_ns = round_trip_ns
            self._full_at = sample.full_at
            self._reference = max(self._reference, limit)
            if self._left <= 0 or limit < EARLY * self._reference:
                self._probing = 2
        if not self.round_trip_ns:
            self.round_trip_ns = round_trip_ns
        elif round_trip_ns < self.round_trip_ns:
            self.round_trip_ns -= max(1, int(FALL * (self.round_trip_ns - round_trip_ns)))


class Aimd:
    """Additive increase, multiplicative decrease: for services that signal overload by refusals or timeouts.

    Args:
        initial, min_limit, max_limit: the limit at the beginning, its lowest and its highest value.
        backoff: the factor that lowers the limit after a window with dropped requests, from 0.5 up to less than 1.
        timeout: seconds; a window whose mean round trip is longer counts as a window with dropped requests.

    Raises InvalidSetting for numbers out of range.
    """

    def __init__(
        self,
        *,
        initial: int = LIMIT_INITIAL,
        min_limit: int = LIMIT_MIN,
        max_limit: int = LIMIT_MAX,
        backoff: float = BACKOFF,
        timeout: float = 5.0,
    ) -> None:
        self._exact, self._least, self._most = checked_limits(initial, min_limit, max_limit)
        if isinstance(backoff, bool) or not isinstance(backoff, int | float) or not 0.5 <= backoff < 1:
            raise InvalidSetting("backoff", backoff, "must be at least 0.5 and less than 1")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise InvalidSetting("timeout", timeout, "must be a number of seconds above zero")
        self._backoff = backoff
        self._timeout_ns = round(timeout * 1e9)

    @property
    def limit(self) -> int:
        return int(self._exact)

    def update(self, sample: Sample) -> int:
        if sample.dropped or sample.round_trip_ns > self._timeout_ns:
            self._exact *= self._backoff
        elif 2 * sample.in_flight >= self.limit:
            self._exact += 1.0
        self._exact = min(max(self._exact, self._least), self._most)
        return self.limit


class Probing:
    """The common part of Vegas and Gradient2: it measures the baseline, and lowers the limit after dropped requests."""

    def __init__(self, initial: object, least: object, most: object, probe_windows: object) -> None:
        self._exact, self._least, self._most = checked_limits(initial, least, most)
        self.baseline = Baseline(checked_probe(probe_windows))

    @property
    def probe_scale(self) -> float:
        """Returns the fraction to which a probe lowers the requests in progress; 1 while there is no probe."""
        return self.baseline.scale

    @property
    def limit(self) -> int:
        """Returns the limit, which is lower during a probe."""
        return int(max(self._least, self.baseline.lowered(self._exact)))

    def update(self, sample: Sample) -> int:
        probing = self.baseline.probing
        known_ns = self.baseline.round_trip_ns
        self.baseline.update(sample, self._exact)
        if sample.dropped:
            self._exact *= BACKOFF
        elif not probing and sample.round_trip_ns and 2 * sample.in_flight >= self._exact:
            self._move(sample, known_ns)
        self._exact = min(max(self._exact, self._least), self._most)
        return self.limit

    def _move(self, sample: Sample, known_ns: int) -> None:
        """Raises or lowers the limit after a window; `known_ns` is the baseline before it, 0 for the first window."""
        raise NotImplementedError


class Vegas(Probing):
    """Finds the limit from the length of the queue, which it estimates from round trips with and without a queue.

    It is meant for servers.

    Args:
        initial, min_limit, max_limit: the limit at the beginning, its lowest and its highest value.
        probe_windows: how many windows lie between two probes of the no-load round trip.

    Raises InvalidSetting for numbers out of range.
    """

    def __init__(
        self,
        *,
        initial: int = LIMIT_INITIAL,
        min_limit: int = LIMIT_MIN,
        max_limit: int = LIMIT_MAX,
        probe_windows: int = PROBE_WINDOWS,
    ) -> None:
        super().__init__(initial, min_limit, max_limit, probe_windows)

    def _move(self, sample: Sample, known_ns: int) -> None:
        if not known_ns:
            return
        step = max(1.0, math.log10(self._exact))
        queue = self._exact * (1.0 - min(1.0, self.baseline.round_trip_ns / sample.round_trip_ns))
        if queue <= step:
            self._exact += 6.0 * step
        elif queue < 3.0 * step:
            self._exact += step
        elif queue > 6.0 * step:
            self._exact -= step


class Gradient2(Probing):
    """Finds the limit from the ratio of round trips with and without a queue. The default, for services of any kind.

    Args:
        initial, min_limit, max_limit: the limit at the beginning, its lowest and its highest value.
        tolerance: the limit falls if round trips are longer than this many times a round trip without a queue; at
            least 1.
        queue: how many requests may queue beyond those that run, as long as round trips show no queue.
        smoothing: the fraction of the way to its new value that the limit moves in one window, above 0 and up to 1.
        probe_windows: how many windows lie between two probes of the no-load round trip.

    Raises InvalidSetting for numbers out of range.
    """

    def __init__(
        self,
        *,
        initial: int = LIMIT_INITIAL,
        min_limit: int = LIMIT_MIN,
        max_limit: int = LIMIT_MAX,
        tolerance: float = 1.5,
        queue: int = 4,
        smoothing: float = 0.2,
        probe_windows: int = PROBE_WINDOWS,
    ) -> None:
        super().__init__(initial, min_limit, max_limit, probe_windows)
        if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 1 <= tolerance < math.inf:
            raise InvalidSetting("tolerance", tolerance, "must be a number of at least 1")
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
            raise InvalidSetting("queue", queue, "must be a whole number of at least 1")
        if isinstance(smoothing, bool) or not isinstance(smoothing, int | float) or not 0 < smoothing <= 1:
            raise InvalidSetting("smoothing", smoothing, "must be above 0 and at most 1")
        self._tolerance = tolerance
        self._queue = queue
        self._smoothing = smoothing

    def _move(self, sample: Sample, known_ns: int) -> None:  # noqa: ARG002  # the first window moves it, too
        ratio = self._tolerance * self.baseline.round_trip_ns / sample.round_trip_ns
        gradient = min(max(ratio, 0.5), 1.0)
        room = self._queue * max(0.0, 1.0 - (1.0 - gradient) / ROOM_UNTIL)
        wanted = self._exact * gradient + room
        self._exact += self._smoothing * (wanted - self._exact)


class Fixed:
    """A limit that an operator has set; no measurement changes it."""

    def __init__(self, limit: int) -> None:
        self.limit = int(checked_limits(limit, 1, LIMIT_CEILING)[0])

    def update(self, sample: Sample) -> int:  # noqa: ARG002  # as the protocol has it
        return self.limit


def checked_limits(initial: object, least: object, most: object) -> tuple[float, float, float]:
    """Returns the initial, the lowest and the highest limit as floats.

    Raises InvalidSetting unless all are whole numbers from 1 to LIMIT_CEILING, and `least` <= `initial` <= `most`.
    """
    for name, value in (("min_limit", least), ("max_limit", most), ("initial", initial)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LIMIT_CEILING:
            raise InvalidSetting(name, value, f"must be a whole number from 1 to {LIMIT_CEILING}")
    assert isinstance(initial, int) and isinstance(least, int) and isinstance(most, int)  # noqa: PT018  # as checked
    if not least <= initial <= most:
        raise InvalidSetting("initial", initial, f"must be from min_limit={least} to max_limit={most}")
    return float(initial), float(least), float(most)


def checked_probe(windows: object) -> int:
    """Returns `windows`, the number of windows between two probes. Raises InvalidSetting unless it is at least 5."""
    if isinstance(windows, bool) or not isinstance(windows, int) or windows < 5:
        raise InvalidSetting("probe_windows", windows, "must be a whole number of at least 5")
    return windows
