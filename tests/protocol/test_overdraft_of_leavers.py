"""Goal: the overdraft that a node has used is not granted to others in the same window when that node leaves or dies.

Method: nodes that exchange by turns, late in a window. The proof found each gap (`docs/internals/proof.md`).
"""

from __future__ import annotations

from dataclasses import replace

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Table
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import Policy, View, choose
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

QUOTA, NODES, LEAVERS = 1000, 8, 4
MORE, KILLED = 12, 6
AHEAD = 4
SLOW_NS = INTERVAL_NS
"""For so long the requests of some nodes are on their way, so that these take the hub's clock to be ahead by half."""
WINDOW_NS = 2 * SECOND_NS
LONG_NS = 10 * SECOND_NS
"""A window in which leases end."""
BALANCED = choose(max_overshoot=0.1, cold_allowance=0.0)
KEY = "ada"


def all_of_it(view: View) -> int:
    """Goes as far beyond an allowance as the bound of `balanced` lets a node go."""
    return view.allowance + view.overdraft if view.fresh else view.allowance


class Restart:
    """A fleet of which one half stops, late in a window, as in a rolling restart."""

    def __init__(self, nodes: int = NODES, window_ns: int = WINDOW_NS, policy: Policy = BALANCED) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.clock.advance_ns(window_ns - self.clock.wall_ns() % window_ns + 10)
        self.policy = policy
        self.limit = Limit(QUOTA, window_ns / SECOND_NS, algorithm=FIXED_WINDOW)
        self.nodes = [SmallNode(self.clock) for _ in range(nodes)]
        self.tables: list[Table] = [node.limit(self.limit, policy) for node in self.nodes]
        self.admitted: dict[int, int] = {}
        """The cost that was admitted in each window."""

    def hits(self, index: int, times: int) -> None:
        for _ in range(times):
            verdict = self.tables[index].decide(KEY, 1, self.clock.monotonic_ns())
            if not verdict.allowed:
                return
            self.admitted[verdict.epoch] = self.admitted.get(verdict.epoch, 0) + 1

    def exchange(self, first: int = 0) -> None:
        for node in self.nodes[first:]:
            node.exchanges_with(self.hub)

    def goes_on(self, times: int, first: int, pause_ns: int, rounds: int = 2) -> None:
        for _ in range(rounds):
            for index in range(first, len(self.nodes)):
                self.hits(index, times)
            self.clock.advance_ns(pause_ns)
            self.exchange(first)

    def goes_on_with_slow_ones(self, times: int, rounds: int) -> None:
        for _ in range(rounds):
            for index in range(NODES):
                self.hits(index, times)
            for node in self.nodes[:AHEAD]:
                node.sends()
            self.clock.advance_ns(SLOW_NS)
            for node in self.nodes[:AHEAD]:
                node.reaches(self.hub)
                node.hears()
            self.exchange(AHEAD)

    def starts_again(self, index: int) -> None:
        self.nodes[index] = SmallNode(self.clock)
        self.tables[index] = self.nodes[index].limit(self.limit, self.policy)

    def leaves(self, index: int) -> None:
        syncer = self.nodes[index].syncer
        syncer.leave(self.clock.monotonic_ns())
        while not syncer.left:
            self.nodes[index].exchanges_with(self.hub)


def test_nodes_that_leave_take_their_overdraft_along() -> None:
    """The limit stays within its bound when nodes use up their overdrafts and stop in good order."""
    fleet = Restart()
    for _ in range(20):
        for index in range(NODES):
            fleet.hits(index, 1)
        fleet.exchange()
        fleet.clock.advance_ns(INTERVAL_NS)
    late_ns = WINDOW_NS - 2 * INTERVAL_NS
    while not late_ns - INTERVAL_NS // 2 < fleet.clock.wall_ns() % WINDOW_NS <= late_ns:
        fleet.exchange()
        fleet.clock.advance_ns(INTERVAL_NS // 4)
    fleet.goes_on(10, 0, INTERVAL_NS // 4)
    for index in range(LEAVERS):
        fleet.hits(index, QUOTA)
    for index in range(LEAVERS):
        fleet.leaves(index)
    fleet.goes_on(20, LEAVERS, INTERVAL_NS // 4)
    for index in range(LEAVERS, NODES):
        fleet.hits(index, QUOTA)

    assert max(fleet.admitted.values()) <= QUOTA + fleet.policy.bound(QUOTA, NODES)


def test_nodes_that_start_in_place_of_dead_ones_get_no_overdraft_anew() -> None:
    """The limit stays within its bound when nodes use up their overdrafts, are killed, and others start.

    What the dead ones may have used leaves too little room for the allowances of all others, which then report less
    than they have in use. That use is covered by no allowance, and takes up room all the same.
    """
    fleet = Restart(MORE, LONG_NS, replace(BALANCED, reach=all_of_it))
    fleet.goes_on(1, 0, INTERVAL_NS, rounds=10)
    fleet.goes_on(4, 0, INTERVAL_NS, rounds=20)
    for index in range(KILLED):
        fleet.hits(index, QUOTA)
    fleet.goes_on(QUOTA, KILLED, INTERVAL_NS, rounds=LEASE_NS // INTERVAL_NS + 5)
    for index in range(KILLED):
        fleet.starts_again(index)
    fleet.goes_on(QUOTA, 0, INTERVAL_NS, rounds=15)

    assert max(fleet.admitted.values()) <= QUOTA + fleet.policy.bound(QUOTA, MORE + KILLED)


def test_an_overdraft_of_the_next_window_is_not_used_in_this_one() -> None:
    """The limit stays within its bound when nodes whose clocks are ahead leave just before a window ends.

    The hub follows them into the next window, in which their overdrafts are free, and answers nodes that are not ahead.
    """
    fleet = Restart(policy=replace(BALANCED, reach=all_of_it))
    fleet.goes_on_with_slow_ones(1, 18)
    fleet.goes_on_with_slow_ones(6, 16)
    left_ns = WINDOW_NS - fleet.clock.wall_ns() % WINDOW_NS
    while left_ns > 3 * SLOW_NS:
        fleet.goes_on_with_slow_ones(6, 1)
        left_ns = WINDOW_NS - fleet.clock.wall_ns() % WINDOW_NS
    fleet.clock.advance_ns(left_ns - SLOW_NS - SLOW_NS // 4)
    for index in range(NODES):
        fleet.hits(index, QUOTA)
    fleet.exchange(AHEAD)
    fleet.clock.advance_ns(SLOW_NS)
    for index in range(AHEAD):
        fleet.hits(index, 1)  # in the next window
        fleet.leaves(index)
    fleet.goes_on(QUOTA, AHEAD, SLOW_NS // 20, rounds=3)

    assert len(fleet.admitted) == 3
    assert max(fleet.admitted.values()) <= QUOTA + fleet.policy.bound(QUOTA, NODES)
