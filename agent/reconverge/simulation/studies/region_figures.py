"""Compares the cost that regions with bridges admit with the cost that fixed parts of a limit admit.

Run as `python -m reconverge.simulation.studies.region_figures`, which prints a table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT
from reconverge.settings import MILLION
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.regions import Regions, wandering
from reconverge.simulation.studies.experiment import PROCESSES, mapped
from reconverge.simulation.studies.figures import Figures, RunFigures, judge_run, summed_up
from reconverge.simulation.world import World

FIRST_SEED: Final = 7_000
REGIONS: Final = 3
NODES: Final = 6
QUOTA: Final = 300
WINDOW_S: Final = 60.0
WINDOWS: Final = 10
WARMUP: Final = 1
ALGORITHMS: Final = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)
WAYS: Final = {
    "bridges, shares of 20 %": (MILLION // 5, True),
    "bridges, shares of 5 %": (MILLION // 20, True),
    "a third for each": (MILLION // 3, False),
    "all of it in each": (MILLION, False),
}
"""By the name of a way to divide a limit: the part of each region in millionths, and whether there are bridges."""
LOADS: Final = {
    "one region, 0.5 L": (1, 0.5, 0),
    "one region, 1.5 L": (1, 1.5, 0),
    "one at a time, 0.8 L": (1, 0.8, REGIONS),
    "up to all three, 1.5 L in each": (REGIONS, 1.5, REGIONS),
}
"""By the name of a load: the number of regions with requests at a time, the demand in each as a multiple of the limit,
and the number of regions among which the demand moves; 0 if it stays."""


class _Run(NamedTuple):
    algorithm: str
    load: str
    way: str
    seed: int


def figures_of(algorithm: str, load: str, way: str, *, seed: int) -> RunFigures:
    """Simulates one of the `LOADS` on a limit that is divided between regions in one of the `WAYS`.

    Returns the figures.
    """
    share_ppm, bridged = WAYS[way]
    hottest, demand, among = LOADS[load]
    fleet = Fleet(
        NODES,
        Limit(QUOTA, WINDOW_S, algorithm=algorithm),
        SECOND_NS // 2,
        10 * MILLISECOND_NS,
        regions=REGIONS,
        region_ppm=share_ppm,
    )
    random = Random(f"{load} {seed}")
    arrivals: Sequence[SimulatedArrival] = wandering(fleet, WINDOWS, random=random, demand=demand, hottest=hottest)
    if not among:
        arrivals = [one._replace(node=one.node // REGIONS * REGIONS) for one in arrivals]
    make_rule = partial(
        Regions,
        random=Random(f"bridges {seed}"),
        regions=REGIONS,
        movable_ppm=max(0, MILLION - REGIONS * share_ppm),
        interval_ns=SECOND_NS,
        loan_ns=30 * SECOND_NS,
        latency_ns=80 * MILLISECOND_NS,
        hold_min_s=64,
        bridged=bridged,
    )
    world = World(fleet, STRICT, [], seed=seed, make_rule=make_rule)
    history = world.run(arrivals, until_ns=WINDOWS * fleet.limit.window_ns)
    return judge_run(
        fleet.limit,
        STRICT,
        history.decided,
        history.messages,
        nodes=NODES,
        windows=WINDOWS,
        warmup=WARMUP,
        begin_ns=world.begin_ns,
    )


def _figures_of(run: _Run) -> RunFigures:
    return figures_of(run.algorithm, run.load, run.way, seed=run.seed)


def table(seeds: int, processes: int) -> str:
    """Returns a Markdown table: a row for each load, a column for each way to connect regions, means over the seeds."""
    runs = [
        _Run(algorithm, load, way, FIRST_SEED + seed)
        for algorithm in ALGORITHMS
        for load in LOADS
        for way in WAYS
        for seed in range(seeds)
    ]
    found: dict[tuple[str, str, str], list[RunFigures]] = {}
    for run, figures in zip(runs, mapped(_figures_of, runs, processes=processes), strict=True):
        found.setdefault((run.algorithm, run.load, run.way), []).append(figures)
    lines = [f"| | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    for algorithm in ALGORITHMS:
        for load in LOADS:
            cells = [_shown(summed_up(found[algorithm, load, way])) for way in WAYS]
            lines.append(f"| {algorithm}: {load} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(figures: Figures) -> str:
    return f"{figures.over_mean_pct:.1f}/{figures.over_max_pct:.0f} [{figures.under_mean_pct:.1f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table. Returns the exit status, 0."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.studies.region_figures", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    print(table(options.seeds, options.processes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
