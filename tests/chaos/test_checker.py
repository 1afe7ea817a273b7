"""Goal: the judge finds every broken promise, and nothing wrong where none was broken.

Method: a story in which all goes well, told by hand; each test plants one thing that must not be, and the same thing
by a hair less. The judge must find exactly that.
"""

from __future__ import annotations

import pytest

from chaos.judge.case import Case
from chaos.judge.checker import (
    APART,
    DEAD,
    DOUBLED,
    ESCAPED,
    LEAKED_SECRET,
    LOST,
    OVER_ADMISSION,
    STORM,
    SWOLLEN,
    TOUCHED,
    WAITED,
    least_and_most,
)
from chaos.judge.history import Sight, Unsure
from reconverge.limit import SLIDING_WINDOW, Limit
from reconverge.policies import choose
from tests.chaos.stories import EPOCH, QUOTA, Story, good_story, kinds, ns


def test_nothing_is_wrong_with_a_good_story() -> None:
    """All kept, nothing found."""
    assert set() == kinds(good_story().case(total=6))


# -------------------------------------------------------------------- over-admission


@pytest.mark.parametrize(("more", "found"), [(QUOTA - 1, set()), (QUOTA, {OVER_ADMISSION})])
def test_a_window_may_be_full_and_not_fuller(more: int, found: set[str]) -> None:
    """Strict: ten of ten in one window over all nodes are right, eleven are not."""
    story = good_story()
    story.admits(0, 1.1)
    story.admits(1, 1.2, cost=more)

    assert found == kinds(story.case(total=7 + more)) & {OVER_ADMISSION}


