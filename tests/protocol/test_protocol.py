"""Goal: the promises hold whatever the network does.

Method: a state machine that drives real syncers and the real merge rule through lost, late, repeated and reordered
messages, cuts, crashes, lost data and ended leases.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.errors import InvalidLimit
from reconverge.exchange.syncer import SILENCE_NS
from reconverge.hub.merge_rule import MergeRule
from reconverge.hub.report import Batch, Totals
from reconverge.kernel import COMPILED, Cell, Table, Verdict, gate_of
from reconverge.kernel.cell import lease_until_ns
from reconverge.kernel.table.lookup import UNTOUCHED_NS
from reconverge.kernel.table.tiers import home_of
from reconverge.limit import (
    ALGORITHMS,
    BURSTING,
    SLIDING_LOG,
    SLIDING_SLICES,
    SMOOTH,
    SMOOTH_WARMING_UP,
    Limit,
)
from reconverge.limit.limit import PACED
from reconverge.policies import Policy, choose
from reconverge.published.caps import with_max_overshoot
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge.simulation.explore.observer import BucketTruth, FirstHitTruth, WatchedHub, usable
from reconverge.simulation.truth import declared_bound
from reconverge_sync.memory import MemoryHub
from tests.support.aligned import TWISTS, follow_calendar, next_edge_ns, twisted, twisted_truth
from tests.support.effort import tried

KEYS = ("ada", "bob")
COST_MAX = 5
NODES_MAX = 4
ASKS_MAX = 8
NODES = st.integers(0, NODES_MAX - 1)
COSTS = st.sampled_from([1, 1, 1, 2, COST_MAX])
KEYS_MAX = st.sampled_from([1000, len(KEYS)])
"""With room for no more than there are, a node lets keys leave while they count, and meets them again."""


PARTS = st.sampled_from([0.1, 0.5, 0.5, 1.0, 1.0])


def part_of(cell: Cell, allowance: int) -> Fraction:
    """Returns an allowance as a part of its capacity on a node; nodes may differ in that while a quota changes."""
    return Fraction(allowance, cell.table.capacity)


def limit_of(
    quota: int,
    window_s: float,
    algorithm: str,
    burst: int | None,
    *,
    slices: int | None = None,
    count_refused: bool = False,
    soft: float = 0.0,
) -> Limit:
    """A limit of that algorithm, with what goes with it."""
    return Limit(
        quota,
        window_s,
        algorithm=algorithm,
        burst=burst if algorithm in BURSTING else None,
        slices=slices if algorithm == SLIDING_SLICES else None,
        count_refused=count_refused and algorithm == SLIDING_LOG,
        warmup=1.5 * window_s if algorithm == SMOOTH_WARMING_UP else None,
        soft=soft if algorithm not in SMOOTH else 0.0,
    )


class Protocol(RuleBasedStateMachine):
    """A few nodes, one hub, and a network that does its worst."""

    quota_name = "limit"
    leases_s: tuple[float | None, ...] = (None,)
    keys_max = 1000
    asks = True
    """Whether requests ask."""
    hub: MergeRule
    memory: MemoryHub
    """Where the hub keeps its data."""
    watched: WatchedHub | None = None
    """The same hub, where each key has one limit."""

    @initialize(
        algorithm=st.sampled_from(ALGORITHMS),
        quota=st.sampled_from([7, 40, 300]),
        window_s=st.sampled_from([2.0, 2.0, 9.0]),
        burst=st.sampled_from([None, 12]),
        slices=st.sampled_from([1, 3, 10]),
        count_refused=st.booleans(),
        overshoot=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
        soft=st.sampled_from([0.0, 0.0, 0.3]),
        nodes=st.integers(2, NODES_MAX),
        certainly_new=st.booleans(),
        twist=st.sampled_from(TWISTS),
        waits=st.booleans(),
        leases_s=st.sampled_from([(None,), (0.5,), (1.5, 1.5, None), (1.5, 0.5)]),
        keys_max=KEYS_MAX,
    )
    def begin(
        self,
        algorithm: str,
        quota: int,
        window_s: float,
        burst: int | None,
        slices: int,
        count_refused: bool,
        overshoot: float,
        soft: float,
        nodes: int,
        certainly_new: bool,
        twist: str,
        waits: bool,
        leases_s: tuple[float | None, ...],
        keys_max: int,
    ) -> None:
        """Start the nodes, with one limit; no cold allowance, which is a bound of its own.

        The lease on its allowances is shorter than the node's, on some nodes or all; None stands for the node's.
        """
        self.leases_s = leases_s
        self.keys_max = keys_max
        limit = limit_of(quota, window_s, algorithm, burst, slices=slices, count_refused=count_refused, soft=soft)
        self.waits = waits
        self.policy: Policy = choose(max_overshoot=overshoot, cold_allowance=0.0)
        self._begin(twisted(limit, twist), twist, nodes)
        if not certainly_new:
            self.hub.lose_data()

    def _begin(self, limit: Limit, twist: str, nodes: int) -> None:
        self.clock = ManualClock(START_S)
        self.limit = limit
        self.twist = twist
        self.nodes: list[SmallNode] = []
        self.late: list[Batch] = []
        self.truth = {key: twisted_truth(self.limit, self.clock, twist) for key in KEYS}
        self.memory = MemoryHub(clock=self.clock)
        self.hub = self.watched = WatchedHub(self.memory, self.truth)
        self.nodes_ever = self.departures = 0
        self.remembered_until_ns = 0
        self.witness_needed = False
        for _ in range(nodes):
            self._start_node()

    # ------------------------------------------------------------ requests

    @rule(node=NODES, key=st.sampled_from(KEYS), cost=COSTS, times=st.integers(1, 60))
    def requests(self, node: int, key: str, cost: int, times: int) -> None:
        """Somebody asks many times on one node."""
        self._ask(self._node(node), key, cost, times)

    @rule(node=NODES, share=st.sampled_from([0.0, 0.3, 1.0]))
    def is_told_to_dare_less(self, node: int, share: float) -> None:
        """One node keeps to a part of what its policy dares, or to all of it again."""
        policy = with_max_overshoot(self.policy, share * self.policy.max_overshoot if share else 0.0)
        for table in self._node(node).kernel.tables.values():
            table.set_policy(policy)

    @rule(node=NODES, part=PARTS, burst_part=PARTS)
    def is_told_of_another_quota(self, node: int, part: float, burst_part: float) -> None:
        """One node admits less than was declared, in quota or burst, or all of it again; the largest is judged."""
        limit = self.limit
        quota = max(COST_MAX, int(limit.quota * part))
        burst = None if limit.burst is None else max(COST_MAX, int(limit.burst * burst_part))
        with suppress(InvalidLimit):  # a smaller one may have no room for what else is said
            lowered = replace(limit, quota=quota, burst=burst)
            self._node(node).kernel.tables[self.quota_name].change(lowered)

    @rule(node=NODES, part=PARTS, key=st.sampled_from(KEYS), times=st.integers(1, 60))
    def is_told_of_another_quota_before_an_answer(self, node: int, part: float, key: str, times: int) -> None:
        """Delivers the hub's grant by the quota from before after the change."""
        chosen = self._node(node)
        if chosen.flight is None and self._may_speak(chosen):
            self._ask(chosen, key, 1, times)
            spoke = chosen.sends() is not None
            self.witness_needed = self.witness_needed and not spoke
            chosen.reaches(self.hub)
            self.is_told_of_another_quota(node=node, part=part, burst_part=part)
            chosen.hears()

    @rule(key=st.sampled_from(KEYS), cost=COSTS, times=st.integers(1, 300))
    def a_crowd(self, key: str, cost: int, times: int) -> None:
        """Everybody asks on all nodes."""
        for node in self.nodes:
            self._ask(node, key, cost, times)

    @precondition(lambda self: self.waits)
    @rule(node=NODES, key=st.sampled_from(KEYS), cost=COSTS, times=st.integers(1, 30), part=st.integers(0, 2))
    def somebody_waits(self, node: int, key: str, cost: int, times: int, part: int) -> None:
        """A queue of requests is let out, as time passes, as far as they are let through."""
        chosen = self._node(node)
        table = chosen.kernel.tables[self.quota_name]
        cost = min(cost, self.limit.capacity)
        self._asked(key)
        gate, costs = gate_of(table), table.costs_of(cost)
        place: list[Cell] = []
        gate.queue_up(key, costs, place)
        for _ in range(times):
            if gate.try_turn(key, costs, again=True).decision is not None:
                self._admitted(chosen, key, cost, table.observe(key, self.clock.monotonic_ns()))
            self.clock.advance_ns(part * self.limit.window_ns // 97)
            self.the_limit_holds()
        gate.step_out(place, costs)

    @precondition(lambda self: self.asks and self.limit.algorithm not in PACED)
    @rule(node=NODES, key=st.sampled_from(KEYS), cost=COSTS, times=st.integers(1, 4))
    def requests_ask(self, node: int, key: str, cost: int, times: int) -> None:
        """Requests wait for the hub's word, among those that do not."""
        chosen = self._node(node)
        self._asked(key)
        for _ in range(times if len(chosen.asked) < ASKS_MAX else 0):
            chosen.asks(chosen.kernel.tables[self.quota_name], key, cost)

    @precondition(lambda self: any(node.asked for node in self.nodes))
    @rule(data=st.data(), cancelled=st.sampled_from([False, False, True]))
    def asks_end(self, data: st.DataObject, cancelled: bool) -> None:
        """They go if they may by now, and are refused if not; or they are cancelled."""
        node = data.draw(st.sampled_from([node for node in self.nodes if node.asked]))
        table = node.kernel.tables[self.quota_name]
        if cancelled:
            node.cancels_asks(table)
        else:
            self._end_asks(node)

    @precondition(lambda self: self.asks and self.limit.algorithm not in PACED)
    @rule(node=NODES, key=st.sampled_from(KEYS), times=st.integers(1, 4), early=st.booleans(), late=st.booleans())
    def asks_cross_an_edge(self, node: int, key: str, times: int, early: bool, late: bool) -> None:
        """The hub answers in one window, and the node hears of it, or makes use of it, in the next."""
        chosen = self._node(node)
        if chosen.flight is not None or not self._may_speak(chosen):
            return
        self.clock.advance_ns(next_edge_ns(self.limit, self.clock, self.twist) - 1)
        for _ in range(times):
            chosen.asks(chosen.kernel.tables[self.quota_name], key, 1)
        self._asked(key)
        if chosen.sends() is None:
            return
        self.clock.advance_ns(0 if early else 2)
        chosen.reaches(self.hub)
        self.witness_needed = False
        if not late:
            chosen.hears()
        self.clock.advance_ns(self.limit.window_ns // 10)
        chosen.hears()
        self._end_asks(chosen)
        for each in self.nodes:
            self._ask(each, key, 1, 10)

    @rule(node=NODES, key=st.sampled_from(KEYS), estimate=COSTS, actual=st.integers(0, 3), refunds=st.booleans())
    def settles_for_less(self, node: int, key: str, estimate: int, actual: int, *, refunds: bool) -> None:
        """A request was cheaper than it looked: the charge is corrected, or a part of it refunded."""
        chosen = self._node(node)
        table = chosen.kernel.tables[self.quota_name]
        self._asked(key)
        verdict = table.decide(key, estimate, self.clock.monotonic_ns())
        if verdict.allowed:
            self._admitted(chosen, key, estimate, verdict)
            if actual < estimate:
                if refunds:
                    table.refund(key, estimate - actual)
                else:
                    table.correct(key, verdict.epoch, actual - estimate)
                self._gave_back(chosen, key, estimate - actual, verdict)
                chosen.refunded += estimate - actual

    @precondition(lambda self: self.keys_max == len(KEYS))
    @rule(node=NODES, key=st.sampled_from(KEYS), cost=COSTS, rounds=st.integers(2, 5))
    def a_key_comes_and_goes(self, node: int, key: str, cost: int, rounds: int) -> None:
        """A key is asked about much, and then only others until it leaves; again and again within a window."""
        chosen = self._node(node)
        for _ in range(rounds):
            self._ask(chosen, key, cost, 300)
            for _ in range(3):
                for other in KEYS:
                    if other != key:
                        self._ask(chosen, other, 1, 1)
                self._go_on([chosen], 1, UNTOUCHED_NS // 2, key, 1, 0)

    # ------------------------------------------------------------ time

    @rule(part=st.sampled_from([0.003, 0.03, 0.3, 0.999, 1.0, 2.5]))
    def time_passes(self, part: float) -> None:
        """Some part of a window goes by."""
        self.clock.advance_ns(int(part * self.limit.window_ns))

    @rule()
    def an_edge_comes(self) -> None:
        """The window is about to end, by one nanosecond."""
        self.clock.advance_ns(next_edge_ns(self.limit, self.clock, self.twist) - 1)

    # ------------------------------------------------------------ the network

    @rule(rounds=st.integers(1, 5), key=st.sampled_from(KEYS), cost=COSTS, times=st.integers(0, 60))
    def all_is_well(self, rounds: int, key: str, cost: int, times: int) -> None:
        """Everybody exchanges for a while, and asks meanwhile."""
        self._go_on(self.nodes, rounds, INTERVAL_NS, key, cost, times)

    @rule(
        cut=st.integers(1, 2**NODES_MAX - 1),
        lasts=st.sampled_from([0.1, 0.3, 0.9, 0.999_999, 1.0, 1.1, 1.3, 3.0]),
        key=st.sampled_from(KEYS),
        cost=COSTS,
        times=st.integers(0, 100),
    )
    def a_partition(self, cut: int, lasts: float, key: str, cost: int, times: int) -> None:
        """Some nodes hear nothing for a share of a lease, while the others go on, and all are asked."""
        connected: list[SmallNode] = []
        for index, node in enumerate(self.nodes):
            if cut >> index & 1:
                self._give_up(node)
                node.sends()
                self._give_up(node)
            else:
                connected.append(node)
        self._go_on(connected, 6, int(lasts * LEASE_NS) // 6, key, cost, times)

    @rule(
        node=NODES, out=st.sampled_from([0.001, 0.2]), back=st.sampled_from([0.001, 0.6, 1.0]), times=st.integers(0, 60)
    )
    def a_slow_round_trip(self, node: int, out: float, back: float, times: int) -> None:
        """A batch and its answer take their time, across the edge of a window perhaps, and requests go on."""
        chosen = self._node(node)
        if chosen.flight is None and self._may_speak(chosen) and chosen.sends() is not None:
            self.clock.advance_ns(int(out * self.limit.window_ns))
            chosen.reaches(self.hub)
            self.witness_needed = False
            self._ask(chosen, KEYS[0], 1, times)
            self.clock.advance_ns(int(back * self.limit.window_ns))
            chosen.hears()
            for each in self.nodes:
                self._ask(each, KEYS[0], 1, times)

    @rule(rounds=st.integers(1, 4), key=st.sampled_from(KEYS), times=st.integers(1, 60))
    def the_dead_speak(self, rounds: int, key: str, times: int) -> None:
        """Messages that everybody had given up on arrive between newer ones."""
        for _ in range(rounds):
            for batch in self.late if not self.witness_needed else []:
                self.hub.merge(batch)
            self._go_on(self.nodes, 1, INTERVAL_NS, key, 1, times)

    @rule(node=NODES)
    def send(self, node: int) -> None:
        """A batch leaves its node."""
        self._node(node).sends()

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """It arrives at the hub."""
        node = data.draw(st.sampled_from(self.under_way()))
        if self._may_speak(node):
            node.reaches(self.hub)
            self.witness_needed = False

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        """The answer arrives at the node, if there is one."""
        data.draw(st.sampled_from(self.under_way())).hears()

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """The request or the reply is lost; the request may turn up later."""
        self._give_up(data.draw(st.sampled_from(self.under_way())))

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def arrive_twice(self, data: st.DataObject) -> None:
        """A message is delivered twice; the node hears the first answer."""
        node = data.draw(st.sampled_from(self.under_way()))
        if node.flight is not None and self._may_speak(node):
            node.reaches(self.hub)
            self.hub.merge(node.flight.batch)
            self.witness_needed = False

    # ------------------------------------------------------------ worse

    @rule(node=NODES)
    def crash_and_restart(self, node: int) -> None:
        """A process dies, with all it has not reported, and another one starts in its place."""
        chosen = self._node(node)
        self._give_up(chosen)
        self.nodes.remove(chosen)
        self._start_node()

    @rule(node=NODES)
    def leave_and_restart(self, node: int) -> None:
        """A process stops gracefully, and another one starts in its place."""
        chosen = self._node(node)
        self._give_up(chosen)
        if not self._may_speak(chosen):
            return
        chosen.cancels_asks(chosen.kernel.tables[self.quota_name])
        chosen.syncer.leave(self.clock.monotonic_ns())
        for _ in range(20):
            chosen.exchanges_with(self.hub)
            if chosen.syncer.left:
                break
        assert chosen.syncer.left
        self.witness_needed = False
        self.nodes.remove(chosen)
        self._start_node()

    @precondition(lambda self: self.clock.monotonic_ns() >= self.remembered_until_ns)
    @rule()
    def data_are_lost(self) -> None:
        """The hub comes back empty.

        Not covered by any promise: what only the hub remembered, because the node that used it has crashed, left or
        lapsed within the window; and that the first to reach it is a node that never heard of the hub, while others
        hold allowances. Nor, outside of strict, that a node with allowances stays away for longer than a back-off.
        """
        for node in self.nodes:
            node.hears()
        self.hub.lose_data()
        witnesses = [node for node in self.nodes if node.syncer._generation]
        self.witness_needed = bool(witnesses)
        if self.policy.max_overshoot > 0:
            self.clock.advance_ns(SILENCE_NS)
            for node in witnesses:
                self._give_up(node)
            for node in witnesses:
                node.exchanges_with(self.hub, rounds=3)
            self.witness_needed = False

    # ------------------------------------------------------------ what must hold

    @invariant()
    def note_departures(self) -> None:
        """Not a promise: remember for how long the hub alone knows what departed nodes have used."""
        if hasattr(self, "truth"):
            now_ns = self.clock.monotonic_ns()
            departures = self.nodes_ever + sum(node.syncer.stats(now_ns).lapses for node in self.nodes)
            # What was used of a key that a node has forgotten is known to the hub alone, too.
            departures += sum(table.left_early for node in self.nodes for table in node.kernel.tables.values())
            if departures != self.departures:
                idle_ns = max(node.kernel.tables[self.quota_name].meter.idle_ns for node in self.nodes)
                self.departures, self.remembered_until_ns = departures, now_ns + 2 * idle_ns

    @invariant()
    def the_limit_holds(self) -> None:
        """No key is admitted beyond the declared bound, not for a moment."""
        if not hasattr(self, "truth"):
            return
        bound = declared_bound(self.limit, self.policy, self.nodes_ever, COST_MAX, waits=self.waits)
        for key in KEYS:
            assert self.truth[key].excess() <= bound + 1e-6, f"{key}: {self.truth[key].excess()} > {bound}"

    @invariant()
    def the_hub_calls_no_more_free_than_one_central_limiter_has(self) -> None:
        """Compares the hub's free part with that of one central limiter, beyond the policy's overdraft."""
        # A key that is new to a node is admitted before the hub hears of it, if its policy dares that.
        if self.watched is not None and self.policy.max_overshoot < inf and self.policy.cold_allowance == 0:
            bound = declared_bound(self.limit, self.policy, self.nodes_ever, COST_MAX, waits=self.waits)
            assert self.watched.too_free <= bound + 1e-6

    @invariant()
    def allowances_sum_to_the_capacity_at_most(self) -> None:
        """Adds up the allowances of all nodes, which never exceed the limit in total."""
        if not hasattr(self, "truth"):
            return
        now_ns = self.clock.monotonic_ns()
        for key in KEYS:
            cells = [home_of(node.kernel.tables[self.quota_name], key).cells.get(key) for node in self.nodes]
            live = [cell for cell in cells if cell is not None and now_ns < lease_until_ns(cell)]
            for window in {cell.epoch for cell in live}:
                assert sum(part_of(cell, usable(cell, window)) for cell in live) <= 1
            assert sum(part_of(cell, cell.base) for cell in live) <= 1
            if self.policy.max_overshoot < inf:
                overdrafts = sum(part_of(cell, cell.overdraft) for cell in live)
                assert overdrafts <= Fraction(str(self.policy.max_overshoot))

    @invariant()
    def the_hub_never_knows_more_than_happened(self) -> None:
        """No charge is counted twice, whatever was repeated."""
        if not hasattr(self, "truth"):
            return
        totals = self.memory._shards[0].totals().get(self.quota_name)
        if totals is not None:
            assert totals.charged <= sum(truth.charged for truth in self.truth.values())
            assert totals.refunded <= sum(truth.refunded for truth in self.truth.values())

    def teardown(self) -> None:
        """When all have spoken, the hub knows exactly what each living node has admitted and given back."""
        if not hasattr(self, "truth"):
            return
        for node in sorted(self.nodes, key=lambda node: not node.syncer._generation):
            self._give_up(node)
            node.cancels_asks(node.kernel.tables[self.quota_name])
            node.reports_everything_to(self.hub)
            account = self.memory._shards[0].accounts[node.syncer.account].limits
            told = account.get(self.quota_name, Totals(0, 0))
            assert told == Totals(node.charged, node.refunded)
        admitted = sum(truth.charged for truth in self.truth.values())
        evicted = sum(table.left_early for node in self.nodes for table in node.kernel.tables.values())
        event(f"keys evicted: {min(4, evicted)}+")
        event(f"cost admitted: {10 ** len(str(admitted)) // 10}+")

    # ------------------------------------------------------------ inside

    def under_way(self) -> list[SmallNode]:
        """The nodes that have a batch on its way."""
        return [node for node in self.nodes if node.flight is not None]

    def _start_node(self) -> None:
        node = SmallNode(self.clock, keys_max=self.keys_max)
        table = self._declare(node)
        lease_s = self.leases_s[self.nodes_ever % len(self.leases_s)]
        if lease_s is not None and self.limit.calendar is None and self.twist != "calendar":
            table.take_lease(int(lease_s * SECOND_NS))
        follow_calendar(node, self.limit, self.twist)
        self.nodes.append(node)
        self.nodes_ever += 1

    def _declare(self, node: SmallNode) -> Table:
        """Declare the limit on a node."""
        return node.limit(self.limit, self.policy)

    def _node(self, index: int) -> SmallNode:
        return self.nodes[index % len(self.nodes)]

    def _table(self, node: SmallNode, key: str) -> Table:  # where keys are on plans it depends on the key
        """The table in which a key is asked about."""
        return node.kernel.tables[self.quota_name]

    def _ask(self, node: SmallNode, key: str, cost: int, times: int) -> None:
        table = self._table(node, key)
        cost = min(cost, table.limit.cost_max)
        self._asked(key)
        for _ in range(times):
            verdict = table.decide(key, cost, self.clock.monotonic_ns())
            if verdict.allowed:
                self._admitted(node, key, cost, verdict)
        self.the_limit_holds()

    def _end_asks(self, node: SmallNode) -> None:
        table = node.kernel.tables[self.quota_name]
        for key, cost in node.stops_asking(table):
            self._admitted(node, key, cost, table.observe(key, self.clock.monotonic_ns()))
        self.the_limit_holds()

    def _admitted(self, node: SmallNode, key: str, cost: int, verdict: Verdict) -> None:
        truth = self.truth[key]
        if isinstance(truth, FirstHitTruth):
            truth.admitted_by(node.number, cost, verdict.epoch)
        else:
            truth.admitted(cost, verdict.epoch, verdict.slice_number)
        node.charged += cost

    def _gave_back(self, node: SmallNode, key: str, cost: int, verdict: Verdict) -> None:
        truth = self.truth[key]
        if isinstance(truth, FirstHitTruth):
            truth.gave_back_by(node.number, cost, verdict.epoch)
        else:
            truth.gave_back(cost, verdict.epoch, verdict.slice_number)

    def _asked(self, key: str) -> None:
        truth = self.truth[key]
        if isinstance(truth, BucketTruth):
            truth.asked()

    def _go_on(self, nodes: list[SmallNode], rounds: int, step_ns: int, key: str, cost: int, times: int) -> None:
        """Let `nodes` exchange, all nodes be asked, and time pass."""
        for _ in range(rounds):
            for node in sorted(nodes, key=lambda node: not node.syncer._generation):
                if self._may_speak(node):
                    spoke = node.flight is not None or node.sends() is not None
                    node.reaches(self.hub)
                    node.hears()
                    self.witness_needed = self.witness_needed and not spoke
            for node in self.nodes:
                self._ask(node, key, cost, times)
            self.clock.advance_ns(step_ns)

    def _may_speak(self, node: SmallNode) -> bool:
        return not self.witness_needed or bool(node.syncer._generation)

    def _give_up(self, node: SmallNode) -> None:
        batch = node.gives_up()
        if batch is not None:
            self.late = [*self.late[-5:], batch]


TestProtocol = Protocol.TestCase
# The twin in Python takes the same steps, many times as slowly.
TestProtocol.settings = settings(
    max_examples=tried(100, long=500, brief=20) if COMPILED else tried(30, long=150), stateful_step_count=50
)
pytestmark = pytest.mark.timeout(1500)  # it has work for minutes, of which the others on the machine take their part
