"""Goal: a fleet's buckets drain as one bucket does, whoever comes and goes, asks, or declares another burst.

Method: all sequences of a few coarse actions of two nodes, on the production code, each judged against one central
bucket; and single stories that were once too much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub.report import Answer, Batch
from reconverge.limit import GCRA, INTERVAL, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge.simulation.explore.observer import BucketTruth
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried

KEY = "ada"
BITS = 1e-6
"""The error of the central bucket's arithmetic in floating point."""
DRAINED = 40
"""A rest lasts for so many seconds, in which a quarter of the bucket drains."""


class FreeWatcher(MemoryHub):
    """A hub whose answers are held against the central bucket: what it calls free must be free there."""

    def __init__(self, clock: ManualClock, truth: BucketTruth) -> None:
        super().__init__(clock=clock)
        self._truth = truth
        self.too_free = 0.0

    def merge(self, batch: Batch) -> Answer:
        """Merge, and compare what is called free with what one central limiter would still admit."""
        answer = super().merge(batch)
        for cell in answer.cells:
            self.too_free = max(self.too_free, cell.free + self._truth.excess())
        return answer


class TwoNodes:
    """Two nodes of one bucket, and the central bucket that they must not exceed."""

    def __init__(self, limit: Limit, policy: Policy = STRICT) -> None:
        self.clock = ManualClock(START_S)
        self.limit = limit
        self.policy = policy
        self.truth = BucketTruth(limit, self.clock)
        self.truth.asked()
        self.hub = FreeWatcher(self.clock, self.truth)
        self.nodes = [self._started(), self._started()]
        self.worst = -float(limit.capacity)

    def _started(self) -> SmallNode:
        node = SmallNode(self.clock)
        node.limit(self.limit, self.policy)
        return node

    def hits(self, index: int, times: int, cost: int = 1) -> int:
        """So many requests come to a node, which decides from memory; returns how much it admits."""
        table, now_ns = self.nodes[index].kernel.tables["limit"], self.clock.monotonic_ns()
        return self._admitted(cost * sum(table.decide(KEY, cost, now_ns).allowed for _ in range(times)))

    def asks(self, index: int, times: int, cost: int = 1) -> int:
        """So many requests ask the hub at once; returns how much is admitted."""
        node = self.nodes[index]
        table = node.kernel.tables["limit"]
        for _ in range(times):
            node.asks(table, KEY, cost)
        node.exchanges_with(self.hub)
        return self._admitted(sum(cost for _, cost in node.stops_asking(table)))

    def _admitted(self, cost: int) -> int:
        self.truth.admitted(cost, 0, 0)
        self.worst = max(self.worst, self.truth.excess())
        return cost

    def exchanges(self, index: int) -> None:
        """A node exchanges, and an interval passes."""
        self.nodes[index].exchanges_with(self.hub)
        self.clock.advance_ns(INTERVAL_NS)

    def leaves(self, index: int) -> None:
        """A node stops in good order, and another one starts in its place."""
        node = self.nodes[index]
        node.syncer.leave(self.clock.monotonic_ns())
        while not node.syncer.left:
            node.exchanges_with(self.hub)
        self.nodes[index] = self._started()

    def dies(self, index: int) -> None:
        """A node is killed, and another one starts in its place."""
        self.nodes[index] = self._started()

    def rests(self) -> None:
        """Nothing is asked for a while; the nodes go on exchanging."""
        for _ in range(DRAINED // 2):
            self.clock.advance_ns(2 * SECOND_NS)
            for node in self.nodes:
                node.exchanges_with(self.hub)

    def declares(self, index: int, limit: Limit) -> None:
        """A node learns of another limit."""
        self.nodes[index].kernel.tables["limit"].change(limit)


def a_burst_of_hits(world: TwoNodes) -> None:
    """The first node decides from memory."""
    for _ in range(2):
        world.hits(0, 8)
        world.exchanges(0)


def a_burst_of_asks(world: TwoNodes) -> None:
    """The second node asks."""
    world.asks(1, 8)
    world.exchanges(1)
    world.exchanges(1)


ACTIONS: tuple[Callable[[TwoNodes], None], ...] = (
    a_burst_of_hits,
    a_burst_of_asks,
    lambda world: world.leaves(0),
    lambda world: world.dies(0),
    TwoNodes.rests,
)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["steady", "interval"])
def test_no_sequence_of_coarse_actions_admits_more_than_one_bucket(variant: str) -> None:
    """Whichever five of hits, asks, orderly stops, crashes and rests follow each other."""
    steady = Limit(16, 160.0, algorithm=TOKEN_BUCKET)
    limit = replace(steady, refill=INTERVAL) if variant == "interval" else steady
    depth = tried(4, long=5)
    broken: list[tuple[int, ...]] = []
    for sequence in product(range(len(ACTIONS)), repeat=depth):
        world = TwoNodes(limit)
        for number in sequence:
            ACTIONS[number](world)
        # One action more, which meets what the others have left.
        a_burst_of_hits(world)
        a_burst_of_asks(world)
        if world.worst > BITS or world.hub.too_free > BITS:
            broken.append(sequence)

    assert [] == broken


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit",
    [
        Limit(60, 9000.0, algorithm=GCRA),
        Limit(60, 9000.0, algorithm=TOKEN_BUCKET),
        Limit(20, 3000.0, algorithm=TOKEN_BUCKET, burst=60, refill=INTERVAL),
    ],
    ids=["gcra", "token-bucket", "interval"],
)
def test_rolling_restarts_beside_a_node_that_asks_do_not_add_up(limit: Limit) -> None:
    """Each generation uses half and leaves; what it has used drains once, and not once more with the hub's own."""
    world = TwoNodes(limit)
    for _ in range(5):
        used = 0
        while used < 30:
            used += world.hits(0, 30 - used)
            world.exchanges(0)
            world.exchanges(1)
        for _ in range(60):
            world.asks(1, 8)
            world.exchanges(0)
        for _ in range(3):
            world.exchanges(1)
            world.exchanges(0)
        world.leaves(0)
        for _ in range(2250):
            world.clock.advance_ns(2 * SECOND_NS)
            world.nodes[1].exchanges_with(world.hub)

    assert world.worst <= BITS
    assert world.hub.too_free <= BITS


