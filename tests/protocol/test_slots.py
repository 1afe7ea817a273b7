"""Goal: no more is in progress than the limit says, whatever becomes of nodes, messages and the hub.

Method: a state machine that drives the fleet of the simulator: real syncers, kernels and the real merge rule, under
cuts, lost messages, kills, forks, farewells, lost data and a hub that is down. What runs is what the machine has begun
and not ended, but for what counts apart because the lease of its node has ended since. A second one has two plans, and
moves the key between them while slots are held and waited for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reconverge.kernel import Table
from reconverge.simulation.in_progress.world import NAME, SlotNode, SlotWorld
from tests.support.effort import tried

NODES = st.integers(0, 7)
WARM_INTERVALS = 10
LARGER, SMALLER = f"{NAME}@larger", f"{NAME}@smaller"


class SlotMachine(RuleBasedStateMachine):
    """Begins and ends work on a fleet, and does to it whatever may happen to one."""

    world: SlotWorld

    def make(self, seed: int) -> SlotWorld:
        """The world of the machine."""
        return SlotWorld(seed)

    @initialize(seed=st.integers(0, 10**6), cold=st.sampled_from([False, False, False, True]))
    def begins(self, seed: int, cold: bool) -> None:
        """The number draws the limit, its lease, the fleet and its network.

        Mostly the hub grants by then, and each node has asked for a while: a strict node begins nothing before that.
        """
        self.world = world = self.make(seed)
        if cold:
            return
        world.pass_until(world.settled_ns)
        for _ in range(WARM_INTERVALS):
            for node in world.nodes:
                world.asks(node, world.keys[0], 1, 0)
            world.pass_until(world.now_ns + world.interval_ns)

    def _node(self, number: int) -> SlotNode:
        return self.world.nodes[number % len(self.world.nodes)]

    @rule(number=NODES, cost=st.sampled_from([1, 1, 1, 2]), intervals=st.sampled_from([0, 0, 1, 5]))
    def a_request_comes(self, number: int, cost: int, intervals: int) -> None:
        """It begins at once, or waits for so many sync intervals."""
        self.world.asks(self._node(number), self.world.keys[0], cost, intervals * self.world.interval_ns)

    @rule(number=NODES)
    def work_ends(self, number: int) -> None:
        """The oldest of a node, or of the next one that has any."""
        for node in (self._node(number + each) for each in range(len(self.world.nodes))):
            if node.work:
                self.world.ends(node.work[0])
                return

    @rule(percent=st.sampled_from([1, 10, 50, 100, 300, 1000]))
    def time_passes(self, percent: int) -> None:
        """So many hundredths of a sync interval."""
        self.world.pass_until(self.world.now_ns + self.world.interval_ns * percent // 100)

    @rule()
    def a_lease_passes(self) -> None:
        """Nothing comes meanwhile."""
        self.world.pass_until(self.world.now_ns + self.world.limit.window_ns)

    @rule(number=NODES)
    def a_node_is_cut_off(self, number: int) -> None:
        """Its messages are lost, and those to it."""
        self.world.cut.add(self._node(number).index)

    @rule()
    def the_network_heals(self) -> None:
        """And the hub is there."""
        self.world.cut.clear()
        self.world.down = False

    @rule(number=NODES, again=st.booleans())
    def a_process_ends(self, number: int, again: bool) -> None:
        """It is killed; or a forked child goes on in its place, which owns none of its slots."""
        node = self._node(number)
        self.world.kill(node)
        if again:
            self.world.start(node)

    @rule(number=NODES)
    def a_process_starts(self, number: int) -> None:
        """If there is none."""
        node = self._node(number)
        if not node.alive:
            self.world.start(node)

    @rule(number=NODES)
    def a_node_leaves(self, number: int) -> None:
        """It says its last words, and its work goes on until they have been answered."""
        node = self._node(number)
        if node.alive and not node.stopping:
            node.stopping = True
            node.syncer.leave(node.clock.monotonic_ns())
            self.world.pass_until(self.world.now_ns)

    @rule(loses=st.booleans())
    def the_hub_fails(self, loses: bool) -> None:
        """It is down until the network heals, or loses its data."""
        if loses:
            self.world.hub.lose_data()
        else:
            self.world.down = True

    @invariant()
    def no_more_is_in_progress_than_may_be(self) -> None:
        """At no moment so far."""
        if hasattr(self, "world"):
            assert [] == self.world.problems

    def teardown(self) -> None:
        """When all work has ended, none is in use on any node."""
        if hasattr(self, "world"):
            for node in self.world.nodes:
                self.world.nothing_waits(node)
                for work in list(node.work):
                    self.world.ends(work)

            assert [] == self.world.left_behind()


class PlanWorld(SlotWorld):
    """The same with two plans, of which each key has one on each node; the larger one is the bound."""

    def __init__(self, seed: int, on_smaller: set[tuple[int, str]]) -> None:
        self.on_smaller = on_smaller
        """Which keys are on the smaller one, on which nodes."""
        super().__init__(seed)

    def declare(self, node: SlotNode) -> Table:
        smaller = replace(self.limit, quota=max(1, self.limit.capacity * 2 // 5))
        node.kernel.tier(SMALLER, smaller, self.policy, reported_as=NAME)
        return node.kernel.tier(LARGER, self.limit, self.policy, reported_as=NAME)

    def table_of(self, node: SlotNode, key: str) -> Table:
        return node.kernel.tables[SMALLER if (node.index, key) in self.on_smaller else LARGER]


class SlotsOnPlans(SlotMachine):
    """Changes the plan of a key, on one node or on all."""

    def make(self, seed: int) -> SlotWorld:
        self.on_smaller: set[tuple[int, str]] = set()
        return PlanWorld(seed, self.on_smaller)

    @rule(number=NODES, everywhere=st.booleans(), asked=st.booleans())
    def a_plan_changes(self, number: int, everywhere: bool, asked: bool) -> None:
        """Changes a plan: waiting requests go on waiting where they have asked; the next asks on the other plan."""
        key = self.world.keys[0]
        for node in self.world.nodes if everywhere else [self._node(number)]:
            self.on_smaller ^= {(node.index, key)}
            if asked:
                self.world.asks(node, key, 1, 0)


def test_a_request_that_waits_moves_its_key_back_to_the_plan_on_which_it_has_asked() -> None:
    """Nothing is lost by that, no more runs than the larger plan allows, and the next request is on the new plan."""
    seed = next(seed for seed in count() if _is_one_node_with_eight_slots(seed))
    world = PlanWorld(seed, set())
    node, key = world.nodes[0], world.keys[0]
    until_ns = world.now_ns + world.settled_ns
    while world.now_ns < until_ns:
        world.asks(node, key, 1, 0)
        world.pass_until(world.now_ns + world.interval_ns)
    larger, smaller = node.kernel.tables[LARGER], node.kernel.tables[SMALLER]
    running = [len(node.work)]
    world.asks(node, key, 1, world.settled_ns)
    world.on_smaller.add((node.index, key))
    world.asks(node, key, 1, 0)
    where = [[key in table.cells for table in (larger, smaller)]]
    while node.waiting and node.work and world.now_ns < until_ns + world.settled_ns:
        world.ends(node.work[0])
        world.pass_until(world.now_ns + world.interval_ns)
    running.append(len(node.work))
    where.append([key in table.cells for table in (larger, smaller)])
    world.asks(node, key, 1, 0)
    where.append([key in table.cells for table in (larger, smaller)])

    assert [8, 1] == [running[0], sum(work not in node.work[:-1] for work in node.work)]
    assert [] == node.waiting
    assert [[False, True], [True, False], [False, True]] == where
    for work in list(node.work):
        world.ends(work)
    assert [] == world.left_behind() + world.problems


def _is_one_node_with_eight_slots(seed: int) -> bool:
    world = PlanWorld(seed, set())
    return (1, 8, 0) == (len(world.nodes), world.limit.capacity, world.policy.overshoot_milli)


def test_a_busy_node_leaves_what_comes_back_to_an_older_ask() -> None:
    """One slot of those that it has in use beyond its part; else it would take each of them again for ever."""
    world = SlotWorld(0)
    node, key = world.nodes[0], world.keys[0]
    until_ns = world.now_ns + world.settled_ns
    while world.now_ns < until_ns:
        world.asks(node, key, 1, 0)
        world.pass_until(world.now_ns + world.interval_ns)
    cell = node.table.cell_in_use(key)
    assert cell is not None
    allowance, cell.reserved, cell.nodes = cell.allowance, 1, 2
    node.table.release(node.work[0])

    assert (allowance - 1, 0) == (cell.allowance, cell.reserved)
    node.table.release(node.work[1])
    assert allowance - 1 == cell.allowance


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=tried(40, long=1500, brief=15), stateful_step_count=60)
TestSlotsOnPlans = SlotsOnPlans.TestCase
TestSlotsOnPlans.settings = settings(max_examples=tried(30, long=1500, brief=15), stateful_step_count=60)
