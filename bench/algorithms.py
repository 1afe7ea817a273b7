"""Every algorithm side by side: memory for a key, cost of a decision, and what a partition makes of it.

Run as `python bench/algorithms.py`. Prints a Markdown table; times are ratios to a floor that is measured in turn with
them, and the partition is simulated, so it is the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Final

from reconverge import Agent, Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import ALGORITHMS, BUCKETS, LOG_QUOTA_MAX, SLIDING_LOG, SMOOTH, SMOOTH_WARMING_UP
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation import Experiment, Figures, Fleet, Traffic, run

KEYS: Final = 10_000
"""For memory."""
REQUESTS_PER_KEY: Final = 10
"""Admitted before memory is measured: a log grows with them."""
HOT_KEYS: Final = 1_000
DECISIONS: Final = 50_000
WINDOW_S: Final = 10.0
CUT: Final = "cut:half@5.3w+5w"
SEEDS: Final = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm, and limits that show it."""

    name: str
    roomy: Limit
    """Of which nothing is refused here."""
    tight: Limit
    """Of which everything is."""
    simulated: Limit


def entries() -> list[Entry]:
    """All algorithms, in the order of the documentation."""
    return [Entry(name, _roomy(name), _limit(name, 1, 3600.0), _limit(name, 1000, WINDOW_S)) for name in ALGORITHMS]


def _limit(name: str, quota: int, window_s: float) -> Limit:
    return Limit(quota, window_s, algorithm=name, warmup=window_s if name == SMOOTH_WARMING_UP else None)


def _roomy(name: str) -> Limit:
    if name in BUCKETS:
        # One that hardly drains: a bucket that is dry again each time is seen to on the slow path.
        return Limit(1, 3600.0, algorithm=name, burst=10**9)
    if name in SMOOTH:
        return _limit(name, 10**12, 1.0)  # each request is paid for before the next comes
    return _limit(name, LOG_QUOTA_MAX if name == SLIDING_LOG else 10**9, 3600.0)


def bytes_per_key(limit: Limit) -> float:
    """What a key takes that was asked about a few times, without the string itself."""
    keys = [f"customer-{number:06}" for number in range(KEYS)]
    lasting = limit.over(3600.0)  # what is paid off while others are asked about would be forgotten
    limiter = Agent("memory://", max_keys=2 * KEYS).limit("bench", lasting)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(REQUESTS_PER_KEY):
        for key in keys:
            limiter.allow(key)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / KEYS


def decisions_ns(decide: Callable[[str], object]) -> float:
    """What one decision takes."""
    keys = cycle([f"customer-{number:06}" for number in range(HOT_KEYS)])
    turn = list(islice(keys, DECISIONS))
    begun_ns = time.perf_counter_ns()
    for key in turn:
        decide(key)
    return (time.perf_counter_ns() - begun_ns) / DECISIONS


def floor() -> Callable[[str], object]:
    """The least that counting by key can cost: one look, one comparison, one increment."""
    used: dict[str, int] = {}

    def decide(key: str) -> bool:
        count = used.get(key, 0)
        if count >= 10**9:
            return False
        used[key] = count + 1
        return True

    return decide


def costs(all_entries: list[Entry], repeats: int) -> dict[str, tuple[float, float]]:
    """Admitted and refused, as ratios to the floor; medians, measured by turns."""
    deciders = {
        (each.name, kind): Agent("memory://").limit("bench", limit).allow
        for each in all_entries
        for kind, limit in (("admitted", each.roomy), ("refused", each.tight))
    }
    least = floor()
    ratios: dict[tuple[str, str], list[float]] = {which: [] for which in deciders}
    for decide in (least, *deciders.values()):
        decisions_ns(decide)
    for _ in range(repeats):
        for which, decide in deciders.items():
            ratios[which].append(decisions_ns(decide) / decisions_ns(least))
    return {
        each.name: (median(ratios[each.name, "admitted"]), median(ratios[each.name, "refused"])) for each in all_entries
    }


def partition(limit: Limit) -> dict[str, Figures]:
    """Eight nodes, of which half are cut off for five windows while three times the limit is asked for."""
    fleet = Fleet(8, limit, int(0.1 * WINDOW_S * SECOND_NS), 20 * MILLISECOND_NS)
    figures, _ = run(Experiment(fleet, Traffic("uniform", 3.0), 12, 2, (CUT,)), (STRICT, BALANCED, NAIVE), range(SEEDS))
    return figures


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each, of which the median is shown")
    repeats = parser.parse_args().repeats
    all_entries = entries()
    ratios = costs(all_entries, repeats)
    print(
        "| algorithm | bytes for a key | a decision, admitted / refused, in floors "
        "| half cut off for 5 windows: over max, strict / balanced (declared) / naive, % | under mean, % |"
    )
    print("|---|---|---|---|---|")
    for each in all_entries:
        found = partition(each.simulated)
        strict, balanced, naive = (found[policy.name] for policy in (STRICT, BALANCED, NAIVE))
        admitted, refused = ratios[each.name]
        over = f"{balanced.over_max_pct:.1f} ({balanced.bound_pct:.1f})"
        print(
            f"| {each.name} | {bytes_per_key(each.simulated):.0f} | {admitted:.1f} / {refused:.1f} "
            f"| {strict.over_max_pct:.1f} / {over} / {naive.over_max_pct:.1f} "
            f"| {strict.under_mean_pct:.1f} / {balanced.under_mean_pct:.1f} / {naive.under_mean_pct:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
