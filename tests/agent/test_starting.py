"""Goal: an agent begins to exchange with its first decision, or when it is told to, and once.

Method: the threads of this process, and a real Redis to exchange with.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconverge import Agent, RateLimiter
from tests.support.agents import NEVER_FULL, exchange_threads, exchanges_of, heard
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

DECISIONS: dict[str, Callable[[RateLimiter], object]] = {
    "allow": lambda login: login.allow("ada"),
    "hit": lambda login: login.hit("ada"),
    "test": lambda login: login.test("ada"),
    "usage": lambda login: login.usage("ada"),
    "reset": lambda login: login.reset("ada"),
    "reserve": lambda login: login.reserve("ada", 5),
    "warm": lambda login: login.warm(["ada"]),
}


def test_no_thread_runs_before_the_first_decision(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Making an agent and declaring limits starts nothing and connects nowhere."""
    connections = redis_server.command("INFO", "stats")
    agent = make_agent(redis_server.url)

    agent.limit("login", NEVER_FULL)

    assert [] == exchange_threads()
    assert not agent.stats().running
    assert _connections_received(connections) + 1 == _connections_received(redis_server.command("INFO", "stats"))


@pytest.mark.parametrize("decision", DECISIONS)
def test_the_first_decision_starts_one_thread(decision: str, redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Any decision starts it: the hub then hears of the key, and answers."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)

    DECISIONS[decision](login)

    assert 1 == len(exchange_threads())
    assert agent.stats().running
    eventually(lambda: exchanges_of(agent) and heard(login), "an answer to the first decision")


def test_with_starts_at_once_and_stops_in_the_end(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Without any decision, so that the agent is ready for the first one."""
    with make_agent(redis_server.url) as agent:
        eventually(lambda: agent.ready, "the hub's first answer")

        assert 1 == len(exchange_threads())

    assert [] == exchange_threads()
    assert not agent.stats().running


def test_starting_twice_is_starting_once(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """One thread, however often it is asked for."""
    agent = make_agent(redis_server.url)

    agent.start()
    agent.start()
    agent.limit("login", NEVER_FULL).allow("ada")

    assert 1 == len(exchange_threads())


def test_the_environment_names_the_hub(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RECONVERGE_HUB` is used when no hub is given, and not when one is."""
    monkeypatch.setenv("RECONVERGE_HUB", redis_server.url)

    assert redis_server.url == Agent().stats().hub
    assert "memory://" == Agent("memory://").stats().hub


def test_without_any_hub_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default decides alone."""
    monkeypatch.delenv("RECONVERGE_HUB", raising=False)

    assert "memory://" == Agent().stats().hub


def _connections_received(info: str) -> int:
    return int(info.partition("total_connections_received:")[2].split()[0])
