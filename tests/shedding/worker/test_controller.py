"""The controller of the rejected fraction: damped, bounded, and without wind-up."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.errors import InvalidSetting
from reconverge.shedding import Gains
from reconverge.shedding.worker.controller import REJECTED_MAX, Controller
from reconverge.shedding.worker.signals import LAG_TARGET_S

STEP_S = 0.05


def stepped(controller: Controller, pressure: float, steps: int, **more: float) -> float:
    """The rejected fraction after so many steps with one pressure."""
    for _ in range(steps):
        controller.step(pressure, STEP_S, **more)
    return controller.rejected


@given(
    steps=st.lists(
        st.tuples(st.floats(), st.floats(min_value=-1, max_value=100), st.floats(min_value=-1, max_value=2)),
        max_size=200,
    )
)
def test_the_fraction_is_between_nothing_and_its_most(steps: list[tuple[float, float, float]]) -> None:
    """The rejected fraction is from 0 to its ceiling, with any measurements, NaN included."""
    controller = Controller()

    for pressure, elapsed_s, ceiling in steps:
        rejected = controller.step(pressure, elapsed_s, rejected_max=ceiling)
        assert 0.0 <= rejected <= min(max(ceiling, 0.0), REJECTED_MAX) + 1e-9


def test_the_default_is_damped() -> None:
    """In front of a queue whose wait may be 50 ms the damping ratio is at least 1, so nothing swings."""
    assert 1.0 <= Gains().damping(LAG_TARGET_S)


def test_a_time_that_is_no_number_is_forgotten() -> None:
    """After a step of such a time the controller goes on as if none had passed."""
    one, other = Controller(), Controller()
    one.step(0.0, math.nan)
    other.step(0.0, 0.0)

    assert other.step(10.0, 0.05) == one.step(10.0, 0.05)


def test_nothing_is_rejected_below_the_target() -> None:
    """A pressure of just less than the target rejects nothing, however long it lasts."""
    assert 0.0 == stepped(Controller(), 0.999, 1000)


def test_an_error_that_lasts_is_answered_with_more() -> None:
    """Just above the target the fraction rises as long as that lasts."""
    controller = Controller()

    assert stepped(controller, 1.1, 100) < stepped(controller, 1.1, 100)


def test_there_is_no_wind_up() -> None:
    """After an hour of overload the fraction begins to fall as soon as after ten seconds of it."""
    short, long = Controller(), Controller()
    stepped(short, 10.0, 200)
    stepped(long, 10.0, 36_000)

    assert stepped(short, 0.0, 20) == pytest.approx(stepped(long, 0.0, 20))


def test_a_ceiling_does_not_wind_up_either() -> None:
    """The part that a lower ceiling has kept back is not there when the pressure falls and the flood is forgotten."""
    controller = Controller()
    stepped(controller, 10.0, 1000, rejected_max=0.3)

    assert 0.3 >= stepped(controller, 1.0, 100)


def test_it_brings_back_slower_than_it_sheds() -> None:
    """Half the traffic is shed within a tenth of a second of the worst pressure, and takes 5 s to come back."""
    controller = Controller()

    assert 0.5 < stepped(controller, 10.0, 2)
    stepped(controller, 10.0, 18)
    assert 0.1 < stepped(controller, 0.0, 100)
    assert 0.0 == stepped(controller, 0.0, 600)


def test_a_flood_is_answered_at_once_and_forgotten() -> None:
    """Ten targets shed nine tenths within a fifth of a second; two seconds at the target leave the integral alone."""
    controller = Controller()

    assert 0.9 < stepped(controller, 10.0, 4)
    assert stepped(controller, 1.0, 40) < 0.25


def test_the_integral_does_not_fall_in_a_flood() -> None:
    """A wait that is long and short by turns has the fraction that lasts rise, until there are no more floods."""
    controller = Controller()
    lasting = []
    for _ in range(4):
        stepped(controller, 8.0, 2)
        stepped(controller, 0.0, 6)
        lasting.append(controller._integral)

    assert lasting == sorted(set(lasting))


def test_a_long_pause_counts_as_a_short_step() -> None:
    """A step after a minute changes as much as one after half a second: a suspended machine is no overload."""
    one, other = Controller(), Controller()
    for controller, elapsed_s in ((one, 60.0), (other, 0.5)):
        controller.step(1.0, STEP_S)
        controller.step(2.0, elapsed_s)

    assert one.rejected == other.rejected


def simulated(load: float, *, gains: Gains | None = None, seconds: float = 60.0) -> tuple[list[float], list[float]]:
    """The controller and an ideal queue whose wait grows by admitted load less one. Returns waits, fractions."""
    controller = Controller(gains)
    wait_s, waits, fractions = 0.0, [], []
    for _ in range(round(seconds / STEP_S)):
        rejected = controller.step(wait_s / LAG_TARGET_S, STEP_S)
        wait_s = max(0.0, wait_s + STEP_S * (load * (1.0 - rejected) - 1.0))
        waits.append(wait_s)
        fractions.append(rejected)
    return waits, fractions


@pytest.mark.parametrize("load", [1.1, 1.5, 2.0, 4.0, 12.0])
def test_an_ideal_queue_is_brought_to_its_target(load: float) -> None:
    """From once and a bit to twelve times the load: 10 s later the fraction is within five points of what fits.

    It crosses that at most twice by more than five points, is within one after 30 s, and the wait ends at its target.
    """
    waits, fractions = simulated(load)
    fits = 1.0 - 1.0 / load
    sides = [math.copysign(1.0, each - fits) for each in fractions if abs(each - fits) > 0.05]

    assert 0.05 > max(abs(each - fits) for each in fractions[round(10 / STEP_S) :])
    assert 0.01 > max(abs(each - fits) for each in fractions[round(30 / STEP_S) :])
    assert 2 >= sum(one != other for one, other in pairwise(sides))
    assert LAG_TARGET_S == pytest.approx(waits[-1], rel=0.1)


def test_gains_that_are_not_damped_swing() -> None:
    """The claim above finds what it should: with a hundredth of the damping the fraction crosses more than twice."""
    _, fractions = simulated(2.0, gains=Gains(kp=0.003, ki=0.2))
    sides = [math.copysign(1.0, each - 0.5) for each in fractions if abs(each - 0.5) > 0.01]

    assert 2 < sum(one != other for one, other in pairwise(sides))


@pytest.mark.parametrize("gains", [{"kp": -1.0}, {"ki": 0.0}, {"kd": math.inf}, {"smoothing_s": "much"}])
def test_gains_that_make_no_sense_are_told(gains: dict[str, float]) -> None:
    """A negative or endless gain, and none at all for what lasts, are errors that name it."""
    with pytest.raises(InvalidSetting, match=next(iter(gains))):
        Gains(**gains)
