"""Goal: many decisions in one call are the same as many calls.

Method: two limits alike, of which one is asked key by key; and wrong input, after which nothing must have been charged.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent, CostExceedsQuota, InvalidCost, InvalidKey, InvalidSetting, RateLimiter
from reconverge.clock import ManualClock

LIMITS = ("5/minute", "3/10s; 7/minute")
ALGORITHMS = ("fixed-window", "sliding-window", "sliding-log", "token-bucket", "gcra", "leaky-bucket", "smooth-bursty")
KEYS = st.lists(st.sampled_from(["ada", "bob", "eve", "żaba", "x" * 200]), max_size=80)


def limiters(text: str, algorithm: str) -> tuple[RateLimiter, RateLimiter]:
    """Two limits that are alike, each of an agent of its own, on clocks that stand still."""
    clock = ManualClock(1_000_000.0)
    one, other = (Agent(clock=clock).limit("api", text, algorithm=algorithm) for _ in range(2))
    return one, other


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(keys=KEYS, text=st.sampled_from(LIMITS), data=st.data())
def test_many_decisions_are_those_of_many_calls(
    algorithm: str, keys: list[str], text: str, data: st.DataObject
) -> None:
    """In the same order, with costs or without, as a list or as a buffer."""
    one, other = limiters(text, algorithm)
    costs = data.draw(st.none() | st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
    given_as: Sequence[int] | memoryview | None = costs
    if costs is not None and data.draw(st.booleans()):
        given_as = memoryview(array("q", costs))

    expected = [one.allow(key, cost) for key, cost in zip(keys, costs or [1] * len(keys), strict=True)]

    assert expected == other.allow_many(keys, given_as)
    assert [one.usage(key) for key in keys] == [other.usage(key) for key in keys]


def test_a_share_decides_about_many_as_well() -> None:
    """Out of the share first, and then out of what the parent has left."""
    agent = Agent(clock=ManualClock(1_000_000.0))
    api = agent.limit("api", "4/minute")
    batch = agent.limit("batch", "1/minute", parent=api)

    assert [True, True, True, True, False] == batch.allow_many(["ada"] * 5)


@pytest.mark.parametrize(
    ("keys", "costs", "error"),
    [
        (["ada", 7], None, InvalidKey),
        (["ada", ""], None, InvalidKey),
        (["ada", "\x00bob"], None, InvalidKey),
        (["ada", "x" * 1000], None, InvalidKey),
        (["ada", "\ud800"], None, InvalidKey),
        (["ada", "bob"], [1, -1], InvalidCost),
        (["ada", "bob"], [1, 1.0], InvalidCost),
        (["ada", "bob"], array("d", [1.0, 1.0]), InvalidCost),
        (["ada", "bob"], [1, 8], CostExceedsQuota),
        (["ada", "bob"], [1], InvalidSetting),
        (["ada", "bob"], array("q", [1, 1, 1]), InvalidSetting),
    ],
)
@pytest.mark.parametrize("text", LIMITS)
def test_a_mistake_among_many_charges_nothing(
    text: str, keys: list[str], costs: Sequence[int], error: type[Exception]
) -> None:
    """Everything is looked at first, so the error is that of one call, and those before it have not been charged."""
    _, limiter = limiters(text, "sliding-window")

    with pytest.raises(error):
        limiter.allow_many(keys, costs)

    assert 0 == limiter.usage("ada").own


def test_nobody_is_asked_about_nothing() -> None:
    """No keys, no answers."""
    _, limiter = limiters("5/minute", "sliding-window")

    assert [] == limiter.allow_many([])
    assert [] == limiter.allow_many((), array("q"))


def test_many_more_keys_than_fit_into_one_look_are_all_decided() -> None:
    """Thousands at once, new and known, are each admitted as often as the limit says."""
    _, limiter = limiters("5/minute", "sliding-window")
    keys = [f"key-{number}" for number in range(5_000)]

    answers = [limiter.allow_many(keys) for _ in range(6)]

    assert [True] * 5 + [False] == [all(answer) for answer in answers]
    assert not any(answers[-1])
