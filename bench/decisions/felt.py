"""Measures one decision in an application that does other work between two decisions.

All other measurements ask again at once, with everything in the processor's caches. Here the thread sleeps between two
calls and then reads memory, as an application works on requests; each call is timed for itself, in time on the wall.
"""

# Theory of operation.
#
# A call that comes alone pays for more than its instructions: its code and data have left the caches, a thread of the
# agent may have to be woken, and another thread may want the interpreter. So between two calls the thread
#
#     sleeps          as long as the gap lasts, so that the background work of the agent happens, too
#     reads memory    a slice larger than a core's own cache, of a working set twice as large as the largest cache
#
# and then times one call. The floor `nothing` is a function call and two readings of the clock, which time a call. The
# floors that count, for known and for new keys, are dictionaries. All are asked by turns in one process, and each
# limiter has a process, with floors of its own, so that no threads of another one are in its way.
#
# With the hub, the gaps are long enough for a report in between. Of 64 keys asked one after the other each is used five
# times a second, and each call is the first charge since its last report. Of a thousand keys each has rested so long
# that it takes no object of its own any more (`kernel/native/forms/compressed.c`), and gets one.

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count, cycle, islice
from typing import Any, Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import DAY_S, HEARD_S_MAX, ROOMY, Candidate, Setting, compiled_unless_asked
from bench.decisions.decisions import key_of
from bench.decisions.peers import limits, limits_on_redis, slowapi, throttled
from bench.decisions.timing import no_collector
from bench.report.found import Row, Spread
from bench.report.machine import caches
from bench.servers import redis_on_loopback
from reconverge import Agent, Limit, RateLimiter

PART: Final = "felt"
SLICES: Final = {3.0: 16, 0.5: 4}
"""The size of the memory that is read in a gap, by its length in ms: a multiple of a core's own cache, as much as the
gap allows."""
CASES: Final = ((3.0, 0), (3.0, 1), (0.5, 0), (0.5, 1))
"""The cases: milliseconds between calls, and the number of other threads that never wait."""
CASES_QUICK: Final = ((3.0, 0), (0.5, 1))
KNOWN: Final = 1000
IN_USE: Final = 64
"""The number of known keys that are asked about again and again."""
KEYS_MAX: Final = 10_000
"""The number of keys of an agent that has no room for more."""
INTERVAL_S: Final = 0.1
"""The sync interval in seconds, which is the default one."""

NOTHING: Final = "floor: a function that does nothing"
FLOOR: Final = "floor: `d[key] += 1`"
FLOOR_NEW: Final = "floor: `d[key] = 1`, new keys"
FLOORS: Final = (NOTHING, FLOOR, FLOOR_NEW)
MEMORY: Final = "reconverge, memory://"
REDIS: Final = "reconverge, a Redis"
HOT: Final = "one hot key"
FIRST: Final = "first charge since the last report"
RESTED: Final = "keys that have rested"
NEW: Final = "new keys"
BEYOND: Final = "new keys beyond `max_keys`"
PERCENTILES: Final = {"p50": 50, "p99": 99}

Call = Callable[[Any], object]
Draw = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a measurement."""

    turns: int
    calls: int
    keys_max: int


FULL: Final = Plan(turns=6, calls=250, keys_max=KEYS_MAX)
QUICK: Final = Plan(turns=1, calls=20, keys_max=500)


@dataclass(frozen=True, slots=True)
class Asked:
    """A measured call, and the function that draws its arguments: keys, or values that stand for them."""

    call: Call
    draw: Draw
    beside: str


def case_of(gap_ms: float, busy: int, percentile: str) -> str:
    """Returns the name of a case in the table."""
    others = f" with {busy} busy thread{'s' * (busy > 1)}" if busy else ""
    return f"{gap_ms:g} ms between calls{others}, {percentile}"


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each limiter after gaps of each length, alone and beside a busy thread; floors are the first one's."""
    for gap_ms, busy in CASES_QUICK if quick else CASES:
        first = True
        for maker in OURS if quick else MAKERS:
            if only not in case_of(gap_ms, busy, maker):
                continue
            task = {"maker": maker, "gap_ms": gap_ms, "busy": busy, "quick": quick}
            try:
                found = in_a_process("bench.decisions.felt", task)
            except Missing as error:
                yield Row(PART, case_of(gap_ms, busy, "p50"), maker, missing=str(error))
                continue
            yield from _rows(found, case=(gap_ms, busy), with_floors=first)
            first = False


