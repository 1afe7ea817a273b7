"""Goal: what turns out dearer than it was estimated prolongs the refusal, exactly, and no further than is allowed.

Method: every algorithm in turn, by a clock of the test's own; the lifetime numbers are what the hub would be told.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, InvalidLimit, InvalidSetting, Limit, Limiter
from reconverge.clock import ManualClock
from reconverge.limit import METERED, QUOTA_MAX
from tests.unit.lone import NOON_S, in_ns
from tests.unit.odd import HUGE, named


class Debtor:
    """One limiter on a node without a hub."""

    def __init__(self, algorithm: str, max_debt: int | None = None, quota: int = 100) -> None:
        self.clock = ManualClock(NOON_S)
        agent = Agent("memory://", clock=self.clock)
        self.limiter: Limiter = agent.limit("limit", Limit(quota, 60, algorithm=algorithm, max_debt=max_debt))

    def spends(self, estimate: int, actual: int) -> None:
        """Reserve, and settle at once."""
        self.limiter.reserve("ada", estimate).settle(actual)

    @property
    def used(self) -> int:
        """What counts at the moment."""
        return self.limiter.usage("ada").own

    @property
    def lifetime(self) -> tuple[int, int]:
        """What the hub would be told: charged and given back."""
        table = self.limiter.table
        with table.lock:
            table.measure(table.cells["ada"])
        return table.tallies[0].charged, table.tallies[0].refunded


@pytest.fixture(params=METERED)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each in turn."""
    return str(request.param)


# ---------------------------------------------------------------- how long it lasts


def test_a_debt_prolongs_the_refusal(algorithm: str) -> None:
    """Not in a fixed window, though: that begins anew whatever was used in the last."""
    clear, deep = Debtor(algorithm), Debtor(algorithm)
    for debtor, actual in ((clear, 50), (deep, 120)):
        debtor.spends(50, 50)
        debtor.clock.advance(15)
        debtor.spends(50, actual)

    waits = [debtor.limiter.hit("ada").retry_after for debtor in (clear, deep)]

    assert (waits[0] == waits[1]) if algorithm == "fixed-window" else (waits[0] < waits[1])


@settings(max_examples=100)
@given(
    algorithm=st.sampled_from(METERED),
    actual=st.integers(100, 400),
    more=st.integers(0, 150),
    pause=st.integers(0, 150),
    cost=st.integers(1, 100),
)
def test_the_moment_that_ends_a_debt_is_named_exactly(
    algorithm: str, actual: int, more: int, pause: int, cost: int
) -> None:
    """Refused until a nanosecond before it, admitted at it; across the edge of a window, too."""
    debtor = Debtor(algorithm)
    reservation = debtor.limiter.reserve("ada", 50)
    debtor.limiter.reserve("ada", 50).settle(actual)
    debtor.clock.advance(pause / 2)
    reservation.settle(more)
    decision = debtor.limiter.test("ada", cost)

    if not decision:
        debtor.clock.advance_ns(in_ns(decision.retry_after) - 1)
        assert not debtor.limiter.test("ada", cost)

        debtor.clock.advance_ns(1)
        assert debtor.limiter.test("ada", cost)


# ---------------------------------------------------------------- how deep it gets


def test_no_debt_gets_deeper_than_it_may(algorithm: str) -> None:
    """What is beyond it is charged to the lifetime numbers alone."""
    debtor = Debtor(algorithm, max_debt=30)
    first, second = (debtor.limiter.reserve("ada", 50) for _ in range(2))

    first.settle(80)
    allowed = debtor.used
    second.settle(55)

    assert (130, 130) == (allowed, debtor.used)
    assert (135, 0) == debtor.lifetime


def test_a_debt_may_be_as_deep_as_it_gets(algorithm: str) -> None:
    """Unless the limit says how deep."""
    debtor = Debtor(algorithm)

    debtor.spends(100, 100_000)

    assert 100_000 == debtor.used


def test_without_debt_a_settlement_still_counts_up_to_the_quota(algorithm: str) -> None:
    """It is debt that is bounded, and not use."""
    debtor = Debtor(algorithm, max_debt=0)

    debtor.spends(10, 60)
    before = debtor.used
    debtor.spends(10, 200)

    assert (60, 100) == (before, debtor.used)
    assert (260, 0) == debtor.lifetime


def test_a_bounded_debt_is_waited_for_as_if_no_more_had_been_used(algorithm: str) -> None:
    """Whoever used 130 and whoever used 1000 wait alike when 30 is the deepest."""
    less, more = Debtor(algorithm, max_debt=30), Debtor(algorithm, max_debt=30)
    less.spends(100, 130)
    more.spends(100, 1000)

    assert less.limiter.hit("ada") == more.limiter.hit("ada")


