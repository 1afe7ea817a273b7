"""Draws the fuzz's cases from a seed: fleets, limits, traffic and faults.

Cases for which the project promises nothing are not drawn: for instance, that a hub loses its data while it alone
remembers the use of a departed node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isinf
from random import Random
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.hub.headroom import SEALED_AFTER_S
from reconverge.hub.merge_rule import ELECTED as ELECTED_RULE
from reconverge.hub.merge_rule import MergeRule, open_merge_rule
from reconverge.limit.limit import (
    ALGORITHMS,
    DATED,
    FIRST_HIT,
    FIXED_WINDOW,
    GCRA,
    METERED,
    PACED,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Limit,
)
from reconverge.policies import ADMIT, BALANCED, STRICT, Policy
from reconverge.settings import LEASE_INTERVALS_MIN, MILLION, SYNC_INTERVAL_MAX
from reconverge.simulation.asked import Plans
from reconverge.simulation.asker import draw_asks, perhaps_asks
from reconverge.simulation.changing import draw_changes
from reconverge.simulation.drawing import (
    LEASE_TIMEOUTS_MIN,
    choose_faults,
    draw_beside,
    draw_faults,
    draw_fleet,
    draw_further,
    draw_limit,
    draw_policy,
    draw_traffic,
    outlasting,
)
from reconverge.simulation.pattern import PATTERNS, Traffic
from reconverge.simulation.regions import CUT, FAULTS, KILL, Regions, wandering
from reconverge.simulation.studies.experiment import Experiment

ARRIVALS_MAX: Final = 5_000
FAULTS_MAX: Final = 4
OWN_PACE_SHARE: Final = 0.3
PLANS_SHARE: Final = 0.3
"""The fraction of cases with a single quota in which keys change between two quotas."""
JOINT_SHARE: Final = 0.05
JOINT_WITH_PLANS_SHARE: Final = 0.4
"""JOINT_SHARE is for cases without plans; this is the fraction of cases with a single quota and plans in which requests
also charge a second limit."""
WINDOWS_MAX: Final = 12
LAPSE_SHARE: Final = 0.3
DATA_LOSS_SHARE: Final = 0.25
SAFETY, LIVENESS, ELECTED, REGIONS = "safety", "liveness", "elected", "regions"
SPLIT_SHARE: Final = 0.4
SPLIT_WINDOWS: Final = 8
"""The number of windows in a case whose network splits: a leader that is cut off can do harm only after two windows,
when the other members stop waiting for it."""
ALL_FAULTS: Final = ("cut", "stall", "crash", "hand over", "restart")
FAULTS_THAT_ALL_NOTICE: Final = ("cut", "crash", "hand over", "restart")
REGION_WINDOWS: Final = 24
REGION_QUOTA_MAX: Final = 120
"""The largest quota of a case with regions. Such a case has many windows, because the loans of a dead bridge do harm
only after some windows; a small quota keeps it short."""
REGION_LAPSE_SHARE: Final = 0.6
SKEWED_SHARE: Final = 0.3
STEADY_SHARE: Final = 0.4
SUFFERING_SHARE: Final = 0.5
SKEW_MAX_NS: Final = 900 * MILLISECOND_NS
"""The largest difference between the clocks of two regions, for windows that begin by the clock."""
SCARCE_SHARE: Final = 0.4
"""The fraction of *safety* cases, and of *elected* cases without a split network, whose limit is small for its number
of nodes and whose requests ask the hub."""
AWAY_SHARE: Final = 0.3
"""The fraction of those *safety* cases in which nodes are cut off from the hub for so long that sealed shares open."""
ADMITS_SHARE: Final = 0.3
"""The fraction of *liveness* cases whose nodes admit up to the whole quota while the hub is away."""
AWAY_WINDOWS: Final = 14
AWAY_FAULTS_MAX: Final = 5
SCARCE_NODES_MAX: Final = 8
SCARCE_WINDOWS: Final = 24
SCARCE_ARRIVALS_MAX: Final = 1_200
SCARCE_FAULTS: Final = ("cut", "down", "slow", "loss", "repeat", "crash", "stop")
CHANGED_SHARE: Final = 0.3
PACED_CHANGED_SHARE: Final = 0.6
"""The fraction of the *safety* and *elected* cases with a paced limit in which the limit changes; large, as cases with
a paced limit are rare."""
CREDIT_SHARE: Final = 0.3
"""The fraction of the *safety* and *elected* cases with a smooth limit in which one request may cost a multiple of the
quota."""
CREDIT_WINDOWS: Final = 3
SETTLED_TENURES: Final = 8
"""The number of tenures (how long one claim of a leader is valid) after the last fault within which a leader surely
answers again."""


@dataclass(frozen=True, slots=True)
class Case:
    """The settings of one run of the simulation, all drawn from a seed."""

    mode: str
    seed: int
    policy: Policy
    experiment: Experiment
    make_rule: Callable[..., MergeRule] | None = None
    """Makes the hub of the run; None for a hub that is one merge rule."""
    settled_ns: int = 0
    """The simulated time, in nanoseconds, from which the hub answers again after the last fault."""

    def command(self) -> str:
        """Returns the shell command that runs this case again."""
        return f"python -m reconverge.simulation.fuzz --mode {self.mode} --start {self.seed} --seeds 1"

    def __str__(self) -> str:
        fleet, traffic = self.experiment.fleet, self.experiment.traffic
        limits = "; ".join(map(str, fleet.quotas.values()))
        return (
            f"{fleet.nodes} nodes, {limits}, {self.policy.name} (max_overshoot {self.policy.max_overshoot:g}), "
            f"interval {fleet.sync_interval_ns / SECOND_NS:g} s, round trip {fleet.round_trip_ns / SECOND_NS:g} s, "
            f"lease {(fleet.lease_ns or 0) / SECOND_NS:g} s, "
            f"the limit's own lease {(fleet.limit_lease_ns or 0) / SECOND_NS:g} s, "
            f"the limit's own interval {(fleet.own_interval_ns or 0) / SECOND_NS:g} s, "
            f"{self.experiment.windows} windows of {traffic}, {fleet.asks or 'no asks'}, {fleet.plans or 'no plans'}, "
            f"{fleet.beside or 'nothing'} beside, "
            f"changes {list(map(str, fleet.changes))}, "
            f"faults {list(self.experiment.faults)}"
        )


def draw_case(mode: str, seed: int) -> Case:
    """Draws the case of `seed` in `mode`, one of the fuzz's modes such as "safety"."""
    case = _unchanging_case(mode, seed)
    if mode not in (SAFETY, ELECTED):
        return case
    case = _with_changes(Random(f"{mode} {seed} changes"), case)
    case = _perhaps_with_plans(Random(f"{mode} {seed} plans"), case)
    return _perhaps_jointly(Random(f"{mode} {seed} jointly"), case)


