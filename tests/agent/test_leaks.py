"""Goal: an agent that is started and stopped over and over leaves nothing behind.

Method: fifty times, on a thread and as a task, against a real Redis; threads, tasks and file descriptors are counted
before and after, and a warning about anything that was left open is an error.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from reconverge import Agent, RateLimiter
from tests.support.agents import NEVER_FULL, admitted_of, heard, introduce, net_at, open_files
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually_in_loop

CYCLES = 50


@pytest.fixture
def nothing_left_over() -> Iterator[None]:
    """Counts nothing that other tests have left to the garbage collector, and all that this one leaves."""
    gc.collect()
    yield
    gc.collect()


def test_fifty_threads_leave_nothing_behind(
    redis_server: RedisServer, make_agent: MakeAgent, nothing_left_over: None
) -> None:
    """Threads and descriptors are as many afterwards as before, and not a request is lost on the way."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    admitted = _on_a_thread(agent, login, "first")
    threads, files = set(threading.enumerate()), open_files()

    admitted += sum(_on_a_thread(agent, login, f"key {number}") for number in range(CYCLES))

    assert threads >= set(threading.enumerate())
    assert files == open_files()
    assert 10 * (CYCLES + 1) == admitted == net_at(redis_server.url)


def test_fifty_tasks_leave_nothing_behind(
    redis_server: RedisServer, make_agent: MakeAgent, nothing_left_over: None
) -> None:
    """Within one loop: as many tasks, threads and descriptors afterwards as before."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)

    async def serve() -> int:
        admitted = await _as_a_task(agent, login, "first")
        threads, before = set(threading.enumerate()), (len(asyncio.all_tasks()), open_files())

        for number in range(CYCLES):
            admitted += await _as_a_task(agent, login, f"key {number}")

        assert threads >= set(threading.enumerate())
        assert before == (len(asyncio.all_tasks()), open_files())
        return admitted

    admitted = asyncio.run(serve())

    assert 10 * (CYCLES + 1) == admitted == net_at(redis_server.url)


def test_fifty_agents_leave_nothing_behind(
    redis_server: RedisServer, make_agent: MakeAgent, nothing_left_over: None
) -> None:
    """Agents that were stopped are gone when nobody knows them any more."""
    _agent_that_has_stopped(redis_server, "first")
    threads, files = set(threading.enumerate()), open_files()

    agents = [_agent_that_has_stopped(redis_server, f"key {number}") for number in range(CYCLES)]
    gc.collect()

    assert threads >= set(threading.enumerate())
    assert files == open_files()
    assert [None] * CYCLES == [agent() for agent in agents]


def _on_a_thread(agent: Agent, login: RateLimiter, key: str) -> int:
    with agent:
        return introduce(login, key) + admitted_of(login, 9, key)


async def _as_a_task(agent: Agent, login: RateLimiter, key: str) -> int:
    async with agent:
        admitted = admitted_of(login, 1, key)
        await eventually_in_loop(lambda: heard(login, key), "the hub's answer")
        return admitted + admitted_of(login, 9, key)


def _agent_that_has_stopped(server: RedisServer, key: str) -> weakref.ref[Agent]:
    agent = Agent(server.url, sync_interval=0.02, exchange_timeout=5.0, stop_timeout=10.0)
    _on_a_thread(agent, agent.limit("login", NEVER_FULL), key)
    return weakref.ref(agent)
