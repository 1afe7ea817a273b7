"""Which class loses how much, and how evenly."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.shedding.worker.ladder import Dither, Ladder

FOUR = (10, 20, 30, 40)


def laddered(*counts: int) -> Ladder:
    """A ladder that has seen this mix for a while."""
    ladder = Ladder(len(counts))
    for _ in range(100):
        ladder.arrived(counts, 0.1)
    return ladder


def deal(ladder: Ladder, rejected: float, seconds: float, *, pressed: bool = True) -> list[float]:
    """The classes' fractions, in whole percent, after so long with one fraction of all, as far as the ceiling lets."""
    for _ in range(round(seconds / 0.1)):
        ladder.deal(min(rejected, ladder.ceiling()), 0.1, pressed=pressed)
    return [round(100 * each) for each in ladder.fractions]


def test_the_least_important_class_goes_first() -> None:
    """A fifth of all is half of the last class, which sends two fifths."""
    assert [0, 0, 0, 50] == deal(laddered(*FOUR), 0.2, 5)


def test_the_next_class_waits_for_a_second() -> None:
    """More than the last class sends is shed of the next one only after the last has been shed for a second."""
    ladder = laddered(*FOUR)

    assert [0, 0, 0, 100] == deal(ladder, 0.55, 0.9)
    assert [0, 0, 50, 100] == deal(ladder, 0.55, 0.6)


def test_no_class_is_climbed_to_without_pressure() -> None:
    """Where shedding the last class suffices the next one loses nothing, however long it lasts."""
    assert [0, 0, 0, 100] == deal(laddered(*FOUR), 0.55, 60, pressed=False)


def test_the_most_important_class_is_last() -> None:
    """Three fourths of it are left when nine tenths of all and a quarter of it have to go."""
    assert [25, 100, 100, 100] == deal(laddered(*FOUR), 0.925, 10)


def test_a_class_that_sends_nothing_costs_no_time() -> None:
    """Between the last class and the one that sends something no second is lost on those that send nothing."""
    assert [0, 50, 100, 100] == deal(laddered(0, 50, 0, 50), 0.75, 1.5)


def test_a_rung_is_left_after_five_seconds() -> None:
    """When less has to go than the last class sends, the class before it is safe from a new overload after 5 s."""
    ladder = laddered(*FOUR)
    deal(ladder, 0.55, 5)

    deal(ladder, 0.1, 4.5, pressed=False)
    assert 2 == ladder.rung

    deal(ladder, 0.1, 1, pressed=False)
    assert 3 == ladder.rung


@given(
    counts=st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=100),
)
def test_what_is_dealt_out_is_what_was_asked_for(counts: list[int], steps: list[tuple[float, bool]]) -> None:
    """The classes' fractions, by their parts of the traffic, sum to the whole; one loses all before the next does."""
    ladder = laddered(*counts)
    for rejected, pressed in steps:
        allowed = min(rejected, ladder.ceiling())
        before = ladder.ceiling()
        ladder.deal(allowed, 0.1, pressed=pressed)
        lost = sum(part * each for part, each in zip(ladder.mix, ladder.fractions, strict=True))

        assert all(0 <= each <= 1 for each in ladder.fractions)
        assert lost <= allowed + 1e-9
        if ladder.ceiling() >= before:
            assert lost == pytest.approx(allowed, abs=1e-9) or not sum(counts)
        for more, less in zip(ladder.fractions, ladder.fractions[1:], strict=False):
            assert more == 0 or less == 1


@given(fraction=st.floats(0, 1), number=st.integers(1, 3000))
def test_any_run_of_requests_loses_its_fraction(fraction: float, number: int) -> None:
    """Of so many requests in a row the chosen ones differ from the fraction by less than five."""
    dither = Dither()
    dither.set(fraction)
    chosen = sum(dither.chosen() for _ in range(number))

    assert 5 > abs(chosen - fraction * number)


@pytest.mark.parametrize("rhythm", [2, 3, 5, 10])
def test_a_client_with_a_rhythm_is_treated_alike(rhythm: int) -> None:
    """Of every second, third, fifth or tenth request as many are chosen as of all: 30 %, give or take two points."""
    dither = Dither()
    dither.set(0.3)
    chosen = [dither.chosen() for _ in range(1000 * rhythm)]

    assert 20 > abs(sum(chosen[::rhythm]) - 300)


def test_nothing_and_everything() -> None:
    """A fraction of 0 chooses none, and one of 1 all."""
    dither = Dither()
    assert not any(dither.chosen() for _ in range(1000))

    dither.set(1.0)
    assert all(dither.chosen() for _ in range(1000))


def test_threads_are_counted_one_by_one() -> None:
    """Eight threads that ask a thousand times each have asked 8,000 times."""
    dither = Dither()
    threads = [threading.Thread(target=lambda: [dither.chosen() for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 8000 == dither.asked
