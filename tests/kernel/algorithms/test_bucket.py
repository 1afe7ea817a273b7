"""Goal: a bucket drains steadily, to the nanosecond, and takes its burst at once.

Method: both sides of every moment that it names, for both of its names.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.limit import BUCKETS
from tests.support.kernel.lone import Lone, in_ns


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


def test_a_full_bucket_takes_one_more_when_one_has_drained(algorithm: str) -> None:
    """Three per minute are one every twenty seconds, and not a nanosecond earlier."""
    node = Lone("3/minute", algorithm=algorithm)
    at_once = node.admitted_of(4)

    node.passes(ns=20 * SECOND_NS - 1)
    before = node.admits()
    node.passes(ns=1)

    assert (3, False, 1) == (at_once, before, node.admitted_of(2))


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


def test_a_bucket_never_drains_below_empty(algorithm: str) -> None:
    """An hour without requests is worth one burst."""
    node = Lone("3/minute", algorithm=algorithm)
    node.admitted_of(3)

    node.passes(3600.0)

    assert 3 == node.admitted_of(10)


@pytest.mark.parametrize("seconds", [0.5, 0.500_000_001, 0.9, 5.0])
def test_time_that_passes_on_an_empty_bucket_is_not_saved_up(algorithm: str, seconds: float) -> None:
    """An empty bucket's idle time is not taken off what is poured in later."""
    node = Lone("10/s", algorithm=algorithm)
    node.admits(5)
    node.passes(seconds)
    node.admitted_of(5)

    assert 5 == node.admitted_of(10)


@pytest.mark.parametrize(
    ("cost", "wait_ns"),
    [(1, 142_857_143), (2, 285_714_286), (7, 1_000_000_000)],  # sevenths of a second, rounded up to the nanosecond
)
def test_a_refusal_names_the_moment_when_the_cost_has_drained(algorithm: str, cost: int, wait_ns: int) -> None:
    """Refused until then, admitted from then on."""
    node = Lone("7/s", algorithm=algorithm)
    node.admitted_of(7)

    told_ns = in_ns(node.hits(cost).retry_after)
    node.passes(ns=told_ns - 1)
    before = node.admits(cost)
    node.passes(ns=1)

    assert (wait_ns, False, True) == (told_ns, before, node.admits(cost))


def test_reset_after_is_when_the_bucket_has_run_dry(algorithm: str) -> None:
    """Something counts until the moment named, and nothing from then on."""
    node = Lone("7/s", algorithm=algorithm)
    node.admitted_of(3)
    reset_ns = in_ns(node.limiter.test("ada").reset_after)

    node.passes(ns=reset_ns - 1)
    before = node.limiter.usage("ada").own
    node.passes(ns=1)

    assert (428_571_429, 1, 0) == (reset_ns, before, node.limiter.usage("ada").own)


def test_asking_how_much_is_used_gives_nothing_away(algorithm: str) -> None:
    """Between requests, questions do not make room."""
    node = Lone("10/minute", algorithm=algorithm)
    admitted = 0

    for _ in range(20):
        admitted += node.admits()
        node.limiter.usage("ada")
        admitted += node.admitted_of(2)

    assert 10 == admitted


def test_a_bucket_that_is_reset_is_empty_from_that_moment_on(algorithm: str) -> None:
    """The drain of the time before a reset is not taken off what is poured in after it."""
    node = Lone("10/s", algorithm=algorithm)
    node.admitted_of(10)
    node.limiter.reset("ada")
    node.passes(0.5)

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
