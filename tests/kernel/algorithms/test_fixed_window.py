"""Goal: a fixed window counts from zero at each of its edges, by the wall clock.

Method: worked examples, and both sides of every edge.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from tests.support.kernel.lone import Lone, in_ns

MINUTE_NS = 60 * SECOND_NS


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


def test_quota_is_admitted_and_not_one_more() -> None:
    """A window takes its quota, whole."""
    assert 3 == three_a_minute().admitted_of(4)


def test_a_window_lasts_until_its_last_nanosecond() -> None:
    """The count is forgotten when the clock minute ends, and not a moment earlier."""
    node = three_a_minute()
    node.admitted_of(3)

    node.passes(ns=MINUTE_NS - 1)
    before = node.admits()
    node.passes(ns=1)
    after = node.admitted_of(4)

    assert (False, 3) == (before, after)


def test_windows_begin_on_the_clock_and_not_with_the_first_request() -> None:
    """A request one second before the minute ends belongs to that minute."""
    node = three_a_minute()
    node.passes(59.0)
    node.admitted_of(3)

    node.passes(1.0)

    assert 3 == node.admitted_of(4)


def test_twice_the_quota_can_pass_around_an_edge() -> None:
    """The known weakness: ten requests in a minute's last second and ten in the next one's first."""
    node = Lone("10/minute", algorithm="fixed-window")
    node.passes(59.0)
    before = node.admitted_of(11)

    node.passes(1.0)

    assert (10, 10) == (before, node.admitted_of(11))


def test_a_refusal_names_the_end_of_the_window() -> None:
    """`retry_after` and `reset_after` both say when the minute ends."""
    node = three_a_minute()
    node.passes(12.345)
    node.admitted_of(3)

    decision = node.hits()

    assert (MINUTE_NS - 12_345_000_000,) * 2 == (in_ns(decision.retry_after), in_ns(decision.reset_after))


def test_an_unused_window_has_nothing_to_reset() -> None:
    """A key that has used nothing is as good as new at once."""
    assert 0.0 == three_a_minute().limiter.test("ada").reset_after


@pytest.mark.parametrize(("cost", "admitted"), [(1, 10), (2, 5), (3, 3), (10, 1)])
def test_costs_add_up_to_the_quota_at_most(cost: int, admitted: int) -> None:
    """A cost that does not fit whole is refused whole."""
    node = Lone("10/minute", algorithm="fixed-window")

    assert admitted == node.admitted_of(11, cost=cost)


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
