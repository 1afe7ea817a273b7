"""Goal: in an event loop an agent exchanges as a task of it, and survives whatever becomes of the loop.

Method: real loops, several of them, that end well or badly; a real Redis that knows what was admitted, and a pace at
which only last words can have said it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest

from reconverge import Agent
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.memory import MemoryHub
from tests.support.agents import (
    HOUR_S,
    NEVER_FULL,
    admitted_of,
    exchange_threads,
    exchanges_of,
    heard,
    net_at,
    node_of,
)
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually, eventually_in_loop


async def _introduce(agent: Agent, key: str = "ada") -> int:
    """Does as `introduce`, in the loop that exchanges."""
    login = agent.limit("login", NEVER_FULL)
    admitted = admitted_of(login, 1, key)
    await eventually_in_loop(lambda: heard(login, key), f"the hub's answer for {key}")
    return admitted


def test_the_loop_gets_a_task_and_no_thread(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The agent's work in the background is part of the application's own loop, until the block ends."""
    agent = make_agent(redis_server.url)

    async def serve() -> tuple[int, int]:
        async with agent:
            await _introduce(agent)
            inside = _exchange_tasks()
            assert [] == exchange_threads()
            assert agent.stats().running
        return inside, _exchange_tasks()

    assert (1, 0) == asyncio.run(serve())
    assert not agent.stats().running


