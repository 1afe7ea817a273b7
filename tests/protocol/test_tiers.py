"""Goal: a key that changes between plans keeps its use, and never admits more than the larger plan and the bound.

Method: the state machine of the protocol, in which each key is on one of two plans on each node, and changes between
them at any moment: on one node or on all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from reconverge.kernel import COMPILED, Table
from reconverge.simulation.explore.node import SmallNode
from tests.protocol.test_protocol import KEYS, NODES, Protocol
from tests.support.effort import tried

SMALLER = "limit@smaller"


class Plans(Protocol):
    """The same nodes, hub and network, with keys that change plans."""

    def _declare(self, node: SmallNode) -> Table:
        if self.nodes_ever == 0:
            self.on_smaller: set[tuple[int, str]] = set()
        kernel, limit = node.kernel, self.limit
        larger = kernel.tier(self.quota_name, limit, self.policy, reported_as=self.quota_name)
        if self.has_plans():
            burst = None if limit.burst is None else max(1, limit.burst // 3)
            smaller = replace(limit, quota=max(1, limit.quota * 2 // 5), burst=burst)
            kernel.tier(SMALLER, smaller, self.policy, reported_as=self.quota_name)
        return larger

    def has_plans(self) -> bool:
        """Whether the limit is one that plans can have."""
        return self.twist != "calendar" and self.limit.initial is None

    def _table(self, node: SmallNode, key: str) -> Table:
        return node.kernel.tables[SMALLER if (node.number, key) in self.on_smaller else self.quota_name]

    @precondition(lambda self: self.has_plans())
    @rule(node=NODES, key=st.sampled_from(KEYS), everywhere=st.booleans(), asked=st.integers(0, 60))
    def changes_plan(self, node: int, key: str, everywhere: bool, asked: int) -> None:
        """A key is on the other plan from now on."""
        for each in self.nodes if everywhere else [self._node(node)]:
            self.on_smaller ^= {(each.number, key)}
            self._ask(each, key, 1, asked)


TestPlans = Plans.TestCase
TestPlans.settings = settings(
    max_examples=tried(70, long=400, brief=20) if COMPILED else tried(30, long=100), stateful_step_count=50
)
pytestmark = pytest.mark.timeout(1500)
