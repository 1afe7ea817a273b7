"""Goal: where scarce requests lie is set for each limit: at the hub, or at the nodes.

Method: two nodes and a hub whose messages the test carries; what is left when the hub is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.clock import MILLISECOND_NS
from reconverge.kernel.cell import Cell
from reconverge.kernel.reporting.requests import GRANTED_AGAIN_NS, GRANTED_NS
from reconverge.policies import AVAILABLE, HUB, NODES, STRICT, choose
from reconverge.published.caps import with_max_overshoot
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.limiter.test_asking import AskingNodes

TEN = Limit(10, 60, algorithm="fixed-window")


def exchanges_slowly(scene: AskingNodes, number: int) -> None:
    """Exchanges if there is something to say, with messages of 20 ms each way."""
    node = scene.nodes[number]
    if node.sends() is not None:
        scene.clock.advance_ns(20 * MILLISECOND_NS)
        node.reaches(scene.hub)
        scene.clock.advance_ns(20 * MILLISECOND_NS)
        node.hears()


def left_in_an_outage(scarce: str) -> int:
    """How many requests two nodes admit that asked before, and have lost the hub since."""
    scene = AskingNodes(TEN, policy=replace(STRICT, scarce=scarce))
    for node in (0, 1, 0, 1):
        scene.settles(node)
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges(node)
    for node in (0, 1):
        scene.nodes[node].syncer.failed("timeout", now_ns=scene.clock.monotonic_ns())
    return sum(limit.allow("ada") for limit in scene.limits for _ in range(10))


def test_an_outage_costs_more_where_scarce_requests_lie_at_the_hub() -> None:
    """It is the price of refusing none falsely before it. Of six that are left, the nodes have most themselves."""
    assert left_in_an_outage(HUB) <= 1
    assert left_in_an_outage(NODES) >= 4


def test_reports_do_not_ask_to_keep_at_the_hub_what_is_to_lie_at_the_nodes() -> None:
    """The request asks all the same, and gets an allowance."""
    scene = AskingNodes(TEN, policy=replace(STRICT, scarce=NODES))
    ask = scene.asks()
    (report,) = scene.nodes[0].sends().cells  # type: ignore[union-attr]  # there is a batch
    assert not report.asks

    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()
    ask.goes_on()

    assert ask.allowed
    assert scene.limits[0].usage("ada").allowance > 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"scarce": "node"}, "scarce='node'"),
        ({"scarce": 1}, "scarce=1"),
        ({"policy": "available", "scarce": HUB}, "no effect"),
    ],
)
def test_what_makes_no_sense_is_an_error(settings: dict[str, Any], told: str) -> None:
    """For an agent and for one limit."""
    with pytest.raises(InvalidSetting, match=told):
        Agent("memory://", **settings)
    with pytest.raises(InvalidSetting, match=told):
        Agent("memory://").limit("login", "5/minute", **settings)


def test_one_limit_may_say_otherwise_than_its_agent() -> None:
    """And a limit that says nothing goes by the agent's."""
    agent = Agent("memory://", scarce=NODES)

    assert NODES == agent.limit("one", "5/minute").control.policy.scarce
    assert HUB == agent.limit("other", "5/minute", scarce=HUB).control.policy.scarce
    assert HUB == Agent("memory://").limit("login", "5/minute").control.policy.scarce


def test_published_settings_leave_it_as_the_node_says() -> None:
    """They lower what a node dares, and say nothing about where requests lie."""
    for most in (0.0, 0.05):
        assert NODES == with_max_overshoot(choose("balanced", scarce=NODES), most).scarce


def test_available_keeps_no_key_at_the_hub() -> None:
    """Its nodes go by what they believe of each other."""
    assert not AVAILABLE.keeps_at_hub


def test_what_was_granted_for_a_request_waits_until_it_has_looked() -> None:
    """Its thread may have to wait for its turn, while the next batch is made up for another request of the key."""
    scene = AskingNodes(TEN, policy=STRICT)
    scene.settles(1, "zoe")  # there are two nodes
    ask = scene.asks(0, "ada")
    scene.exchanges()
    other = scene.asks(0, "ada")

    scene.nodes[0].sends()
    ask.goes_on()
    assert ask.allowed

    scene.clock.advance_ns(GRANTED_AGAIN_NS)
    now_ns = scene.clock.monotonic_ns()
    assert scene.nodes[0].syncer.due_ns(now_ns) <= now_ns, "the other one waits for the next batch"
    scene.exchanges()
    other.goes_on()
    assert other.allowed


