"""Goal: windows that begin with the first hit are one for all nodes, and nothing counts twice or not at all.

Method: nodes that open windows by themselves, together, cut off from each other, and with a hub that forgets.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.kernel.algorithms.first_hit import NONE
from reconverge.kernel.cell import Cell
from reconverge.policies import BALANCED, STRICT
from tests.support.kernel.lone import Lone
from tests.support.kernel.talker import Talker, Talkers

LIMIT = Limit(100, 60, algorithm="fixed-window", align="first-hit")
WINDOW_US = 60_000_000


class FirstHitPair(Talkers):
    """Two nodes, each with a base of its own, and no window open."""

    def __init__(self) -> None:
        super().__init__(LIMIT, STRICT, nodes=2, lease_ns=600 * SECOND_NS)
        self.ada, self.bob = self.nodes
        self.all_speak()
        for _ in range(5):
            for node in self.nodes:
                node.admitted_of(1)
            self.all_speak()
        self.passes(61)
        assert [NONE, NONE] == [cell(node).epoch for node in self.nodes]

    def meets(self, *nodes: Talker) -> None:
        """These nodes exchange, once each."""
        for node in nodes:
            node.exchanges_with(self.hub)

    def hub_window(self) -> int:
        """The hub's window."""
        return self.hub._shards[0].cells["limit", "fixed-windowfirst-hit", WINDOW_US, "ada"].epoch

    @property
    def now_us(self) -> int:
        """The hub's clock."""
        return self.clock.wall_ns() // 1000


def cell(node: Talker) -> Cell:
    """Returns a node's cell of the key, brought up to the moment."""
    found = node.table.cells["ada"]
    node.table.edges.advance(found, node.clock.monotonic_ns())
    return found


def test_a_node_opens_a_window_with_its_first_charge_and_the_hub_takes_it() -> None:
    """From its base, without asking; and nobody counts from earlier on."""
    fleet = FirstHitPair()
    opened_us = fleet.now_us

    assert 1 == fleet.ada.admitted_of(1)

    fleet.passes(3)
    fleet.meets(fleet.ada, fleet.bob)
    assert opened_us == fleet.hub_window()
    assert [opened_us, opened_us] == [cell(node).epoch for node in fleet.nodes]


def test_what_the_base_does_not_suffice_for_opens_the_hubs_window() -> None:
    """Else nobody could ever be granted more than a base."""
    fleet = FirstHitPair()

    assert 0 == fleet.ada.admitted_of(1, cost=90)
    fleet.meets(fleet.ada)
    opened_us = fleet.now_us
    admitted = 0
    for _ in range(10):
        fleet.all_speak()
        admitted = admitted or fleet.ada.admitted_of(1, cost=90)

    assert opened_us == fleet.hub_window()
    assert 1 == admitted


def test_two_nodes_that_open_the_window_apart_end_up_in_one_with_what_both_have_used() -> None:
    """The first that the hub hears of is everybody's."""
    fleet = FirstHitPair()
    fleet.ada.admitted_of(7)
    fleet.passes(2)
    fleet.bob.admitted_of(5)
    bobs_us = fleet.now_us
    fleet.passes(2)

    fleet.meets(fleet.bob)
    fleet.all_speak(3)

    assert bobs_us == fleet.hub_window()
    assert [bobs_us, bobs_us] == [cell(node).epoch for node in fleet.nodes]
    assert [7, 5] == [cell(node).used for node in fleet.nodes]
    assert [12, 12] == [node.table.usage("ada").total for node in fleet.nodes]


def test_a_window_that_a_node_had_to_itself_counts_in_the_hubs_if_they_overlap() -> None:
    """Even if it is over by the time the node hears of the hub's, and another one has begun."""
    fleet = FirstHitPair()
    base = cell(fleet.ada).base
    assert base == fleet.ada.admitted_of(99)
    fleet.passes(50)
    fleet.bob.admitted_of(5)
    hubs_us = fleet.now_us
    fleet.meets(fleet.bob)
    fleet.passes(11)
    assert 3 == fleet.ada.admitted_of(3)

    fleet.meets(fleet.ada)

    assert hubs_us == fleet.hub_window() == cell(fleet.ada).epoch
    assert base + 3 == cell(fleet.ada).used


def test_both_together_never_exceed_the_limit_when_they_open_windows_apart() -> None:
    """Bases sum to the capacity at most, and allowances from then on."""
    fleet = FirstHitPair()
    admitted = fleet.ada.admitted_of(150)
    fleet.passes(1)
    admitted += fleet.bob.admitted_of(150)
    for _ in range(10):
        fleet.all_speak()
        admitted += sum(node.admitted_of(50) for node in fleet.nodes)

    assert 100 == admitted


