"""Goal: of a limit that is kept at the hub, no node holds a right that it has neither used nor asked for.

Method: real nodes and the real merge rule, each exchanging when it is due, by a clock of the test's own.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT, Policy
from tests.support.kernel.talker import Talker, Talkers

ALGORITHMS = ["sliding-log", "sliding-slices"]
KEPT_AT_HUB = [STRICT, BALANCED]
SETTLED_S = 0.5
"""By then every node has said what it has to say."""


def kept_at_hub(algorithm: str, policy: Policy = STRICT, *, quota: int = 3, nodes: int = 2) -> Talkers:
    """Nodes that know a key and have not used it."""
    world = Talkers(Limit(quota, 60, algorithm=algorithm), policy, nodes=nodes, lease_ns=600 * SECOND_NS)
    for node in world.nodes:
        node.table.leave_spare_at_hub()
        node.table.warm(["ada"])
    settle(world)
    return world


def settle(world: Talkers, seconds: float = SETTLED_S, *, silent: Talker | None = None) -> None:
    """Let time pass, in which every node exchanges when it is due, but for one that is `silent`."""
    for _ in range(round(seconds / 0.01)):
        for node in world.nodes:
            if node is silent:
                continue
            if node.due_in_ns == 0:
                node.exchanges_with(world.hub)
        world.passes(0.01)


def asks(world: Talkers, node: Talker, *, silent: Talker | None = None) -> bool:
    """Ask, and if need be wait for the hub's word, as whoever waits does: try again."""
    for _ in range(5):
        if node.table.allow("ada"):
            return True
        settle(world, 0.02, silent=silent)
    return False


@pytest.mark.parametrize("policy", KEPT_AT_HUB, ids=lambda policy: policy.name)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_free_can_be_asked_for_by_any_node(algorithm: str, policy: Policy) -> None:
    """The quota is admitted, to the last request and not one more, whichever nodes are asked."""
    world = kept_at_hub(algorithm, policy, nodes=4)

    admitted = 0
    for turn in range(8):
        admitted += asks(world, world.nodes[turn % 4])
        settle(world)

    assert 3 == admitted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_granted_beyond_what_was_asked_for_goes_back(algorithm: str) -> None:
    """With the node's next regular exchange."""
    world = kept_at_hub(algorithm, quota=30)
    node = world.nodes[0]

    assert not node.table.allow("ada")
    world.passes(0.02)
    node.exchanges_with(world.hub)
    assert node.table.allow("ada")
    assert node.allowance() > 1
    settle(world, 0.15)

    assert 1 == node.allowance()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_node_with_spare_rights_keeps_them(algorithm: str) -> None:
    """Limits that are not kept at the hub do so."""
    world = kept_at_hub(algorithm, quota=30)
    for node in world.nodes:
        node.table.leave_spare_at_hub(leave=False)

    assert asks(world, world.nodes[0])
    settle(world)

    assert world.nodes[0].allowance() > 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_has_faded_on_one_node_is_free_for_another(algorithm: str) -> None:
    """Though nothing has been asked of that node since."""
    world = kept_at_hub(algorithm)
    used, other = world.nodes
    assert [True] * 3 == [asks(world, used) for _ in range(3)]
    settle(world)
    assert not asks(world, other)

    settle(world, 100.0)

    assert asks(world, other)


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        ("token-bucket", STRICT),
        ("fixed-window", STRICT),
        ("sliding-window", STRICT),
        ("sliding-log", AVAILABLE),
        ("sliding-log", NAIVE),
    ],
)
def test_what_the_hub_keeps_by_itself_or_does_not_live_by_its_allowance_is_left_as_it_is(
    algorithm: str, policy: Policy
) -> None:
    """Windows and buckets are kept at the hub where requests ask, and some policies go by the total."""
    node = Talkers(Limit(3, 60, algorithm=algorithm), policy).nodes[0]

    node.table.leave_spare_at_hub()

    assert node.table.keeps_spare


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_refusal_is_certain_until_the_first_charge_of_any_node_expires(algorithm: str) -> None:
    """The hub tells the other node when that is."""
    world = kept_at_hub(algorithm)
    used, other = world.nodes
    assert asks(world, used)
    settle(world, 30.0)
    assert [True] * 2 == [asks(world, used) for _ in range(2)]
    settle(world)

    assert not asks(world, used)
    assert not asks(world, other)
    answers = [node.table.test("ada") for node in world.nodes]
    assert [True] * 2 == [each.certain for each in answers]
    assert all(20 < each.retry_after < 30 for each in answers)

    settle(world, 40.0)
    assert asks(world, other)
