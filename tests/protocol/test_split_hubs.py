"""Goal: nodes that go to and fro between two hubs stay within the bound that is stated for that.

Method: real nodes and hubs in memory, under a clock that moves when told to; a seeded schedule of cuts between nodes
and hubs, of requests, exchanges and pauses; an observer who sees all that is admitted.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.exchange.syncer import Syncer
from reconverge.hub import Hub
from reconverge.hub.fallback import TwoHubs
from reconverge.hub.fallback.selector import PROBE_MAX_NS
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, Policy, choose
from reconverge.testing.claims.scenes.fleet import INTERVAL_NS, KEYS, LIMIT_NAME, ClaimNode, FleetOfClaims
from reconverge_sync.memory import MemoryHub

MEMBERS = 4
STEPS = 250
SEEDS = range(12)
COST_MAX = 5
BALANCED = choose("balanced", cold_allowance=0.0)
ALGORITHMS = (FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, TOKEN_BUCKET)
ROUNDING = 1e-6


class Wire:
    """The way from one node to one hub, which may be cut: before the request has arrived, or before the answer has."""

    def __init__(self, hub: MemoryHub, random: Random) -> None:
        self.hub = hub
        self.cut = False
        self._random = random

    @property
    def shards(self) -> int:
        return self.hub.shards

    async def exchange(self, batch: Batch) -> Answer:
        if self.cut:
            if self._random.random() < 0.1:
                await self.hub.exchange(batch)
            raise HubUnavailable("cut", "nothing gets through")
        return await self.hub.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        return await self.hub.totals()

    async def close(self) -> None:
        """Does nothing."""


class PatientNode(ClaimNode):
    """A node that outlives failures."""

    async def _exchanges(self, syncer: Syncer) -> None:
        sent_ns = self._clock.monotonic_ns()
        batch = syncer.take(sent_ns)
        if batch is None:
            return
        try:
            answer = await self.hub.exchange(batch)
        except HubUnavailable as error:
            syncer.failed(error.kind, now_ns=self._clock.monotonic_ns())
        else:
            syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self._clock.monotonic_ns())
        await asyncio.sleep(0)  # whoever asks whether the primary is back is answered


class Split(FleetOfClaims):
    """A fleet with two hubs."""

    def __init__(self, clock: ManualClock, *, limit: Limit, policy: Policy, random: Random) -> None:
        self.clock = clock
        self.hubs = MemoryHub(clock=clock), MemoryHub(clock=clock)
        self.wires: list[tuple[Wire, Wire]] = []
        hubs: list[Hub] = []
        for _ in range(MEMBERS):
            first, second = (Wire(hub, random) for hub in self.hubs)
            self.wires.append((first, second))
            hubs.append(TwoHubs(first, second, clock=clock, timeout_s=1.0, name="second", random=random))
        super().__init__(hubs, clock, limit=limit, policy=policy, random=random)

    def _member(self, hub: Hub) -> ClaimNode:
        self.members_ever += 1
        name, random = f"member{self.members_ever}", Random(self._random.random())
        return PatientNode(hub, self._clock, name=name, limit=self._limit, policy=self._policy, random=random)

    @property
    def with_primary(self) -> list[bool]:
        """Which nodes are with their primary."""
        return [member.hub.with_primary for member in self.members if isinstance(member.hub, TwoHubs)]

    async def steps(self) -> None:
        """Something happens."""
        random = self._random
        chance = random.random()
        if chance < 0.35:
            self.ask(random.choice(self.members), random.choice(KEYS), random.choice([1, 1, 2, 5]), times=20)
        elif chance < 0.75:
            for member in random.sample(self.members, MEMBERS):
                await member.exchanges_if_due()
        elif chance < 0.85:
            cut, which = random.random() < 0.5, random.randrange(2)
            for wires in random.sample(self.wires, 1 + random.randrange(MEMBERS)):
                wires[which].cut = cut
        else:
            self.clock.advance_ns(int(random.choice([0.3, 1, 3, 10, 60, 150]) * INTERVAL_NS))

    async def heal(self) -> None:
        """Let everything through until all nodes are with the primary and have said all."""
        for wires in self.wires:
            for wire in wires:
                wire.cut = False
        until_ns = self.clock.monotonic_ns() + 4 * PROBE_MAX_NS
        while self.clock.monotonic_ns() < until_ns:
            self.clock.advance_ns(3 * INTERVAL_NS)
            for member in self.members:
                await member.exchanges_if_due()


def live(seed: int, algorithm: str, policy: Policy, *, times: int) -> int:
    """Let a fleet live; what is admitted stays within `times` the bound of one hub. Returns how much was admitted."""

    async def run() -> int:
        clock = ManualClock(1_750_000_000.0)
        limit = Limit(100, 10.0, algorithm=algorithm, burst=40 if algorithm == TOKEN_BUCKET else None)
        fleet = Split(clock, limit=limit, policy=policy, random=Random(seed))
        for _ in range(STEPS):
            await fleet.steps()
            bound = policy.bound(fleet.capacity, MEMBERS, COST_MAX)
            for key, truth in fleet.truth.items():
                assert truth.excess() <= (times - 1) * fleet.capacity + times * bound + ROUNDING, f"{key}: seed {seed}"
        await fleet.heal()
        assert [True] * MEMBERS == fleet.with_primary
        known = (await fleet.hubs[0].totals()).get(LIMIT_NAME, Totals(0, 0))
        assert fleet.totals == known
        return known.charged

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=lambda policy: policy.name)
def test_split_nodes_stay_within_twice_the_bound(algorithm: str, policy: Policy) -> None:
    """Whichever nodes are cut off from whichever hub, for however long; in the end the primary knows all, once."""
    admitted = [live(seed, algorithm, policy, times=2) for seed in SEEDS]

    # Strict nodes that never meet a hub admit nothing.
    assert admitted.count(0) <= len(admitted) // 10