def test_what_a_whole_fleet_has_used_drains_while_nobody_reports() -> None:
    """Both nodes stop; when others start much later, the bucket is as empty as a central one."""
    world = TwoNodes(Limit(60, 60.0, algorithm=TOKEN_BUCKET))
    for _ in range(20):
        world.hits(0, 30)
        world.exchanges(0)
        world.hits(1, 30)
        world.exchanges(1)
    world.leaves(0)
    world.leaves(1)
    world.clock.advance_ns(60 * SECOND_NS)

    world.asks(0, 1)
    world.exchanges(0)

    assert 58 <= world.asks(0, 60)


@pytest.mark.parametrize("asked", [2, 5])
@pytest.mark.parametrize("cost", [1, 3])
def test_a_node_that_asked_once_and_goes_on_with_hits_reports_all_that_it_charges(asked: int, cost: int) -> None:
    """Also at the moment at which the key ceases to be kept at the hub."""
    limit = Limit(24, 3.0, algorithm=GCRA)
    world = TwoNodes(limit)
    for index in (0, 1):
        world.asks(index, 1, cost)
    for _ in range(90):
        for index in (0, 1):
            world.nodes[index].exchanges_with(world.hub)
            world.hits(index, asked, cost)
        world.clock.advance_ns(INTERVAL_NS)

    assert world.worst <= BITS


def test_a_burst_that_is_edited_down_and_up_forgives_nothing() -> None:
    """The use by the larger burst drains by the quota, with any burst that the reporting node declares."""
    limit = Limit(40, 90.0, algorithm=TOKEN_BUCKET, burst=120)
    world = TwoNodes(limit)
    world.hits(0, 1)
    for _ in range(20):
        world.exchanges(0)
        world.hits(0, 120)
    world.exchanges(0)
    world.leaves(0)
    world.declares(1, replace(limit, burst=12))
    for _ in range(27):
        world.hits(1, 1)
        world.exchanges(1)
        world.clock.advance_ns(SECOND_NS)
    world.declares(1, limit)
    for _ in range(12):
        world.exchanges(1)
        world.hits(1, 120)

    assert world.worst <= BITS


@pytest.mark.slow
def test_an_overdraft_in_use_is_granted_to_no_other_node() -> None:
    """Nodes that dare all they may use half as much again as there is, however often others replace them."""
    daring = Policy("daring", lambda view: view.allowance + view.overdraft, 0.5, 0.0)
    world = TwoNodes(Limit(100, 1.0, algorithm=TOKEN_BUCKET), daring)
    lives = 5
    for _ in range(lives):
        for _ in range(60):
            for index in (0, 1):
                world.nodes[index].exchanges_with(world.hub)
                world.hits(index, 200)
            world.clock.advance_ns(INTERVAL_NS // 100)
        world.leaves(0)
        world.leaves(1)
        world.clock.advance_ns(9 * SECOND_NS // 10)

    assert world.worst <= daring.bound(100, 2, 1)
