"""Goal: a wall clock that jumps gives nothing of a quota out again, and no key waits until it is right.

Method: a lone node by each algorithm, and both sides of every edge.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.limit import BUCKETS
from tests.support.kernel.lone import Lone

SLICES = Limit(10, 60, algorithm="sliding-slices", slices=6)
"""Of ten seconds each."""


@pytest.mark.parametrize(
    ("limit", "passes_s", "jump_s"),
    [
        (Limit(3, 60, algorithm="fixed-window"), 61.0, -30.0),
        (Limit(10, 60, algorithm="sliding-window"), 61.0, -30.0),
        (SLICES, 45.0, -40.0),
    ],
    ids=["fixed-window", "sliding-window", "sliding-slices"],
)
def test_a_clock_set_back_within_a_window_gives_nothing_away(limit: Limit, passes_s: float, jump_s: float) -> None:
    """A window or slice that is open waits for the clock, which does not bring anything of the quota back."""
    node = Lone(limit)
    node.passes(passes_s)
    node.admitted_of(limit.quota)

    node.clock.jump(jump_s)
    node.passes(-jump_s if limit is not SLICES else 60.0)

    assert 0 == node.admitted_of(limit.quota)


@pytest.mark.parametrize(
    ("limit", "price_s"),
    [(Limit(3, 60, algorithm="fixed-window"), 60.0), (SLICES, 10.0)],
    ids=["fixed-window", "sliding-slices"],
)
def test_a_clock_set_back_by_hours_is_followed_at_the_price_of_one_window(limit: Limit, price_s: float) -> None:
    """Or of the slice that is open: nothing waits for an hour."""
    node = Lone(limit)
    node.admitted_of(limit.quota)
    node.clock.jump(-7200.0)

    node.passes(price_s)

    assert limit.quota == node.admitted_of(limit.quota + 1)


def test_a_clock_set_forward_begins_the_window_that_it_names() -> None:
    """Once the window that had begun is over by either clock, windows follow the wall clock again."""
    node = Lone("3/minute", algorithm="fixed-window")
    node.admitted_of(3)
    node.clock.jump(30.0)
    node.passes(60.0)
    in_the_second_half = node.admitted_of(4)

    node.passes(30.0)

    assert (3, 3) == (in_the_second_half, node.admitted_of(4))


@pytest.mark.parametrize("jump_s", [-3600.0, -40.0, 40.0, 3600.0])
@pytest.mark.parametrize("algorithm", ["sliding-log", *BUCKETS])
def test_a_log_or_a_bucket_does_not_care_what_time_it_is(algorithm: str, jump_s: float) -> None:
    """Only the time that has passed counts, also when an operator sets the wall clock."""
    node = Lone(Limit(10, 60, algorithm=algorithm))
    node.admitted_of(10)
    node.clock.jump(jump_s)
    first_s = 60.0 if algorithm == "sliding-log" else 6.0

    node.passes(first_s, ns=-1)
    before = node.admits()
    node.passes(ns=1)

    assert (False, 10 if algorithm == "sliding-log" else 1) == (before, node.admitted_of(11))
