"""The clocks, which are the only source of time, and functions that convert durations.

All other modules get moments as whole nanoseconds of one of two clocks. `monotonic_ns`, which never jumps, measures how
long ago something was. `wall_ns`, which may jump, decides in which window a moment lies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import isfinite
from typing import Protocol, TypeAlias, TypeVar

from reconverge.errors import InvalidSetting

T = TypeVar("T")
Seconds: TypeAlias = float | timedelta
"""A duration as users may pass it: a number of seconds, or a `timedelta`."""


def in_seconds(value: T | timedelta) -> T | float:
    """Converts a `timedelta` to a number of seconds; returns any other value unchanged."""
    return value.total_seconds() if isinstance(value, timedelta) else value


MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
NEVER_NS = 1 << 62
"""A moment that no clock will reach."""


def seconds(nanoseconds: int) -> float:
    """Returns nanoseconds as seconds, in a float."""
    return float(nanoseconds) / SECOND_NS


class Clock(Protocol):
    """A source of time.

    Promises: `monotonic_ns` never runs backwards.
    Does not promise: that `wall_ns` agrees with any other machine, or does not jump.
    """

    def monotonic_ns(self) -> int:
        """Returns nanoseconds since an arbitrary start; only differences mean anything."""
        ...

    def wall_ns(self) -> int:
        """Returns nanoseconds since 1970-01-01T00:00:00Z."""
        ...


class SystemClock:
    """The machine's own clocks. On Linux the monotonic clock goes on while the machine is suspended.

    As the hub's clock goes on, too, a node on a machine that wakes up knows whether its lease has ended.
    """

    monotonic_ns = staticmethod(
        partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic_ns
    )
    wall_ns = staticmethod(time.time_ns)


class ManualClock:
    """A clock for tests, which moves only when a method moves it.

    `start` is the wall time in seconds. `advance` moves both clocks, as time passing does; `jump` moves the wall clock
    alone, as an operator or NTP does. A caller that waits for a limit on this clock (see `RateLimiter.wait`) is woken
    by `advance`, and by nothing else.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._monotonic_ns = 0
        self._wall_ahead_ns = _in_ns("start", start, "since 1970; write start=moment.timestamp()")
        self._watchers: list[Callable[[int], None]] = []

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def wall_ns(self) -> int:
        return self._monotonic_ns + self._wall_ahead_ns

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass on both clocks, rounded to the nanosecond.

        Raises InvalidSetting, a ValueError, if it is negative or no number.
        """
        self.advance_ns(_in_ns("seconds", seconds, "to advance; write advance(60) for a minute"))

    def advance_ns(self, nanoseconds: int) -> None:
        """Lets `nanoseconds` pass on both clocks. Raises InvalidSetting if it is negative, or no whole number."""
        if type(nanoseconds) is not int or nanoseconds < 0:
            problem = "must be a whole number of 0 or more, as time cannot pass backwards; jump() moves the wall clock"
            raise InvalidSetting("nanoseconds", nanoseconds, problem)
        self._monotonic_ns += nanoseconds
        for watcher in list(self._watchers):
            watcher(self._monotonic_ns)

    def watch(self, watcher: Callable[[int], None]) -> None:
        """Registers a function; each `advance` of this clock calls it with the new monotonic time in nanoseconds."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[int], None]) -> None:
        """Removes a function that was registered by `watch`."""
        self._watchers.remove(watcher)

    def jump(self, seconds: float) -> None:
        """Moves the wall clock forward by `seconds`, or back if that is negative.

        The monotonic clock stays as it is.
        """
        self._wall_ahead_ns += _in_ns("seconds", seconds, "to jump; write jump(60) for a minute")

    def __repr__(self) -> str:
        return f"ManualClock(wall={self.wall_ns() / SECOND_NS!r})"


def _in_ns(name: str, value: object, remedy: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidSetting(name, value, f"is no number of seconds {remedy}")
    return round(value * SECOND_NS)
