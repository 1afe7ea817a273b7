"""Goal: an agent that is made anew in each call, and so never refuses anything, is told of.

Method: agents of one process at one Redis, with and without a stop in between; agents without a hub, and a fork.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import pytest

from reconverge import Agent
from reconverge.agent.notice import ANEW
from reconverge.testing import ManualClock
from reconverge_sync.memory import MemoryHub
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


def _call_without_hub(name: str, times: int) -> None:
    for _ in range(times):
        Agent("memory://").limit(name, "2/minute").allow("ada")


def test_agents_without_a_hub_are_not_told_of_in_a_test(caplog: pytest.LogCaptureFixture) -> None:
    """Each counts alone on purpose."""
    _call_without_hub("in-a-test", ANEW)

    assert "" == caplog.text


def test_an_agent_without_a_hub_that_one_line_makes_again_and_again_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with that line. Not one that is made twice, nor another limit, nor one in a block, nor a shared one."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    _call_without_hub("each-call", ANEW - 1)
    _call_without_hub("another", ANEW - 1)
    for _ in range(ANEW):
        with Agent("memory://") as agent:
            agent.limit("each-call", "2/minute")
        Agent("memory://each-call").limit("each-call", "2/minute")
    before = caplog.text
    _call_without_hub("each-call", ANEW)

    assert "" == before
    (said,) = caplog.messages
    assert "test_second_agent.py, line" in said
    assert "has made an agent of memory:// with the limit 'each-call' 3 times, and each counts alone" in said


def test_the_line_that_is_told_of_has_made_the_agents(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their limits may be declared in a framework, which makes the middleware."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    framework: dict[str, Any] = {}
    exec(compile("def declare(agent): agent.limit('elsewhere', '2/minute')", "framework.py", "exec"), framework)  # noqa: S102  # the file of a line
    for _ in range(ANEW):
        framework["declare"](Agent("memory://"))

    assert "test_second_agent.py, line" in caplog.text
    assert "framework.py" not in caplog.text


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only decides, and leaves
@pytest.mark.parametrize("hub", ["memory://", "memory://forked"])
def test_a_forked_child_that_decides_without_a_hub_is_told_of_once(hub: str, caplog: pytest.LogCaptureFixture) -> None:
    """It counts from nothing, and its parent goes on. A child that decides nothing hears nothing."""
    limiter = Agent(hub).limit("login", "1/minute")
    limiter.allow("ada")
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        before = list(caplog.messages)
        decided = [limiter.allow("ada") for _ in range(2)]
        told = [f"has an agent of {hub}, and decides with counts of its own" in each for each in caplog.messages]
        os._exit(0 if (before, decided, told) == ([], [True, False], [True]) else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert "" == caplog.text


def test_a_clock_of_a_test_beside_a_hub_with_its_own_is_told_of_once(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose windows do not follow it. Without a hub, and at a hub that is an object, it moves all there is."""
    Agent("memory://", clock=ManualClock())
    Agent(MemoryHub(clock=(clock := ManualClock())), clock=clock)
    before = caplog.text
    for _ in range(2):
        Agent(redis_server.url, clock=ManualClock())

    assert "" == before
    assert 1 == caplog.text.count("clock=ManualClock(...) moves this agent alone")
    assert "write Agent('memory://', clock=...) in this test" in caplog.text
