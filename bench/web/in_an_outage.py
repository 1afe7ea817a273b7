"""Measures the answers to a web application's clients when its Redis hangs, goes on, is killed, and comes back empty.

Each application is served twice at once, by four workers with limits and by four without; one client asks both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

from bench.child import Missing
from bench.decisions.peers import peer
from bench.report.found import Row, Spread
from bench.servers import OwnRedis
from bench.web import load
from bench.web.applications import GUARDED
from bench.web.served import NONE, SERVED, Served, application
from reconverge.clock import SECOND_NS

PART: Final = "outage"
ROUNDS: Final = 3
SECONDS: Final = 7.0
"""The length of a phase, in seconds."""
WARMING_S: Final = 4.0
STARTING_S: Final = 2.0
"""The seconds until the client has started."""
WORKERS: Final = 4
WORKERS_S_MAX: Final = 60.0
HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True)
class Pace:
    """The way in which the clients ask."""

    name: str
    rate: float
    """The requests per second to each of the two; zero for as many as possible."""
    connections: int


PACES: Final = (Pace("100 requests a second", 100.0, 16), Pace("as many requests as there can be", 0.0, 8))
EVENTS: Final[tuple[tuple[str, Callable[[OwnRedis], None]], ...]] = (
    ("Redis paused", OwnRedis.pause),
    ("Redis goes on", OwnRedis.go_on),
    ("Redis killed", OwnRedis.kill),
    ("a new Redis", OwnRedis.start),
)
PHASES: Final = (HEALTHY, *(name for name, _ in EVENTS))
CASES: Final[tuple[tuple[str, str, Callable[[load.Phase], float]], ...]] = (
    ("p50", "ms", lambda phase: phase.p50_ms),
    ("p99", "ms", lambda phase: phase.p99_ms),
    ("p99.9", "ms", lambda phase: phase.p999_ms),
    ("longest", "ms", lambda phase: phase.longest_ms),
    ("longest without any answer", "ms", lambda phase: phase.gap_ms),
    ("requests per second", "per second", lambda phase: phase.per_s),
)
Run = dict[tuple[str, str], load.Phase]
"""The phases of a run, by limiter and by name of the phase."""


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each application at each pace, in turn."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for _ in range(1 if quick else ROUNDS):
        for served in SERVED:
            for pace in PACES:
                case = f"{served.name} at {pace.name}"
                if only in case:
                    try:
                        runs.setdefault((served.name, pace.name), []).append(
                            run(served, pace, 1.0 if quick else SECONDS)
                        )
                    except Missing as error:
                        yield Row(PART, case, HEALTHY, missing=str(error))
    for (name, pace_name), found in runs.items():
        yield from rows(f"{name} at {pace_name}", found)


def rows(application_at: str, runs: list[Run]) -> Iterator[Row]:
    """Yields the rows of each phase, beside the healthy phase of the same run."""
    for limiter in (GUARDED, NONE):
        for phase in PHASES:
            what = f"{phase}, {'with limits' if limiter == GUARDED else 'without'}"
            phases = [run[limiter, phase] for run in runs]
            for case, unit, value in CASES:
                ratios = [value(run[limiter, phase]) / value(run[limiter, HEALTHY]) for run in runs]
                measured = Spread.of([value(each) for each in phases])
                yield Row(PART, f"{application_at}, {case}", what, HEALTHY, Spread.of(ratios), measured, unit)
            for case, counts in (("refused", "429"), ("answered with an error, or not at all", "5..|broken|4(?!29).*")):
                total = sum(n for each in phases for status, n in each.answers.items() if re.fullmatch(counts, status))
                yield Row(PART, f"{application_at}, {case}", what, measured=Spread.of([total]), unit="requests in all")


def run(served: Served, pace: Pace, seconds: float) -> Run:
    """Runs all phases once, each with its event under load."""
    for module in served.needs:
        peer(module)
    with (
        OwnRedis() as redis,
        application(served, GUARDED, redis.port, *served.workers) as (limited, _),
        application(served, NONE, redis.port, *served.workers) as (free, _),
        ThreadPoolExecutor(1) as thread,
    ):
        for port in (limited, free):
            wait_for_workers(port)
        begins_ns = time.monotonic_ns() + round((STARTING_S + WARMING_S) * SECOND_NS)
        edges_ns = [begins_ns + round(at * seconds * SECOND_NS) for at in range(len(PHASES) + 1)]
        client = thread.submit(
            load.drive,
            [limited, free],
            connections=pace.connections,
            rate=pace.rate,
            begins_ns=edges_ns[:-1],
            ends_ns=edges_ns[-1],
        )
        for (_, happen), at_ns in zip(EVENTS, edges_ns[1:], strict=False):
            time.sleep(max(0, at_ns - time.monotonic_ns()) / SECOND_NS)
            happen(redis)
        phases = client.result()
    return {
        (limiter, phase): found
        for limiter, each in zip((GUARDED, NONE), phases, strict=True)
        for phase, found in zip(PHASES, each, strict=True)
    }


def wait_for_workers(port: int) -> None:
    """Waits until each of the workers has answered. Raises RuntimeError if one does not."""

    def ask(_number: int) -> bytes:
        connection = HTTPConnection("127.0.0.1", port, timeout=WORKERS_S_MAX)
        try:
            connection.request("GET", "/process")
            return connection.getresponse().read()
        finally:
            connection.close()

    deadline_s = time.monotonic() + WORKERS_S_MAX
    seen: set[bytes] = set()
    with ThreadPoolExecutor(2 * WORKERS) as threads:
        while len(seen) < WORKERS:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{len(seen)} of {WORKERS} workers have answered")
            seen.update(threads.map(ask, range(4 * WORKERS)))
