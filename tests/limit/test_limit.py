"""Goal: a limit is what it says, and says what it is.

Method: every field at both ends of its range, and beyond; what a limit writes of itself is read back.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconverge import InvalidLimit, Limit
from reconverge.limit import (
    ALGORITHMS,
    BUCKETS,
    BURSTING,
    LOG_QUOTA_MAX,
    QUOTA_MAX,
    SLICES,
    SLICES_MAX,
    SMOOTH_BURSTY,
    SMOOTH_WARMING_UP,
)
from reconverge.limit.checks import NAME_LENGTH_MAX, check_name
from tests.support.kernel.odd import HUGE, named

TEN_YEARS_S = 3660 * 86_400


@pytest.mark.parametrize("quota", [0, 1, 2, QUOTA_MAX])
def test_a_quota_is_a_whole_number_from_zero_to_a_million_millions(quota: int) -> None:
    """Both ends are included."""
    assert quota == Limit(quota, 60).capacity


@pytest.mark.parametrize("window_s", [0.001, 1, 1.5, TEN_YEARS_S, float(TEN_YEARS_S)])
def test_a_window_lasts_from_a_millisecond_to_ten_years(window_s: float) -> None:
    """Both ends are included; it is a whole number of microseconds, as the hub counts those."""
    assert round(window_s * 1_000_000) * 1000 == Limit(1, window_s).window_ns


@pytest.mark.parametrize("algorithm", BUCKETS)
@pytest.mark.parametrize("burst", [1, 7, QUOTA_MAX])
def test_a_burst_is_the_capacity_of_a_bucket(algorithm: str, burst: int) -> None:
    """Whether it is smaller than the quota or larger."""
    assert burst == Limit(7, 60, algorithm=algorithm, burst=burst).capacity


def test_a_window_is_divided_into_ten_slices_unless_one_says_otherwise() -> None:
    """To say so is to say the same limit."""
    limit = Limit(7, 60, algorithm="sliding-slices")

    assert SLICES == 10 == limit.slices
    assert Limit(7, 60, algorithm="sliding-slices", slices=10) == limit == Limit.parse("7/minute", slices=10)


@pytest.mark.parametrize("slices", [1, 2, SLICES_MAX])
def test_a_window_has_up_to_a_thousand_slices(slices: int) -> None:
    """A single one is a fixed window."""
    limit = Limit(7, 60, algorithm="sliding-slices", slices=slices)

    assert (slices, "fixed-window" if slices == 1 else "sliding-slices") == (limit.slices, limit.counts_as)


def test_a_log_keeps_up_to_a_hundred_thousand_charges() -> None:
    """The error says what to take instead."""
    assert LOG_QUOTA_MAX == Limit(LOG_QUOTA_MAX, 60, algorithm="sliding-log").quota
    with pytest.raises(InvalidLimit, match="admits at most 100000, not 100001; use sliding-slices"):
        Limit(LOG_QUOTA_MAX + 1, 60, algorithm="sliding-log")


@pytest.mark.parametrize(
    ("text", "asked_for", "means"),
    [
        ("7/minute", None, "sliding-window"),
        ("7/minute burst 9", None, "token-bucket"),
        ("7/minute burst 9", "gcra", "gcra"),
        ("7/minute", "gcra", "gcra"),
        ("7/minute", "fixed-window", "fixed-window"),
        ("7/minute burst 9", "leaky-bucket", "leaky-bucket"),
        ("7/minute", "sliding-log", "sliding-log"),
    ],
)
def test_which_algorithm_a_text_means(text: str, asked_for: str | None, means: str) -> None:
    """A sliding window, unless it has a burst or one says otherwise."""
    assert means == Limit.parse(text, algorithm=asked_for).algorithm


def test_a_text_and_its_numbers_are_the_same_limit() -> None:
    """Whole seconds and parts of them are the same numbers."""
    assert Limit(7, 60.0, algorithm="gcra", burst=9, name="api") == Limit.parse("7/m burst 9 as api", algorithm="gcra")


@pytest.mark.parametrize(
    ("limit", "written"),
    [
        (Limit(100, 60), "100/60s (sliding-window)"),
        (Limit(1, 30 * 86_400), "1/2592000s (sliding-window)"),
        (Limit(7, 1_234_567), "7/1234567s (sliding-window)"),
        (Limit(7, 0.5, algorithm="gcra", burst=9), "7/500ms burst 9 (gcra)"),
        (Limit(7, 1.5, algorithm="fixed-window"), "7/1500ms (fixed-window)"),
        (Limit(7, 0.001_5), "7/0.0015s (sliding-window)"),
        (Limit(7, 60, algorithm="sliding-slices"), "7/60s (sliding-slices, 10 slices)"),
        (Limit(7, 60, algorithm="sliding-log"), "7/60s (sliding-log)"),
        (Limit(7, 60, algorithm="sliding-log", count_refused=True), "7/60s (sliding-log, refused ones counted)"),
    ],
)
def test_a_limit_is_written_out_in_full(limit: Limit, written: str) -> None:
    """No digit is left out, however long the window."""
    assert written == str(limit)


def test_what_a_second_stores_has_a_bound() -> None:
    """By default a smooth-bursty limit stores a second's worth, which may be too much where the quota is not."""
    assert QUOTA_MAX == Limit(QUOTA_MAX // 1000, 0.001, algorithm=SMOOTH_BURSTY).capacity
    with pytest.raises(InvalidLimit, match="one second stores more than 1000000000000 permits; give a burst"):
        Limit(QUOTA_MAX // 1000 + 1, 0.001, algorithm=SMOOTH_BURSTY)


@given(
    quota=st.integers(1, QUOTA_MAX),
    window_ms=st.integers(1, TEN_YEARS_S * 1000) | st.integers(1, TEN_YEARS_S).map(lambda seconds: seconds * 1000),
    algorithm=st.sampled_from(ALGORITHMS),
    burst=st.none() | st.integers(1, QUOTA_MAX),
    warmup_ms=st.integers(1, TEN_YEARS_S * 1000),
)
def test_what_a_limit_writes_is_read_back(
    quota: int, window_ms: int, algorithm: str, burst: int | None, warmup_ms: int
) -> None:
    """Any limit whose window is a whole number of milliseconds."""
    quota = min(quota, LOG_QUOTA_MAX) if algorithm == "sliding-log" else quota
    warmup = warmup_ms / 1000 if algorithm == SMOOTH_WARMING_UP else None
    assume(warmup is None or quota * warmup_ms <= QUOTA_MAX * window_ms)
    burst = burst if algorithm in BURSTING else None
    assume(algorithm != SMOOTH_BURSTY or burst is not None or quota * 1000 <= QUOTA_MAX * window_ms)
    limit = Limit(quota, window_ms / 1000, algorithm=algorithm, burst=burst, warmup=warmup)

    text, _, said = str(limit).partition(" (")
    again = Limit.parse(text, algorithm=said.rstrip(")").partition(",")[0], slices=limit.slices)

    alike = None if warmup is None else 1
    assert (limit.window_ns, limit.warmup_ns) == (again.window_ns, again.warmup_ns)
    assert replace(limit, window=1, warmup=alike) == replace(again, window=1, warmup=alike)


@pytest.mark.parametrize(
    ("limit", "as_fast"),
    [
        (Limit(7, 60), Limit(7, 30)),
        (Limit(7, 60, algorithm="gcra", burst=3), Limit(7, 30, algorithm="gcra", burst=3)),
        (Limit(7, 2, algorithm="smooth-bursty"), Limit(7, 1, algorithm="smooth-bursty", burst=3)),
        (Limit.parse("7/m warmup 8s"), Limit.parse("7/30s warmup 4s")),
    ],
    ids=str,
)
def test_a_limit_twice_as_fast(limit: Limit, as_fast: Limit) -> None:
    """Takes half the time for everything, and admits as much at once."""
    assert as_fast == limit.over(limit.window / 2)


@pytest.mark.parametrize("name", ["a", "A-Za_z0.9/x", "n" * NAME_LENGTH_MAX])
def test_a_name_is_made_of_letters_digits_and_four_marks(name: str) -> None:
    """Up to 64 of them."""
    assert name == check_name(name)


@pytest.mark.parametrize(
    ("name", "position"),
    [("", None), ("n" * (NAME_LENGTH_MAX + 1), None), ("a b", 1), ("é", 0), ("ab{c}", 2), ("a\n", 1), ("a:b", 1)],
)
def test_any_other_name_is_refused(name: str, position: int | None) -> None:
    """It becomes part of the hub's keys and of metric labels; the error says which character does not go."""
    with pytest.raises(InvalidLimit, match="a limit's name") as caught:
        check_name(name)

    assert position == caught.value.position


@pytest.mark.parametrize("name", [None, 7, b"api", ["api"], HUGE], ids=named)
def test_a_name_that_is_no_string_is_refused(name: object) -> None:
    """With the type that it is."""
    with pytest.raises(InvalidLimit, match=f"is a string, not {type(name).__name__}"):
        check_name(name)
