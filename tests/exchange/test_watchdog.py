"""Goal: an exchange loop that is dead, held up or only raising is noticed, and begun again as far as it can be.

Method: a hub in memory that blocks the thread of the loop, a step that raises, and a thread that is ended from outside.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
from secrets import token_hex

import pytest

from reconverge import Agent
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL, exchange_threads
from tests.support.fixtures.agents import MakeAgent
from tests.support.waiting import eventually


class BlockingHub:
    """A hub that can be made to block the thread of whoever exchanges, past every timeout of an event loop."""

    def __init__(self) -> None:
        self._hub = MemoryHub()
        self.free = threading.Event()
        self.free.set()
        self.shards = 1

    async def exchange(self, batch: Batch) -> Answer:
        self.free.wait()
        return await self._hub.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        """Does nothing."""


def _said(agent: Agent, hub: MemoryHub) -> bool:
    return agent.stats().limits["login"].admitted == asyncio.run(hub.totals()).get("login", Totals(0, 0)).net


def test_a_loop_that_is_held_up_is_told_of_until_it_goes_on(make_agent: MakeAgent) -> None:
    """Health says for how long; when the call that blocks returns, the loop is well again by itself."""
    hub = BlockingHub()
    agent = make_agent(hub, exchange_timeout=0.01)
    agent.limit("login", NEVER_FULL).allow("ada")
    eventually(lambda: agent.health().state == "ready", "an answer")

    hub.free.clear()
    try:
        eventually(lambda: agent.stats().overdue > 0, "a loop that is late")
        health = agent.health()
    finally:
        hub.free.set()

    assert "degraded" == health.state
    assert "something holds it up" in health.grounds[-1]
    eventually(lambda: agent.health().state == "ready", "a loop that goes on")
    assert 0 == agent.stats().bugs


def test_a_loop_that_is_held_up_beyond_its_lease_is_partitioned(make_agent: MakeAgent) -> None:
    """It holds no allowances any more, and whoever asks is not told that it was starting."""
    hub = BlockingHub()
    hub.free.clear()
    agent = make_agent(hub, exchange_timeout=0.01)
    agent.limit("login", NEVER_FULL).allow("ada")

    try:
        eventually(lambda: agent.stats().overdue > 0, "a loop that is late")
        health = agent.health()
    finally:
        hub.free.set()

    assert "partitioned" == health.state


def test_a_loop_of_which_every_step_raises_is_begun_again_and_told_of(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once, counts how often, and exchanges again as soon as it can."""
    hub = MemoryHub()
    agent = make_agent(hub)
    login = agent.limit("login", NEVER_FULL)
    login.allow("ada")
    eventually(lambda: _said(agent, hub), "an exchange")

    def fail(now_ns: int) -> int:
        raise ZeroDivisionError

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR, logger="reconverge"):
        broken.setattr(agent._lifecycle.syncers[0], "due_ns", fail)
        eventually(lambda: agent.stats().restarts > 2, "restarts")
        health = agent.health()
    login.allow("bob")

    assert "degraded" == health.state
    assert "the last with ZeroDivisionError" in health.grounds[-1]
    eventually(lambda: _said(agent, hub) and agent.health().state == "ready", "exchanges")
    assert 0 == agent.stats().bugs_in_a_row
    assert 1 == sum("the exchange loop failed" in record.message for record in caplog.records)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_that_was_ended_from_outside_is_replaced(make_agent: MakeAgent) -> None:
    """A debugger or a task queue may raise in any thread; the next decision starts another one."""
    hub = MemoryHub()
    agent = make_agent(hub)
    login = agent.limit("login", NEVER_FULL)
    login.allow("ada")
    eventually(lambda: _said(agent, hub), "an exchange")
    (thread,) = exchange_threads()

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread._thread_id), ctypes.py_object(SystemExit))
    eventually(lambda: not thread.alive, "the end of the thread")
    login.allow("ada")

    eventually(lambda: _said(agent, hub), "an exchange on another thread")
    eventually(lambda: login.allow(token_hex(4)) and 1 == len(exchange_threads()), "one thread")
