"""The arithmetic of a window: when it ends, and what of its requests is a round trip."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconverge.shedding.adaptive.sample import (
    QUIET_NS,
    ROUND_TRIPS_MIN,
    WINDOW_NS_MAX,
    WINDOW_NS_MIN,
    Sample,
    SampleWindow,
)

MS = 10**6


def gathered(window: SampleWindow, ends_ms: list[int], took_ms: int, *, dropped: bool = False) -> list[Sample]:
    """All full windows, when requests end at these moments, each having taken so long beside four others."""
    found = (window.add(at * MS, took_ms * MS, 5, dropped=dropped) for at in ends_ms)
    return [each for each in found if each is not None]


def test_a_window_is_the_mean_of_what_was_served() -> None:
    """Of ten round trips of 10 ms and ten of 30 ms within a tenth of a second the sample has 20 ms."""
    window = SampleWindow()
    early = gathered(window, list(range(10)), 10)
    late = gathered(window, [*range(10, 19), 100], 30)

    assert [] == early
    assert [Sample(20 * MS, 5, dropped=False)] == late


def test_a_dropped_request_is_no_round_trip() -> None:
    """Timeouts of five seconds mark the window and leave its mean alone; where nothing was served, it is 0."""
    window = SampleWindow()
    gathered(window, list(range(10)), 10)
    (mixed,) = gathered(window, [100], 5000, dropped=True)
    (lost,) = gathered(window, [*range(200, 220), 300], 5000, dropped=True)

    assert Sample(10 * MS, 5, dropped=True) == mixed
    assert Sample(0, 5, dropped=True) == lost


def test_a_window_lasts_for_a_tenth_of_a_second() -> None:
    """With round trips enough it ends at 100 ms, and not a nanosecond before."""
    window = SampleWindow()
    gathered(window, list(range(20)), 10)

    assert window.add(WINDOW_NS_MIN - 1, 10 * MS, 1, dropped=False) is None
    assert window.add(WINDOW_NS_MIN, 10 * MS, 1, dropped=False) is not None


def test_a_window_lasts_for_two_round_trips() -> None:
    """With round trips of 200 ms it ends at 400 ms, and with such of ten seconds at one second."""
    for took_ns, ends_ns in ((200 * MS, 400 * MS), (10_000 * MS, WINDOW_NS_MAX)):
        window = SampleWindow()
        gathered(window, [0] * 20, took_ns // MS)

        assert window.add(ends_ns - 1, took_ns, 1, dropped=False) is None
        assert window.add(ends_ns, took_ns, 1, dropped=False) is not None


def test_a_window_has_ten_requests() -> None:
    """Nine in a second are none, and the tenth ends it."""
    window = SampleWindow()

    assert [] == gathered(window, [0] * (ROUND_TRIPS_MIN - 2) + [1000], 10)
    assert 1 == len(gathered(window, [1001], 10))


def test_what_is_too_old_is_thrown_away() -> None:
    """Nine requests in ten seconds are forgotten: nine more within a second do not make a window with them."""
    window = SampleWindow()
    gathered(window, [0] * (ROUND_TRIPS_MIN - 2) + [QUIET_NS // MS], 10)

    assert [] == gathered(window, list(range(10_001, 10_001 + ROUND_TRIPS_MIN - 1)), 10)


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 300 * MS), st.integers(1, 2000 * MS), st.integers(1, 50), st.booleans()), max_size=200
    )
)
def test_a_sample_is_within_what_was_measured(requests: list[tuple[int, int, int, bool]]) -> None:
    """Its round trip is between the shortest and the longest of what was served, and what ran is the most that ran."""
    window, now_ns = SampleWindow(), 0
    for passed_ns, took_ns, in_flight, dropped in requests:
        now_ns += passed_ns
        sample = window.add(now_ns, took_ns, in_flight, dropped=dropped)
        if sample is not None:
            served = [took for _, took, _, lost in requests if not lost]

            assert sample.in_flight <= max(each for _, _, each, _ in requests)
            assert not sample.round_trip_ns or min(served) <= sample.round_trip_ns <= max(served)
