"""Goal: every hub that keeps contracts keeps its promises about them.

Method: the claims of `ContractStoreClaims` at each of these hubs, then what is particular to some of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import pytest
import redis

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub import ContractStore
from reconverge.hub.fallback.two_hubs import TwoHubs, two_hubs
from reconverge.hub.registry import HubSettings
from reconverge.testing import ContractStoreClaims
from reconverge.testing.contract_store_claims import ContractHub
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.embedded.hub import EmbeddedHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.contracts import missing_in, page_in, was_swapped
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.brokers import Mosquitto
from tests.support.fixtures.servers import shop_url
from tests.support.hubs.fleet_on_mqtt import ImpatientHub, MqttFleet
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisService
from tests.support.servers import RedisServer, free_port

SETTINGS = HubSettings("shop", 5.0)
OTHERS = HubSettings("other", 5.0)
MAX = 1000
KEY = "shop:{0}:contracts"
DIGEST = "00" * 32


class TestContractsInMemory(ContractStoreClaims):
    """Without any connection."""

    def make_store(self) -> ContractHub:
        """A hub that no node has used."""
        return MemoryHub()

    def make_store_of_a_stranger(self, hub: ContractHub) -> ContractHub:
        """Another one: they have nothing to share."""
        return MemoryHub()


class _ByUrl(ContractStoreClaims):
    """At a server that a URL names; each process has an object of its own."""

    url: str
    opened: ClassVar[type[RedisHub | ClusterHub | SentinelHub | EmbeddedHub]]

    def make_store(self) -> ContractHub:
        """A hub of the namespace `shop`."""
        return self.opened(self.url, SETTINGS)

    def join_store(self, hub: ContractHub) -> ContractHub:
        """Another one."""
        return self.make_store()

    def make_store_of_a_stranger(self, hub: ContractHub) -> ContractHub:
        """One of another namespace."""
        return self.opened(self.url, OTHERS)


class TestContractsOnRedis(_ByUrl):
    """Through an object for each process."""

    opened = RedisHub

    @pytest.fixture(autouse=True)
    def at(self, redis_server: RedisServer) -> None:
        """At an empty server."""
        self.url = redis_server.url


@pytest.mark.slow
class TestOnACluster(_ByUrl):
    """Pages are spread over the servers of a cluster."""

    opened = ClusterHub

    @pytest.fixture(autouse=True)
    def at(self, shared_cluster: RedisCluster) -> None:
        """At an empty one."""
        shared_cluster.flush()
        self.url = f"{shared_cluster.url}?shards=8"


@pytest.fixture(scope="module")
def service() -> Iterator[RedisService]:
    """A master with Sentinels."""
    with RedisService() as service:
        yield service


@pytest.mark.slow
class TestWithSentinels(_ByUrl):
    """At the master that Sentinels name."""

    opened = SentinelHub

    @pytest.fixture(autouse=True)
    def at(self, service: RedisService) -> None:
        """At an empty one."""
        service.master.command("FLUSHALL")
        self.url = service.url


class TestContractsEmbedded(_ByUrl):
    """In a server of its own, that is started for it."""

    opened = EmbeddedHub

    @pytest.fixture(autouse=True)
    def at(self) -> None:
        """Sets the URL of a server that no other test uses."""
        self.url = f"embedded://contracts-{free_port()}"


class _AtABroker(ContractStoreClaims):
    """Retained by a broker; the member that is elected swaps the index."""

    query: ClassVar[str]
    patience_s = 30.0

    @pytest.fixture(autouse=True)
    def at(self, mosquitto: Mosquitto) -> None:
        """With a namespace of its own."""
        self.url = mosquitto.url + self.query

    def make_store(self) -> ContractHub:
        """The first member of a fleet."""
        return MqttFleet(self.url).join()

    def join_store(self, hub: ContractHub) -> ContractHub:
        """One more member."""
        assert isinstance(hub, ImpatientHub)
        return hub.fleet.join()

    def make_store_of_a_stranger(self, hub: ContractHub) -> ContractHub:
        """A member of another fleet."""
        return self.make_store()


class TestAtABroker(_AtABroker):
    """By MQTT 3.1.1."""

    query = ""


@pytest.mark.slow
class TestAtANewerBroker(_AtABroker):
    """By MQTT 5."""

    query = "?protocol=5"


class TestWithAFallback(ContractStoreClaims):
    """Contracts are kept at the primary alone."""

    def make_store(self) -> ContractHub:
        """Two hubs in memory."""
        hub: ContractHub = _with_fallback(MemoryHub())
        return hub

    def make_store_of_a_stranger(self, hub: ContractHub) -> ContractHub:
        """Two others."""
        return self.make_store()


def _with_fallback(primary: MemoryHub) -> Any:
    clock = SystemClock()
    return two_hubs(primary, MemoryHub(), clock=clock, timeout_s=1.0, name="fallback", random=Random(1))


class Unconditional(MemoryHub):
    """Replaces an index whatever its writer has read."""

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Always done."""
        read = await super().read_index(bytes_max=bytes_max)
        return await super().swap_index(payload, over=read, bytes_max=bytes_max, keep_s=keep_s)