def test_a_request_whose_thread_runs_a_fifth_of_a_second_late_finds_what_was_granted_for_it() -> None:
    """As on a machine with many more busy processes than cores."""
    scene = AskingNodes(TEN, policy=STRICT)
    scene.settles(1, "zoe")  # there are two nodes
    asks = [scene.asks(0, "ada") for _ in range(20)]
    scene.exchanges()
    asks.append(scene.asks(0, "ada"))
    scene.clock.advance_ns(200 * MILLISECOND_NS)
    scene.nodes[0].sends()

    for ask in asks[:-1]:
        ask.goes_on()
    assert 10 == sum(ask.allowed for ask in asks[:-1])


def test_a_request_is_not_refused_by_an_answer_whose_grant_has_gone_back_unread() -> None:
    """Of twenty, ten fitted; none of them had run when the next batch gave that back."""
    scene = AskingNodes(TEN, policy=STRICT)
    scene.settles(1, "zoe")  # there are two nodes
    asks = [scene.asks(0, "ada") for _ in range(20)]
    scene.exchanges()
    scene.clock.advance_ns(GRANTED_NS)
    scene.nodes[0].sends()
    for ask in asks:
        ask.goes_on()
    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()
    for ask in asks:
        ask.goes_on()

    assert 10 == sum(ask.allowed for ask in asks)


def test_what_was_granted_for_a_request_that_never_looks_goes_back() -> None:
    """Its event loop was closed, say. The other node finds the whole limit."""
    scene = AskingNodes(TEN, policy=STRICT)
    scene.settles(1, "zoe")  # there are two nodes
    ask = scene.asks(0, "ada", 10)
    scene.exchanges()
    scene.clock.advance_ns(INTERVAL_NS)
    ask.steps.close()
    scene.exchanges()

    assert scene.settles(1, "ada", 10)


def test_of_several_quotas_each_knows_that_what_was_granted_has_been_used() -> None:
    """By its own way of counting: by that of a bucket beside it, a window would have something to give back at once."""
    bucket = Limit(10, 60, algorithm="token-bucket")
    scene = AskingNodes(bucket, Limit(10, 3600, algorithm="sliding-window"), policy=STRICT)
    scene.settles(1, "zoe")  # there are two nodes
    table = scene.limits[0].tables[1]
    called: list[str] = []

    def headroom(cell: Cell, now_ns: int) -> int:
        called.append(cell.key)
        return type(table.meter).headroom(table.meter, cell, now_ns)

    vars(table.meter)["headroom"] = headroom
    ask = scene.asks(0, "ada", 10)
    scene.exchanges()
    called.clear()
    ask.goes_on()

    assert ask.allowed
    assert ["ada"] == called


def test_a_bucket_that_the_hub_keeps_shows_what_its_node_has_used() -> None:
    """It drains at the hub, which has heard of it; what another node has used is in the total alone."""
    scene = AskingNodes(Limit(10, 3600, algorithm="token-bucket"), policy=STRICT)
    for node, cost in ((1, 3), (0, 4)):
        assert scene.settles(node, "ada", cost)
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges(node)

    usage = scene.limits[0].usage("ada")

    assert (4, 7) == (usage.own, usage.total)


def test_a_strict_limit_that_nothing_exceeded_is_shown_within_its_quota() -> None:
    """Three nodes round up parts of five requests each, and fade them late: summed up that way, five came to six."""
    scene = AskingNodes(Limit(5, 60), nodes=3)
    shown = set[int]()
    for turn in range(600):
        asker = turn % 3
        ask = scene.asks(asker)
        if ask.waits:
            exchanges_slowly(scene, asker)
            ask.goes_on()
        ask.steps.close()
        scene.clock.advance_ns(40 * MILLISECOND_NS)
        exchanges_slowly(scene, asker)
        shown |= {limit.usage("ada").total for limit in scene.limits}

    assert 5 == max(shown)


def test_what_exceeded_a_limit_is_shown_in_full() -> None:
    """Each of three nodes admits a quota before it has heard of the others."""
    scene = AskingNodes(Limit(5, 60), nodes=3, policy=AVAILABLE)
    for limit in scene.limits:
        assert 5 == sum(limit.allow("ada") for _ in range(6))
    for node in (0, 1, 2, 0):
        exchanges_slowly(scene, node)

    assert 15 == scene.limits[0].usage("ada").total
