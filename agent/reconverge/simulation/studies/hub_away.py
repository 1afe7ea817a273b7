"""Simulates small limits while the hub is away for long: `python -m reconverge.simulation.studies.hub_away`.

All nodes are cut off from the hub for OUT_WINDOWS windows. Meanwhile clients ask for twice the limit, at nodes drawn at
random or always at one node. The figures are the cost that was not admitted, in % of the cost that one central limiter
admits in the same windows. For comparison there is a static division: each node is a limiter of an equal part of the
quota, and the first nodes get one more each while there is a rest. With `--fixed`, the limits have fixed windows.

With `--partly`, the hub is away for some of the nodes, or now and then, or slow, or it fails over without its data. A
window is exact for the nodes that have the hub if they admit what one central limiter admits to their requests of the
quota less a part, rounded up, for each node that is cut off; the first two windows are left out.

With `--scarce`, all nodes are cut off for SCARCE_WINDOWS windows, under both values of a policy's `scarce`, "nodes" and
"hub", and at a demand of twice the limit and of nine tenths of it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Final

from reconverge.clock import MILLISECOND_NS
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.policies import HUB as AT_HUB
from reconverge.policies import NODES as AT_NODES
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import SimulatedArrival, Traffic
from reconverge.simulation.studies.experiment import PROCESSES, Experiment, mapped, run_once, run_with_decisions
from reconverge.simulation.studies.figures import PERCENT, summed_up
from reconverge.simulation.truth import DecidedRequest, ideal_admissions

QUOTAS: Final = (5, 12, 60)
NODES: Final = (4, 8, 32)
SPREADS: Final = {"random": "uniform", "sticky": "single"}
POLICIES: Final = (STRICT, BALANCED)
WINDOW_S: Final = 60
DEMAND: Final = 2.0
CALM_WINDOWS: Final = 3
OUT_WINDOWS: Final = 10
AFTER_WINDOWS: Final = 3
INTERVAL_NS: Final = 500 * MILLISECOND_NS
WITHIN_NS: Final = 25 * MILLISECOND_NS
SEEDS: Final = (1, 2, 3)
_OUT: Final = f"@{CALM_WINDOWS}w+{OUT_WINDOWS}w"
TROUBLES: Final = {
    "one cut off": (f"cut:one{_OUT}",),
    "half cut off": (f"cut:half{_OUT}",),
    "all but one cut off": (f"cut:{{but_one}}{_OUT}",),
    "flapping": tuple(f"cut:all@{CALM_WINDOWS + number}w+0.5w" for number in range(OUT_WINDOWS)),
    "slow": (f"slow:10{_OUT}",),
    "fails over without data": (f"down@{CALM_WINDOWS}w+0.2w", f"lose-data@{CALM_WINDOWS}.1w"),
}
"""Faults for OUT_WINDOWS windows, by their name. A flapping hub is away for every other half of a minute."""
PART_NODES: Final = (4, 8)
SCARCE_WINDOWS: Final = 3
SCARCE_INTERVAL_NS: Final = 100 * MILLISECOND_NS
SCARCE_DEMANDS: Final = (2.0, 0.9)
SCARCE_WAYS: Final = tuple(product(POLICIES, (AT_NODES, AT_HUB)))
SCARCE_LIMITS: Final = (
    (Limit(60, 1, algorithm=SLIDING_WINDOW), 8),
    (Limit(60, 60, algorithm=SLIDING_WINDOW), 8),
    (Limit(5, 60, algorithm=SLIDING_WINDOW), 4),
    (Limit(60, 1, algorithm=FIXED_WINDOW), 8),
    (Limit(5, 60, algorithm=FIXED_WINDOW), 4),
    (Limit(300, 10, algorithm=FIXED_WINDOW), 32),
    (Limit(1000, 1, algorithm=FIXED_WINDOW), 8),
    (Limit(5, 60, algorithm=TOKEN_BUCKET), 4),
    (Limit(60, 10, algorithm=TOKEN_BUCKET), 8),
    (Limit(300, 10, algorithm=TOKEN_BUCKET), 8),
    (Limit(1000, 1, algorithm=TOKEN_BUCKET), 8),
)
"""The limits of `--scarce`, each with the number of nodes that share it."""


@dataclass(frozen=True, slots=True)
class AwayTask:
    """A limit per minute, the nodes that share it, where its requests arrive, the policy, and the kind of windows."""

    quota: int
    nodes: int
    spread: str
    policy: Policy
    algorithm: str = SLIDING_WINDOW


@dataclass(frozen=True, slots=True)
class AwayRow:
    """The figures of one task over all seeds, in % of the cost that one central limiter admits in the same windows."""

    task: AwayTask
    first: float
    """The cost that was refused falsely in the first window after the cut."""
    second: float
    later: float
    """The falsely refused cost from the third window after the cut on, while the hub is away."""
    static: float
    """The falsely refused cost of a static division of the quota, in the windows of `later`."""
    after: float
    """The falsely refused cost in the windows after the return of the hub."""
    over: float
    """The most by which a window exceeded the limit, in % of the limit."""
    broken: int
    """The number of windows that exceeded the declared bound."""


def measured(task: AwayTask) -> AwayRow:
    """Simulates one task with each of the seeds."""
    faults, windows = (f"cut:all{_OUT}",), CALM_WINDOWS + OUT_WINDOWS + AFTER_WINDOWS
    limit = Limit(task.quota, WINDOW_S, algorithm=task.algorithm)
    experiment = _experiment(limit, task.nodes, SPREADS[task.spread], faults, windows)
    central, fleet, static = Counter[int](), Counter[int](), Counter[int]()
    over, broken = 0.0, 0
    for seed in SEEDS:
        arrivals = experiment.arrivals(seed)
        run = run_once(experiment, task.policy, arrivals, seed=seed)
        fleet.update(dict(enumerate(run.busiest_by_window)))
        over, broken = max(over, *run.over_pct), broken + len(run.broken)
        asked = [_asked(number, one, limit) for number, one in enumerate(arrivals)]
        central.update(_admitted(limit, asked))
        for node in range(task.nodes):
            quota = limit.quota // task.nodes + (node < limit.quota % task.nodes)
            if quota > 0:
                part = replace(limit, quota=quota)
                static.update(_admitted(part, [request for request in asked if request.node == node]))

    def lost_pct(admitted: Counter[int], first: int, end: int) -> float:
        of = range(CALM_WINDOWS + first, CALM_WINDOWS + end)
        whole = sum(central[window] for window in of)
        return PERCENT * (whole - sum(admitted[window] for window in of)) / whole

    return AwayRow(
        task,
        lost_pct(fleet, 0, 1),
        lost_pct(fleet, 1, 2),
        lost_pct(fleet, 2, OUT_WINDOWS),
        lost_pct(static, 2, OUT_WINDOWS),
        lost_pct(fleet, OUT_WINDOWS, OUT_WINDOWS + AFTER_WINDOWS),
        over,
        broken,
    )


def _experiment(
    limit: Limit,
    nodes: int,
    pattern: str,
    faults: Sequence[str],
    windows: int,
    *,
    demand: float = DEMAND,
    interval_ns: int = INTERVAL_NS,
) -> Experiment:
    fleet = Fleet(nodes, limit, interval_ns, asks=AskSettings(WITHIN_NS))
    return Experiment(fleet, Traffic(pattern, demand), windows, CALM_WINDOWS, tuple(faults))


def _asked(number: int, one: SimulatedArrival, limit: Limit) -> DecidedRequest:
    epoch = one.moment_ns // limit.window_ns
    return DecidedRequest(
        one.moment_ns, number, one.key, epoch, one.cost, settle=0, node=one.node, allowed=True, known=True
    )


def _admitted(limit: Limit, asked: list[DecidedRequest]) -> Counter[int]:
    """Returns, by window, how much of the cost of these requests, all for one key, one limiter admits."""
    ideal, _ = ideal_admissions(limit, asked, settle_after_ns=0)
    return Counter({epoch: cost for (_, epoch), cost in ideal.items()})


@dataclass(frozen=True, slots=True)
class PartTask:
    """A limit per minute, the nodes that share it, and the kind of trouble, one of TROUBLES."""

    quota: int
    nodes: int
    trouble: str


@dataclass(frozen=True, slots=True)
class PartRow:
    """The figures of one task over all seeds, in the windows of the trouble."""

    task: PartTask
    lost: float
    """The cost that was not admitted, in % of what one central limiter admits."""
    exact: float
    """The windows that are exact for the nodes that have the hub, in % of those from the third on."""
    over: float
    broken: int


def partly(task: PartTask) -> PartRow:
    """Simulates one task in `strict` with each of the seeds."""
    faults = [fault.format(but_one=task.nodes - 1) for fault in TROUBLES[task.trouble]]
    limit, part = Limit(task.quota, WINDOW_S, algorithm=SLIDING_WINDOW), -(-task.quota // task.nodes)
    experiment = _experiment(limit, task.nodes, SPREADS["random"], faults, CALM_WINDOWS + OUT_WINDOWS)
    central, fleet, exact = 0, 0, list[bool]()
    over, broken = 0.0, 0
    for seed in SEEDS:
        run, decided = run_with_decisions(experiment, STRICT, experiment.arrivals(seed), seed=seed)
        over, broken = max(over, *run.over_pct), broken + len(run.broken)
        central, fleet = central + run.ideal, fleet + run.admitted
        cut = (fault.nodes for fault in experiment.faults_of(seed) if len(fault.nodes) < task.nodes)
        away = frozenset[int]().union(*cut)
        exact += _exact(limit, [one for one in decided if one.node not in away], len(away) * part)
    return PartRow(task, PERCENT * (central - fleet) / central, PERCENT * sum(exact) / len(exact), over, broken)


def _exact(limit: Limit, decided: list[DecidedRequest], apart: int) -> Iterator[bool]:
    """Yields for each window whether these requests got what a central limiter of the quota less `apart` admits.

    Begins with the third window of the trouble: in the second, the whole quota that was used before still fades.
    """
    quota = limit.quota - apart
    ideal = _admitted(replace(limit, quota=quota), decided) if quota > 0 else Counter[int]()
    got = Counter(one.epoch for one in decided if one.allowed)
    first = min(one.epoch for one in decided)
    for epoch in range(first + CALM_WINDOWS + 2, first + CALM_WINDOWS + OUT_WINDOWS):
        yield got[epoch] >= ideal[epoch]


def part_line(row: PartRow) -> str:
    """Returns one line of the table of `--partly` in Markdown."""
    task = row.task
    return (
        f"| {task.trouble} | {task.quota} | {task.nodes} | {row.lost:.0f} | {row.exact:.0f} | {row.over:.0f} "
        f"| {row.broken} |"
    )


@dataclass(frozen=True, slots=True)
class ScarceTask:
    """A limit, the nodes that share it, the policy, and the demand as a multiple of the limit."""

    limit: Limit
    nodes: int
    policy: Policy
    demand: float


def scarce_lost_pct(task: ScarceTask) -> float:
    """Returns the cost that was not admitted, in % of what one central limiter admits; the mean of the seeds."""
    experiment = _experiment(
        task.limit,
        task.nodes,
        SPREADS["random"],
        (f"cut:all@{CALM_WINDOWS}w+{SCARCE_WINDOWS}w",),
        CALM_WINDOWS + SCARCE_WINDOWS,
        demand=task.demand,
        interval_ns=SCARCE_INTERVAL_NS,
    )
    return fmean(
        summed_up([run_once(experiment, task.policy, experiment.arrivals(seed), seed=seed)]).falsely_refused_pct
        for seed in SEEDS
    )


def scarce_tasks() -> Iterator[ScarceTask]:
    """Yields the tasks of the table of `--scarce`, row by row."""
    for (limit, nodes), (policy, scarce), demand in product(SCARCE_LIMITS, SCARCE_WAYS, SCARCE_DEMANDS):
        yield ScarceTask(limit, nodes, replace(policy, scarce=scarce), demand)


def scarce_lines(found: Iterator[float]) -> Iterator[str]:
    """Yields the lines of the table of `--scarce` in Markdown; `found` has the figure of each task, in their order."""
    demands = " / ".join(f"{demand:g} L" for demand in SCARCE_DEMANDS)
    yield f"| limit | {' | '.join(f'{policy.name}, {scarce} ({demands})' for policy, scarce in SCARCE_WAYS)} |"
    yield f"| --- {'| --- ' * len(SCARCE_WAYS)}|"
    for limit, nodes in SCARCE_LIMITS:
        columns = [", ".join(f"{next(found):.0f}" for _ in SCARCE_DEMANDS) for _ in SCARCE_WAYS]
        yield f"| {limit}, {nodes} nodes | {' | '.join(columns)} |"


def tasks(algorithm: str = SLIDING_WINDOW) -> Iterator[AwayTask]:
    """Yields the tasks of the table, row by row."""
    for policy in POLICIES:
        for spread in SPREADS:
            for quota in QUOTAS:
                yield from (AwayTask(quota, nodes, spread, policy, algorithm) for nodes in NODES)


def line(row: AwayRow) -> str:
    """Returns one line of the table in Markdown."""
    task = row.task
    figures = row.first, row.second, row.later, row.static, row.after, row.over
    shown = " | ".join(f"{figure:.0f}" for figure in figures)
    return f"| {task.policy.name} | {task.spread} | {task.quota} | {task.nodes} | {shown} | {row.broken} |"


HEAD: Final = """\
| policy | spread | a minute | nodes | 1st window | 2nd | 3rd to 10th | static division | after | over, most | broken |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


