"""Goal: a fixed window counts from zero at each of its edges, by the wall clock.

Method: worked examples, and both sides of every edge.
"""

from __future__ import annotations

from tests.support.kernel.lone import Lone


def three_a_minute() -> Lone:
    """Three requests per minute, from noon on."""
    return Lone("3/minute", algorithm="fixed-window")


def test_the_worked_example_of_three_requests_a_minute() -> None:
    """The fourth request within one clock minute is refused, and the next minute starts afresh."""
    node = three_a_minute()
    answers: list[bool] = []

    for minutes, seconds in [(0, 5), (0, 15), (1, 1), (1, 10), (1, 40), (1, 50), (2, 20)]:
        node.at(minutes, seconds)
        answers.append(node.admits())

    assert [True, True, True, True, True, False, True] == answers


def test_twice_the_quota_can_pass_around_an_edge() -> None:
    """The known weakness: ten requests in a minute's last second and ten in the next one's first."""
    node = Lone("10/minute", algorithm="fixed-window")
    node.passes(59.0)
    before = node.admitted_of(11)

    node.passes(1.0)

    assert (10, 10) == (before, node.admitted_of(11))


def test_a_clock_set_back_within_a_window_lets_the_window_wait_for_it() -> None:
    """A wall clock that goes back past an edge does not give the old window's quota out again."""
    node = three_a_minute()
    node.passes(61.0)
    node.admitted_of(3)

    node.clock.jump(-30.0)
    node.passes(30.0)

    assert 0 == node.admitted_of(3)


def test_a_clock_set_back_by_more_is_followed_at_the_price_of_one_window() -> None:
    """A key is never refused until a wall clock that was wrong by hours has caught up with itself."""
    node = three_a_minute()
    node.admitted_of(3)
    node.clock.jump(-7200.0)

    node.passes(60.0)

    assert 3 == node.admitted_of(4)


def test_a_clock_set_forward_begins_the_window_that_it_names() -> None:
    """Once the window that had begun is over by either clock, windows follow the wall clock again."""
    node = three_a_minute()
    node.admitted_of(3)
    node.clock.jump(30.0)
    node.passes(60.0)
    in_the_second_half = node.admitted_of(4)

    node.passes(30.0)

    assert (3, 3) == (in_the_second_half, node.admitted_of(4))
