"""Goal: the overdraft that a node has used is not granted to others in the same window when that node leaves.

Method: nodes that exchange by turns, late in a window. The proof found the gap (`docs/internals/proof.md`).
"""

from __future__ import annotations

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Table
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import choose
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

QUOTA, NODES, LEAVERS = 1000, 8, 4
WINDOW_NS = 2 * SECOND_NS
KEY = "ada"


class Restart:
    """A fleet of which one half stops in good order, late in a window, as in a rolling restart."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.clock.advance_ns(WINDOW_NS - self.clock.wall_ns() % WINDOW_NS + 10)
        self.policy = choose(max_overshoot=0.1, cold_allowance=0.0)
        self.nodes = [SmallNode(self.clock) for _ in range(NODES)]
        limit = Limit(QUOTA, WINDOW_NS / SECOND_NS, algorithm=FIXED_WINDOW)
        self.tables: list[Table] = [node.limit(limit, self.policy) for node in self.nodes]
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

    def goes_on(self, times: int, first: int, pause_ns: int) -> None:
        for _ in range(2):
            for index in range(first, NODES):
                self.hits(index, times)
            self.clock.advance_ns(pause_ns)
            self.exchange(first)

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
