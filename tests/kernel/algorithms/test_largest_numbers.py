"""Goal: no number outgrows what machines and hubs count with, whatever callers say, and however often.

Method: the largest limits, costs beyond them, and buckets that need centuries, on one node and in exchanges; everything
that is told to a hub has to be one of the whole numbers that a double can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconverge import InvalidCost, Limit, RateLimiter, Reservation
from reconverge.clock import ManualClock
from reconverge.hub.report import Batch
from reconverge.kernel.cell import DEMAND_MAX
from reconverge.limit import ALGORITHMS, BUCKETS, LOG_QUOTA_MAX, METERED, QUOTA_MAX, SLIDING_LOG, SMOOTH_WARMING_UP
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.lone import Lone
from tests.support.kernel.odd import HUGE, named

TEN_YEARS_S = 3660 * 86_400
EXACT_MAX = 2**53
CORRECTING: dict[str, Callable[[RateLimiter, Reservation, int], None]] = {
    "settle": lambda limiter, reservation, cost: reservation.settle(cost),
    "spend": lambda limiter, reservation, cost: reservation.spend(cost),
    "refund": lambda limiter, reservation, cost: limiter.refund("ada", cost),
}
by_correction = pytest.mark.parametrize("correct", CORRECTING.values(), ids=CORRECTING)


def largest(algorithm: str, window_s: float = TEN_YEARS_S) -> Limit:
    """The largest limit of that algorithm, in the longest window."""
    quota = LOG_QUOTA_MAX if algorithm == SLIDING_LOG else QUOTA_MAX
    warmup = 1.0 if algorithm == SMOOTH_WARMING_UP else None
    return Limit(quota, window_s, algorithm=algorithm, warmup=warmup)


class LargeTalker(SmallNode):
    """A node with one limit that tells its hub everything, and remembers the last it has said."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(ManualClock(START_S))
        self.limiter = RateLimiter(LimitControl(super().limit(limit, BALANCED)))
        self.hub = MemoryHub(clock=self.clock)
        self.said: list[Batch] = []

    def talks(self, rounds: int) -> None:
        """Exchange so often, a regular interval apart."""
        for _ in range(rounds):
            batch = self.sends()
            if batch is not None:
                self.said.append(batch)
            self.reaches(self.hub)
            self.hears()
            self.clock.advance(0.1)

    @property
    def largest_said(self) -> int:
        """The largest number in all reports."""
        return max(
            number
            for batch in self.said
            for report in (*batch.limits, *batch.cells)
            for number in report
            if isinstance(number, int)
        )


@by_correction
@pytest.mark.parametrize("cost", [QUOTA_MAX + 1, 10**15, 2**63, 10**30, HUGE], ids=named)
def test_a_correction_beyond_every_quota_is_a_mistake(
    correct: Callable[[RateLimiter, Reservation, int], None], cost: int
) -> None:
    """It is refused, changes nothing, and can be done again with a number that makes sense."""
    node = Lone("10/minute")
    reservation = node.limiter.reserve("ada", 5)

    with pytest.raises(InvalidCost, match="more than 1000000000000"):
        correct(node.limiter, reservation, cost)

    assert 5 == node.limiter.usage("ada").own
    reservation.settle(7)
    assert 7 == node.limiter.usage("ada").own


@by_correction
def test_a_correction_of_the_largest_quota_is_none(correct: Callable[[RateLimiter, Reservation, int], None]) -> None:
    """The last cost that can be corrected by is corrected by."""
    node = Lone("10/minute")
    reservation = node.limiter.reserve("ada", 5)

    correct(node.limiter, reservation, QUOTA_MAX)

    assert 5 != node.limiter.usage("ada").own


def test_parts_are_not_spent_beyond_it_either() -> None:
    """The parts add up to one cost; the block of a reservation ends well after any attempt in it."""
    node = Lone("10/minute")
    with node.limiter.reserve("ada", 5) as reservation:
        reservation.spend(QUOTA_MAX)
        with pytest.raises(InvalidCost):
            reservation.spend(1)

    assert QUOTA_MAX == node.limiter.usage("ada").own


