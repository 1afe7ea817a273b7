"""Goal: a reset makes all nodes forget what was used before it, and nothing of what is used after it.

Method: nodes that are reset before, while and after they exchange.
"""

from __future__ import annotations

import pytest

from reconverge.limit import Limit
from reconverge.policies import AVAILABLE
from tests.support.kernel.talker import MINUTE, busy


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_what_others_use_after_a_reset_is_not_mistaken_for_what_was_reset(algorithm: str) -> None:
    """The answer that tells a node of the reset counts without what the node has just reported."""
    world = busy(Limit(100, 3600, algorithm=algorithm), AVAILABLE, nodes=2)
    resetting, other = world.nodes
    other.admitted_of(30)
    other.exchanges_with(world.hub)
    world.passes(0.1)
    resetting.table.reset("ada")
    used = resetting.admitted_of(20)
    resetting.exchanges_with(world.hub)
    other.admitted_of(1)

    world.passes(0.1)
    other.exchanges_with(world.hub)

    assert (20, 0, 20) == (used, other.table.usage("ada").own, other.table.usage("ada").total)


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_what_was_used_after_a_reset_is_not_taken_for_what_was_confirmed_before(algorithm: str) -> None:
    """A reset while a report is under way: its answer confirms counts that are no more."""
    world = busy(Limit(100, 3600, algorithm=algorithm))
    (node,) = world.nodes
    node.admitted_of(30)
    world.passes(0.1)
    node.says()
    node.table.reset("ada")
    node.reaches(world.hub)
    node.hears()
    used = node.admitted_of(10)

    world.passes(601.0)
    node.exchanges_with(world.hub, rounds=3)

    assert (10, 10) == (used, node.table.usage("ada").own)


def test_a_reset_does_not_take_allowances_away() -> None:
    """Every node goes on with the allowance that it has."""
    world = busy(MINUTE)
    (node,) = world.nodes
    allowance = node.allowance()
    node.admitted_of(100)

    node.table.reset("ada")

    assert allowance == node.admitted_of(100)
