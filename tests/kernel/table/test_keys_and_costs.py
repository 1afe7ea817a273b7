"""Goal: what cannot be counted is a mistake, said as such, and everything else is counted.

Method: every way of asking is handed the odd values one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconverge import CostExceedsQuota, InvalidCost, InvalidKey, RateLimiter
from tests.support.kernel.lone import Lone
from tests.support.kernel.odd import HUGE, named


class Shouting(str):
    """A string that hides what it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "SOMETHING ELSE"

    def __repr__(self) -> str:
        return "something else again"


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


@pytest.fixture(params=["fixed-window", "sliding-window", "token-bucket", "gcra"])
def limiter(request: pytest.FixtureRequest) -> RateLimiter:
    """Ten per minute, by each algorithm in turn."""
    return Lone("10/minute", algorithm=request.param).limiter


# ---------------------------------------------------------------- keys


@by_key
@pytest.mark.parametrize(
    "key", ["a", "k" * 256, "é" * 128, "\U0001f600" * 64, "a\x00b", "a\r\nb", "{a}", " ", "\x01"], ids=named
)
def test_any_string_of_up_to_256_bytes_is_a_key(
    any_limiter: RateLimiter, ask: Callable[[RateLimiter, str], object], key: str
) -> None:
    """It may have any content that does not begin with NUL; nothing is raised."""
    ask(any_limiter, key)


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


@by_key
def test_the_overflow_cell_is_out_of_a_callers_reach(ask: Callable[[RateLimiter, str], object]) -> None:
    """Its name is refused as a key even once it exists."""
    node = Lone("10/minute", keys_max=1)
    node.admits(key="ada")
    node.admits(key="bob")

    with pytest.raises(InvalidKey, match="NUL"):
        ask(node.limiter, "\x00overflow")


def test_a_string_in_disguise_is_the_string_that_it_is() -> None:
    """A subclass of str is counted under its characters, not under what it calls itself."""
    node = Lone("10/minute")

    node.admits(key=Shouting("ada"))
    node.admits(key=Shouting("ada"))

    assert (2, 0) == (node.limiter.usage("ada").own, node.limiter.usage("SOMETHING ELSE").own)


def test_a_disguise_is_not_kept() -> None:
    """The node remembers a plain string, which cannot change its mind."""
    node = Lone("10/minute")

    node.admits(key=Shouting("ada"))

    assert [str] == [type(key) for key in node.limiter.control.table.cells]


def test_keys_that_look_alike_are_different_keys() -> None:
    """No normalisation, no trimming, no folding of case."""
    node = Lone("1/minute")

    assert all(node.admits(key=key) for key in ["e\u0301", "\u00e9", "E\u0301", " e\u0301", "e\u0301 ", "e\u0301\x00"])


def test_the_longest_key_is_a_setting() -> None:
    """Whoever needs longer keys says so, and bytes are what counts."""
    node = Lone("10/minute")
    node.agent = type(node.agent)("memory://", clock=node.clock, key_bytes_max=3)
    limiter = node.agent.limit("limit", "10/minute")
    limiter.allow("abc")

    with pytest.raises(InvalidKey, match="4 bytes, more than 3"):
        limiter.allow("éé")


# ---------------------------------------------------------------- costs


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


def test_a_cost_of_the_whole_quota_is_admitted(limiter: RateLimiter) -> None:
    """The largest cost there is fits into an unused limit, and leaves nothing."""
    assert (True, False) == (limiter.allow("ada", 10), limiter.allow("ada"))


def test_a_cost_of_nothing_asks_and_charges_nothing(limiter: RateLimiter) -> None:
    """Asking with a cost of zero any number of times leaves the key unused."""
    answers = {limiter.allow("ada", 0) for _ in range(20)} | {limiter.hit("ada", 0).allowed}

    assert ({True}, 0) == (answers, limiter.usage("ada").own)


def test_a_cost_of_nothing_fits_even_when_all_is_used(limiter: RateLimiter) -> None:
    """A limit that is used up has room for nothing."""
    limiter.allow("ada", 10)

    decision = limiter.hit("ada", 0)

    assert (True, 0, 0.0) == (decision.allowed, decision.remaining, decision.retry_after)


def test_a_cost_of_nothing_does_not_fit_into_debt(limiter: RateLimiter) -> None:
    """A key that settled for more than it had is not free to go on."""
    with limiter.reserve("ada", 10) as reservation:
        reservation.settle(11)

    decision = limiter.hit("ada", 0)

    assert (False, 0) == (decision.allowed, decision.remaining)


def test_a_refusal_costs_nothing(limiter: RateLimiter) -> None:
    """Whoever keeps asking is admitted as soon as whoever waited."""
    limiter.allow("ada", 9)
    for _ in range(50):
        limiter.allow("ada", 2)

    assert (9, True) == (limiter.usage("ada").own, limiter.allow("ada"))


def test_a_test_charges_nothing(limiter: RateLimiter) -> None:
    """It tells what a hit would answer, and what is left before that."""
    for _ in range(20):
        limiter.test("ada", 10)

    assert (0, True, 10) == (limiter.usage("ada").own, limiter.test("ada").allowed, limiter.test("ada").remaining)


def test_a_decision_is_true_when_it_allows(limiter: RateLimiter) -> None:
    """It can stand in an if."""
    assert (True, False) == (bool(limiter.hit("ada", 10)), bool(limiter.hit("ada")))
