"""The arithmetic of the adaptive limits, and the failings that other implementations are known for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.errors import InvalidSetting
from reconverge.shedding import Aimd, Gradient2, Vegas
from reconverge.shedding.adaptive.algorithms import PROBE_WINDOWS, Algorithm
from reconverge.shedding.adaptive.sample import Sample
from tests.support.shed import window

ALL = (Aimd, Vegas, Gradient2)
samples = st.builds(
    Sample,
    st.integers(min_value=0, max_value=60 * 10**9),
    st.integers(min_value=0, max_value=2000),
    st.booleans(),
)


def after(algorithm: Algorithm, *windows: Sample) -> int:
    for each in windows:
        algorithm.update(each)
    return algorithm.limit


@pytest.mark.parametrize("kind", ALL)
class TestAll:
    """Claims about each of the three."""

    @given(windows=st.lists(samples, max_size=300))
    def test_the_limit_stays_between_its_ends(
        self, kind: type[Aimd | Vegas | Gradient2], windows: list[Sample]
    ) -> None:
        """A limit is from its least to its most, with any measurements."""
        algorithm = kind(initial=10, min_limit=3, max_limit=50)

        for each in windows:
            assert 3 <= algorithm.update(each) <= 50

    @given(windows=st.lists(st.integers(min_value=1, max_value=10**9), max_size=300))
    def test_it_does_not_grow_without_load(self, kind: type[Aimd | Vegas | Gradient2], windows: list[int]) -> None:
        """Windows in which less than half the limit ran never raise it, however short their round trips are."""
        algorithm = kind(initial=20)

        for round_trip_ns in windows:
            assert 20 >= algorithm.update(Sample(round_trip_ns, 9))

    def test_it_grows_under_load(self, kind: type[Aimd | Vegas | Gradient2]) -> None:
        """With all of the limit running and no queue the limit rises."""
        algorithm = kind(initial=20)

        assert 20 < after(algorithm, *[window(50, 20)] * 5)

    def test_timeouts_lower_it_to_the_least(self, kind: type[Aimd | Vegas | Gradient2]) -> None:
        """Requests that all time out, after the same time, have the limit fall as far as it may."""
        algorithm = kind(initial=100, min_limit=2)

        assert 2 == after(algorithm, window(50, 80), *[window(0, 100, dropped=True)] * 100)

    def test_it_leaves_a_plateau_of_timeouts(self, kind: type[Aimd | Vegas | Gradient2]) -> None:
        """When a service that timed out answers again, the limit rises: timeouts have not become its normal time."""
        algorithm = kind(initial=20, min_limit=2)
        after(algorithm, *[window(50, 20)] * 5, *[window(0, 20, dropped=True)] * 300)

        for _ in range(60):
            algorithm.update(window(50, algorithm.limit))

        assert 10 < algorithm.limit

    def test_a_timeout_is_no_round_trip(self, kind: type[Aimd | Vegas | Gradient2]) -> None:
        """A window of nothing but drops leaves the baseline as it is, also in a probe."""
        algorithm = kind(initial=20)
        after(algorithm, *[window(50, 20)] * (PROBE_WINDOWS + 3))
        baseline = getattr(algorithm, "baseline", None)
        before = baseline and baseline.round_trip_ns

        after(algorithm, *[window(0, 20, dropped=True)] * 300)

        assert before == (baseline and baseline.round_trip_ns)

    @pytest.mark.parametrize("initial", [0, -1, 1.5, True, "20", 10**9])
    def test_an_initial_limit_that_is_none_is_told(self, kind: type[Aimd | Vegas | Gradient2], initial: int) -> None:
        """A limit that is no whole number of at least one is an error that names it."""
        with pytest.raises(InvalidSetting, match="initial"):
            kind(initial=initial)

    def test_ends_in_the_wrong_order_are_told(self, kind: type[Aimd | Vegas | Gradient2]) -> None:
        """An initial limit beyond the most is an error that says what the ends are."""
        with pytest.raises(InvalidSetting, match="min_limit=1 to max_limit=10"):
            kind(initial=20, max_limit=10)


class TestAimd:
    """Additive increase, multiplicative decrease."""

    def test_it_adds_one_and_takes_a_tenth(self) -> None:
        """The publication has it so: one more after a window without drops, nine tenths after one with."""
        assert 21 == after(Aimd(initial=20), window(50, 20))
        assert 90 == after(Aimd(initial=100), window(50, 100, dropped=True))

    def test_a_round_trip_beyond_the_timeout_is_a_drop(self) -> None:
        """A window that took longer than the timeout lowers the limit, and one that took just as long raises it."""
        assert 101 == after(Aimd(initial=100, timeout=0.2), window(200, 100))
        assert 90 == after(Aimd(initial=100, timeout=0.2), window(200.001, 100))

    def test_half_the_limit_is_load_enough(self) -> None:
        """With 10 of 20 running it grows, with 9 it does not."""
        assert 21 == after(Aimd(initial=20), window(50, 10))
        assert 20 == after(Aimd(initial=20), window(50, 9))


class TestVegas:
    """By the length of the queue."""

    @pytest.mark.parametrize(
        ("round_trip", "limit"),
        [(50, 112), (51, 112), (52.5, 102), (53, 102), (53.2, 100), (56, 100), (59, 98), (500, 98)],
    )
    def test_it_goes_by_the_length_of_the_queue(self, round_trip: float, limit: int) -> None:
        """The publication has, at 100: +12 up to a queue of 2, +2 below 6, nothing up to 12, and -2 beyond."""
        assert limit == after(Vegas(initial=100), window(50, 1), window(round_trip, 100))


class TestGradient2:
    """By the ratio of round trips."""

    def test_a_gradient_of_one_adds_a_fifth_of_the_queue(self) -> None:
        """The publication has it so: with room for 4 and a smoothing of 0.2, five windows without a queue add 4."""
        algorithm = Gradient2(initial=100)
        after(algorithm, *[window(50, 100)] * 5)

        assert 104 == round(algorithm._exact, 9)

    def test_the_gradient_is_one_half_at_least(self) -> None:
        """The publication has it so: however long round trips are, a window takes a tenth of the limit at most."""
        assert 90 == after(Gradient2(initial=100), window(50, 1), window(50_000, 100))

    @given(limit=st.integers(min_value=5, max_value=1000))
    def test_a_gradient_near_four_fifths_never_grows(self, limit: int) -> None:
        """A steady gradient of 0.8 lowers every limit: the room for a queue does not outgrow it (#134)."""
        algorithm = Gradient2(initial=limit)
        algorithm.update(window(80, 1))

        before = float(limit)
        for _ in range(20):
            if algorithm.baseline.probing:
                break
            algorithm.update(window(150, 1000))
            assert before > algorithm._exact
            before = algorithm._exact

    @given(
        limit=st.integers(min_value=1, max_value=1000),
        base=st.integers(min_value=1, max_value=1000),
        longer=st.floats(min_value=1, max_value=100),
    )
    def test_one_window_moves_it_by_what_is_published(self, limit: int, base: int, longer: float) -> None:
        """A window never adds more than a fifth of the queue, and never takes more than a tenth of the limit."""
        algorithm = Gradient2(initial=limit)
        algorithm.update(window(base, 0))
        algorithm.update(window(base * longer, limit))

        assert max(1, 0.9 * limit) - 1e-9 <= algorithm._exact <= limit + 0.8 + 1e-9

    @pytest.mark.parametrize(
        "settings", [{"tolerance": 0.9}, {"queue": 0}, {"smoothing": 0.0}, {"smoothing": 1.1}, {"probe_windows": 1}]
    )
    def test_settings_that_make_no_sense_are_told(self, settings: dict[str, float]) -> None:
        """A setting out of range is an error that names it."""
        with pytest.raises(InvalidSetting, match=next(iter(settings))):
            Gradient2(**settings)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("kind", [Vegas, Gradient2])
class TestBaseline:
    """The round trip without a queue."""

    def test_a_probe_lowers_the_limit_for_two_windows(self, kind: type[Vegas | Gradient2]) -> None:
        """After so many windows the limit is seven eighths for two windows, and then what it was."""
        algorithm = kind(initial=100, max_limit=100, probe_windows=10)
        limits = [algorithm.update(window(50, 100)) for _ in range(13)]

        assert [100] * 9 + [88, 88] + [100, 100] == limits

    def test_a_probe_lowers_what_runs_and_not_what_is_left_free(self, kind: type[Vegas | Gradient2]) -> None:
        """Where requests are refused at 40 of 100, because the rest is left free, 5 of those 40 are taken away."""
        algorithm = kind(initial=100, max_limit=100, probe_windows=10)
        limits = [algorithm.update(window(50, 100, full_at=40)) for _ in range(11)]

        assert [100, 95, 95] == limits[-3:]

    def test_what_is_left_free_shrinks_with_the_queue(self, kind: type[Vegas | Gradient2]) -> None:
        """During a probe the scale is the round trip without a queue over that before the probe; it is 1 otherwise."""
        algorithm = kind(initial=100, max_limit=100, probe_windows=10)
        after(algorithm, *[window(50, 10)] * 9)
        assert 1.0 == algorithm.probe_scale

        algorithm.update(window(100, 10))
        assert 0.5 == algorithm.probe_scale
        after(algorithm, window(100, 10), window(50, 10))
        assert 1.0 == algorithm.probe_scale

    def test_a_slower_service_is_known_after_some_probes(self, kind: type[Vegas | Gradient2]) -> None:
        """Round trips that are three times as long without a queue become the baseline, and the limit recovers."""
        algorithm = kind(initial=20, min_limit=2, probe_windows=20)
        after(algorithm, *[window(50, 20)] * 30)
        for _ in range(400):
            algorithm.update(window(150, algorithm.limit))

        assert algorithm.baseline.round_trip_ns > 140_000_000
        assert algorithm.limit > 20

    def test_a_slower_service_is_probed_again_soon(self, kind: type[Vegas | Gradient2]) -> None:
        """A probe that is twice as slow as what was known is followed by another after a tenth of the windows."""
        algorithm = kind(initial=100, max_limit=100, probe_windows=100)
        after(algorithm, *[window(50, 1)] * 99)
        probing = []
        for _ in range(40):
            algorithm.update(window(100, 1))
            probing.append(algorithm.baseline.probing)

        begins = [at for at in range(1, 40) if probing[at] and not probing[at - 1]]
        assert [12, 24] == begins[:2]
        assert algorithm.baseline.round_trip_ns > 85_000_000

    def test_a_quicker_service_is_known_at_once(self, kind: type[Vegas | Gradient2]) -> None:
        """Shorter round trips lower the baseline without a probe."""
        algorithm = kind(initial=20)
        after(algorithm, *[window(100, 20)] * 3, *[window(50, 20)] * 20)

        assert algorithm.baseline.round_trip_ns < 51_000_000
