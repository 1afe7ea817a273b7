"""Measures the cost of a limit that no client comes near: CPU of the application and of Redis, and exchanges.

The application is FastAPI under uvicorn, driven by wrk, with a thousand keys of a million an hour: without a limiter,
with ours in memory alone, with ours and a Redis, and with slowapi, which asks Redis for each request. The cases take
turns, so that other work slows all of them alike; the load generator, the application and the Redis share the machine's
processors.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Final

from redis import Redis

from bench.child import Missing
from bench.decisions.peers import peer
from bench.report.found import Row, Spread
from bench.servers import redis_on_loopback
from bench.web.applications import ALONE, GUARDED
from bench.web.served import NONE, SERVED, Served, application, cpu_s, run_wrk

PART: Final = "fleet-cost"
QUOTA: Final = "1000000/hour"
ROUNDS: Final = 3
SECONDS: Final = 20
WARM_S: Final = 15
"""The seconds of warm-up, in which each key is reported once, and the nodes learn that they need not report it
again."""
FASTAPI: Final = SERVED[0]


@dataclass(frozen=True, slots=True)
class Case:
    """One application, with its limiter, its number of keys and its sync interval in seconds."""

    name: str
    limiter: str
    keys: int = 1000
    interval_s: float = 0.1


CASES: Final = (
    Case(NONE, NONE),
    Case("memory://", ALONE),
    Case("Redis, T = 0.1 s", GUARDED),
    Case("Redis, T = 0.1 s, 10 keys", GUARDED, keys=10),
    Case("Redis, T = 10 s", GUARDED, interval_s=10.0),
    Case("slowapi", "slowapi"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one request of a case, in one round; latencies in milliseconds, CPU in microseconds."""

    application_us: float
    redis_us: float
    reports: float
    batches_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    per_s: float


SHOWN: Final = (
    ("application_us", "CPU of the application for a request", "µs"),
    ("redis_us", "CPU of Redis for a request", "µs"),
    ("reports", "reports for a request", "reports"),
    ("batches_per_s", "batches a second", "per second"),
    ("p50_ms", "p50", "ms"),
    ("p99_ms", "p99", "ms"),
    ("p999_ms", "p99.9", "ms"),
    ("per_s", "requests per second", "per second"),
)


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each case in turn, ROUNDS times.

    If the same round has a figure of `memory://`, the figure stands beside that one.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        yield Row(PART, FASTAPI.name, NONE, missing="wrk is not installed")
        return
    found: dict[str, list[Cost]] = {case.name: [] for case in CASES if only in case.name}
    for _ in range(1 if quick else ROUNDS):
        for case in CASES:
            if case.name not in found:
                continue
            try:
                found[case.name].append(_driven(wrk, case, 1 if quick else SECONDS, 1 if quick else WARM_S))
            except Missing as error:
                yield Row(PART, FASTAPI.name, case.name, missing=str(error))
                del found[case.name]
    beside = found.get("memory://", [])
    for name, costs in found.items():
        for field, shown, unit in SHOWN:
            values = [float(getattr(each, field)) for each in costs]
            others = [float(getattr(each, field)) for each in beside]
            ratio = None
            if others and all(others):
                ratio = Spread.of([one / other for one, other in zip(values, others, strict=True)])
            yield Row(PART, f"{FASTAPI.name}, {shown}", name, "memory://", ratio, Spread.of(values), unit)


def _driven(wrk: str, case: Case, seconds: int, warm_s: int) -> Cost:
    """Drives the application of a case. Returns the cost of a request after a warm-up."""
    if case.limiter == "slowapi":
        peer("slowapi")
    served = Served(FASTAPI.name, FASTAPI.command, FASTAPI.needs, (case.limiter,), ())
    settings = {"BENCH_QUOTA": QUOTA, "BENCH_KEYS": str(case.keys), "BENCH_INTERVAL": str(case.interval_s)}
    with (
        redis_on_loopback() as redis_port,
        application(served, case.limiter, redis_port, environment=settings) as (port, process),
        Redis(port=redis_port) as redis,
    ):
        run_wrk(wrk, port, warm_s)
        before = (cpu_s(process), _redis_s(redis), *_exchanged(port, case), time.monotonic())
        driven = run_wrk(wrk, port, seconds)
        after = (cpu_s(process), _redis_s(redis), *_exchanged(port, case), time.monotonic())
    spent_s, redis_s, batches, reports, passed_s = (late - early for late, early in zip(after, before, strict=True))
    return Cost(
        application_us=spent_s * 1e6 / driven.answered,
        redis_us=redis_s * 1e6 / driven.answered,
        reports=reports / driven.answered,
        batches_per_s=batches / passed_s,
        p50_ms=driven.p50_ms,
        p99_ms=driven.p99_ms,
        p999_ms=driven.p999_ms,
        per_s=driven.per_s,
    )


def _redis_s(redis: Any) -> float:
    """Returns the CPU seconds that the server has used so far."""
    cpu = redis.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def _exchanged(port: int, case: Case) -> tuple[int, int]:
    """Returns the batches and the reports of keys that the application has sent so far; zeros if it has no hub."""
    if case.limiter not in (GUARDED, ALONE):
        return 0, 0
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/exchanges")
    shards = json.loads(connection.getresponse().read())
    connection.close()
    return sum(batches for batches, _ in shards), sum(reports for _, reports in shards)
