"""Goal: settings and contracts end by themselves, travel once, and other content is an error or replaced.

Method: what is particular to memory, to Redis and to a hub with a fallback. All else is a claim of each hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import redis

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub import ContractStore, Hub
from reconverge.hub.fallback.two_hubs import TwoHubs, two_hubs
from reconverge.hub.registry import HubSettings
from reconverge.testing import ContractStoreClaims
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.contracts import missing_in, page_in, was_swapped
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.redis.settings import Posted, posted
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

SETTINGS = HubSettings("shop", 5.0)
PAYLOAD = b"anything"
MAX = 1000
LONG = b"x" * 60_000
KEY = "shop:{0}:settings"
INDEX = "shop:{0}:contracts"
DIGEST = "00" * 32


class TestContractsWithAFallback(ContractStoreClaims):
    """Contracts are kept at the primary alone."""

    def make_hub(self, clock: ManualClock) -> Hub:
        primary, fallback = MemoryHub(), MemoryHub()
        return two_hubs(primary, fallback, clock=SystemClock(), timeout_s=1.0, name="fallback", random=Random(1))

    def make_stranger(self, hub: Hub) -> Hub:
        return self.make_hub(ManualClock())


def test_two_hubs_that_keep_no_contracts_say_so() -> None:
    """The class alone is no store of contracts."""
    hub = MemoryHub()

    assert not isinstance(TwoHubs(hub, hub, clock=SystemClock(), timeout_s=1, name="", random=Random(1)), ContractStore)


def test_a_hub_in_memory_keeps_settings_for_their_time() -> None:
    """And not a moment longer."""
    clock = ManualClock(start=0)
    hub = MemoryHub(clock=clock)
    asyncio.run(hub.post(PAYLOAD, keep_s=60.0))
    clock.advance(59.999)
    assert PAYLOAD == asyncio.run(hub.read(bytes_max=MAX))
    clock.advance(0.001)

    assert None is asyncio.run(hub.read(bytes_max=MAX))


async def test_a_hub_in_memory_keeps_contracts_for_their_time() -> None:
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


async def test_a_redis_keeps_settings_for_their_time(redis_server: RedisServer) -> None:
    """It is gone by itself, and readers see that."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.post(PAYLOAD, keep_s=100_000.0)
        await hub.read(bytes_max=MAX)
        left_ms: Any = admin.pttl(KEY)
        await hub.post(PAYLOAD, keep_s=0.001)
        await asyncio.to_thread(eventually, lambda: not admin.exists(KEY), "its end")
        read = await hub.read(bytes_max=MAX)
        await hub.close()

    assert 0 < left_ms <= 100_000_000
    assert None is read


