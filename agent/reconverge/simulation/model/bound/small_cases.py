"""Draws short cases of the fuzz, of limits that the model covers: fewer requests than usual, and no fewer faults."""

# Theory of operation.
#
# One case of the fuzz in thirteen is of a limit that the model covers, and takes half a minute to bind, nearly all for
# steps like those before. A step is about one node, the hub and one name, so a few nodes and a few dozen
# requests meet all actions as well, if faults are as many. These cases take the same parts as all others
# (`simulation/drawing.py`); only sizes differ, and limits are drawn again until the model has one.

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from reconverge.limit.limit import DATED, FIXED_WINDOW, Limit
from reconverge.policies import STRICT
from reconverge.simulation.asker import perhaps_asks
from reconverge.simulation.cases import CHANGED_SHARE, DATA_LOSS_SHARE, Case
from reconverge.simulation.changing import draw_changes
from reconverge.simulation.drawing import (
    choose_faults,
    draw_faults,
    draw_fleet,
    draw_limit,
    draw_policy,
    draw_traffic,
    outlasting,
)
from reconverge.simulation.model.bound.watching_hub import is_bound
from reconverge.simulation.studies.experiment import Experiment

SMALL: Final = "small"
NODES_MAX: Final = 4
QUOTA_MAX: Final = 40
REQUESTS: Final = 80
"""The approximate number of requests in a case."""
WINDOWS_MAX: Final = 5
FULL_SHARE: Final = 0.5
"""The fraction of the cases with several keys in which no node has room for all of them."""
SMALL_FAULTS_MAX: Final = 5


def draw_small_case(seed: int) -> Case:
    """Draws a short case of a limit that the model covers, with any faults under which the promises hold."""
    random = Random(f"{SMALL} {seed}")
    nodes = random.randint(1, NODES_MAX)
    limit = _draw_limit(random)
    policy = draw_policy(random)
    while not is_bound(limit, replace(policy, cold_allowance=0.0)):
        policy = draw_policy(random)
    demand = 10 ** random.uniform(-0.2, 0.8)
    windows = max(2, min(WINDOWS_MAX, int(REQUESTS / (demand * limit.quota))))
    traffic = draw_traffic(random, limit, demand=demand)
    interval_ns = int(limit.window_ns * 10 ** random.uniform(-1.2, 0))
    lose_data = random.random() < DATA_LOSS_SHARE
    lease_ns = 6 * interval_ns * random.choice([1, 1, 2])
    drawn = draw_faults(random, nodes, 0.0, windows)
    if lose_data:
        lease_ns = outlasting(windows, limit.window_ns)
    fleet = draw_fleet(random, nodes, limit, interval_ns, lease_ns)
    fleet = replace(fleet, asks=perhaps_asks(random, fleet))
    if random.random() < CHANGED_SHARE:
        fleet = replace(fleet, changes=draw_changes(random, limit, windows, traffic.cost_max))
    if traffic.keys > 1 and random.random() < FULL_SHARE:
        fleet = replace(fleet, keys_max=traffic.keys - 1)
    faults = choose_faults(random, drawn, (1, SMALL_FAULTS_MAX), policy, windows if lose_data else None)
    return Case(SMALL, seed, policy, Experiment(fleet, traffic, windows, 0, faults))


def _draw_limit(random: Random) -> Limit:
    while True:
        limit = draw_limit(random, random.choice([1.0, 10.0, 60.0]), (FIXED_WINDOW, *DATED))
        if limit.quota <= QUOTA_MAX and not limit.count_refused and is_bound(limit, STRICT):
            return limit
