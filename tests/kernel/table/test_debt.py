"""Goal: what turns out dearer than it was estimated prolongs the refusal, exactly, and no further than is allowed.

Method: every algorithm in turn, by a clock of the test's own; the lifetime numbers are what the hub would be told.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, InvalidLimit, Limit, RateLimiter, Reservation
from reconverge.clock import ManualClock
from reconverge.kernel.cell import measure
from reconverge.limit import METERED, QUOTA_MAX, SMOOTH_WARMING_UP
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S, Lone, in_ns
from tests.support.kernel.odd import HUGE, named
from tests.support.kernel.reference import SlicesInDebt
from tests.support.opcodes import Interrupted, interrupted_at, raise_interrupted


class Debtor:
    """One limiter on a node without a hub."""

    def __init__(self, algorithm: str, max_debt: int | None = None, quota: int = 100) -> None:
        self.clock = ManualClock(NOON_S)
        agent = Agent("memory://", clock=self.clock)
        warmup = 1.0 if algorithm == SMOOTH_WARMING_UP else None
        limit = Limit(quota, 60, algorithm=algorithm, max_debt=max_debt, warmup=warmup)
        self.limiter: RateLimiter = agent.limit("limit", limit)

    def spends(self, estimate: int, actual: int) -> None:
        """Reserve, and settle at once."""
        self.limiter.reserve("ada", estimate).settle(actual)

    @property
    def used(self) -> int:
        return self.limiter.usage("ada").own

    @property
    def lifetime(self) -> tuple[int, int]:
        """Returns the charges and refunds that the hub would be told."""
        table = self.limiter.control.table
        with table.lock:
            measure(table.cells["ada"])
        return table.tallies[0].charged, table.tallies[0].refunded


@pytest.fixture(params=METERED)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each in turn."""
    return str(request.param)


def test_a_debt_prolongs_the_refusal(algorithm: str) -> None:
    """Not in a fixed window, though: that begins anew whatever was used in the last."""
    clear, deep = Debtor(algorithm), Debtor(algorithm)
    for debtor, actual in ((clear, 50), (deep, 120)):
        debtor.spends(50, 50)
        debtor.clock.advance(15)
        debtor.spends(50, actual)

    waits = [debtor.limiter.hit("ada").retry_after for debtor in (clear, deep)]

    assert (waits[0] == waits[1]) if algorithm == "fixed-window" else (waits[0] < waits[1])


WAITS_S = {
    "fixed-window": (60.0, 60.0, 60.0),
    "sliding-window": (60.6, 90.3, 114.06),
    "sliding-slices": (60.0, 120.0, 600.0),
    "sliding-log": (60.0, 60.0, 60.0),
    "token-bucket": (0.6, 60.6, 540.6),
    "gcra": (0.6, 60.6, 540.6),
    "leaky-bucket": (0.6, 60.6, 540.6),
    "smooth-bursty": (60.0, 120.0, 600.0),
    "smooth-warming-up": (60.5, 120.5, 600.5),
}
"""After 100, 200 and 1000 at once, of 100 a minute: how long until one more is admitted."""


@pytest.mark.parametrize("counted", WAITS_S)
def test_a_debt_that_is_made_at_once_is_waited_for_as_its_algorithm_says(counted: str) -> None:
    """Buckets and slices have it paid off whole, a sliding window has it fade, and the others forget it.

    A fixed window begins anew, and a log promises no more than its quota within any window, whatever was owed before.
    """
    debtors = [Debtor(counted) for _ in range(3)]
    for debtor, actual in zip(debtors, (100, 200, 1000), strict=True):
        debtor.spends(1, actual)

    waits = tuple(debtor.limiter.hit("ada").retry_after for debtor in debtors)

    assert pytest.approx(WAITS_S[counted], abs=1e-8) == waits
    for debtor, wait_s in zip(debtors, waits, strict=True):
        debtor.clock.advance_ns(in_ns(wait_s) - 1)
        assert not debtor.limiter.test("ada")
        debtor.clock.advance_ns(1)
        assert debtor.limiter.test("ada")


