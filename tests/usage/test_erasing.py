"""Goal: usage of an identity that is erased is nowhere, comes back from no node, and all other usage stays exact.

Method: nodes on a clock of the test's, at a hub in memory and at a real Redis that is searched.
"""

from __future__ import annotations

import asyncio

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.hub.erasing import erasure_mark, names_of
from reconverge.hub.hashing import KeyHasher
from reconverge.hub.registry import HubSettings
from reconverge.hub.usage import Counts, UsageKey
from reconverge.usage import Meter, UsageReporter, period_at
from reconverge.usage.erasing import UsageErasing
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.metered import NOVEMBER, MeteredNode, clock_in_november, rows_of
from tests.support.searched import stored
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own
MONTH = period_at("month", NOVEMBER + 1)
ACME = UsageKey("acme", "api", "")
GLOBEX = UsageKey("globex", "api", "")


class MeteredFleet:
    """Nodes that report, and a hub."""

    def __init__(self, *, secret: str | None = None, url: str = "") -> None:
        self.clock: ManualClock = clock_in_november()
        self.hub: MemoryHub | RedisHub = (
            RedisHub(url, HubSettings("shop", 5.0), clock=self.clock) if url else MemoryHub(clock=self.clock, shards=3)
        )
        self._secret = secret

    def node(self, name: str) -> MeteredNode:
        """One more node."""
        orders = UsageErasing(self.hub, self.clock, namespace="shop", key_secret=self._secret)
        return MeteredNode(self.hub.usage, self.clock, name, orders=orders)

    async def order(self, identity: str = "acme") -> None:
        """Order an identity to be erased, as long after all before that no clock is in doubt."""
        self.clock.advance(10.0)
        hasher = None if self._secret is None else KeyHasher(self._secret, namespace="shop")
        await self.hub.order_erasure([erasure_mark(hasher.hashed(identity) if hasher else identity, "shop")])

    async def erase(self, identity: str = "acme") -> int:
        """Search the hub; returns how many rows and events were erased."""
        rows = 0
        for shard in range(self.hub.shards):
            rows += (await self.hub.erase(shard, identity, names_of(identity))).rows
        return rows

    async def used(self) -> dict[UsageKey, Counts]:
        return await rows_of(self.hub.usage, MONTH)


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "hashed"])
@pytest.mark.parametrize("on", ["memory", "redis"])
async def test_no_node_tells_of_an_identity_that_is_erased(
    secret: str | None, on: str, redis_server: RedisServer
) -> None:
    """Neither what it has told, nor what it had yet to tell; other rows are what they were, to the last request."""
    redis_server.command("FLUSHALL")

    world = MeteredFleet(secret=secret, url=redis_server.url if on == "redis" else "")
    nodes = [world.node(name) for name in ("one", "two")]
    for node in nodes:
        for identity in ("acme", "globex"):
            node.meter.add(identity, "api", 5)
        assert await node.driver.report()
        node.meter.add("acme", "api", 7)
    await world.order()
    rows = await world.erase()
    for node in nodes:
        node.meter.add("globex", "api", 1)
        assert await node.driver.report()
        assert not [key for key in node.driver.reports.totals(MONTH) if key.identity == "acme"]
    used = await world.used()
    await world.hub.close()

    assert (12, {GLOBEX: Counts(12, 4, 0)}) == (rows, used)
    assert b"acme" not in stored(redis_server.url)


@pytest.mark.parametrize("on", ["memory", "redis"])
async def test_what_was_told_while_the_hub_was_searched_is_taken_back(on: str, redis_server: RedisServer) -> None:
    """By the node that told it, and no more than that: what another one has counted anew stays."""
    redis_server.command("FLUSHALL")

    world = MeteredFleet(url=redis_server.url if on == "redis" else "")
    late, other = world.node("late"), world.node("other")
    late.meter.add("acme", "api", 5)
    late.driver._gather()  # its report is made, and under way
    batches = [late.driver.reports.batch(shard, speak=True) for shard in range(world.hub.shards)]
    await world.order()
    await world.erase()
    for batch in batches:
        assert batch is not None
        late.driver.reports.recorded(batch, await world.hub.usage.record(batch), world.clock.monotonic_ns())
    assert await other.driver.report()
    other.meter.add("acme", "api", 3)
    assert await other.driver.report()
    before = await world.used()
    assert await late.driver.report()
    after = await world.used()
    await world.hub.close()

    assert ({ACME: Counts(8, 2, 0)}, {ACME: Counts(3, 1, 0)}) == (before, after)


async def test_an_identity_that_comes_again_is_counted_from_zero() -> None:
    """On a node that had told of it, too."""
    world = MeteredFleet()
    node = world.node("one")
    node.meter.add("acme", "api", 5)
    assert await node.driver.report()
    await world.order()
    await world.erase()
    assert await node.driver.report()
    node.meter.add("acme", "api", 2)

    assert await node.driver.report()
    assert await node.driver.leave()
    assert {ACME: Counts(2, 1, 0)} == (await world.used())


async def test_a_node_that_starts_after_an_order_does_not_heed_it() -> None:
    """It has nothing from before; what it counts is new."""
    world = MeteredFleet()
    await world.order()
    world.clock.advance(10.0)
    node = world.node("new")
    node.meter.add("acme", "api", 5)

    assert await node.driver.report()
    assert {ACME: Counts(5, 1, 0)} == (await world.used())


def test_from_how_many_addresses_an_identity_comes_is_forgotten() -> None:
    """With its counts, those that no report has taken among them."""
    meter = Meter(clock_in_november())
    for identity in ("acme", "globex"):
        meter.add_request(identity, [("api", 1)], address="192.0.2.1")

    meter.erase(lambda identity: identity == "acme")

    assert [0, 1] == [meter.addresses.estimate(identity) for identity in ("acme", "globex")]
    assert [GLOBEX] == [taken.key for taken in meter.take()]


def test_usage_without_a_hub_is_forgotten_with_the_agent() -> None:
    """When the reporter was made known to it."""
    meter, agent = Meter(), Agent("memory://")
    reporter = UsageReporter(meter, "memory://", interval=0.1)
    agent.on_forget(reporter.forget)
    meter.add("acme", "api", 5)
    meter.add("globex", "api", 5)
    asyncio.run(agent.forget("acme"))
    month = period_at("month", SystemClock.wall_ns() / SECOND_NS)

    with reporter:
        eventually(lambda: reporter.totals(month), "the first report")

    assert [GLOBEX] == list(reporter.totals(month))
