"""Several nodes with the real kernel and syncer, but without loops: a test decides which speaks, and what is lost."""

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
"""After so many exchanges a node that leaves must have said everything."""
LATE_MAX: Final = 12
"""How many lost messages may still turn up."""
ASKS_MAX: Final = 5
"""How many requests of a node wait for the hub's word at once."""


class ClaimNode:
    """One node: decides from its own allowances, and exchanges when a claim calls for it."""

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
        """Ask for so much; returns the window in which it was admitted, or None."""
        verdict = self._table.decide(key, cost, self._clock.monotonic_ns())
        self.charged += cost if verdict.allowed else 0
        return verdict.epoch if verdict.allowed else None

    @property
    def asks(self) -> bool:
        """Whether requests in doubt wait for the hub's word."""
        return self._table.asks

    @asks.setter
    def asks(self, asks: bool) -> None:
        self._table.asks = asks

    def waits(self, key: str, cost: int) -> None:
        """Makes a request wait for the hub's word, unless enough of them do."""
        if len(self._asked) < ASKS_MAX:
            cells: list[Cell] = []
            gate_of(self._table).queue_up(key, self._table.costs_of(cost), cells)
            self._asked.append((key, cost, cells))

    def goes_on(self) -> list[tuple[str, int, int]]:
        """Let the requests through that have waited, as far as they may go now, and have the others wait no longer.

        Returns the key, the cost and the window of each that was admitted.
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
        """Settle for less than was admitted in that window."""
        self._table.correct(key, epoch, -cost)
        self.refunded += cost

    def sees(self, key: str) -> int:
        """Returns the use by all, as this node believes."""
        return self._table.usage(key).total

    async def exchanges(self) -> None:
        """Say to every shard what there is to say, and hear the answers."""
        for syncer in self._syncers:
            await self._exchanges(syncer)

    async def exchanges_if_due(self) -> None:
        """Do what a loop would do at this moment."""
        for syncer in self._syncers:
            now_ns = self._clock.monotonic_ns()
            if syncer.due_ns(now_ns) <= now_ns:
                await self._exchanges(syncer)

    async def loses_an_answer(self) -> Batch | None:
        """The hub hears this node, but this node does not hear the hub."""
        batch = self.loses_a_request()
        if batch is not None:
            await self.hub.exchange(batch)
        return batch

    def loses_a_request(self) -> Batch | None:
        """Takes a message of this node that does not arrive, or not yet."""
        syncer = self._random.choice(self._syncers)
        batch = syncer.take(self._clock.monotonic_ns())
        if batch is not None:
            syncer.failed("lost", now_ns=self._clock.monotonic_ns())
        return batch

    async def leaves(self) -> None:
        """Say the last words to every shard."""
        for syncer in self._syncers:
            syncer.leave(self._clock.monotonic_ns())
            for _ in range(LAST_WORDS_MAX):
                await self._exchanges(syncer)
                if syncer.left:
                    break
            assert syncer.left, "a node could not say its last words"

    async def _exchanges(self, syncer: Syncer) -> None:
        sent_ns = self._clock.monotonic_ns()
        batch = syncer.take(sent_ns)
        if batch is not None:
            answer = await self.hub.exchange(batch)
            if isinstance(self._clock, ManualClock) and self._random.random() < 0.3:
                self._clock.advance_ns(self._random.randrange(INTERVAL_NS // 10))
            syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self._clock.monotonic_ns())


class Truth:
    """The admissions of all nodes under one key, counted at one place as they happen."""

    def __init__(self, limit: Limit, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._by_epoch: defaultdict[int, int] = defaultdict(int)
        self._log: list[tuple[int, int]] = []
        self._fill = 0.0
        self._filled_ns = clock.monotonic_ns()

    def changes(self, cost: int, epoch: int) -> None:
        """So much was admitted in that window, or given back if it is negative."""
        self._drain()
        self._by_epoch[epoch] += cost
        self._log.append((self._clock.monotonic_ns(), cost))
        self._fill = max(0.0, self._fill + cost)

    def excess(self) -> float:
        """By how much the limit is exceeded at this moment; negative when it is not."""
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
        """Returns the admissions in the window that is open."""
        return self._by_epoch[self._clock.wall_ns() // self._limit.window_ns]

    def _drain(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._fill = max(0.0, self._fill - self._limit.quota * (now_ns - self._filled_ns) / self._limit.window_ns)
        self._filled_ns = now_ns


class FleetOfClaims:
    """The nodes of one fleet, the truth about them, and the messages that were lost."""

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
        """Requests come, or a node exchanges, well or badly; or time passes; or a node leaves and another comes."""
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
        """So many requests come to one node; some settle for less."""
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
        """One node says its last words, and another one starts in its place."""
        await member.leaves()
        self._left = _with(self._left, member)
        self._replace(member)

    @property
    def capacity(self) -> int:
        """The most that may be admitted at once."""
        return self._limit.capacity

    @property
    def totals(self) -> Totals:
        """Returns the charges and refunds of the nodes that live or have left."""
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
