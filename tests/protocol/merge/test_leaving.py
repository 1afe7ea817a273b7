"""Goal: a node that stops gives back what it holds, and neither it nor a forked child is mistaken for what it was.

Method: last words that are heard or lost, and what comes after them.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.report import Batch
from reconverge.kernel import NEVER_NS
from reconverge.policies import AVAILABLE, BALANCED, Policy
from reconverge.simulation.explore.node import LEASE_NS
from tests.support.kernel.pair import WINDOWS, Pair, name_number
from tests.support.kernel.talker import Talkers, reported


def leaves(pair: Pair) -> list[Batch]:
    """The node's last words, as the hub hears them."""
    words: list[Batch] = []
    pair.node.syncer.leave(pair.clock.monotonic_ns())
    while not pair.node.syncer.left:
        words.append(pair.node.says())
        pair.node.reaches(pair.hub)
        pair.node.hears()
    return words


def test_a_node_that_leaves_gives_back_what_it_holds_and_tells_what_it_used() -> None:
    """In its last batch, which says that it is the last."""
    pair = Pair()
    assert 3 == pair.node.admitted_of(3)

    (word,) = leaves(pair)

    assert (True, 13, 0, 0) == (
        word.leaving,
        reported(word).current,
        reported(word).allowance,
        reported(word).need_milli,
    )
    assert (13, 13) == (pair.counted(), pair.totals().charged)


def test_a_node_that_leaves_gives_back_what_an_answer_on_its_way_brings() -> None:
    """An answer to a batch from before it began to leave grants as usual."""
    pair = Pair()
    pair.node.admitted_of(3)
    pair.node.says()
    pair.node.reaches(pair.hub)
    pair.node.syncer.leave(pair.clock.monotonic_ns())
    pair.node.hears()

    word = pair.node.says()

    assert (True, 13, 0) == (word.leaving, reported(word).current, reported(word).allowance)


def test_a_node_with_much_to_say_leaves_with_the_last_of_it() -> None:
    """Only the last batch says that it is the last, so that no other comes too late."""
    pair = Pair()
    pair.node.admitted_of(1)
    for number in range(300):
        pair.node.admitted_of(1, cost=0, key=f"key {number}")

    assert [False, True] == [word.leaving for word in leaves(pair)]


def test_a_node_that_has_left_does_not_use_its_allowances_any_more() -> None:
    """No later request changes that."""
    pair = Pair()
    leaves(pair)

    assert (False, 0) == (pair.node.in_lease, pair.node.admitted_of(5))


def test_a_node_that_comes_back_after_leaving_has_a_new_name() -> None:
    """And nothing that it used before is lost or counted twice."""
    pair = Pair()
    leaves(pair)
    hello = pair.node.says()
    pair.node.reaches(pair.hub)
    pair.node.hears()
    for _ in range(5):
        pair.node.admitted_of(1)
        pair.all_speak(2)

    assert (1, ()) == (name_number(hello)[1], hello.cells)
    assert pair.node.table.admitted == pair.totals().charged == pair.counted()


def test_a_last_word_that_fails_is_no_last_word() -> None:
    """Whoever drives the node gives up then; the next one to drive it goes on as if nothing had been said."""
    pair = Pair()
    pair.node.syncer.leave(pair.clock.monotonic_ns())
    pair.node.says()
    pair.node.gives_up()
    pair.node.syncer.abandon(now_ns=pair.clock.monotonic_ns())
    pair.clock.advance_ns(pair.node.due_in_ns)

    word = pair.node.says()

    assert (False, False, 10) == (pair.node.syncer.left, word.leaving, reported(word).current)


def test_what_was_under_way_when_its_driver_went_is_said_again() -> None:
    """A loop that is closed takes nothing with it."""
    pair = Pair()
    pair.node.admitted_of(3)
    pair.passes(0.1)
    pair.node.says()
    pair.node.flight = None
    pair.node.syncer.abandon(now_ns=pair.clock.monotonic_ns())
    pair.clock.advance_ns(pair.node.due_in_ns)

    assert (13, {"abandoned": 1}) == (reported(pair.node.says()).current, pair.node.syncer.stats(0).failures)


def test_a_forked_child_has_neither_counts_nor_allowances_nor_a_lease() -> None:
    """All of them are the parent's, who goes on."""
    pair = Pair()
    pair.node.admitted_of(3)
    kernel = pair.node.kernel

    kernel.forget_everything()

    assert (0, 0, False) == (len(pair.node.table.cells), kernel.keys, pair.node.in_lease)
    assert (0, 0) == (pair.node.table.admitted, pair.node.table.tallies[0].charged)
    assert (NEVER_NS, NEVER_NS) == kernel.due_ns(0)


def test_a_forked_child_does_not_wait_for_a_lock_of_the_parent() -> None:
    """A thread that held it at the moment of the fork does not exist in the child."""
    pair = Pair()
    pair.node.table.lock.acquire()

    pair.node.kernel.forget_everything()

    assert 0 == pair.node.table.usage("ada").own


def test_what_a_forked_child_counts_is_told_beside_what_the_parent_counts() -> None:
    """Under a name and an account of its own, and nothing of the parent's twice."""
    pair = Pair()
    child = pair.another_node()
    child.exchanges_with(pair.hub)
    child.admitted_of(5)
    pair.nodes.append(child)
    pair.all_speak(3)
    admitted = child.admitted_of(5)

    for node in pair.nodes:
        node.reports_everything_to(pair.hub)

    assert 10 + admitted == pair.totals().charged


@pytest.mark.parametrize(("policy", "admitted"), [(BALANCED, 0), (AVAILABLE, 5)], ids=["balanced", "available"])
def test_balanced_ends_its_daring_with_its_lease_and_available_does_not(policy: Policy, admitted: int) -> None:
    """The one uses neither allowance nor overdraft then; the other exceeds the limit rather than to refuse."""
    world = Talkers(WINDOWS[0], policy)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    node.admitted_of(10)
    world.all_speak(3)

    world.passes(2 * LEASE_NS / SECOND_NS)

    assert admitted == node.admitted_of(5)
