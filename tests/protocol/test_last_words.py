"""Goal: an agent that has been stopped stays stopped.

Method: real loops and a hub in memory, and a cell that has been reported, so that the last words are the first thing
to stir it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from reconverge import Agent
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.memory import MemoryHub
from tests.support.opcodes import Interrupted
from tests.support.servers import wait_until


def test_the_last_words_do_not_begin_another_thread() -> None:
    """Giving allowances back wakes the loop, which is the one that is ending and not a new one."""
    agent = Agent(MemoryHub(), sync_interval=0.01)
    with agent:
        agent.limit("login", "100/hour").allow("ada")
        wait_until(lambda: _reported(agent), "the report of a key")

    assert not agent.stats().running
    assert 0 == agent.stats().bugs


async def test_the_last_words_of_a_task_do_not_begin_a_thread() -> None:
    """Likewise when the exchanges were a task of the application's loop."""
    agent = Agent(MemoryHub(), sync_interval=0.01)

    async with agent:
        agent.limit("login", "100/hour").allow("ada")
        await asyncio.to_thread(wait_until, lambda: _reported(agent), "the report of a key")

    assert not agent.stats().running
    assert 0 == agent.stats().bugs


class SlowHub(MemoryHub):
    """Answers only when it may; until then an exchange is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    async def exchange(self, batch: Batch) -> Answer:
        self.asked.set()
        await asyncio.to_thread(self.may_answer.wait)
        return await super().exchange(batch)


def test_last_words_whose_waiting_was_interrupted_are_said_by_one_loop() -> None:
    """A signal that raises leaves the thread alone, though an older Python takes it for dead then."""
    hub = SlowHub()
    agent = Agent(hub, sync_interval=0.01, exchange_timeout=60.0)
    agent.limit("login", "100/hour").allow("ada")
    wait_until(hub.asked.is_set, "an exchange under way")

    with pytest.raises(Interrupted), _signals_while_waiting():
        agent.stop(60.0)
    hub.may_answer.set()
    agent.stop(60.0)

    assert 0 == agent.stats().bugs
    assert not agent.stats().running
    assert {"login": Totals(1, 0)} == asyncio.run(hub.totals())


@contextlib.contextmanager
def _signals_while_waiting() -> Iterator[None]:
    """Interrupts the main thread, by raising Interrupted, as soon as it waits for another one."""
    raised = threading.Event()

    def interrupt(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name in ("wait", "_wait_for_tstate_lock") and not raised.is_set():
            raised.set()
            raise Interrupted

    def insist() -> None:
        while not raised.wait(0.001):
            signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    insisting = threading.Thread(target=insist)
    insisting.start()
    try:
        yield
    finally:
        raised.set()
        insisting.join()
        signal.signal(signal.SIGUSR1, before)


def _reported(agent: Agent) -> bool:
    """Whether the hub has answered for the key, and there is nothing new to tell it."""
    cell = agent._kernel.tables["login"].cells["ada"]
    return cell.heard and not cell.dirty
