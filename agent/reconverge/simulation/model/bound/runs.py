"""Binds many runs to the model, and prints what was accepted: `python -m reconverge.simulation.model --bind`."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.simulation.cases import LIVENESS, SAFETY, draw_case
from reconverge.simulation.explore.events import COARSE, FINE, Exploration
from reconverge.simulation.model.bound.worlds import BoundRun, bound_seed, bound_walk
from reconverge.simulation.studies.experiment import PROCESSES, mapped

KINDS: Final = ("fixed", "log", "slices", "slots")
"""The kinds of explored limits that the model has."""
POLICIES: Final = ("strict", "strict at nodes", "balanced", "balanced at nodes")
WALK_STEPS: Final = 40
SLOTS_WINDOW_S: Final = 3.0
"""The lease of slots is that of the nodes: the model has no limit with a lease of its own."""
WALK: Final = "walk"
"""A random walk through a small world."""
BOUND_MODES: Final = (WALK, SAFETY, LIVENESS)


class BoundTask(NamedTuple):
    """A run: a walk through a small world, or a seed of the fuzz in one of its modes."""

    seed: int
    mode: str

    def __str__(self) -> str:
        return f"--mode {self.mode} --start {self.seed} --runs 1"


def exploration_of(seed: int) -> Exploration:
    """Returns the case through which the walk of a seed goes: all cases in turn."""
    kind, rest = KINDS[seed % len(KINDS)], seed // len(KINDS)
    policy, rest = POLICIES[rest % len(POLICIES)], rest // len(POLICIES)
    grain, asking = (FINE, COARSE)[rest % 2], rest // 2 % 2 == 1
    window_s = SLOTS_WINDOW_S if kind == "slots" else 2.0
    return Exploration(kind, 4 + rest // 4 % 3, policy, asking, grain, 2 + rest // 12 % 2, window_s)


def tried(task: BoundTask) -> tuple[BoundTask, BoundRun]:
    """Makes a run."""
    if task.mode != WALK:
        return task, bound_seed(task.seed, task.mode)[1]
    case = exploration_of(task.seed)
    names, run = bound_walk(case, task.seed, WALK_STEPS)
    if run.rejected:
        run.rejected = f"{case}: {', '.join(names)}\n{run.rejected}"
    return task, run


def bind(*, start: int, runs: int, modes: tuple[str, ...] = BOUND_MODES, processes: int = PROCESSES) -> int:
    """Makes so many runs of each mode, and prints what was accepted. Returns how many were rejected."""
    os.environ["RECONVERGE_NO_EXTENSIONS"] = "1"  # of the workers, which look into the kernel's objects
    tasks = [BoundTask(seed, mode) for mode in modes for seed in range(start, start + runs)]
    accepted, outside, rejected, covered = Counter[str](), Counter[str](), 0, 0
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    for task, run in mapped(tried, tasks, processes=processes, chunk=4, apart=True):
        accepted += run.accepted
        covered += run.covered
        outside[run.outside] += bool(run.outside)
        if run.rejected:
            rejected += 1
            case = f"\n{draw_case(task.mode, task.seed)}" if task.mode != WALK else ""
            print(f"python -m reconverge.simulation.model --bind {task}{case}\n{run.rejected}\n", flush=True)
    took_s = (clock.monotonic_ns() - began_ns) / SECOND_NS
    print(f"{'accepted':>10} step")
    for action, times in accepted.most_common():
        print(f"{times:10,} {action}")
    for assumption, times in outside.items():
        if assumption:
            print(f"{times:,} runs were followed until something that the proof assumes not to happen: {assumption}")
    steps = accepted.total()
    print(
        f"{covered:,} of {len(tasks):,} runs are of limits that the model has; {rejected:,} were rejected; "
        f"{steps:,} steps, {steps / took_s:,.0f} a second, {took_s:,.0f} s"
    )
    return rejected
