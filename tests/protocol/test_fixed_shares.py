"""Goal: while the hub is away, a small quota in fixed windows goes on being admitted, and never beyond its capacity.

Method: as in `test_sealed_shares.py`. Unlike there, a share may open in the second window, as use does not fade.
"""

from __future__ import annotations

import pytest

from reconverge.hub.headroom import SEALED_WINDOW_MAX_S
from reconverge.hub.report import ASKS, AT_HUB, FLOATS, SEALED
from reconverge.limit.limit import FIXED_WINDOW
from reconverge.policies import BALANCED, STRICT, Policy
from tests.protocol.test_sealed_shares import (
    WINDOW_S,
    Away,
    Ledger,
    equal_parts,
    excess_after_a_reset_heard_late,
    shares_of,
)
from tests.protocol.test_shares_after_a_loss import Recording, answered_otherwise
from tests.support.servers import RedisServer

POLICIES = [STRICT, BALANCED]


class FixedAway(Away):
    """Nodes that ask about one key of a small quota of fixed windows."""

    def __init__(self, quota: int = 12, nodes: int = 4, policy: Policy = STRICT, window_s: int = WINDOW_S) -> None:
        super().__init__(quota, nodes, policy, window_s, FIXED_WINDOW)


class FixedLedger(Ledger):
    """A hub, and batches about fixed windows, made by hand, whose bases are shares."""

    algorithm = FIXED_WINDOW
    asked = ASKS + FLOATS

    def epoch(self) -> int:
        return self.clock.wall_ns() // (WINDOW_S * 10**9)

    def to_the_next_window(self, *nodes: str) -> None:
        self.passes(WINDOW_S - self.clock.wall_ns() // 10**9 % WINDOW_S, *nodes)


def dealt(quota: int = 12, nodes: int = 4, policy: Policy = STRICT) -> FixedAway:
    """Nodes that have the whole quota as shares, at the beginning of a window."""
    world = FixedAway(quota, nodes, policy)
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    return world


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@equal_parts
def test_the_quota_is_dealt_among_the_nodes_that_are_asked(
    quota: int, nodes: int, shares: list[int], policy: Policy
) -> None:
    """All of it, and what equal parts leave over as well."""
    world = dealt(quota, nodes, policy)

    assert shares == shares_of(world)
    assert all(node.table.cells["ada"].sealed for node in world.nodes)
    assert quota == sum(entry.base for entry in world.entries())


def test_a_window_begins_with_nothing_on_a_node_that_hears_the_hub() -> None:
    """All of the quota is there for the node that is asked first."""
    world = dealt()
    ada = world.nodes[0]

    assert ada.table.cells["ada"].base > 0
    assert not ada.table.allow("ada")
    assert 12 == world.goes_on(WINDOW_S - 2, every_s=3)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize(("quota", "nodes"), [(5, 4), (12, 4), (12, 8)])
def test_while_the_hub_is_away_each_window_admits_the_quota(quota: int, nodes: int, policy: Policy) -> None:
    """From the second window on, and not a request more."""
    world = dealt(quota, nodes, policy)
    world.goes_on(20)
    world.cut = set(world.nodes)

    for _ in range(6):
        world.to_the_next_window()
        assert quota == world.goes_on(WINDOW_S - 2, every_s=3)
    assert world.most <= quota * policy.max_overshoot


@pytest.mark.parametrize("seconds", [46, 44])
def test_a_share_opens_in_a_window_that_begins_long_enough_after_the_last_answer(seconds: int) -> None:
    """Long enough is 15 s: a node that was last answered 14 s before the edge begins with nothing once more."""
    world = dealt()
    world.goes_on(seconds)
    world.cut = set(world.nodes)
    world.to_the_next_window()

    assert (12 if seconds == 44 else 0) == world.goes_on(WINDOW_S - 2, every_s=3)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_beside_nodes_that_are_cut_off_the_others_share_what_is_left(cut: int, policy: Policy) -> None:
    """The hub has set the shares of those aside, which it cannot tell from dead ones."""
    world = dealt(policy=policy)
    world.cut = set(world.nodes[:cut])

    for _ in range(4):
        world.to_the_next_window()
        assert 12 == world.goes_on(WINDOW_S - 2, every_s=3)
    assert world.most <= 12 * policy.max_overshoot


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("stays_s", [1, 20, 61, 130])
def test_when_nodes_come_and_go_nothing_is_admitted_twice(stays_s: int, policy: Policy) -> None:
    """Each is away for four windows, one after the other, and both return in the middle of a window."""
    world = dealt(policy=policy)
    for turn in range(6):
        world.cut = {world.nodes[turn % 4], world.nodes[(turn + 1) % 4]}
        world.goes_on(4 * WINDOW_S + 7 * turn, every_s=2)
        world.cut = set()
        world.goes_on(stays_s, every_s=1)

    assert world.most <= 12 * policy.max_overshoot


def test_use_of_an_opened_share_is_not_forgotten_for_an_earlier_reset() -> None:
    """A node hears of the reset when it is back, windows later."""
    assert excess_after_a_reset_heard_late(dealt(nodes=2), WINDOW_S, 2 * WINDOW_S) <= 0


def test_a_node_whose_lease_is_over_uses_no_share() -> None:
    """The hub gives its share to others then."""
    world = dealt(nodes=2)
    ada, bob = world.nodes
    world.cut = {ada}
    world.goes_on(11 * WINDOW_S)

    assert 0 == world.tries(ada, 12)
    world.to_the_next_window()
    world.goes_on(WINDOW_S - 2, every_s=1)
    assert 12 == world.admitted_by[bob]
    assert world.most <= 0


def test_a_share_goes_back_before_a_base_is_granted() -> None:
    """A base is not sealed, and the answer that brings it may be lost, so that the node still has its share."""
    ledger = FixedLedger()
    assert 12 == ledger.asks("ada.0", 2).base
    ledger.passes(601, "ada.0")  # the other node's lease ends, and the hub keeps no key for a single node
    answer = ledger.asks("ada.0", base=12)

    assert answer.nodes < AT_HUB
    assert (0, 12) == (answer.base, ledger.sealed)
    assert 0 < ledger.asks("ada.0").base


def test_a_node_that_has_a_base_has_it_unsealed_until_it_has_given_it_back() -> None:
    """Its report does not say that it begins no window with it; so a node of an older version gets no share either."""
    ledger = FixedLedger()
    ledger.asked = ASKS
    first = ledger.asks("ada.0", 1)
    second = ledger.asks("ada.0", current=1)

    assert (0, 0) == (first.base, second.base)
    assert first.nodes < AT_HUB + SEALED


@pytest.mark.parametrize("shares", ["closed", "aside"])
def test_a_share_is_set_aside_for_a_node_that_is_silent(shares: str) -> None:
    """From the first window on that begins long enough after the last answer that it has certainly had."""
    ledger = FixedLedger()
    assert 12 == ledger.asks("ada.0", 2).base
    if shares == "closed":
        ledger.to_the_next_window("ada.0", "bob.0")
    else:
        ledger.to_the_next_window("bob.0")

    assert (12 if shares == "closed" else 0) == ledger.asks("bob.0", 12).allowance


def test_a_share_that_a_fast_clock_opened_early_is_set_aside_although_an_answer_was_under_way() -> None:
    """The answer is about the window before, and does not close the share; the next batches report other keys."""
    ledger = FixedLedger()
    share = ledger.asks("ada.0", 2).base
    assert share == 12
    ledger.passes(WINDOW_S - 1, "bob.0")
    ledger.clock.advance(0.5)
    ledger.asks("ada.0", base=share)
    ledger.hears("ada.0")
    ledger.passes(1, "ada.0", "bob.0")

    assert 0 == ledger.asks("bob.0", 12).allowance


def test_a_share_is_closed_again_in_the_window_after_the_return() -> None:
    """Use in a fixed window does not count in the next."""
    ledger = FixedLedger()
    ledger.asks("ada.0", 2)
    ledger.passes(2 * WINDOW_S + 5, "bob.0")
    ledger.hears("ada.0")
    ledger.hears("ada.0")
    assert 0 == ledger.asks("bob.0", 12).allowance
    ledger.to_the_next_window("ada.0", "bob.0")

    assert 12 == ledger.asks("bob.0", 12).allowance


@pytest.mark.parametrize(("window_s", "sealed"), [(SEALED_WINDOW_MAX_S, True), (SEALED_WINDOW_MAX_S + 1, False)])
def test_shares_are_of_short_windows(window_s: int, sealed: bool) -> None:
    """Leases end before a share of a longer window opens."""
    world = FixedAway(nodes=2, window_s=window_s)
    for _ in range(4):
        for node in world.nodes:
            world.tries(node)
            world.passes(1)

    assert sealed == (sum(shares_of(world)) > 0)


def test_each_node_keeps_its_share_while_the_hub_learns() -> None:
    """A share that goes back could be given to no other node."""
    world = dealt()
    shares = shares_of(world)
    world.hub.lose_data()
    world.goes_on(2 * WINDOW_S)

    assert shares == shares_of(world)
    world.cut = set(world.nodes)
    world.to_the_next_window()
    world.to_the_next_window()
    assert 12 == world.goes_on(WINDOW_S - 2, every_s=3)
    assert world.most <= 0


def test_the_script_in_redis_answers_alike(shared_redis: RedisServer) -> None:
    """Batch by batch: all nodes, some that are cut off, their return, a loss of data, and another return."""
    world = FixedAway()
    world.hub = hub = Recording(world.clock)
    world.goes_on(2 * WINDOW_S)
    world.cut = set(world.nodes[:2])
    world.goes_on(3 * WINDOW_S)
    world.cut.clear()
    world.goes_on(WINDOW_S)
    world.cut = {world.nodes[0]}
    world.hub.lose_data()
    world.goes_on(2 * WINDOW_S)
    world.cut.clear()
    world.goes_on(WINDOW_S)

    assert [] == answered_otherwise(shared_redis, hub.recorded)
    assert any(answer.nodes >= AT_HUB + SEALED for each in hub.recorded for answer in each.answer.cells)
