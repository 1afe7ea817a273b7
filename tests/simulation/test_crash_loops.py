"""Goal: crashes do not use up a window that outlasts a lease.

Method: a simulated lone node is asked twenty times in each of its lives, and then killed. The limit is 1000 an hour,
and the lease ten minutes.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.headroom import HEADROOM_FRACTION, OVERDRAFT_FRACTION
from reconverge.limit import (
    CALENDAR,
    FIRST_HIT,
    FIXED_WINDOW,
    GCRA,
    INTERVAL,
    LEAKY_BUCKET,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Limit,
)
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from reconverge.simulation.fault import Fault
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.world import World
from reconverge_sync.merge.ledger import LimitRule

HOUR_S = 3600
LIVES = 15
LIFE_S = 60
ASKED = 20
QUOTA = 1000
LIMITS = {
    "fixed window": Limit(QUOTA, HOUR_S, algorithm=FIXED_WINDOW),
    "sliding window": Limit(QUOTA, HOUR_S, algorithm=SLIDING_WINDOW),
    "slices": Limit(QUOTA, HOUR_S, algorithm=SLIDING_SLICES),
    "log": Limit(QUOTA, HOUR_S, algorithm=SLIDING_LOG),
    "token bucket": Limit(QUOTA, HOUR_S, algorithm=TOKEN_BUCKET),
    "GCRA": Limit(QUOTA, HOUR_S, algorithm=GCRA),
    "bucket that refills in steps": Limit(QUOTA, HOUR_S, algorithm=TOKEN_BUCKET, refill=INTERVAL),
    "leaky bucket": Limit(QUOTA, HOUR_S, algorithm=LEAKY_BUCKET, burst=QUOTA),
    "first hit": Limit(QUOTA, HOUR_S, algorithm=FIXED_WINDOW, align=FIRST_HIT),
    "calendar": Limit(QUOTA, 86_400, algorithm=FIXED_WINDOW, align=CALENDAR, timezone="Europe/Berlin"),
}


def lives_of(limit: Limit, policy: Policy) -> list[int]:
    """How many requests are admitted in each life."""
    begins_s = [5.0 + LIFE_S * life for life in range(LIVES)]
    # The first request makes the key known, and the others come when the hub has answered.
    offsets_s = [0.0, *(5.0 + 0.5 * number for number in range(ASKED - 1))]
    arrivals = [
        SimulatedArrival(round((begin_s + s) * SECOND_NS), 0, "ada", 1) for begin_s in begins_s for s in offsets_s
    ]
    texts = [f"crash:1@{begin_s + 0.6 * LIFE_S}s+1s" for begin_s in begins_s]
    faults = [Fault.parse(text, nodes=1, window_ns=limit.window_ns, random=Random(1)) for text in texts]
    world = World(Fleet(1, limit, SECOND_NS), policy, faults, seed=1)
    decided = world.run(arrivals, until_ns=LIVES * LIFE_S * SECOND_NS).by_quota[0]
    return [sum(one.allowed for one in decided[first : first + ASKED]) for first in range(0, LIVES * ASKED, ASKED)]


@pytest.mark.parametrize("policy", [BALANCED, STRICT], ids=lambda policy: policy.name)
@pytest.mark.parametrize("name", LIMITS)
def test_no_life_of_fifteen_is_locked_out(name: str, policy: Policy) -> None:
    """All is admitted but the first request on a key that a strict node does not know."""
    cold = 1 if policy is STRICT else 0

    assert [ASKED - cold] * LIVES == lives_of(LIMITS[name], policy)


def _small_lines(limit: Limit, policy: Policy) -> bool:
    """Whether allowances are kept small, by node and hub alike."""
    node = World(Fleet(1, limit, SECOND_NS), policy, [], seed=1).nodes[0]
    node.table.decide("ada", 1, 0)
    batch = node.syncer.take(SECOND_NS)
    assert batch is not None
    rule = LimitRule.of(batch.limits[0])
    at_node, at_hub = node.table.small_allowances, rule.small_allowances(rule.lease_of_us(batch))
    assert at_node is at_hub
    return at_node


def test_where_crashes_cost_nothing_allowances_stay_large() -> None:
    """Without a bound nothing is counted for a node that is gone, and its allowance may last it through an outage."""
    assert not _small_lines(LIMITS["sliding window"], AVAILABLE)
    assert _small_lines(LIMITS["sliding window"], BALANCED)


@pytest.mark.parametrize(("window_s", "small"), [(600, False), (601, True)])
def test_windows_that_are_over_before_the_lease_are_dealt_out_as_ever(window_s: int, small: bool) -> None:
    """A default lease is ten minutes long at most."""
    limit = Limit(QUOTA, window_s, algorithm=SLIDING_WINDOW)

    assert small is _small_lines(limit, BALANCED)


def test_a_vanished_node_costs_at_most_a_twentieth() -> None:
    """The part held for nothing in particular is lost: the headroom of the allowance, and the overdraft."""
    assert HEADROOM_FRACTION + OVERDRAFT_FRACTION <= 0.05
