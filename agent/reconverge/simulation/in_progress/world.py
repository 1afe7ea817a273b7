"""Slots under virtual time: fleets whose work takes a while, in a world of faults that is drawn from a seed.

The kernel, the syncer and the merge rule are the real ones, as in `simulation/world.py`. The judgement differs: it is
about the work in progress at each moment, and not about the admissions in a window.
"""

# Theory of operation.
#
# The true state of a limit on work in progress is a list of the work that runs: on which node, of which key, how many
# slots. Work whose node has seen its lease end counts apart, for as long as it goes on: the hub has given its slots
# away, as it must, and nothing but the work itself can end it. So what must hold at each moment is
#
#     in progress, but for what counts apart  <=  limit (+ the overshoot of the policy, and one for each node)
#
# and in the end, when all work is over and leases have had time to end,
#
#     nothing is in use, on any node and at the hub; and a single node can take all slots
#
# The second finds slots that were given back twice or never. The first cannot, as a node that admits too little breaks
# no limit.
#
# All that is random is drawn from the seed, so a seed is a case.

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final, Generic, TypeVar

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.errors import HubUnavailable
from reconverge.exchange.syncer import Syncer
from reconverge.hub.clock import DRIFT
from reconverge.hub.merge_rule import open_merge_rule
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import Cell, Kernel, Table, gate_of, lease_is_over
from reconverge.limit.limit import CONCURRENCY, Limit
from reconverge.policies import choose
from reconverge.settings import LEASE_INTERVALS_MIN

NAME: Final = "slots"
BEGIN_NS: Final = 1_750_000_000 * SECOND_NS
LOOKS: Final = 300
"""The number of times in a case at which work begins or ends."""
WAITS_MAX: Final = 3
"""The longest wait at the end of a case, in leases."""


AnyNode = TypeVar("AnyNode")


@dataclass(slots=True, eq=False)
class Work(Generic[AnyNode]):
    """One piece of work in progress; `Table.release` finds the charge of its slots by this object."""

    node: AnyNode
    key: str
    slots: int
    cell: Cell | None
    cost: int
    apart: bool = False
    """Whether the lease of the work's node has ended since the work began: then the hub may have given its slots
    away."""

    def look(self, now_ns: int) -> None:
        """Marks the work as `apart` if its lease is over at `now_ns` by its node's clock."""
        self.apart = self.apart or (self.cell is not None and lease_is_over(self.cell, now_ns))


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request that waits for a slot, until `until_ns` at the latest."""

    key: str
    cost: int
    until_ns: int
    table: Table
    """The table that the request has asked; later requests for its key may go to the table of another plan."""
    cells: list[Cell] = field(default_factory=list[Cell])


class DriftingClock:
    """A node's clocks, which run a little too fast or too slow."""

    def __init__(self, world: SlotWorld, drift: float, ahead_ns: int) -> None:
        self._world = world
        self._drift = drift
        self._ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return self._world.now_ns + int(self._world.now_ns * self._drift)

    def wall_ns(self) -> int:
        return BEGIN_NS + self.monotonic_ns() + self._ahead_ns


class SlotNode:
    """One node of a simulated fleet whose limit is on work in progress."""

    def __init__(self, world: SlotWorld, index: int) -> None:
        self.index = index
        random = world.random
        self.clock = DriftingClock(world, random.uniform(-0.5, 0.5) * DRIFT, random.choice([0, 0, 1]) * SECOND_NS)
        self.alive = False
        self.stopping = False
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.work: list[Work[SlotNode]] = []
        self.waiting: list[WaitingRequest] = []
        self.kernel: Kernel
        self.table: Table
        self.syncer: Syncer


