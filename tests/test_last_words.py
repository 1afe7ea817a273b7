"""Goal: an agent that has been stopped stays stopped.

Method: real loops and a hub in memory, and a cell that has been reported, so that the last words are the first thing
to stir it again.
"""

from __future__ import annotations

import asyncio

from reconverge import Agent
from reconverge_sync.memory import MemoryHub
from tests.servers import wait_until


def test_the_last_words_do_not_begin_another_thread() -> None:
    """Giving lines back wakes the loop, which is the one that is ending and not a new one."""
    agent = Agent(MemoryHub(), sync_interval=0.01)
    with agent:
        agent.limit("login", "100/hour").allow("ada")
        wait_until(lambda: _reported(agent), "the report of a key")

    assert not agent.stats().running
    assert 0 == agent.stats().bugs


def test_the_last_words_of_a_task_do_not_begin_a_thread() -> None:
    """Likewise when the exchanges were a task of the application's loop."""
    agent = Agent(MemoryHub(), sync_interval=0.01)

    async def serve() -> None:
        async with agent:
            agent.limit("login", "100/hour").allow("ada")
            await asyncio.to_thread(wait_until, lambda: _reported(agent), "the report of a key")

    asyncio.run(serve())

    assert not agent.stats().running
    assert 0 == agent.stats().bugs


def _reported(agent: Agent) -> bool:
    """Whether the hub has answered for the key, and there is nothing new to tell it."""
    cell = agent._kernel.tables["login"].cells["ada"]
    return cell.heard and not cell.stirred
