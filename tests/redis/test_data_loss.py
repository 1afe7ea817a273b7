"""Goal: when Redis forgets everything, the nodes bring it back in time, and a strict limit holds meanwhile.

Method: real nodes and a real Redis in virtual time, so that "in time" and "meanwhile" can be counted.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, Policy, choose
from reconverge.testing.claims.scenes.fleet import LEASE_NS, LIMIT_NAME, FleetOfClaims
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer

START_S = 1_750_000_000.0
QUOTA = 100
WINDOW_S = 4.0
STEP_NS = SECOND_NS // 50
LEARNING_S = LEASE_NS / SECOND_NS + 2 * WINDOW_S
RESTORED_S = 2 * 0.1 + 1.0
"""Two intervals, and the longest that a node is silent or backs off: the larger of an interval and a second."""
BALANCED = choose("balanced", cold_allowance=0.0)


class NodesOnRedis:
    """Three nodes on one Redis."""

    def __init__(self, server: RedisServer, *, algorithm: str = FIXED_WINDOW, policy: Policy = STRICT, seed: int = 0):
        self._server = server
        self.clock = ManualClock(START_S)
        self.hubs: list[Hub] = [RedisHub(server.url, HubSettings("loss", 5.0), clock=self.clock) for _ in range(3)]
        limit = Limit(QUOTA, WINDOW_S, algorithm=algorithm)
        self.fleet = FleetOfClaims(self.hubs, self.clock, limit=limit, policy=policy, random=Random(seed))
        self.policy = policy

    async def lives_for(self, seconds: float, *, asking: int = 0) -> int:
        """Let time pass, with so many requests at each node in each step. Returns the cost admitted meanwhile."""
        before = self.fleet.totals.net
        end_ns = self.clock.monotonic_ns() + round(seconds * SECOND_NS)
        bound = self.policy.bound(QUOTA, nodes=3)
        while self.clock.monotonic_ns() < end_ns:
            for member in self.fleet.members:
                self.fleet.ask(member, "ada", 1, times=asking)
                await member.exchanges_if_due()

                assert self.fleet.truth["ada"].excess() <= bound + 1e-6
            self.clock.advance_ns(STEP_NS)
        return self.fleet.totals.net - before

    async def knows_all(self) -> bool:
        """Whether the hub knows exactly what was admitted."""
        return self.fleet.totals == (await self.hubs[0].totals()).get(LIMIT_NAME)

    def forgets(self) -> None:
        """Redis loses its data."""
        self._server.command("FLUSHALL")

    async def ends(self) -> None:
        """Close all connections."""
        for hub in self.hubs:
            await hub.close()


@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=lambda policy: policy.name)
async def test_all_is_known_again_in_time(redis_server: RedisServer, policy: Policy) -> None:
    """Within two intervals and the back-off's cap, though nothing is asked any more that would have nodes speak."""
    world = NodesOnRedis(redis_server, policy=policy)
    await world.lives_for(3.0, asking=1)
    await world.lives_for(2.0)
    assert await world.knows_all()

    world.forgets()
    assert not await world.knows_all()
    await world.lives_for(RESTORED_S)

    assert await world.knows_all()
    await world.ends()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET])
async def test_strict_holds_when_data_are_lost_in_the_middle_of_a_window(
    redis_server: RedisServer, algorithm: str, seed: int
) -> None:
    """The limit is never exceeded, before, during or after; and when all is learnt, it is used up again."""
    world = NodesOnRedis(redis_server, algorithm=algorithm, seed=seed)
    before = await world.lives_for(2 * WINDOW_S + 0.3 * (1 + seed), asking=2)
    for _ in range(2):
        world.forgets()
        await world.lives_for(0.1 + 0.7 * seed, asking=2)
    await world.lives_for(LEARNING_S, asking=2)
    after = await world.lives_for(2 * WINDOW_S, asking=2)

    assert before >= QUOTA
    assert after >= 1.8 * QUOTA
    await world.ends()


@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW])
async def test_balanced_grants_again_soon_after_data_were_lost(redis_server: RedisServer, algorithm: str) -> None:
    """It stays within its bound, and does not wait for a lease to end."""
    world = NodesOnRedis(redis_server, algorithm=algorithm, policy=BALANCED)
    await world.lives_for(2 * WINDOW_S, asking=2)
    world.forgets()
    await world.lives_for(WINDOW_S, asking=2)

    assert await world.lives_for(2 * WINDOW_S, asking=2) >= 1.8 * QUOTA
    await world.ends()
