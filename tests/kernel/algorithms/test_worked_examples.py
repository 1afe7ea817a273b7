"""Goal: the algorithms answer as their definitions say, on the examples that texts about rate limiting explain them by.

Method: a lone node, and moments in minutes and seconds past noon. Where a text's own table says something else, the
docstring tells why.
"""

from __future__ import annotations

import pytest

from reconverge import Decision, Limit
from reconverge.limit import BUCKETS
from tests.support.kernel.lone import Lone

MOMENTS = [(0, 5), (0, 15), (1, 1), (1, 10), (1, 40), (1, 50), (2, 20)]
"""When somebody asks who may do so three times a minute."""
YES, NO = True, False


def answers(node: Lone) -> list[Decision]:
    said: list[Decision] = []
    for minutes, seconds in MOMENTS:
        node.at(minutes, seconds)
        said.append(node.hits())
    return said


def allowed(limit: Limit) -> list[bool]:
    """At which of those moments the answer is yes."""
    return [decision.allowed for decision in answers(Lone(limit))]


# ---------------------------------------------------------------- three requests a minute


def test_a_fixed_window_refuses_the_fourth_request_of_a_minute() -> None:
    """Two fall into the first minute, four into the second, one into the third."""
    assert [YES, YES, YES, YES, YES, NO, YES] == allowed(Limit(3, 60, algorithm="fixed-window"))


def test_a_log_refuses_when_three_requests_were_admitted_in_the_last_sixty_seconds() -> None:
    """At 12:01:10 the first is 65 s old; at 12:01:50 there are those of 12:01:01, :10 and :40."""
    assert [YES, YES, YES, YES, YES, NO, YES] == allowed(Limit(3, 60, algorithm="sliding-log"))


@pytest.mark.parametrize(("count_refused", "left"), [(False, 1), (True, 0)])
def test_a_log_that_counts_refused_requests_has_less_left_after_one(count_refused: bool, left: int) -> None:
    """At 12:02:20 the request of 12:01:50 still counts, though it was refused; published tables keep it, too."""
    said = answers(Lone(Limit(3, 60, algorithm="sliding-log", count_refused=count_refused)))

    assert [YES, YES, YES, YES, YES, NO, YES] == [decision.allowed for decision in said]
    assert left == said[-1].remaining


def test_slices_of_fifteen_seconds_refuse_when_the_last_four_hold_three() -> None:
    """At 12:01:01 the slice of 12:00:00 has gone, at 12:01:40 that of 12:00:15; at 12:01:50 none of the three has."""
    assert [YES, YES, YES, YES, YES, NO, YES] == allowed(Limit(3, 60, algorithm="sliding-slices", slices=4))


def test_a_weighted_tail_refuses_what_does_not_fit_in_whole() -> None:
    """At 12:01:10 it would make 2 x 5/6 + 2 = 3.7, so it is refused; and so it does not count later.

    The table that this comes from admits it and refuses only at 4.3: it rounds down, and counts refused requests.
    """
    assert [YES, YES, YES, NO, YES, NO, YES] == allowed(Limit(3, 60, algorithm="sliding-window"))


def test_a_leaky_bucket_of_three_refuses_nothing() -> None:
    """It drains by one in twenty seconds, so it never holds more than 1.55 with the request itself.

    The table that this comes from admits all as well. It drains in whole steps, at multiples of twenty seconds: there
    the bucket holds 1, 2, 1, 2, 1, 2 and 1.
    """
    node = Lone(Limit(3, 60, algorithm="leaky-bucket"))
    levels: list[int] = []

    for minutes, seconds in MOMENTS:
        node.at(minutes, seconds)
        assert node.admits()
        levels.append(node.limiter.usage("ada").own)

    assert [1, 2, 1, 2, 2, 2, 2] == levels  # 1, 1.5, 1, 1.55, 1.05, 1.55, 1.05, each rounded up


def test_who_goes_on_asking_a_log_that_counts_refused_requests_stays_out() -> None:
    """Once a second for five minutes brings three requests in all, and otherwise three a minute."""
    admitted: dict[bool, int] = {}
    for count_refused in (True, False):
        node = Lone(Limit(3, 60, algorithm="sliding-log", count_refused=count_refused))
        admitted[count_refused] = 0
        for _ in range(300):
            admitted[count_refused] += node.admits()
            node.passes(1.0)

    assert {True: 3, False: 15} == admitted


