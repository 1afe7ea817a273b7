"""Which sync interval and policy keep a bound at which cost: simulated from a deployment's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import Policy
from reconverge.simulation.experiment import Experiment, run
from reconverge.simulation.figures import Figures
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.world import Fleet

INTERVAL_SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sync intervals that are tried, as shares of the window."""
INTERVAL_MIN_NS: Final = 10 * MILLISECOND_NS
PATTERNS: Final = ("uniform", "flash", "onoff", "surge")
"""Steady traffic, a crowd at every window's start, nodes that come and go, and ten times the traffic all at once."""
WINDOWS: Final = 6
WARMUP: Final = 2
QUOTA_SIMULATED_MAX: Final = 2_000
"""Larger limits are simulated with this one: their figures, in percent, are smaller still."""
HUB_BATCH_US: Final = 70.0
HUB_CELL_US: Final = 17.0
"""What a batch and each cell in it cost a Redis, as `bench/exchange_cost.py` measures it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The user's own numbers."""

    nodes: int
    limit: Limit
    demand: float
    """What is asked for, as a multiple of the limit."""
    round_trip_ns: int = 2 * MILLISECOND_NS
    hot_keys: int = 1
    """How many keys are busy at the same time."""


@dataclass(frozen=True, slots=True)
class Option:
    """One policy with one sync interval: what it does at worst, over all patterns, and what it costs."""

    policy: str
    sync_interval_s: float
    over_mean_pct: float
    over_max_pct: float
    bound_pct: float
    """The declared bound."""
    under_mean_pct: float
    """False refusals: what a central limiter would have admitted, in % of the limit, in the worst pattern."""
    messages_per_s: float
    """Of the whole fleet."""
    hub_cpu_pct: float
    """Of one core of the Redis, with so many hot keys."""

    def keeps(self, *, over_pct: float, under_pct: float) -> bool:
        """Whether it stays within what is asked of it."""
        return self.over_max_pct <= over_pct and self.under_mean_pct <= under_pct


def intervals_ns(limit: Limit) -> list[int]:
    """The sync intervals worth trying for a limit."""
    return sorted({max(INTERVAL_MIN_NS, int(limit.window_ns * share)) for share in INTERVAL_SHARES})


def weigh(
    deployment: Deployment,
    policies: Iterable[Policy],
    *,
    seeds: Sequence[int],
    watch: Callable[[], None] = lambda: None,
) -> list[Option]:
    """Every policy with every interval; `watch` is called after each."""
    options = []
    for interval_ns in intervals_ns(deployment.limit):
        for policy in policies:
            options.append(_weigh_one(deployment, policy, interval_ns, seeds))
            watch()
    return options


def best(options: Iterable[Option], *, over_pct: float, under_pct: float) -> Option | None:
    """The longest interval that stays within what is asked for; of several policies the one that refuses least."""
    good = [option for option in options if option.keeps(over_pct=over_pct, under_pct=under_pct)]
    return max(good, key=lambda option: (option.sync_interval_s, -option.under_mean_pct), default=None)


def _weigh_one(deployment: Deployment, policy: Policy, interval_ns: int, seeds: Sequence[int]) -> Option:
    limit = _simulated(deployment.limit)
    fleet = Fleet(deployment.nodes, limit, interval_ns, deployment.round_trip_ns)
    figures: list[Figures] = []
    for pattern in PATTERNS:
        experiment = Experiment(fleet, Traffic(pattern, deployment.demand), WINDOWS, WARMUP)
        each, _ = run(experiment, [policy], seeds)
        figures.append(each[policy.name])
    messages = max(each.messages_per_node_window for each in figures) * deployment.nodes / limit.window
    # Keys share their batches, but each is a cell of its own in them.
    hub_us = messages * (HUB_BATCH_US + HUB_CELL_US * deployment.hot_keys)
    return Option(
        policy=policy.name,
        sync_interval_s=interval_ns / SECOND_NS,
        over_mean_pct=max(each.over_mean_pct for each in figures),
        over_max_pct=max(each.over_max_pct for each in figures),
        bound_pct=round(100 * policy.bound(deployment.limit.capacity, deployment.nodes) / deployment.limit.capacity, 3),
        under_mean_pct=max(each.under_mean_pct for each in figures),
        messages_per_s=round(messages, 2),
        hub_cpu_pct=round(hub_us / 1e6 * 100, 3),
    )


def _simulated(limit: Limit) -> Limit:
    """The limit itself, or a smaller one of the same kind."""
    if limit.quota <= QUOTA_SIMULATED_MAX:
        return limit
    burst = None if limit.burst is None else max(1, limit.burst * QUOTA_SIMULATED_MAX // limit.quota)
    return replace(limit, quota=QUOTA_SIMULATED_MAX, burst=burst)
