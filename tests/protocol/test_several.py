"""Goal: with several quotas on one limit the promises hold for each of them, whatever the network does.

Method: the state machine of the protocol, with a limit of two or three quotas; every invariant is checked for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from reconverge.clock import ManualClock
from reconverge.hub.report import Batch
from reconverge.kernel import AllQuotas, Verdict, settle
from reconverge.kernel.cell import measure
from reconverge.limit import ALGORITHMS, Limit
from reconverge.limit.quotas import quotas_of
from reconverge.policies import choose
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge.simulation.explore.observer import BucketTruth, truth_of
from reconverge_sync.memory import MemoryHub
from tests.protocol.test_protocol import COSTS, KEYS, NODES, NODES_MAX, PARTS, Protocol, limit_of
from tests.support.effort import tried

QUOTAS = st.builds(
    lambda algorithm, quota, window_s, soft, count_refused: limit_of(
        quota, window_s, algorithm, 12, soft=soft, count_refused=count_refused
    ),
    algorithm=st.sampled_from(ALGORITHMS),
    quota=st.sampled_from([7, 40, 300]),
    window_s=st.sampled_from([2.0, 2.0, 9.0]),
    soft=st.sampled_from([0.0, 0.0, 0.3]),
    count_refused=st.booleans(),
)


class Several(Protocol):
    """The same nodes, hub and network, and a limit with several quotas."""

    asks = False

    @initialize(
        limits=st.lists(QUOTAS, min_size=2, max_size=3),
        overshoot=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
        nodes=st.integers(2, NODES_MAX),
        certainly_new=st.booleans(),
    )
    def begin(self, limits: list[Limit], overshoot: float, nodes: int, certainly_new: bool) -> None:
        """Start the nodes, with one limit."""
        self.clock = ManualClock(START_S)
        self.hub = self.memory = MemoryHub(clock=self.clock)
        if not certainly_new:
            self.hub.lose_data()
        self.limits = quotas_of("limit", limits)
        self.truths = {name: {key: truth_of(limit, self.clock) for key in KEYS} for name, limit in self.limits.items()}
        self.policy = choose(max_overshoot=overshoot, cold_allowance=0.0)
        self.nodes: list[SmallNode] = []
        self.late: list[Batch] = []
        self.nodes_ever = self.departures = 0
        self.remembered_until_ns = 0
        self.witness_needed = self.waits = False
        self.twist = "plain"
        self._turn_to("limit")
        for _ in range(nodes):
            self._start_node()

    # ------------------------------------------------------------ requests

    @rule(node=NODES, key=st.sampled_from(KEYS), estimate=COSTS, actual=st.integers(0, 3))
    def settles_for_less(self, node: int, key: str, estimate: int, actual: int) -> None:
        """A request was cheaper than it looked."""
        chosen = self._node(node)
        self._asked(key)
        decision, charges = self._joint(chosen).hit_and_mark(key, estimate)
        if decision.allowed:
            now_ns = self.clock.monotonic_ns()
            verdicts = [charge.table.verdict(charge.mark.cell, True, now_ns) for charge in charges]
            self._admitted_by_all(chosen, key, estimate, verdicts)
            if actual < estimate:
                settle(charges, key, actual - estimate)
                chosen.refunded += estimate - actual
                for name, verdict in zip(self.limits, verdicts, strict=True):
                    self.truths[name][key].gave_back(estimate - actual, verdict.epoch, verdict.slice_number)

    @rule(node=NODES, share=st.sampled_from([0.0, 0.3, 1.0]))
    def is_told_to_dare_less(self, node: int, share: float) -> None:
        """One node keeps to a part of what its policy dares, or to all of it again."""
        joint = self._joint(self._node(node))
        super().is_told_to_dare_less(node=node, share=share)
        joint.take_note()

    @rule(node=NODES, part=PARTS, burst_part=PARTS, number=st.integers(0, 2))
    def is_told_of_another_quota(self, node: int, part: float, burst_part: float, number: int = 0) -> None:
        """One of the quotas changes, on one node."""
        joint = self._joint(self._node(node))
        self._turn_to(list(self.limits)[number % len(self.limits)])
        super().is_told_of_another_quota(node=node, part=part, burst_part=burst_part)
        joint.take_note()

    # ------------------------------------------------------------ what must hold, of every quota

    @invariant()
    def note_departures(self) -> None:
        """Not a promise: the quota that remembers for longest decides when nobody is missed any more."""
        if hasattr(self, "truths"):
            tables = self.nodes[0].kernel.tables
            self._turn_to(max(self.limits, key=lambda name: tables[name].meter.idle_ns))
            super().note_departures()

    @invariant()
    def the_limit_holds(self) -> None:
        """No key is admitted beyond the declared bound of any quota."""
        for _ in self._each():
            super().the_limit_holds()

    @invariant()
    def allowances_sum_to_the_capacity_at_most(self) -> None:
        """Adds up the allowances of all nodes, which never exceed any quota in total."""
        for _ in self._each():
            super().allowances_sum_to_the_capacity_at_most()

    @invariant()
    def the_hub_never_knows_more_than_happened(self) -> None:
        """No charge is counted twice, in any quota."""
        for _ in self._each():
            super().the_hub_never_knows_more_than_happened()

    @invariant()
    def all_quotas_have_counted_the_same(self) -> None:
        """Compares the lifetime charges of a node: those to one quota are those to all."""
        for node in self.nodes if hasattr(self, "truths") else ():
            tables = self._joint(node).tables
            for table in tables:
                for cell in table.all_cells():
                    measure(cell)
            tallies = {(table.tallies[0].charged, table.tallies[0].refunded) for table in tables}

            assert {(node.charged, node.refunded)} == tallies

    def teardown(self) -> None:
        """When all have spoken, the hub knows exactly what each living node has charged to each quota."""
        for _ in self._each():
            super().teardown()

    # ------------------------------------------------------------ inside

    def _each(self) -> Iterator[None]:
        """Turn to every quota, one after the other."""
        for name in self.limits if hasattr(self, "truths") else ():
            self._turn_to(name)
            yield

    def _turn_to(self, name: str) -> None:
        self.quota_name, self.limit, self.truth = name, self.limits[name], self.truths[name]

    def _joint(self, node: SmallNode) -> AllQuotas:
        tables = node.kernel.tables  # which have been told of other policies and quotas since
        policy = next((table.policy for table in tables.values()), self.policy)
        limits = {name: tables[name].limit if name in tables else limit for name, limit in self.limits.items()}
        return node.kernel.composites.all_of("limit", limits, policy)

    def _start_node(self) -> None:
        node = SmallNode(self.clock)
        self._joint(node)
        self.nodes.append(node)
        self.nodes_ever += 1

    def _asked(self, key: str) -> None:
        for truths in self.truths.values():
            truth = truths[key]
            if isinstance(truth, BucketTruth):
                truth.asked()

    def _ask(self, node: SmallNode, key: str, cost: int, times: int) -> None:
        self._asked(key)
        for _ in range(times):
            verdicts = self._joint(node).decide(key, cost, self.clock.monotonic_ns())
            if verdicts[0].allowed:
                self._admitted_by_all(node, key, cost, verdicts)
        self.the_limit_holds()

    def _admitted_by_all(self, node: SmallNode, key: str, cost: int, verdicts: Sequence[Verdict]) -> None:
        node.charged += cost
        for name, verdict in zip(self.limits, verdicts, strict=True):
            self.truths[name][key].admitted(cost, verdict.epoch, verdict.slice_number)


TestSeveral = Several.TestCase
TestSeveral.settings = settings(max_examples=tried(50, long=200, brief=12), stateful_step_count=40)
