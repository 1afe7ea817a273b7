"""Goal: what memory settles at once is exactly what it settles at a closer look, in C as in Python.

Method: two nodes and a hub in whatever state their messages have led to; both are asked the same about the same cell.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, CostExceedsQuota, InvalidCost, UnknownKind
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import COMPILED, AskGate, Table
from reconverge.limit import Limit
from reconverge.policies import AVAILABLE, BALANCED, STRICT
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried

QUOTA: Final = 6
ALGORITHMS: Final = ("fixed-window", "sliding-window", "token-bucket", "gcra", "sliding-slices", "sliding-log")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allow"), st.integers(0, 1), st.integers(0, QUOTA)),
        st.tuples(st.just("exchange"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("passes"), st.just(0), st.integers(1, 80)),
    ),
    max_size=30,
)


def closer(table: Table, cost: int) -> bool:
    """Whether memory settles a request, as the gate looks."""
    return not AskGate(table).in_doubt("ada", (cost * table.unit,))


@settings(max_examples=tried(60, long=1000), deadline=None)
@given(st.sampled_from(ALGORITHMS), st.sampled_from([STRICT, BALANCED, AVAILABLE]), STEPS)
def test_what_is_settled_at_once_is_settled_at_a_closer_look(
    algorithm: str, policy: object, steps: list[tuple[str, int, int]]
) -> None:
    """And the compiled kernel, which knows these limits, settles all that is settled."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock)
    nodes = [SmallNode(clock) for _ in range(2)]
    tables = [node.limit(Limit(QUOTA, 10.0, algorithm=algorithm), policy) for node in nodes]  # type: ignore[arg-type]
    for what, number, amount in steps:
        if what == "allow":
            tables[number].allow("ada", amount)
        elif what == "exchange":
            nodes[number].exchanges_with(hub)
        else:
            clock.advance_ns(amount * SECOND_NS // 10)
        for table in tables:
            for cost in (0, 1, QUOTA):
                at_once = table.settles("ada", cost)
                at_a_closer_look = closer(table, cost)
                assert at_a_closer_look or not at_once
                if COMPILED and table.compiled and "ada" in table.cells:
                    assert table.settles("ada", cost) == at_a_closer_look


def test_a_key_that_is_not_known_is_not_settled() -> None:
    """And the question leaves nothing behind."""
    node = SmallNode(ManualClock(START_S))
    table = node.limit(Limit(QUOTA, 10.0), STRICT)

    assert not table.settles("ada")
    assert "ada" not in table.cells


def test_mistakes_are_those_of_hit() -> None:
    """A cost that is none, and a kind that is not known."""
    limiter = Agent("memory://").limit("limit", "5/minute")

    for kind, cost, error in ((None, -1, InvalidCost), ("write", 1, UnknownKind), (None, 6, CostExceedsQuota)):
        with pytest.raises(error):
            limiter.ask_blocking("ada", cost, kind=kind)
