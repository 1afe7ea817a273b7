"""Goal: what cannot be counted is a mistake, said as such, and everything else is counted.

Method: every way of asking is handed the odd values one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconverge import CostExceedsQuota, InvalidCost, InvalidKey, RateLimiter
from tests.support.kernel.lone import Lone
from tests.support.kernel.odd import HUGE, named

ASKING_BY_KEY: dict[str, Callable[[RateLimiter, str], object]] = {
    "allow": lambda limiter, key: limiter.allow(key),
    "hit": lambda limiter, key: limiter.hit(key),
    "test": lambda limiter, key: limiter.test(key),
    "usage": lambda limiter, key: limiter.usage(key),
    "reset": lambda limiter, key: limiter.reset(key),
    "reserve": lambda limiter, key: limiter.reserve(key, 1),
    "warm": lambda limiter, key: limiter.warm([key]),
}
ASKING_BY_COST: dict[str, Callable[[RateLimiter, int], object]] = {
    "allow": lambda limiter, cost: limiter.allow("ada", cost),
    "hit": lambda limiter, cost: limiter.hit("ada", cost),
    "test": lambda limiter, cost: limiter.test("ada", cost),
    "reserve": lambda limiter, cost: limiter.reserve("ada", cost),
}


by_key = pytest.mark.parametrize("ask", ASKING_BY_KEY.values(), ids=ASKING_BY_KEY)
by_cost = pytest.mark.parametrize("ask", ASKING_BY_COST.values(), ids=ASKING_BY_COST)


@pytest.fixture
def any_limiter() -> RateLimiter:
    """Ten per minute, where the algorithm does not matter."""
    return Lone("10/minute").limiter


@by_key
@pytest.mark.parametrize(
    "key", ["a", "k" * 256, "é" * 128, "\U0001f600" * 64, "a\x00b", "a\r\nb", "{a}", " ", "\x01"], ids=named
)
def test_any_string_of_up_to_256_bytes_is_a_key(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, str], object], key: str
) -> None:
    """It may have any content that does not begin with NUL; nothing is raised, and it has a quota of its own."""
    ask(any_limiter, key)
    used = any_limiter.usage(key).own

    assert (10, 0) == (used + sum(any_limiter.allow(key) for _ in range(11)), any_limiter.usage("another").own)


@by_key
@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "at least one character"),
        ("\x00", "does not start with NUL"),
        ("\x00overflow", "does not start with NUL"),
        ("k" * 257, "257 bytes, more than 256"),
        ("é" * 128 + "k", "257 bytes, more than 256"),
        ("k" * 10**6, "1000000 bytes, more than 256"),
        ("a\ud800", "lone surrogate"),
        ("\udfff", "lone surrogate"),
        (b"ada", "not bytes"),
        (None, "not None; name what is counted"),
        (7, "not int"),
        (HUGE, "not int"),
        (True, "not bool"),
        (["ada"], "not list"),
        ({"ada": 1}, "not dict"),
        (("ada",), "not tuple"),
    ],
    ids=named,
)
def test_what_cannot_be_a_key_is_refused_by_every_way_of_asking(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, str], object], key: str, problem: str
) -> None:
    """The message tells what is wrong with it, at a bearable length."""
    with pytest.raises(InvalidKey, match=problem) as caught:
        ask(any_limiter, key)

    assert len(str(caught.value)) < 300


def test_keys_that_look_alike_are_different_keys() -> None:
    """No normalisation, no trimming, no folding of case."""
    node = Lone("1/minute")

    assert all(node.admits(key=key) for key in ["e\u0301", "\u00e9", "E\u0301", " e\u0301", "e\u0301 ", "e\u0301\x00"])


@by_cost
@pytest.mark.parametrize("cost", [1.0, 0.5, float("nan"), float("inf"), True, False, "1", None, [1], 1 + 0j], ids=named)
def test_a_cost_that_is_no_whole_number_is_a_mistake(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, int], object], cost: int
) -> None:
    """Nothing is rounded, and truth is not a number."""
    with pytest.raises(InvalidCost, match=f"is of type {type(cost).__name__}"):
        ask(any_limiter, cost)


@by_cost
@pytest.mark.parametrize("cost", [-1, -(10**12), -HUGE], ids=named)
def test_a_negative_cost_is_a_mistake(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, int], object], cost: int
) -> None:
    """Nobody gets anything back by asking for less than nothing."""
    with pytest.raises(InvalidCost, match="is negative") as caught:
        ask(any_limiter, cost)

    assert cost == caught.value.cost


@by_cost
@pytest.mark.parametrize("cost", [11, 10**12, 1 << 64, HUGE], ids=named)
def test_a_cost_above_the_quota_is_a_mistake_and_no_refusal(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, int], object], cost: int
) -> None:
    """It could never be admitted, however long one waits; the error says what could be."""
    with pytest.raises(CostExceedsQuota, match="at most 10 at once") as caught:
        ask(any_limiter, cost)

    assert ("limit", cost, 10) == (caught.value.limit, caught.value.cost, caught.value.quota)


def test_a_burst_is_what_a_cost_may_not_exceed() -> None:
    """A bucket smaller than its quota can never take the quota at once."""
    node = Lone("100/s burst 5")

    with pytest.raises(CostExceedsQuota, match="at most 5 at once"):
        node.admits(6)