def test_an_agent_lives_through_successive_loops(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Each time under a new name and over new connections; nothing is lost or doubled on the way."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)
    names: list[str] = []

    async def serve(key: str) -> int:
        async with agent:
            names.append(node_of(agent))
            return await _introduce(agent, key) + admitted_of(agent.limiter("login"), 9, key)

    admitted = [asyncio.run(serve(key)) for key in ("ada", "bob", "eve")]

    assert [10, 10, 10] == admitted
    assert 30 == net_at(redis_server.url)
    assert 3 == len(set(names))


def test_a_thread_that_was_there_first_makes_way(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """A decision before the loop began has started a thread; the task takes over from it, and nothing is lost."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)
    login = agent.limit("login", NEVER_FULL)
    admitted = admitted_of(login, 10)

    async def serve() -> int:
        async with agent:
            await eventually_in_loop(lambda: not exchange_threads(), "the end of the thread")
            met = await _introduce(agent, "bob")
            # The thread's last report may have been about bob, too: then the node gets no allowance with the answer.
            await eventually_in_loop(lambda: login.allow("bob", 9), "an allowance for the task's own name")
            return met + 9

    admitted += asyncio.run(serve())

    assert 20 == admitted == net_at(redis_server.url)
    assert 0 == agent.stats().bugs


def test_decisions_after_the_loop_go_on_with_a_thread(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The first of them starts it, as at the beginning."""
    agent, before = make_agent(redis_server.url), exchange_threads()

    async def serve() -> int:
        async with agent:
            return await _introduce(agent)

    admitted = asyncio.run(serve()) + admitted_of(agent.limiter("login"), 1, "bob")

    assert 1 == len([thread for thread in exchange_threads() if thread not in before])
    eventually(lambda: admitted == net_at(redis_server.url), "all that was admitted")


def test_nothing_is_lost_when_decisions_fall_into_the_end_of_the_block(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Other threads decide while the loop says its last words; whoever exchanges then is the only one."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    ended = threading.Event()

    def decide(key: str) -> int:
        admitted = 0
        while not ended.is_set():
            admitted += admitted_of(login, 20, key)
        return admitted

    async def serve() -> int:
        async with agent:
            return await _introduce(agent)

    with ThreadPoolExecutor(2) as pool:
        deciding = [pool.submit(decide, key) for key in ("bob", "eve")]
        introduced = sum(asyncio.run(serve()) for _ in range(10))
        ended.set()
    agent.stop()

    assert introduced + sum(decided.result() for decided in deciding) == net_at(redis_server.url)
    assert 0 == agent.stats().bugs
    assert {} == agent.stats().exchanges[0].failures


def test_a_second_loop_is_refused_while_the_first_one_runs(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The message says what to do instead; the first loop is not disturbed."""
    agent = make_agent(redis_server.url)

    async def enter() -> None:
        async with agent:
            raise AssertionError("two loops exchange")

    async def serve() -> str:
        async with agent:
            with pytest.raises(RuntimeError) as caught:
                await asyncio.to_thread(asyncio.run, enter())
            await _introduce(agent)
        return str(caught.value)

    assert (
        "this agent already exchanges with the hub in another running event loop; make one agent for each loop"
        == asyncio.run(serve())
    )


def test_a_block_of_each_request_is_told_of(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The loop is the same, and the advice to make an agent for each loop would mislead."""
    agent = make_agent(redis_server.url)

    async def request() -> None:
        async with agent:
            await asyncio.sleep(0)

    async def serve() -> str:
        async with agent:
            with pytest.raises(RuntimeError) as caught:
                await asyncio.create_task(request())
        return str(caught.value)

    assert "in a task of this event loop; write `async with agent` once" in asyncio.run(serve())


def test_a_block_within_the_block_is_refused(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Its end would be the end of the outer one, too."""
    agent = make_agent(redis_server.url)

    async def serve() -> None:
        async with agent:
            with pytest.raises(RuntimeError, match="already exchanges"):
                await agent.__aenter__()
            await _introduce(agent)

    asyncio.run(serve())


def test_starting_a_thread_beside_a_running_task_does_nothing(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """It exchanges already."""
    agent = make_agent(redis_server.url)

    async def serve() -> None:
        async with agent:
            agent.start()

            assert [] == exchange_threads()

    asyncio.run(serve())


def test_nobody_leaves_and_nothing_is_lost(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """A framework may enter the block at its start and never leave it: the next stop says what is left to say."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)

    async def serve() -> int:
        await agent.__aenter__()
        return await _introduce(agent) + admitted_of(agent.limiter("login"), 9)

    admitted = asyncio.run(serve())
    agent.stop()

    assert 10 == admitted == net_at(redis_server.url)


def test_a_loop_that_nobody_left_is_replaced_by_a_thread(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The first decision after its end starts it, also about a key with room enough and something left to report."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)

    async def serve() -> int:
        await agent.__aenter__()
        return await _introduce(agent) + admitted_of(agent.limiter("login"), 9)

    admitted = asyncio.run(serve()) + admitted_of(agent.limiter("login"), 1)

    assert 1 == len(exchange_threads())
    agent.stop()
    assert 11 == admitted == net_at(redis_server.url)


def test_when_all_tasks_are_cancelled_the_end_of_the_block_still_speaks(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """A signal ends an application so: the agent's own task is cancelled before the block that it belongs to ends."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)
    admitted = 0

    async def serve() -> None:
        nonlocal admitted
        async with agent:
            admitted = await _introduce(agent) + admitted_of(agent.limiter("login"), 9)
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(HOUR_S)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(serve())

    assert 10 == admitted == net_at(redis_server.url)


def test_a_loop_closed_in_the_midst_of_an_exchange_blocks_nobody(make_agent: MakeAgent) -> None:
    """The next runner gives back what was under way, and not the decision that calls for it."""
    hub = DeafHub()
    agent = make_agent(hub)
    login = agent.limit("login", NEVER_FULL)

    async def serve() -> None:
        await agent.__aenter__()
        login.allow("ada")
        await eventually_in_loop(lambda: hub.asked, "an exchange under way")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve())
    loop.close()
    hub.deaf = False
    _decide_on_another_thread(lambda: login.allow("ada"))

    eventually(lambda: 2 == hub.net("login"), "both admissions")
    assert 0 == agent.stats().bugs
    agent.stop()
    _forget_the_closed_loop()


def test_a_loop_closed_with_something_left_to_say_is_noticed(make_agent: MakeAgent) -> None:
    """Nobody attends any more, and no decision is the first to have something to say: in the end one calls out."""
    hub = DeafHub()
    agent = make_agent(hub, exchange_timeout=0.01)
    login = agent.limit("login", NEVER_FULL)

    async def serve() -> None:
        await agent.__aenter__()
        login.allow("ada")
        await eventually_in_loop(lambda: hub.asked, "an exchange under way")
        login.allow("bob")  # is noted down, and this loop will not come back to it

    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve())
    loop.close()
    hub.deaf = False

    eventually(lambda: login.allow(token_hex(4)) and exchange_threads(), "a thread")
    agent.stop()
    assert hub.net("login") == agent.stats().limits["login"].admitted
    _forget_the_closed_loop()


def test_stopping_where_the_loop_rests_runs_it_to_the_last_words(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """A script may run its loop only now and then; a plain `stop` outside is as good as the end of the block."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)

    async def begin() -> int:
        await agent.__aenter__()
        return await _introduce(agent)

    loop = asyncio.new_event_loop()
    admitted = loop.run_until_complete(begin()) + admitted_of(agent.limiter("login"), 9)
    agent.stop()

    assert 10 == admitted == net_at(redis_server.url)
    loop.close()


def test_stopping_from_another_thread_waits_for_the_last_words(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """They are said in the loop, and known to the hub when `stop` returns."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)

    async def serve() -> tuple[int, int]:
        async with agent:
            admitted = await _introduce(agent) + admitted_of(agent.limiter("login"), 9)
            await asyncio.to_thread(agent.stop)
            return admitted, await asyncio.to_thread(net_at, redis_server.url)

    assert (10, 10) == asyncio.run(serve())


def test_stopping_within_the_loop_waits_for_nothing(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """It could only wait for itself; the end of the block does the waiting."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)

    async def serve() -> int:
        async with agent:
            admitted = await _introduce(agent) + admitted_of(agent.limiter("login"), 9)
            exchanges = exchanges_of(agent)
            agent.stop()
            assert exchanges == exchanges_of(agent)
            return admitted

    assert 10 == asyncio.run(serve()) == net_at(redis_server.url)


class DeafHub:
    """A hub in memory that can be made to let exchanges wait for ever."""

    def __init__(self) -> None:
        self._hub = MemoryHub()
        self.deaf = True
        self.asked = False
        self.shards = 1

    async def exchange(self, batch: Batch) -> Answer:
        self.asked = True
        if self.deaf:
            await asyncio.Event().wait()
        return await self._hub.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        """Does nothing."""

    def net(self, limit: str) -> int:
        """Returns the admissions that it knows of."""
        return asyncio.run(self.totals()).get(limit, Totals(0, 0)).net


def _exchange_tasks() -> int:
    return sum(task.get_name() == "reconverge" for task in asyncio.all_tasks())


def _decide_on_another_thread(decide: Callable[[], bool]) -> None:
    """So that a decision that never comes back fails its test, and does not hold it up."""
    answers: list[bool] = []
    threading.Thread(target=lambda: answers.append(decide()), daemon=True).start()
    eventually(lambda: [True] == answers, "the decision")


def _forget_the_closed_loop() -> None:
    """Closing a loop under its tasks leaves them to the garbage collector; here and not in some other test."""
    gc.collect()


@pytest.mark.parametrize("follower", ["_erasing", "_publishing"])
async def test_a_follower_looks_at_the_hub_in_its_own_task(follower: str) -> None:
    """Another task might not have begun when the loop ends, and Python would warn of a coroutine never awaited."""
    hub = MemoryHub()
    node = Agent(hub)
    node.limit("login", NEVER_FULL).allow("ada")

    looks = asyncio.create_task(getattr(node, follower).follow(hub, cut_off=False, timeout_s=HOUR_S))
    await asyncio.sleep(0)

    assert set() == asyncio.all_tasks() - {looks, asyncio.current_task()}
    await looks
