"""Goal: a sliding window counts of the window before as much as is still in sight.

Method: worked examples, and both sides of every edge.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from tests.support.kernel.lone import Lone, in_ns


def test_it_is_what_a_limit_string_means() -> None:
    """Who names no algorithm gets the sliding window."""
    assert "sliding-window" == Lone("3/minute").limiter.limit.algorithm


def test_the_worked_example_of_three_requests_a_minute() -> None:
    """The rest of the minute before counts in full, and is not rounded down.

    At 12:01:10 five sixths of two requests are in sight: with the one of 12:01:01 and this one that is more than three.
    """
    node = Lone("3/minute")
    answers: list[bool] = []

    for minutes, seconds in [(0, 5), (0, 15), (1, 1), (1, 10), (1, 40), (1, 50), (2, 20)]:
        node.at(minutes, seconds)
        answers.append(node.admits())

    assert [True, True, True, False, True, False, True] == answers


def seven_a_minute_with_five_before_and_three_since() -> Lone:
    """Seven per minute, five requests in the minute before, three 20 % into this one."""
    node = Lone("7/minute")
    node.admitted_of(5)
    node.passes(72.0)
    assert 3 == node.admitted_of(3)
    return node


def test_the_worked_example_of_seven_requests_a_minute() -> None:
    """With five before and three since, 30 % into the minute 3 + 0.7 x 5 are used: seven when rounded up."""
    node = seven_a_minute_with_five_before_and_three_since()

    node.passes(6.0)

    assert 7 == node.limiter.usage("ada").total


def test_the_next_request_fits_when_two_of_the_five_have_faded() -> None:
    """At 40 % of the minute 3 + 0.6 x 5 are used, so that one more fits; a nanosecond earlier it does not."""
    node = seven_a_minute_with_five_before_and_three_since()

    node.passes(ns=12 * SECOND_NS - 1)
    before = node.admits()
    node.passes(ns=1)

    assert (False, True) == (before, node.admits())


def test_a_second_quota_does_not_pass_at_an_edge() -> None:
    """Ten requests in a minute's last second leave no room in the next one's first."""
    node = Lone("10/minute")
    node.passes(59.0)
    before = node.admitted_of(11)

    node.passes(1.0)

    assert (10, 0) == (before, node.admitted_of(11))


def test_a_crowd_that_never_stops_is_admitted_at_the_pace_of_the_quota() -> None:
    """After a minute that began with its whole quota, one more request fits with every second that passes."""
    node = Lone("60/minute")
    node.admitted_of(61)
    node.passes(60.0)
    admitted: list[int] = []

    for _ in range(5):
        node.passes(1.0)
        admitted.append(node.admitted_of(10))

    assert [1] * 5 == admitted


@pytest.mark.parametrize(
    ("used", "cost", "wait_ns"),
    [
        (10, 1, 60 * SECOND_NS + 6 * SECOND_NS),  # a tenth of ten must fade, in the next minute
        (10, 10, 120 * SECOND_NS),  # all of it must
        (7, 4, 60 * SECOND_NS + 8_571_428_572),  # a seventh of seven must, rounded up to the nanosecond
    ],
)
def test_a_refusal_in_the_first_minute_names_a_moment_in_the_next(used: int, cost: int, wait_ns: int) -> None:
    """Use of this minute fades in the next one only, and the answer names the moment when enough of it has."""
    node = Lone("10/minute")
    node.admitted_of(used)

    told_ns = in_ns(node.hits(cost).retry_after)
    node.passes(ns=told_ns - 1)
    before = node.admits(cost)
    node.passes(ns=1)

    assert (wait_ns, False, True) == (told_ns, before, node.admits(cost))


def test_a_refusal_for_what_was_used_before_names_a_moment_in_this_minute() -> None:
    """Ten of the minute before fade by one every six seconds."""
    node = Lone("10/minute")
    node.admitted_of(10)
    node.passes(60.0)

    assert 6 * SECOND_NS == in_ns(node.hits().retry_after)


def test_everything_is_forgotten_after_two_windows() -> None:
    """A request counts until the end of the next window, and not a nanosecond longer."""
    node = Lone("10/minute")
    node.passes(59.0)
    node.admitted_of(10)
    reset_ns = in_ns(node.hits().reset_after)

    node.passes(ns=reset_ns - 1)
    before = node.limiter.usage("ada").own
    node.passes(ns=1)

    assert (61 * SECOND_NS, 1, 0) == (reset_ns, before, node.limiter.usage("ada").own)


def test_a_window_without_requests_lies_between() -> None:
    """The use of two windows ago is out of sight, though no request came in between."""
    node = Lone("10/minute")
    node.admitted_of(10)

    node.passes(120.0)

    assert 10 == node.admitted_of(11)


def test_asking_how_much_is_used_at_an_edge_gives_nothing_away() -> None:
    """A question opens the new window without forgetting the old one."""
    node = Lone("10/minute")
    node.passes(59.0)
    node.admitted_of(10)
    node.passes(2.0)

    node.limiter.usage("ada")

    assert 0 == node.admitted_of(10)


def test_another_key_gives_nothing_away() -> None:
    """A new key has old ones looked at, which does not give them their quota back."""
    node = Lone("10/minute")
    node.passes(59.0)
    node.admitted_of(10)
    node.passes(2.0)

    node.admits(key="bob")

    assert 0 == node.admitted_of(10)


def test_a_clock_set_back_within_a_window_gives_nothing_away() -> None:
    """A wall clock that goes back past an edge does not bring anything of the quota back."""
    node = Lone("10/minute")
    node.passes(61.0)
    node.admitted_of(10)

    node.clock.jump(-30.0)
    node.passes(30.0)

    assert 0 == node.admitted_of(10)
