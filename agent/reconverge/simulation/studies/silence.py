"""Compares fleets that leave keys unreported with fleets that report each charge within an interval.

Run as `python -m reconverge.simulation.studies.silence`. It has three parts: `grid`, fleets whose settings are drawn
with a number as the seed; `faults`, outages, cuts, crashes, lost data and lost replies; and `frequent`, keys far from
their limits that are asked about in each interval. Both fleets of a comparison get the same requests and faults, and
differ in `max_silence` alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final, NamedTuple

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.hub.headroom import INTERVALS_MIN, WINDOW_SHARE
from reconverge.limit.limit import Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import SimulatedArrival, Traffic
from reconverge.simulation.studies.experiment import PROCESSES, Experiment, mapped, run_once
from reconverge.simulation.studies.figures import summed_up
from reconverge.simulation.studies.grid import ALGORITHMS, PATTERNS

GRID, FAULTS, FREQUENT = "grid", "faults", "frequent"
PARTS: Final = (GRID, FAULTS, FREQUENT)
SEED: Final = "an exchange says only what matters"
"""The seed of the grid. Its cells were first simulated after all constants of silence had been chosen."""
CELLS: Final = 40
ASKS: Final = AskSettings(25 * MILLISECOND_NS)
ROUND_TRIP_NS: Final = 4 * MILLISECOND_NS
SHARE_MIN, SHARE_MAX = 0.003, 0.06
"""The least and the greatest sync interval of a cell of the grid, as a fraction of the window."""
SHORT_SHARE: Final = 0.01
"""If the sync interval is a smaller fraction of the window than this, the window is a minute; else it is ten seconds.
"""
KEYS: Final = 20
KEYS_DEMAND: Final = 3.6
"""The demand for KEYS keys divided by the demand for one key: by Zipf's law, the first key then gets about as many
requests as one key alone."""
REQUESTS: Final = 20_000
"""The approximate number of requests in a run, which determines its number of windows, from five to ten."""
FAULTS_TRIED: Final = (
    "down@2.3w+1w",
    "cut:half@2.3w+2w",
    "cut:half:replies@2.3w+1w",
    "crash:2@3.3w+1w",
    "lose-data@3.35w",
    "loss:30%@0w+6w",
)
FAULT_DEMANDS: Final = (0.5, 1.5)
FAULT_SEEDS: Final = (21, 22, 23, 24, 25)
FREQUENT_SHAPES: Final = ((100, 300, 5, 1), (100, 600, 3, 1), (500, 600, 3, 1), (1000, 300, 5, 1), (1000, 300, 3, 2))
"""The sync interval in milliseconds, the number of intervals in a window, the number of keys, and how often each node
is asked about each key in each interval. If that is once, at a random moment, one exchange in seven finds no new
request."""
FREQUENT_NODES: Final = 4
FREQUENT_DEMAND: Final = 0.1
FREQUENT_LENGTH: Final = 3
"""The number of windows of these runs."""


class Way(NamedTuple):
    """A policy, and whether requests ask the hub when in doubt."""

    name: str
    policy: Policy
    asks: AskSettings | None = None


WAYS: Final = (Way("strict", STRICT), Way("balanced", BALANCED), Way("asking", STRICT, ASKS))


class Comparison(NamedTuple):
    """Two runs that differ in `max_silence` alone."""

    part: str
    case: str
    way: Way
    experiment: Experiment
    seed: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of the table: figures of both runs of a comparison.

    Falsely refused cost is in percent of the cost that a central limiter admits; cost above a limit is in percent of
    the limit.
    """

    part: str
    case: str
    way: str
    requests: int
    """The number of requests after the warm-up."""
    interval_share: float
    """The sync interval as a fraction of the window."""
    of_a_node: float
    """The limit divided by the number of nodes."""
    reports_without: int
    reports_with: int
    refused_without: float
    refused_with: float
    over_mean_without: float
    over_mean_with: float
    over_most_without: float
    over_most_with: float
    broken: int
    """The number of windows of either run in which more was admitted than declared."""

    @property
    def lost(self) -> float:
        """Returns by how many percentage points silence raises the falsely refused cost; negative if it lowers that."""
        return self.refused_with - self.refused_without

    @property
    def is_unchanged(self) -> bool:
        """Whether both runs have the same figures."""
        return (self.reports_with, self.refused_with, self.over_mean_with, self.over_most_with) == (
            self.reports_without,
            self.refused_without,
            self.over_mean_without,
            self.over_most_without,
        )