class CutPages(MemoryHub):
    """Makes whatever is too long look as if it were not."""

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        page = await super().get_page(digest, bytes_max=bytes_max)
        return None if page is None else page[:bytes_max]


class KnowsAllPages(MemoryHub):
    """Says of all pages that they are there."""

    async def keep_pages(self, digests: Any, *, keep_s: float) -> list[str]:
        """None is missing."""
        await super().keep_pages(digests, keep_s=keep_s)
        return []


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        (Unconditional, "test_an_index_is_swapped_for_what_was_read_and_for_nothing_else"),
        (Unconditional, "test_of_writers_at_once_one_is_in_time"),
        (CutPages, "test_something_too_long_is_seen_to_be_that"),
        (KnowsAllPages, "test_before_anything_is_put_nothing_is_there"),
        (KnowsAllPages, "test_pages_that_are_not_there_are_named"),
    ],
)
def test_a_store_that_breaks_a_promise_fails_the_contract(wrong: type[MemoryHub], claim: str) -> None:
    """Each of these faults is found by the claim that it is about."""

    class Claims(ContractStoreClaims):
        def make_store(self) -> ContractHub:
            return wrong()

    with pytest.raises(AssertionError):
        getattr(Claims(), claim)()


def test_the_hubs_of_this_project_say_what_they_are() -> None:
    """Also behind a fallback; a broker keeps no contracts."""
    hubs: list[Any] = [
        MemoryHub(),
        RedisHub("redis://localhost/0", SETTINGS),
        ClusterHub("redis+cluster://localhost", SETTINGS),
        SentinelHub("redis+sentinel://localhost/mymaster", SETTINGS),
        _with_fallback(MemoryHub()),
    ]
    bare = TwoHubs(hubs[0], hubs[0], clock=SystemClock(), timeout_s=1, name="", random=Random(1))

    assert [True] * 5 == [isinstance(hub, ContractStore) for hub in hubs]
    assert not isinstance(bare, ContractStore)
    assert not isinstance(
        TwoHubs(hubs[0], hubs[0], clock=SystemClock(), timeout_s=1, name="", random=Random()), ContractStore
    )


async def test_in_memory_they_are_kept_for_their_time() -> None:
    """Index and page, and not a moment longer; `keep_pages` moves the end in both directions."""
    clock = ManualClock(start=0)
    hub = MemoryHub(clock=clock)

    async def there() -> list[bool]:
        pages = [await hub.get_page(digest, bytes_max=MAX) for digest in ("a", "b", "c")]
        return [await hub.read_index(bytes_max=MAX) is not None, *(page is not None for page in pages)]

    first, second = [True, True, True, True], [True, True, True, False]
    third, fourth = [False, False, True, False], [False, False, False, False]
    await hub.swap_index(b"i", over=None, bytes_max=MAX, keep_s=60.0)
    for digest in ("a", "b", "c"):
        await hub.put_page(digest, b"p", keep_s=60.0)
    await hub.keep_pages(["b"], keep_s=120.0)
    await hub.keep_pages(["c"], keep_s=30.0)
    seen = []
    for seconds in (29.999, 0.001, 29.999, 0.001, 59.999, 0.001):
        clock.advance(seconds)
        seen.append(await there())

    assert [first, second, second, third, third, fourth] == seen


