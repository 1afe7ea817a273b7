"""Simulates a fleet under several policies with the same traffic and faults, over many seeds on several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple, TypeVar

from reconverge.policies import Policy
from reconverge.runtime.process import nothing_from_the_working_directory, started_before_the_end
from reconverge.simulation.fault import Fault, restarts
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival, Traffic
from reconverge.simulation.studies.figures import Figures, RunFigures, judge_run, summed_up
from reconverge.simulation.truth import DecidedRequest
from reconverge.simulation.world import World

Task = TypeVar("Task")
Result = TypeVar("Result")

PROCESSES: Final = multiprocessing.cpu_count()
"""The default number of processes: one for each core."""


def mapped(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, processes: int, chunk: int = 1, apart: bool = False
) -> Iterator[Result]:
    """Yields `function(task)` for each of `tasks`, in their order, computed by `processes` processes.

    With one process, the calling process computes them, unless they have to run `apart` from it.
    """
    count = min(processes, len(tasks))
    if count <= 1 and not apart:
        yield from map(function, tasks)
        return
    # Spawned, so that no worker inherits threads or connections.
    with started_before_the_end(), nothing_from_the_working_directory():
        started = multiprocessing.get_context("spawn").Pool(max(1, count), initializer=_leave_interrupts_to_the_parent)
    with started as pool:
        yield from pool.imap(function, tasks, chunksize=chunk)


def _leave_interrupts_to_the_parent() -> None:
    """Makes a worker process ignore Ctrl-C: its parent ends the workers, and reports the interrupt once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A simulation to run: fleet, traffic and length; faults are texts for `Fault.parse`."""

    fleet: Fleet
    traffic: Traffic | tuple[SimulatedArrival, ...]
    """A pattern of traffic, or recorded requests."""
    windows: int
    warmup: int = 2
    faults: Sequence[str] = ()
    judged: int = 0
    """The index of the limit's quota by which the run is judged."""

    @property
    def judged_windows(self) -> int:
        """Returns how many windows the judged quota has in the run; the last may be cut short."""
        return self._in_judged(self.windows)

    @property
    def judged_warmup(self) -> int:
        """Returns how many windows of the judged quota belong to the warm-up, which the figures leave out."""
        return min(self._in_judged(self.warmup), self.judged_windows - 1) if self.judged else self.warmup

    def _in_judged(self, windows: int) -> int:
        limits = list(self.fleet.quotas.values())
        return -(-windows * limits[0].window_ns // limits[self.judged].window_ns)

    def arrivals(self, seed: int) -> Sequence[SimulatedArrival]:
        """Returns all requests of the run with this seed."""
        if isinstance(self.traffic, tuple):
            return self.traffic
        limit = self.fleet.limit
        return self.traffic.arrivals(
            nodes=self.fleet.nodes, quota=limit.quota, window_ns=limit.window_ns, windows=self.windows, seed=seed
        )

    def faults_of(self, seed: int) -> list[Fault]:
        """Returns the faults of the run with this seed; seeds differ only in the nodes that the faults concern."""
        random = Random(f"faults {seed}")
        window_ns = self.fleet.limit.window_ns
        return [Fault.parse(text, nodes=self.fleet.nodes, window_ns=window_ns, random=random) for text in self.faults]


class ExperimentRun(NamedTuple):
    """One run of an experiment, with one policy and one seed."""

    experiment: Experiment
    policy: Policy
    seed: int


def run_once(experiment: Experiment, policy: Policy, arrivals: Sequence[SimulatedArrival], *, seed: int) -> RunFigures:
    """Simulates the experiment under `policy`, and returns the figures of that run."""
    return run_with_decisions(experiment, policy, arrivals, seed=seed)[0]


def run_with_decisions(
    experiment: Experiment, policy: Policy, arrivals: Sequence[SimulatedArrival], *, seed: int
) -> tuple[RunFigures, list[DecidedRequest]]:
    """Simulates as `run_once`; returns the figures, and the decisions by the quota that the run is judged by."""
    fleet = experiment.fleet
    faults = experiment.faults_of(seed)
    world = World(fleet, policy, faults, seed=seed)
    history = world.run(arrivals, until_ns=experiment.windows * fleet.limit.window_ns)
    decided = history.by_quota[experiment.judged]
    others = list(fleet.quotas.values())
    judged = others.pop(experiment.judged)
    figures = judge_run(
        judged,
        policy,
        decided,
        history.messages,
        nodes=fleet.nodes,
        restarts=restarts(faults),
        windows=experiment.judged_windows,
        warmup=experiment.judged_warmup,
        begin_ns=world.begin_ns,
        hub_windows=history.hub_windows if experiment.judged == 0 else None,
        waited_for_ns=history.waited_for_ns,
        others=others,
        parts=1 + len(fleet.shares),
    )
    return replace(figures, reports=sum(world.reports[experiment.warmup : experiment.windows])), decided


def run_all(
    trials: Sequence[ExperimentRun], *, processes: int = 1, watch: Callable[[], None] = lambda: None
) -> list[RunFigures]:
    """Returns the figures of each run, in the order of `trials`; calls `watch` after each run."""
    found = []
    for figures in mapped(_run_trial, trials, processes=processes):
        found.append(figures)
        watch()
    return found


def run(
    experiment: Experiment,
    policies: Sequence[Policy],
    seeds: Sequence[int],
    *,
    processes: int = 1,
    watch: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Figures], dict[str, list[RunFigures]]]:
    """Returns the figures of each policy over all seeds, and of each of its runs; calls `watch` after each run."""
    trials = [ExperimentRun(experiment, policy, seed) for seed in seeds for policy in policies]
    runs: dict[str, list[RunFigures]] = {policy.name: [] for policy in policies}
    for trial, figures in zip(trials, run_all(trials, processes=processes, watch=watch), strict=True):
        runs[trial.policy.name].append(figures)
    return {name: summed_up(each) for name, each in runs.items()}, runs


def _run_trial(trial: ExperimentRun) -> RunFigures:
    experiment, policy, seed = trial
    return run_once(experiment, policy, experiment.arrivals(seed), seed=seed)
