"""Goal: the doctor knows when a restart of a Redis would cost quotas per month their counts, and when one has.

Method: real servers, on which nodes have reported limits with short and with long windows.
"""

from __future__ import annotations

import asyncio

import pytest

from reconverge.clock import SystemClock
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import LimitReport
from reconverge.testing.claims.scenes.scene import Scene, limit
from reconverge_sync.redis.diagnosis.durability import window_of
from reconverge_sync.redis.hub import RedisHub
from tests.support.commands.checked import check
from tests.support.servers import RedisServer

DAY_US = 86_400_000_000
MONTHLY = limit("monthly", window_us=31 * DAY_US, overshoot_milli=0)


def tell(server: RedisServer, of: LimitReport, *, lost: bool = False) -> str:
    """Lets a node report one key, with other data if these are `lost`. Returns the generation."""

    async def report() -> str:
        hub = RedisHub(server.url, HubSettings("shop", 5.0))
        scene = Scene(hub, SystemClock(), join=lambda known: known)
        voice = [scene.voice(), scene.voice()][lost]
        voice.generation = "other data" if lost else ""
        await voice.reports(of=of, current=3, allowance=3)
        await scene.close()
        return voice.generation

    return asyncio.run(report())


@pytest.mark.parametrize("window_us", [1_000_000, DAY_US])
def test_a_window_of_a_day_wants_no_persistence(own_redis: RedisServer, window_us: int) -> None:
    """Live nodes tell nearly all of it again."""
    tell(own_redis, limit(window_us=window_us))

    assert [] == check(own_redis.url).findings("durability")


def test_a_long_window_wants_a_server_that_writes_down(own_redis: RedisServer) -> None:
    """It is told of one that keeps nothing, and of one that takes snapshots; not of one that writes down all."""
    tell(own_redis, MONTHLY)
    assert "+OK" == own_redis.command("CONFIG", "SET", "save", "")
    nothing = check(own_redis.url).only("durability")
    assert ("warning", True) == (nothing["level"], "keeps nothing on disk" in nothing["fact"])
    assert "windows of 31 days" in nothing["fact"]

    assert "+OK" == own_redis.command("CONFIG", "SET", "save", "3600 1")
    assert "since the last snapshot" in check(own_redis.url).only("durability")["fact"]

    assert "+OK" == own_redis.command("CONFIG", "SET", "appendonly", "yes")
    assert "ok" == check(own_redis.url).only("durability")["level"]


def test_a_loss_that_matters_is_told_until_it_is_adopted(own_redis: RedisServer) -> None:
    """And from then on that it was."""
    tell(own_redis, MONTHLY)
    assert [] == check(own_redis.url).findings("loss")
    tell(own_redis, MONTHLY, lost=True)
    waits = check(own_redis.url).only("loss")
    assert "data were lost before" in waits["fact"]
    assert "reconverge hub adopt" in waits["remedy"]
    own_redis.command("HSET", "shop:{0}:meta", "born", "1", "adopted", "1")

    adopted = check(own_redis.url).only("loss")

    assert ("warning", True) == (adopted["level"], "was adopted (1 times" in adopted["fact"])


@pytest.mark.parametrize(
    ("name", "window_us"),
    [
        ("shop:{0}:c1:monthly:0:2678400000000:ada", 31 * DAY_US),
        ("shop:{12}:c1:first:0:1000000first-hit:a:b{c}:d", 1_000_000),
        ("shop:{0}:c1:paced:leaky-bucket:5000000:ada", 5_000_000),
        ("shop:{0}:meta", 0),
        ("other", 0),
    ],
)
def test_a_key_says_how_long_its_window_is(name: str, window_us: int) -> None:
    """The client's part of the key may hold anything."""
    assert window_us == window_of(name)
