"""Measures what an outage costs requests that ask in doubt: `python -m reconverge.simulation.studies.outage`.

All nodes are cut off from the hub for OUT_WINDOWS windows: under both values of a policy's `scarce`, "nodes" and "hub",
and at a demand of twice the limit and of nine tenths of it. The figure is the cost that was not admitted, in % of the
cost that one central limiter would have admitted in the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from reconverge.clock import MILLISECOND_NS
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, HUB, NODES, STRICT, Policy
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.studies.experiment import PROCESSES, Experiment, mapped, run_once
from reconverge.simulation.studies.figures import summed_up

CALM_WINDOWS: Final = 3
OUT_WINDOWS: Final = 3
DEMANDS: Final = (2.0, 0.9)
WITHIN_NS: Final = 25 * MILLISECOND_NS
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class OutageRow:
    """A row of the table: a limit, the number of nodes that share it, and their sync interval."""

    algorithm: str
    quota: int
    window_s: int
    nodes: int
    interval_ms: int = 100

    def __str__(self) -> str:
        return f"{self.algorithm} {self.quota} in {self.window_s} s, {self.nodes} nodes"


ROWS: Final = (
    OutageRow(SLIDING_WINDOW, 60, 1, 8),
    OutageRow(SLIDING_WINDOW, 60, 60, 8),
    OutageRow(SLIDING_WINDOW, 5, 60, 4),
    OutageRow(FIXED_WINDOW, 60, 1, 8),
    OutageRow(FIXED_WINDOW, 5, 60, 4),
    OutageRow(FIXED_WINDOW, 300, 10, 32),
    OutageRow(FIXED_WINDOW, 1000, 1, 8),
    OutageRow(TOKEN_BUCKET, 5, 60, 4),
    OutageRow(TOKEN_BUCKET, 60, 10, 8),
    OutageRow(TOKEN_BUCKET, 300, 10, 8),
    OutageRow(TOKEN_BUCKET, 1000, 1, 8),
)


@dataclass(frozen=True, slots=True)
class OutageTask:
    """A row of the table, to be simulated with one policy and one demand."""

    row: OutageRow
    policy: Policy
    demand: float


def lost_pct(task: OutageTask) -> float:
    """Returns the cost that was not admitted in the outage, in % of a central limiter's; the mean of several runs."""
    row = task.row
    fleet = Fleet(
        row.nodes,
        Limit(row.quota, row.window_s, algorithm=row.algorithm),
        row.interval_ms * MILLISECOND_NS,
        asks=AskSettings(WITHIN_NS),
    )
    experiment = Experiment(
        fleet,
        Traffic("uniform", task.demand),
        CALM_WINDOWS + OUT_WINDOWS,
        CALM_WINDOWS,
        (f"cut:all@{CALM_WINDOWS}w+{OUT_WINDOWS}w",),
    )
    return fmean(
        summed_up([run_once(experiment, task.policy, experiment.arrivals(seed), seed=seed)]).falsely_refused_pct
        for seed in SEEDS
    )


def tasks() -> Iterator[OutageTask]:
    """Yields the tasks of the table, row by row."""
    for row in ROWS:
        for policy in (STRICT, BALANCED):
            yield from (
                OutageTask(row, replace(policy, scarce=way), demand) for way in (NODES, HUB) for demand in DEMANDS
            )


def page(found: Iterable[float]) -> str:
    """Returns the table in Markdown; `found` has the figure of each task, in the order of `tasks()`."""
    figures = iter(found)
    heads = " / ".join(f"{demand:g} L" for demand in DEMANDS)
    lines = [
        f"| limit | strict, nodes ({heads}) | strict, hub | balanced, nodes | balanced, hub |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        columns = [", ".join(f"{next(figures):.0f}" for _ in DEMANDS) for _ in range(4)]
        lines.append(f"| {row} | {' | '.join(columns)} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table of all rows. Returns the exit status, 0."""
    print(page(mapped(lost_pct, list(tasks()), processes=PROCESSES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
