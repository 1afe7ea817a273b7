"""Goal: a key that begins with a part of its bucket does so once for the whole fleet, and edges refill it exactly once.

Method: nodes and a hub, driven by hand, with clocks that are known badly.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from tests.support.kernel.lone import Lone
from tests.support.kernel.talker import Talker, Talkers

SLOW_START = Limit(60, 60, algorithm="token-bucket", burst=100, initial=30)
STEPS = Limit(100, 60, algorithm="token-bucket", refill="interval")


def admitted_within(world: Talkers, seconds: float) -> int:
    """Returns the admissions of all nodes when they are asked all the time, and exchange as they should."""
    admitted = 0
    for _ in range(round(seconds * 10)):
        admitted += sum(node.admitted_of(20) for node in world.nodes)
        world.all_speak()
    return admitted


def test_a_new_key_begins_with_its_initial_on_all_nodes_together() -> None:
    """And with what drains meanwhile."""
    world = Talkers(SLOW_START, STRICT, nodes=3, lease_ns=600 * SECOND_NS)

    assert 30 <= admitted_within(world, 1) <= 31


@pytest.mark.parametrize("policy", [BALANCED, AVAILABLE], ids=["balanced", "available"])
def test_a_cold_node_dares_no_more_than_the_initial(policy: Policy) -> None:
    """Of a key that it has never heard of."""
    (node,) = Talkers(SLOW_START, policy).nodes

    assert 30 == node.admitted_of(200)


def test_a_lone_node_keeps_a_full_key_while_there_is_room() -> None:
    """And then forgets it: what begins anew has less, which is the safe side."""
    node = Lone(SLOW_START, keys_max=3)
    node.admits()
    node.passes(1000)
    assert node.admits(key="bob")
    assert node.admits(key="cleo")
    assert 100 == node.limiter.test("ada").remaining

    node.passes(1000)
    assert node.admits(key="dora")
    node.admits(key="eve")

    assert 30 >= node.limiter.test("ada").remaining


def test_when_the_hub_has_lost_its_data_every_key_begins_again() -> None:
    """Which may be less than it had, and is never more."""
    world = Talkers(SLOW_START, BALANCED, nodes=2, lease_ns=600 * SECOND_NS)
    admitted_within(world, 1)
    world.passes(200)
    world.hub.lose_data()

    assert 110 >= admitted_within(world, 3)


def test_the_quota_comes_back_at_the_edges_of_the_hubs_windows_to_all_nodes_together() -> None:
    """All of it at once, and nothing in between."""
    world = Talkers(STEPS, STRICT, nodes=3, lease_ns=600 * SECOND_NS)

    assert 100 == admitted_within(world, 30)
    assert 0 == admitted_within(world, 29)
    assert 100 == admitted_within(world, 10)


def distant(node: Talker, world: Talkers, *, there_ms: int, back_ms: int) -> None:
    """Lets a node exchange over a network that takes its time."""
    if node.sends() is not None:
        world.passes(ns=there_ms * MILLISECOND_NS)
        node.reaches(world.hub)
        world.passes(ns=back_ms * MILLISECOND_NS)
        node.hears()


@pytest.mark.parametrize(("there_ms", "back_ms"), [(0, 800), (800, 0), (400, 400)])
def test_what_is_charged_while_the_edge_may_have_passed_does_not_drain_with_it(there_ms: int, back_ms: int) -> None:
    """A node that knows the hub's clock badly may take the edge for later than it is."""
    world = Talkers(STEPS, STRICT, lease_ns=600 * SECOND_NS)
    (node,) = world.nodes
    for _ in range(20):
        distant(node, world, there_ms=there_ms, back_ms=back_ms)
        node.admitted_of(1)
        world.passes(0.1)
    to_edge_ns = 60 * SECOND_NS - world.clock.wall_ns() % (60 * SECOND_NS)
    world.passes(ns=to_edge_ns)

    after_edge = node.admitted_of(200)
    for _ in range(30):
        world.passes(0.1)
        after_edge += node.admitted_of(200)

    assert 50 < after_edge <= 100


class Distant(Talkers):
    """A node that holds all of the allowance, has used it up, and knows the hub's clock by long round trips only."""

    def __init__(self) -> None:
        super().__init__(STEPS, STRICT, lease_ns=600 * SECOND_NS)
        (self.node,) = self.nodes
        for _ in range(8):
            distant(self.node, self, there_ms=400, back_ms=400)
            self.node.admitted_of(200)
        self.cell = self.node.table.cells["ada"]
        self.epoch, self.full = self.cell.epoch, self.cell.level
        assert self.full == self.cell.allowance * self.node.table.window_ns > 0
        self.to_edge(-1)

    def to_edge(self, seconds: float) -> None:
        """Let time pass until so long after the edge, or before it."""
        edge_ns = (self.epoch + 1) * 60 * SECOND_NS
        self.passes(ns=edge_ns + round(seconds * SECOND_NS) - self.clock.wall_ns())

    def place(self) -> tuple[int, int]:
        """In which window the node is, and how full its bucket."""
        self.node.table.edges.advance(self.cell, self.clock.monotonic_ns())
        return self.cell.epoch, self.cell.level


def test_a_node_that_knows_the_hubs_clock_badly_is_refilled_late() -> None:
    """By about twice the error, and never early."""
    world = Distant()
    lag_s = world.node.kernel.shards[0].lag_ns / SECOND_NS
    assert 0.8 <= lag_s < 0.81

    world.to_edge(lag_s - 0.001)
    assert (world.epoch, world.full) == world.place()
    world.to_edge(lag_s + 0.001)
    assert (world.epoch + 1, 0) == world.place()


def test_an_allowance_that_comes_from_a_node_that_has_been_refilled_is_not_refilled_again() -> None:
    """The hub's answer beyond an edge is beyond it for every node: the allowance from before drains, and no other."""
    world = Distant()
    world.to_edge(-0.3)
    world.node.table.allow("ada")
    world.node.says()
    world.passes(0.4)
    world.node.reaches(world.hub)
    world.passes(0.4)
    assert (world.epoch, world.full) == world.place()

    world.node.hears()

    assert (world.epoch + 1, 0) == (world.cell.epoch, world.cell.level)


def test_what_the_others_have_used_since_an_edge_does_not_drain_with_it() -> None:
    """Though this node takes the edge for later than the answer in which it heard of that."""
    world = Talkers(STEPS, AVAILABLE, nodes=2, lease_ns=600 * SECOND_NS)
    node, other = world.nodes
    assert 60 == other.admitted_of(60)
    other.exchanges_with(world.hub)
    node.table.test("ada")

    distant(node, world, there_ms=400, back_ms=400)

    cell = node.table.cells["ada"]
    assert cell.opened_ns == cell.heard_ns
    assert 60 == node.table.meter.others(cell, world.clock.monotonic_ns())
