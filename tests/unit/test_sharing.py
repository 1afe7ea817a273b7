"""Goal: lines go to where they are needed, whole where they are asked for whole, and to the last unit.

Method: a few nodes that ask as much as they can, round after round.
"""

from __future__ import annotations

import pytest

from reconverge.limit import Limit
from reconverge.policies import STRICT
from tests.node import INTERVAL_NS
from tests.unit.talker import MINUTE, World, busy, reported


def test_a_large_ask_is_met_whole() -> None:
    """Two nodes that each need more than half are not both given half for ever."""
    world = World(MINUTE, STRICT, nodes=2)
    world.all_speak()
    admitted = 0

    for _ in range(10):
        admitted += sum(node.admitted_of(1, cost=60) for node in world.nodes)
        world.all_speak()

    assert 1 == admitted


def test_the_older_ask_is_met_first() -> None:
    """Whoever was refused first is served first, though the other one asks more often."""
    world = World(MINUTE, STRICT, nodes=3)
    holder, first, second = world.nodes
    world.all_speak()
    holder.admitted_of(1, cost=30)
    world.all_speak(2)
    admitted = {id(first): 0, id(second): 0}
    assert 1 == holder.admitted_of(1, cost=30)
    first.admitted_of(1, cost=60)
    first.exchanges_with(world.hub)
    world.passes(0.05)

    for _ in range(30):
        for node, cost in [(second, 50), (first, 60)]:
            admitted[id(node)] += node.admitted_of(1, cost=cost)
        world.all_speak()

    assert {id(first): 1, id(second): 0} == admitted


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_a_node_alone_gets_all_of_it(algorithm: str) -> None:
    """To the last unit, at the regular pace."""
    world = World(Limit(100, 3600, algorithm=algorithm), STRICT)
    (node,) = world.nodes
    admitted = 0

    for _ in range(20):
        world.all_speak()
        admitted += node.admitted_of(100)

    assert 100 == admitted


@pytest.mark.parametrize("nodes", [2, 3, 7])
@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_nodes_together_get_all_of_it(algorithm: str, nodes: int) -> None:
    """To the last unit, and not one more."""
    world = World(Limit(100, 3600, algorithm=algorithm), STRICT, nodes=nodes)
    admitted = 0

    for _ in range(40):
        world.all_speak()
        admitted += sum(node.admitted_of(20) for node in world.nodes)

    assert 100 == admitted


def test_a_line_that_nobody_fills_comes_back_before_the_interval_is_over() -> None:
    """When little is left, a quiet node looks again after a third of the interval whether it holds too much."""
    world = busy(MINUTE, nodes=2)
    holder, other = world.nodes
    holder.admitted_of(30)
    world.all_speak(1, every_s=0.0)
    other.admitted_of(100)
    other.exchanges_with(world.hub)
    world.passes(0.1)
    other.exchanges_with(world.hub)
    held = holder.line() - holder.table.usage("ada").own
    started_ns = world.clock.monotonic_ns()

    said = holder.speaks_when_due(world.hub, 0.1)

    assert held > 3
    assert any(reported(batch).line < holder.table.usage("ada").own + held for batch in said)
    assert holder.table.cells["ada"].reported_ns - started_ns < INTERVAL_NS
