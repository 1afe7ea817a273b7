"""Goal: a bucket knows how low it has been since any moment, in a bounded space.

Method: any series of levels, compared with the series itself.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconverge.kernel.history import LOWS_MAX, Lows

LEVELS = st.lists(st.integers(0, 50), min_size=1, max_size=30)


def noted(levels: list[int]) -> Lows:
    """A bucket that has come down to each of these levels in turn."""
    lows = Lows()
    for level in levels:
        lows.note(level)
    return lows


@given(levels=LEVELS, look=st.integers(0, 29))
def test_the_lowest_level_since_a_look_is_that_of_all_later_ones(levels: list[int], look: int) -> None:
    """For every look but the last, after which nothing was noted."""
    look = min(look, len(levels) - 1)

    assert min(levels[look:]) == noted(levels).since(look)


@given(levels=st.lists(st.integers(0, 10_000), min_size=LOWS_MAX, max_size=4 * LOWS_MAX).map(sorted))
def test_a_rising_bucket_is_remembered_on_the_safe_side(levels: list[int]) -> None:
    """When there is no room for every low, it is taken to have been lower than it was, and never higher."""
    lows = noted(levels)

    assert all(lows.since(look) <= min(levels[look:]) for look in range(len(levels)))


@given(levels=st.lists(st.integers(0, 10_000), max_size=4 * LOWS_MAX).map(sorted))
def test_what_is_remembered_is_bounded(levels: list[int]) -> None:
    """However the level goes."""
    assert len(noted(levels)._lows) <= LOWS_MAX


@given(levels=LEVELS, amount=st.integers(0, 60))
def test_what_is_given_back_lowers_what_has_been(levels: list[int], amount: int) -> None:
    """But not below dry."""
    lows = noted(levels)

    lows.lower(amount)

    assert max(0, min(levels) - amount) == lows.since(0)