async def test_a_redis_keeps_them_for_their_time(redis_server: RedisServer) -> None:
    """Each key ends by itself; and what is put again is kept from then on."""
    hub = RedisHub(redis_server.url, SETTINGS)
    await hub.swap_index(b"i", over=None, bytes_max=MAX, keep_s=100.0)
    await hub.put_page(DIGEST, b"p", keep_s=200.0)
    await hub.put_page("11" * 32, b"q", keep_s=200.0)
    await hub.keep_pages(["11" * 32], keep_s=300.0)
    await hub.close()
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys: Any = [KEY, f"shop:{{0}}:page:{DIGEST}", f"shop:{{0}}:page:{'11' * 32}"]
        left_s: list[Any] = [admin.pttl(key) for key in keys]

    assert [100, 200, 300] == [-(-each // 1000) for each in left_s]


async def test_reading_an_index_that_is_the_same_fetches_nothing(redis_server: RedisServer) -> None:
    """However long it is: only a mark travels until it is swapped."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.swap_index(b"x" * 60_000, over=None, bytes_max=MAX * 100, keep_s=60.0)
        await hub.read_index(bytes_max=MAX * 100)
        before: Any = admin.info("stats")
        for _ in range(10):
            assert b"x" * 60_000 == await hub.read_index(bytes_max=MAX * 100)
        after: Any = admin.info("stats")
        await hub.close()
        sent: int = after["total_net_output_bytes"] - before["total_net_output_bytes"]
        assert sent < 60_000


async def test_contracts_are_out_of_sight_of_nodes_that_do_not_know_them(redis_server: RedisServer) -> None:
    """A node of the version before reads settings where it did, and finds what it understands, or nothing."""
    hub = RedisHub(redis_server.url, SETTINGS)
    read = []
    await hub.swap_index(b"contracts", over=None, bytes_max=MAX, keep_s=60.0)
    await hub.put_page(DIGEST, b"page", keep_s=60.0)
    read.append(await hub.read(bytes_max=MAX))
    await hub.post(b"settings", keep_s=60.0)
    read += [await hub.read(bytes_max=MAX), await hub.read_index(bytes_max=MAX)]
    await hub.close()

    assert [None, b"settings", b"contracts"] == read


async def test_a_user_with_few_rights_can_keep_contracts(acl_redis: RedisServer) -> None:
    """No further right is needed than for exchanges."""
    hub = RedisHub(shop_url(acl_redis), SETTINGS)
    await hub.put_page(DIGEST, b"page", keep_s=60.0)
    missing = await hub.keep_pages([DIGEST, "11" * 32], keep_s=60.0)
    await hub.swap_index(b"index", over=None, bytes_max=MAX, keep_s=60.0)
    read = await hub.read_index(bytes_max=MAX), await hub.get_page(DIGEST, bytes_max=MAX), missing
    await hub.close()

    assert (b"index", b"page", ["11" * 32]) == read


async def test_pages_are_spread_over_the_shards(redis_server: RedisServer) -> None:
    """By their digest, so that a cluster has a part of them on each server."""
    hub = RedisHub(redis_server.url, SETTINGS, shards=4)
    for number in range(8):
        await hub.put_page(f"{number:08x}{'0' * 56}", b"p", keep_s=60.0)
    await hub.close()
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys: Any = [admin.keys(f"shop:{{{shard}}}:page:*") for shard in range(4)]

    assert [2, 2, 2, 2] == list(map(len, keys))


def test_what_was_put_there_by_hand_can_be_replaced(redis_server: RedisServer) -> None:
    """A mark without a payload, a payload without a mark: what is read is what a swap goes by."""

    async def swapped() -> bool:
        hub = RedisHub(redis_server.url, SETTINGS)
        over = await hub.read_index(bytes_max=MAX)
        done = await hub.swap_index(b"new", over=over, bytes_max=MAX, keep_s=60.0)
        done = done and b"new" == await hub.read_index(bytes_max=MAX)
        await hub.close()
        return done

    found = []
    for words in (("mark", "m"), ("mark", "", "payload", "x"), ("mark", "m" * 5000, "payload", "x" * 5000)):
        redis_server.command("FLUSHALL")
        redis_server.command("HSET", KEY, *words)
        found.append(asyncio.run(swapped()))

    assert [True, True, True] == found


async def test_a_server_that_is_away_is_unavailable() -> None:
    """And nothing else is raised."""
    hub = RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)
    kinds: list[str] = []
    for question in (
        hub.read_index(bytes_max=MAX),
        hub.swap_index(b"", over=None, bytes_max=MAX, keep_s=1.0),
        hub.put_page(DIGEST, b"", keep_s=1.0),
        hub.get_page(DIGEST, bytes_max=MAX),
        hub.keep_pages([DIGEST], keep_s=1.0),
        hub.get_page("no digest", bytes_max=MAX),
    ):
        try:
            await question
        except HubUnavailable as error:
            kinds.append(error.kind)
    await hub.close()

    assert ["refused"] * 5 + ["protocol"] == kinds


@pytest.mark.parametrize("reply", [b"x", 7, -1, ["x"], [True], [2], [-1], {}], ids=repr)
def test_any_other_reply_is_a_protocol_error(reply: object) -> None:
    """A server may answer anything that is none of ours."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        missing_in(reply, ["a", "b"])
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        was_swapped(reply)
    if reply != b"x":
        with pytest.raises(HubUnavailable, match=r"^protocol: "):
            page_in(reply)
