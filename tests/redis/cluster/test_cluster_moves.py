"""Goal: shards follow their slots, and nothing is lost or doubled on the way.

Method: one hub and one slot of a real cluster, which is moved in steps as `redis-cli --cluster reshard` does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Status, Totals
from reconverge.testing.claims.scenes.scene import START_S, Scene, limit
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.cluster.topology import slot_of
from tests.support.redis_cluster import RedisCluster, SlotMove
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # several servers are started, and found

SHARDS = 8
SETTINGS = HubSettings("shop", 30.0)


class Removal:
    """A hub that has exchanged with all shards, and the slot of one of them, which is to move."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.clock = ManualClock(START_S)
        self.hub = ClusterHub(cluster.url, SETTINGS, shards=SHARDS, clock=self.clock)
        self.scene = Scene(self.hub, self.clock, join=lambda known: known)
        self.source = cluster.owner_of("{0}")
        self.target = next(server for server in cluster.servers if server is not self.source)
        self.move = SlotMove(slot_of(0), self.source, self.target)
        self.voices = [self.scene.voice(shard=shard) for shard in range(SHARDS)]
        self.ada = self.voices[0]
        self._counts = [0] * SHARDS

    async def all_report(self) -> None:
        """One more is charged in each shard, and told."""
        for shard in range(SHARDS):
            await self.reports(shard)

    async def reports(self, shard: int = 0) -> None:
        """One more is charged in that shard, and told."""
        self._counts[shard] += 1
        voice = self.voices[shard]
        said = voice.cell(current=self._counts[shard], need=1, of=limit(charged=self._counts[shard]))
        await voice.exchanges(voice.batch(said))

    async def known(self) -> Totals:
        return (await self.hub.totals())["limit"]


@pytest.fixture
def cluster(shared_cluster: RedisCluster) -> Iterator[RedisCluster]:
    """The cluster that tests share, empty, whose slots are put back afterwards."""
    shared_cluster.flush()
    yield shared_cluster
    shared_cluster.settle()
    for server in shared_cluster.servers:
        server.command("CLUSTER", "SETSLOT", str(slot_of(0)), "STABLE")
    home = shared_cluster.owner_of("{0}")
    for server in shared_cluster.servers:
        # As an import, which has the others believe the new owner rather than what they still hear of the old one.
        if server is not home and not server.command("EXISTS", "{0}:x").startswith("-MOVED"):
            SlotMove(slot_of(0), server, home).carry_out()
    others = [server for server in shared_cluster.servers if server is not home]
    told = f"-MOVED {slot_of(0)} 127.0.0.1:{home.port}"
    eventually(lambda: all(server.command("EXISTS", "{0}:x") == told for server in others), "all agree")
    shared_cluster.settle()


@pytest.fixture
async def removal(cluster: RedisCluster) -> AsyncIterator[Removal]:
    """A slot of that cluster, which is to move."""
    removal = Removal(cluster)
    yield removal
    await removal.hub.close()


async def test_a_slot_that_has_moved_is_followed_at_once(removal: Removal) -> None:
    """Within the exchange that finds out: none fails, and nothing is told twice."""
    await removal.all_report()
    removal.move.carry_out()
    await removal.all_report()
    await removal.all_report()

    assert Totals(3 * SHARDS, 0) == await removal.known()


async def test_a_slot_whose_keys_have_all_gone_ahead_is_asked_where_they_are(removal: Removal) -> None:
    """Between the last key and the announcement, the old owner sends each question on."""
    await removal.all_report()
    removal.move.begin()
    while removal.move.move_keys():
        pass
    await removal.all_report()
    removal.move.finish()

    assert Totals(2 * SHARDS, 0) == await removal.known()


async def test_a_slot_that_is_half_moved_is_unavailable_and_the_others_are_not(removal: Removal) -> None:
    """Of the batch nothing is merged, so that it can be told again when the move is over."""
    await removal.all_report()
    removal.move.begin()
    removal.move.move_keys(1)
    with pytest.raises(HubUnavailable) as raised:
        await removal.reports()
    for shard in range(1, SHARDS):
        await removal.reports(shard)
    while removal.move.move_keys():
        pass
    removal.move.finish()

    assert ("moving", False) == (raised.value.kind, raised.value.applied)
    assert Totals(2 * SHARDS - 1, 0) == await removal.known()

    await removal.reports()

    assert Totals(2 * SHARDS + 1, 0) == await removal.known()


async def test_keys_that_do_not_exist_yet_wait_for_the_end_of_the_move(removal: Removal) -> None:
    """Neither server can know whether the other has them; what exists is exchanged about where all of it is."""
    await removal.all_report()
    removal.move.begin()
    await removal.reports()
    with pytest.raises(HubUnavailable, match=r"^moving: "):
        await removal.ada.reports("eve")
    removal.move.carry_out()
    await removal.ada.reports("eve")

    assert Totals(SHARDS + 1, 0) == await removal.known()


async def test_what_is_asked_at_one_moment_travels_in_one_write(removal: Removal, cluster: RedisCluster) -> None:
    """To each owner: a node with many shards costs its servers about what a node with one does."""
    await removal.all_report()
    asked = [(_reads(server), _reads(server)) for server in cluster.servers]
    await asyncio.gather(*(removal.reports(shard) for shard in range(SHARDS)))
    reads = [_reads(server) - last for server, (_, last) in zip(cluster.servers, asked, strict=True)]

    assert [1, 1, 1] == [number - (last - first) for number, (first, last) in zip(reads, asked, strict=True)], (
        "beside those of asking for that number"
    )


async def test_one_host_in_the_url_is_enough_and_others_help_while_it_is_down(cluster: RedisCluster) -> None:
    """A hub learns where the slots are from the first server that answers, and does not wait for one that hangs."""
    hanging = cluster.servers[0]
    places = ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)
    others = [shard for shard in range(SHARDS) if cluster.owner_of(f"{{{shard}}}") is not hanging]

    hanging.pause()
    try:
        for again in range(12):  # each hub chooses at random which server it asks first
            hub = ClusterHub(f"redis+cluster://{places}", SETTINGS, shards=SHARDS)
            scene = Scene(hub, SystemClock(), join=lambda known: known)
            try:
                voices = [scene.voice(hub=hub, shard=shard) for shard in others]
                heard = await asyncio.gather(*(voice.says_hello() for voice in voices))
            finally:
                await hub.close()

            # From the second time on the servers know the names, with the same numbers.
            assert {answer.status for answer in heard} == {Status.STALE if again else Status.MERGED}
    finally:
        hanging.resume()


def _reads(server: RedisServer) -> int:
    """How often it has read from any connection."""
    return int(server.command("INFO", "stats").partition("total_reads_processed:")[2].partition("\r\n")[0])
