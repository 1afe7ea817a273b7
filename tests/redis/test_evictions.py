"""Goal: a Redis that may evict counts is logged, once, and no other.

Method: an agent on a real Redis whose settings are changed, and one whose user may not read them.
"""

from __future__ import annotations

import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge_sync.redis.hub import RedisHub
from tests.support.fixtures.servers import shop_url
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers of servers that agents have asked for their memory."""
    answers: list[str] = []
    evicts = RedisHub.evicts

    async def noted(hub: RedisHub) -> str:
        try:
            answers.append(await evicts(hub))
        except HubUnavailable as failure:
            answers.append(failure.kind)
            raise
        return answers[-1]

    monkeypatch.setattr(RedisHub, "evicts", noted)
    return answers


def asks(url: str, asked: list[str]) -> None:
    """Lets an agent exchange until it has asked."""
    with Agent(url, namespace="shop", sync_interval=0.02) as agent:
        login = agent.limit("login", "5/minute")
        eventually(lambda: login.allow("ada") is not None and asked, "the agent has asked")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_evict_is_logged(
    policy: str, own_redis: RedisServer, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With its settings, and what to do."""
    own_redis.command("CONFIG", "SET", "maxmemory-policy", policy)
    own_redis.command("CONFIG", "SET", "maxmemory", "50mb")

    asks(own_redis.url, asked)

    (logged,) = [each.getMessage() for each in caplog.records if "forgets counts" in each.getMessage()]
    assert f"maxmemory-policy {policy} and maxmemory 52428800" in logged
    assert "CONFIG SET maxmemory-policy noeviction" in logged


@pytest.mark.parametrize(("policy", "most"), [("noeviction", "50mb"), ("allkeys-lru", "0")])
def test_a_server_that_evicts_nothing_is_not_logged(
    policy: str, most: str, own_redis: RedisServer, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its policy keeps all, or its memory has no bound."""
    own_redis.command("CONFIG", "SET", "maxmemory-policy", policy)
    own_redis.command("CONFIG", "SET", "maxmemory", most)

    asks(own_redis.url, asked)

    assert ([""], []) == (asked, [each for each in caplog.records if "forgets counts" in each.getMessage()])


def test_a_user_without_the_right_asks_once(
    acl_redis: RedisServer, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its exchanges go on, and nothing is logged of it."""
    asks(shop_url(acl_redis), asked)

    assert ["permission"] == asked
    assert [] == [each.getMessage() for each in caplog.records if "permission" in each.getMessage()]
