"""Goal: the exchange that a request asks for begins at once, whatever else the driver waits for.

Method: a hub of two shards of which one does not answer, and a driver that does not look by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.exchange import driver
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub

PATIENT_S = 5.0


class HalfDeaf(MemoryHub):
    """A hub of whose two shards the first does not answer about any key."""

    def __init__(self) -> None:
        super().__init__(shards=2)
        self.deaf = True

    async def exchange(self, batch: Batch) -> Answer:
        """See `Hub.exchange`."""
        while self.deaf and batch.shard == 0 and batch.cells:  # noqa: ASYNC110  # it is changed on another thread
            await asyncio.sleep(0.01)
        return await super().exchange(batch)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent at such a hub, with a driver that waits for a call."""
    monkeypatch.setattr(driver, "CALL_S", 3600.0)
    hub = HalfDeaf()
    agent = Agent(hub, sync_interval=60.0, exchange_timeout=60.0)
    yield agent
    hub.deaf = False
    agent.stop()


def test_an_ask_wakes_a_driver_that_waits_for_another_shard(agent: Agent) -> None:
    """Else it would be sent with the next look, which may come when the request has given up."""
    limiter = agent.limit("login", "5/minute")
    shard_of = {key: agent._kernel.shard_of("login", key).index for key in map(str, range(50))}
    deaf = next(key for key, index in shard_of.items() if index == 0)
    heard = [key for key, index in shard_of.items() if index == 1]
    limiter.ask_blocking(heard[0], within=PATIENT_S)

    limiter.ask_blocking(deaf)
    answers = [limiter.ask_blocking(key, within=PATIENT_S) for key in heard[1:10]]

    assert all(answer.certain for answer in answers)
    assert 1 == agent.stats().limits["login"].asks.results["timeout"]


def test_asks_to_a_shard_that_answers_are_not_in_vain(agent: Agent) -> None:
    """Only requests about keys of the shard that left one unanswered do without it."""
    limiter = agent.limit("login", "5/minute")
    keys = [str(number) for number in range(50)]
    deaf = [key for key in keys if agent._kernel.shard_of("login", key).index == 0]
    limiter.ask_blocking(deaf[0])

    for key in keys:
        limiter.ask_blocking(key, within=PATIENT_S)

    results = agent.stats().limits["login"].asks.results
    assert (1, len(deaf), len(keys) - len(deaf)) == (results["timeout"], results["in_vain"], results["admitted"])
