"""Measures a decision while the hub does not answer, beside one while it does, in the same process.

Run as `python -m bench.decisions.in_an_outage`. Starts a redis-server of its own and a relay before it, which refuses
connections, lets everything vanish, or answers after seconds, again and again; and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Final

from bench.child import Missing
from bench.decisions.candidate import compiled_unless_asked
from bench.servers import free_port, redis_on_loopback
from bench.web.relay import DELAY, HOLE, PASS, REFUSE, RelayProcess, relay_to
from reconverge import Agent, Limit, RateLimiter
from reconverge.clock import SECOND_NS

INTERVAL_S: Final = 0.1
TIMEOUT_S: Final = 1.0
KEYS: Final = 1000
BLOCK: Final = 100
"""The number of decisions that are timed together, as two readings of the clock cost as much as several decisions."""
LIMITS: Final = {
    "admitted": Limit(1_000_000_000, 60.0),
    "refused": Limit(1, 3600.0),
}
OUTAGES: Final = {
    "refuses connections": (REFUSE, 0.0),
    "lets everything vanish": (HOLE, 0.0),
    "answers after 5 s": (DELAY, 5.0),
}
NOTICED_S_MAX: Final = 20.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """The figures of decisions that were made one after the other, as fast as possible."""

    p50_ns: float
    """The median over blocks of the deciding thread's CPU time for a decision."""
    p99_ns: float
    p999_ns: float
    process_ns: float
    """The CPU time of the whole process for a decision, with that of the exchanges."""
    longest_ns: int
    """The time on the wall of the longest block."""

    @classmethod
    def of(cls, limiter: RateLimiter, keys: list[str], length_s: float) -> Stretch:
        """Decides for `seconds`. Returns the figures."""
        turn = cycle(keys)
        took_ns: list[int] = []
        longest_ns = 0
        process_ns = time.process_time_ns()
        end_ns = now_ns = time.monotonic_ns()
        end_ns += round(length_s * SECOND_NS)
        while now_ns < end_ns:
            block = list(islice(turn, BLOCK))
            before_ns, wall_ns = time.thread_time_ns(), time.monotonic_ns()
            for key in block:
                limiter.allow(key)
            took_ns.append(time.thread_time_ns() - before_ns)
            now_ns = time.monotonic_ns()
            longest_ns = max(longest_ns, now_ns - wall_ns)
        process_ns = time.process_time_ns() - process_ns
        took_ns.sort()
        p50_ns, p99_ns, p999_ns = (took_ns[len(took_ns) * permille // 1000] / BLOCK for permille in (500, 990, 999))
        return cls(p50_ns, p99_ns, p999_ns, process_ns / len(took_ns) / BLOCK, longest_ns)


def wait_until_noticed(agent: Agent, *, outage: bool) -> None:
    """Waits until an exchange has failed, or until the hub has answered again."""
    deadline_s = time.monotonic() + NOTICED_S_MAX
    while bool(agent.stats().exchanges[0].failures_in_a_row) != outage or (
        not outage and agent.stats().exchanges[0].staleness > 2 * INTERVAL_S
    ):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"nothing was noticed for {NOTICED_S_MAX:g} s")
        time.sleep(INTERVAL_S / 10)


def measure(
    agent: Agent, limiter: RateLimiter, relay: RelayProcess, mode: tuple[str, float], *, pairs: int, length_s: float
) -> list[tuple[Stretch, Stretch]]:
    """Measures with and without an outage, in turn."""
    keys = [f"customer-{number:06}" for number in range(KEYS)]
    limiter.warm(keys)
    Stretch.of(limiter, keys, length_s)
    measured = []
    for _ in range(pairs):
        wait_until_noticed(agent, outage=False)
        good = Stretch.of(limiter, keys, length_s)
        relay.become(*mode)
        wait_until_noticed(agent, outage=True)
        bad = Stretch.of(limiter, keys, length_s)
        relay.become(PASS)
        measured.append((good, bad))
    wait_until_noticed(agent, outage=False)
    return measured


def row(name: str, measured: list[tuple[Stretch, Stretch]]) -> str:
    """Returns one line of the table: the medians of the pairs."""
    good, bad = zip(*measured, strict=True)
    ratios = sorted(bad.p50_ns / good.p50_ns for good, bad in measured)
    whole = median(bad.process_ns / good.process_ns for good, bad in measured)

    def beside(field: str, digits: int, unit: float) -> str:
        healthy, out = (median(getattr(one, field) for one in stretches) / unit for stretches in (good, bad))
        return f"{healthy:.{digits}f} / {out:.{digits}f}"

    shown = [beside(field, 0, 1) for field in ("p50_ns", "p99_ns", "p999_ns", "process_ns")]
    shown.append(beside("longest_ns", 1, 1e6))
    ratio = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {name} | {ratio} | {whole:.2f} | {' | '.join(shown)} |"


def main() -> int:
    """Makes all measurements, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="good and bad stretches by turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a stretch (default: %(default)g)")
    options = parser.parse_args()
    try:
        compiled_unless_asked()
    except Missing as error:
        print(error, file=sys.stderr)
        return 1
    logging.getLogger("reconverge").setLevel(logging.ERROR)  # the logged outages are on purpose
    print(
        "| the hub, decisions | p50, outage : healthy | process, outage : healthy | p50, ns healthy / outage "
        "| p99, ns | p99.9, ns | process, ns | longest block, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with redis_on_loopback() as target, relay_to(target, port=free_port()) as relay:
        url = f"redis://127.0.0.1:{relay.port}/0"
        for outage, mode in OUTAGES.items():
            for name, limit in LIMITS.items():
                namespace = f"{mode[0]}-{name}"
                with Agent(
                    url,
                    namespace=namespace,
                    sync_interval=INTERVAL_S,
                    exchange_timeout=TIMEOUT_S,
                    max_keys=2 * KEYS,
                ) as agent:
                    limiter = agent.limit("bench", limit)
                    found = measure(agent, limiter, relay, mode, pairs=options.pairs, length_s=options.seconds)
                print(row(f"{outage}, {name}", found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
