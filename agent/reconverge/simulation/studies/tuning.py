"""Computes the sync interval and the policy that keep a bound, and their cost, by simulating a user's deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.kernel import ASKS_MAX
from reconverge.limit.limit import Limit
from reconverge.policies import Policy
from reconverge.settings import EXCHANGES_MIN
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.studies.capacity import ExchangeRate, cold_reports, load
from reconverge.simulation.studies.experiment import Experiment, ExperimentRun, run_all
from reconverge.simulation.studies.figures import RunFigures, summed_up
from reconverge.simulation.truth import declared_bound

INTERVAL_SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sync intervals to simulate, as fractions of the window."""
INTERVAL_MIN_NS: Final = 10 * MILLISECOND_NS
INTERVAL_MAX_NS: Final = 100 * SECOND_NS
"""The longest sync interval to simulate: a sixth of the longest lease that an agent chooses, as a node exchanges at
least that often."""
WINDOW_INTERVALS_MAX: Final = 100
"""The highest number of sync intervals in a simulated window; with more of them the figures only get better."""
PATTERNS: Final = ("uniform", "flash", "onoff", "surge")
"""The patterns of traffic to simulate: steady traffic, a crowd at every window's start, nodes that come and go, and ten
times the traffic all at once."""
WINDOWS: Final = 6
WARMUP: Final = 2
QUOTA_SIMULATED_MAX: Final = 2_000
"""The largest quota that is simulated, also in place of larger ones: the figures of these, in percent, are still
smaller."""
REFUSED_ABOVE_LEAST_PCT: Final = 2.0
REFUSED_ALIKE_PCT: Final = 0.5
"""The difference in false refusals, in percentage points, up to which two options count as equal."""
EARLY_CELLS_MAX: Final = 9
"""The most reports in an exchange ahead of time: of the key that causes it, and of at most eight other keys."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A user's fleet in numbers: its limit, its nodes and keys, and its traffic."""

    nodes: int
    limit: Limit
    demand: float
    """The requested cost for a hot key, as a multiple of the limit."""
    round_trip_ns: int = 2 * MILLISECOND_NS
    hot_keys: int = 1
    """The number of keys that are busy at the same time."""
    cold_keys: int = 0
    """The number of further keys on each node, each with one request in a window."""
    asks_within_ns: int = 0
    """The longest wait of a request in doubt for the hub's answer, in nanoseconds; 0 if nodes decide from memory."""

    def __post_init__(self) -> None:
        Traffic(PATTERNS[0], self.demand)  # raises InvalidSetting for an impossible demand
        if self.hot_keys < 1:
            raise InvalidSetting("hot_keys", self.hot_keys, "must be at least 1")
        if self.cold_keys < 0:
            raise InvalidSetting("cold_keys", self.cold_keys, "must be at least 0")


@dataclass(frozen=True, slots=True)
class Option:
    """One policy at one sync interval: its worst figures over all patterns, and its cost."""

    policy: str
    sync_interval_s: float
    over_mean_pct: float
    over_max_pct: float
    bound_pct: float
    """The declared bound, in % of the limit."""
    falsely_refused_pct: float
    """The cost that the fleet falsely refuses, in % of a central limiter's, in the pattern with the most."""
    messages_per_s: float
    """Batches per second of all nodes, in the busiest pattern; with several hot keys at most this many."""
    hub_cpu_pct: float
    """CPU time of the Redis in % of one core, for all keys of the deployment."""
    hub_in_bytes_per_s: float
    """Bytes per second from all nodes to the Redis."""
    hub_out_bytes_per_s: float
    """Bytes per second from the Redis to all nodes."""
    hub_memory_bytes: float
    """Memory of the Redis for all keys, in bytes."""
    hubs: int
    """The number of Redis servers among which to divide the keys."""
    asked_pct: float = 0.0
    """The requests for a hot key that wait for the hub's answer, in % of all, in the pattern with the most."""
    waited_p99_ms: float = 0.0
    """The 99th percentile, in milliseconds, of the waits of requests that asked the hub."""


def intervals_ns(limit: Limit) -> list[int]:
    """Returns the candidate sync intervals for a limit, in nanoseconds."""
    wanted = (int(limit.window_ns * share) for share in INTERVAL_SHARES)
    return sorted({min(max(INTERVAL_MIN_NS, interval_ns), INTERVAL_MAX_NS) for interval_ns in wanted})


def trials(deployment: Deployment, policies: Sequence[Policy], seeds: Sequence[int]) -> list[ExperimentRun]:
    """Returns all runs to simulate: one for each interval, policy, pattern and seed."""
    return [
        ExperimentRun(_experiment(deployment, pattern, interval_ns), policy, seed)
        for interval_ns in intervals_ns(deployment.limit)
        for policy in policies
        for pattern in PATTERNS
        for seed in seeds
    ]


def weigh(
    deployment: Deployment,
    policies: Sequence[Policy],
    *,
    seeds: Sequence[int],
    processes: int = 1,
    watch: Callable[[], None] = lambda: None,
) -> list[Option]:
    """Simulates `deployment` under each policy at each candidate sync interval. Returns one option for each such pair.

    Calls `watch` after each run.
    """
    runs = iter(run_all(trials(deployment, policies, seeds), processes=processes, watch=watch))
    return [
        _option(deployment, policy, interval_ns, [list(islice(runs, len(seeds))) for _ in PATTERNS])
        for interval_ns in intervals_ns(deployment.limit)
        for policy in policies
    ]


def often_enough(options: Sequence[Option], limit: Limit) -> Sequence[Option]:
    """Returns the options with a sync interval so short that an agent gives no warning; all options if none is."""
    longest_s = limit.window / EXCHANGES_MIN
    return [option for option in options if option.sync_interval_s <= longest_s] or options


