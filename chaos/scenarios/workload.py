"""Draws the requests of the nodes from a seed."""

from __future__ import annotations

import math
from random import Random

from chaos.fleet.plan import Request
from chaos.scenarios.scenario import Scenario
from reconverge.clock import SECOND_NS
from reconverge.simulation import Traffic


def draw(scenario: Scenario, seed: int) -> list[tuple[Request, ...]]:
    """Returns the requests of each node, in order. The same seed draws the same requests, with any faults."""
    limit = scenario.limit
    window_ns = min(limit.window_ns, SECOND_NS)
    traffic = Traffic(scenario.pattern, scenario.demand, scenario.keys, scenario.cost_max)
    arrivals = traffic.arrivals(
        nodes=scenario.nodes,
        quota=limit.quota,
        window_ns=window_ns,
        windows=math.ceil(scenario.load_s * SECOND_NS / window_ns),
        seed=seed,
    )
    shares: list[list[Request]] = [[] for _ in range(scenario.nodes)]
    for arrival in arrivals:
        if arrival.moment_ns < scenario.load_s * SECOND_NS:
            shares[arrival.node].append(Request(arrival.moment_ns, arrival.key, arrival.cost))
    _mix_in(shares, scenario, Random(f"more keys {seed}"))
    return [tuple(share) for share in shares]


def _mix_in(shares: list[list[Request]], scenario: Scenario, random: Random) -> None:
    """Adds requests for each of the further keys: one on each node, at any time."""
    for share in shares:
        for key in scenario.more_keys:
            share.append(Request(int(random.random() * scenario.load_s * SECOND_NS), key, 1))
        share.sort()