class SlotWorld:
    """One simulated run of a fleet whose limit is on slots; the caller draws the events of the run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"slots {seed}")
        self.now_ns = 0
        self.interval_ns = random.choice([20, 100, 400]) * MILLISECOND_NS
        lease_ns = LEASE_INTERVALS_MIN * self.interval_ns * random.choice([1, 1, 3])
        capacity = random.choice([1, 3, 8, 20, 60, 120])
        self.limit = Limit(capacity, algorithm=CONCURRENCY, lease=lease_ns / SECOND_NS)
        self.policy = choose(max_overshoot=random.choice([0.0, 0.0, 0.0, 0.1, 0.5]), cold_allowance=0.0)
        self.node_lease_ns = lease_ns * random.choice([1, 1, 4])
        self.round_trip_ns = int(self.interval_ns * random.choice([0.02, 0.2, 1.5]))
        self.timeout_ns = max(2 * self.round_trip_ns, lease_ns // 3)
        self.keys = [f"key-{number}" for number in range(random.choice([1, 1, 2, 5]))]
        self.keys_max = random.choice([1000, 1000, len(self.keys)])
        self.names = 0
        self.hub = open_merge_rule(clock=DriftingClock(self, 0.0, 0), new_name=self._new_name)
        if random.random() < 0.3:
            self.hub.lose_data()
        self._events: list[tuple[int, int, str, SlotNode, object]] = []
        self._order = 0
        self._loss = random.choice([0.0, 0.0, 0.05, 0.4])
        self._repeats = random.choice([0.0, 0.0, 0.2])
        self.cut: set[int] = set()
        self.down = False
        self.problems: list[str] = []
        self.nodes = [SlotNode(self, index) for index in range(random.choice([1, 2, 3, 4, 8]))]
        for node in self.nodes:
            self.start(node)

    # ------------------------------------------------------------ nodes

    def start(self, node: SlotNode) -> None:
        """Starts a new process in the place of `node`. It has no slots, and the hub does not know it yet."""
        node.kernel = Kernel(
            node.clock,
            namespace="simulation",
            interval_ns=self.interval_ns,
            interval_min_ns=max(1, self.interval_ns // 10),
            keys_max=self.keys_max,
            key_bytes_max=256,
            lease_ns=self.node_lease_ns,
        )
        node.table = self.declare(node)
        random = Random(self.random.random())
        now_ns = node.clock.monotonic_ns()
        node.syncer = Syncer(node.kernel, shard=0, random=random, new_name=self._new_name, now_ns=now_ns)
        node.alive, node.stopping, node.batch = True, False, None
        self._plan(node, self.now_ns)

    def declare(self, node: SlotNode) -> Table:
        """Declares the limit on a node. Returns its table; if the limit has plans, the table of the largest."""
        return node.kernel.declare(NAME, self.limit, self.policy)

    def table_of(self, node: SlotNode, key: str) -> Table:  # noqa: ARG002  # plans differ by key
        """Returns the table that counts a request for `key` on this node at this moment."""
        return node.table

    def kill(self, node: SlotNode) -> None:
        """Ends a node's process at once, and with it all work in progress on the node."""
        node.alive = False
        node.batch = None
        node.work.clear()
        node.waiting.clear()

    def asks(self, node: SlotNode, key: str, cost: int, patience_ns: int) -> None:
        """Makes a request for `cost` slots: its work begins if there are slots, else it waits up to `patience_ns`."""
        if not node.alive or node.stopping:
            return
        now_ns, table = node.clock.monotonic_ns(), self.table_of(node, key)
        if cost > table.capacity:
            return
        work = Work(node, key, cost, None, 0)
        if table.take_at_once(key, cost, work):
            self._note(work)
        elif table.decide(key, cost, now_ns).allowed:
            self._begins(node, key, cost)
        elif patience_ns > 0:
            waiting = WaitingRequest(key, cost, self.now_ns + patience_ns, table)
            table.asks = table.policy.keeps_at_hub
            gate_of(table).queue_up(key, (cost,), waiting.cells)
            node.waiting.append(waiting)
        self._look_at(node)

    def ends(self, work: Work[SlotNode]) -> None:
        """Ends a piece of work, and releases its slots twice: the second release must do nothing."""
        node = work.node
        if work in node.work:
            node.work.remove(work)
            node.table.release(work)
            node.table.release(work)
            self._let_in(node)
            self._look_at(node)

    def _begins(self, node: SlotNode, key: str, cost: int) -> None:
        cell = node.table.cell_in_use(key)
        self._note(Work(node, key, cost, cell, cost))

    def _note(self, work: Work[SlotNode]) -> None:
        """Records that work has begun; under strict, notes a problem if the lease on its slots is over by then."""
        work.node.work.append(work)
        now_ns = work.node.clock.monotonic_ns()
        if self.policy.overshoot_milli == 0 and work.cell is not None and lease_is_over(work.cell, now_ns):
            self.problems.append(f"{work.key} begins at {self.now_ns} ns on a lease that is over")
        self._judge(work.key)

    def _let_in(self, node: SlotNode) -> None:
        """Lets a node's waiting requests try again, the oldest for each key first."""
        blocked: set[str] = set()
        for waiting in list(node.waiting):
            gone = self.now_ns >= waiting.until_ns
            turn = None
            if waiting.key not in blocked and not gone:
                turn = gate_of(waiting.table).try_turn(waiting.key, (waiting.cost,), again=True)
            if turn is not None and turn.decision is not None:
                self._begins(node, waiting.key, waiting.cost)
                gone = True
            elif not gone:
                blocked.add(waiting.key)
            if gone:
                node.waiting.remove(waiting)
                gate_of(waiting.table).step_out(waiting.cells, (waiting.cost,))

    def nothing_waits(self, node: SlotNode) -> None:
        """Makes all waiting requests of a node give up."""
        for waiting in node.waiting:
            gate_of(waiting.table).step_out(waiting.cells, (waiting.cost,))
        node.waiting.clear()

    def notice_leases(self) -> None:
        """Marks work as `apart` if the lease of its slots is over by its node's own clock."""
        for node in self.nodes:
            if not node.work:
                continue
            now_ns, shard = node.clock.monotonic_ns(), node.kernel.shards[0]
            if now_ns < min(shard.lease_until_ns, shard.leased_ns + node.table.lease_ns):
                continue
            for work in node.work:
                work.look(now_ns)

    def in_progress(self, key: str) -> int:
        """Returns the number of slots of `key` in use by work in progress, except for work marked `apart`."""
        return sum(work.slots for node in self.nodes for work in node.work if work.key == key and not work.apart)

    def _judge(self, key: str) -> None:
        self.notice_leases()
        running, nodes = self.in_progress(key), len(self.nodes)
        bound = self.limit.capacity + self.policy.bound(self.limit.capacity, nodes, 2)
        if running > bound:
            self.problems.append(f"{running} of {key} are in progress at {self.now_ns} ns, more than {bound:g}")

    # ------------------------------------------------------------ the network

    def pass_until(self, moment_ns: int) -> None:
        """Runs all events up to `moment_ns`."""
        events = self._events
        while events and events[0][0] <= moment_ns:
            self.now_ns, _, action, node, what = heapq.heappop(events)
            if action == "wake" and node.alive and node.batch is None and self.now_ns == node.due_ns:
                self._speak(node)
            elif action == "hub" and isinstance(what, Batch):
                self._arrive(node, what)
            elif action == "answer" and isinstance(what, tuple):
                self._hear(node, *what)
            elif action == "timeout" and node.batch is what:
                node.batch = None
                node.syncer.failed("timeout", now_ns=node.clock.monotonic_ns())
                self._look_at(node)
            elif action == "end" and isinstance(what, Work):
                self.ends(what)
            self.notice_leases()
        self.now_ns = max(self.now_ns, moment_ns)

    def end_later(self, work: Work[SlotNode], after_ns: int) -> None:
        """Plans the end of `work`, `after_ns` from now."""
        self._push(self.now_ns + after_ns, "end", work.node, work)

    def _speak(self, node: SlotNode) -> None:
        now_ns = node.clock.monotonic_ns()
        self._let_in(node)
        batch = node.syncer.take(now_ns)
        if batch is None:
            self._look_at(node)
            return
        node.batch, node.sent_ns = batch, now_ns
        self._push(self.now_ns + self.timeout_ns, "timeout", node, batch)
        if self._gets_through(node):
            self._push(self.now_ns + self._latency_ns(), "hub", node, batch)
        if self.random.random() < self._repeats:
            late_ns = int(self.random.random() * 2 * self.node_lease_ns)
            self._push(self.now_ns + late_ns, "hub", node, batch)

    def _arrive(self, node: SlotNode, batch: Batch) -> None:
        if self.down:
            return
        try:
            answer = self.hub.merge(batch)
        except HubUnavailable:
            return
        if self._gets_through(node):
            self._push(self.now_ns + self._latency_ns(), "answer", node, (batch, answer))

    def _hear(self, node: SlotNode, batch: Batch, answer: Answer) -> None:
        if node.batch is not batch:
            return
        node.batch = None
        node.syncer.merged(batch, answer, sent_ns=node.sent_ns, now_ns=node.clock.monotonic_ns())
        self._let_in(node)
        if node.stopping and node.syncer.left:
            self.kill(node)  # the process ends after its last report
        self._look_at(node)

    def _gets_through(self, node: SlotNode) -> bool:
        return not (self.down or node.index in self.cut or self.random.random() < self._loss)

    def _latency_ns(self) -> int:
        return max(1, int(self.round_trip_ns / 2 * self.random.uniform(0.8, 1.2)))

    def _look_at(self, node: SlotNode) -> None:
        if node.alive and node.batch is None:
            due_ns = node.syncer.due_ns(node.clock.monotonic_ns())
            ahead_ns = max(0, due_ns - node.clock.monotonic_ns())
            self._plan(node, self.now_ns + ahead_ns)

    def _plan(self, node: SlotNode, due_ns: int) -> None:
        node.due_ns = due_ns
        self._push(due_ns, "wake", node, None)

    def _push(self, moment_ns: int, action: str, node: SlotNode, what: object) -> None:
        self._order += 1
        heapq.heappush(self._events, (moment_ns, self._order, action, node, what))

    def _new_name(self) -> str:
        self.names += 1
        return f"name-{self.names}"

    def heal(self) -> None:
        """Ends all faults of the network and the hub."""
        self.cut.clear()
        self.down = False
        self._loss = self._repeats = 0.0

    # ------------------------------------------------------------ the end

    @property
    def settled_ns(self) -> int:
        """Returns the longest time, in nanoseconds, until the hub knows all slots and grants all free ones.

        The time covers leases, learning, and some exchanges.
        """
        return WAITS_MAX * max(self.node_lease_ns, 4 * SECOND_NS) + 8 * self.interval_ns + 4 * self.timeout_ns

    def left_behind(self) -> list[str]:
        """Returns a sentence for each node that still counts slots as in use after all work has ended."""
        used = Counter(
            {
                node.index: sum(table.slots_in_use()[0] for table in node.kernel.tables.values())
                for node in self.nodes
                if node.alive
            }
        )
        return [
            f"node {index} has {count} slots in use, and nothing in progress" for index, count in used.items() if count
        ]
