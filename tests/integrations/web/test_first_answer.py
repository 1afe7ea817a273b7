"""Goal: a request on a key that is new to its node can wait for the hub's first answer: once, and not for long.

Method: two nodes on one Redis; one has used a limit up, the other has never heard of the key. Or there is no hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.integrations.web.first_answer import cold_key, cold_s
from tests.support.applications.asking import ADA
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

REQUEST = PlainRequest(client=ADA)
LONG = "wait:10s"
"""Far more than an answer takes; only a failing test waits so long."""


@pytest.fixture
def used_up(redis_server: RedisServer) -> Iterator[str]:
    """The URL of a hub that knows of a node which has used up all of a limit for Ada."""
    with Agent(redis_server.url, sync_interval=0.01) as other:
        limiter = other.limit("requests", "5/hour")
        eventually(lambda: limiter.usage(ADA).staleness < 1, "the hub has answered")
        eventually(lambda: not limiter.allow(ADA), "nothing is left")
        exchanges = other.stats().exchanges[0].exchanges
        eventually(lambda: other.stats().exchanges[0].exchanges > exchanges + 1, "the hub has heard of it")
        yield redis_server.url


def test_what_the_others_have_used_is_known_to_who_waits(used_up: str) -> None:
    """In a coroutine, and on a thread; who does not wait is admitted on trust."""
    for cold, expected in (("decide", [True, True]), (LONG, [False, False])):
        answers: list[bool] = []
        for blocking in (True, False):
            with Agent(used_up, sync_interval=0.01) as agent:
                guard = Guard(agent, cold=cold)
                rule = guard.declare(Rule(limits="5/hour", name="requests"))
                answer = guard.check(REQUEST, [rule]) if blocking else asyncio.run(guard.check_async(REQUEST, [rule]))
                answers.append(bool(answer))

        assert expected == answers, cold


def test_others_are_served_while_one_waits() -> None:
    """The event loop goes on; without a hub the wait ends by itself."""

    async def ask() -> None:
        async with Agent(f"redis://127.0.0.1:{free_port()}/0") as agent:
            guard = Guard(agent, cold="wait:50ms")
            rule = guard.declare("5/hour")
            waiting = asyncio.create_task(guard.check_async(REQUEST, [rule]))
            turns = 0
            while not waiting.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns > 10
            assert waiting.result()

    asyncio.run(ask())


def test_one_waits_for_a_key_only_once() -> None:
    """A hub that does not answer holds up one request for each key, and not those that come later."""
    agent = Agent(f"redis://127.0.0.1:{free_port()}/0")
    limiter = agent.limit("requests", "5/hour")

    assert cold_key(limiter, ADA, 1.0) is not None
    assert None is cold_key(limiter, ADA, 1.0)
    agent.stop()


def test_who_is_alone_has_nothing_to_wait_for() -> None:
    """And whoever knows too many keys to remember another."""
    crowded = Agent(f"redis://127.0.0.1:{free_port()}/0", max_keys=1)
    limiter = crowded.limit("requests", "5/hour")
    limiter.allow("first")

    assert None is cold_key(Agent("memory://").limit("requests", "5/hour"), ADA, 1.0)
    assert None is cold_key(limiter, ADA, 1.0)
    crowded.stop()


def test_no_thread_with_an_event_loop_is_held_up() -> None:
    """Who decides without awaiting, in a coroutine, does not wait at all."""

    async def ask() -> bool:
        async with Agent(f"redis://127.0.0.1:{free_port()}/0") as agent:
            guard = Guard(agent, cold=LONG)
            return bool(guard.check(REQUEST, [guard.declare("5/hour")]))

    assert asyncio.run(asyncio.wait_for(ask(), 5))


@pytest.mark.parametrize(("cold", "expected"), [("decide", 0.0), ("wait:10ms", 0.01), ("wait:0.5s", 0.5)])
def test_how_long_is_said_with_its_unit(cold: str, expected: float) -> None:
    """In milliseconds or seconds."""
    assert expected == cold_s(cold)
