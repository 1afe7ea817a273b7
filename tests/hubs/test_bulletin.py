"""Goal: what is posted at a hub is what all read, until another is posted or its time is over; and reading it is cheap.

Method: each hub that is a bulletin, then what is particular to Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Bulletin, Hub
from reconverge.hubs import HubSettings
from reconverge_sync.bulletin import Posted, posted
from reconverge_sync.embedded import EmbeddedHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis import RedisHub
from tests.hubs.conftest import shop_url
from tests.servers import RedisServer, free_port
from tests.waiting import eventually

SETTINGS = HubSettings("shop", 5.0)
PAYLOAD = bytes(range(256))
"""Any bytes may be posted."""
MAX = 1000
KEY = "shop:{0}:settings"

AnyHub = MemoryHub | RedisHub | EmbeddedHub
MakeHub = Callable[[], AnyHub]


@pytest.fixture(params=["memory", "redis", "embedded"])
def make_hub(request: pytest.FixtureRequest, redis_server: RedisServer) -> MakeHub:
    """One hub object after the other, all for the same hub."""
    memory = MemoryHub()
    makers: dict[str, MakeHub] = {
        "memory": lambda: memory,
        "redis": lambda: RedisHub(redis_server.url, SETTINGS),
        "embedded": lambda: EmbeddedHub(f"embedded://bulletin-{free_port()}", SETTINGS),
    }
    hub = makers["embedded"]() if request.param == "embedded" else None
    return (lambda: hub) if hub is not None else makers[request.param]


def test_what_was_posted_last_is_read(make_hub: MakeHub) -> None:
    """By whoever posted it and by others, again and again; before that, nothing is."""

    async def live() -> list[bytes | None]:
        one, other = make_hub(), make_hub()
        assert isinstance(one, Bulletin)
        assert isinstance(one, Hub)
        read: list[bytes | None] = [await one.read(bytes_max=MAX), await other.read(bytes_max=MAX)]
        for payload in (PAYLOAD, b"second", b"second"):
            await one.post(payload, keep_s=60.0)
            read += [await one.read(bytes_max=MAX), await other.read(bytes_max=MAX), await other.read(bytes_max=MAX)]
        await one.close()
        await other.close()
        return read

    assert [None, None, *3 * [PAYLOAD], *6 * [b"second"]] == asyncio.run(live())


def test_of_something_too_long_only_a_part_is_fetched(make_hub: MakeHub) -> None:
    """Enough to see that it is too long; at the bound, all of it is read."""

    async def live() -> list[bytes | None]:
        hub = make_hub()
        read: list[bytes | None] = []
        for length in (MAX, MAX + 1, 50 * MAX):
            await hub.post(b"x" * length, keep_s=60.0)
            read.append(await hub.read(bytes_max=MAX))
        await hub.close()
        return read

    assert [b"x" * MAX, b"x" * (MAX + 1), b"x" * (MAX + 1)] == asyncio.run(live())


def test_a_hub_in_memory_keeps_it_for_its_time() -> None:
    """And not a moment longer."""
    clock = ManualClock(start=0)
    hub = MemoryHub(clock=clock)
    asyncio.run(hub.post(PAYLOAD, keep_s=60.0))
    clock.advance(59.999)
    assert PAYLOAD == asyncio.run(hub.read(bytes_max=MAX))
    clock.advance(0.001)

    assert None is asyncio.run(hub.read(bytes_max=MAX))


def test_a_redis_keeps_it_for_its_time(redis_server: RedisServer) -> None:
    """It is gone by itself, and readers see that."""

    async def live(admin: redis.Redis) -> tuple[int, bytes | None]:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.post(PAYLOAD, keep_s=100_000.0)
        await hub.read(bytes_max=MAX)
        left_ms: Any = admin.pttl(KEY)
        await hub.post(PAYLOAD, keep_s=0.001)
        await asyncio.to_thread(eventually, lambda: not admin.exists(KEY), "its end")
        read = await hub.read(bytes_max=MAX)
        await hub.close()
        return left_ms, read

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        left_ms, read = asyncio.run(live(admin))

    assert 0 < left_ms <= 100_000_000
    assert None is read


def test_namespaces_do_not_read_each_others(redis_server: RedisServer) -> None:
    """Each has a key of its own."""

    async def live() -> bytes | None:
        one, other = RedisHub(redis_server.url, SETTINGS), RedisHub(redis_server.url, HubSettings("other", 5.0))
        await one.post(PAYLOAD, keep_s=60.0)
        read = await other.read(bytes_max=MAX)
        await one.close()
        await other.close()
        return read

    assert None is asyncio.run(live())
    assert ":0" != redis_server.command("EXISTS", KEY)


def test_reading_is_one_command_and_fetches_nothing_twice(redis_server: RedisServer) -> None:
    """However long what is posted is: only a mark travels until another is posted."""
    payload = b"x" * 60_000

    async def live(admin: redis.Redis) -> tuple[int, int]:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.post(payload, keep_s=60.0)
        await hub.read(bytes_max=100_000)
        before: Any = admin.info("stats")
        for _ in range(10):
            assert payload == await hub.read(bytes_max=100_000)
        after: Any = admin.info("stats")
        evals: Any = admin.info("commandstats")["cmdstat_eval"]["calls"]
        await hub.close()
        return evals, after["total_net_output_bytes"] - before["total_net_output_bytes"]

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.config_resetstat()
        evals, sent_bytes = asyncio.run(live(admin))

    assert 12 == evals
    assert sent_bytes < 60_000


def test_a_user_with_few_rights_can_read_and_post(acl_redis: RedisServer) -> None:
    """No further right is needed: what was posted is believed for its signature alone."""

    async def live() -> bytes | None:
        hub = RedisHub(shop_url(acl_redis), SETTINGS)
        await hub.post(PAYLOAD, keep_s=60.0)
        read = await hub.read(bytes_max=MAX)
        await hub.close()
        return read

    assert PAYLOAD == asyncio.run(live())


def test_what_was_put_there_by_hand_is_no_harm(redis_server: RedisServer) -> None:
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


def test_a_server_that_is_away_is_unavailable() -> None:
    """And nothing else is raised."""

    async def live() -> list[str]:
        hub = RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)
        kinds: list[str] = []
        for question in (hub.read(bytes_max=MAX), hub.post(PAYLOAD, keep_s=1.0)):
            try:
                await question
            except HubUnavailable as error:
                kinds.append(error.kind)
        await hub.close()
        return kinds

    assert ["refused", "refused"] == asyncio.run(live())


@pytest.mark.parametrize(
    "reply", [None, b"x", 7, [7], ["mark"], [b"mark", 7], [b"mark"], [b"a", b"b", b"c"], [[b"a"], b"b"], {}], ids=repr
)
def test_any_other_reply_is_a_protocol_error(reply: object) -> None:
    """Whatever a server answers that is none of ours."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        posted(reply, Posted())
