"""Goal: whoever cancels the agent's task has it cancelled, whatever happens at that very moment.

Method: a hub that has the task cancelled just as it answers. In Python 3.11 whoever waits for the answer then swallows
the cancellation, and nobody cancels again.
"""

from __future__ import annotations

import asyncio

from reconverge import Agent
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL, admitted_of, exchange_threads
from tests.support.fixtures.agents import MakeAgent
from tests.support.waiting import eventually, eventually_in_loop


class CancellingHub(MemoryHub):
    """Has the agent's task cancelled at the moment of its first answer."""

    cancelled = False

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch)
        if not self.cancelled:
            self.cancelled = True
            for task in asyncio.all_tasks():
                if task.get_name() == "reconverge":
                    task.cancel()
        return answer


def test_a_cancellation_just_as_the_hub_answers_is_heeded(make_agent: MakeAgent) -> None:
    """The task ends, and with it `asyncio.run`, which waits for all tasks; what was left to say a thread says."""
    hub = CancellingHub()
    agent: Agent = make_agent(hub)
    login = agent.limit("login", NEVER_FULL)

    async def serve() -> int:
        await agent.__aenter__()
        admitted = admitted_of(login, 1)
        await eventually_in_loop(lambda: hub.cancelled and not agent.stats().running, "the end of the task")
        return admitted

    admitted = asyncio.run(serve()) + admitted_of(login, 9)

    eventually(
        lambda: exchange_threads() and admitted == asyncio.run(hub.totals())["login"].net, "all that was admitted"
    )
