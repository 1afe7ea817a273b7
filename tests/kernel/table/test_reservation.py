"""Goal: settling puts the true cost in the place of the estimate, as if it had been known from the start.

Method: examples on both sides of the moments at which an estimate stops to count, and a brute-force reference that is
simply told the true costs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconverge import Agent, InvalidCost, Limit, Reservation
from reconverge.clock import ManualClock
from reconverge.limit import BUCKETS, METERED
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S, Lone
from tests.support.kernel.odd import HUGE, named
from tests.support.kernel.reference import SlicesInDebt


@pytest.fixture(params=METERED)
def node(request: pytest.FixtureRequest) -> Lone:
    """A hundred per minute, by each algorithm in turn."""
    return Lone("100/minute", algorithm=request.param)


@pytest.fixture(params=BUCKETS)
def bucket(request: pytest.FixtureRequest) -> Lone:
    """A bucket of a hundred, which drains within a minute."""
    return Lone("100/minute", algorithm=request.param)


def used_on(node: Lone) -> int:
    return node.limiter.usage("ada").own


@pytest.mark.parametrize("actual", [30, 150, 80, 0, 1000])
def test_a_settlement_charges_what_it_was_and_not_a_unit_more(node: Lone, actual: int) -> None:
    """Less gives the difference back; more, even beyond the quota, is refused nothing, and paid for by what comes."""
    node.limiter.reserve("ada", 80).settle(actual)

    assert (actual, max(0, 100 - actual)) == (used_on(node), node.admitted_of(101))
    assert not node.admits(0 if actual > 100 else 1)


def test_only_the_first_settlement_counts(node: Lone) -> None:
    """Settling again, for less or for more, changes nothing."""
    reservation = node.limiter.reserve("ada", 80)

    for actual in (30, 0, 100):
        reservation.settle(actual)

    assert 30 == used_on(node)


def test_a_reservation_that_was_refused_has_nothing_to_settle(node: Lone) -> None:
    """Nothing was charged, so that nothing can be given back or added."""
    node.admitted_of(30)
    reservation = node.limiter.reserve("ada", 71)

    reservation.settle(0)
    reservation.settle(100)

    assert (False, 30) == (reservation.allowed, used_on(node))


@pytest.mark.parametrize("actual", [-1, 1.5, True, "1", None, -HUGE], ids=named)
def test_a_settlement_is_a_cost_like_any_other(node: Lone, actual: int) -> None:
    """A value that is no cost is a mistake, and the reservation can still be settled afterwards."""
    reservation = node.limiter.reserve("ada", 80)
    with pytest.raises(InvalidCost):
        reservation.settle(actual)

    reservation.settle(30)

    assert 30 == used_on(node)


def test_a_reservation_says_how_it_stands() -> None:
    """Refused, allowed or settled, with the key and the estimate."""
    node = Lone("100/minute")
    reservation = node.limiter.reserve("ada", 80)
    allowed = repr(reservation)
    reservation.settle(0)
    node.admits(100)

    assert [
        "Reservation('ada', estimate=80, allowed)",
        "Reservation('ada', estimate=80, settled)",
        "Reservation('ada', estimate=80, refused)",
    ] == [allowed, repr(reservation), repr(node.limiter.reserve("ada", 80))]


def test_what_was_reset_is_not_given_back(node: Lone) -> None:
    """A reset has forgotten the estimate; what was charged since is not touched."""
    reservation = node.limiter.reserve("ada", 80)
    node.limiter.reset("ada")
    node.admits(100)

    reservation.settle(0)

    assert (100, False) == (used_on(node), node.admits())


def test_what_costs_more_is_charged_after_a_reset_too(node: Lone) -> None:
    """The work was done, whenever it is known how much it was."""
    reservation = node.limiter.reserve("ada", 80)
    node.limiter.reset("ada")

    reservation.settle(100)

    assert 20 == used_on(node)


def test_a_key_that_has_left_meanwhile_is_not_confused_with_its_successor() -> None:
    """A key that was idle, forgotten and came back gives nothing back for its past life."""
    bucket = Lone("100/minute", algorithm="gcra", keys_max=1)
    reservation = bucket.limiter.reserve("ada", 80)
    bucket.passes(60.0)
    bucket.admits(key="bob")
    bucket.passes(60.0)
    bucket.admits(100)

    reservation.settle(0)

    assert 100 == used_on(bucket)


class Act(NamedTuple):
    """A pause, and what happens then."""

    pause: int
    """In hundredths of the window."""
    estimate: int
    settles: int
    """Which of the open reservations is settled first, if any."""
    share: Fraction
    """For which part of its estimate."""


ACTS = st.builds(
    Act,
    pause=st.sampled_from([0, 0, 0, 1, 5, 20, 50, 99, 100, 120, 200]),
    estimate=st.integers(0, 100),
    settles=st.integers(-1, 4),
    share=st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3, 2)]),
)
SCHEDULES = st.lists(ACTS, min_size=5, max_size=25)


class Ledger:
    """The charges of one key as they turned out: what was given back was never charged."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._charges: list[tuple[int, int]] = []

    def charge(self, at_ns: int, cost: int) -> int:
        """A cost is charged; returns which charge it is."""
        self._charges.append((at_ns, cost))
        return len(self._charges) - 1

    def lower(self, charge: int, amount: int) -> None:
        """A charge turns out to be so much lower."""
        at_ns, cost = self._charges[charge]
        self._charges[charge] = (at_ns, cost - amount)

    def used(self, at_ns: int) -> Fraction:
        if self._limit.bucket:
            return self._level(at_ns)
        if self._limit.algorithm == "sliding-log":
            return self._charged_since(at_ns - self._limit.window_ns + 1)
        if self._limit.algorithm == "sliding-slices":
            return Fraction(self._paid_off(at_ns))
        window, passed_ns = divmod(at_ns, self._limit.window_ns)
        current, previous = (self._charged_in(number) for number in (window, window - 1))
        if self._limit.algorithm == "fixed-window":
            return Fraction(current)
        return current + previous * (1 - Fraction(passed_ns, self._limit.window_ns))

    def _paid_off(self, at_ns: int) -> int:
        """Returns the use in slices, of which a window holds the capacity; the rest waits for its turn."""
        slices = SlicesInDebt(self._limit)
        for charged_ns, cost in self._charges:
            slices.settle(charged_ns, cost, charged_in=0)
        return slices.used(at_ns)

    def _level(self, at_ns: int) -> Fraction:
        level, last_ns = Fraction(0), 0
        for charged_ns, cost in [*self._charges, (at_ns, 0)]:
            drained = Fraction((charged_ns - last_ns) * self._limit.quota, self._limit.window_ns)
            level, last_ns = max(Fraction(0), level - drained) + cost, charged_ns
        return level

    def _charged_since(self, since_ns: int) -> Fraction:
        return Fraction(sum(cost for at_ns, cost in self._charges if at_ns >= since_ns))

    def _charged_in(self, window: int) -> int:
        return sum(cost for at_ns, cost in self._charges if at_ns // self._limit.window_ns == window)


def play(limit: Limit, schedule: list[Act]) -> list[tuple[int, Fraction]]:
    """Returns the node's use and the ledger's, after each act."""
    clock = ManualClock(NOON_S)
    limiter = Agent("memory://", clock=clock).limit("limit", limit)
    ledger = Ledger(limit)
    opened: list[tuple[Reservation, int]] = []
    uses: list[tuple[int, Fraction]] = []
    for act in schedule:
        clock.advance_ns(limit.window_ns * act.pause // 100)
        if 0 <= act.settles < len(opened):
            reservation, charge = opened.pop(act.settles)
            actual = int(reservation.estimate * act.share)
            reservation.settle(actual)
            if actual < reservation.estimate:
                ledger.lower(charge, reservation.estimate - actual)
            else:
                ledger.charge(clock.wall_ns(), actual - reservation.estimate)
        reservation = limiter.reserve("ada", act.estimate)
        if reservation:
            opened.append((reservation, ledger.charge(clock.wall_ns(), act.estimate)))
        uses.append((limiter.usage("ada").own, ledger.used(clock.wall_ns())))
    return uses


@pytest.mark.parametrize("algorithm", [name for name in METERED if name not in BUCKETS])
@settings(max_examples=tried(50, long=200))
@given(schedule=SCHEDULES)
def test_windows_count_the_true_costs(algorithm: str, schedule: list[Act]) -> None:
    """Windows count as one that had known the true costs from the start; of slices that is so without a debt."""
    if algorithm == "sliding-slices":
        schedule = [act._replace(share=min(act.share, Fraction(1))) for act in schedule]
    for said, true in play(Limit(100, 60, algorithm=algorithm), schedule):
        assert -(-true // 1) == said


@pytest.mark.parametrize("algorithm", ["token-bucket", "sliding-slices"])
@settings(max_examples=tried(50, long=200))
@given(schedule=SCHEDULES)
def test_what_pays_debts_off_counts_the_true_costs_or_more(algorithm: str, schedule: list[Act]) -> None:
    """Never less than one would count who had known the truth from the start, so that nothing extra is admitted."""
    for said, true in play(Limit(100, 60, algorithm=algorithm), schedule):
        assert true <= said


@settings(max_examples=tried(50, long=200))
@given(schedule=SCHEDULES)
@example([Act(0, 100, -1, Fraction(0)), Act(50, 50, -1, Fraction(0)), Act(0, 0, 0, Fraction(0))])
def test_buckets_count_the_true_cost_of_one_reservation_exactly(schedule: list[Act]) -> None:
    """When only the first of all reservations is corrected, nothing that can be given back is lost."""
    once = [act._replace(settles=-1) for act in schedule[:-1]] + [schedule[-1]._replace(settles=0)]

    for said, true in play(Limit(100, 60, algorithm="token-bucket"), once):
        assert -(-true // 1) == said
