"""CPU time of calls, by turns with a floor in the same process, without the loop and without the garbage collector."""

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
"""Who is slow is asked less often in a turn."""
TRIED_FIRST: Final = 200

Calls = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int
    calls: int
    """In one turn, of whoever is fast."""


def loop_alone(calls: Calls) -> None:
    """Runs a measured loop without the work in it."""
    for _ in calls:
        pass


def cpu_ns(run: Callable[[Calls], object], calls: Calls, clock: Callable[[], int]) -> int:
    """Times `run` for these calls, less the loop."""
    with no_collector():
        begun_ns = clock()
        run(calls)
        took_ns = clock() - begun_ns
        begun_ns = clock()
        loop_alone(calls)
        return took_ns - (clock() - begun_ns)


@contextmanager
def no_collector() -> Iterator[None]:
    """The garbage collector waits meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Measured:
    """One thing by turns with a floor, for each key."""

    ns: Spread
    floor_ns: Spread
    ratio: Spread

    @classmethod
    def of(cls, cost: Sequence[float], floors: Sequence[float]) -> Measured:
        """Nanoseconds of both, turn by turn."""
        ratios = [each / least for each, least in zip(cost, floors, strict=True)]
        return cls(Spread.of(cost), Spread.of(floors), Spread.of(ratios))


def by_turns(
    run: Callable[[Calls], object],
    arrange: Callable[[Sequence[str]], Calls],
    floor: Callable[[Calls], object],
    draw: Callable[[int], list[str]],
    plan: Plan,
) -> Measured:
    """Measure `run` and `floor` by turns, each time with keys that were drawn for that turn.

    The floor's time is that of this thread; what is compared with it pays for threads of its own as well.
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
    """CPU time of this thread for each single call; looking at the clock, which costs the same each time, included."""
    clock = time.thread_time_ns
    took = array("q")  # nothing that a garbage collector would look at
    with no_collector():
        for key in keys:
            begun_ns = clock()
            call(key)
            took.append(clock() - begun_ns)
    return took