def _rows(found: dict[str, Any], *, case: tuple[float, int], with_floors: bool) -> Iterator[Row]:
    for name, fields in found.items():
        if name not in FLOORS or with_floors:
            for percentile in PERCENTILES:
                took, ratio = (Spread(**fields[f"{percentile} {what}"]) for what in ("took", "ratio"))
                yield Row(PART, case_of(*case, percentile), name, "the increment of a dictionary", ratio, took, "µs")


# -------------------------------------------------------------------- in the child


def work(*, maker: str, gap_ms: float, busy: int, quick: bool) -> dict[str, Any]:
    """Measures one limiter and the floors in turn."""
    plan = QUICK if quick else FULL
    with ExitStack() as stack:
        asked = {**floors(), **MAKERS[maker](plan, stack)}
        stack.enter_context(busy_threads(busy))
        rest = Rest(gap_ms)
        gc.collect()
        took: dict[str, list[list[int]]] = {name: [] for name in asked}
        with no_collector():
            for _ in range(plan.turns):
                for name, each in asked.items():
                    # Not in the same turn as before: a report that an agent still has to make would slow the next
                    # limiter.
                    time.sleep(2 * INTERVAL_S)
                    took[name].append(sorted(one_at_a_time_ns(each.call, each.draw(plan.calls), rest)))
    found: dict[str, Any] = {}
    for name, each in asked.items():
        found[name] = {}
        for percentile, percent in PERCENTILES.items():
            us = [_at(turn, percent) for turn in took[name]]
            ratios = [mine / _at(turn, percent) for mine, turn in zip(us, took[each.beside], strict=True)]
            found[name] |= {
                f"{percentile} took": asdict(Spread.of(us)),
                f"{percentile} ratio": asdict(Spread.of(ratios)),
            }
    return found


def one_at_a_time_ns(call: Call, keys: Sequence[Any], rest: Rest) -> list[int]:
    """Times each call on the wall, after a rest. Returns nanoseconds."""
    clock, took = time.perf_counter_ns, list[int]()
    for key in keys:
        rest.take()
        begun_ns = clock()
        call(key)
        took.append(clock() - begun_ns)
    return took


