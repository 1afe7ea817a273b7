"""Goal: snapshots end by themselves on a Redis; a broker is known to keep none. All else is a claim of each hub."""

from __future__ import annotations

import asyncio

import pytest

from reconverge.errors import HubUnavailable
from reconverge.hub.port import SnapshotBoard
from reconverge.hub.registry import HubSettings, open_hub
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer


def test_a_redis_takes_the_time_from_its_own_clock(redis_server: RedisServer) -> None:
    """Where no test tells it another one; and it keeps nothing for ever."""
    redis_server.command("FLUSHALL")

    async def run() -> tuple[float, dict[str, bytes]]:
        hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))
        try:
            await hub.watch(keep_s=60.0)
            await hub.leave_snapshot("a1", b"one", keep_s=60.0)
            return await hub.watched_s(), dict(await hub.snapshots())
        finally:
            await hub.close()

    left_s, read = asyncio.run(run())

    assert {"a1": b"one"} == read
    assert 0 < left_s <= 60
    assert all(
        0 < int(redis_server.command("TTL", key).lstrip(":")) <= 130
        for key in ("shop:{0}:console", "shop:{0}:snapshots")
    )


def test_a_broker_keeps_no_snapshots() -> None:
    """A console that is opened there shows one process, and says so."""

    async def run() -> bool:
        hub = open_hub("mqtt://127.0.0.1:1", HubSettings("shop", 1.0))
        try:
            return isinstance(hub, SnapshotBoard)
        finally:
            await hub.close()

    assert not asyncio.run(run())


def test_a_reply_that_is_none_of_ours_is_unavailable(redis_server: RedisServer) -> None:
    """A key of that name that holds something else is told as what it is."""
    redis_server.command("FLUSHALL")
    redis_server.command("HSET", "shop:{0}:console", "#", "nonsense")

    async def run() -> None:
        hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))
        try:
            await hub.watched_s()
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable):
        asyncio.run(run())