def test_a_single_slice_forgets_a_debt_with_its_window() -> None:
    """The fixed window, which it is, does so."""
    node = Lone(Limit(100, 60, algorithm="sliding-slices", slices=1))
    node.limiter.reserve("ada", 1).settle(1000)

    assert 60.0 == node.hits().retry_after
    node.passes(60.0)
    assert 100 == node.limiter.test("ada").remaining


SETTLEMENTS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "settle", "settle", "allow", "told"]),
        st.integers(0, 30),
        st.sampled_from([0, 0, 0, 1, 3, 10, 31, 200]),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=tried(60, long=300))
@given(slices=st.sampled_from([2, 3, 7, 10]), quota=st.sampled_from([1, 7, 10]), steps=SETTLEMENTS)
def test_slices_pay_off_as_one_does_who_charges_each_debt_when_there_is_room(
    slices: int, quota: int, steps: list[tuple[str, int, int]]
) -> None:
    """Every decision, every count, and every moment at which something is said to fit."""
    limit = Limit(quota, 6, algorithm="sliding-slices", slices=slices)
    node, reference = Lone(limit), SlicesInDebt(limit)
    told_ns = 0
    open_ones: list[tuple[Reservation, int, int]] = []
    for way, cost, tenths in steps:
        if way == "told":
            node.clock.advance_ns(max(0, told_ns - node.clock.wall_ns()))
        node.clock.advance_ns(tenths * 100_000_000)
        now_ns = node.clock.wall_ns()
        fits = reference.used(now_ns) + min(cost, quota) <= quota
        if way == "settle" and open_ones:
            reservation, estimate, charged_in = open_ones.pop(cost % len(open_ones))
            reservation.settle(cost)
            reference.settle(now_ns, cost - estimate, charged_in)
        elif way == "reserve":
            reservation = node.limiter.reserve("ada", min(cost, quota))
            assert fits == reservation.allowed
            if fits:
                open_ones.append((reservation, min(cost, quota), reference.charge(now_ns, min(cost, quota))))
        else:
            assert fits == node.admits(min(cost, quota))
            if fits:
                reference.charge(now_ns, min(cost, quota))
        assert reference.used(now_ns) == node.limiter.usage("ada").own
        refused = node.limiter.test("ada", 1)
        if not refused:
            told_ns = now_ns + in_ns(refused.retry_after)
            assert reference.used(told_ns - 1) + 1 > quota >= reference.used(told_ns) + 1
        reset_ns = in_ns(node.limiter.test("ada", 0).reset_after)
        assert 0 == reference.used(now_ns + reset_ns)
        assert not reset_ns or reference.used(now_ns + reset_ns - 1) > 0


def test_a_debt_of_years_is_worked_out_at_once() -> None:
    """Whole windows are paid off in one step: a debt of the largest size, looked at a year later."""
    node = Lone(Limit(3, 0.001, algorithm="sliding-slices"))
    node.limiter.reserve("ada", 1).settle(10**12)
    year_s = 365 * 86_400

    node.passes(year_s)

    assert 10**12 - 3 * 1000 * year_s == node.limiter.usage("ada").own


def test_a_reset_forgets_what_is_owed() -> None:
    """All of it, and at once."""
    debtor = Debtor("sliding-slices")
    debtor.spends(1, 1000)

    debtor.limiter.reset("ada")

    assert (0, 100) == (debtor.used, debtor.limiter.test("ada").remaining)


def test_what_is_given_back_shortens_a_debt() -> None:
    """Ten windows were owed; four are, after six hundred were given back."""
    debtor = Debtor("sliding-slices")
    debtor.spends(1, 1000)

    debtor.limiter.refund("ada", 600)

    assert (400, 240.0) == (debtor.used, debtor.limiter.hit("ada").retry_after)
    for left in (300, 200, 100, 0):
        debtor.clock.advance(60)
        assert left == debtor.used


