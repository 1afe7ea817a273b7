"""Goal: reading keys leaves a Redis as it was, and what cannot be read is told.

Method: a real server, all of whose keys, values and expiries are compared; and cells that were tampered with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from reconverge import HubUnavailable
from reconverge.clock import ManualClock
from reconverge.hub.reading import KeyQuestion, KeyReading
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import LIMIT, START_S, Scene
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer

SETTINGS = HubSettings("readers", 5.0)
CELL = "readers:{0}:c1:limit:0:21600000000:ada"


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the server, on which no agent has been yet."""
    redis_server.command("FLUSHALL")
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


def read(url: str, *keys: str) -> list[KeyReading]:
    """Reads keys with a hub object of its own, after a node has reported 30 of `ada`."""

    async def ask() -> list[KeyReading]:
        hub = RedisHub(url, SETTINGS, clock=ManualClock(START_S))
        scene = Scene(hub, ManualClock(START_S), join=lambda known: known)
        await scene.voice().reports(current=30)
        before = everything(url)
        try:
            return list((await hub.read_keys(0, [KeyQuestion(LIMIT, key) for key in keys])).keys)
        finally:
            after = everything(url)
            assert before.keys() == after.keys()
            assert all(before[key][0] == after[key][0] and before[key][1] >= after[key][1] for key in before)
            await hub.close()

    return asyncio.run(ask())


def everything(url: str) -> dict[bytes, tuple[object, int]]:
    """All that the server keeps, and for how many milliseconds still."""
    with redis.Redis.from_url(url) as client:
        return {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter()}


def test_reading_writes_nothing(redis_server: RedisServer, client: redis.Redis) -> None:
    """Neither of a key that is used nor of one that is not; no key begins, and none expires later."""
    known, unknown = read(redis_server.url, "ada", "bob")

    assert (30, 0) == (known.used, unknown.used)
    assert 4 == client.dbsize()


@pytest.mark.parametrize(
    ("field", "value"), [("g", b""), ("g", b"\x01"), ("g", b"\xc1" * 20), ("other.0", b"\x01\x02"), ("l", b"\x00\x01")]
)
def test_what_cannot_be_read_is_named(redis_server: RedisServer, client: redis.Redis, field: str, value: bytes) -> None:
    """A cell that another program has written into is an outage for its reader, not a crash and not a number."""
    read(redis_server.url, "ada")
    client.hset(CELL, field, value)

    async def ask() -> None:
        hub = RedisHub(redis_server.url, SETTINGS, clock=ManualClock(START_S))
        try:
            await hub.read_keys(0, [KeyQuestion(LIMIT, "ada")])
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable, match="cannot be read") as caught:
        asyncio.run(ask())
    assert "protocol" == caught.value.kind
