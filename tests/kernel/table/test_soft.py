"""Goal: a soft quota admits a share more, says so, and not a unit beyond.

Method: every algorithm in turn on one node, where everything is exact; each request with its answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import Agent, CostExceedsQuota, Decision, InvalidLimit, InvalidSetting, Limit, RateLimiter
from reconverge.clock import ManualClock
from reconverge.limit import BUCKETS, METERED, QUOTA_MAX
from tests.support.kernel.lone import NOON_S, in_ns


def soft_limiter(
    limit: str | Limit | list[Limit] = "10/minute", clock: ManualClock | None = None, **settings: Any
) -> RateLimiter:
    """Ten in a minute."""
    return Agent("memory://", clock=clock or ManualClock(NOON_S)).limit("soft", limit, **settings)


@pytest.fixture(params=METERED)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each in turn."""
    return str(request.param)


def test_what_is_above_the_quota_is_admitted_and_flagged_up_to_the_share(algorithm: str) -> None:
    """Ten are plain, two are flagged, and the thirteenth is refused; headers keep to the quota."""
    limiter = soft_limiter(soft=0.2, algorithm=algorithm)

    answers = [limiter.hit("ada") for _ in range(13)]

    assert [False] * 10 + [True] * 2 + [False] == [each.over_quota for each in answers]
    assert [True] * 12 + [False] == [each.allowed for each in answers]
    assert [*range(9, -1, -1), 0, 0, 0] == [each.remaining for each in answers]
    assert {10} == {each.limit for each in answers} | {limiter.usage("ada").limit}


def test_a_test_foresees_the_flag(algorithm: str) -> None:
    """For the cost that was asked about."""
    limiter = soft_limiter(soft=0.2, algorithm=algorithm)
    limiter.allow("ada", 9)

    answers = [limiter.test("ada", cost) for cost in (1, 2, 3, 4)]

    assert [(True, False), (True, True), (True, True), (False, False)] == [
        (each.allowed, each.over_quota) for each in answers
    ]


def test_the_moment_that_a_soft_refusal_names_is_the_first_that_admits(algorithm: str) -> None:
    """It waits for room below the softened quota, not below the quota."""
    clock = ManualClock(NOON_S)
    limiter = soft_limiter(soft=0.2, algorithm=algorithm, clock=clock)
    limiter.allow("ada", 12)
    clock.advance_ns(in_ns(limiter.hit("ada").retry_after) - 1)

    before = limiter.test("ada")
    clock.advance_ns(1)

    assert (False, True) == (before.allowed, limiter.test("ada").allowed)


def test_a_bucket_is_soft_by_a_share_of_its_burst() -> None:
    """It drains no faster."""
    clock = ManualClock(NOON_S)
    limiter = soft_limiter("6/minute burst 20", clock=clock, soft="10%")

    admitted = sum(limiter.allow("ada") for _ in range(30))
    clock.advance(10)

    assert (22, True, False) == (admitted, limiter.allow("ada"), limiter.allow("ada"))


def test_a_limit_that_is_not_soft_flags_nothing() -> None:
    """No answer of it does."""
    limiter = soft_limiter()

    assert {False} == {limiter.hit("ada").over_quota for _ in range(12)}


def test_of_several_quotas_the_one_that_is_exceeded_binds() -> None:
    """The other may be as scarce."""
    limiter = soft_limiter([Limit(4, 60), Limit(3, 3600, soft=0.5)])
    limiter.allow("ada", 3)

    decision: Decision = limiter.hit("ada")

    assert (True, True, "soft#2", 3) == (decision.allowed, decision.over_quota, decision.binding, decision.limit)


def test_a_cost_may_be_as_large_as_the_softened_quota() -> None:
    """And no larger."""
    limiter = soft_limiter(soft=0.2)

    assert limiter.hit("ada", 12).over_quota
    with pytest.raises(CostExceedsQuota, match="at most 12"):
        limiter.hit("bob", 13)


@pytest.mark.parametrize(("quota", "soft", "capacity"), [(10, 0.1, 11), (9, 0.1, 9), (1000, 0.001, 1001), (3, 1, 6)])
def test_a_share_is_what_is_written_rounded_down(quota: int, soft: float, capacity: int) -> None:
    """Floats are read as the decimals that they were."""
    assert capacity == Limit(quota, 60, soft=soft).capacity


@pytest.mark.parametrize("soft", ["20%", " 20 % ", "20.0%", 0.2])
def test_a_share_may_be_written_as_a_percentage(soft: float | str) -> None:
    """When it is declared with an agent."""
    assert "10/60s (sliding-window, soft 20%)" == str(soft_limiter(soft=soft).limit)


def test_a_percentage_that_is_none_is_told() -> None:
    """With what it should look like; and a contradiction, too."""
    with pytest.raises(InvalidSetting, match="neither a fraction"):
        soft_limiter(soft="a bit")
    with pytest.raises(InvalidSetting, match=r"0\.1 already"):
        soft_limiter(Limit(10, 60, soft=0.1), soft=0.2)
    with pytest.raises(InvalidLimit, match=r"soft=0\.1 raises .* to more than 1000000000000; lower soft"):
        Limit(QUOTA_MAX, 60, soft=0.1)


def test_buckets_are_soft_in_both_names() -> None:
    """They are the same."""
    assert {24} == {Limit(5, 60, algorithm=name, burst=20, soft=0.2).capacity for name in BUCKETS}


@pytest.mark.parametrize("margin", [{"soft": 0.1}, {"max_debt": 5}], ids=str)
def test_a_smooth_limit_has_no_margin(margin: dict[str, Any]) -> None:
    """Everything goes on credit there."""
    with pytest.raises(InvalidLimit, match="soft and max_debt do not go with smooth-bursty"):
        Limit(10, 60, algorithm="smooth-bursty", **margin)