def best(options: Iterable[Option], *, over_pct: float, refused_pct: float | None = None) -> Option | None:
    """Returns the option with the longest sync interval among those within both bounds; None if there is none.

    An option is within them if the simulated fleet exceeded the limit by at most `over_pct` and falsely refused at most
    `refused_pct`; if that is None, at most two percentage points more than the option that refuses least. If several
    policies are left, returns the one that refuses least; among those that refuse about equally little, the one with
    the lowest declared bound.
    """
    within = [option for option in options if option.over_max_pct <= over_pct]
    if refused_pct is None:
        refused_pct = min((option.falsely_refused_pct for option in within), default=0.0) + REFUSED_ABOVE_LEAST_PCT
    good = [option for option in within if option.falsely_refused_pct <= refused_pct]
    longest_s = max((option.sync_interval_s for option in good), default=0.0)
    longest = [option for option in good if option.sync_interval_s == longest_s]
    alike_pct = min((option.falsely_refused_pct for option in longest), default=0.0) + REFUSED_ALIKE_PCT
    alike = [option for option in longest if option.falsely_refused_pct <= alike_pct]
    return min(alike, key=lambda option: (option.bound_pct, option.falsely_refused_pct), default=None)


def nearest(options: Iterable[Option], *, over_pct: float) -> Option | None:
    """Returns the option that refuses least, of those over the limit by at most `over_pct`; None if there is none."""
    within = (option for option in options if option.over_max_pct <= over_pct)
    return min(within, key=lambda option: (option.falsely_refused_pct, -option.sync_interval_s), default=None)


def simulated(limit: Limit, interval_ns: int) -> Limit:
    """Returns the limit to simulate: `limit`, or one of the same kind that is smaller, so that it takes less time."""
    window_ns = min(limit.window_ns, WINDOW_INTERVALS_MAX * interval_ns)
    quota = min(limit.quota, QUOTA_SIMULATED_MAX)
    burst = None if limit.burst is None else max(1, limit.burst * quota // limit.quota)
    return replace(limit.over(window_ns / SECOND_NS), quota=quota, burst=burst)


def _experiment(deployment: Deployment, pattern: str, interval_ns: int) -> Experiment:
    limit = simulated(deployment.limit, interval_ns)
    asks = AskSettings(deployment.asks_within_ns) if deployment.asks_within_ns else None
    fleet = Fleet(deployment.nodes, limit, interval_ns, deployment.round_trip_ns, asks=asks)
    return Experiment(fleet, Traffic(pattern, deployment.demand), WINDOWS, WARMUP)


def _option(deployment: Deployment, policy: Policy, interval_ns: int, runs: Iterable[list[RunFigures]]) -> Option:
    figures = [summed_up(of_pattern) for of_pattern in runs]
    limit = deployment.limit
    busiest = max(each.messages_per_node_window for each in figures)
    pace = _pace(deployment, interval_ns, busiest)
    costs = load(pace, nodes=deployment.nodes, hot_keys=deployment.hot_keys, cold_keys=deployment.cold_keys)
    return Option(
        policy=policy.name,
        sync_interval_s=interval_ns / SECOND_NS,
        over_mean_pct=max(each.over_mean_pct for each in figures),
        over_max_pct=max(each.over_max_pct for each in figures),
        bound_pct=round(100 * declared_bound(limit, policy, deployment.nodes, 1) / limit.capacity, 3),
        falsely_refused_pct=max(each.falsely_refused_pct for each in figures),
        messages_per_s=round(pace.batches, 2),
        hub_cpu_pct=round(costs.hub_cpu_pct, 3),
        hub_in_bytes_per_s=round(costs.in_bytes_per_s),
        hub_out_bytes_per_s=round(costs.out_bytes_per_s),
        hub_memory_bytes=round(costs.hub_memory_bytes),
        hubs=costs.hubs,
        asked_pct=max(each.asked_pct for each in figures),
        waited_p99_ms=max(each.waited_p99_ms for each in figures),
    )


def _pace(deployment: Deployment, interval_ns: int, messages: float) -> ExchangeRate:
    """Returns how often a fleet exchanges; a node with a single key sends `messages` batches in a window.

    Regular exchanges report all keys. Exchanges ahead of time are caused by each key, as often as the shortest interval
    allows. Exchanges for requests in doubt follow each other at the pace of the round trip, as one batch at a time is
    under way; and each request for a cold key may cause one.
    """
    fleet = _experiment(deployment, PATTERNS[0], interval_ns).fleet
    window, keys = fleet.limit.window, deployment.hot_keys
    regular = min(messages, window * SECOND_NS / fleet.sync_interval_ns)
    soonest_ns = max(fleet.round_trip_ns, SECOND_NS // ASKS_MAX) if fleet.asks else fleet.shortest_interval_ns
    early_max = window * SECOND_NS / soonest_ns - regular
    early = min(keys * (messages - regular), max(early_max, messages - regular))
    # Cold keys are reported together with hot ones, as often as the real window says.
    cold = deployment.cold_keys * cold_reports(deployment.limit.window_ns, interval_ns) / deployment.limit.window
    due = keys + cold * fleet.sync_interval_ns / SECOND_NS
    batches = regular * ceil(due / CELLS_MAX) + early
    cells = regular * keys + early * min(keys, EARLY_CELLS_MAX)
    asked = min(deployment.cold_keys / deployment.limit.window, SECOND_NS / soonest_ns) if fleet.asks else 0.0
    return ExchangeRate((batches / window + asked) * fleet.nodes, (cells / window + cold + asked) * fleet.nodes)
