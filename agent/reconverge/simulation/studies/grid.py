"""Counts false refusals over a grid of fleets. Run as `python -m reconverge.simulation.studies.grid`.

A cell of the grid is a fleet, a limit and traffic, drawn with the cell's number as the seed; so the first N cells are
the same at every commit. A third of the cells are held out: they are simulated only with `--held-out`, which is for the
end, when all constants are fixed. So no constant has been chosen by the results of these cells.
"""

# Two runs of the same cell differ in the code alone, as time is virtual and all chance comes from the seed: so figures
# of two commits may be compared to the last digit, whatever machine they were made on.

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, SystemClock
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import POLICIES, STRICT, Policy
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import SimulatedArrival, Traffic
from reconverge.simulation.studies.experiment import PROCESSES, Experiment, mapped, run_once
from reconverge.simulation.studies.figures import PERCENT, Figures, commit_of, summed_up

PATTERNS: Final = ("uniform", "batches", "rotating", "onoff", "burst", "zipf", "flash", "surge")
ALGORITHMS: Final = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)
WINDOWS_OF: Final = {5: 22, 12: 18, 20: 14, 60: 10, 300: 7, 1000: 6, 2000: 6}
"""By quota, the number of windows to simulate; small quotas need more, as one request is a large part of them."""
NODES: Final = (4, 8, 16, 32, 64, 128)
DEMANDS: Final = (0.9, 2.0)
WARMUP: Final = 2
SHARE_MIN, SHARE_MAX = 0.03, 0.2
"""The least and the greatest sync interval of a cell, as a fraction of a window of WINDOW_S seconds."""
WINDOW_S: Final = 10.0
LONG_SHARE: Final = 0.25
"""The fraction of cells with a window of a minute and an agent's default sync interval, a tenth of a second."""
LONG_WINDOW_S: Final = 60.0
LONG_INTERVAL_NS: Final = 100 * MILLISECOND_NS
HELD_OUT_SHARE: Final = 1 / 3
SMALL_MAX: Final = 60
"""The largest quota that the tables count as small."""
ALL: Final = "all"
SIZES: Final = (f"L ≤ {SMALL_MAX}", f"L > {SMALL_MAX}")
CELLS: Final = 60
"""The default number of cells; the cells among them that are not held out take about two minutes on one core."""
FROM_MEMORY, ASKING = "from memory", "asking"
WITHIN_MS: Final = 25
WORST_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class GridCell:
    """One cell of the grid: a fleet, a limit and traffic."""

    number: int
    held_out: bool
    pattern: str
    algorithm: str
    nodes: int
    quota: int
    window_s: float
    sync_interval_ns: int
    demand: float

    def experiment(self, asks: AskSettings | None = None) -> Experiment:
        """Returns the experiment of this cell; if `asks` is given, its requests ask the hub in doubt."""
        limit = Limit(self.quota, self.window_s, algorithm=self.algorithm)
        fleet = Fleet(self.nodes, limit, self.sync_interval_ns, asks=asks)
        return Experiment(fleet, Traffic(self.pattern, self.demand), WINDOWS_OF[self.quota], WARMUP)

    def __str__(self) -> str:
        return (
            f"{self.number}: {self.pattern} {self.demand:g} L, {self.quota}/{self.window_s:g}s {self.algorithm}, "
            f"{self.nodes} nodes, T = {self.sync_interval_ns / SECOND_NS:.3g} s"
        )


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of one cell for one way of deciding: from memory, or with requests that ask the hub."""

    figures: Figures
    of_limit_pct: float
    """The falsely refused cost in % of the quotas of all windows, windows without demand included."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """The figures of one cell for each way of deciding that was simulated."""

    cell: GridCell
    found: dict[str, CellFigures]
    """The figures by way of deciding; the requests are the same for each way."""


def draw_cell(number: int) -> GridCell:
    """Draws cell `number`. Patterns and algorithms take turns, so that the first cells cover all of them."""
    random = Random(f"grid {number}")
    long = random.random() < LONG_SHARE
    share = SHARE_MIN * (SHARE_MAX / SHARE_MIN) ** random.random()
    return GridCell(
        number=number,
        held_out=Random(f"held out {number}").random() < HELD_OUT_SHARE,
        pattern=PATTERNS[number % len(PATTERNS)],
        algorithm=ALGORITHMS[number % len(ALGORITHMS)],
        nodes=random.choice(NODES),
        quota=random.choice(list(WINDOWS_OF)),
        window_s=LONG_WINDOW_S if long else WINDOW_S,
        sync_interval_ns=LONG_INTERVAL_NS if long else int(share * WINDOW_S * SECOND_NS),
        demand=random.choice(DEMANDS),
    )


def chosen(count: int, *, held_out: bool) -> list[GridCell]:
    """Returns the first `count` cells of the grid; leaves out held-out cells unless `held_out`."""
    return [cell for cell in map(draw_cell, range(count)) if held_out or not cell.held_out]


@dataclass(frozen=True, slots=True)
class GridTask:
    """A cell to simulate, and whether to simulate it with requests that ask the hub, too."""

    cell: GridCell
    policy: Policy
    asks: AskSettings | None


def tried(task: GridTask) -> CellOutcome:
    """Simulates a cell with nodes that decide from memory; if the task has `asks`, also with requests that ask the hub.

    Returns the figures of each.
    """
    arrivals = task.cell.experiment().arrivals(task.cell.number)
    ways = {FROM_MEMORY: None} if task.asks is None else {FROM_MEMORY: None, ASKING: task.asks}
    return CellOutcome(task.cell, {way: _tried(task, asks, arrivals) for way, asks in ways.items()})


def _tried(task: GridTask, asks: AskSettings | None, arrivals: Sequence[SimulatedArrival]) -> CellFigures:
    cell, experiment = task.cell, task.cell.experiment(asks)
    run = run_once(experiment, task.policy, arrivals, seed=cell.number)
    offered = cell.quota * (experiment.windows - experiment.warmup)
    missing = max(0, run.ideal - (run.admitted - run.exceeding))
    return CellFigures(summed_up([run]), round(PERCENT * missing / offered, 3))


Row = Sequence[str]
Before = dict[int, dict[str, CellFigures]]
"""The figures of cells at another commit: by the number of the cell, then by way of deciding."""


def page(outcomes: Sequence[CellOutcome], before: Before) -> str:
    """Returns the figures in Markdown, with a chapter for each way of deciding.

    `before` has figures of another commit to compare with. Each chapter has tables by size and algorithm, by pattern,
    and of the worst cells.
    """
    lines = [
        "refused: falsely, over the whole run, in % of what one central limiter admits; of L: in % of the limit, as a",
        "mean; over: above the limit, in % of it, at worst; messages: by node and window, and times those from memory",
        "as a mean of the group and for the dearest cell; asked: of all requests, in %; waited: in ms, at longest.",
    ]
    for way in (FROM_MEMORY, ASKING):
        of_way = [each for each in outcomes if way in each.found]
        if of_way:
            lines += ["", *_chapter(way, of_way, before)]
    return "\n".join(lines)


def _chapter(way: str, outcomes: Sequence[CellOutcome], before: Before) -> Iterable[str]:
    heads = [way, "cells", "refused mean", "max", "of L", "over max", "messages"]
    heads += ["times", "at most", "asked", "waited"] if way == ASKING else []
    heads += ["refused before", "messages before"] if before else []
    yield from _table(heads, [_row(way, name, group, before) for name, group in _groups(outcomes)])
    yield from ("", "The cells that refuse most:", "")
    for each in sorted(outcomes, key=lambda each: -each.found[way].figures.falsely_refused_pct)[:WORST_SHOWN]:
        yield f"- {each.cell}: {each.found[way].figures.falsely_refused_pct:.2f} %"


def _groups(outcomes: Sequence[CellOutcome]) -> Iterable[tuple[str, list[CellOutcome]]]:
    """Returns the groups of cells that have a row in the tables, each with its title: by size, algorithm, pattern."""
    groups: defaultdict[str, list[CellOutcome]] = defaultdict(list)
    for each in outcomes:
        size = SIZES[each.cell.quota > SMALL_MAX]
        for name in (ALL, size, f"{size}, {each.cell.algorithm}", each.cell.pattern):
            groups[name].append(each)
    of_sizes = [f"{size}, {algorithm}" for size in SIZES for algorithm in ALGORITHMS]
    return ((name, groups[name]) for name in (ALL, *SIZES, *of_sizes, *PATTERNS) if name in groups)


def _row(way: str, name: str, group: Sequence[CellOutcome], before: Before) -> Row:
    found = [each.found[way] for each in group]
    figures = [each.figures for each in found]
    messages = fmean(each.messages_per_node_window for each in figures)
    row = [
        name,
        str(len(group)),
        f"{fmean(each.falsely_refused_pct for each in figures):.2f}",
        f"{max(each.falsely_refused_pct for each in figures):.1f}",
        f"{fmean(each.of_limit_pct for each in found):.2f}",
        f"{max(each.over_max_pct for each in figures):.2f}",
        f"{messages:.1f}",
    ]
    if way == ASKING:
        unasked = [each.found[FROM_MEMORY].figures.messages_per_node_window for each in group]
        times = [
            of_one.messages_per_node_window / max(1e-9, then) for of_one, then in zip(figures, unasked, strict=True)
        ]
        row += [f"{messages / max(1e-9, fmean(unasked)):.2f}", f"{max(times):.2f}"]
        row += [
            f"{fmean(each.asked_pct for each in figures):.1f}",
            f"{max(each.waited_max_ms for each in figures):.1f}",
        ]
    if before:
        then = [known[way].figures for each in group if way in (known := before.get(each.cell.number, {}))]
        row += [f"{fmean(each.falsely_refused_pct for each in then):.2f}" if then else "-"]
        row += [f"{fmean(each.messages_per_node_window for each in then):.1f}" if then else "-"]
    return row


def _table(heads: Row, rows: Iterable[Row]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def as_json(outcomes: Sequence[CellOutcome], made_at: str) -> dict[str, object]:
    """Returns the figures of all cells, and the commit `made_at` of the code that reached them."""
    return {"commit": made_at, "cells": [asdict(each) for each in outcomes]}


def read_before(path: Path) -> Before:
    """Returns the figures in a file that an earlier run with `--json` has written."""
    said = json.loads(path.read_text())
    return {
        each["cell"]["number"]: {
            way: CellFigures(Figures(**found["figures"]), found["of_limit_pct"]) for way, found in each["found"].items()
        }
        for each in said["cells"]
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the page of figures. Returns the exit status: 1 if a bound was broken."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.studies.grid", description=__doc__)
    parser.add_argument("--cells", type=int, default=CELLS, help="how many cells are drawn (default: %(default)s)")
    parser.add_argument(
        "--held-out", action="store_true", help="also simulate cells that are held out until constants are fixed"
    )
    parser.add_argument("--policy", choices=sorted(POLICIES), default=STRICT.name)
    parser.add_argument("--within-ms", type=int, default=WITHIN_MS, help="how long a request asks; 0: only from memory")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every cell there")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="figures of another commit, to be shown beside")
    options = parser.parse_args(arguments)
    made_at = commit_of()
    before = {} if options.beside is None else read_before(options.beside)
    asks = AskSettings(options.within_ms * MILLISECOND_NS) if options.within_ms else None
    cells = chosen(options.cells, held_out=options.held_out)
    tasks = [GridTask(cell, POLICIES[options.policy], asks) for cell in cells]
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    outcomes = list(mapped(tried, tasks, processes=options.processes))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(outcomes, made_at), indent=1))
    print(page(outcomes, before))
    broken = sum(found.figures.bound_violations for each in outcomes for found in each.found.values())
    took_s = (clock.monotonic_ns() - began_ns) / SECOND_NS
    print(f"{len(tasks)} cells of {made_at or 'no clone'}, {broken} bounds broken, {took_s:.0f} s", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