def _at(took_ns: Sequence[int], percent: int) -> float:
    return took_ns[len(took_ns) * percent // 100] / 1e3


class Rest:
    """An imitation of an application between two decisions: it waits, and then works on memory."""

    def __init__(self, gap_ms: float) -> None:
        own, largest = caches()
        self._gap_s = gap_ms / 1000
        self._set = bytearray(2 * largest)
        self._set[:: 1 << 12] = b"\x01" * len(self._set[:: 1 << 12])  # else all pages are one page of zeros
        # Larger than what a core has for itself, as far as the gap is long enough to read it.
        self._slice = min(len(self._set), own * SLICES[gap_ms])
        self._place = 0

    def take(self) -> None:
        """Sleeps, and reads one byte of each line of the next slice."""
        begun_s = time.perf_counter()
        self._read()
        read_s = time.perf_counter() - begun_s
        time.sleep(max(0.0, self._gap_s - 2 * read_s))
        self._read()  # the last step, so that the call comes after work and not after sleep

    def _read(self) -> None:
        self._set[self._place : self._place + self._slice : 64]
        self._place = (self._place + self._slice) % len(self._set)


@contextmanager
def busy_threads(number: int) -> Iterator[None]:
    """Runs threads that compute in Python until the block ends, and always compete for the interpreter."""
    ended = threading.Event()

    def work_on() -> None:
        while not ended.is_set():
            json.loads(json.dumps({"a": list(range(50))}))

    threads = [threading.Thread(target=work_on) for _ in range(number)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ended.set()
        for each in threads:
            each.join()


# -------------------------------------------------------------------- floors and limiters


def floors() -> dict[str, Asked]:
    """Returns the floors: the least time of a function that is called after such a rest, and of one that counts."""
    hot, used, grown = hot_key(), {key_of(0): 0}, dict[str, int]()

    def nothing(_key: str) -> None:
        return None

    def increment(key: str) -> None:
        used[key] += 1

    def insert(key: str) -> None:
        grown[key] = 1

    return {
        FLOOR: Asked(increment, hot, FLOOR),
        FLOOR_NEW: Asked(insert, new_keys(), FLOOR_NEW),
        NOTHING: Asked(nothing, hot, FLOOR),
    }


def hot_key() -> Draw:
    """Returns the same key each time, as a new string."""
    return lambda number: [key_of(0) for _ in range(number)]


def known_keys(count: int) -> Draw:
    """Returns a function that draws keys which have been asked about before, one after the other."""
    turn = cycle(range(count))
    return lambda number: [key_of(each) for each in islice(turn, number)]


def new_keys() -> Draw:
    """Returns a function that draws keys which were never asked about."""
    numbers = count(1_000_000)
    return lambda number: [key_of(each) for each in islice(numbers, number)]


def _agent(hub: str, stack: ExitStack, name: str, **settings: Any) -> tuple[Agent, RateLimiter]:
    compiled_unless_asked()
    agent = Agent(hub, namespace=name, sync_interval=INTERVAL_S, new_keys_max=1_000_000, **settings)
    stack.callback(agent.stop)
    return agent, agent.limit("bench", Limit(ROOMY, DAY_S))


def ours_in_memory(plan: Plan, stack: ExitStack) -> dict[str, Asked]:
    """Makes limiters of agents without a hub."""
    return _ours(MEMORY, "memory://", plan, stack)


def ours_on_redis(plan: Plan, stack: ExitStack) -> dict[str, Asked]:
    """Makes limiters of agents that report to a Redis, which has answered about all known keys."""
    port = stack.enter_context(redis_on_loopback())
    return _ours(REDIS, f"redis://127.0.0.1:{port}/0", plan, stack)


def _ours(name: str, hub: str, plan: Plan, stack: ExitStack) -> dict[str, Asked]:
    agent, limiter = _agent(hub, stack, "bench")
    full, beyond = _agent(hub, stack, "full", max_keys=plan.keys_max)
    for number in range(KNOWN):
        limiter.allow(key_of(number))
    for number in range(plan.keys_max):
        beyond.allow(key_of(number))
    asked = {f"{name}: {HOT}": Asked(limiter.allow, hot_key(), FLOOR)}
    if name == REDIS:
        _wait_until_heard(agent, KNOWN)
        _wait_until_heard(full, plan.keys_max)
        asked[f"{name}: {FIRST}"] = Asked(limiter.allow, known_keys(IN_USE), FLOOR)
        asked[f"{name}: {RESTED}"] = Asked(limiter.allow, known_keys(KNOWN), FLOOR)
    asked[f"{name}: {NEW}"] = Asked(limiter.allow, new_keys(), FLOOR_NEW)
    asked[f"{name}: {BEYOND}"] = Asked(beyond.allow, new_keys(), FLOOR_NEW)
    return asked


def _wait_until_heard(agent: Agent, keys: int) -> None:
    """Waits until the hub has answered about `keys` keys. Raises RuntimeError if it does not."""
    deadline_s = time.monotonic() + HEARD_S_MAX
    while agent.stats().exchanges[0].cells < keys:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the hub has not answered about all keys")
        time.sleep(0.01)


def _peer(name: str, make: Callable[[Setting], Candidate], *, grows: bool = True) -> Callable[[Plan, ExitStack], Any]:
    """Makes another library's limiter as its documentation shows it, with one hot key and with new keys."""

    def asked(_plan: Plan, stack: ExitStack) -> dict[str, Asked]:
        candidate = make(Setting(KEYS_MAX, admitted=True, stack=stack))
        draws = {HOT: (hot_key(), FLOOR)} | ({NEW: (new_keys(), FLOOR_NEW)} if grows else {})
        return {f"{name}: {what}": Asked(candidate.admits, draw, beside) for what, (draw, beside) in draws.items()}

    return asked


OURS: Final[dict[str, Callable[[Plan, ExitStack], dict[str, Asked]]]] = {MEMORY: ours_in_memory, REDIS: ours_on_redis}
MAKERS: Final[dict[str, Callable[[Plan, ExitStack], dict[str, Asked]]]] = {
    **OURS,
    "limits, in memory": _peer("limits, in memory", limits("FixedWindowRateLimiter")),
    "throttled-py, in memory": _peer("throttled-py, in memory", throttled("fixed_window")),
    "slowapi, in memory": _peer("slowapi, in memory", slowapi, grows=False),
    "limits, a Redis": _peer("limits, a Redis", limits_on_redis),
}
"""Flask-Limiter works in requests of Flask only, so it stands in the part *middleware*."""


if __name__ == "__main__":
    sys.exit(answer(work))
