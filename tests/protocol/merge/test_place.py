"""Goal: the hub puts a cell where it belongs in time, whatever nodes say and however late.

Method: each case of the three ways to lay out windows, on both sides of its edge, and properties over all.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.hub.report import LimitReport
from reconverge_sync.merge.windows import calendar_epoch, first_hit_epoch, same_window

UNIFORM = LimitReport("x", "fixed-window", 1000, 1, 1, 0, 0, 0)
FIRST_HIT = UNIFORM._replace(variant="first-hit")
CALENDAR = UNIFORM._replace(window=7, opens_us=5000, closes_us=6000)


@pytest.mark.parametrize(
    ("hub_us", "told", "known", "epoch"),
    [
        (5000, 7, None, 7),
        (5999, 7, 7, 7),
        (5999, 8, 7, 8),  # slightly ahead
        (4999, 7, 6, 7),  # likewise, by its own calendar
        (4999, 6, 6, 6),
        (4000, 6, None, 6),
        (6000, 7, 7, 8),  # the window has ended on the way
        (6000, 7, None, 8),
        (99_999, 7, 10, 10),  # a message from long ago turns nothing back
        (99_999, 7, None, 8),
        (3999, 7, 2, 2),  # a clock that is far ahead turns nothing on
        (3999, 6, None, 6),
        (5500, 7, 9, 7),  # a window that the hub is in for certain is believed, wherever the cell was
    ],
)
def test_a_calendar_is_taken_from_the_nodes_as_far_as_the_hubs_clock_bears_it_out(
    hub_us: int, told: int, known: int | None, epoch: int
) -> None:
    """The hub itself knows of no calendar."""
    assert epoch == calendar_epoch(CALENDAR, hub_us, told, known)


@pytest.mark.parametrize(
    ("hub_us", "told", "known", "asked", "epoch"),
    [
        (10_000, -1, -1, False, -1),  # nothing is open
        (10_000, -1, -1, True, 10_000),  # what could not be admitted opens a window
        (10_000, 9500, -1, False, 9500),  # a node's window is the hub's
        (10_000, 9000, -1, False, -1),  # but not once it is over
        (10_000, 9001, -1, False, 9001),
        (10_000, 10_200, -1, False, 10_000),  # none has begun later than now
        (10_000, 9500, 9400, False, 9400),  # the first one stays
        (10_000, -1, 9001, True, 9001),
        (10_000, -1, 9000, False, -10_000),  # until it is over
        (10_000, 9500, 9000, False, 10_000),  # and the next does not begin before that
        (10_200, 9500, -10_000, False, 10_000),
        (10_500, 10_300, 9000, False, 10_300),
        (9995, 10_000, 9000, False, 10_000),  # a clock slightly ahead
        (10_000, 9500, 50_000, False, 9500),  # the hub's clock has gone back
    ],
)
def test_windows_begin_with_first_hits(hub_us: int, told: int, known: int, asked: bool, epoch: int) -> None:
    """The nodes' word for it, within the hub's bounds."""
    assert epoch == first_hit_epoch(FIRST_HIT, hub_us, told, known, asked=asked)


@given(
    st.lists(
        st.tuples(st.integers(0, 1500), st.integers(-1100, 1100) | st.none(), st.booleans()), min_size=1, max_size=60
    )
)
def test_no_two_windows_of_a_cell_begin_within_one_windows_length(steps: list[tuple[int, int | None, bool]]) -> None:
    """Nodes may report any; and each window lasts as long as it should."""
    hub_us, known = 1_000_000, -1
    opened: list[int] = []
    for pause_us, offset_us, asked in steps:
        hub_us += pause_us
        told = -1 if offset_us is None else hub_us + offset_us
        before, known = known, first_hit_epoch(FIRST_HIT, hub_us, told, known, asked=asked)
        assert before < 0 or before == known or hub_us >= before + 1000 or told >= before + 1000
        if known >= 0 and known not in opened:
            opened.append(known)

    assert all(later - earlier >= 1000 for earlier, later in pairwise(opened))


@pytest.mark.parametrize(
    ("one", "other", "same"), [(-1, -5, True), (-1, 0, False), (0, 999, True), (0, 1000, False), (1000, 1, True)]
)
def test_windows_that_overlap_are_the_same(one: int, other: int, same: bool) -> None:
    """And so are two times of none."""
    assert same == same_window(FIRST_HIT, one, other)
    assert same == same_window(FIRST_HIT, other, one)
