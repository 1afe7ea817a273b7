"""Measures `limits`, Flask-Limiter and slowapi on our storage and on their own in the same Redis, in turn.

python -m bench.web.drop_in [--quick]

Prints the tables that docs/guide/migration.md sums up. Needs the packages of the extra `bench`, and `wrk` for the
applications.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from limits import parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

from bench.servers import redis_on_loopback
from bench.web.served import DROP_IN, SERVED, drive
from reconverge.integrations.limits_storage import ReconvergeStorage

LIMIT: Final = "10000/hour"
KEYS: Final = 1000
CALLS: Final = 5000
ROUNDS: Final = 9
SECONDS: Final = 4
THEIRS: Final = "theirs, Redis"
OURS: Final = "ours, Redis"
MEMORY: Final = "theirs, memory"


class Round(NamedTuple):
    """The figures of one turn."""

    p50_us: float
    p99_us: float
    per_s: float


def main() -> None:
    """Makes all measurements, and prints them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run, which shows that it works")
    quick = parser.parse_args().quick
    print("| strategy | storage | p50 | p99 | decisions/s | p99, ratio | decisions/s, ratio |\n" + "|---" * 7 + "|")
    for strategy in STRATEGIES:
        strategies(strategy, rounds=2 if quick else ROUNDS)
    print("\n| application | storage | CPU of a request | p99 | requests/s | p99, ratio | requests/s, ratio |")
    print("|---" * 7 + "|")
    applications(rounds=1 if quick else ROUNDS // 2, seconds=1 if quick else SECONDS)


def strategies(strategy: str, *, rounds: int) -> None:
    """Measures one strategy of `limits` on each storage, in turn."""
    with redis_on_loopback() as port, ExitStack() as last_words:
        uris = {
            THEIRS: f"redis://127.0.0.1:{port}/0",
            OURS: f"reconverge+redis://127.0.0.1:{port}/0?namespace={strategy}",
            MEMORY: "memory://",
        }
        hits = {name: hit_on(strategy, uri, last_words) for name, uri in uris.items()}
        for hit in hits.values():
            turn(hit)  # the first calls make connections, scripts and keys
        found: dict[str, list[Round]] = {name: [] for name in hits}
        for _ in range(rounds):
            for name, hit in hits.items():
                found[name].append(turn(hit))
    for name, rows in found.items():
        p99 = median(one.p99_us / theirs.p99_us for one, theirs in zip(rows, found[THEIRS], strict=True))
        per_s = median(one.per_s / theirs.per_s for one, theirs in zip(rows, found[THEIRS], strict=True))
        p50_us, p99_us, decisions = (median(column) for column in zip(*rows, strict=True))
        print(
            f"| {strategy} | {name} | {p50_us:.1f} µs | {p99_us:.1f} µs | {decisions:,.0f} | {p99:.3f} | {per_s:.1f} |"
        )


def hit_on(strategy: str, uri: str, last_words: ExitStack) -> Callable[[str], bool]:
    """Returns the function that a request calls."""
    storage: Any = storage_from_string(uri)
    if isinstance(storage, ReconvergeStorage):
        last_words.callback(storage.book.agent.stop)
    limiter: Any = STRATEGIES[strategy](storage)
    return partial(limiter.hit, parse(LIMIT))


def turn(hit: Callable[[str], bool]) -> Round:
    """Makes `count` requests in a row, of a thousand keys, and times each."""
    keys = cycle([f"customer-{number:04}" for number in range(KEYS)])
    took_ns: list[int] = []
    for _ in range(CALLS):
        key = next(keys)
        begun_ns = time.perf_counter_ns()
        admitted = hit(key)
        took_ns.append(time.perf_counter_ns() - begun_ns)
        assert admitted
    return Round(median(took_ns) / 1000, quantiles(took_ns, n=100)[98] / 1000, CALLS * 1e9 / sum(took_ns))


def applications(*, rounds: int, seconds: int) -> None:
    """Measures the applications of `bench.web.served` with Flask-Limiter and slowapi, on each storage in turn."""
    wrk = shutil.which("wrk")
    if wrk is None:
        print("wrk is not installed")
        return
    for served in SERVED:
        theirs = served.limiters[-1]
        found: dict[str, list[tuple[float, float, float]]] = {theirs: [], f"{theirs}{DROP_IN}": []}
        for _ in range(rounds):
            for limiter, rows in found.items():
                rows.append(drive(wrk, served, limiter, seconds))
        for limiter, rows in found.items():
            pairs = list(zip(rows, found[theirs], strict=True))
            p99, per_s = median(a[2] / b[2] for a, b in pairs), median(a[1] / b[1] for a, b in pairs)
            cpu_us, requests, p99_ms = (median(column) for column in zip(*rows, strict=True))
            storage = OURS if limiter.endswith(DROP_IN) else THEIRS
            print(
                f"| {theirs}, {served.name} | {storage} | {cpu_us:.0f} µs | {p99_ms:.1f} ms | {requests:,.0f} "
                f"| {p99:.2f} | {per_s:.2f} |"
            )


if __name__ == "__main__":
    main()
