"""Goal: whatever the network loses, nothing is lost and nothing is counted twice.

Method: agents with real loops reach a real Redis through a relay that swallows a share of the replies, or of the
requests; when they have stopped, the hub's total is compared with what they have admitted. The same is done with two
hubs that do what is usually done, and must be found wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconverge import Agent, Hub
from reconverge.hub.registry import HubSettings
from reconverge_sync.redis.hub import RedisHub
from tests.support.agents import net_at
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

AGENTS = 3
LOSSES_MIN = 15
SETTINGS = HubSettings("lossy", 0.05)
"""Whoever waits for a lost reply does not wait long."""


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("what", ["replies", "requests"])
def test_lost_messages_lose_nothing_and_double_nothing(redis_server: RedisServer, what: str, share: float) -> None:
    """A report whose reply is lost is said again, and each cost counts once.

    One that the hub has not heard is sent again until it is answered, once the network has healed.
    """
    with Relay(redis_server.port) as relay:
        setattr(relay, f"lose_{what}", share)
        admitted = _load(
            relay,
            lambda: RedisHub(relay.url, SETTINGS),
            lambda: getattr(relay, f"lost_{what}"),
            heal=what == "requests",
        )

    assert admitted == net_at(redis_server.url, namespace="lossy")


def test_last_words_survive_a_connection_that_was_cut_unnoticed(own_redis: RedisServer) -> None:
    """An agent that stops finds its connection closed, as by a proxy that was restarted, and says them on another."""
    agent = Agent(own_redis.url, namespace="lossy", sync_interval=60.0)
    login = agent.limit("login", "1000000/day")
    login.allow("ada")
    eventually(lambda: login.usage("ada").allowance > 0, "an exchange")
    admitted = 1 + sum(login.allow("ada") for _ in range(10))

    own_redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    agent.stop()

    assert admitted == net_at(own_redis.url, namespace="lossy")


def test_last_words_survive_a_server_that_was_restarted_unnoticed() -> None:
    """An agent that stops finds its connection dead, and the server back with its data, and says them to that."""
    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
        agent = Agent(server.url, namespace="lossy", sync_interval=60.0)
        login = agent.limit("login", "1000000/day")
        login.allow("ada")
        eventually(lambda: login.usage("ada").allowance > 0, "an exchange")
        admitted = 1 + sum(login.allow("ada") for _ in range(10))

        server.kill()
        server.start()
        eventually(lambda: server.command("PING") == "+PONG", "it has read its data")
        agent.stop()

        assert admitted == net_at(server.url, namespace="lossy")


def _load(relay: Relay, make_hub: Callable[[], Hub], losses: Callable[[], int], *, heal: bool = True) -> int:
    """Asks agents until enough was lost, and stops them, on a sound network by default. Returns their admissions."""
    agents = [Agent(make_hub(), sync_interval=0.01, policy="available", exchange_timeout=0.2) for _ in range(AGENTS)]
    limiters = [agent.limit("login", "1000000/day") for agent in agents]
    admitted = 0

    def ask() -> bool:
        nonlocal admitted
        for limiter in limiters:
            admitted += sum(limiter.allow(key) for key in ("ada", "bob") for _ in range(10))
        return losses() >= LOSSES_MIN

    eventually(ask, f"{LOSSES_MIN} messages are lost")
    if heal:
        relay.heal()
    for agent in agents:
        agent.stop()

    assert 0 < admitted
    assert 0 < sum(sum(agent.stats().exchanges[0].failures.values()) for agent in agents)
    assert 0 == sum(agent.stats().bugs for agent in agents)
    return admitted
