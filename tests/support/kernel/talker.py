"""A vocabulary for tests of the exchange: nodes that draw given random numbers, and one hub for all."""

from __future__ import annotations

from random import Random

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Batch, CellReport, Totals
from reconverge.kernel import Table
from reconverge.limit import Limit
from reconverge.policies import STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

MINUTE_BEGINS_S = START_S - START_S % 60
MINUTE = Limit(100, 60, algorithm="fixed-window")


class Always(Random):
    """A generator that always draws the same."""

    def __init__(self, chance: float) -> None:
        super().__init__(0)
        self._chance = chance

    def random(self) -> float:
        return self._chance


class Talker(SmallNode):
    """One node with one limit; it is asked about one key unless another is given."""

    def __init__(
        self,
        clock: ManualClock,
        limit: Limit,
        policy: Policy,
        *,
        chance: float = 0.5,
        interval_ns: int = INTERVAL_NS,
        lease_ns: int = LEASE_NS,
        silence_max_ns: int = 0,
    ) -> None:
        super().__init__(clock, interval_ns=interval_ns)
        self.kernel.lease_ns = lease_ns
        self.kernel.silence_max_ns = silence_max_ns
        self.syncer = Syncer(
            self.kernel, shard=0, random=Always(chance), new_name=self._new_name, now_ns=clock.monotonic_ns()
        )
        self.syncers = [self.syncer]
        self.table: Table = self.limit(limit, policy)

    @property
    def due_in_ns(self) -> int:
        """Returns the nanoseconds until the next exchange should begin; 0 if it should have begun."""
        now_ns = self.clock.monotonic_ns()
        return max(0, self.syncer.due_ns(now_ns) - now_ns)

    @property
    def in_lease(self) -> bool:
        """Whether this node may use its allowances."""
        return self.clock.monotonic_ns() < self.kernel.shards[0].lease_until_ns

    def admitted_of(self, attempts: int, cost: int = 1, key: str = "ada") -> int:
        return sum(self.table.allow(key, cost) for _ in range(attempts))

    def allowance(self, key: str = "ada") -> int:
        """Returns how much this node may admit by itself."""
        return self.table.cells[key].allowance // self.table.unit if key in self.table.cells else 0

    def says(self) -> Batch:
        """Sends a batch; there must be something to report."""
        batch = self.sends()
        assert batch is not None, "this node has nothing to say"
        return batch

    def fails(self, times: int = 1) -> None:
        """Lets a number of exchanges in a row go unanswered, each at its time."""
        for _ in range(times):
            self.clock.advance_ns(self.due_in_ns)
            self.says()
            self.gives_up()

    def speaks_when_due(self, hub: MemoryHub, seconds: float) -> list[Batch]:
        """Lets time pass, and exchanges at the nanosecond at which an exchange is due. Returns the batch."""
        said: list[Batch] = []
        until_ns = self.clock.monotonic_ns() + round(seconds * SECOND_NS)
        while self.clock.monotonic_ns() + self.due_in_ns < until_ns:
            self.clock.advance_ns(self.due_in_ns)
            batch = self.sends()
            if batch is not None:
                said.append(batch)
                self.reaches(hub)
                self.hears()
        self.clock.advance_ns(until_ns - self.clock.monotonic_ns())
        return said


class Talkers:
    """A clock, a hub, and nodes that share one limit."""

    def __init__(
        self,
        limit: Limit,
        policy: Policy,
        *,
        nodes: int = 1,
        chance: float = 0.5,
        lease_ns: int = LEASE_NS,
        silence_max_ns: int = 0,
    ) -> None:
        self.limit = limit
        self.silence_max_ns = silence_max_ns
        self.policy = policy
        self.chance = chance
        self.lease_ns = lease_ns
        self.clock = ManualClock(MINUTE_BEGINS_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [self.another_node() for _ in range(nodes)]

    def another_node(self, *, interval_ns: int = INTERVAL_NS) -> Talker:
        """Returns a node that the hub has never heard of."""
        return Talker(
            self.clock,
            self.limit,
            self.policy,
            chance=self.chance,
            interval_ns=interval_ns,
            lease_ns=self.lease_ns,
            silence_max_ns=self.silence_max_ns,
        )

    def passes(self, seconds: float = 0.0, *, ns: int = 0) -> None:
        self.clock.advance_ns(round(seconds * SECOND_NS) + ns)

    def idles(self, seconds: float) -> None:
        """Lets time pass in which nodes without a batch on its way exchange now and then, though nothing changes."""
        until_ns = self.clock.monotonic_ns() + round(seconds * SECOND_NS)
        while (left_ns := until_ns - self.clock.monotonic_ns()) > 0:
            self.clock.advance_ns(min(left_ns, SECOND_NS))
            for node in self.nodes:
                if node.flight is None:
                    node.syncer.speak_up()
                    node.exchanges_with(self.hub)

    def all_speak(self, rounds: int = 1, *, every_s: float = 0.1) -> None:
        """Lets all nodes exchange in turn, and time pass after each round."""
        for _ in range(rounds):
            for node in self.nodes:
                node.exchanges_with(self.hub)
            self.passes(every_s)

    def totals(self) -> Totals:
        """Returns the hub's totals since its data began."""
        return self.hub._shards[0].totals().get("limit", Totals(0, 0))

    def counted(self, key: str = "ada") -> int:
        """Returns the hub's count of this window, charged by any node."""
        limit = self.limit
        return self.hub._shards[0].cells["limit", limit.algorithm, limit.window_ns // 1000, key].current


def reported(batch: Batch, key: str = "ada") -> CellReport:
    (report,) = [cell for cell in batch.cells if cell.key == key]
    return report


def busy(limit: Limit, policy: Policy = STRICT, *, nodes: int = 1) -> Talkers:
    """Returns nodes that all have had requests for the key, and hold allowances for a long time."""
    world = Talkers(limit, policy, nodes=nodes, lease_ns=600 * SECOND_NS)
    world.all_speak()
    for _ in range(3):
        for node in world.nodes:
            node.admitted_of(1)
        world.all_speak()
    return world
