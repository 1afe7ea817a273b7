"""What hints are good for: over- and under-admission and exchanges of a simulated fleet, with and without them.

`python -m bench.hints [SEEDS]` prints the table of docs/hints.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.limit import SLIDING_WINDOW, Limit
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation.experiment import Experiment, run
from reconverge.simulation.figures import Figures
from reconverge.simulation.fleet import Fleet, Hinted
from reconverge.simulation.pattern import Traffic

WINDOW_S: Final = 10
LIMIT: Final = Limit(200, WINDOW_S, algorithm=SLIDING_WINDOW)
NODES: Final = 8
SEEDS: Final = 20


class Case(NamedTuple):
    """Traffic on one key, and over which windows it is looked at."""

    name: str
    traffic: Traffic
    windows: int = 12
    warmup: int = 2


CASES: Final = (
    Case("a flash crowd on a brand-new key, 3 x the quota", Traffic("flash", 3.0), 1, 0),
    Case("a burst on a brand-new key, 3 x the quota", Traffic("burst", 3.0), 1, 0),
    Case("a flash crowd in every window, 3 x", Traffic("flash", 3.0)),
    Case("evenly, 3 x", Traffic("uniform", 3.0)),
    Case("evenly, 0.9 x", Traffic("uniform", 0.9)),
    Case("by Zipf's law, 1.2 x", Traffic("zipf", 1.2)),
    Case("from node to node, 0.9 x", Traffic("rotating", 0.9)),
    Case("ten times as much suddenly, 1 x", Traffic("surge", 1.0)),
)


def main(seeds: int) -> None:
    """Print a row for each case and interval."""
    titles = ["traffic", "T / window", "`naive`", "`balanced`", "with hints", "30 % lost", "`strict`", "with hints"]
    print(f"| {' | '.join(titles)} |")
    print("|" + "---|" * len(titles))
    for case in CASES:
        for share in (0.1, 0.5):
            print(f"| {' | '.join([case.name, f'{share:g}', *found(case, share, seeds)])} |", flush=True)


def found(case: Case, share: float, seeds: int) -> list[str]:
    """What a row says after the case and the interval. Raises AssertionError if a bound was broken."""
    fleet = Fleet(NODES, LIMIT, int(share * WINDOW_S * SECOND_NS))
    without, hinted, some_lost = (
        run(
            Experiment(replace(fleet, hinted=hinted), case.traffic, case.windows, case.warmup),
            (STRICT, BALANCED) if hinted else (STRICT, BALANCED, NAIVE),
            range(seeds),
        )[0]
        for hinted in (None, Hinted(), Hinted(lost=0.3))
    )
    bounded = [figures[policy.name] for figures in (without, hinted, some_lost) for policy in (STRICT, BALANCED)]
    assert not any(figures.bound_violations for figures in bounded)
    balanced = [figures[BALANCED.name] for figures in (without, hinted, some_lost)]
    strict = [figures[STRICT.name] for figures in (without, hinted)]
    return [shown(figures) for figures in (without[NAIVE.name], *balanced, *strict)]


def shown(figures: Figures) -> str:
    """Over-admission, mean and largest; under-admission; exchanges of a node in a window."""
    over = f"{figures.over_mean_pct:.1f} ({figures.over_max_pct:.1f})"
    return f"{over} · {figures.under_mean_pct:.1f} · {figures.messages_per_node_window:.1f}"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
