"""Simulates a fleet under several policies with the same traffic and the same faults, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from reconverge.policies import Policy
from reconverge.simulation.fault import Fault
from reconverge.simulation.figures import Figures, RunFigures, judge_run, summed_up
from reconverge.simulation.pattern import Arrival, Traffic
from reconverge.simulation.world import Fleet, World


@dataclass(frozen=True, slots=True)
class Experiment:
    """What to simulate. Faults are written as `fault.py` reads them."""

    fleet: Fleet
    traffic: Traffic | tuple[Arrival, ...]
    """A pattern, or requests of one's own."""
    windows: int
    warmup: int = 2
    faults: Sequence[str] = ()

    def arrivals(self, seed: int) -> Sequence[Arrival]:
        """The requests of one seed."""
        if isinstance(self.traffic, tuple):
            return self.traffic
        limit = self.fleet.limit
        return self.traffic.arrivals(
            nodes=self.fleet.nodes, quota=limit.quota, window_ns=limit.window_ns, windows=self.windows, seed=seed
        )

    def faults_of(self, seed: int) -> list[Fault]:
        """The faults of one seed: the same kinds at the same times, on nodes that are drawn."""
        random = Random(f"faults {seed}")
        window_ns = self.fleet.limit.window_ns
        return [Fault.parse(text, nodes=self.fleet.nodes, window_ns=window_ns, random=random) for text in self.faults]


def run_once(experiment: Experiment, policy: Policy, arrivals: Sequence[Arrival], *, seed: int) -> RunFigures:
    """One policy with one seed."""
    fleet = experiment.fleet
    world = World(fleet, policy, experiment.faults_of(seed), seed=seed)
    history = world.run(arrivals, until_ns=experiment.windows * fleet.limit.window_ns)
    return judge_run(
        fleet.limit,
        policy,
        history.decided,
        history.messages,
        nodes=fleet.nodes,
        windows=experiment.windows,
        warmup=experiment.warmup,
        begin_ns=world.begin_ns,
    )


def run(
    experiment: Experiment,
    policies: Sequence[Policy],
    seeds: Sequence[int],
    *,
    watch: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Figures], dict[str, list[RunFigures]]]:
    """The figures of every policy over all seeds, and of every run; `watch` is called after each run."""
    runs: dict[str, list[RunFigures]] = {policy.name: [] for policy in policies}
    for seed in seeds:
        arrivals = experiment.arrivals(seed)
        for policy in policies:
            runs[policy.name].append(run_once(experiment, policy, arrivals, seed=seed))
            watch()
    return {name: summed_up(each) for name, each in runs.items()}, runs
