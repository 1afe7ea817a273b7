"""Goal: calls that block wait for their turn in a notebook, whose cells run in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reconverge import Agent, RateLimiter
from reconverge.integrations.clients.outgoing import Outgoing
from reconverge.integrations.decorators import limited
from reconverge.integrations.web.outcome import RateLimited

PACED = "100/second"


def by_client(limiter: RateLimiter, timeout: float) -> bool:
    return bool(Outgoing(limiter, timeout=timeout).admit_blocking("server"))


def by_function(limiter: RateLimiter, timeout: float) -> bool:
    try:
        return limited(limiter, key="server", wait=timeout)(lambda: True)()
    except RateLimited:
        return False


@pytest.mark.parametrize("call", [by_client, by_function])
def test_a_call_in_a_running_loop_waits_for_its_turn(
    call: Callable[[RateLimiter, float], bool], caplog: pytest.LogCaptureFixture
) -> None:
    """Also while a coroutine of that loop, which cannot go on, is first in the queue. One warning shows where."""

    async def cell() -> None:
        limiter = Agent("memory://").limit("api", PACED, algorithm="sliding-log")
        for _ in range(100):
            limiter.hit("server")
        first = asyncio.ensure_future(limiter.wait("server", timeout=60))
        await asyncio.sleep(0)

        assert call(limiter, 60.0)
        assert call(limiter, 60.0)
        assert await first

        slow = Agent("memory://").limit("slow", "1/hour")
        assert slow.allow("server")
        assert not call(slow, 0.0)

    asyncio.run(cell())
    assert 1 == caplog.text.count("'api' waits on the thread of an event loop")
