"""Goal: `own` is what this process has admitted and still counts, wherever the charges of a bucket are kept.

Method: the real kernel, syncer and hub; a key is kept at the hub while a node may have company, and at the node later.
"""

from __future__ import annotations

import asyncio

import pytest

from reconverge import Agent, Limit
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Table
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import INTERVAL_NS
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.asking import JOINING
from tests.limiter.test_asking import FIVE, AskingNodes

HOUR = 3600
BUCKET = Limit(1000, HOUR, algorithm="token-bucket")
BUCKETS = [BUCKET, Limit(1000, HOUR, algorithm="gcra"), Limit(1000, HOUR, algorithm="token-bucket", refill="interval")]


def own_of(scene: AskingNodes, node: int = 0) -> int:
    return table_of(scene, node).usage("ada").own


def table_of(scene: AskingNodes, node: int = 0) -> Table:
    return scene.limits[node].tables[0]


def kept_at_hub(scene: AskingNodes) -> bool:
    cell = table_of(scene).cells.get("ada")
    assert cell is not None
    return cell.at_hub


def passes(scene: AskingNodes, seconds: int) -> None:
    """The node exchanges all the while, or its lease would end."""
    for _ in range(seconds):
        scene.clock.advance_ns(SECOND_NS)
        scene.exchanges()


def moves_out(scene: AskingNodes) -> None:
    """Lets the first node have reported so often that it counts as the only one, and ask once more."""
    other = scene.nodes[0].limit(FIVE, BALANCED, "other")
    for number in range(JOINING + 1):
        other.allow(f"key{number}")
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges()
    scene.settles(0, "ada", 1000)
    for _ in range(3):
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges()
    assert not kept_at_hub(scene)


@pytest.mark.parametrize("limit", BUCKETS, ids=["token-bucket", "gcra", "interval"])
def test_what_a_node_has_charged_is_its_own_at_the_hub_and_afterwards(limit: Limit) -> None:
    """Whether the key is kept at the hub at that moment makes no difference."""
    scene = AskingNodes(limit, nodes=1, policy=BALANCED)

    for number in range(1, 5):
        assert scene.settles(0, "ada", 200)
        assert 200 * number == own_of(scene)
    assert kept_at_hub(scene)
    moves_out(scene)
    assert 798 <= own_of(scene) <= 800


def test_what_other_nodes_have_charged_is_not() -> None:
    """All charges are in one bucket at the hub."""
    scene = AskingNodes(BUCKET, policy=BALANCED)

    assert [True, True] == [scene.settles(1, "ada", 200) for _ in range(2)]
    scene.clock.advance_ns(INTERVAL_NS)
    scene.exchanges(1)
    assert scene.settles(0, "ada", 200)

    assert kept_at_hub(scene)
    assert [200, 400] == [own_of(scene, node) for node in range(2)]
    assert 600 == table_of(scene).usage("ada").total


def test_it_drains_as_the_bucket_does() -> None:
    """Both at the hub and afterwards."""
    scene = AskingNodes(Limit(1200, 60, algorithm="token-bucket"), nodes=1, policy=BALANCED)
    assert scene.settles(0, "ada", 1200)

    passes(scene, 10)
    assert kept_at_hub(scene)
    assert 1000 == own_of(scene)
    began_ns = scene.clock.monotonic_ns()
    moves_out(scene)
    passes(scene, 10)
    assert 1000 - 20 * (scene.clock.monotonic_ns() - began_ns) // SECOND_NS == own_of(scene)


def test_charges_from_before_the_hub_kept_the_key_stay_the_nodes_own() -> None:
    """A key that was never asked about, and is nearly used up when it is."""
    scene = AskingNodes(BUCKET, nodes=1, policy=BALANCED)
    table = table_of(scene)
    table.allow("ada", 100)
    scene.exchanges()
    for _ in range(7):
        scene.clock.advance_ns(INTERVAL_NS)
        table.allow("ada", 100)
        scene.exchanges()
    before = own_of(scene)
    assert not kept_at_hub(scene)

    scene.clock.advance_ns(INTERVAL_NS)
    scene.settles(0, "ada", 200)
    assert kept_at_hub(scene)
    assert before >= own_of(scene) >= before - 2


def test_own_use_is_without_what_was_given_back_or_reset() -> None:
    """An estimate is corrected while the hub keeps the key."""
    scene = AskingNodes(BUCKET, nodes=1, policy=BALANCED)
    table = table_of(scene)
    assert scene.settles(0, "ada", 200)

    table.refund("ada", 150)
    assert 50 == own_of(scene)
    table.reset("ada")
    assert 0 == own_of(scene)


@pytest.mark.parametrize("algorithm", ["sliding-window", "fixed-window", "token-bucket", "sliding-log"])
def test_the_only_node_finds_its_part_after_a_pause(algorithm: str) -> None:
    """It expects no more requests then; but no other node is there that could use what it gave back."""
    clock = ManualClock(1_000_000.0)
    agent = Agent(MemoryHub(clock=clock), clock=clock, sync_interval=0.1, sigterm=False)
    agent._lifecycle.start = lambda: None  # type: ignore[method-assign]
    limiter = agent.limit("login", "100/minute", algorithm=algorithm)
    admitted = [limiter.allow("ada") for _ in range(3)]
    for _ in range(80):
        asyncio.run(agent._lifecycle.exchanges.carry_out())
        clock.advance(0.1)

    assert all(admitted)
    assert all(limiter.allow("ada") for _ in range(30))