def _unchanging_case(mode: str, seed: int) -> Case:
    # Scarce cases, asks and changes have generators of their own, so that they leave what else a seed draws as it was.
    random = Random(f"{mode} {seed} scarce")
    scarce = _scarce_case(random, seed) if random.random() < SCARCE_SHARE else None
    if mode == SAFETY and scarce is not None:
        away = Random(f"{mode} {seed} away")
        return _away_case(away, seed) if away.random() < AWAY_SHARE else scarce
    case = _usual_case(mode, seed) if mode != ELECTED else _elected_case(Random(f"{mode} {seed}"), seed, scarce)
    fleet = case.experiment.fleet
    if fleet.asks is not None:
        return case
    fleet = replace(fleet, asks=perhaps_asks(Random(f"{mode} {seed} asks"), fleet))
    return replace(case, experiment=replace(case.experiment, fleet=fleet))


def _usual_case(mode: str, seed: int) -> Case:
    random = Random(f"{mode} {seed}")
    if mode == REGIONS:
        return _regions_case(random, seed)
    if mode == LIVENESS:
        case = _liveness_case(random, seed)
    else:
        case = _lapse_case(random, seed) if random.random() < LAPSE_SHARE else _safety_case(random, seed)
    return _with_own_pace(Random(f"{mode} {seed} pace"), case)


