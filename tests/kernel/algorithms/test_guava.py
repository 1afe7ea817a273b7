"""Goal: a lone node waits as Guava's RateLimiter does, whatever is acquired, and also after the rate was changed.

Method: random schedules of requests, pauses and changes, compared with the algorithm that Guava publishes, in exact
fractions. Guava itself counts in doubles and cuts its waits to microseconds, so it differs by up to one or two of them
for each request.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, CostExceedsQuota, Limit, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limit.limit import CREDIT_WINDOWS_MAX, QUOTA_MAX
from tests.support.effort import tried
from tests.support.kernel.lone import in_ns


class Guava:
    """The algorithm of Guava's `SmoothRateLimiter`, as its source describes it, in permits and nanoseconds.

    Its state is what is stored and when the next request may go. A request is granted that moment, and moves it on by
    its own price. A change of the rate brings that state to the present, and then rescales what is stored alone.
    """

    def __init__(self, rate: int, at_ns: int, *, warmup_ns: int = 0) -> None:
        self.warmup_ns = warmup_ns
        self.stored = self.most = Fraction(0)
        self.next_free_ns = Fraction(at_ns)
        self.interval_ns = Fraction(SECOND_NS, rate)
        self._resize()
        self.stored = self.most if warmup_ns else Fraction(0)  # a limiter that warms up is cold at first

    def set_rate(self, rate: int, at_ns: int) -> None:
        """Go at another rate; the request that was granted last has its price at the former one."""
        self._bring_up_to(at_ns)
        former = self.most
        self.interval_ns = Fraction(SECOND_NS, rate)
        self._resize()
        self.stored = self.stored * self.most / former

    def wait_ns(self, at_ns: int) -> Fraction:
        """How long the next request has to wait."""
        return max(Fraction(0), self.next_free_ns - at_ns)

    def acquire(self, permits: int, at_ns: int) -> None:
        """A request goes, and the next one waits for its price."""
        self._bring_up_to(at_ns)
        taken = min(self.stored, Fraction(permits))
        self.next_free_ns += self._stored_price_ns(taken) + (permits - taken) * self.interval_ns
        self.stored -= taken

    def _resize(self) -> None:
        """Sets the most that can be stored: one second's worth, or the permits of a warm-up."""
        self.most = (self.warmup_ns or SECOND_NS) / self.interval_ns

    def _bring_up_to(self, at_ns: int) -> None:
        if at_ns > self.next_free_ns:
            self.stored = min(self.most, self.stored + (at_ns - self.next_free_ns) / self.interval_ns)
            self.next_free_ns = Fraction(at_ns)

    def _stored_price_ns(self, taken: Fraction) -> Fraction:
        """Nothing; or the area below an allowance, which climbs from one interval to three above the threshold."""
        if not self.warmup_ns:
            return Fraction(0)
        threshold = self.most / 2
        slope = 2 * self.interval_ns / (self.most - threshold)
        above = max(Fraction(0), self.stored - threshold)
        climbing = min(above, taken)
        heights = 2 * self.interval_ns + slope * (above + above - climbing)
        return climbing * heights / 2 + (taken - climbing) * self.interval_ns


def limit_of(rate: int, warmup_s: float) -> Limit:
    """A limit of so many a second that goes as Guava's limiters do."""
    if warmup_s:
        return Limit(rate, 1, algorithm="smooth-warming-up", warmup=warmup_s)
    return Limit(rate, 1, algorithm="smooth-bursty")


def lone(limit: Limit) -> tuple[RateLimiter, ManualClock]:
    """A limiter of a node without a hub."""
    clock = ManualClock(start=0)
    return Agent("memory://", clock=clock).limit("calls", limit), clock


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["told", "half", "at once", "part", "long", "change", "change"]),
        st.integers(1, 4000),
        st.sampled_from([1, 1, 2, 7, 20, 100]),
    ),
    min_size=4,
    max_size=30,
)


@settings(max_examples=tried(60, long=300))
@given(
    rates=st.lists(st.sampled_from([1, 2, 5, 7, 20, 100]), min_size=3, max_size=6),
    warmup_s=st.sampled_from([0.0, 0.0, 0.5, 4.0, 33.3]),
    steps=STEPS,
)
def test_every_wait_is_that_of_guava(rates: list[int], warmup_s: float, steps: list[tuple[str, int, int]]) -> None:
    """Less than a nanosecond late for each request and each change, with costs of many seconds' worth."""
    limiter, clock = lone(limit_of(rates[0], warmup_s))
    guava = Guava(rates[0], clock.monotonic_ns(), warmup_ns=limiter.limit.warmup_ns)
    assert limiter.allow("ada", 1)
    guava.acquire(1, clock.monotonic_ns())

    for number, (what, part, cost) in enumerate(steps, start=2):
        wait_ns = guava.wait_ns(clock.monotonic_ns())
        pauses_ns: dict[str, Fraction | int] = {
            "told": wait_ns,
            "half": wait_ns / 2,
            "part": part * guava.interval_ns / 1000,
            "long": 10**11,
        }
        clock.advance_ns(int(pauses_ns.get(what, 0)))
        if what == "change":
            rate = rates[part % len(rates)]
            limiter.change(limit_of(rate, warmup_s))
            guava.set_rate(rate, clock.monotonic_ns())
        told_ns = in_ns(limiter.test("ada", cost).retry_after)
        late_ns = told_ns - guava.wait_ns(clock.monotonic_ns())

        assert -1 < late_ns < number + 1
        clock.advance_ns(told_ns)
        assert limiter.allow("ada", cost)
        guava.acquire(cost, clock.monotonic_ns())


@pytest.mark.parametrize("limit", [Limit(5, 1, algorithm="smooth-bursty", burst=7), limit_of(5, 2.0)])
def test_credit_ends_at_a_hundred_windows(limit: Limit) -> None:
    """Beside what can be stored; one more is a mistake of the caller, and not a refusal."""
    most = limit.capacity + CREDIT_WINDOWS_MAX * 5
    limiter, _ = lone(limit)

    assert limiter.allow("ada", most)
    with pytest.raises(CostExceedsQuota, match=str(most)):
        limiter.allow("bob", most + 1)


def test_no_cost_is_larger_than_the_largest_quota() -> None:
    """In the parts of a request that allowances are counted in; a quota of that size goes on credit once."""
    assert QUOTA_MAX == Limit(QUOTA_MAX, 1, algorithm="smooth-bursty").cost_max
    assert 10**9 == Limit(10**9, 1, algorithm="smooth-bursty").cost_max
    assert 10**9 == Limit(10**8, 1, algorithm="smooth-bursty").cost_max


def test_what_is_owed_is_told_in_full() -> None:
    """Until when a key owes something and has less stored than it can, also if that takes many windows."""
    limiter, _ = lone(Limit(5, 1, algorithm="smooth-bursty"))

    assert 100.0 + 1.0 == limiter.hit("ada", 500).reset_after


def test_a_burst_that_grows_brings_no_permits() -> None:
    """The room for permits goes from one to a hundred and back, time and again; only time fills it."""
    limiter, clock = lone(Limit(1, 1, algorithm="smooth-bursty", burst=1))
    clock.advance(1)
    for _ in range(5):
        limiter.change(Limit(1, 1, algorithm="smooth-bursty", burst=100))
        limiter.change(Limit(1, 1, algorithm="smooth-bursty", burst=1))
    limiter.test("ada")
    limiter.change(Limit(1, 1, algorithm="smooth-bursty", burst=100))
    admitted = sum(limiter.allow("ada") for _ in range(100))

    assert 2 == admitted  # the one that was stored, and one on credit