def test_a_higher_quota_pays_a_debt_off_sooner() -> None:
    """A window that has become larger holds more of what is owed."""
    debtor = Debtor("sliding-slices")
    debtor.spends(1, 1000)

    debtor.limiter.change(Limit(500, 60, algorithm="sliding-slices"))
    debtor.clock.advance(6)

    assert (1000, 114.0) == (debtor.used, debtor.limiter.hit("ada").retry_after)


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 114.0, 210.0, 3000.0])
def test_an_exception_at_any_instruction_leaves_a_debt_no_smaller(pause_s: float) -> None:
    """While none, one, three or all of its windows are being paid off; what was left undone is done a slice later."""

    def in_debt() -> Lone:
        node = Lone(Limit(10, 60, algorithm="sliding-slices"))
        node.admitted_of(3)
        node.passes(7.0)
        node.limiter.reserve("ada", 1).settle(90)
        node.passes(pause_s)
        return node

    undisturbed = in_debt()
    undisturbed.limiter.usage("ada")
    undisturbed.passes(6.0)
    expected = undisturbed.limiter.usage("ada").own
    number, interrupted = 0, True
    while interrupted:
        node = in_debt()
        with contextlib.suppress(Interrupted):
            interrupted = interrupted_at(number, partial(node.limiter.usage, "ada"), raise_interrupted)
        node.passes(6.0)

        used = node.limiter.usage("ada").own
        assert used >= expected, f"at instruction {number}"
        assert interrupted or used == expected, f"at instruction {number}"
        number += 1
    assert number > 10


@pytest.mark.slow
def test_an_exception_while_a_debt_is_made_leaves_what_was_used_before() -> None:
    """At any instruction. Between two assignments, where only a tracer raises, it may all count twice."""
    number, interrupted = 0, True
    while interrupted:
        node = Lone(Limit(10, 60, algorithm="sliding-slices"))
        node.admitted_of(4)
        node.passes(7.0)
        reservation = node.limiter.reserve("ada", 1)
        with contextlib.suppress(Interrupted):
            interrupted = interrupted_at(number, partial(reservation.settle, 86), raise_interrupted)

        used = node.limiter.usage("ada").own
        assert 5 <= used <= 90 + 86, f"at instruction {number}"
        assert interrupted or used == 90, f"at instruction {number}"
        number += 1
    assert number > 10


@settings(max_examples=tried(40, long=100))
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


def test_no_debt_gets_deeper_than_it_may(algorithm: str) -> None:
    """The part beyond it is charged to the lifetime numbers alone."""
    debtor = Debtor(algorithm, max_debt=30)
    first, second = (debtor.limiter.reserve("ada", 50) for _ in range(2))

    first.settle(80)
    allowed = debtor.used
    second.settle(55)

    assert (130, 130) == (allowed, debtor.used)
    assert (135, 0) == debtor.lifetime


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


@settings(max_examples=tried(40, long=100))
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
    """A refund reaches as far as the charge still counts: half of forty given back is twenty, half a window later."""
    debtor = Debtor("sliding-window")
    debtor.limiter.allow("ada", 80)
    debtor.clock.advance(90)
    debtor.limiter.allow("ada", 10)

    debtor.limiter.refund("ada", 50)

    assert 20 == debtor.used
    assert (90, 50) == debtor.lifetime


@pytest.mark.parametrize(("on_abandon", "kept"), [("keep", 80), ("return", 0)])
def test_an_abandoned_reservation_keeps_its_estimate_or_gives_it_back(on_abandon: str, kept: int) -> None:
    """Its argument decides; also when its block ends in an exception, and in `async with`."""

    async def work(limiter: RateLimiter) -> None:
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
    """A returned estimate is over."""
    keeping, returning = Debtor("sliding-window"), Debtor("sliding-window")
    with keeping.limiter.reserve("ada", 80) as kept, returning.limiter.reserve("ada", 80, on_abandon="return") as given:
        pass

    kept.settle(10)
    given.settle(10)

    assert (10, 0) == (keeping.used, returning.used)
