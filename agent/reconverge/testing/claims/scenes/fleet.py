"""A scene for claims: nodes with the real kernel and syncer. The test decides which node exchanges and what is lost."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from random import Random
from typing import Final

from reconverge.clock import SECOND_NS, Clock, ManualClock
from reconverge.exchange.syncer import Syncer
from reconverge.hub.port import Hub
from reconverge.hub.report import Batch, Totals
from reconverge.kernel import Cell, Kernel, gate_of
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_LOG, Limit
from reconverge.policies import Policy

LIMIT_NAME: Final = "limit"
KEYS: Final = ("ada", "bob")
INTERVAL_NS: Final = SECOND_NS // 10
LEASE_NS: Final = 30 * SECOND_NS
LAST_WORDS_MAX: Final = 20
"""The most exchanges that a leaving node may need for its last report."""
LATE_MAX: Final = 12
"""The most lost messages that may still arrive later."""
ASKS_MAX: Final = 5
"""The most requests of a node that may wait for the hub's answer at once."""


class ClaimNode:
    """One node without an event loop: it decides from its own allowances, and exchanges when the test calls it."""

    def __init__(self, hub: Hub, clock: Clock, *, name: str, limit: Limit, policy: Policy, random: Random) -> None:
        self.hub = hub
        self._clock = clock
        self._random = random
        names = count(1)
        self._kernel = Kernel(
            clock,
            namespace="claims",
            interval_ns=INTERVAL_NS,
            interval_min_ns=INTERVAL_NS // 10,
            keys_max=1000,
            key_bytes_max=256,
            shards=hub.shards,
            lease_ns=LEASE_NS,
        )
        self._syncers = [
            Syncer(
                self._kernel,
                shard=shard,
                random=random,
                new_name=lambda: f"{name}-{next(names)}",
                now_ns=clock.monotonic_ns(),
            )
            for shard in range(hub.shards)
        ]
        self._table = self._kernel.declare(LIMIT_NAME, limit, policy)
        self._asked: list[tuple[str, int, list[Cell]]] = []
        self.charged = 0
        self.refunded = 0

    def admits(self, key: str, cost: int) -> int | None:
        """Decides about a request of this cost. Returns the window in which it was admitted; None if refused."""
        verdict = self._table.decide(key, cost, self._clock.monotonic_ns())
        self.charged += cost if verdict.allowed else 0
        return verdict.epoch if verdict.allowed else None

    @property
    def asks(self) -> bool:
        """Whether requests in doubt at this node wait for the hub's answer."""
        return self._table.asks

    @asks.setter
    def asks(self, asks: bool) -> None:
        self._table.asks = asks

    def waits(self, key: str, cost: int) -> None:
        """Queues a request that waits for the hub's answer, unless ASKS_MAX of them wait."""
        if len(self._asked) < ASKS_MAX:
            cells: list[Cell] = []
            gate_of(self._table).queue_up(key, self._table.costs_of(cost), cells)
            self._asked.append((key, cost, cells))

    def goes_on(self) -> list[tuple[str, int, int]]:
        """Decides all waiting requests again, and ends the waiting of those that are refused as well.

        Returns the key, the cost and the window of each request that was admitted.
        """
        gate, admitted = gate_of(self._table), list[tuple[str, int, int]]()
        for key, cost, cells in self._asked:
            costs = self._table.costs_of(cost)
            if gate.try_turn(key, costs, again=True).decision is not None:
                admitted.append((key, cost, self._table.observe(key, self._clock.monotonic_ns()).epoch))
                self.charged += cost
            gate.step_out(cells, costs)
        self._asked = []
        return admitted

    def gives_back(self, key: str, cost: int, epoch: int) -> None:
        """Settles a request that was admitted in the window with the number `epoch`: gives `cost` of it back."""
        self._table.correct(key, epoch, -cost)
        self.refunded += cost

    def sees(self, key: str) -> int:
        """Returns the use of a key by all nodes, as this node estimates it from answers and its own requests."""
        return self._table.usage(key).total

    async def exchanges(self) -> None:
        """Exchanges with every shard to which this node has something to report."""
        for syncer in self._syncers:
            await self._exchanges(syncer)

    async def exchanges_if_due(self) -> None:
        """Exchanges with the shards for which an exchange is due now, as an event loop would do."""
        for syncer in self._syncers:
            now_ns = self._clock.monotonic_ns()
            if syncer.due_ns(now_ns) <= now_ns:
                await self._exchanges(syncer)

    async def loses_an_answer(self) -> Batch | None:
        """Exchanges a batch, but drops the answer. Returns the batch; None if there was nothing to send."""
        batch = self.loses_a_request()
        if batch is not None:
            await self.hub.exchange(batch)
        return batch

    def loses_a_request(self) -> Batch | None:
        """Takes the next batch from the node, which then counts it as lost. Returns it; None if the node has none."""
        syncer = self._random.choice(self._syncers)
        batch = syncer.take(self._clock.monotonic_ns())
        if batch is not None:
            syncer.failed("lost", now_ns=self._clock.monotonic_ns())
        return batch

    async def leaves(self) -> None:
        """Sends the node's last report to every shard."""
        for syncer in self._syncers:
            syncer.leave(self._clock.monotonic_ns())
            for _ in range(LAST_WORDS_MAX):
                await self._exchanges(syncer)
                if syncer.left:
                    break
            assert syncer.left, "a node could not send its last report"

    async def _exchanges(self, syncer: Syncer) -> None:
        sent_ns = self._clock.monotonic_ns()
        batch = syncer.take(sent_ns)
        if batch is not None:
            answer = await self.hub.exchange(batch)
            if isinstance(self._clock, ManualClock) and self._random.random() < 0.3:
                self._clock.advance_ns(self._random.randrange(INTERVAL_NS // 10))
            syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self._clock.monotonic_ns())


class Truth:
    """The admissions of all nodes under one key, counted in one place as they happen."""

    def __init__(self, limit: Limit, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._by_epoch: defaultdict[int, int] = defaultdict(int)
        self._log: list[tuple[int, int]] = []
        self._fill = 0.0
        self._filled_ns = clock.monotonic_ns()

    def changes(self, cost: int, epoch: int) -> None:
        """Notes that `cost` was admitted in the window with the number `epoch`; a negative cost was given back."""
        self._drain()
        self._by_epoch[epoch] += cost
        self._log.append((self._clock.monotonic_ns(), cost))
        self._fill = max(0.0, self._fill + cost)

    def excess(self) -> float:
        """Returns the cost by which the limit is exceeded at this moment; negative if there is room."""
        epoch, passed_ns = divmod(self._clock.wall_ns(), self._limit.window_ns)
        if self._limit.bucket:
            self._drain()
            return self._fill - self._limit.capacity
        if self._limit.algorithm == SLIDING_LOG:
            since_ns = self._clock.monotonic_ns() - self._limit.window_ns
            self._log = [(at_ns, cost) for at_ns, cost in self._log if at_ns > since_ns]
            return sum(cost for _, cost in self._log) - self._limit.quota
        if self._limit.algorithm == FIXED_WINDOW:
            return max(self._by_epoch[epoch], self._by_epoch[epoch + 1]) - self._limit.quota
        left = 1 - passed_ns / self._limit.window_ns
        return self._by_epoch[epoch] + self._by_epoch[epoch - 1] * left - self._limit.quota

    def used(self) -> int:
        """Returns the cost admitted in the present window."""
        return self._by_epoch[self._clock.wall_ns() // self._limit.window_ns]

    def _drain(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._fill = max(0.0, self._fill - self._limit.quota * (now_ns - self._filled_ns) / self._limit.window_ns)
        self._filled_ns = now_ns


class FleetOfClaims:
    """The nodes of one fleet, the cost that they have truly admitted, and the messages that were lost."""

    def __init__(self, hubs: list[Hub], clock: Clock, *, limit: Limit, policy: Policy, random: Random) -> None:
        self._clock = clock
        self._limit = limit
        self._policy = policy
        self._random = random
        self._late: list[Batch] = []
        self._left = Totals(0, 0)
        self.lost = Totals(0, 0)
        """The charges of nodes that have crashed."""
        self.members_ever = 0
        self.truth = {key: Truth(limit, clock) for key in KEYS}
        self.members = [self._member(hub) for hub in hubs]

    async def does_something(self, *, crashes: bool) -> None:
        """Lets one random thing happen: requests, an exchange, a lost message, a replaced node, or a pause."""
        random = self._random
        member = random.choice(self.members)
        chance = random.random()
        if chance < 0.4:
            self.ask(member, random.choice(KEYS), random.choice([1, 1, 2, 5]), times=random.randrange(1, 40))
        elif chance < 0.7:
            await member.exchanges()
            for key, cost, epoch in member.goes_on():
                self.truth[key].changes(cost, epoch)
        elif chance < 0.8:
            self._turns_up_later(member.loses_a_request())
        elif chance < 0.9:
            self._turns_up_later(await member.loses_an_answer())
        elif chance < 0.94 and self._late:
            await member.hub.exchange(random.choice(self._late))
        elif chance < 0.96:
            await self.leaves(member)
        elif chance < 0.97 and crashes:
            self.lost = _with(self.lost, member)
            self._replace(member)
        elif isinstance(self._clock, ManualClock):
            parts = [0.001, 0.03, 0.3, 0.9999, 1.0, 2.1]
            self._clock.advance_ns(int(random.choice(parts) * min(self._limit.window_ns, LEASE_NS)))

    def ask(self, member: ClaimNode, key: str, cost: int, *, times: int) -> None:
        """Sends `times` requests to one node, and settles some of the admitted requests for less."""
        truth = self.truth[key]
        for _ in range(times):
            epoch = member.admits(key, cost)
            if epoch is not None:
                truth.changes(cost, epoch)
                if self._random.random() < 0.05:
                    member.gives_back(key, 1, epoch)
                    truth.changes(-1, epoch)
            elif member.asks:
                member.waits(key, cost)

    async def leaves(self, member: ClaimNode) -> None:
        """Lets one node leave in good order, and starts another one in its place."""
        await member.leaves()
        self._left = _with(self._left, member)
        self._replace(member)

    @property
    def capacity(self) -> int:
        """Returns the most cost that the limit admits at one moment."""
        return self._limit.capacity

    @property
    def totals(self) -> Totals:
        """Returns the charges and refunds of the nodes that are alive or have left in good order."""
        totals = self._left
        for member in self.members:
            totals = _with(totals, member)
        return totals

    def _turns_up_later(self, batch: Batch | None) -> None:
        if batch is not None:
            self._late = [*self._late[1 - LATE_MAX :], batch]

    def _replace(self, member: ClaimNode) -> None:
        self.members[self.members.index(member)] = self._member(member.hub)

    def _member(self, hub: Hub) -> ClaimNode:
        self.members_ever += 1
        name = f"member{self.members_ever}"
        random = Random(self._random.random())
        return ClaimNode(hub, self._clock, name=name, limit=self._limit, policy=self._policy, random=random)


def _with(totals: Totals, member: ClaimNode) -> Totals:
    return Totals(totals.charged + member.charged, totals.refunded + member.refunded)
