"""Goal: when an address leads to another server, no connection stays at the wrong one.

Method: a relay whose target changes for new connections only, as that of a name, a Service or a proxy does. Behind it
is first a server that gives one error reply to everything, then a Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge_sync.redis.hub import RedisHub
from tests.redis.test_errors import IN_A_SCRIPT
from tests.support.agents import net_at
from tests.support.hubs.parrot import Parrot
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

READ_ONLY = "-READONLY You can't write against a read only replica."
WRONG = [
    READ_ONLY,
    f"{IN_A_SCRIPT}{READ_ONLY}",
    "-MOVED 3999 127.0.0.1:6381",
    "-LOADING Redis is loading the dataset in memory",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "-CLUSTERDOWN Hash slot not served",
    "-NOREPLICAS Not enough good replicas to write.",
    "-NOAUTH Authentication required.",
]
RIGHT = ["-OOM command not allowed when used memory > 'maxmemory'.", "-TRYAGAIN Multiple keys request", "-BUSY wait"]
CALLS: dict[str, Callable[[RedisHub], Awaitable[Any]]] = {
    "totals": lambda hub: hub.totals(),
    "settings": lambda hub: hub.read(bytes_max=100),
    "contracts": lambda hub: hub.get_page("0", bytes_max=100),
    "wishes": lambda hub: hub.wishes(0),
}


async def _fails(hub: RedisHub, call: str = "totals") -> bool:
    try:
        await CALLS[call](hub)
    except HubUnavailable:
        return True
    return False


@pytest.mark.parametrize("reply", WRONG)
async def test_a_reply_of_a_wrong_server_ends_all_connections_to_it(redis_server: RedisServer, reply: str) -> None:
    """Also those that were idle when it came: the next calls, two at once, reach the right server."""
    with Parrot(f"{reply}\r\n".encode()) as wrong, Relay(wrong.port) as relay:
        hub = RedisHub(relay.url, HubSettings("shop", 5.0))
        both_failed = await asyncio.gather(_fails(hub), _fails(hub))
        relay.target_port = redis_server.port
        then = await asyncio.gather(_fails(hub), _fails(hub))
        await hub.close()

    assert [True, True] == list(both_failed)
    assert [False, False] == list(then)


@pytest.mark.parametrize("reply", RIGHT)
async def test_an_error_of_the_right_server_ends_no_connection(redis_server: RedisServer, reply: str) -> None:
    """A new connection costs the server more than the error does, and reaches the same server."""
    with Parrot(f"{reply}\r\n".encode()) as full, Relay(full.port) as relay:
        hub = RedisHub(relay.url, HubSettings("shop", 5.0))
        await _fails(hub)
        relay.target_port = redis_server.port
        still_there = await _fails(hub)
        await hub.close()

    assert still_there


@pytest.mark.parametrize("call", CALLS)
async def test_every_call_reaches_the_right_server_after_one_failure(redis_server: RedisServer, call: str) -> None:
    """Exchanges are not the only calls: settings, contracts and loans follow as well."""
    with Parrot(f"{READ_ONLY}\r\n".encode()) as wrong, Relay(wrong.port) as relay:
        hub = RedisHub(relay.url, HubSettings("shop", 5.0))
        failed = await _fails(hub, call)
        relay.target_port = redis_server.port
        failed_again = await _fails(hub, call)
        await hub.close()

    assert (True, False) == (failed, failed_again)


def test_an_agent_follows_a_failover_behind_its_address(own_redis: RedisServer, redis_server: RedisServer) -> None:
    """The old master is a replica that keeps its connections; the agent reports everything to the new one."""
    with Relay(own_redis.port) as relay, Agent(relay.url, namespace="shop", sync_interval=0.02) as agent:
        login = agent.limit("login", "1000/day")
        admitted = sum(login.allow("ada") for _ in range(10))
        eventually(lambda: agent.ready and net_at(own_redis.url, namespace="shop") == admitted, "all is reported")
        relay.target_port = redis_server.port
        own_redis.command("REPLICAOF", "127.0.0.1", str(redis_server.port))
        admitted += sum(login.allow("ada") for _ in range(10))
        eventually(lambda: net_at(redis_server.url, namespace="shop") == admitted, "the new master knows all of it")
