"""Goal: what happens to one shard of a cluster is that shard's affair, and nothing is lost or doubled by it.

Method: agents with real loops on a real cluster of which one server hangs, is killed, comes back empty, is replaced by
its replica, or gives a slot in use to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Totals
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.cluster.topology import slot_of
from tests.support.redis_cluster import QUICK_MS, RedisCluster, SlotMove
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # several servers are started, and found

NODES = 2
KEYS = [f"key{number}" for number in range(40)]
"""In as good as all shards."""
ROUNDS = 5
PATIENCE_S = 60.0
SHARDS = 8


class AgentsOnCluster:
    """Agents that share a limit, and what they have admitted."""

    def __init__(self, cluster: RedisCluster, *, timeout_s: float = PATIENCE_S) -> None:
        self._cluster = cluster
        places = ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)
        self._url = f"redis+cluster://{places}?shards={SHARDS}"
        self.agents = [
            Agent(
                self._url,
                namespace="shop",
                sync_interval=0.02,
                max_silence=0,
                exchange_timeout=timeout_s,
                lease_ttl=600.0,
            )
            for _ in range(NODES)
        ]
        self._limiters = [agent.limit("login", "1000000/day") for agent in self.agents]
        self.admitted = 0

    def works(self) -> None:
        """One request for each key at each node."""
        for limiter in self._limiters:
            self.admitted += sum(limiter.allow(key) for key in KEYS)

    def has_worked(self) -> bool:
        """The same, while waiting for something that comes of it."""
        self.works()
        return True

    def exchanges(self, shard: int) -> int:
        """Of all nodes with that shard."""
        return sum(known[shard] for known in self._exchanges())

    def shards_of(self, owner: RedisServer) -> list[int]:
        """Those that live there in the beginning."""
        return [shard for shard in range(SHARDS) if self._cluster.owner_of(f"{{{shard}}}") is owner]

    def go_on_without(self, shards: list[int]) -> None:
        """Wait until every other shard of every node has exchanged several times more."""
        before = self._exchanges()
        others = [shard for shard in range(SHARDS) if shard not in shards]

        def went_on() -> bool:
            self.works()
            now = self._exchanges()
            return all(now[node][shard] >= before[node][shard] + ROUNDS for node in range(NODES) for shard in others)

        eventually(went_on, "the other shards go on", PATIENCE_S)
        nodes = list(zip(before, self._exchanges(), strict=True))
        passed = [after[shard] - known[shard] for known, after in nodes for shard in shards]
        assert max(passed) <= 1, "the shards that were to stand still have exchanged"  # one answer was under way

    def is_ready(self) -> bool:
        """Every node has been answered by every shard."""
        return all(agent.ready for agent in self.agents)

    def failures(self, shard: int) -> int:
        """Of all nodes' exchanges with that shard."""
        return sum(sum(agent.stats().exchanges[shard].failures.values()) for agent in self.agents)

    def all_is_known(self) -> bool:
        """Whether the hub knows exactly what was admitted."""
        return Totals(self.admitted, 0) == self.known()

    def known(self) -> Totals | None:
        """Returns the hub's totals; None while not all of them are there."""

        async def ask() -> Totals | None:
            hub = ClusterHub(self._url, HubSettings("shop", PATIENCE_S))
            try:
                return (await hub.totals()).get("login", Totals(0, 0))
            except HubUnavailable:
                return None
            finally:
                await hub.close()

        return asyncio.run(ask())

    def _exchanges(self) -> list[list[int]]:
        return [[each.exchanges for each in agent.stats().exchanges] for agent in self.agents]


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """A cluster of this test's own."""
    with RedisCluster(failed_after_ms=QUICK_MS) as own:
        yield own


@pytest.fixture
def fleet(cluster: RedisCluster) -> Iterator[AgentsOnCluster]:
    """Agents that have exchanged about all keys."""
    with ExitStack() as stack:
        yield _started(AgentsOnCluster(cluster), stack)


def test_a_server_that_hangs_holds_up_no_other(cluster: RedisCluster, fleet: AgentsOnCluster) -> None:
    """Its shards wait for it, for as long as an exchange may take; meanwhile the others exchange as ever."""
    hanging = cluster.servers[1]

    hanging.pause()
    try:
        fleet.go_on_without(fleet.shards_of(hanging))
    finally:
        hanging.resume()

    eventually(fleet.all_is_known, "all is known again", PATIENCE_S)


def test_a_server_that_is_killed_and_comes_back_empty(cluster: RedisCluster, fleet: AgentsOnCluster) -> None:
    """The other shards go on without it, and its own are rebuilt from what the nodes say."""
    dead = cluster.servers[1]

    dead.kill()
    fleet.go_on_without(fleet.shards_of(dead))
    eventually(lambda: all(fleet.failures(shard) for shard in fleet.shards_of(dead)), "its shards notice")
    dead.start()

    eventually(fleet.all_is_known, "all is known again", PATIENCE_S)
    assert {1} == {agent.stats().exchanges[shard].rebirths for agent in fleet.agents for shard in fleet.shards_of(dead)}


def test_a_slot_that_moves_under_load_takes_nothing_with_it(cluster: RedisCluster, fleet: AgentsOnCluster) -> None:
    """Nothing is lost, nothing doubled, and while it is half moved all other shards go on."""
    source, target = cluster.owner_of("{3}"), cluster.servers[0]
    if source is target:
        target = cluster.servers[1]
    move = SlotMove(slot_of(3), source, target)

    move.begin()
    move.move_keys(2)
    failures = fleet.failures(3)
    eventually(lambda: fleet.has_worked() and fleet.failures(3) > failures, "the shard notices")
    fleet.go_on_without([3])
    while move.move_keys():
        fleet.works()
    move.finish()

    before = fleet.exchanges(3)
    eventually(lambda: fleet.has_worked() and fleet.exchanges(3) > before, "the shard goes on")
    eventually(fleet.all_is_known, "all is known", PATIENCE_S)
    assert 0 == sum(each.rebirths for agent in fleet.agents for each in agent.stats().exchanges)


def test_a_replica_takes_over_from_a_server_that_is_killed() -> None:
    """The nodes find it by themselves, and tell it whatever it had not heard from its master."""
    with RedisCluster(replicas=1, failed_after_ms=QUICK_MS) as cluster, ExitStack() as stack:
        fleet = _started(AgentsOnCluster(cluster), stack)
        dead = cluster.servers[1]
        replica = cluster.servers[1 + cluster.masters]
        replica.pause()
        fleet.works()
        eventually(fleet.all_is_known, "all is known", PATIENCE_S)

        dead.kill()
        replica.resume()
        fleet.go_on_without(fleet.shards_of(dead))

        eventually(
            lambda: "role:master" in replica.command("INFO", "replication"), "the replica takes over", PATIENCE_S
        )
        fleet.works()
        eventually(fleet.all_is_known, "all is known again", PATIENCE_S)


def _started(fleet: AgentsOnCluster, stack: ExitStack) -> AgentsOnCluster:
    for agent in fleet.agents:
        stack.enter_context(agent)
    eventually(fleet.is_ready, "all shards answer", PATIENCE_S)
    fleet.works()
    eventually(fleet.all_is_known, "all is known", PATIENCE_S)
    return fleet
