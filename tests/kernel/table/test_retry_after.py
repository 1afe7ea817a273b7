"""Goal: no refusal names a moment before the earliest one at which its request can be admitted, by what the node knows.

Method: a node and its hub in virtual time. A client comes again when the refusal says so, and at no other time.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limit import Limit
from reconverge.limiter import RateLimiter
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

WINDOW_S = 60
LIMITS: dict[str, dict[str, Any]] = {
    "fixed": {"algorithm": "fixed-window"},
    "first-hit": {"algorithm": "fixed-window", "align": "first-hit"},
    "sliding": {"algorithm": "sliding-window"},
    "bucket": {"algorithm": "token-bucket"},
    "steps": {"algorithm": "token-bucket", "refill": "interval"},
    "log": {"algorithm": "sliding-log"},
    "slices": {"algorithm": "sliding-slices", "slices": 6},
}
DRAINS_BY_ALLOWANCES = {"bucket", "steps"}
"""Nothing comes back before the hub has answered."""
every_limit = pytest.mark.parametrize("kind", LIMITS)


def limit_of(kind: str) -> Limit:
    """Five in a minute, counted so."""
    return Limit(5, WINDOW_S, **LIMITS[kind])


def exchanging(node: SmallNode, hub: MemoryHub, seconds: float) -> None:
    """Let time pass, with an exchange in each interval."""
    until_ns = node.clock.monotonic_ns() + round(seconds * SECOND_NS)
    while (left_ns := until_ns - node.clock.monotonic_ns()) > 0:
        node.clock.advance_ns(min(INTERVAL_NS, left_ns))
        node.exchanges_with(hub)


@every_limit
def test_a_node_that_used_all_of_a_new_key_itself_knows_when_some_of_it_comes_back(kind: str) -> None:
    """The hub has yet to answer; what the node has used is the least that was used, so it is too early before."""
    node = SmallNode(ManualClock(START_S + 0.3))
    table = node.limit(limit_of(kind), BALANCED)
    assert [True] * 5 == [table.allow("ada") for _ in range(5)]
    refused = table.hit("ada")

    assert not refused.allowed
    assert refused.retry_after > 10
    node.clock.advance(refused.retry_after - 0.01)
    assert not table.allow("ada")
    node.clock.advance(0.02)
    assert table.allow("ada") is (kind not in DRAINS_BY_ALLOWANCES)


@every_limit
def test_a_client_that_keeps_to_it_is_admitted_at_the_first_try(kind: str) -> None:
    """By a node that exchanges with its hub, and is the only one."""
    node = SmallNode(ManualClock(START_S + 0.3))
    hub = MemoryHub(clock=node.clock)
    table = node.limit(limit_of(kind), BALANCED)
    admitted: list[bool] = []
    for _ in range(10):
        decision = table.hit("ada")
        while decision.allowed:
            decision = table.hit("ada")
        exchanging(node, hub, decision.retry_after + 0.001)
        admitted.append(table.allow("ada"))

    assert [True] * 10 == admitted


@pytest.mark.slow
@every_limit
def test_a_client_whose_key_is_in_debt_is_admitted_at_the_first_try_if_it_keeps_to_it(kind: str) -> None:
    """By a node that exchanges with its hub; each time seventeen of five were settled."""
    node = SmallNode(ManualClock(START_S + 0.3))
    hub = MemoryHub(clock=node.clock)
    limiter = RateLimiter(LimitControl(node.limit(limit_of(kind), BALANCED)))
    admitted: list[bool] = []
    for _ in range(5):
        limiter.reserve("ada", 1).settle(17)
        exchanging(node, hub, 0.3)
        decision = limiter.hit("ada")
        assert not decision.allowed
        exchanging(node, hub, decision.retry_after + 0.001)
        admitted.append(limiter.allow("ada"))
        exchanging(node, hub, 6 * WINDOW_S)

    assert [True] * 5 == admitted


@pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
def test_after_a_loss_of_data_a_strict_limit_says_when_the_hub_grants_again(kind: str) -> None:
    """A lease and what counts for two windows later: all that was granted before is over then."""
    node = SmallNode(ManualClock(START_S + 0.3))
    hub = MemoryHub(clock=node.clock)
    table = node.limit(limit_of(kind), STRICT)
    table.allow("ada")
    exchanging(node, hub, 1.0)
    hub.lose_data()
    exchanging(node, hub, 1.0)
    refused = table.hit("bob")

    assert not refused.allowed
    assert refused.retry_after > 2 * WINDOW_S
    exchanging(node, hub, 1.0)  # the hub has answered about the key, and grants nothing
    refused = table.hit("bob")
    assert refused.retry_after > 2 * WINDOW_S
    exchanging(node, hub, refused.retry_after - 2.0)
    assert not table.allow("bob")
    exchanging(node, hub, 1.0)
    assert not table.allow("bob")
    exchanging(node, hub, 1.0)
    table.allow("bob")  # a strict limit grants what is asked for, with the next exchange
    exchanging(node, hub, 2 * INTERVAL_NS / SECOND_NS)
    assert table.allow("bob")
