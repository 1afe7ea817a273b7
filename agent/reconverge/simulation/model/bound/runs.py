"""Checks many runs of the code against the model, and prints the accepted steps: `... simulation.model --bind`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.simulation.cases import LIVENESS, SAFETY, Case, draw_case
from reconverge.simulation.explore.events import COARSE, FINE, Exploration
from reconverge.simulation.model.bound.small_cases import SMALL, draw_small_case
from reconverge.simulation.model.bound.worlds import BoundRun, bound_case, bound_walk
from reconverge.simulation.reckless import SilenceCount, reckless_if
from reconverge.simulation.studies.experiment import PROCESSES, mapped

KINDS: Final = ("fixed", "log", "slices", "slots")
"""The kinds of explored limits that the proof's model covers."""
POLICIES: Final = ("strict", "strict at nodes", "balanced", "balanced at nodes")
WALK_STEPS: Final = 40
SLOTS_WINDOW_S: Final = 3.0
"""The window of slots in seconds, equal to the nodes' lease, as the model has no limit with a lease of its own."""
PROGRESS_RUNS: Final = 500
WALK: Final = "walk"
"""The mode of a run that is a random walk through a small world."""
BOUND_MODES: Final = (WALK, SMALL, SAFETY, LIVENESS)


class BoundTask(NamedTuple):
    """A run to be checked, by its mode (a walk through a small world, or a mode of the fuzz) and its seed."""

    seed: int
    mode: str
    reckless: bool = False
    """Whether nodes leave far more charges unreported than in production, see `simulation/reckless.py`."""

    def __str__(self) -> str:
        return f"--mode {self.mode} --start {self.seed} --runs 1" + " --reckless" * self.reckless

    def case(self) -> Case:
        """Draws the case of this task's seed; only for a mode of the fuzz."""
        return draw_small_case(self.seed) if self.mode == SMALL else draw_case(self.mode, self.seed)


def exploration_of(seed: int) -> Exploration:
    """Returns the case for the walk of `seed`; successive seeds go through all cases in turn."""
    kind, rest = KINDS[seed % len(KINDS)], seed // len(KINDS)
    policy, rest = POLICIES[rest % len(POLICIES)], rest // len(POLICIES)
    grain, asking = (FINE, COARSE)[rest % 2], rest // 2 % 2 == 1
    window_s = SLOTS_WINDOW_S if kind == "slots" else 2.0
    return Exploration(kind, 4 + rest // 4 % 3, policy, asking, grain, 2 + rest // 12 % 2, window_s)


def tried(task: BoundTask) -> tuple[BoundTask, BoundRun]:
    """Returns the task and the outcome of its run."""
    with reckless_if(wanted=task.reckless) as silences:
        task, run = _tried(task)
    run.silences = silences
    return task, run


def _tried(task: BoundTask) -> tuple[BoundTask, BoundRun]:
    if task.mode != WALK:
        return task, bound_case(task.case())
    case = exploration_of(task.seed)
    names, run = bound_walk(case, task.seed, WALK_STEPS)
    if run.rejected:
        run.rejected = f"{case}: {', '.join(names)}\n{run.rejected}"
    return task, run


@dataclass
class BoundTally:
    """The sums over all runs so far."""

    runs: int = 0
    covered: int = 0
    rejected: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """By action, the number of runs in which it happened."""
    outside: Counter[str] = field(default_factory=Counter)
    silences: SilenceCount = field(default_factory=SilenceCount)

    def add(self, run: BoundRun) -> None:
        """Adds the outcome of a run to the sums."""
        self.runs += 1
        self.covered += run.covered
        self.rejected += bool(run.rejected)
        self.steps += run.accepted
        self.met += Counter(dict.fromkeys(run.accepted, 1))
        self.outside[run.outside] += bool(run.outside)
        self.silences.add(run.silences)

    def __str__(self) -> str:
        return (
            f"{self.covered:,} of {self.runs:,} runs are of limits that the model covers; "
            f"{self.rejected:,} were rejected; {self.steps.total():,} steps"
        )

    def lines(self) -> Iterator[str]:
        """Yields the sums, a table of the steps, and the reasons why some runs were not followed to their ends."""
        yield f"{self}."
        yield ""
        yield "| step | accepted | in runs |"
        yield "|---|---|---|"
        for action, times in self.steps.most_common():
            yield f"| {action} | {times:,} | {self.met[action]:,} |"
        yield ""
        for assumption, times in self.outside.items():
            if assumption:
                yield f"{times:,} runs were followed until this assumption of the proof failed: {assumption}."
        if self.silences.answers:
            yield f"With absurd constants of silence: {self.silences}."


def bind(
    *,
    start: int,
    runs: int,
    modes: tuple[str, ...] = BOUND_MODES,
    processes: int = PROCESSES,
    page: Path | None = None,
    reckless: bool = False,
) -> int:
    """Makes `runs` runs of each mode, prints the accepted steps, and returns how many runs the model rejected.

    If `reckless`, silence has absurd constants in all of them.
    """
    os.environ["RECONVERGE_NO_EXTENSIONS"] = "1"  # for workers: they read fields that the compiled kernel hides
    tasks = [BoundTask(seed, mode, reckless) for seed in range(start, start + runs) for mode in modes]
    chosen = " ".join(f"--mode {mode}" for mode in modes)
    command = f"python -m reconverge.simulation.model --bind {chosen} --start {start} --runs {runs}"
    command += " --reckless" * reckless
    tally, clock = BoundTally(), SystemClock()
    began_ns = clock.monotonic_ns()
    for task, run in mapped(tried, tasks, processes=processes, chunk=4, apart=True):
        tally.add(run)
        if run.rejected:
            case = f"\n{task.case()}" if task.mode != WALK else ""
            print(f"python -m reconverge.simulation.model --bind {task}{case}\n{run.rejected}\n", flush=True)
        if tally.runs % PROGRESS_RUNS == 0 or tally.runs == len(tasks):
            print(f"{tally}, {(clock.monotonic_ns() - began_ns) / SECOND_NS:,.0f} s", flush=True)
            if page is not None:
                lines = ["# Steps bound to the model", "", f"    $ {command}", "", *tally.lines(), ""]
                page.write_text("\n".join(lines))
    print(*tally.lines(), sep="\n")
    return tally.rejected
