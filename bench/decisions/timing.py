"""Measures the CPU time of calls in turn with a floor in the same process, without loop and garbage collector."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from bench.report.found import Spread

TURN_S_MAX: Final = 0.06
"""The longest time of a turn, in seconds: slow limiters get fewer calls in a turn."""
TRIED_FIRST: Final = 200

Calls = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a measurement."""

    rounds: int
    calls: int
    """The number of calls in one turn of a fast limiter."""


def loop_alone(calls: Calls) -> None:
    """Runs a measured loop without the work in it."""
    for _ in calls:
        pass


def cpu_ns(run: Callable[[Calls], object], calls: Calls, clock: Callable[[], int]) -> int:
    """Returns the CPU time of `run` for these calls, less that of the loop."""
    with no_collector():
        begun_ns = clock()
        run(calls)
        took_ns = clock() - begun_ns
        begun_ns = clock()
        loop_alone(calls)
        return took_ns - (clock() - begun_ns)


@contextmanager
def no_collector() -> Iterator[None]:
    """Stops the garbage collector until the block ends."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one measured function and of a floor, taken in turn, for each key."""

    ns: Spread
    floor_ns: Spread
    ratio: Spread

    @classmethod
    def of(cls, cost: Sequence[float], floors: Sequence[float]) -> Measured:
        """Returns the figures from nanoseconds of both, turn by turn."""
        ratios = [each / least for each, least in zip(cost, floors, strict=True)]
        return cls(Spread.of(cost), Spread.of(floors), Spread.of(ratios))


def by_turns(
    run: Callable[[Calls], object],
    arrange: Callable[[Sequence[str]], Calls],
    floor: Callable[[Calls], object],
    draw: Callable[[int], list[str]],
    plan: Plan,
) -> Measured:
    """Measures `run` and `floor` in turn, each time with keys that were drawn for that turn.

    The floor's time is that of this thread; the time of `run` also includes threads of its own.
    """
    first = arrange(draw(TRIED_FIRST))
    each_ns = max(1, cpu_ns(run, first, time.process_time_ns) // TRIED_FIRST)
    calls = max(TRIED_FIRST, min(plan.calls, int(TURN_S_MAX * 1e9) // each_ns))
    cost: list[float] = []
    floors: list[float] = []
    for _ in range(plan.rounds):
        keys = draw(plan.calls)
        floors.append(cpu_ns(floor, keys, time.thread_time_ns) / plan.calls)
        arranged = arrange(draw(calls))
        cost.append(cpu_ns(run, arranged, time.process_time_ns) / calls)
    return Measured.of(cost, floors)


def one_by_one_ns(call: Callable[[str], object], keys: Sequence[str]) -> array[int]:
    """Returns this thread's CPU time of each single call, including two readings of the clock."""
    clock = time.thread_time_ns
    took = array("q")  # no objects that a garbage collector would visit
    with no_collector():
        for key in keys:
            begun_ns = clock()
            call(key)
            took.append(clock() - begun_ns)
    return took
