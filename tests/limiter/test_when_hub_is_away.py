"""Goal: `when_hub_is_away="admit"` admits up to the whole quota on each node while the hub is away, and only then.

Method: two nodes and a hub whose messages the test carries; exchanges that fail; a real Redis that is stopped.
"""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from dataclasses import replace

import pytest

from reconverge import InvalidSetting, Limit, SlotLimiter
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.policies import ADMIT, AVAILABLE, BALANCED, SHARE, STRICT, Policy, choose
from reconverge.published.caps import with_max_overshoot
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.limiter.test_asking import AskingNodes
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

QUOTA = 10
ADMITS = replace(STRICT, when_hub_is_away=ADMIT)


def _met(policy: Policy, algorithm: str) -> AskingNodes:
    """Two nodes that have asked about the key twice each."""
    scene = AskingNodes(Limit(QUOTA, 3600, algorithm=algorithm), policy=policy)
    scene.settles(1, "zoe")  # there are two nodes
    for node in (0, 1, 0, 1):
        assert scene.settles(node)
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges(node)
    return scene


def _fails(scene: AskingNodes, *, for_ns: int) -> None:
    """Exchanges of both nodes fail, for a time."""
    ends_ns = scene.clock.monotonic_ns() + for_ns
    while scene.clock.monotonic_ns() < ends_ns:
        sent = [node for node in scene.nodes if node.sends() is not None]
        scene.clock.advance_ns(50 * MILLISECOND_NS)
        for node in sent:
            node.gives_up()


def _catch_up(scene: AskingNodes) -> None:
    for node in (0, 1) * 60:  # each tries again after a pause
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges(node)


def _admitted(scene: AskingNodes, key: str = "ada") -> list[int]:
    return [sum(limit.allow(key) for _ in range(3 * QUOTA)) for limit in scene.limits]


@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_LOG])
def test_each_node_admits_the_whole_quota_while_the_hub_is_away(algorithm: str) -> None:
    """Less what it knows the others to have used; of a key that the hub has never answered about, too."""
    scene = _met(ADMITS, algorithm)

    _fails(scene, for_ns=4 * SECOND_NS)

    assert all(QUOTA - 4 <= admitted <= QUOTA - 2 for admitted in _admitted(scene))
    assert [QUOTA, QUOTA] == _admitted(scene, "eve")


@pytest.mark.parametrize("policy", [STRICT, ADMITS], ids=["share", "admit"])
def test_failures_of_less_than_a_second_change_nothing(policy: Policy) -> None:
    """Some lost messages are no outage: the nodes admit what they hold."""
    scene = _met(policy, "fixed-window")

    _fails(scene, for_ns=900 * MILLISECOND_NS)

    assert sum(_admitted(scene)) <= QUOTA - 4
    assert [0, 0] == _admitted(scene, "eve")


def test_the_first_answer_ends_it() -> None:
    """The hub counts what was admitted meanwhile: both nodes know that more than the quota is used."""
    scene = _met(ADMITS, "fixed-window")
    _fails(scene, for_ns=4 * SECOND_NS)
    admitted = sum(_admitted(scene))
    _catch_up(scene)
    refused = _admitted(scene)
    _catch_up(scene)

    assert [0, 0] == refused
    assert {4 + admitted} == {limit.usage("ada").total for limit in scene.limits}


def test_a_fleet_that_stays_connected_decides_as_without_it() -> None:
    """Request by request."""
    for algorithm in (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_LOG):
        alike = [_met(replace(BALANCED, when_hub_is_away=way), algorithm) for way in (SHARE, ADMIT)]

        assert 1 == len({tuple(_admitted(scene)) for scene in alike}), algorithm


def test_its_bound_is_the_whole_quota_on_each_node() -> None:
    """That is the price, and what is declared."""
    assert 0 == STRICT.bound(100, nodes=4)
    assert 300 == ADMITS.bound(100, nodes=4)


def test_a_lowered_overshoot_keeps_it() -> None:
    """Published settings that lower the overshoot leave what happens in an outage as it was declared."""
    declared = replace(BALANCED, when_hub_is_away=ADMIT)

    assert [ADMIT, ADMIT] == [with_max_overshoot(declared, each).when_hub_is_away for each in (0.0, 0.05)]


def test_another_word_is_an_error() -> None:
    """The error names both words, with what they mean."""
    with pytest.raises(InvalidSetting, match=r"when_hub_is_away='open'.*'share'.*'admit'"):
        choose(when_hub_is_away="open")


@pytest.mark.parametrize("way", [SHARE, ADMIT])
def test_a_policy_without_a_bound_takes_neither(way: str) -> None:
    """It would have no effect: such a policy goes on admitting anyway."""
    with pytest.raises(InvalidSetting, match="has no effect in 'available'"):
        choose(AVAILABLE.name, when_hub_is_away=way)
    with pytest.raises(InvalidSetting, match="has no effect"):
        choose(max_overshoot=math.inf, when_hub_is_away=way)


def test_agents_admit_without_their_redis(
    own_redis: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that ask are admitted, too; one line of the log names the limit, beside a limit that keeps its bound."""
    caplog.set_level(logging.WARNING, "reconverge")
    agents = [make_agent(own_redis.url) for _ in range(2)]
    login, upload = (
        [agent.limit(name, "10/hour", policy="strict", when_hub_is_away=way) for agent in agents]
        for name, way in (("login", ADMIT), ("upload", SHARE))
    )
    for limit in (*login, *upload):
        assert limit.ask_blocking("ada")
    own_redis.stop()

    eventually(lambda: all(limit.test("eve") for limit in login), "both nodes to admit")

    assert [10, 10] == [sum(bool(limit.ask_blocking("eve")) for _ in range(20)) for limit in login]
    assert [0, 0] == [sum(bool(limit.ask_blocking("eve")) for _ in range(20)) for limit in upload]
    assert 2 == caplog.text.count("each node admits up to the whole quota of 'login'")


def test_slots_are_given_without_the_redis(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """Each node gives out as many as there are."""
    agents = [make_agent(own_redis.url) for _ in range(2)]
    render = [agent.concurrency("render", 3, lease=20, when_hub_is_away=ADMIT) for agent in agents]
    for limit in render:
        with limit.slot("ada") as slot:
            assert slot
    own_redis.stop()

    def held(limit: SlotLimiter) -> int:
        with ExitStack() as stack:
            return sum(bool(stack.enter_context(limit.slot("eve"))) for _ in range(5))

    eventually(lambda: [3, 3] == [held(limit) for limit in render], "both nodes to give three")
