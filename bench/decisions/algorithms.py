"""Compares all algorithms: memory for a key, cost of a decision, and over-admission and refusals in a partition.

Run as `python -m bench.decisions.algorithms`. Prints a Markdown table; times are ratios to a floor that is measured in
turn with them, and the partition is simulated, so it is the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice
from statistics import median
from typing import Final

from reconverge import Agent, Limit, RateLimiter
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import (
    ALGORITHMS,
    BUCKETS,
    LOG_QUOTA_MAX,
    SLIDING_LOG,
    SLIDING_WINDOW,
    SMOOTH,
    SMOOTH_WARMING_UP,
)
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation import Experiment, Figures, Fleet, Traffic, run

KEYS: Final = 10_000
"""The number of keys with which memory is measured."""
REQUESTS_PER_KEY: Final = 10
"""The requests admitted for each key before memory is measured: a log grows with them."""
HOT_KEYS: Final = 1_000
DECISIONS: Final = 50_000
WINDOW_S: Final = 10.0
CUT: Final = "cut:half@5.3w+5w"
SEEDS: Final = 3


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared limit: with one quota or several, or with a guaranteed share."""

    quotas: tuple[Limit, ...]
    share: Limit | None = None

    def on(self, agent: Agent) -> RateLimiter:
        """Declares the limit on an agent. Returns its limiter, or the limiter of the share if there is one."""
        limiter = agent.limit("bench", self.quotas)
        return limiter if self.share is None else agent.limit("share", self.share, parent=limiter)

    def over(self, factor: float) -> Declared:
        """Returns the same limit with all windows longer by `factor`."""
        quotas = tuple(limit.over(factor * limit.window) for limit in self.quotas)
        return Declared(quotas, None if self.share is None else self.share.over(factor * self.share.window))

    @property
    def fleet(self) -> Fleet:
        """Returns a fleet of eight nodes with this limit."""
        first, *further = self.quotas
        shares = () if self.share is None else (self.share,)
        interval_ns, round_trip_ns = int(0.1 * WINDOW_S * SECOND_NS), 20 * MILLISECOND_NS
        return Fleet(8, first, interval_ns, round_trip_ns, further=tuple(further), shares=shares)


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm or an option on top of one, with the limits by which it is measured."""

    name: str
    roomy: Declared
    """A limit that refuses none of the requests here."""
    tight: Declared
    """A limit that refuses all of them."""
    simulated: Declared


def entries() -> list[Entry]:
    """Returns all algorithms in the order of the documentation, and the options on top of the default algorithm."""
    plain = [
        Entry(name, *(Declared((limit,)) for limit in (_roomy(name), _limit(name, 1, 3600.0), _of_ten(name))))
        for name in ALGORITHMS
    ]
    roomy, tight, simulated = (of(SLIDING_WINDOW) for of in (_roomy, lambda name: _limit(name, 1, 3600.0), _of_ten))
    # The second quota admits two windows' worth in three windows, so that each quota refuses at times.
    longer = replace(simulated, quota=2 * simulated.quota, window=3 * WINDOW_S)
    several = Entry("two quotas", Declared((roomy, roomy)), Declared((tight, roomy)), Declared((simulated, longer)))
    softened = (replace(limit, soft=0.1) for limit in (roomy, tight, simulated))
    soft = Entry("`soft=0.1`", *(Declared((limit,)) for limit in softened))
    first, second = (Declared((replace(limit, quota=2 * limit.quota),), limit) for limit in (roomy, tight))
    half = Declared((simulated,), replace(simulated, quota=simulated.quota // 2))
    return [*plain, several, soft, Entry("a share of half", first, second, half)]


def _of_ten(name: str) -> Limit:
    """Returns the simulated limit."""
    return _limit(name, 1000, WINDOW_S)


def _limit(name: str, quota: int, window_s: float) -> Limit:
    return Limit(quota, window_s, algorithm=name, warmup=window_s if name == SMOOTH_WARMING_UP else None)


def _roomy(name: str) -> Limit:
    if name in BUCKETS:
        # This bucket hardly drains: if it were empty at each request, the slow path would decide.
        return Limit(1, 3600.0, algorithm=name, burst=10**9)
    if name in SMOOTH:
        return _limit(name, 10**12, 1.0)  # each request is paid for before the next one comes
    return _limit(name, LOG_QUOTA_MAX if name == SLIDING_LOG else 10**9, 3600.0)


def bytes_per_key(declared: Declared) -> float:
    """Measures the memory of a key that was asked about a few times, without the memory of its string."""
    keys = [f"customer-{number:06}" for number in range(KEYS)]
    lasting = declared.over(3600.0 / WINDOW_S)  # else drained keys would be forgotten
    limiter = lasting.on(Agent("memory://", max_keys=4 * KEYS))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(REQUESTS_PER_KEY):
        for key in keys:
            limiter.allow(key)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / KEYS


def decisions_ns(decide: Callable[[str], object]) -> float:
    """Measures the time of one decision, in nanoseconds."""
    keys = cycle([f"customer-{number:06}" for number in range(HOT_KEYS)])
    turn = list(islice(keys, DECISIONS))
    begun_ns = time.perf_counter_ns()
    for key in turn:
        decide(key)
    return (time.perf_counter_ns() - begun_ns) / DECISIONS


def floor() -> Callable[[str], object]:
    """Measures the least cost of counting by key: one look-up, one comparison, one increment."""
    used: dict[str, int] = {}

    def decide(key: str) -> bool:
        count = used.get(key, 0)
        if count >= 10**9:
            return False
        used[key] = count + 1
        return True

    return decide


def costs(all_entries: list[Entry], repeats: int) -> dict[str, tuple[float, float]]:
    """Measures admitted and refused requests in turn. Returns their medians, as ratios to the floor."""
    deciders = {
        (each.name, kind): declared.on(Agent("memory://")).allow
        for each in all_entries
        for kind, declared in (("admitted", each.roomy), ("refused", each.tight))
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


def partition(declared: Declared) -> dict[str, Figures]:
    """Simulates eight nodes, half of them cut off for five windows, with requests for three times the limit.

    With several quotas, each figure is that of the worst quota.
    """
    policies = (STRICT, BALANCED, NAIVE)
    experiment = Experiment(declared.fleet, Traffic("uniform", 3.0), 12, 2, (CUT,))
    found = [
        run(replace(experiment, judged=number), policies, range(SEEDS))[0] for number in range(len(declared.quotas))
    ]
    return {policy.name: _worst([figures[policy.name] for figures in found]) for policy in policies}


def _worst(found: list[Figures]) -> Figures:
    return replace(
        found[0],
        over_max_pct=max(figures.over_max_pct for figures in found),
        bound_pct=max(figures.bound_pct for figures in found),
        under_mean_pct=max(figures.under_mean_pct for figures in found),
        bound_violations=sum(figures.bound_violations for figures in found),
    )


def main() -> int:
    """Makes all measurements, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each, of which the median is shown")
    parser.add_argument("--only", default="", help="only entries whose name contains this")
    options = parser.parse_args()
    repeats = options.repeats
    all_entries = [each for each in entries() if options.only in each.name]
    ratios = costs(all_entries, repeats)
    print(
        "| algorithm | bytes for a key | a decision, admitted/refused, in floors "
        "| half cut off for 5 windows: over max, strict/balanced (declared)/naive, % | under mean, % |"
    )
    print("|---|---|---|---|---|")
    for each in all_entries:
        found = partition(each.simulated)
        strict, balanced, naive = (found[policy.name] for policy in (STRICT, BALANCED, NAIVE))
        admitted, refused = ratios[each.name]
        over = f"{balanced.over_max_pct:.1f} ({balanced.bound_pct:.1f})"
        print(
            f"| {each.name} | {bytes_per_key(each.simulated):.0f} | {admitted:.1f}/{refused:.1f} "
            f"| {strict.over_max_pct:.1f}/{over}/{naive.over_max_pct:.1f} "
            f"| {strict.under_mean_pct:.1f}/{balanced.under_mean_pct:.1f}/{naive.under_mean_pct:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