PART_HEAD: Final = """\
| trouble | a minute | nodes | refused falsely, % | exact windows of the connected, % | over, most | broken |
| --- | --- | --- | --- | --- | --- | --- |"""


def part_tasks() -> Iterator[PartTask]:
    """Yields the tasks of the table of `--partly`, row by row."""
    for trouble, quota, nodes in product(TROUBLES, QUOTAS, PART_NODES):
        yield PartTask(quota, nodes, trouble)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table row by row. Returns the exit status, 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument(
        "--partly", action="store_true", help="the hub is away for some nodes, or now and then, or slow"
    )
    parser.add_argument("--scarce", action="store_true", help="both values of `scarce`, in a short outage")
    parser.add_argument("--fixed", action="store_true", help="limits of fixed windows by the clock")
    options = parser.parse_args(arguments)
    if options.partly:
        print(PART_HEAD, flush=True)
        for part in mapped(partly, list(part_tasks()), processes=options.processes):
            print(part_line(part), flush=True)
        return 0
    if options.scarce:
        for text in scarce_lines(mapped(scarce_lost_pct, list(scarce_tasks()), processes=options.processes)):
            print(text, flush=True)
        return 0
    print(HEAD, flush=True)
    for row in mapped(
        measured, list(tasks(FIXED_WINDOW if options.fixed else SLIDING_WINDOW)), processes=options.processes
    ):
        print(line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
