"""Algorithms that adapt the limit on requests in progress to their round trips: AIMD, Vegas and Gradient2."""

# Theory of operation.
#
# By Little's law a service that answers r requests a second, each in w seconds, has r w of them in progress. Below the
# capacity of the service, more requests in progress give more answers; beyond it they only wait for each other, and w
# grows. So the limit can be found from w, as TCP finds its congestion window from round trips. The three algorithms are
# those that Netflix's concurrency-limits documents, implemented anew:
#
#   AIMD       one more after a window without drops, a tenth fewer after one with drops.
#   Vegas      the queue is estimated as limit * (1 - no-load round trip / round trip). Below alpha = 3 log10(limit)
#              the limit grows by log10(limit), with next to no queue by beta = 6 log10(limit), and above beta it falls.
#   Gradient2  the limit is multiplied by a gradient, tolerance * (no-load round trip / round trip) between 0.5 and 1,
#              and gets room for a queue of 4 on top; each window moves it a fifth of the way to that value.
#
# Five known faults of that library are avoided here, and each has its test.
#
# 1. *Growth without load.* Short round trips prove nothing about a limit that is not reached. All three algorithms grow
#    only in windows in which at least half the limit was running.
# 2. *Growth without end* (concurrency-limits #134). There the room for a queue outweighs a gradient of 0.8 up to a
#    limit of 20, and with room of sqrt(limit) up to 25. In time the baseline, a long average, includes the queue, and
#    the gradient is 1 again. Here the room is full only without a queue (gradient 1), and shrinks to none at a
#    gradient of 0.8, so 0.8 shrinks every limit. And the baseline is no average that includes the queue, see 3.
# 3. *Drift of the no-load round trip.* Under steady load every round trip has a queue in it, the shortest too; taken as
#    the baseline it hides the queue, the limit grows, and the next baseline is longer. So the baseline is measured by a
#    probe: after `PROBE_WINDOWS` windows the requests in progress are lowered, for two windows, to 7/8 of the number
#    that runs without a queue by the present baseline. The first window lets the queue drain, and the second is
#    measured. The slots that are left free for more important classes are not part of that number: when a third of the
#    limit was left free, a probe that counted them emptied half of the workers. For the same reason the demand of these
#    classes counts less during a probe, without its part in the queue. Between probes the baseline only falls. A
#    baseline that was measured in a queue comes down by an eighth with each probe. If a service becomes slower without
#    a queue, its limit falls, and each time that it has halved, a probe begins at once. A probe that finds a longer
#    round trip raises the baseline half of the way, and another probe follows soon. A probe costs the least important
#    class an eighth of two windows, and the queue. The baseline is a mean, and not the shortest round trip, because
#    requests differ: the cheapest of a window may take a tenth of the others' time, and all others would seem to queue.
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
"""The fraction of the difference by which a longer round trip in a probe raises the baseline, the round trip without a
queue. Less than 1, as ten requests may be untypical."""
RISEN: Final = 0.2
"""The fraction by which a probe's round trip must exceed the baseline for the next probe to come early."""
AGAIN: Final = 10
"""The usual number of windows between two probes is divided by this for an early probe, so a baseline is known within
seconds."""
FALL: Final = 0.2
"""The fraction of the difference by which a window's shorter round trip lowers the baseline; its requests may be
cheap."""
ROOM_UNTIL: Final = 0.2
"""The limit leaves no room for a queue if the gradient, the baseline divided by the round trip, is 1 minus this; from
there to 1 the room grows linearly."""
PROBE_WINDOWS: Final = 100
"""The number of windows between two probes of the no-load round trip; they take at least ten seconds."""
EARLY: Final = 0.5
"""The fraction of the limit's highest value since the last probe; below it, a probe begins at once, as the service
itself may have become slower."""
PROBE_FRACTION: Final = 0.875
PROBE_FRACTION_MIN: Final = 0.25
"""The least fraction to which a probe, a measurement without a queue, lowers the number of requests in progress."""


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
        """The largest number of requests in progress at a refusal, in the last window before a probe; 0 without
        refusals."""
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
        backoff: the part of the limit that is left after a window with drops, from 0.5 up to less than 1.
        timeout: seconds; a window whose mean round trip is longer counts as a window with drops.

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
        if not isinstance(backoff, int | float) or not 0.5 <= backoff < 1:
            raise InvalidSetting("backoff", backoff, "must be at least 0.5 and less than 1")
        if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
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
    """Finds the limit by the queue's length, estimated from round trips compared to those without a queue: for servers.

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
    """Finds the limit by the ratio of round trips to those without a queue: the default, for services of any kind.

    Args:
        initial, min_limit, max_limit: the limit at the beginning, its lowest and its highest value.
        tolerance: how many times as long as without a queue a round trip may be before the limit falls; at least 1.
        queue: how many requests may queue beyond those that run, while round trips are not longer than without a queue.
        smoothing: how much of the way to its new value the limit goes in one window, above 0 and up to 1.
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
        if not isinstance(tolerance, int | float) or not 1 <= tolerance < math.inf:
            raise InvalidSetting("tolerance", tolerance, "must be a number of at least 1")
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
            raise InvalidSetting("queue", queue, "must be a whole number of at least 1")
        if not isinstance(smoothing, int | float) or not 0 < smoothing <= 1:
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

    Raises InvalidSetting unless they are whole numbers, in order and in range.
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
