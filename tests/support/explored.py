"""A small world that can be explored: two nodes, one key, a hub, and coarse actions, each judged at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub.report import Batch
from reconverge.kernel import Verdict
from reconverge.kernel.cell import lease_until_ns
from reconverge.kernel.table.lookup import UNTOUCHED_NS
from reconverge.limit import Limit
from reconverge.limit.limit import CONCURRENCY, FIRST_HIT, PACED
from reconverge.policies import Policy
from reconverge.simulation.truth import declared_bound
from tests.support.aligned import BucketTruth, FirstHitTruth, WatchedHub, next_edge_ns, truth_of, usable
from tests.support.held import Held, SlotTruth
from tests.support.node import INTERVAL_NS, LEASE_NS, START_S, Node, Truth

KEY, OTHERS = "ada", ("bob", "cyd")
DEAR = 3
"""The cost of a dear request."""
BITS = 1e-6
LATE_MAX = 3


class SmallWorld:
    """Two nodes of one limit, the observer who knows all, and what goes wrong on the way."""

    def __init__(self, limit: Limit, policy: Policy) -> None:
        self.clock = ManualClock(START_S)
        self.limit = limit
        self.policy = policy
        slots = limit.algorithm == CONCURRENCY
        self.truth = SlotTruth(limit, self.clock) if slots else truth_of(limit, self.clock, "")
        others: defaultdict[str, Truth] = defaultdict(lambda: truth_of(limit, self.clock, ""))
        others[KEY] = self.truth
        self.hub = WatchedHub(self.clock, others)
        self.idle_ns = 0
        self.started = 0
        self.late: list[Batch] = []
        self.gone = 0
        self.remembered_until_ns = 0
        self.witness_needed = False
        self.problems: list[str] = []
        self.nodes = [self._started(), self._started()]

    def _started(self) -> Node:
        node = Node(self.clock, keys_max=len(OTHERS))
        table = node.limit(self.limit, self.policy)
        self.started += 1
        self.idle_ns = table.meter.idle_ns
        return node

    # ------------------------------------------------------------ judging

    def look(self) -> None:
        """Hold everything against the truth."""
        bound = declared_bound(self.limit, self.policy, self.started, DEAR, waits=False) + BITS
        excess = self.truth.excess()
        if excess > bound:
            self.problems.append(f"{excess:.3f} beyond the limit")
        if self.policy.max_overshoot < inf and self.hub.too_free > bound:
            self.problems.append(f"{self.hub.too_free:.3f} too much is called free")
        now_ns = self.clock.monotonic_ns()
        cells = [node.kernel.tables["limit"].cells.get(KEY) for node in self.nodes]
        live = [cell for cell in cells if cell is not None and now_ns < lease_until_ns(cell)]
        for window in {cell.epoch for cell in live}:
            held = sum(Fraction(usable(cell, window), cell.table.capacity) for cell in live)
            if held > 1:
                self.problems.append(f"{float(held):.3f} of the capacity lies in allowances")
        if sum(Fraction(cell.base, cell.table.capacity) for cell in live) > 1:
            self.problems.append("bases sum to more than the capacity")
        departures = self.started + sum(node.syncer.stats(now_ns).lapses for node in self.nodes)
        departures += sum(node.kernel.tables["limit"].left_early for node in self.nodes)
        if departures != self.gone:
            self.gone, self.remembered_until_ns = departures, now_ns + 2 * self.idle_ns

    # ------------------------------------------------------------ requests

    def hits(self, index: int, times: int, cost: int = 1) -> int:
        """So many requests are decided from memory; returns what is admitted."""
        node, admitted = self.nodes[index], 0
        table = node.kernel.tables["limit"]
        if cost > table.limit.cost_max:
            return 0
        self._exists()
        for _ in range(times):
            verdict = table.decide(KEY, cost, self.clock.monotonic_ns())
            if verdict.allowed:
                self._admit(node, cost, verdict)
                admitted += cost
        return admitted

    def asks(self, index: int, times: int, cost: int = 1, *, cancelled: bool = False) -> int:
        """So many requests ask the hub at once; returns what is admitted."""
        node = self.nodes[index]
        if not self._may_speak(node) or node.flight is not None or cost > node.kernel.tables["limit"].limit.cost_max:
            return 0
        table = node.kernel.tables["limit"]
        self._exists()
        for _ in range(times):
            node.asks(table, KEY, cost)
        self._exchange(node)
        if self.limit.align == FIRST_HIT:
            self.passes(INTERVAL_NS // 10)
            self._exchange(node)  # the first answer may have opened a window, and the second one grants of it
        if cancelled:
            node.cancels_asks(table)
            return 0
        admitted = 0
        for _, one in node.stops_asking(table):
            self._admit(node, one, table.observe(KEY, self.clock.monotonic_ns()))
            admitted += one
        return admitted

    def settles(self, index: int) -> None:
        """A request of two turns out to cost nothing; or the oldest that is in progress ends."""
        node = self.nodes[index]
        table = node.kernel.tables["limit"]
        if isinstance(self.truth, SlotTruth):
            self.truth.ends(node, table)
            return
        if table.limit.cost_max < 2:
            return
        self._exists()
        verdict = table.decide(KEY, 2, self.clock.monotonic_ns())
        if verdict.allowed:
            self._admit(node, 2, verdict)
            table.correct(KEY, verdict.epoch, -2)
            if isinstance(self.truth, FirstHitTruth):
                self.truth.gave_back_by(node.number, 2, verdict.epoch)
            else:
                self.truth.gave_back(2, verdict.epoch, verdict.slice_number)

    def _exists(self) -> None:
        if isinstance(self.truth, BucketTruth):
            self.truth.asked()

    def _admit(self, node: Node, cost: int, verdict: Verdict) -> None:
        if node.kernel.tables["limit"].cells.get(KEY) is None:
            return  # there was no room for the key: it went by the count that all such keys share
        if isinstance(self.truth, FirstHitTruth):
            self.truth.admitted_by(node.number, cost, verdict.epoch)
        elif isinstance(self.truth, SlotTruth):
            self.truth.begins(node, KEY, cost)
        else:
            self.truth.admitted(cost, verdict.epoch, verdict.slice_number)
        self.look()

    # ------------------------------------------------------------ messages and time

    def _may_speak(self, node: Node) -> bool:
        return not self.witness_needed or bool(node.syncer._generation)

    def _exchange(self, node: Node) -> None:
        if self._may_speak(node):
            spoke = node.flight is not None or node.sends() is not None
            node.reaches(self.hub)
            node.hears()
            self.witness_needed = self.witness_needed and not spoke

    def passes(self, nanoseconds: int) -> None:
        """Time passes, and nothing else happens."""
        self.clock.advance_ns(nanoseconds)
        self.look()

    def exchanges(self, index: int) -> None:
        """A node exchanges, and an interval passes."""
        self._exchange(self.nodes[index])
        self.passes(INTERVAL_NS)

    def hits_and_exchanges(self, index: int, times: int, cost: int = 1) -> None:
        self.hits(index, times, cost)
        self.exchanges(index)

    def asks_for_an_interval(self, index: int, times: int, cost: int = 1, *, cancelled: bool = False) -> None:
        self.asks(index, times, cost, cancelled=cancelled)
        self.passes(INTERVAL_NS)

    def loses_request(self, index: int, times: int) -> None:
        """A batch does not arrive, for now, and requests come."""
        node = self.nodes[index]
        node.sends()
        self._give_up(node)
        self.hits(index, times)

    def loses_answer(self, index: int, times: int) -> None:
        """A batch arrives, and its answer does not, and requests come."""
        node = self.nodes[index]
        if self._may_speak(node):
            if node.sends() is not None:
                self.witness_needed = False
            node.reaches(self.hub)
            self._give_up(node)
        self.hits(index, times)

    def _give_up(self, node: Node) -> None:
        batch = node.gives_up()
        if batch is not None:
            self.late = [*self.late[1 - LATE_MAX :], batch]

    def late_ones_arrive(self) -> None:
        """All batches that were given up arrive."""
        if not self.witness_needed:
            for batch in self.late:
                self.hub.merge(batch)
        self.late = []

    def is_cut(self, index: int) -> None:
        """A node is not heard of for longer than a lease, while the other one goes on and asks."""
        self._give_up(self.nodes[index])
        for _ in range(3):
            self.hits(index, 1)
            self.passes(LEASE_NS // 3 + 1)
            self._exchange(self.nodes[1 - index])
            self.hits(1 - index, 2)

    def rests(self, windows: float) -> None:
        """Nobody asks for a part of a window; the nodes exchange."""
        step_ns = max(1, int(windows * self.limit.window_ns) // 3)
        for _ in range(3):
            self.passes(step_ns)
            for node in self._witnesses_first():
                self._exchange(node)

    def _witnesses_first(self) -> list[Node]:
        return sorted(self.nodes, key=lambda node: not node.syncer._generation)

    def comes_to_the_edge(self) -> None:
        """The window is about to end."""
        self.passes(next_edge_ns(self.limit, self.clock, "") - 1)

    # ------------------------------------------------------------ nodes and hub

    def leaves(self, index: int) -> None:
        """A node stops in good order, and another one starts in its place."""
        node = self.nodes[index]
        self._give_up(node)
        if self._may_speak(node):
            node.syncer.leave(self.clock.monotonic_ns())
            while not node.syncer.left:
                node.exchanges_with(self.hub)
            self.witness_needed = False
            self._replace(index)

    def dies(self, index: int) -> None:
        """A node is killed, and another one starts in its place."""
        self._give_up(self.nodes[index])
        self._replace(index)

    def _replace(self, index: int) -> None:
        if isinstance(self.truth, SlotTruth):
            self.truth.vanishes(self.nodes[index])
        self.nodes[index] = self._started()

    def hub_loses_data(self) -> None:
        """The hub comes back empty; not while it alone remembers, which no promise covers."""
        if self.clock.monotonic_ns() < self.remembered_until_ns:
            return
        self.hub.lose_data()
        witnesses = [node for node in self.nodes if node.syncer._generation]
        self.witness_needed = bool(witnesses)
        if self.policy.max_overshoot > 0:
            for node in witnesses:
                self._give_up(node)
            self.passes(SECOND_NS)
            for node in witnesses:
                for _ in range(3):
                    self._exchange(node)

    def declares(self, index: int, limit: Limit) -> None:
        self.nodes[index].kernel.tables["limit"].change(limit)

    def lowers(self, index: int) -> None:
        """A node learns of half the quota, and half the burst."""
        burst = self.limit.burst
        half = None if burst is None else max(1, burst // 2)
        self.declares(index, replace(self.limit, quota=max(1, self.limit.quota // 2), burst=half))

    def evicts(self, index: int) -> None:
        """Only other keys come, for so long that this one leaves."""
        node = self.nodes[index]
        table = node.kernel.tables["limit"]
        for _ in range(3):
            for key in OTHERS:
                if table.decide(key, 1, self.clock.monotonic_ns()).allowed and isinstance(self.truth, SlotTruth):
                    table.release(Held(node, key, 1, table.cell_in_use(key), 1))
            self._exchange(node)
            self.passes(UNTOUCHED_NS // 2)

    # ------------------------------------------------------------ in the end

    @property
    def expected(self) -> int:
        """Returns the cost that one node may use at once when nothing counts.

        A new key begins without a part of that.
        """
        return self.limit.capacity // self.limit.unit - self.limit.withheld

    def recovers(self, index: int) -> int:
        """All faults end, and nobody asks until nothing counts; then one node asks for all. Returns what it gets."""
        self.late = []
        for node in self.nodes:
            self._give_up(node)
            table = node.kernel.tables["limit"]
            table.change(self.limit)
            while isinstance(self.truth, SlotTruth) and any(one.node is node for one in self.truth.held):
                self.truth.ends(node, table)
        step_ns = LEASE_NS // 3
        for _ in range(2 * (2 * self.idle_ns + LEASE_NS) // step_ns):
            self.clock.advance_ns(step_ns)
            for node in self._witnesses_first():
                self._exchange(node)
        got = 0
        capacity = self.limit.burst or self.limit.quota
        for _ in range(4):
            if self.limit.algorithm in PACED:
                got += self.hits(index, capacity)
                self._exchange(self.nodes[index])
            else:
                got += self.asks(index, capacity + 1)
            self.clock.advance_ns(INTERVAL_NS)
        return got


Action = Callable[[SmallWorld], object]
FAULTS = (
    "loses request 0",
    "loses answer 0",
    "leaves 1",
    "dies 0",
    "is cut 1",
    "lowers 0",
    "evicts 0",
    "late ones arrive",
    "edge",
    "after the edge",
    "rests",
    "loses data",
)


def _actions_of_node(i: int, limit: Limit) -> list[tuple[str, Action]]:
    many = limit.capacity // limit.unit + 1
    found: list[tuple[str, Action]] = [
        (f"hits {i}", lambda world: world.hits_and_exchanges(i, many)),
        (f"dear hits {i}", lambda world: world.hits_and_exchanges(i, 2, DEAR)),
        (f"exchanges {i}", lambda world: world.exchanges(i)),
        (f"settles {i}", lambda world: world.settles(i)),
        (f"leaves {i}", lambda world: world.leaves(i)),
        (f"dies {i}", lambda world: world.dies(i)),
        (f"is cut {i}", lambda world: world.is_cut(i)),
        (f"loses request {i}", lambda world: world.loses_request(i, many)),
        (f"loses answer {i}", lambda world: world.loses_answer(i, many)),
        (f"lowers {i}", lambda world: world.lowers(i)),
        (f"raises {i}", lambda world: world.declares(i, world.limit)),
        (f"evicts {i}", lambda world: world.evicts(i)),
    ]
    if limit.algorithm not in PACED:
        found += [
            (f"asks {i}", lambda world: world.asks_for_an_interval(i, 2)),
            (f"asks all {i}", lambda world: world.asks_for_an_interval(i, many)),
            (f"asks dear {i}", lambda world: world.asks_for_an_interval(i, 1, DEAR)),
            (f"cancels {i}", lambda world: world.asks_for_an_interval(i, 2, cancelled=True)),
        ]
    return found


def actions_of(limit: Limit) -> dict[str, Action]:
    found = [*_actions_of_node(0, limit), *_actions_of_node(1, limit)]
    found += [
        ("late ones arrive", SmallWorld.late_ones_arrive),
        ("rests", lambda world: world.rests(0.5)),
        ("rests long", lambda world: world.rests(2.1)),
        ("edge", SmallWorld.comes_to_the_edge),
        ("after the edge", lambda world: world.passes(2)),
        ("loses data", SmallWorld.hub_loses_data),
    ]
    return dict(found)