def drawn(number: int, seed: str = SEED) -> tuple[str, Experiment]:
    """Draws cell `number` of the grid, with its description. Patterns and algorithms take turns."""
    random = Random(f"{seed} {number}")
    pattern, algorithm = PATTERNS[number % len(PATTERNS)], ALGORITHMS[number % len(ALGORITHMS)]
    share = SHARE_MIN * (SHARE_MAX / SHARE_MIN) ** random.random()
    window_s = 60.0 if share < SHORT_SHARE else 10.0
    nodes = random.choice((4, 8, 16, 32))
    demand = random.choice((0.1, 0.5, 0.9, 2.0))
    keys = random.choice((1, 1, KEYS))
    quota = random.choice((60, 300, 1000, 5000, 20_000, 100_000))
    # No run has more than 50,000 requests, or some hundred thousand exchanges.
    quota = min(quota, 4000 if demand >= 0.9 else 20_000 if demand == 0.5 else quota)
    if keys > 1:
        quota, nodes = min(quota, 1000), min(nodes, 8)
    nodes = min(nodes, 16) if share < 2 * SHARE_MIN else nodes
    demanded = demand * (KEYS_DEMAND if keys > 1 else 1)
    windows = int(min(10, max(5, REQUESTS / (quota * demanded))))
    limit = Limit(quota, window_s, algorithm=algorithm)
    fleet = Fleet(nodes, limit, int(share * window_s * SECOND_NS), ROUND_TRIP_NS)
    case = f"{number}: {pattern} {demand:g} L, {keys} keys, {_named(fleet)}"
    return case, Experiment(fleet, Traffic(pattern, demanded, keys=keys), windows)


def _named(fleet: Fleet) -> str:
    limit = fleet.limit
    named = f"{limit.quota}/{limit.window_ns // SECOND_NS}s {limit.algorithm}"
    return f"{named}, {fleet.nodes} nodes, T = {fleet.sync_interval_ns / SECOND_NS:.3g} s"


def grid_comparisons(count: int, seed: str) -> Iterator[Comparison]:
    """Yields three comparisons for each of the first `count` cells."""
    for number in range(count):
        case, experiment = drawn(number, seed)
        yield from (Comparison(GRID, case, way, experiment, number) for way in WAYS)


def fault_comparisons() -> Iterator[Comparison]:
    """Yields a comparison for each fault, demand, algorithm and seed."""
    for algorithm in ALGORITHMS:
        for fault in FAULTS_TRIED:
            for demand in FAULT_DEMANDS:
                fleet = Fleet(8, Limit(1000, 10.0, algorithm=algorithm), 100 * MILLISECOND_NS, ROUND_TRIP_NS)
                experiment = Experiment(fleet, Traffic("uniform", demand), 6, faults=(fault,))
                case = f"{fault}, {demand:g} L, {algorithm}"
                yield from (
                    Comparison(FAULTS, f"{case}, seed {seed}", WAYS[0], experiment, seed) for seed in FAULT_SEEDS
                )


def frequent_comparisons() -> Iterator[Comparison]:
    """Yields comparisons of keys that each node is asked about in each interval, at a tenth of their limits."""
    for interval_ms, intervals, keys, requests in FREQUENT_SHAPES:
        for algorithm in ALGORITHMS:
            quota = round(FREQUENT_NODES * requests * intervals / FREQUENT_DEMAND)
            interval_ns = interval_ms * MILLISECOND_NS
            limit = Limit(quota, intervals * interval_ns / SECOND_NS, algorithm=algorithm)
            fleet = Fleet(FREQUENT_NODES, limit, interval_ns, ROUND_TRIP_NS)
            random = Random(f"frequent {interval_ms} {intervals} {algorithm}")
            pause_ns = interval_ns // requests
            arrivals = sorted(
                SimulatedArrival(number * pause_ns + random.randrange(pause_ns), node, f"key-{key}", 1)
                for number in range(FREQUENT_LENGTH * intervals * requests)
                for node in range(FREQUENT_NODES)
                for key in range(keys)
            )
            experiment = Experiment(fleet, tuple(arrivals), FREQUENT_LENGTH, 1)
            yield Comparison(FREQUENT, f"{keys} keys, {_named(fleet)}", WAYS[1], experiment, 1)


def compared(comparison: Comparison) -> Compared:
    """Simulates both runs of a comparison."""
    part, case, way, experiment, seed = comparison
    fleet = replace(experiment.fleet, asks=way.asks)
    arrivals = experiment.arrivals(seed)
    runs = [
        run_once(replace(experiment, fleet=each), way.policy, arrivals, seed=seed)
        for each in (replace(fleet, max_silence_ns=0), fleet)
    ]
    without, silent = (summed_up([run]) for run in runs)
    return Compared(
        part=part,
        case=case,
        way=way.name,
        requests=runs[0].requests,
        interval_share=round(fleet.sync_interval_ns / fleet.limit.window_ns, 4),
        of_a_node=fleet.limit.quota / fleet.nodes,
        reports_without=runs[0].reports,
        reports_with=runs[1].reports,
        refused_without=without.falsely_refused_pct,
        refused_with=silent.falsely_refused_pct,
        over_mean_without=without.over_mean_pct,
        over_mean_with=silent.over_mean_pct,
        over_most_without=without.over_max_pct,
        over_most_with=silent.over_max_pct,
        broken=without.bound_violations + silent.bound_violations,
    )


class Aim(NamedTuple):
    """An aim of the study, and whether the rows of its table reach that aim."""

    text: str
    holds: bool
    exceptions: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"{'yes' if self.holds else 'NO '} {self.text}", *(f"      {each}" for each in self.exceptions)]
        return "\n".join(lines)


