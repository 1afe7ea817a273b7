"""Goal: requests of different kinds share one budget, each at its own cost. Method: examples, good and bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconverge import Agent, CostExceedsQuota, InvalidCost, InvalidLimit, Limit, RateLimiter, UnknownKind
from reconverge.clock import ManualClock
from reconverge.limit.checks import KINDS_MAX
from tests.support.kernel.lone import NOON_S
from tests.support.kernel.odd import HUGE, named

COSTS = {"GET": 1, "POST": 2, "OPTIONS": 0}


def api(limit: str | list[Limit] = "10/minute", costs: dict[str, int] | None = COSTS) -> RateLimiter:
    """Ten in a minute, at those costs."""
    return Agent("memory://", clock=ManualClock(NOON_S)).limit("api", limit, costs=costs)


def used_on(limiter: RateLimiter) -> int:
    return limiter.usage("ada").own


WAYS: dict[str, Callable[[RateLimiter, int, str], object]] = {
    "allow": lambda limiter, cost, kind: limiter.allow("ada", cost, kind=kind),
    "hit": lambda limiter, cost, kind: limiter.hit("ada", cost, kind=kind),
    "reserve": lambda limiter, cost, kind: limiter.reserve("ada", cost, kind=kind),
    "wait": lambda limiter, cost, kind: limiter.wait_blocking("ada", cost, kind=kind),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("cost", "kind", "expected"), [(1, "GET", 1), (1, "POST", 2), (3, "POST", 6), (9, "OPTIONS", 0)]
)
def test_a_request_costs_what_its_kind_does(way: str, cost: int, kind: str, expected: int) -> None:
    """And several at once so many times as much."""
    limiter = api()

    assert WAYS[way](limiter, cost, kind)
    assert expected == used_on(limiter)


def test_kinds_share_one_budget() -> None:
    """The cost of one is missing from the other; asking charges nothing."""
    limiter = api()
    limiter.allow("ada", 9)

    assert not limiter.test("ada", kind="POST")
    assert not limiter.allow("ada", kind="POST")
    assert limiter.allow("ada", kind="GET")


def test_a_reservation_is_settled_in_the_unit_of_its_kind() -> None:
    """An estimate of three POSTs that turn out to be one; and a refund likewise."""
    limiter = api()

    limiter.reserve("ada", 3, kind="POST").settle(1)
    settled = used_on(limiter)
    limiter.refund("ada", kind="POST")

    assert (2, 0) == (settled, used_on(limiter))


def test_any_other_kind_costs_what_the_star_says() -> None:
    """Which stands for all that are not named, and for itself."""
    limiter = api(costs={"GET": 1, "*": 4})

    for kind in ("DELETE", "*", "GET"):
        limiter.allow("ada", kind=kind)

    assert 9 == used_on(limiter)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["get", "", 7, ["GET"]], ids=named)
def test_an_unknown_kind_is_a_mistake_that_names_the_known_ones(way: str, kind: Any) -> None:
    """Nothing is charged for it."""
    limiter = api()

    with pytest.raises(UnknownKind, match=r"known: 'GET', 'POST', 'OPTIONS'; add it to costs, or .* '\*'") as caught:
        WAYS[way](limiter, 1, kind)

    assert ("api", kind, ("GET", "POST", "OPTIONS"), 0) == (
        caught.value.limit,
        caught.value.kind,
        caught.value.known,
        used_on(limiter),
    )


@pytest.mark.parametrize("limit", ["10/minute", "10/minute; 90/hour"])
def test_a_limit_without_costs_knows_no_kinds(limit: str) -> None:
    """It says how to give it some."""
    with pytest.raises(UnknownKind, match="no costs by kind; declare it with costs="):
        api(limit, costs=None).allow("ada", kind="GET")


def test_a_cost_is_checked_before_its_kind_multiplies_it() -> None:
    """Also of a kind that costs nothing; and the product has to fit."""
    limiter = api()

    with pytest.raises(InvalidCost):
        limiter.allow("ada", -1, kind="OPTIONS")
    with pytest.raises(CostExceedsQuota, match="cost of 12"):
        limiter.allow("ada", 6, kind="POST")


def test_each_quota_charges_by_its_own_costs() -> None:
    """Requests and tokens, say: who has no table counts requests."""
    limiter = api([Limit(10, 60), Limit(1000, 60, costs={"small": 10, "large": 100})], costs=None)

    limiter.allow("ada", 2, kind="large")
    limiter.reserve("ada", 3, kind="small").settle(1)

    assert {"api": 3, "api#2": 210} == {name: usage.own for name, usage in limiter.usages("ada").items()}


def test_costs_are_copied() -> None:
    """Who changes the table afterwards changes nothing."""
    costs = dict(COSTS)
    limiter = api(costs=costs)
    costs["GET"] = 9

    limiter.allow("ada", kind="GET")

    assert 1 == used_on(limiter)
    assert COSTS == limiter.limit.costs


@pytest.mark.parametrize(
    ("costs", "problem"),
    [
        ({}, "1 to 1000 kinds of request, not 0"),
        ({str(number): 1 for number in range(KINDS_MAX + 1)}, "1 to 1000 kinds of request, not 1001"),
        ([("GET", 1)], "not a dict"),
        ({"": 1}, "at least one character"),
        ({1: 1}, "not a string"),
        ({"GET": -1}, "'GET' costs -1"),
        ({"GET": 1.5}, "'GET' costs 1.5"),
        ({"GET": True}, "'GET' costs True"),
        ({"GET": HUGE}, "never be admitted"),
        ({"GET": 11}, "'GET' costs 11, which can never be admitted: 10 is the most at once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_a_table_of_costs_is_refused(costs: Any, problem: str) -> None:
    """It says which kind is wrong, and why."""
    with pytest.raises(InvalidLimit, match=problem):
        api(costs=costs)


def test_a_limit_with_costs_says_so_and_can_be_a_key() -> None:
    """Equal limits have equal costs."""
    limit = Limit(10, 60, costs=COSTS)

    assert "10/60s (sliding-window, costs GET 1, POST 2, OPTIONS 0)" == str(limit)
    assert {limit} == {Limit(10, 60, costs=dict(COSTS))}
    assert limit != Limit(10, 60)
