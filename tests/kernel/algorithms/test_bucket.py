"""Goal: a bucket drains steadily, to the nanosecond, and takes its burst at once.

Method: both sides of every moment that it names, for both of its names.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.limit import BUCKETS
from tests.support.kernel.lone import Lone


@pytest.fixture(params=BUCKETS)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each name of the bucket in turn."""
    name: str = request.param
    return name


def test_the_worked_example_of_a_bucket_of_three_and_one_per_twenty_seconds(algorithm: str) -> None:
    """Requests that come more slowly than the bucket drains, burst by burst, are all admitted."""
    node = Lone("3/minute", algorithm=algorithm)
    answers: list[bool] = []

    for minutes, seconds in [(0, 5), (0, 15), (1, 1), (1, 10), (1, 40), (1, 50), (2, 20)]:
        node.at(minutes, seconds)
        answers.append(node.admits())

    assert [True] * 7 == answers


@pytest.mark.parametrize(("text", "at_once"), [("10/s burst 20", 20), ("10/s burst 1", 1), ("10/s", 10)])
def test_the_burst_is_what_is_taken_at_once(algorithm: str, text: str, at_once: int) -> None:
    """A burst larger or smaller than the quota is the size of the bucket; without one that is the quota."""
    assert at_once == Lone(text, algorithm=algorithm).admitted_of(30)


def test_the_burst_does_not_change_the_pace(algorithm: str) -> None:
    """However large the bucket, it drains by the quota per window."""
    node = Lone("10/s burst 20", algorithm=algorithm)
    node.admitted_of(20)

    node.passes(1.0)

    assert 10 == node.admitted_of(20)


def test_the_largest_quota_over_the_longest_window_is_exact(algorithm: str) -> None:
    """No part of the arithmetic runs out of digits."""
    node = Lone(Limit(10**12, 3660 * 86_400, algorithm=algorithm))
    everything = node.admits(10**12)
    per_second = 10**12 // (3660 * 86_400)

    node.passes(1.0)

    assert (True, True, False) == (everything, node.admits(per_second), node.admits())


def test_the_wall_clock_is_of_no_interest_to_a_bucket(algorithm: str) -> None:
    """A bucket drains by time that passes, whatever an operator does to the clock on the wall."""
    node = Lone("3/minute", algorithm=algorithm)
    node.admitted_of(3)

    node.clock.jump(3600.0)
    ahead = node.admits()
    node.clock.jump(-7200.0)
    behind = node.admits()
    node.passes(20.0)

    assert (False, False, 1) == (ahead, behind, node.admitted_of(2))