def _with_own_pace(random: Random, case: Case) -> Case:
    """Returns `case`; in some cases its limit gets a sync interval of its own, shorter or longer than the fleet's."""
    fleet = case.experiment.fleet
    own_ns = int(fleet.sync_interval_ns * 10 ** random.uniform(-1, 1))
    own_ns = min(max(own_ns, 5 * MILLISECOND_NS), (fleet.lease_ns or own_ns) // LEASE_INTERVALS_MIN)
    if random.random() >= OWN_PACE_SHARE:
        return case
    return replace(case, experiment=replace(case.experiment, fleet=replace(fleet, own_interval_ns=own_ns)))


def _perhaps_with_plans(random: Random, case: Case) -> Case:
    """Returns `case`; in some cases keys change between two quotas, and nodes learn of a change at different times."""
    fleet = case.experiment.fleet
    limit = fleet.limit
    further = fleet.further or fleet.shares or fleet.changes
    # With `initial`, a new key begins without a part of its capacity: plans differ in it, so neither could judge.
    if random.random() >= PLANS_SHARE or further or limit.initial is not None:
        return case
    # A steep fall of the quota reveals allowances that were not lowered; after a small one forgotten use fits in.
    times = random.choice([random.uniform(0.1, 0.9), 10 ** random.uniform(-2.5, -0.5)])
    smaller = replace(
        limit,
        quota=max(1, int(limit.quota * times)),
        burst=None if limit.burst is None else random.randint(1, max(1, int(limit.burst * times))),
    )
    period_ns = max(1, int(limit.window_ns * 10 ** random.uniform(-1.5, 0.5)))
    plans = Plans(smaller, period_ns, int(period_ns * random.choice([0.0, 0.0, 0.0, 0.1, 0.9])))
    fleet = replace(fleet, plans=plans)
    return replace(case, experiment=replace(case.experiment, fleet=fleet))


def _perhaps_jointly(random: Random, case: Case) -> Case:
    """Returns `case`; in some cases each request also charges a second limit: more often if keys change quotas."""
    fleet = case.experiment.fleet
    share = JOINT_SHARE if fleet.plans is None else JOINT_WITH_PLANS_SHARE
    if random.random() >= share or fleet.further or fleet.shares or fleet.changes:
        return case
    fleet = replace(fleet, beside=draw_beside(random, fleet.limit))
    return replace(case, experiment=replace(case.experiment, fleet=fleet))


def _with_changes(random: Random, case: Case) -> Case:
    """Returns `case`; in some cases the limit's quota changes, or single requests for a smooth limit cost more than it.

    A limit that withholds a part of the capacity from new keys (`initial`) does not change: the judge would have to
    know which part it withheld when a request first asked about a key.
    """
    experiment, fleet = case.experiment, case.experiment.fleet
    traffic, limit = experiment.traffic, fleet.limit
    assert isinstance(traffic, Traffic)
    if limit.smooth and random.random() < CREDIT_SHARE:
        traffic = replace(traffic, cost_max=random.randint(1, CREDIT_WINDOWS * limit.quota))
    share = PACED_CHANGED_SHARE if limit.algorithm in PACED else CHANGED_SHARE
    if limit.initial is None and random.random() < share:
        most = 1 if limit.smooth else traffic.cost_max
        fleet = replace(fleet, changes=draw_changes(random, limit, experiment.windows, most))
    return replace(case, experiment=replace(experiment, fleet=fleet, traffic=traffic))


def _safety_case(random: Random, seed: int) -> Case:
    """Draws a case of the mode "safety": a fleet with any settings, any traffic and any faults."""
    nodes = random.randint(1, 16)
    policy = draw_policy(random)
    limit = draw_limit(random, random.choice([0.5, 1.0, 10.0, 60.0]), ALGORITHMS)
    interval_ns = max(5 * MILLISECOND_NS, int(limit.window_ns * 10 ** random.uniform(-2, 0)))
    interval_ns = min(interval_ns, round(SYNC_INTERVAL_MAX * SECOND_NS))
    traffic = draw_traffic(random, limit, demand=10 ** random.uniform(-0.6, 1))
    windows = max(3, min(WINDOWS_MAX, int(ARRIVALS_MAX / (traffic.demand * limit.quota))))
    lose_data = random.random() < DATA_LOSS_SHARE
    lease_ns = 6 * interval_ns * random.choice([1, 2, 5])
    if lose_data:
        lease_ns = outlasting(windows, limit.window_ns)
    fleet = replace(draw_fleet(random, nodes, limit, interval_ns, lease_ns), further=draw_further(random, limit))
    drawn = draw_faults(random, nodes, 0.0, windows)
    if seed % 2 and limit.calendar is None:
        fleet = replace(fleet, limit_lease_ns=6 * interval_ns)
    faults = choose_faults(random, drawn, (0, FAULTS_MAX), policy, windows if lose_data else None)
    return Case(SAFETY, seed, policy, Experiment(fleet, traffic, windows, 0, faults))


def _lapse_case(random: Random, seed: int) -> Case:
    """Draws a case in which leases end during a window: nodes are cut off or killed, mostly for longer than a lease."""
    nodes = random.randint(2, 8)
    policy = random.choice([STRICT, BALANCED])
    limit = draw_limit(random, 10.0, ALGORITHMS)
    interval_ns = int(limit.window_ns * random.uniform(0.01, 0.03))
    lease_ns = 6 * interval_ns
    pattern = random.choice(["uniform", "zipf", "rotating", "onoff"])
    traffic = Traffic(pattern, random.uniform(1.0, 4.0), cost_max=random.choice([1, 1, min(5, limit.capacity)]))
    windows = max(3, min(5, int(ARRIVALS_MAX / (traffic.demand * limit.quota))))
    fleet = replace(draw_fleet(random, nodes, limit, interval_ns, lease_ns), further=draw_further(random, limit))
    if seed % 2 and limit.calendar is None:
        # Then only the lease of the allowances ends, and the node keeps its name.
        fleet = replace(fleet, lease_ns=10 * lease_ns, limit_lease_ns=lease_ns)
    faults = []
    for window in range(1, windows):
        start = window + random.uniform(0, 0.3)
        length = random.uniform(0.8, 3.0) * lease_ns / limit.window_ns
        what = random.choice(["cut:{}", "cut:{}", "cut:{}:requests", "cut:{}:replies", "crash:{}", "stop:{}"])
        faults.append(f"{what.format(random.randint(1, nodes))}@{start:.3f}w+{length:.3f}w")
    return Case(SAFETY, seed, policy, Experiment(fleet, traffic, windows, 0, tuple(faults)))


def _scarce_case(random: Random, seed: int) -> Case:
    """Draws a case of the mode "safety" with a limit that is small for its nodes, and with requests that ask the hub.

    The case has many windows: an allowance is granted for one window, so most faults of the code show at a window's
    end.
    """
    nodes = random.randint(2, SCARCE_NODES_MAX)
    policy = random.choice([STRICT, STRICT, STRICT, BALANCED])
    quota = random.choice([random.randint(1, 2 * nodes), random.randint(nodes, 8 * nodes), random.randint(4, 100)])
    window = random.choice([1.0, 10.0, 60.0])
    bucket, other = random.choice([TOKEN_BUCKET, GCRA]), random.choice(METERED)
    algorithm = random.choice([SLIDING_WINDOW, SLIDING_WINDOW, FIXED_WINDOW, bucket, bucket, other])
    limit = Limit(quota, window, algorithm=algorithm)
    interval_ns = int(limit.window_ns * 10 ** random.uniform(-2.2, -0.5))
    cost_max = random.choice([1, 1, min(3, quota)])
    traffic = Traffic(random.choice(list(PATTERNS)), random.uniform(1.0, 6.0), random.choice([1, 1, 2]), cost_max)
    windows = max(3, min(SCARCE_WINDOWS, int(SCARCE_ARRIVALS_MAX / (traffic.demand * quota))))
    fleet = draw_fleet(random, nodes, limit, interval_ns, 6 * interval_ns * random.choice([1, 2, 5]))
    drawn = draw_faults(random, nodes, 0.0, windows)
    chosen = random.sample(SCARCE_FAULTS, random.choice([0, 0, 1, 2]))
    fleet = replace(fleet, asks=draw_asks(random, fleet))
    return Case(SAFETY, seed, policy, Experiment(fleet, traffic, windows, 0, tuple(drawn[name] for name in chosen)))


def _away_case(random: Random, seed: int) -> Case:
    """Draws a case of the mode "safety" in which nodes, or all, are cut off until their sealed shares have opened."""
    nodes = random.randint(2, SCARCE_NODES_MAX)
    policy = random.choice([STRICT, STRICT, STRICT, BALANCED])
    quota = random.choice([random.randint(1, 2 * nodes), random.randint(nodes, 8 * nodes)])
    # Drawn from a generator of its own, so that the rest of the case stays as it was.
    algorithm = Random(f"{seed} windows").choice([SLIDING_WINDOW, FIXED_WINDOW])
    limit = Limit(quota, random.choice([5.0, 20.0, 60.0]), algorithm=algorithm)
    interval_ns = int(SECOND_NS * 10 ** random.uniform(-1, 0.4))
    traffic = Traffic(random.choice(["uniform", "zipf", "single", "rotating"]), random.uniform(1.0, 4.0))
    lease_ns = limit.window_ns * random.choice([4, 10])
    fleet = draw_fleet(random, nodes, limit, interval_ns, max(lease_ns, 6 * interval_ns))
    faults, opens_w = [], SEALED_AFTER_S * SECOND_NS / limit.window_ns
    windows = AWAY_WINDOWS + ceil(opens_w)
    for _ in range(random.randint(1, AWAY_FAULTS_MAX)):
        cut = random.choice(["all", *(str(random.randint(1, nodes)) for _ in range(3))])
        way = random.choice(["", "", "", ":requests", ":replies"])
        length = opens_w + random.uniform(0.5, 5.0)
        faults.append(f"cut:{cut}{way}@{random.uniform(1.0, AWAY_WINDOWS - 5):.4f}w+{length:.4f}w")
    fleet = replace(fleet, asks=draw_asks(random, fleet))
    loses = Random(f"{seed} loses data")  # of its own, so that the rest of the case stays as it was
    if policy is STRICT and loses.random() < DATA_LOSS_SHARE:
        faults.append(f"lose-data@{loses.uniform(1.0, AWAY_WINDOWS - 5):.4f}w")
        fleet = replace(fleet, lease_ns=outlasting(windows, limit.window_ns))
    return Case(SAFETY, seed, policy, Experiment(fleet, traffic, windows, 0, tuple(faults)))


def _elected_case(random: Random, seed: int, scarce: Case | None) -> Case:
    """Draws a case in which the nodes keep the ledger among themselves, and the leader is cut off, killed or stalled.

    If the network stays whole, the requests and faults of `scarce` are used, if it is given. Except under strict, a new
    leader waits for no absent node, and neither does a hub that has lost its data: so no node is absent.
    """
    split = random.random() < SPLIT_SHARE
    if split:
        case = _lapse_case(random, seed)
        while _arrivals_per_window(case) * SPLIT_WINDOWS > ARRIVALS_MAX:
            case = _lapse_case(random, seed)
        case = replace(case, policy=STRICT)
        experiment = replace(case.experiment, windows=SPLIT_WINDOWS, faults=())
    else:
        case = scarce or _safety_case(random, seed)
        experiment = case.experiment
        drawn = draw_faults(random, experiment.fleet.nodes, 0.0, experiment.windows)
        strict = case.policy is STRICT
        names = random.sample(sorted(drawn), random.randint(0, FAULTS_MAX)) if strict else ()
        experiment = replace(experiment, faults=tuple(drawn[name] for name in names))
    fleet, window_ns = experiment.fleet, experiment.fleet.limit.window_ns
    if case.policy is not STRICT:
        lease_ns = outlasting(experiment.windows, window_ns)
        fleet = replace(fleet, lease_ns=lease_ns, timeout_ns=min(lease_ns // LEASE_TIMEOUTS_MIN, SECOND_NS))
    tenure_ns = max(6 * fleet.round_trip_ns, int(window_ns * 10 ** random.uniform(-1.5, -1.0 if split else 0.0)))
    # A member waits for an answer as long as a node does, and a tenure outlasts that.
    wait_ns = min(tenure_ns // 3, fleet.timeout_ns)
    fleet = replace(fleet, timeout_ns=wait_ns)
    calm_ns = int(window_ns * random.uniform(0.3, 2.0) if split else tenure_ns * 10 ** random.uniform(0.3, 1.5))
    until_ns = experiment.windows * window_ns
    make_rule = partial(
        open_merge_rule,
        kind=ELECTED_RULE,
        random=Random(f"members {seed}"),
        members=random.randint(2, 3) if split else random.randint(1, 5),
        tenure_ns=tenure_ns,
        wait_ns=wait_ns,
        latency_ns=max(1, int(tenure_ns * 10 ** random.uniform(-3, -1.5))),
        calm_ns=calm_ns,
        longest_ns=6 * window_ns if split else 20 * tenure_ns,
        until_ns=until_ns,
        loyal=case.policy is STRICT,
        faults=ALL_FAULTS if case.policy is STRICT else FAULTS_THAT_ALL_NOTICE,
    )
    experiment = replace(experiment, fleet=fleet)
    settled_ns = until_ns + SETTLED_TENURES * tenure_ns
    return replace(case, mode=ELECTED, experiment=experiment, make_rule=make_rule, settled_ns=settled_ns)


def _regions_case(random: Random, seed: int) -> Case:
    """Draws a case with several regions, a bridge from each to one wide hub, and faults of nodes, bridges and hubs."""
    draw = _lapse_case if random.random() < REGION_LAPSE_SHARE else _safety_case
    case = draw(random, seed)
    while case.experiment.fleet.limit.align == FIRST_HIT or case.experiment.fleet.limit.quota > REGION_QUOTA_MAX:
        case = draw(random, seed)
    fleet, window_ns = case.experiment.fleet, case.experiment.fleet.limit.window_ns
    skewed = draw is _lapse_case and random.random() < SKEWED_SHARE
    if skewed:
        limit = Limit(fleet.limit.quota, window_ns / SECOND_NS, algorithm=FIXED_WINDOW)
        fleet = replace(fleet, limit=limit, further=())
    regions = random.randint(2, 4)
    share_ppm = int(MILLION * random.choice([0.0, 0.2, 0.5, random.random()]) / regions)
    fleet = replace(fleet, nodes=max(fleet.nodes, regions), regions=regions, region_ppm=max(1, share_ppm))
    demand = random.uniform(1.0, 2.5)
    windows = max(3, min(REGION_WINDOWS, int(ARRIVALS_MAX / (demand * fleet.limit.quota * regions))))
    traffic = wandering(fleet, windows, random=random, demand=demand, steady=random.random() < STEADY_SHARE)
    # The faults of nodes were drawn for fewer nodes, and hit the first ones. Without faults, nodes keep allowances.
    suffered = case.experiment.faults if random.random() < SUFFERING_SHARE else ()
    experiment = replace(case.experiment, fleet=fleet, traffic=traffic, windows=windows, faults=suffered)
    interval_ns = int(window_ns * 10 ** random.uniform(-2.3, -1.5 if skewed else -0.5))
    make_rule = partial(
        Regions,
        random=Random(f"regions {seed}"),
        regions=regions,
        movable_ppm=MILLION - regions * fleet.region_ppm,
        interval_ns=interval_ns,
        loan_ns=int(interval_ns * random.uniform(4, 12)),
        latency_ns=max(1, int(interval_ns * 10 ** random.uniform(-2, -1))),
        calm_ns=int(window_ns * random.uniform(0.3, 3.0)),
        longest_ns=8 * window_ns,
        until_ns=windows * window_ns,
        faults=random.choice([FAULTS, FAULTS, (), (CUT, KILL)]),
        ahead_ns=[random.randrange(SKEW_MAX_NS) if skewed else 0 for _ in range(regions)],
    )
    return replace(case, mode=REGIONS, experiment=experiment, make_rule=make_rule)


def _arrivals_per_window(case: Case) -> float:
    traffic = case.experiment.traffic
    assert isinstance(traffic, Traffic)
    return traffic.demand * case.experiment.fleet.limit.quota


def _liveness_case(random: Random, seed: int) -> Case:
    """Draws a case of one long window: requests in its first third, and faults that end before the window does."""
    nodes = random.randint(2, 16)
    limit = replace(draw_limit(random, 300.0, (FIXED_WINDOW, SLIDING_WINDOW, *DATED)), count_refused=False)
    interval_ns = int(SECOND_NS * 10 ** random.uniform(-1.5, 0.3))
    traffic = draw_traffic(random, limit, demand=min(10 ** random.uniform(-0.6, 1), ARRIVALS_MAX / limit.quota))
    lease_ns = 6 * interval_ns * random.choice([1, 5, 50])
    fleet = replace(draw_fleet(random, nodes, limit, interval_ns, lease_ns), further=draw_further(random, limit))
    drawn = draw_faults(random, nodes, 0.2, 0.5)
    chosen = random.sample(sorted(drawn), random.randint(0, FAULTS_MAX))
    faults = tuple(drawn[name] for name in chosen)
    policy = draw_policy(random)
    # Drawn by a generator of its own, so that the rest of the case stays as it was.
    if not isinf(policy.max_overshoot) and Random(f"{LIVENESS} {seed} admits").random() < ADMITS_SHARE:
        policy = replace(policy, when_hub_is_away=ADMIT)
    return Case(LIVENESS, seed, policy, Experiment(fleet, traffic, 1, 0, faults))