def aims(rows: Sequence[Compared]) -> Iterator[Aim]:
    """Yields the aims for those parts of the study to which `rows` belong."""
    yield Aim(f"{sum(row.broken for row in rows)} bounds broken", not any(row.broken for row in rows))
    by_part: defaultdict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        by_part[row.part].append(row)
    for way in WAYS:
        of_way = [row for row in by_part[GRID] if row.way == way.name]
        if of_way:
            yield _no_worse(f"{GRID}, {way.name}", of_way, 0.1)
            yield from _cell_aims(way, of_way)
    by_fault: defaultdict[str, list[Compared]] = defaultdict(list)
    for row in by_part[FAULTS]:
        by_fault[row.case.rpartition(", ")[0]].append(row)
    for name, group in by_fault.items():
        yield _no_worse(name, group)
    if by_fault:
        yield _no_worse("all faults", by_part[FAULTS])
    for row in by_part[FREQUENT]:
        text = f"{row.case}: {row.reports_without} reports become {row.reports_with}, at most a tenth"
        yield Aim(text, row.reports_with * 10 <= row.reports_without)


def _cell_aims(way: Way, rows: Sequence[Compared]) -> Iterator[Aim]:
    large = [row for row in rows if row.of_a_node >= 10 and row.requests >= 1000]
    yield _each(f"{way.name}: each of {len(large)} large cells loses at most 0.5", large, lambda row: row.lost <= 0.5)
    short = [row for row in rows if row.interval_share * WINDOW_SHARE * INTERVALS_MIN > 1]
    text = f"{way.name}: all figures of {len(short)} cells with T > W/32 are equal"
    yield _each(text, short, lambda row: row.is_unchanged)
    if way.policy is STRICT:
        yield _each(f"{way.name}: nothing is admitted above a limit", rows, lambda row: row.over_most_with == 0)
    else:
        text = f"{way.name}: each cell admits at most 0.2 more above its limit at worst"
        yield _each(text, rows, lambda row: row.over_most_with <= row.over_most_without + 0.2)


def _no_worse(name: str, rows: Sequence[Compared], by: float = 0.0) -> Aim:
    without, silent = fmean(row.refused_without for row in rows), fmean(row.refused_with for row in rows)
    reports = sum(row.reports_with for row in rows) / max(1, sum(row.reports_without for row in rows))
    text = f"{name}: {without:.3f} % refused falsely become {silent:.3f}, at most {by:g} more; reports x {reports:.2f}"
    return Aim(text, silent <= without + by)


def _each(text: str, rows: Iterable[Compared], holds: Callable[[Compared], bool]) -> Aim:
    exceptions = [
        f"{row.case}: refused {row.refused_without} -> {row.refused_with}, "
        f"over {row.over_most_without} -> {row.over_most_with}, of {row.requests} requests"
        for row in rows
        if not holds(row)
    ]
    return Aim(text, not exceptions, exceptions)


HEADS: Final = tuple(field.name for field in fields(Compared))


def line_of(row: Compared) -> str:
    """Returns a row of the table, tab-separated."""
    return "\t".join(str(value) for value in asdict(row).values())


def read_table(path: Path) -> list[Compared]:
    """Returns the rows of a table that an earlier run has written; none if there is no such file."""
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    readers = [kinds[str(field.type)] for field in fields(Compared)]
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return [Compared(*(read(word) for read, word in zip(readers, line.split("\t"), strict=True))) for line in lines]


def chosen(parts: Sequence[str], *, cells: int, seed: str) -> list[Comparison]:
    """Returns all comparisons of these parts."""
    of_part = {
        GRID: lambda: grid_comparisons(cells, seed),
        FAULTS: fault_comparisons,
        FREQUENT: frequent_comparisons,
    }
    return [each for part in parts for each in of_part[part]()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints whether each aim is reached. Returns the exit status: 1 if one is not."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.studies.silence", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="the parts to simulate (default: all)")
    parser.add_argument("--cells", type=int, default=CELLS, help="how many cells are drawn (default: %(default)s)")
    parser.add_argument("--seed", default=SEED, help="a text that draws other cells")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--table", type=Path, metavar="FILE", help="keep a row for each comparison, and continue there")
    options = parser.parse_args(arguments)
    path = Path(options.table or os.devnull)
    rows = read_table(path)
    known = {(row.part, row.case, row.way) for row in rows}
    comparisons = chosen(options.parts or PARTS, cells=options.cells, seed=options.seed)
    missing = [each for each in comparisons if (each.part, each.case, each.way.name) not in known]
    with path.open("a", buffering=1, encoding="utf-8") as table:
        if not rows:
            print(*HEADS, sep="\t", file=table)
        for row in mapped(compared, missing, processes=options.processes):
            rows.append(row)
            print(line_of(row), file=table)
    found = list(aims(rows))
    print(*found, sep="\n")
    return 0 if all(aim.holds for aim in found) else 1


if __name__ == "__main__":
    sys.exit(main())
