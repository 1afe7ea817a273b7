"""Goal: the exchange that a request asks for begins at once, whatever the driver waits for, and takes no grant away.

Method: a hub of two shards of which one does not answer, and a driver that does not look by itself; a hub that holds
back an answer until other requests have asked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from reconverge import Agent
from reconverge.clock import NEVER_NS
from reconverge.exchange import driver, exchanges
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.waiting import eventually, eventually_in_loop

PATIENT_S = 5.0
TURNS = 5
"""Of a loop; by then what was started in it has asked."""


class HalfDeaf(MemoryHub):
    """A hub of whose two shards the first does not answer about any key."""

    def __init__(self) -> None:
        super().__init__(shards=2)
        self.deaf = True
        self.holds = False
        """Whether a batch has come that it does not answer."""

    async def exchange(self, batch: Batch) -> Answer:
        while self.deaf and batch.shard == 0 and batch.cells:  # it is changed on another thread
            self.holds = True
            await asyncio.sleep(0.01)
        return await super().exchange(batch)


class Holding(MemoryHub):
    """A hub that holds back what it answers about keys, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.told_to_hold = self.holds = False

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch)
        while self.told_to_hold and batch.cells:
            self.holds = True
            await asyncio.sleep(0.001)
        return answer


@pytest.fixture
def hub() -> HalfDeaf:
    """A hub of two shards."""
    return HalfDeaf()


@pytest.fixture
def agent(hub: HalfDeaf, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent at that hub, with a driver that waits for a call."""
    monkeypatch.setattr(driver, "CALL_S", 3600.0)
    agent = Agent(hub, sync_interval=60.0, exchange_timeout=60.0)
    yield agent
    hub.deaf = False
    agent.stop()


def shard_of(agent: Agent, key: str) -> int:
    """Which of the two shards keeps a key."""
    return agent._kernel.shard_of("login", key).index


def writes_of_this_thread(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Lists the writes to sockets on the calling thread from now on."""
    written: list[bytes] = []
    caller, original = threading.get_ident(), socket.socket.send

    def send(self: socket.socket, data: bytes, *flags: int) -> int:
        if threading.get_ident() == caller:
            written.append(data)
        return original(self, data, *flags)

    monkeypatch.setattr(socket.socket, "send", send)
    return written


def test_an_ask_wakes_a_driver_that_waits_for_another_shard(agent: Agent) -> None:
    """Else it would be sent with the next look, which may come when the request has given up."""
    limiter = agent.limit("login", "5/minute")
    keys = [str(number) for number in range(50)]
    deaf = next(key for key in keys if shard_of(agent, key) == 0)
    heard = [key for key in keys if shard_of(agent, key) == 1]
    limiter.ask_blocking(heard[0], within=PATIENT_S)

    limiter.ask_blocking(deaf)
    answers = [limiter.ask_blocking(key, within=PATIENT_S) for key in heard[1:10]]

    assert all(answer.certain for answer in answers)
    assert 1 == agent.stats().limits["login"].asks.results["timeout"]


def test_asks_to_a_shard_that_answers_are_not_in_vain(agent: Agent) -> None:
    """Only requests about keys of the shard that left one unanswered do without it."""
    limiter = agent.limit("login", "5/minute")
    keys = [str(number) for number in range(50)]
    deaf = [key for key in keys if shard_of(agent, key) == 0]
    limiter.ask_blocking(deaf[0])

    for key in keys:
        limiter.ask_blocking(key, within=PATIENT_S)

    results = agent.stats().limits["login"].asks.results
    assert (1, len(deaf), len(keys) - len(deaf)) == (results["timeout"], results["in_vain"], results["admitted"])


def test_a_decision_writes_nothing_while_requests_of_other_threads_wait_for_the_hub(
    agent: Agent, hub: HalfDeaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that begins to wait has woken the driver; a decision of another thread only leaves a mark."""
    limiter = agent.limit("login", "5/minute")
    keys = [str(number) for number in range(60)]
    deaf, heard = ([key for key in keys if shard_of(agent, key) == shard] for shard in (0, 1))
    limiter.ask_blocking(heard[0], within=PATIENT_S)
    with ThreadPoolExecutor(2) as pool:
        asks = [pool.submit(limiter.ask_blocking, deaf[0], within=PATIENT_S)]
        eventually(lambda: hub.holds, "the hub has been asked about the first key")
        asks.append(pool.submit(limiter.ask_blocking, deaf[1], within=PATIENT_S))
        exchanges = agent._lifecycle.exchanges
        eventually(lambda: exchanges._asked_ns[0] < NEVER_NS, "the driver knows that another request waits")
        writes = writes_of_this_thread(monkeypatch)
        agent._kernel.wake()  # as a decision does that wants an exchange before the loop looks
        hub.deaf = False
        answers = [ask.result() for ask in asks]

    assert [] == writes
    assert all(answer.certain for answer in answers)


@pytest.mark.parametrize("in_its_loop", [True, False], ids=["task", "thread"])
async def test_what_an_answer_grants_is_not_given_back_before_requests_have_looked_at_it(
    in_its_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request that asks meanwhile calls for the next batch, which leaves when the answer has come.

    Of a key that is kept at the hub that batch gives back all that is not in use. It waits for the first request, which
    is admitted.
    """
    monkeypatch.setattr(exchanges, "LOOKS_S", (0.0,) * 10 + (0.01,) * 500)

    hub = Holding()
    async with AsyncExitStack() as stack:
        agents = [Agent(hub, sync_interval=60.0) for _ in range(2)]
        for each in agents:
            if in_its_loop:
                await stack.enter_async_context(each)
            else:
                stack.callback(each.stop)
        limiters = [each.limit("login", "4/hour") for each in agents]
        for limiter in limiters:
            await limiter.ask("known", within=PATIENT_S)
        hub.told_to_hold = True
        first = asyncio.create_task(limiters[0].ask("new", within=PATIENT_S))
        await eventually_in_loop(lambda: hub.holds, "the answer about the key is held back")
        more = [asyncio.create_task(limiters[0].ask("new", within=PATIENT_S)) for _ in range(2)]
        for _ in range(TURNS):
            await asyncio.sleep(0)
        hub.told_to_hold = False
        assert [True, True, True] == [answer.allowed for answer in await asyncio.gather(first, *more)]


async def test_a_driver_notes_that_it_is_run_while_a_batch_is_under_way_that_carries_asks() -> None:
    """A request that waits tells a hub that is silent from a runner that stands still."""
    hub = Holding()
    async with Agent(hub) as agent:
        limiter = agent.limit("login", "5/minute")
        (shard,) = agent._kernel.shards
        assert await limiter.ask("eve", within=PATIENT_S)
        assert shard.turned_ns == NEVER_NS
        hub.told_to_hold = True
        ask = asyncio.create_task(limiter.ask("ada", within=PATIENT_S))
        await eventually_in_loop(lambda: hub.holds, "a batch that is held back")
        turned_ns = shard.turned_ns
        assert turned_ns < NEVER_NS
        await eventually_in_loop(lambda: shard.turned_ns > turned_ns, "another turn")

        hub.told_to_hold = False
        assert await ask
        assert shard.turned_ns == NEVER_NS
