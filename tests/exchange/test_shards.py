"""Goal: shards go on independently of each other. Method: agents on a hub in memory, one shard of which is odd."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.servers import POLL_S
from tests.support.waiting import eventually, eventually_in_loop

SHARDS = 4
SILENT = 2
ROUNDS = 5
PATIENCE_S = 60.0


class SilentShardHub(MemoryHub):
    """Once it is told to, one of its shards does not answer, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(shards=SHARDS)
        self.odd = False
        self._fails = fails

    async def exchange(self, batch: Batch) -> Answer:
        """Wait until it is odd no more, if it is that shard."""
        if self.odd and batch.shard == SILENT:
            if self._fails:
                raise HubUnavailable("refused", "there is nobody", applied=False)
            while self.odd:  # noqa: ASYNC110  # the test that ends it is not in this loop
                await asyncio.sleep(POLL_S)
        return await super().exchange(batch)


def _keys(agent: Agent) -> list[str]:
    """One of each shard."""
    found: dict[int, str] = {}
    for number in range(1000):
        found.setdefault(agent._kernel.shard_of("login", f"key{number}").index, f"key{number}")
    return [found[shard] for shard in range(SHARDS)]


def _went_on(agent: Agent, keys: list[str], before: list[int]) -> bool:
    """Ask for each key, and see whether all shards but the silent one have exchanged several times more."""
    for key in keys:
        agent.limiter("login").allow(key)
    now = _exchanges(agent)
    return all(now[shard] >= before[shard] + ROUNDS for shard in range(SHARDS) if shard != SILENT)


def _exchanges(agent: Agent) -> list[int]:
    return [each.exchanges for each in agent.stats().exchanges]


def test_a_shard_that_does_not_answer_holds_up_no_other() -> None:
    """On a thread: for as long as it takes, the others exchange as if it were not there."""
    hub = SilentShardHub()
    agent = Agent(hub, sync_interval=0.01, exchange_timeout=PATIENCE_S, lease_ttl=600.0)
    agent.limit("login", "1000/hour")
    keys = _keys(agent)
    with agent:
        eventually(lambda: agent.ready, "all shards answer")
        hub.odd = True
        stands = _exchanges(agent)

        eventually(lambda: _went_on(agent, keys, stands), "the others go on")

        assert 1 >= _exchanges(agent)[SILENT] - stands[SILENT]
        hub.odd = False


async def test_nor_does_it_in_a_loop_of_the_applications() -> None:
    """The exchanges are a task there."""
    hub = SilentShardHub()
    agent = Agent(hub, sync_interval=0.01, exchange_timeout=PATIENCE_S, lease_ttl=600.0)
    agent.limit("login", "1000/hour")
    keys = _keys(agent)
    async with agent:
        await eventually_in_loop(lambda: agent.ready, "all shards answer")
        hub.odd = True
        stands = _exchanges(agent)

        await eventually_in_loop(lambda: _went_on(agent, keys, stands), "the others go on")

        assert 1 >= _exchanges(agent)[SILENT] - stands[SILENT]
        hub.odd = False


def test_a_decision_that_calls_for_an_exchange_does_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even to the pipe that wakes a loop: the loop checks by itself for such a call.

    The exchange begins at once, also beside a shard that does not answer, though the next regular one is far off.
    """
    hub = SilentShardHub()
    agent = Agent(hub, sync_interval=9.0, min_sync_interval=0.001, exchange_timeout=20.0)
    login = agent.limit("login", "1000/hour")
    mine, sent = threading.current_thread(), []
    send = socket.socket.send

    def listen(self: socket.socket, data: bytes) -> int:
        sent.append(threading.current_thread())
        return send(self, data)

    with agent:
        eventually(lambda: agent.ready, "all shards answer")
        hub.odd = True
        keys = _keys(agent)
        login.allow(keys[SILENT])
        eventually(lambda: agent._lifecycle.syncers[SILENT]._under_way, "the silent one is asked")
        before = agent.stats().exchanges[0].exchanges  # ahead of time, unless a regular one is due just now
        monkeypatch.setattr(socket.socket, "send", listen)

        login.allow(keys[0])

        assert mine not in sent
        eventually(lambda: agent.stats().exchanges[0].exchanges > before, "the new key is told of", 5.0)
        hub.odd = False


def test_an_outage_of_one_shard_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the others answer meanwhile, and which it is; and once, when it is over."""
    caplog.set_level(logging.WARNING, "reconverge")
    hub = SilentShardHub(fails=True)
    with Agent(hub, sync_interval=0.01) as agent:
        agent.limit("login", "1000/hour")
        keys = _keys(agent)
        eventually(lambda: agent.ready, "all shards answer")
        hub.odd = True
        stands = _exchanges(agent)
        eventually(lambda: _went_on(agent, keys, stands), "the others go on")
        eventually(lambda: agent.stats().exchanges[SILENT].failures_in_a_row > 3, "several failures")
        hub.odd = False
        eventually(lambda: _exchanges(agent)[SILENT] > stands[SILENT] + 1, "it answers again")

    said = [record.getMessage() for record in caplog.records]
    assert 2 == len(said), said
    assert f"is unavailable for keys of shard {SILENT} (refused: " in said[0]
    assert said[1].endswith("answers again")
