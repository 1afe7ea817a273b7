"""Goal: the script merges a batch whole or not at all, and leaves nothing behind that does not expire.

Method: batches that no node would send, and a look at the server's keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hubs import HubSettings
from reconverge.report import Batch
from reconverge.testing._scene import START_S, Scene, limit
from reconverge_sync.redis import RedisHub
from tests.servers import RedisServer

SETTINGS = HubSettings("shop", 5.0)
Change = Callable[[Batch], Batch]


def _header(**fields: Any) -> Change:
    return lambda batch: batch._replace(**fields)


def _limit(**fields: Any) -> Change:
    return lambda batch: batch._replace(limits=(batch.limits[0]._replace(**fields),))


def _cell(**fields: Any) -> Change:
    """Spoil the last cell, when the others would have been merged already."""
    return lambda batch: batch._replace(cells=(*batch.cells[:-1], batch.cells[-1]._replace(**fields)))


MALFORMED: dict[str, Change] = {
    "no name": _header(node=""),
    "the name of the departed": _header(node="-"),
    "the name of the sums": _header(node="g"),
    "a long name": _header(node="n" * 129),
    "no account": _header(account=""),
    "the account of the departed": _header(account="-"),
    "no number": _header(sequence=0),
    "half a number": _header(sequence=1.5),
    "too large a number": _header(sequence=2**60),
    "an incarnation that is none": _header(incarnation=7),
    "a negative interval": _header(interval_us=-1),
    "no lease": _header(lease_us=0),
    "a limit without a name": _limit(name=None),
    "no window": _limit(window_us=0),
    "no quota": _limit(quota=0),
    "no capacity": _limit(capacity=0),
    "an overshoot below infinite": _limit(overshoot_milli=-2),
    "a negative total": _limit(charged=-1),
    "a refund that is no number": _limit(refunded="1"),
    "a negative line": _cell(line=-1),
    "a line that is no number": _cell(line=float("nan")),
    "an infinite base": _cell(base=float("inf")),
    "half a need": _cell(need_milli=0.5),
    "an ask that is text": _cell(ask="1"),
    "a true reset": _cell(reset_us=True),
    "no epoch": _cell(epoch=None),
    "a list for a count": _cell(current=[1]),
    "a count that is too large": _cell(current=2**53 + 2),
    "a limit that is not there": _cell(limit=-1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_batch_changes_nothing(redis_server: RedisServer, name: str) -> None:
    """It is refused before the first write, though most of it is well formed."""

    async def send() -> None:
        hub = RedisHub(redis_server.url, SETTINGS)
        voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
        batch = voice.batch(*(voice.cell(key, need=5) for key in ("ada", "bob", "eve")))
        try:
            await hub.exchange(MALFORMED[name](batch))
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable, match=r"^protocol: ") as raised:
        asyncio.run(send())

    assert raised.value.applied is False
    assert ":0" == redis_server.command("DBSIZE")


def test_every_key_expires(redis_server: RedisServer) -> None:
    """After twice the window, two leases and what the server keeps of its nodes; and not before twice the window."""
    window_s = 3600

    async def live() -> None:
        hub = RedisHub(redis_server.url, SETTINGS, clock=ManualClock(START_S))
        voice = Scene(hub, ManualClock(START_S), join=lambda known: known).voice(lease_us=60_000_000)
        hourly = limit(window_us=window_s * 1_000_000, charged=5)
        await voice.reports(of=hourly, current=5, need=10)
        await voice.leaves(voice.cell("bob", of=hourly, current=5))
        await hub.close()

    asyncio.run(live())

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        lives_s = {key: admin.ttl(key) for key in admin.scan_iter()}
    assert 5 == len(lives_s)
    assert all(2 * window_s < seconds <= 62 * 86_400 for seconds in lives_s.values())


def test_keys_say_which_fleet_and_shard_they_belong_to(redis_server: RedisServer) -> None:
    """An operator can find, measure and delete one fleet's; a Cluster keeps each shard in one place."""

    async def live() -> None:
        hub = RedisHub(redis_server.url, SETTINGS, shards=3)
        scene = Scene(hub, SystemClock(), join=lambda known: known)
        await scene.voice(shard=2).reports("{ada}")
        await scene.voice(shard=2).reports("{ada}", current=1)
        await hub.close()

    asyncio.run(live())

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys = sorted(str(key, "utf-8") for key in admin.scan_iter())
    assert ["accounts", "c:limit:0:21600000000:{ada}", "meta", "nodes"] == [
        key.removeprefix("shop:{2}:") for key in keys
    ]


def test_one_exchange_is_one_command(redis_server: RedisServer) -> None:
    """However many keys it speaks of; a batch cut in the middle is not there at all."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:

        async def live() -> tuple[int, int]:
            hub = RedisHub(redis_server.url, SETTINGS)
            voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
            await voice.says_hello()
            before = _calls(admin)
            await voice.exchanges(voice.batch(*(voice.cell(f"key{number}", need=1) for number in range(256))))
            after = _calls(admin)
            await hub.close()
            return before, after

        before, after = asyncio.run(live())

    assert 1 == after - before


def _calls(admin: redis.Redis) -> int:
    """How many scripts were called so far."""
    stats = admin.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
