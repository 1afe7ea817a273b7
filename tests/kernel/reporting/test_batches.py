"""Goal: a batch that is lost, late or said twice loses and doubles nothing.

Method: single batches, taken, failed and answered wrongly by the test.
"""

from __future__ import annotations

import pytest

from reconverge.hub.report import Status
from tests.support.kernel.pair import Pair
from tests.support.kernel.talker import reported


def test_every_batch_has_a_higher_number_than_the_one_before() -> None:
    """After an answer, after a failure and under a new name alike."""
    pair = Pair()
    pair.passes(1.0)
    first = pair.node.says().sequence
    pair.node.reaches(pair.hub)
    pair.node.hears()
    pair.passes(1.0)
    second = pair.node.says().sequence
    pair.node.gives_up()
    pair.lease_ends()

    third = pair.node.says().sequence

    assert [first, first + 1, first + 2] == [first, second, third]


def test_a_batch_that_fails_is_said_again_with_what_came_since() -> None:
    """Counts are absolute, so that the hub may have heard the first one or not."""
    pair = Pair()
    pair.node.admitted_of(5)
    pair.passes(0.1)
    first = reported(pair.node.says())
    pair.node.gives_up()
    pair.node.admitted_of(3)
    pair.clock.advance_ns(pair.node.due_in_ns)

    second = reported(pair.node.says())

    assert (15, 18, 5, 8) == (first.current, second.current, first.asked, second.asked)


def test_an_ask_that_was_not_answered_is_asked_again() -> None:
    """The largest cost refused is not forgotten with the batch that told of it."""
    pair = Pair()
    pair.node.table.allow("ada", 70)
    pair.node.table.allow("ada", 60)
    pair.passes(0.1)
    pair.node.says()
    pair.node.gives_up()
    pair.clock.advance_ns(pair.node.due_in_ns)

    assert 70 == reported(pair.node.says()).ask


def test_lifetime_numbers_are_said_until_they_are_confirmed() -> None:
    """Also when the key that they came from has nothing else to say."""
    pair = Pair()
    pair.node.admitted_of(5)
    pair.passes(0.1)
    pair.node.says()
    pair.node.gives_up()
    pair.clock.advance_ns(pair.node.due_in_ns)
    again = pair.node.says().limits
    unconfirmed = pair.node.table.tallies[0].changed
    pair.node.reaches(pair.hub)
    pair.node.hears()

    assert ([15], 15) == ([limit.charged for limit in again], pair.totals().charged)
    assert (True, False) == (unconfirmed, pair.node.table.tallies[0].changed)


@pytest.mark.parametrize("status", [Status.STALE, Status.MERGED])
def test_an_answer_that_does_not_belong_to_the_batch_changes_nothing(status: Status) -> None:
    """One that says so, and one that does not have as many cells as were reported; both count as failures."""
    pair = Pair()
    pair.node.admitted_of(5)
    pair.passes(0.1)
    before = (pair.node.allowance(), pair.node.kernel.shards[0].lease_until_ns)
    pair.node.says()

    pair.hears(status)
    pair.clock.advance_ns(pair.node.due_in_ns)

    assert before == (pair.node.allowance(), pair.node.kernel.shards[0].lease_until_ns)
    assert {"stale": 1} == pair.node.syncer.stats(0).failures
    assert 15 == reported(pair.node.says()).current
