"""Goal: an agent that is made anew in each call, and so never refuses anything, is told of.

Method: agents of one process at one Redis, with and without a stop in between.
"""

from __future__ import annotations

import logging

import pytest

from reconverge import Agent
from tests.support.servers import RedisServer

SECOND = "this process uses a second agent for the hub"


@pytest.fixture(autouse=True)
def _hear_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "reconverge")


def _call(server: RedisServer, namespace: str) -> None:
    """As a handler does that makes its own agent, which ends with it."""
    Agent(server.url, namespace=namespace).limit("login", "2/minute").allow("ada")


def test_an_agent_of_each_call_is_told_of_once(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """With the remedy, also if the agent of the call before is gone; and for each namespace."""
    for _ in range(5):
        _call(redis_server, "each-call")
        _call(redis_server, "another")

    told = [record.getMessage() for record in caplog.records if SECOND in record.getMessage()]

    assert ["'another'" in text for text in told] == [False, True]
    assert "Make one agent where the module is imported" in told[0]


async def test_agents_that_were_stopped_are_not_told_of(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One after the other, on threads and in tasks, and one that begins anew; nor are those of several namespaces."""
    for _ in range(2):
        with Agent(redis_server.url, namespace="one-by-one") as agent:
            agent.limit("login", "2/minute").allow("ada")
        async with Agent(redis_server.url, namespace="one-by-one") as agent:
            agent.limit("login", "2/minute").allow("ada")
    begun_anew = Agent(redis_server.url, namespace="one-by-one")
    for _ in range(2):
        begun_anew.start()
        begun_anew.stop()
    with Agent(redis_server.url, namespace="here"), Agent(redis_server.url, namespace="there"):
        pass

    assert SECOND not in caplog.text


async def test_agents_of_blocks_are_not_told_of(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Several nodes in one process are meant, as in an example: each is stopped with its block."""
    with Agent(redis_server.url, namespace="blocks"), Agent(redis_server.url, namespace="blocks"):
        async with Agent(redis_server.url, namespace="blocks") as agent:
            agent.limit("login", "2/minute").allow("ada")

    assert SECOND not in caplog.text


def test_agents_without_a_hub_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Each counts alone on purpose, as in tests."""
    for _ in range(3):
        Agent("memory://").limit("login", "2/minute").allow("ada")

    assert SECOND not in caplog.text