def test_who_pauses_for_a_window_is_let_in_again_by_a_log_that_counts_refused_requests() -> None:
    """A minute after the last attempt nothing counts; and when one more fits, the answer to that attempt has said."""
    node = Lone(Limit(3, 60, algorithm="sliding-log", count_refused=True))
    node.admitted_of(29)
    node.passes(1.0)
    last = node.hits()

    node.passes(60.0, ns=-1)
    before = node.limiter.test("ada", 3).allowed
    node.passes(ns=1)

    assert (False, True) == (before, node.limiter.test("ada", 3).allowed)
    assert 59.0 == last.retry_after  # when the attempts of a second before have gone


# ---------------------------------------------------------------- seven requests a minute


def test_seven_a_minute_with_five_before_and_three_at_thirty_percent() -> None:
    """The third request of this minute makes it 3 + 5 x 0.7 = 6.5 of seven, and is admitted; another would be 7.5.

    The book that this comes from rounds 6.5 down to six and lets one more through.
    """
    node = Lone("7/minute")
    node.admitted_of(5)
    node.passes(60.0)
    assert 2 == node.admitted_of(2)
    node.passes(18.0)

    assert [YES, NO] == [node.admits(), node.admits()]


# ---------------------------------------------------------------- what has been used of ten


def test_a_bucket_of_ten_shows_eight_used_after_fifteen_seconds() -> None:
    """Ten requests, and a token comes back every six seconds: two and a half by then, so 7.5 are used, and two left."""
    node = Lone("10/minute", algorithm="token-bucket")
    assert 10 == node.admitted_of(11)

    node.passes(15.0)

    assert 8 == node.limiter.usage("ada").total
    assert 2 == node.limiter.test("ada", 0).remaining


def test_three_slices_of_twenty_minutes_are_added_up() -> None:
    """Ten, twenty and thirty requests in the slices from 2:00 on: at 2:50 sixty count, at 3:00 the ten have gone."""
    node = Lone(Limit(100, 3600, algorithm="sliding-slices", slices=3))
    for minutes, requests in [(121, 10), (145, 20), (165, 30)]:
        node.at(minutes, 0)
        node.admitted_of(requests)

    used: list[int] = []
    for minutes, seconds in [(170, 0), (179, 59), (180, 0)]:
        node.at(minutes, seconds)
        used.append(node.limiter.usage("ada").total)

    assert [60, 60, 50] == used


def test_sixty_slices_of_an_hour_know_a_request_by_its_minute() -> None:
    """One of 13:44:58 counts with the minute of 13:44, and so until 14:44:00."""
    node = Lone(Limit(10, 3600, algorithm="sliding-slices", slices=60))
    node.at(104, 58)

    node.admits()

    assert 3542.0 == node.limiter.test("ada", 0).reset_after


# ---------------------------------------------------------------- twice the quota across an edge


def test_a_fixed_window_admits_twice_the_quota_within_a_hundred_milliseconds() -> None:
    """Ten per half second: ten at 0.4 s, and ten more at 0.5 s."""
    assert (10, 10) == before_and_after_an_edge(Limit(10, 0.5, algorithm="fixed-window"))


@pytest.mark.parametrize(
    "limit",
    [
        Limit(10, 0.5, algorithm="sliding-window"),
        Limit(10, 0.5, algorithm="sliding-slices"),
        Limit(10, 0.5, algorithm="sliding-log"),
        Limit(10, 0.5, algorithm="sliding-log", count_refused=True),
    ],
    ids=str,
)
def test_nothing_that_slides_admits_twice_the_quota_across_an_edge(limit: Limit) -> None:
    """Use before the edge is not forgotten there."""
    assert (10, 0) == before_and_after_an_edge(limit)


def before_and_after_an_edge(limit: Limit) -> tuple[int, int]:
    """How many of eleven requests are admitted a hundred milliseconds before an edge, and how many of eleven at it."""
    node = Lone(limit)
    node.passes(0.4)
    before = node.admitted_of(11)
    node.passes(0.1)
    return before, node.admitted_of(11)


# ---------------------------------------------------------------- the three names of a bucket


def test_the_three_names_of_a_bucket_say_the_same() -> None:
    """A leaky bucket is a token bucket seen from above, and gcra knows when it will be empty."""
    said: dict[str, list[Decision]] = {}
    for algorithm in BUCKETS:
        node = Lone("10/minute burst 9", algorithm=algorithm)
        said[algorithm] = []
        for _ in range(4):
            said[algorithm].append(node.hits(4))
            node.passes(7.0)

    assert said["token-bucket"] == said["gcra"] == said["leaky-bucket"]
    assert {True, False} == {decision.allowed for decision in said["leaky-bucket"]}