def test_the_hubs_next_window_begins_no_earlier_than_its_last_one_has_ended() -> None:
    """A node that had a window of its own meanwhile takes the later beginning for its own."""
    fleet = FirstHitPair()
    fleet.bob.admitted_of(1)
    ended_us = fleet.now_us + WINDOW_US
    fleet.meets(fleet.bob)
    fleet.passes(40)
    assert 1 == fleet.ada.admitted_of(1)
    fleet.passes(25)

    fleet.meets(fleet.ada)

    assert ended_us == fleet.hub_window() == cell(fleet.ada).epoch


def test_after_a_lapse_the_next_window_begins_with_the_next_hit() -> None:
    """However long nobody asked."""
    fleet = FirstHitPair()
    fleet.ada.admitted_of(1)
    fleet.all_speak()
    fleet.passes(1000)
    fleet.meets(*fleet.nodes)
    fleet.passes(7)

    fleet.bob.admitted_of(1)
    fleet.meets(fleet.bob, fleet.ada)
    fleet.meets(fleet.bob, fleet.ada)

    assert fleet.now_us == fleet.hub_window()


def test_a_hub_that_has_lost_its_data_hears_of_the_window_again() -> None:
    """With all that was used in it."""
    fleet = FirstHitPair()
    fleet.ada.admitted_of(7)
    fleet.bob.admitted_of(5)
    fleet.all_speak(3)
    opened_us = fleet.hub_window()

    fleet.hub.lose_data()
    fleet.passes(1)
    fleet.all_speak(4)

    assert opened_us == fleet.hub_window()
    assert [12, 12] == [node.table.usage("ada").total for node in fleet.nodes]


def test_a_reset_leaves_the_window_where_it_is_and_empties_it() -> None:
    """On all nodes: allowances were dealt out for that window."""
    fleet = FirstHitPair()
    fleet.ada.admitted_of(7)
    fleet.all_speak(3)
    opened_us = fleet.hub_window()

    fleet.bob.table.reset("ada")
    fleet.all_speak(3)

    assert opened_us == fleet.hub_window()
    assert [0, 0] == [node.table.usage("ada").total for node in fleet.nodes]


@pytest.mark.parametrize("jump_s", [-100_000.0, -20.0, 20.0, 100_000.0])
def test_a_jump_of_the_hubs_clock_carries_the_counts_along(jump_s: float) -> None:
    """Nobody may use more because of it."""
    fleet = FirstHitPair()
    fleet.ada.admitted_of(7)
    fleet.bob.admitted_of(5)
    fleet.all_speak(3)

    fleet.clock.jump(jump_s)
    fleet.all_speak(4)

    assert [7, 5] == [cell(node).used for node in fleet.nodes]
    assert 88 >= sum(node.admitted_of(100) for node in fleet.nodes)


def test_an_early_refund_goes_back_though_the_window_was_adopted_meanwhile() -> None:
    """It is the same window, under the hub's name."""
    fleet = FirstHitPair()
    fleet.bob.admitted_of(1)
    fleet.passes(1)
    epoch = fleet.ada.table.decide("ada", 5, fleet.ada.clock.monotonic_ns()).epoch
    fleet.meets(fleet.bob, fleet.ada)
    assert epoch != cell(fleet.ada).epoch

    fleet.ada.table.correct("ada", epoch, -4)

    assert 1 == cell(fleet.ada).used


def test_a_correction_between_two_windows_opens_one() -> None:
    """A correction upwards is use."""
    node = Lone(LIMIT)
    with node.limiter.reserve("ada", 10) as reservation:
        node.passes(100)
        reservation.settle(15)

    node.passes(59.999_999_999)
    assert 95 == node.limiter.test("ada").remaining
    node.passes(0.000_000_001)
    assert 100 == node.limiter.test("ada").remaining


def test_who_crashed_between_two_windows_may_have_begun_the_next() -> None:
    """So what it held counts in whichever begins within a window's length."""
    world = Talkers(LIMIT, STRICT, nodes=2, lease_ns=70 * SECOND_NS)
    ada, bob = world.nodes
    world.all_speak()
    for _ in range(5):
        for node in world.nodes:
            node.admitted_of(1)
        world.all_speak()
    world.passes(61)
    unheard = ada.admitted_of(100)
    assert unheard > 0
    for _ in range(15):
        world.passes(1)
        bob.table.test("ada")
        bob.exchanges_with(world.hub)
    admitted = 0
    for _ in range(20):
        admitted += bob.admitted_of(100)
        bob.exchanges_with(world.hub)
        world.passes(0.1)

    assert 100 - unheard == admitted


def test_a_new_key_may_be_used_cold_in_a_window_of_ones_own() -> None:
    """The policy sets how far; and the hub's answer counts the charges of all of them."""
    world = Talkers(replace(LIMIT, quota=10), BALANCED, nodes=2)
    ada, bob = world.nodes
    assert [10, 10] == [node.admitted_of(20) for node in world.nodes]

    world.all_speak(3)

    assert [20, 20] == [node.table.usage("ada").total for node in world.nodes]
    assert [0, 0] == [ada.admitted_of(1), bob.admitted_of(1)]