@settings(max_examples=100)
@given(
    algorithm=st.sampled_from(METERED),
    max_debt=st.none() | st.integers(0, 50),
    costs=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 300), st.integers(0, 90)), min_size=1, max_size=15),
)
def test_all_that_is_charged_is_all_that_was_used(
    algorithm: str, max_debt: int | None, costs: list[tuple[int, int, int]]
) -> None:
    """Charged less given back is the sum of the true costs, to the unit, whatever the key had to wait for."""
    debtor = Debtor(algorithm, max_debt=max_debt)
    true = 0
    for estimate, actual, pause_s in costs:
        reservation = debtor.limiter.reserve("ada", estimate)
        debtor.clock.advance(pause_s)
        reservation.settle(actual)
        true += actual if reservation else 0
        if max_debt is not None:
            assert debtor.used <= 100 + max_debt
    charged, refunded = debtor.lifetime

    assert true == charged - refunded


@pytest.mark.parametrize("max_debt", [-1, QUOTA_MAX + 1, HUGE, 1.5, True, "1"], ids=named)
def test_what_cannot_be_a_debt_is_refused(max_debt: int) -> None:
    """It is a whole number of cost."""
    with pytest.raises(InvalidLimit, match="max_debt"):
        Limit(100, 60, max_debt=max_debt)


# ---------------------------------------------------------------- giving back


def test_a_refund_gives_back_what_was_charged(algorithm: str) -> None:
    """At once, and in the lifetime numbers."""
    debtor = Debtor(algorithm)
    debtor.limiter.allow("ada", 80)

    debtor.limiter.refund("ada", 30)

    assert (50, (80, 30)) == (debtor.used, debtor.lifetime)


def test_a_refund_never_leaves_more_than_the_quota(algorithm: str) -> None:
    """However much is given back, and of however many keys nobody has heard."""
    debtor = Debtor(algorithm)
    debtor.limiter.allow("ada", 30)

    debtor.limiter.refund("ada", 80)
    debtor.limiter.refund("bob", 5)

    assert (100, 100) == (debtor.limiter.test("ada").remaining, debtor.limiter.test("bob").remaining)
    assert not debtor.limiter.test("ada", 100).retry_after


def test_a_refund_reaches_back_into_the_window_before() -> None:
    """As far as that still counts: half of forty given back is twenty, half a window later."""
    debtor = Debtor("sliding-window")
    debtor.limiter.allow("ada", 80)
    debtor.clock.advance(90)
    debtor.limiter.allow("ada", 10)

    debtor.limiter.refund("ada", 50)

    assert 20 == debtor.used
    assert (90, 50) == debtor.lifetime


# ---------------------------------------------------------------- abandoned


@pytest.mark.parametrize(("on_abandon", "kept"), [("keep", 80), ("return", 0)])
def test_an_abandoned_reservation_keeps_its_estimate_or_gives_it_back(on_abandon: str, kept: int) -> None:
    """As it was told; also when its block ends in an exception, and in `async with`."""

    async def work(limiter: Limiter) -> None:
        async with limiter.reserve("ada", 80, on_abandon=on_abandon):  # type: ignore[arg-type]
            assert 80 == limiter.usage("ada").own

    sync, failing, waiting = (Debtor("sliding-window") for _ in range(3))
    with sync.limiter.reserve("ada", 80, on_abandon=on_abandon):  # type: ignore[arg-type]
        pass
    with pytest.raises(LookupError), failing.limiter.reserve("ada", 80, on_abandon=on_abandon):  # type: ignore[arg-type]
        raise LookupError
    asyncio.run(work(waiting.limiter))

    assert [kept] * 3 == [debtor.used for debtor in (sync, failing, waiting)]


def test_a_reservation_that_was_settled_is_not_abandoned() -> None:
    """The truth stays as it was told."""
    debtor = Debtor("sliding-window")

    with debtor.limiter.reserve("ada", 80, on_abandon="return") as reservation:
        reservation.settle(70)

    assert 70 == debtor.used


def test_only_one_that_keeps_its_estimate_can_be_settled_afterwards() -> None:
    """What was given back is over."""
    keeping, returning = Debtor("sliding-window"), Debtor("sliding-window")
    with keeping.limiter.reserve("ada", 80) as kept, returning.limiter.reserve("ada", 80, on_abandon="return") as given:
        pass

    kept.settle(10)
    given.settle(10)

    assert (10, 0) == (keeping.used, returning.used)


def test_what_becomes_of_an_abandoned_reservation_is_one_of_two() -> None:
    """And anything else a mistake, before anything is charged."""
    debtor = Debtor("sliding-window")

    with pytest.raises(InvalidSetting, match="must be 'keep' or 'return'"):
        debtor.limiter.reserve("ada", 80, on_abandon="burn")  # type: ignore[arg-type]

    assert 0 == debtor.used
