"""Goal: on one node the smooth limits wait as long as follows from the curve of their intervals, to the nanosecond.

Method: hand-worked values; and random schedules, compared with a limiter in exact fractions whose price is a numerical
integral over the throttling curve.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, Decision, InvalidLimit, Limit
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel.algorithms.paced import SmoothWarmingUp
from tests.support.effort import tried
from tests.support.kernel.lone import Lone, in_ns

COLD_FACTOR = 3


def interval_at(stored: Fraction, *, most: Fraction, stable: Fraction) -> Fraction:
    """How long a permit takes when so many are stored: stable up to half of them, three times that when cold."""
    half = most / 2
    return stable if stored <= half else stable * (1 + (COLD_FACTOR - 1) * (stored - half) / (most - half))


def integral(
    curve: Callable[[Fraction], Fraction], begin: Fraction, end: Fraction, *, kinks: list[Fraction]
) -> Fraction:
    """The area under a curve, by Simpson's rule between its kinks: exact for what is straight there."""
    places = [begin, *sorted(kink for kink in kinks if begin < kink < end), end]
    return sum(
        ((b - a) * (curve(a) + 4 * curve((a + b) / 2) + curve(b)) / 6 for a, b in pairwise(places)),
        Fraction(0),
    )


class Explained:
    """The limiter as one would explain it: permits that are stored, and the moment from which the next may go."""

    def __init__(self, limit: Limit, at_ns: int) -> None:
        self.stable = Fraction(limit.window_ns, limit.quota)
        self.warm = limit.algorithm == "smooth-warming-up"
        self.most = Fraction(limit.warmup_ns) / self.stable if self.warm else Fraction(limit.capacity)
        self.stored = self.most if self.warm else Fraction(0)
        self.free_ns = Fraction(at_ns)

    def waits_ns(self, at_ns: int) -> Fraction:
        """How long the next has to wait."""
        return max(Fraction(0), self.free_ns - at_ns)

    def go(self, at_ns: int, cost: int) -> None:
        """A request goes, and pays for itself afterwards."""
        if at_ns > self.free_ns:
            self.stored = min(self.most, self.stored + (at_ns - self.free_ns) / self.stable)
            self.free_ns = Fraction(at_ns)
        taken = min(self.stored, Fraction(cost))
        self.free_ns += (cost - taken) * self.stable
        if self.warm:
            self.free_ns += integral(
                lambda stored: interval_at(stored, most=self.most, stable=self.stable),
                self.stored - taken,
                self.stored,
                kinks=[self.most / 2],
            )
        self.stored -= taken


def test_an_idle_key_that_was_forgotten_is_as_it_would_have_been() -> None:
    """Keys that come and go make idle ones leave, and these find all permits stored when they are back."""
    node = Lone(Limit(5, 1, algorithm="smooth-bursty"))
    node.admits()
    node.passes(5.0)
    for number in range(10):
        node.admits(key=f"key {number}")
    assert "ada" not in node.limiter.control.table.cells

    assert 6 == node.admitted_of(9)


@pytest.mark.parametrize(
    ("settings_", "problem"),
    [
        ({"algorithm": "smooth-warming-up"}, "needs a warmup"),
        ({"algorithm": "smooth-bursty", "warmup": 1.0}, "a warmup needs smooth-warming-up"),
        ({"algorithm": "smooth-warming-up", "warmup": 0}, "between 1 ms and ten years"),
        ({"algorithm": "smooth-warming-up", "warmup": float("nan")}, "between 1 ms and ten years"),
        ({"algorithm": "smooth-warming-up", "warmup": "1"}, "not a number of seconds"),
        ({"algorithm": "smooth-warming-up", "warmup": True}, "not a number of seconds"),
        ({"algorithm": "smooth-warming-up", "warmup": 1.0, "burst": 3}, "a burst needs a bucket"),
    ],
)
def test_a_warm_up_belongs_to_what_warms_up(settings_: dict[str, object], problem: str) -> None:
    """Anywhere else, and in any other form, it is refused with a sentence."""
    with pytest.raises(InvalidLimit, match=problem):
        Limit(5, 1, **settings_)  # type: ignore[arg-type]


def test_a_warm_up_can_be_written() -> None:
    """And means the algorithm that has one."""
    limit = Limit(10, 1, algorithm="smooth-warming-up", warmup=5)

    assert limit == Limit.parse("10/s warmup 5s")
    assert "10/1s warmup 5s (smooth-warming-up)" == str(limit)


LIMITS = st.one_of(
    st.builds(
        Limit,
        quota=st.sampled_from([1, 3, 7, 100]),
        window=st.sampled_from([0.5, 1.0, 60.0]),
        algorithm=st.just("smooth-bursty"),
        burst=st.sampled_from([None, 1, 4]),
    ),
    st.builds(
        Limit,
        quota=st.sampled_from([1, 3, 7, 100]),
        window=st.sampled_from([0.5, 1.0, 60.0]),
        algorithm=st.just("smooth-warming-up"),
        warmup=st.sampled_from([0.5, 4.0, 33.3]),
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["told", "early", "at once", "part", "part", "long"]), st.integers(1, 3000), st.integers(1, 4)
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=tried(40, long=150))
@given(limit=LIMITS, steps=STEPS)
def test_every_wait_follows_from_the_integral(limit: Limit, steps: list[tuple[str, int, int]]) -> None:
    """With any pauses and costs: never early, and never more than a nanosecond late for every request."""
    clock = ManualClock()
    limiter = Agent("memory://", clock=clock).limit("limit", limit)
    explained = Explained(limit, clock.monotonic_ns())

    for number, (pause, part, cost) in enumerate(steps, start=1):
        expected_ns = explained.waits_ns(clock.monotonic_ns())
        pauses_ns: dict[str, Fraction | int] = {
            "told": expected_ns,
            "early": expected_ns // 2,
            "at once": 0,
            "long": 100 * SECOND_NS,
        }
        clock.advance_ns(int(pauses_ns.get(pause, part * explained.stable / 1000)))
        expected_ns = explained.waits_ns(clock.monotonic_ns())
        decision: Decision = limiter.test("ada", min(cost, limit.quota))
        told_ns = in_ns(decision.retry_after)

        assert 0 <= told_ns - expected_ns < number + 1
        clock.advance_ns(told_ns)
        assert limiter.allow("ada", min(cost, limit.quota))
        explained.go(clock.monotonic_ns(), min(cost, limit.quota))


@given(
    stored=st.integers(0, 4000),
    cost=st.integers(1, 9),
    quota=st.sampled_from([3, 7, 11]),
    allowance=st.integers(1000, 12_000),
)
def test_the_price_is_the_area_rounded_up(stored: int, cost: int, quota: int, allowance: int) -> None:
    """To the smallest unit in which anything is counted, whatever part of the rate the node has."""
    limit = Limit(quota, 1, algorithm="smooth-warming-up", warmup=1.3)
    node = Lone(limit)
    node.admits()
    (cell,) = node.limiter.control.table.all_cells()
    pacer = SmoothWarmingUp(limit, merged_only=False)
    cell.allowance = allowance
    most = pacer._stored_most(cell)
    cell.stored = before = min(most, stored * most // 4000)
    amount = cost * limit.unit * limit.window_ns

    price = pacer._price(cell, amount)

    taken = before - cell.stored
    area = integral(
        lambda stored: interval_at(stored, most=Fraction(most), stable=Fraction(1)),
        Fraction(cell.stored),
        Fraction(before),
        kinks=[Fraction(most, 2)],
    )
    assert ceil(amount - taken + area) == price
