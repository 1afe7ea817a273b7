"""Signals of a worker's load, in units of its target: the wait in its event loop, or the fraction of busy threads."""

# Theory of operation.
#
# Each signal gives a pressure: 1.0 is the target, less is room, more is overload.
#
# *Loop lag* is how long a callback waits until the event loop comes to it. The loop cannot measure this by itself: a
# timer that is late because of the work fires after the work. So another thread schedules a callback in the loop, and
# looks at the clock again and again: while the callback has not run, its age is a reading already, so a stall of two
# seconds is noticed after a tenth of a second. A queue in the operating system in front of the process is measured as
# well, as far as the loop reads it: each round of the loop handles all that has arrived, and the callback waits for the
# round.
#
# The loop does not read the whole queue of new connections: uvloop accepts one of them in each round, asyncio's own
# loop all. Where each request has a connection of its own, connections wait for seconds while a round takes
# milliseconds, so the lag does not show the wait. The kernel knows how many wait (`backlog.py`); their number divided
# by the rate of requests is the time that they wait, and is added to the lag. Of the readings within a tenth of a
# second the shortest backlog counts, as one that is empty now and then is no queue (CoDel's observation about queues).
#
# Systems other than Linux, and sockets that are not of TCP, do not report the backlog. One sign is left there: a loop
# with a queue in front of it never has a pause. So the shortest lag of the last `STANDING_STEPS` readings, the
# *standing* lag, is added `STANDING_WEIGHT` times. It shows rounds of tens of milliseconds, and no shorter ones.
#
# *Occupancy* is the average fraction of busy workers: threads of a WSGI server, or slots of a pool. When all are busy,
# it does not show the size of the overload: all are busy at 1.01 times the capacity and at 10 times. So the pressure is
# proportional a little above the target, and steep near the end: with all workers busy it is `FULL_PRESSURE`.

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.runtime.locks import new_lock
from reconverge.shedding.worker.backlog import Backlog

LAG_TARGET_S: Final = 0.05
STANDING_STEPS: Final = 4
"""The standing lag is the shortest lag of this many last readings, which a shedder makes in a fifth of a second."""
STANDING_WEIGHT: Final = 8.0
WAITING_READINGS: Final = 4
"""The shortest backlog of this many last readings counts, made in a tenth of a second: a short burst is no queue."""
RATE_S: Final = 1.0
"""The time constant, in seconds, with which the measured rate follows the arriving requests."""
RATE_MIN: Final = 1.0
"""The lowest rate, in requests per second, by which the time to work off the backlog is estimated."""
BUSY_TARGET: Final = 0.8
FULL_PRESSURE: Final = 5.0
UNHEARD_NS: Final = 1 << 62
"""The shortest lag, in nanoseconds, as long as no lag was measured: a value that is larger than any lag."""


Clockwork: TypeAlias = Callable[[], int]
"""A function that returns the time of the monotonic clock, in nanoseconds."""


class Signal(Protocol):
    """The interface of a measure of a worker's load. Thread-safe."""

    @property
    def counts(self) -> bool:
        """Returns whether the signal must be notified when requests begin and end."""
        ...

    def began(self, now_ns: int) -> None:
        """Counts an admitted request, if the signal counts requests."""
        ...

    def ended(self, now_ns: int) -> None:
        """Counts the end of an admitted request, if the signal counts requests."""
        ...

    def pressure(self, now_ns: int) -> float:
        """Returns the load since the last call, as a multiple of its target: 1.0 is the target."""
        ...

    def start_over(self) -> None:
        """Starts anew in a forked child, where no request runs and no measurement counts."""
        ...