@pytest.mark.parametrize(("cost", "found"), [(QUOTA + 1 + 4, set()), (QUOTA + 1 + 5, {OVER_ADMISSION})])
def test_the_bound_is_the_policys(cost: int, found: set[str]) -> None:
    """Balanced: a tenth above the limit, and one request for each node; requests of the largest cost seen, here 2."""
    story = Story()
    for _ in range(cost // 2):
        story.admits(0, 1.1, cost=2)
    story.admits(1, 1.2, cost=cost % 2)

    assert found == kinds(_of(story, cost, policy=choose("balanced"))) & {OVER_ADMISSION}


def test_what_the_promises_exclude_is_added_to_the_bound() -> None:
    """By as much as the scenario says, and not by one more."""
    story = Story()
    story.admits(0, 1.1, cost=QUOTA + 3)

    assert OVER_ADMISSION not in kinds(_of(story, QUOTA + 3, beyond=3))
    assert OVER_ADMISSION in kinds(_of(story, QUOTA + 3, beyond=2))


def test_sliding_windows_are_judged_with_what_has_not_faded() -> None:
    """Half a window after a full one, half of that one still counts."""
    story = Story()
    story.admits(0, 1.5, cost=QUOTA)
    story.admits(0, 2.5, cost=6)
    sliding = Limit(QUOTA, 1.0, algorithm=SLIDING_WINDOW)

    assert OVER_ADMISSION in kinds(_of(story, 16, limit=sliding))
    assert OVER_ADMISSION not in kinds(_of(story, 16))


def test_windows_are_the_nodes_own_unless_the_scenario_says_otherwise() -> None:
    """Where a clock is wrong on purpose, the machine's decides which window it was."""
    story = Story()
    story.admits(0, 1.1, cost=QUOTA)
    story.admits(0, 1.2, cost=QUOTA, epoch=17, hub_ns=17_000_000_000)

    assert OVER_ADMISSION not in kinds(_of(story, 2 * QUOTA))
    assert OVER_ADMISSION in kinds(_of(story, 2 * QUOTA, reckoning="machine"))


# -------------------------------------------------------------------- counts


@pytest.mark.parametrize(("total", "found"), [(5, {LOST}), (6, set()), (7, {DOUBLED})])
def test_the_hub_knows_exactly_what_was_admitted(total: int, found: set[str]) -> None:
    """One less is lost, one more is doubled."""
    assert found == kinds(good_story().case(total)) & {LOST, DOUBLED}


def test_the_hub_must_not_know_too_much_even_for_a_moment() -> None:
    """Three were admitted by then, and it knew of four; that it was right in the end is no excuse."""
    story = good_story()

    assert set() == kinds(story.case(6, sights=[Sight(ns(2.6), ns(2.7), 4), Sight(ns(8), ns(8), 6)]))
    assert {DOUBLED} == kinds(story.case(6, sights=[Sight(ns(2.6), ns(2.7), 5), Sight(ns(8), ns(8), 6)]))


def test_the_hub_must_not_forget_what_it_has_confirmed() -> None:
    """Two had been confirmed by then; what was under way may be known or not."""
    story = good_story()

    assert set() == kinds(story.case(6, sights=[Sight(ns(1.0), ns(1.1), 2), Sight(ns(8), ns(8), 6)]))
    assert {LOST} == kinds(story.case(6, sights=[Sight(ns(1.0), ns(1.1), 1), Sight(ns(8), ns(8), 6)]))
    assert set() == kinds(story.case(6, sights=[Sight(ns(1.0), ns(1.1), 1), Sight(ns(8), ns(8), 6)], loses_data=True))


def test_the_hub_must_know_all_before_the_last_words() -> None:
    """A charge that only the end of a process has brought to light was not known when all was quiet."""
    story = good_story()

    assert {LOST} == kinds(story.case(6, sights=[Sight(ns(7.5), ns(7.6), 5)], loses_data=True))


def test_another_limit_is_counted_as_well() -> None:
    """A charge to two limits has to be known of both."""
    story = good_story()

    assert set() == kinds(story.case(6, final=Sight(ns(9), ns(9), 6, census=6)))
    assert LOST in kinds(story.case(6, final=Sight(ns(9), ns(9), 6, census=5)))


def test_of_a_killed_node_nobody_knows_exactly() -> None:
    """At least what the hub had confirmed, at most all that it wrote down and one request more."""
    story = good_story()
    story.lives[1].facts = None
    story.admits(1, 4.7)

    assert (6, 8) == least_and_most(story.case(6))
    assert {5: {LOST}, 6: set(), 8: set(), 9: {DOUBLED}} == {
        total: kinds(story.case(total)) & {LOST, DOUBLED} for total in (5, 6, 8, 9)
    }


def test_a_failed_exchange_confirms_nothing() -> None:
    """Whether it was surely not heard, or nobody knows."""
    story = good_story()
    story.lives[1].facts = None
    story.admits(1, 4.7)
    story.exchanges(1, 4.8, charged=4, outcome="unknown", kind="timeout")
    story.exchanges(1, 4.9, charged=4, outcome="fail", kind="refused")

    assert (6, 8) == least_and_most(story.case(6))


def test_last_words_can_only_be_said_where_there_is_somebody_to_hear_them() -> None:
    """Who ends while something is wrong may lose what was not confirmed; who ends at any other time may not."""
    story = good_story()
    story.admits(1, 4.7)
    story.exchanges(1, 4.8, charged=4, outcome="unknown", kind="timeout")

    assert (7, 7) == least_and_most(story.case(6))
    assert (6, 7) == least_and_most(story.case(6, spells=((ns(4.75), ns(4.95)),)))


# -------------------------------------------------------------------- what is known


def test_all_have_to_know_the_same_in_the_end() -> None:
    """One node that knows of one less is enough."""
    story = good_story()
    story.knows(1, 8.0, 5)

    assert {APART} == kinds(story.case(total=6))


@pytest.mark.parametrize(("at_s", "found"), [(6.5, set()), (6.6, {APART})])
def test_they_have_to_agree_in_time(at_s: float, found: set[str]) -> None:
    """A second and a half after the last request, and one look at what they know."""
    story = good_story()
    story.lives[1].views.clear()
    story.knows(1, at_s - 0.1, 5)
    story.knows(1, at_s, 6)

    assert found == kinds(story.case(total=6))


def test_a_node_that_is_asked_has_to_know_what_all_have_used() -> None:
    """Of the window it is asked about, and of no other; where windows slide nobody knows to the unit."""
    story = good_story()
    story.is_asked(0, 7.8, epoch=EPOCH, total=1)
    story.is_asked(0, 7.9, epoch=EPOCH, total=2)
    assert set() == kinds(story.case(total=6))

    story.is_asked(0, 8.0, epoch=EPOCH + 4, total=1)
    assert {APART} == kinds(story.case(total=6))
    assert set() == kinds(story.case(total=6, limit=Limit(QUOTA, 1.0, algorithm=SLIDING_WINDOW)))


def test_what_nodes_held_that_went_without_last_words_may_count_as_used() -> None:
    """Then more is known than was admitted, and never less."""
    story = good_story()
    story.is_asked(0, 7.9, epoch=EPOCH, total=5)
    assert {APART} == kinds(story.case(total=6))
    assert set() == kinds(story.case(total=6, mute=True))

    story.is_asked(0, 8.0, epoch=EPOCH, total=1)
    assert {APART} == kinds(story.case(total=6, mute=True))


def test_an_interrupted_decision_may_have_been_charged_to_the_window_that_a_node_is_asked_about() -> None:
    """To that window and not to an earlier one, and each to one request: two were admitted in it."""
    for interrupted_s, excused in ((0.6, False), (4.2, True)):
        story = good_story()
        story.lives[1].unsure.append(Unsure(ns(interrupted_s), 1))
        for total, kind in ((2, set()), (3, set() if excused else {APART}), (4, {APART}), (1, {APART})):
            story.is_asked(0, 7.9, epoch=EPOCH + 4, total=total)
            assert kind == kinds(story.case(total=6))


def test_a_machine_that_dawdles_is_given_time() -> None:
    """Four times as much as it made a node wait since then, and not for what it did before."""
    story = good_story()
    story.lives[1].views.clear()
    story.knows(1, 6.5, 5)
    story.knows(1, 6.9, 6)
    story.is_late(0, 4.9, 0.5)
    assert {APART} == kinds(story.case(total=6))

    story.is_late(0, 5.5, 0.1)
    assert set() == kinds(story.case(total=6))


def test_what_a_node_was_told_to_do_to_itself_lasts_until_it_says_so() -> None:
    """A flood that the machine draws out is over when the node is done with it, and not when it was to be."""
    story = good_story()
    story.lives[1].views.clear()
    story.knows(1, 7.0, 5)
    story.knows(1, 7.4, 6)
    assert {APART} == kinds(story.case(total=6))

    for node in range(2):  # all have to hear of each other again since then, too
        story.exchanges(node, 6.1, charged=3)
        story.exchanges(node, 6.3, charged=3)
    story.lives[0].ordered += [(ns(2.0), "flood"), (ns(6.0), "flood over")]
    assert set() == kinds(story.case(total=6))


def test_after_an_outage_all_have_to_hear_of_each_other_in_time() -> None:
    """Each has to speak, and then once more; here node 1 is silent for too long."""
    story = good_story()
    exchanges = story.lives[1].exchanges
    story.lives[1].exchanges = [one for one in exchanges if not ns(3.0) < one.sent_ns < ns(4.5)]

    assert {APART} == kinds(story.case(total=6))


# -------------------------------------------------------------------- how it lived


def test_every_shard_that_is_spoken_of_has_to_be_heard_of_again() -> None:
    """Of others there is nothing to say."""
    story = good_story()
    for node in range(2):
        story.exchanges(node, 0.7, charged=1, shard=1)
        story.exchanges(node, 0.7, charged=None, shard=2)
        story.lives[node].exchanges.sort()
    assert {"apart"} == kinds(story.case(total=6, shards=3))

    for node in range(2):
        for at_s in (3.3, 3.9):
            story.exchanges(node, at_s, charged=1, shard=1)
    assert set() == kinds(story.case(total=6, shards=3))


def test_whoever_does_not_exchange_any_more_is_dead() -> None:
    """Though the hub may know all that it has admitted."""
    story = good_story()
    story.lives[1].exchanges = [one for one in story.lives[1].exchanges if one.sent_ns < ns(3.0)]

    assert {DEAD, APART} == kinds(story.case(total=6))


@pytest.mark.parametrize("facts", [{"bugs": 1}, {"failures": {"bug:KeyError": 1}}])
def test_a_surprise_is_a_fault(facts: dict[str, object]) -> None:
    """Whether the loop was surprised or the hub raised what it must not."""
    story = good_story()
    story.lives[0].facts = facts

    assert {DEAD} == kinds(story.case(total=6))


def test_nobody_at_all_is_found_wanting() -> None:
    """A run in which no node was left proves nothing, and does not pass."""
    assert {DEAD, APART} == kinds(Story(nodes=0).case(total=0))


@pytest.mark.parametrize(("attempts", "found"), [(7, set()), (8, {STORM})])
def test_an_outage_is_no_reason_to_try_more_often(attempts: int, found: set[str]) -> None:
    """Than in good times, but for four attempts of each node at its beginning."""
    story = good_story()
    for number in range(attempts):
        story.exchanges(0, 2.1 + number / 100, charged=1, outcome="fail", kind="refused")
    story.lives[0].exchanges.sort(key=lambda one: one.sent_ns)

    assert found == kinds(story.case(total=6))
    assert set() == kinds(story.case(total=6, outage=False))


def test_input_and_output_are_found() -> None:
    """One decision that touched a socket is enough."""
    story = good_story()
    decisions = story.lives[0].decisions
    decisions[1] = decisions[1]._replace(touched="socket.send")

    assert {TOUCHED} == kinds(story.case(total=6))


def test_decisions_that_wait_for_an_exchange_are_found() -> None:
    """They begin while it is under way, and not one is made before it is over."""
    story = good_story()
    for life in story.lives:
        life.decisions[1] = life.decisions[1]._replace(took_ns=ns(0.25))

    assert {WAITED} == kinds(story.case(total=6))


def test_one_decision_that_the_machine_held_up_is_no_waiting() -> None:
    """Others were made during that exchange."""
    story = good_story()
    for life in story.lives:
        life.decisions[1] = life.decisions[1]._replace(took_ns=ns(0.25))
    for node in range(2):
        story.admits(node, 2.55, cost=0)

    assert set() == kinds(story.case(total=6))


def test_escaped_exceptions_too_many_keys_and_told_secrets_are_found() -> None:
    """Each by its own name."""
    escaped, swollen = good_story(), good_story()
    escaped.lives[1].escaped.append("KeyError: 'ada'")
    swollen.lives[1].facts = {"keys": 11, "keys_max": 10}

    assert {ESCAPED} == kinds(escaped.case(total=6))
    assert {SWOLLEN} == kinds(swollen.case(total=6))
    assert {LEAKED_SECRET} == kinds(good_story().case(total=6, leaks=("node-0.log",)))


def _of(story: Story, total: int, **changes: object) -> Case:
    return story.case(total, **changes)
