"""Goal: the rights that RedisHub says its user needs are enough, and none of them is too much.

Method: a hub does everything that it ever does, as a user with these rights; then with each of them taken away.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import START_S, Scene
from reconverge_sync.redis.hub import RedisHub
from tests.support.fixtures.servers import allow, shop_url
from tests.support.servers import RedisServer

COMMANDS = ["eval", "evalsha", "hget", "hmget", "hgetall", "hset", "hdel", "del", "pexpire", "pttl", "time"]
SETTINGS = HubSettings("shop", 5.0)
DAY_S = 86_400.0


def test_the_rights_are_enough(acl_redis: RedisServer) -> None:
    """Nothing that a hub does lacks a permission."""
    assert [] == _what_is_lacking(acl_redis)


def test_the_rights_are_those_that_are_tried_here(acl_line: str) -> None:
    """None is forgotten below."""
    assert COMMANDS == re.findall(r"\+(\S+)", acl_line)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_right_is_needed(own_redis: RedisServer, acl_line: str, command: str) -> None:
    """Without it something fails, and says that it is a permission that is lacking."""
    allow(own_redis, acl_line, f"-{command}")

    assert {"permission"} == set(_what_is_lacking(own_redis))


def test_no_other_namespace_may_be_touched(acl_redis: RedisServer) -> None:
    """A fleet's user cannot disturb another fleet."""
    clock = ManualClock(START_S)
    hub = RedisHub(shop_url(acl_redis), HubSettings("other", 5.0), clock=clock)

    assert "permission" == asyncio.run(_problem_of(hub))


@pytest.mark.parametrize(
    "command", ["FLUSHALL", "KEYS *", "CONFIG GET *", "ACL LIST", "MONITOR", "SUBSCRIBE x", "GET x"]
)
def test_nothing_else_may_be_done(acl_redis: RedisServer, command: str) -> None:
    """Whoever steals the password can count, and no more."""

    async def ask() -> None:
        hub = RedisHub(shop_url(acl_redis), SETTINGS)
        try:
            await hub._call(*command.split())
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable, match=r"^permission: "):
        asyncio.run(ask())


def test_another_database_needs_one_right_more(own_redis: RedisServer, acl_line: str) -> None:
    """SELECT, and nothing else."""
    url = shop_url(own_redis).removesuffix("/0") + "/5"

    allow(own_redis, acl_line)
    assert "permission" == asyncio.run(_problem_of(RedisHub(url, SETTINGS)))

    allow(own_redis, acl_line, "+select")
    assert None is asyncio.run(_problem_of(RedisHub(url, SETTINGS)))


def _what_is_lacking(server: RedisServer) -> list[str]:
    """The kinds of all failures when a hub does everything that it ever does."""
    return asyncio.run(_do_everything(server))


async def _do_everything(server: RedisServer) -> list[str]:
    clock = ManualClock(START_S)
    hub, timed_by_server = RedisHub(shop_url(server), SETTINGS, clock=clock), RedisHub(shop_url(server), SETTINGS)
    scene = Scene(hub, clock, join=lambda known: known)
    ada, bob = scene.voice(), scene.voice()
    lacking: list[str] = []

    async def attempt(step: int) -> None:
        match step:
            case 0:
                server.command("SCRIPT", "FLUSH")
                await ada.reports(need=10)
            case 1:
                await ada.reports(current=10)
            case 2:
                await ada.leaves(ada.cell(current=10))
            case 3:
                scene.pass_time(DAY_S)
                await bob.reports("eve")
            case 4:
                scene.pass_time(30 * DAY_S)
                await scene.voice().reports()
            case 5:
                await Scene(timed_by_server, SystemClock(), join=lambda known: known).voice().says_hello()
            case _:
                await hub.totals()

    for step in range(7):
        try:
            await attempt(step)
        except HubUnavailable as error:
            lacking.append(error.kind)
    await hub.close()
    await timed_by_server.close()
    return lacking


async def _problem_of(hub: RedisHub) -> str | None:
    """The kind of failure of one exchange."""
    try:
        await Scene(hub, SystemClock(), join=lambda known: known).voice().says_hello()
    except HubUnavailable as error:
        return error.kind
    finally:
        await hub.close()
    return None