class LoopLag:
    """Measures how long callbacks wait in an event loop; `target` is the longest tolerable wait in seconds."""

    counts = False

    def __init__(self, target: float = LAG_TARGET_S) -> None:
        if isinstance(target, bool) or not isinstance(target, int | float) or not 0.001 <= target <= 60:
            raise InvalidSetting("target", target, "must be a number of seconds from 0.001 to 60")
        self._target_ns = round(target * 1e9)
        self._sent_ns = 0
        self._answered = True
        self._worst_ns = 0
        self._least_ns = UNHEARD_NS
        self._leasts_ns: deque[int] = deque(maxlen=STANDING_STEPS)
        self.backlog: Final = Backlog()
        """The connections that wait until the loop accepts them."""
        self._waiting: deque[int] = deque(maxlen=WAITING_READINGS)
        self._rate = 0.0
        """The number of requests that arrive in a second."""

    def probe(self, loop: asyncio.AbstractEventLoop, now_ns: int, answer_ns: Clockwork) -> bool:
        """Schedules a callback in the loop, from another thread, unless one is pending.

        Returns whether the loop is open. The callback reads the clock `answer_ns` when the loop runs it.
        """
        waiting = self.backlog.waiting()
        if waiting is not None:
            self.waits(waiting)
        if not self._answered:
            self._worst_ns = max(self._worst_ns, now_ns - self._sent_ns)
            return not loop.is_closed()
        self._answered = False
        self._sent_ns = now_ns
        try:
            loop.call_soon_threadsafe(self._answer, answer_ns, now_ns)
        except RuntimeError:  # it is closed
            self._answered = True
            return False
        return True

    def _answer(self, answer_ns: Clockwork, sent_ns: int) -> None:
        self.heard(answer_ns() - sent_ns)
        self._answered = True

    def waits(self, connections: int) -> None:
        """Stores how many connections wait in the backlog."""
        self._waiting.append(connections)

    def arrived(self, requests: int, elapsed_s: float) -> None:
        """Counts the requests that have arrived in the last `elapsed_s` seconds, rejected ones included."""
        if elapsed_s > 0:
            weight = 1.0 - math.exp(-elapsed_s / RATE_S)
            self._rate += weight * (requests / elapsed_s - self._rate)

    def heard(self, lag_ns: int) -> None:
        """Stores the delay in nanoseconds after which a callback ran in the loop."""
        self._worst_ns = max(self._worst_ns, lag_ns)
        self._least_ns = min(self._least_ns, lag_ns)

    def began(self, now_ns: int) -> None:
        """Does nothing: the lag is measured by callbacks in the loop, not by the beginnings of requests."""

    def ended(self, now_ns: int) -> None:
        """Does nothing: the lag is measured by callbacks in the loop, not by the ends of requests."""

    def pressure(self, now_ns: int) -> float:
        """Returns the longest lag since the last call, divided by the target; a callback's wait so far counts, too.

        The time to work off the connections in the backlog is added to the lag. If the kernel does not report the
        backlog, a multiple of the shortest recent lag is added in its place.
        """
        age_ns = 0 if self._answered else now_ns - self._sent_ns
        worst_ns = max(self._worst_ns, age_ns)
        self._leasts_ns.append(age_ns if self._least_ns == UNHEARD_NS else self._least_ns)
        self._worst_ns, self._least_ns = 0, UNHEARD_NS
        if len(self._waiting) == WAITING_READINGS:
            return (worst_ns + min(self._waiting) / max(self._rate, RATE_MIN) * SECOND_NS) / self._target_ns
        standing_ns = min(self._leasts_ns) if len(self._leasts_ns) == STANDING_STEPS else 0
        return (worst_ns + STANDING_WEIGHT * standing_ns) / self._target_ns

    def start_over(self) -> None:
        self._answered = True
        self._worst_ns, self._least_ns = 0, UNHEARD_NS
        self._leasts_ns.clear()
        self._waiting.clear()
        self.backlog.start_over()


class Occupancy:
    """Measures how many of the process's `workers` threads are busy, by counting the requests in progress.

    `target` is the fraction that may be busy on average. Raises InvalidSetting for numbers out of range.
    """

    counts = True

    def __init__(self, workers: int, target: float = BUSY_TARGET) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise InvalidSetting(
                "workers", workers, "must be a whole number of at least 1: how many requests run at once"
            )
        if isinstance(target, bool) or not isinstance(target, int | float) or not 0.1 <= target <= 0.99:
            raise InvalidSetting("target", target, "must be a fraction from 0.1 to 0.99")
        self.workers = workers
        self._target = float(target)
        self._lock = new_lock()
        self.busy = 0
        self._area_ns = 0
        self._changed_ns = 0
        self._asked_ns = 0

    def began(self, now_ns: int) -> None:
        self._change(now_ns, 1)

    def ended(self, now_ns: int) -> None:
        self._change(now_ns, -1)

    def _change(self, now_ns: int, by: int) -> None:
        with self._lock:
            self._area_ns += self.busy * max(0, now_ns - self._changed_ns)
            self._changed_ns = max(now_ns, self._changed_ns)
            self.busy = max(0, self.busy + by)

    def pressure(self, now_ns: int) -> float:
        self._change(now_ns, 0)
        with self._lock:
            lasted_ns = now_ns - self._asked_ns
            mean = self._area_ns / lasted_ns if lasted_ns > 0 else float(self.busy)
            self._area_ns = 0
            self._asked_ns = now_ns
        return pressure_of(mean / self.workers, self._target)

    def start_over(self) -> None:
        self.busy = self._area_ns = 0


def pressure_of(busy: float, target: float) -> float:
    """Returns the load as a multiple of its target, from two fractions of busy threads: `busy` and the `target`.

    It is 1.0 at the target, proportional to the fraction below it, and FULL_PRESSURE if all threads are busy.
    """
    if busy <= target:
        return busy / target
    beyond = min(1.0, (busy - target) / (1.0 - target))
    return 1.0 + beyond + (FULL_PRESSURE - 2.0) * beyond**4