async def test_a_redis_keeps_contracts_for_their_time(redis_server: RedisServer) -> None:
    """Each key ends by itself; and what is put again is kept from then on."""
    hub = RedisHub(redis_server.url, SETTINGS)
    await hub.swap_index(b"i", over=None, bytes_max=MAX, keep_s=100.0)
    await hub.put_page(DIGEST, b"p", keep_s=200.0)
    await hub.put_page("11" * 32, b"q", keep_s=200.0)
    await hub.keep_pages(["11" * 32], keep_s=300.0)
    await hub.close()
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys: Any = [INDEX, f"shop:{{0}}:page:{DIGEST}", f"shop:{{0}}:page:{'11' * 32}"]
        left_s: list[Any] = [admin.pttl(key) for key in keys]

    assert [100, 200, 300] == [-(-each // 1000) for each in left_s]


@pytest.mark.parametrize("contracts", [False, True], ids=["settings", "contracts"])
def test_reading_is_one_command_and_fetches_nothing_twice(redis_server: RedisServer, *, contracts: bool) -> None:
    """However long it is: only a mark travels until another is posted or swapped."""

    async def live(admin: redis.Redis) -> tuple[int, int]:
        hub = RedisHub(redis_server.url, SETTINGS)
        read = hub.read_index if contracts else hub.read
        if contracts:
            await hub.swap_index(LONG, over=None, bytes_max=100_000, keep_s=60.0)
        else:
            await hub.post(LONG, keep_s=60.0)
        await read(bytes_max=100_000)
        before: Any = admin.info("stats")
        for _ in range(10):
            assert LONG == await read(bytes_max=100_000)
        after: Any = admin.info("stats")
        evals: Any = admin.info("commandstats")["cmdstat_eval"]["calls"]
        await hub.close()
        return evals, after["total_net_output_bytes"] - before["total_net_output_bytes"]

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.config_resetstat()
        evals, sent_bytes = asyncio.run(live(admin))

    assert 12 == evals
    assert sent_bytes < 60_000


async def test_settings_and_contracts_are_kept_apart(redis_server: RedisServer) -> None:
    """Neither is read in the place of the other."""
    hub = RedisHub(redis_server.url, SETTINGS)
    read = []
    await hub.swap_index(b"contracts", over=None, bytes_max=MAX, keep_s=60.0)
    await hub.put_page(DIGEST, b"page", keep_s=60.0)
    read.append(await hub.read(bytes_max=MAX))
    await hub.post(b"settings", keep_s=60.0)
    read += [await hub.read(bytes_max=MAX), await hub.read_index(bytes_max=MAX)]
    await hub.close()

    assert [None, b"settings", b"contracts"] == read


async def test_pages_are_spread_over_the_shards(redis_server: RedisServer) -> None:
    """By their digest, so that a cluster has a part of them on each server."""
    hub = RedisHub(redis_server.url, SETTINGS, shards=4)
    for number in range(8):
        await hub.put_page(f"{number:08x}{'0' * 56}", b"p", keep_s=60.0)
    await hub.close()
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys: Any = [admin.keys(f"shop:{{{shard}}}:page:*") for shard in range(4)]

    assert [2, 2, 2, 2] == list(map(len, keys))


def test_what_was_put_in_the_place_of_settings_is_no_harm(redis_server: RedisServer) -> None:
    """Something else under that key, a mark without a payload, a mark of any length."""

    async def read() -> object:
        hub = RedisHub(redis_server.url, SETTINGS)
        try:
            read = [await hub.read(bytes_max=MAX), await hub.read(bytes_max=MAX)]
        except HubUnavailable as error:
            return error.kind
        finally:
            await hub.close()
        return read

    found: list[object] = []
    for words in (
        ("SET", KEY, "x"),
        ("RPUSH", KEY, "x"),
        ("HSET", KEY, "payload", "x"),
        ("HSET", KEY, "mark", "m"),
        ("HSET", KEY, "mark", "", "payload", "x"),
        ("HSET", KEY, "mark", "m" * 5000, "payload", "x"),
    ):
        redis_server.command("FLUSHALL")
        redis_server.command(*words)
        found.append(asyncio.run(read()))

    assert ["script", "script", [None, None], [b"", b""], [b"x", b"x"], [b"x", b"x"]] == found


def test_what_was_put_in_the_place_of_an_index_can_be_replaced(redis_server: RedisServer) -> None:
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
        redis_server.command("HSET", INDEX, *words)
        found.append(asyncio.run(swapped()))

    assert [True, True, True] == found


async def test_a_server_that_is_away_is_unavailable() -> None:
    """And nothing else is raised."""
    hub = RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)
    kinds: list[str] = []
    for question in (
        hub.read(bytes_max=MAX),
        hub.post(PAYLOAD, keep_s=1.0),
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

    assert ["refused"] * 7 + ["protocol"] == kinds


@pytest.mark.parametrize(
    ("read", "replies"),
    [
        (
            lambda reply: posted(reply, Posted()),
            (None, b"x", 7, [7], ["mark"], [b"mark", 7], [b"mark"], [b"a", b"b", b"c"], [[b"a"], b"b"], {}),
        ),
        (lambda reply: missing_in(reply, ["a", "b"]), (b"x", 7, -1, ["x"], [True], [2], [-1], {})),
        (was_swapped, (b"x", 7, -1, ["x"], [True], [2], [-1], {})),
        (page_in, (7, -1, ["x"], [True], [2], [-1], {})),
    ],
    ids=["settings", "missing pages", "a swap", "a page"],
)
def test_any_other_reply_is_a_protocol_error(read: Callable[[object], object], replies: tuple[object, ...]) -> None:
    """A server may answer anything that is none of ours."""
    for reply in replies:
        with pytest.raises(HubUnavailable, match=r"^protocol: "):
            read(reply)
