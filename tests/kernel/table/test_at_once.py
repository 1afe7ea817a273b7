"""Goal: what is charged at once is decided and explained as if the limit had taken its time.

Method: the same is asked of two limits, of which one has to look every time; under a clock that is told what time it
is, for every algorithm, and for what it knows of the others any state that there could be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconverge import Agent, Decision, Limit, RateLimiter
from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS, ManualClock, SystemClock
from reconverge.kernel import Kernel
from reconverge.kernel.cell import Cell, Headroom
from reconverge.limit import ALGORITHMS, FIXED_WINDOW, SLIDING_WINDOW, SMOOTH, TOKEN_BUCKET
from reconverge.limiter.control import LimitControl
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT, Policy, View
from reconverge.simulation.explore.node import INTERVAL_NS, START_S
from tests.support.effort import tried
from tests.support.kernel.lone import Lone

HALVES = [64, 32, 16, 8, 4, 2, 1]
"""Asked for in turn they fill whatever is left of up to twice the first."""
POLICIES = (STRICT, BALANCED, AVAILABLE, NAIVE)
KINDS = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)


def closes(limiter: RateLimiter, key: str = "ada") -> None:
    """Makes the next decision about a key look at everything."""
    cell = limiter.control.table.cells.get(key)
    if cell is not None:
        cell.room = -1


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in SMOOTH])
@given(steps=st.lists(st.tuples(st.sampled_from([0, 1, 1, 2]), st.sampled_from([0, 250, 700, 4000])), max_size=30))
def test_a_hit_that_is_charged_at_once_says_what_a_slow_one_says(algorithm: str, steps: list[tuple[int, int]]) -> None:
    """Milliseconds of whole drops of a bucket, so that it is as full however often it was looked at."""
    one, other = (Lone(Limit(20, 20.0, algorithm=algorithm)) for _ in range(2))

    for cost, milliseconds in steps:
        closes(other.limiter)

        assert other.hits(cost) == one.hits(cost)
        one.passes(ns=MILLISECOND_NS * milliseconds)
        other.passes(ns=MILLISECOND_NS * milliseconds)


@pytest.mark.parametrize("algorithm", KINDS)
def test_hits_after_the_first_are_charged_at_once(algorithm: str) -> None:
    """The room that was worked out for the first one is good for them, so it stays."""
    node = Lone(Limit(100, 60.0, algorithm=algorithm))
    node.hits()
    room = node.limiter.control.table.cells["ada"].room

    assert [98, 97, 95] == [node.hits(cost).remaining for cost in (1, 1, 2)]
    cell = node.limiter.control.table.cells["ada"]
    assert (room, 5) == (cell.room, cell.used + cell.level // (60 * SECOND_NS))


def test_a_bucket_is_explained_as_it_is_by_now() -> None:
    """It has drained since it was last marked, although nobody marks it when a hit is charged at once."""
    node = Lone(Limit(60, 60.0, algorithm=TOKEN_BUCKET))
    node.hits(30)
    node.passes(10)

    decision = node.hits(5)

    assert (35, 25.0) == (decision.remaining, decision.reset_after)


def test_nobody_is_told_too_early_a_time_by_the_machines_clock() -> None:
    """By it, what is charged at once may be explained as of a little earlier; never as of later."""
    limiter = Agent("memory://").limit("limit", Limit(2, 7200.0, algorithm=TOKEN_BUCKET, burst=1000))
    began_ns = SystemClock.monotonic_ns()
    limiter.hit("ada", 10)

    answers = [limiter.hit("ada") for _ in range(5)]

    passed_s = (SystemClock.monotonic_ns() - began_ns) / SECOND_NS
    for number, answer in enumerate(answers, start=11):
        assert number * 3600.0 - passed_s <= answer.reset_after <= number * 3600.0 + 1.0


def now_and_then(usual: st.SearchStrategy[Any], odd: Any) -> st.SearchStrategy[Any]:
    """Draws a usual value, but an odd one in thirty."""
    return st.integers(0, 30).flatmap(lambda number: usual if number else st.just(odd))


AMOUNTS = now_and_then(st.integers(0, 40), 10**12)
RATES = now_and_then(st.integers(0, 1500).map(lambda part: part / 7), 1e12)
AGES_NS = now_and_then(st.integers(0, 32).map(lambda part: part * INTERVAL_NS // 10 + part % 2), 10**17)
STATES = st.fixed_dictionaries(
    {
        "used": now_and_then(st.integers(0, 20), 10**12),
        "allowance": now_and_then(st.integers(0, 20), 1500),
        "overdraft": AMOUNTS,
        "capacity": st.sampled_from([1500, 1500, 60, 40, 30, 1]),
        "others_current": AMOUNTS,
        "others_previous": AMOUNTS,
        "previous": AMOUNTS,
        "silent": AMOUNTS,
        "fleet_demand": RATES,
        "demand": RATES,
        "last_demand": st.sampled_from([0, 0, 10**12]),
        "nodes": st.integers(1, 5),
    }
)


def asked_about(
    policy: Policy, limit: Limit, state: dict[str, Any], passed_ns: int, age_ns: int, cost: int
) -> tuple[list[Decision], dict[str, Any]]:
    """The answers of a node that knows this of a key, and what it knows afterwards."""
    clock = ManualClock(START_S)
    kernel = Kernel(
        clock,
        namespace="test",
        interval_ns=INTERVAL_NS,
        interval_min_ns=INTERVAL_NS // 10,
        keys_max=9,
        key_bytes_max=99,
    )
    limiter = RateLimiter(LimitControl(kernel.declare("limit", limit, policy)))
    clock.advance_ns(10**18)
    limiter.hit("ada", 0)
    cell = limiter.control.table.cells["ada"]
    cell.shard.lease_until_ns = NEVER_NS
    cell.shard.round_trip_ns = 3 * MILLISECOND_NS
    clock.advance_ns(passed_ns)
    limiter.control.table.edges.rebase(cell, clock.monotonic_ns())
    cell.heard_ns = clock.monotonic_ns() - age_ns
    for name, value in state.items():
        setattr(cell, name, min(value, cell.capacity) if name in ("allowance", "overdraft") else value)
    decisions = [limiter.hit("ada", each) for each in (cost, *HALVES)]
    return decisions, {
        name: getattr(cell, name)
        for name in (*Headroom.__slots__, *Cell.__slots__)
        if isinstance(getattr(cell, name), (int, float))
    }


def stranger(policy: Policy) -> Policy:
    """One that does the same, and of which nobody but Python can know."""

    def reach(view: View) -> int:
        return policy.reach(view)

    return replace(policy, reach=reach)


@pytest.mark.parametrize("policy", POLICIES, ids=[policy.name for policy in POLICIES])
@settings(max_examples=tried(80, long=400))
@given(
    algorithm=st.sampled_from(KINDS),
    window_s=st.sampled_from([0.05, 1.0, 5.0, 60.0, 3600.0]),
    state=STATES,
    passed_ms=st.integers(0, 6000),
    age_ns=AGES_NS,
    cost=st.sampled_from([0, 1, 1, 2, 3, 5, 20, 1500]),
)
def test_a_policy_reaches_as_far_whoever_works_it_out(
    policy: Policy,
    algorithm: str,
    window_s: float,
    state: dict[str, Any],
    passed_ms: int,
    age_ns: int,
    cost: int,
) -> None:
    """Compiled where it is known there, and in Python as for any policy of one's own."""
    limit = Limit(1500, window_s, algorithm=algorithm)

    known = asked_about(policy, limit, state, passed_ms * MILLISECOND_NS, age_ns, cost)

    assert asked_about(stranger(policy), limit, state, passed_ms * MILLISECOND_NS, age_ns, cost) == known
    event(f"{known[0][0].allowed}, {'beyond' if known[1]['used'] > known[1]['allowance'] else 'within'} the allowance")
