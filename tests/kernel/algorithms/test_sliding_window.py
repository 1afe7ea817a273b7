"""Goal: a sliding window counts of the window before as much as is still in sight.

Method: worked examples, and both sides of every edge.
"""

from __future__ import annotations

from tests.support.kernel.lone import Lone


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


def test_a_clock_set_back_within_a_window_gives_nothing_away() -> None:
    """A wall clock that goes back past an edge does not bring anything of the quota back."""
    node = Lone("10/minute")
    node.passes(61.0)
    node.admitted_of(10)

    node.clock.jump(-30.0)
    node.passes(30.0)

    assert 0 == node.admitted_of(10)