def test_a_kind_multiplies_what_is_corrected() -> None:
    """Half as many requests of a kind that costs two are as much."""
    node = Lone(Limit(10, 60, costs={"POST": 2}))
    reservation = node.limiter.reserve("ada", 5, "POST")

    with pytest.raises(InvalidCost):
        reservation.settle(QUOTA_MAX // 2 + 1)
    with pytest.raises(InvalidCost):
        node.limiter.refund("ada", QUOTA_MAX // 2 + 1, "POST")

    assert 10 == node.limiter.usage("ada").own


def test_of_several_quotas_none_is_corrected_if_one_cannot_be() -> None:
    """All or none, as with everything else."""
    node = Lone(Limit(10, 60))
    limiter = node.agent.limit("two", [Limit(10, 60), Limit(10, 3600, costs={"POST": 2})])
    limiter.allow("ada", 2, "POST")

    with pytest.raises(InvalidCost):
        limiter.refund("ada", QUOTA_MAX // 2 + 1, "POST")

    assert [2, 4] == [usage.own for usage in limiter.usages("ada").values()]


@pytest.mark.parametrize("algorithm", METERED)
def test_debt_has_an_end_even_if_the_limit_names_none(algorithm: str) -> None:
    """After any number of the largest settlements a key owes no more than the largest quota."""
    node = Lone(Limit(10, 60, algorithm=algorithm))
    for _ in range(20):
        reservations = [node.limiter.reserve("ada", 0, on_abandon="keep") for _ in range(5)]
        for reservation in reservations:
            reservation.settle(QUOTA_MAX)
    owed = node.limiter.usage("ada").own - 10

    assert 0 < owed <= QUOTA_MAX
    assert 0 < node.limiter.hit("ada").retry_after


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_whatever_is_asked_can_be_told(algorithm: str) -> None:
    """Requests as large as the largest limit, nearly all refused, many at a time: every number is an exact double."""
    limit = largest(algorithm)
    node = LargeTalker(limit)
    for _ in range(10):
        for _ in range(3000):
            node.limiter.allow("ada", limit.cost_max)
        node.talks(3)

    said = [cell for batch in node.said for cell in batch.cells]

    assert node.largest_said <= EXACT_MAX
    assert max(cell.asked for cell in said) <= DEMAND_MAX
    assert max(cell.window_demand for cell in said) <= DEMAND_MAX
    assert max(cell.demand_milli for cell in said) <= 1000 * DEMAND_MAX


@pytest.mark.parametrize("algorithm", METERED)
def test_any_debt_can_be_told(algorithm: str) -> None:
    """The fill of a bucket is told in thousandths, and has to be an exact double all the same."""
    node = LargeTalker(largest(algorithm))
    for _ in range(4):
        node.limiter.reserve("ada", 1).settle(QUOTA_MAX)
        node.talks(3)

    assert node.largest_said <= EXACT_MAX


@pytest.mark.parametrize("algorithm", BUCKETS)
def test_a_bucket_may_need_longer_than_clocks_can_tell(algorithm: str) -> None:
    """One that needs a million years is used, reported, given up and asked how long it takes like any other."""
    node = LargeTalker(Limit(1, 86_400, algorithm=algorithm, burst=365 * 10**6))
    admitted = node.limiter.allow("ada", 10**6)
    node.talks(20)
    assert not node.limiter.allow("ada", 364 * 10**6)  # more than a node holds of what counts for so long
    node.talks(1)
    decision = node.limiter.hit("ada", 364 * 10**6)
    node.limiter.reset("ada")
    node.talks(20)

    assert (True, True) == (admitted, decision.allowed)
    # 2.2 seconds have passed, in which the part of the bucket drains that goes with the allowance.
    assert 0 < 86_400.0 * 365 * 10**6 - decision.reset_after < 2.3


@pytest.mark.parametrize("algorithm", METERED)
def test_the_largest_limit_is_exact_to_the_last_unit(algorithm: str) -> None:
    """All of it is admitted, and not one more."""
    limit = largest(algorithm)
    node = Lone(limit)
    all_but_one = node.admits(limit.cost_max - 1)

    assert (True, True, False) == (all_but_one, node.admits(1), node.admits(1))


@pytest.mark.parametrize("algorithm", BUCKETS)
def test_the_largest_quota_over_the_longest_window_drains_exactly(algorithm: str) -> None:
    """No part of the arithmetic runs out of digits."""
    node = Lone(Limit(10**12, 3660 * 86_400, algorithm=algorithm))
    everything = node.admits(10**12)
    per_second = 10**12 // (3660 * 86_400)

    node.passes(1.0)

    assert (True, True, False) == (everything, node.admits(per_second), node.admits())


@pytest.mark.parametrize("days", [1, 3, 3660])
def test_a_large_bucket_that_nobody_has_used_for_days_is_empty(days: int) -> None:
    """However much could have drained since then; so its key leaves when the next one comes."""
    lone = Lone(Limit(QUOTA_MAX, 100 * 86_400, algorithm="token-bucket"))
    lone.limiter.allow("ada")
    lone.clock.advance(days * 86_400.0)

    lone.limiter.allow("bob")

    assert ["bob"] == list(lone.limiter.control.table.cells.keys())
