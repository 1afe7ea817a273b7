"""What a decision costs while the hub does not answer, beside what it costs when all is well, in the same process.

Run as `python bench/decisions_in_an_outage.py`. Starts a redis-server of its own, stops it in its tracks and lets it go
on, again and again, and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Any, Final

from redis import Redis

from reconverge import Agent, Limit, Limiter
from reconverge.clock import SECOND_NS
from reconverge.hubs import HubSettings, open_hub
from reconverge_sync.embedded import EmbeddedHub

HUB: Final = "embedded://bench-outage"
INTERVAL_S: Final = 0.1
KEYS: Final = 1000
TIMED_EACH: Final = 16
"""One decision of so many is timed on its own, as looking at the clock twice costs about as much as the decision."""
LIMITS: Final = {
    "admitted": Limit(1_000_000_000, 60.0),
    "refused": Limit(1, 3600.0),
}
AGAIN_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Decisions one after the other, as fast as they can be made."""

    per_s: float
    p50_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, limiter: Limiter, keys: list[str], length_s: float) -> Stretch:
        """Decide for so long."""
        turn = cycle(keys)
        took_ns: list[int] = []
        begun_ns = now_ns = time.monotonic_ns()
        while now_ns < begun_ns + length_s * SECOND_NS:
            for key in islice(turn, TIMED_EACH - 1):
                limiter.allow(key)
            key = next(turn)
            before_ns = time.monotonic_ns()
            limiter.allow(key)
            now_ns = time.monotonic_ns()
            took_ns.append(now_ns - before_ns)
        took_ns.sort()
        per_s = len(took_ns) * TIMED_EACH * SECOND_NS / (now_ns - begun_ns)
        return cls(per_s, took_ns[len(took_ns) // 2], took_ns[len(took_ns) * 99 // 100], took_ns[-1])


@contextmanager
def outage(server: Redis) -> Iterator[None]:
    """The server hangs: connections stay open, and nothing is answered."""
    facts: Any = server.info("server")
    os.kill(facts["process_id"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(facts["process_id"], signal.SIGCONT)


def reconverged(agent: Agent) -> bool:
    """Wait until the hub has answered again."""
    deadline_s = time.monotonic() + AGAIN_S_MAX
    while agent.stats().exchanges[0].staleness > 2 * INTERVAL_S:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(INTERVAL_S / 10)
    return True


def measure(
    agent: Agent, limiter: Limiter, server: Redis, *, pairs: int, length_s: float
) -> list[tuple[Stretch, Stretch]]:
    """Good and bad times by turns."""
    keys = [f"customer-{number:06}" for number in range(KEYS)]
    limiter.warm(keys)
    Stretch.of(limiter, keys, length_s)
    measured = []
    for _ in range(pairs):
        if not reconverged(agent):
            raise RuntimeError(f"the hub has not answered for {AGAIN_S_MAX:g} s")
        good = Stretch.of(limiter, keys, length_s)
        with outage(server):
            bad = Stretch.of(limiter, keys, length_s)
        measured.append((good, bad))
    return measured


def row(name: str, measured: list[tuple[Stretch, Stretch]]) -> str:
    """One line of the table: medians of the pairs."""
    good, bad = zip(*measured, strict=True)
    ratios = sorted(bad.per_s / good.per_s for good, bad in measured)

    def us(stretches: tuple[Stretch, ...], field: str) -> str:
        return f"{median(getattr(one, field) for one in stretches) / 1000:.1f}"

    shown = " | ".join(f"{us(good, field)} / {us(bad, field)}" for field in ("p50_ns", "p99_ns", "max_ns"))
    return f"| {name} | {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {shown} |"


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="good and bad stretches by turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a stretch (default: %(default)g)")
    options = parser.parse_args()
    logging.getLogger("reconverge").setLevel(logging.ERROR)  # the outages are wanted
    hub = open_hub(HUB, HubSettings("bench", 1.0))
    assert isinstance(hub, EmbeddedHub)
    print("| decisions | decisions per second, outage : healthy | p50 healthy / outage, µs | p99, µs | longest, µs |")
    print("|---|---|---|---|---|")
    for name, limit in LIMITS.items():
        with Agent(HUB, namespace=f"bench-{name}", sync_interval=INTERVAL_S, max_keys=2 * KEYS) as agent:
            limiter = agent.limit("bench", limit)
            with Redis(unix_socket_path=str(hub.directory / "redis.sock")) as server:
                print(row(name, measure(agent, limiter, server, pairs=options.pairs, length_s=options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
