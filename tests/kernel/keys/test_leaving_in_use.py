"""Goal: a full node without a hub has room for newcomers, and no key that leaves for one ever has a second quota.

Method: nodes with room for few keys in virtual time, beside a node with room for all that is asked what the first one
has admitted: whatever that refuses was too much.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, Limit
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Kernel, Table
from reconverge.limit import FIXED_WINDOW, GCRA, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S, Lone

REMEMBERED = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, GCRA)
WINDOW_S = 60.0


def full_of(spec: Limit | str, keys: int, *, made_up: int, algorithm: str | None = None) -> Lone:
    """A node with room for so many keys, which so many made-up keys have asked once each."""
    node = Lone(spec, algorithm=algorithm, keys_max=keys)
    for number in range(made_up):
        node.admits(key=f"made up {number}")
    return node


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_newcomers_are_admitted_beside_made_up_keys(algorithm: str) -> None:
    """More keys than there is room for were asked once each, of a hundred, and nothing has faded."""
    node = full_of("100/minute", 1000, made_up=1001, algorithm=algorithm)

    assert 10 == sum(node.admits(key=f"newcomer {number}") for number in range(10))
    assert (1000, 0) == (node.agent.stats().keys, node.agent.stats().limits["limit"].overflowed)
    assert "ready" == node.agent.health().state


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_a_newcomer_is_admitted_beside_keys_of_the_largest_quota(algorithm: str) -> None:
    """Its buckets do not fit into what the compiled kernel counts in itself, and are decided in Python."""
    node = full_of(Limit(10**12, 0.001, algorithm), 2, made_up=2)

    assert node.admits(key="newcomer")
    assert 0 == node.agent.stats().limits["limit"].overflowed


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_a_key_that_left_and_finds_no_room_can_use_half_of_its_quota_once_more(algorithm: str) -> None:
    """It shares the one count of such keys, which does not know what it has used before."""
    node = Lone("10/day", algorithm=algorithm, keys_max=2)
    before = node.admitted_of(5)
    for name in ("one", "other", "another"):
        node.passes(2.0)  # a key that was asked about just now stays
        node.admitted_of(5, key=name)
    for cell in node.limiter.control.table.cells.in_order():
        node.admitted_of(5, key=cell.key)

    again = node.admitted_of(11)

    assert (5, 10) == (before, again)
    assert 11 == node.agent.stats().limits["limit"].overflowed


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_honest_keys_are_served_though_there_are_half_as_many_more_than_there_is_room_for(algorithm: str) -> None:
    """Each asks once, of two a day."""
    node = Lone("2/day", algorithm=algorithm, keys_max=1000)

    assert 1500 == sum(node.admits(key=f"user {number}") for number in range(1500))


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["100/minute", "2/day"])
def test_newcomers_are_admitted_at_the_room_of_the_default(spec: str) -> None:
    """150,000 keys ask once each."""
    limiter = Agent("memory://").limit("limit", spec)

    assert 150_000 == sum(limiter.allow(f"user {number}") for number in range(150_000))


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_a_newcomer_has_half_of_its_quota_though_the_memory_is_full(algorithm: str) -> None:
    """Many more keys have come than there is room for: newcomers are mistaken for others that have used little."""
    node = full_of("100/minute", 100, made_up=3000, algorithm=algorithm)

    left = [node.admitted_of(101, key=f"newcomer {number}") for number in range(20)]

    assert 50 <= min(left) < 100


@pytest.mark.parametrize("algorithm", REMEMBERED)
@pytest.mark.parametrize("used", [1, 3, 5])
def test_a_key_that_comes_back_goes_on_from_what_it_had_used(algorithm: str, used: int) -> None:
    """To the request, as far as few keys have left: it has no second quota, and loses none of its own."""
    node = Lone("10/minute", algorithm=algorithm, keys_max=1)
    node.admitted_of(used)
    node.admits(key="bob")

    assert "ada" not in node.limiter.control.table.cells
    assert 10 - used == node.admitted_of(11)


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_a_key_that_has_used_more_than_half_stays(algorithm: str) -> None:
    """This bounds the use that a newcomer can be mistaken for."""
    node = Lone("10/minute", algorithm=algorithm, keys_max=1)
    node.admitted_of(6)
    node.admits(key="bob")

    assert ["ada"] == list(node.limiter.control.table.cells)


@pytest.mark.parametrize(
    ("algorithm", "passes_s", "left"),
    [
        (FIXED_WINDOW, 59.0, 6),
        (FIXED_WINDOW, 60.0, 10),
        (SLIDING_WINDOW, 60.0, 6),
        (SLIDING_WINDOW, 75.0, 7),
        (SLIDING_WINDOW, 120.0, 10),
        (TOKEN_BUCKET, 6.0, 7),
        (TOKEN_BUCKET, 18.0, 9),
        (TOKEN_BUCKET, 24.0, 10),
    ],
)
def test_what_is_remembered_fades_as_it_would_have(algorithm: str, passes_s: float, left: int) -> None:
    """With its window, over the window after it, or as fast as a bucket drains: four of ten were used at noon."""
    node = Lone("10/minute", algorithm=algorithm, keys_max=1)
    node.admitted_of(4)
    node.admits(key="bob")

    node.passes(passes_s)

    assert left == node.admitted_of(11)


@pytest.mark.parametrize("algorithm", REMEMBERED)
def test_a_key_that_was_reset_has_its_whole_quota_though_it_leaves_and_comes_back(algorithm: str) -> None:
    """The use remembered from before is not held against it."""
    node = Lone("10/minute", algorithm=algorithm, keys_max=2)
    node.admitted_of(5)
    for key in ("bob", "cyd", "dan"):
        node.admits(key=key)

    node.limiter.reset("ada")
    for key in ("eve", "fay", "gus"):
        node.admits(key=key)

    assert 10 == node.admitted_of(11)


@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET])
def test_a_key_that_left_one_plan_has_no_second_quota_in_another(algorithm: str) -> None:
    """The plans of a limit have one memory."""
    free, pro = _plans(algorithm, "10/minute", "20/minute")
    for _ in range(5):
        free.allow("ada")
    pro.allow("bob")
    free.allow("cyd")

    assert "ada" not in free.cells
    assert 15 == sum(pro.allow("ada") for _ in range(21))


def _plans(algorithm: str, *quotas: str) -> list[Table]:
    kernel = Kernel(
        ManualClock(NOON_S),
        namespace="test",
        interval_ns=INTERVAL_NS,
        interval_min_ns=INTERVAL_NS // 10,
        keys_max=2,
        key_bytes_max=256,
        alone=True,
    )
    return [
        kernel.tier(f"requests@{quota}", Limit.parse(quota, algorithm=algorithm), STRICT, reported_as="requests")
        for quota in quotas
    ]


KEYS = st.sampled_from([f"key {number}" for number in range(12)])
STEPS = st.lists(
    st.tuples(KEYS, st.sampled_from([1, 1, 1, 2, 3]), st.sampled_from([0, 0, 0, 0, 1, 7, 333, 1000, 9999, 61_000])),
    min_size=20,
    max_size=150,
)


@pytest.mark.parametrize("algorithm", REMEMBERED)
@given(steps=STEPS, quota=st.sampled_from([2, 3, 7, 10, 40]), keys_max=st.integers(1, 5), several=st.booleans())
@settings(max_examples=tried(60, long=600))
def test_no_sequence_of_evictions_gives_a_key_a_second_quota(
    algorithm: str, steps: list[tuple[str, int, int]], quota: int, keys_max: int, several: Any
) -> None:
    """A node with room for all keys that knows the same requests admits all that a full node admits."""
    clock = ManualClock(NOON_S)
    small, exact = (Agent("memory://", clock=clock, max_keys=most, policy="strict") for most in (keys_max, 1000))
    limits = [Limit(quota, 10.0, algorithm=algorithm), Limit(3 * quota, 60.0, algorithm=algorithm)][: 1 + several]
    names = [f"limit-{number}" for number in range(len(limits))]
    pairs = [(small.limit(name, limit), exact.limit(name, limit)) for name, limit in zip(names, limits, strict=True)]
    for number, (key, cost, passes_ms) in enumerate(steps):
        clock.advance_ns(passes_ms * SECOND_NS // 1000)
        bounded, model = pairs[number % len(pairs)]
        if cost <= quota and bounded.allow(key, cost):
            assert model.allow(key, cost)
