"""Goal: deciding does no input and no output: whatever the network is like, a decision does not touch it.

Method: two independent witnesses. The interpreter's audit events on the deciding thread, in a process of its own; and a
socket layer that fails for everybody, and notes when it is the deciding thread that uses it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reconverge import Agent
from tests.support.agents import NEVER_FULL, admitted_of, heard, introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.programs.process import Process
from tests.support.servers import RedisServer
from tests.support.waiting import eventually, eventually_in_loop

SOCKET_METHODS = (
    "accept",
    "bind",
    "connect",
    "connect_ex",
    "recv",
    "recv_into",
    "recvfrom",
    "send",
    "sendall",
    "sendto",
)
SOCKET_FUNCTIONS = ("create_connection", "socketpair", "getaddrinfo", "gethostbyname")
QUOTA = 100


class BrokenSockets:
    """A socket layer that fails for every thread, and counts how often each has tried it."""

    def __init__(self) -> None:
        self.uses: dict[int, int] = {}

    def instead_of(self, _original: object) -> Callable[..., Any]:
        def fail(*_arguments: object, **_named: object) -> Any:
            thread_id = threading.get_ident()
            self.uses[thread_id] = self.uses.get(thread_id, 0) + 1
            raise OSError("the network is broken, on purpose")

        return fail


@pytest.fixture
def broken_sockets(monkeypatch: pytest.MonkeyPatch) -> Callable[[], BrokenSockets]:
    """Break the socket layer of this process, until the end of the test."""

    def break_them() -> BrokenSockets:
        broken = BrokenSockets()
        for name in SOCKET_METHODS:
            monkeypatch.setattr(socket.socket, name, broken.instead_of(getattr(socket.socket, name)))
        for name in SOCKET_FUNCTIONS:
            monkeypatch.setattr(socket, name, broken.instead_of(getattr(socket, name)))
        for name in ("sock_connect", "sock_recv", "sock_sendall"):
            monkeypatch.setattr(asyncio.SelectorEventLoop, name, broken.instead_of(name))
        return broken

    return break_them


@pytest.mark.parametrize("hub", ["memory", "redis"])
def test_no_decision_opens_anything(hub: str, redis_server: RedisServer) -> None:
    """No file, no socket, no process and no module, from the very first decision on."""
    url = redis_server.url if hub == "redis" else "memory://"
    with Process("watches_from_the_first_decision_on", url, module="audits") as process:
        assert (0, ["deciding", "opening socket.__new__"]) == process.ends()


def test_no_decision_opens_anything_when_the_hub_is_away(own_redis: RedisServer) -> None:
    """The background alone tries to reach it again."""
    with Process("watches_when_the_hub_goes_away", own_redis.url, module="audits") as process:
        assert "heard" == process.says()
        own_redis.kill()
        process.go_on()

        assert (0, ["deciding", "opening socket.__new__"]) == process.ends()


def test_decisions_go_on_unchanged_on_broken_sockets(
    redis_server: RedisServer, make_agent: MakeAgent, broken_sockets: Callable[[], BrokenSockets]
) -> None:
    """The thread that exchanges runs into them; the one that decides does not come near them."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    introduce(login)
    broken = broken_sockets()

    eventually(lambda: _failures(agent) >= 3 and login.allow("ada"), "exchanges that fail")
    decisions = [login.hit("ada") for _ in range(1000)]

    assert {True} == {decision.allowed for decision in decisions}
    assert list(range(decisions[0].remaining, decisions[-1].remaining - 1, -1)) == [
        decision.remaining for decision in decisions
    ]
    assert 0 == broken.uses.get(threading.get_ident(), 0)
    assert sum(broken.uses.values()) >= 3


@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_without_the_hub_a_node_stays_within_its_allowance(
    policy: str, redis_server: RedisServer, make_agent: MakeAgent, broken_sockets: Callable[[], BrokenSockets]
) -> None:
    """It fills the allowance that it holds, and not a request more."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", f"{QUOTA}/year", policy=policy)
    eventually(lambda: login.allow("ada") and login.usage("ada").allowance > 1, "an allowance")
    broken_sockets()
    eventually(lambda: _failures(agent) >= 1 and login.usage("ada").staleness > 0.1, "stale answers")
    usage = login.usage("ada")
    assert usage.own < usage.allowance

    admitted = admitted_of(login, 2 * QUOTA)

    assert usage.allowance - usage.own == admitted


def test_in_a_loop_deciding_does_not_touch_a_socket_either(
    redis_server: RedisServer, make_agent: MakeAgent, broken_sockets: Callable[[], BrokenSockets]
) -> None:
    """Exchanges and decisions share one thread there, so none is made while the decisions are watched."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)

    async def serve() -> None:
        async with agent:
            login.allow("ada")
            await eventually_in_loop(lambda: heard(login), "the hub's answer")
            broken = broken_sockets()

            for number in range(1000):
                assert login.allow(f"key {number}")
                assert login.allow("ada")

            assert {} == broken.uses

    asyncio.run(serve())


def _failures(agent: Agent) -> int:
    return agent.stats().exchanges[0].failures_in_a_row
