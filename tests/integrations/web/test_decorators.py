"""Goal: what no framework calls is limited by a decorator, whether it is a function, a method or a coroutine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconverge import Agent, InvalidKey, InvalidLimit, InvalidSetting
from reconverge.integrations import RateLimited
from reconverge.integrations.decorators import limited
from reconverge.testing import ManualClock
from tests.support.waiting import eventually, eventually_in_loop


def test_a_call_too_many_raises_with_the_decision(agent: Agent) -> None:
    """And the function is not called."""
    calls: list[str] = []

    @limited("2/minute", agent=agent, name="charge")
    def charge(customer: str) -> str:
        calls.append(customer)
        return customer

    assert ["ada", "bob"] == [charge("ada"), charge("bob")]
    with pytest.raises(RateLimited, match="'charge' is used up; try again in") as refused:
        charge("eve")
    assert ["ada", "bob"] == calls
    assert refused.value.decision is not None
    assert refused.value.retry_after == refused.value.decision.retry_after > 0


def test_calls_are_counted_by_what_they_are_given(agent: Agent) -> None:
    """Key and cost are functions of the arguments, of a method's with its object."""

    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @limited("10/minute", agent=agent, key=lambda shop, _amount: shop.name, cost=lambda _shop, amount: amount)
        def sell(self, amount: int) -> int:
            return amount

    one, two = Shop("one"), Shop("two")

    assert [6, 6] == [one.sell(6), two.sell(6)]
    with pytest.raises(RateLimited):
        one.sell(5)
    assert 4 == one.sell(4)


def test_whatever_has_to_be_awaited_waits_so(agent: Agent) -> None:
    """An object that is called like a coroutine function is one; a generator has nowhere to wait, and is told so."""

    class Fetch:
        async def __call__(self) -> str:
            return "fetched"

    async def stream() -> AsyncIterator[int]:
        yield 1

    fetch = limited("1/second", agent=agent, name="fetch", wait=True)(Fetch())

    assert "fetched" == asyncio.run(fetch())
    with pytest.raises(InvalidSetting, match="wait"):
        limited("1/second", agent=agent, wait=True)(stream)


async def test_coroutine_functions_stay_what_they_are(agent: Agent) -> None:
    """With their name and their docstring."""

    @limited("1/minute", agent=agent)
    async def fetch() -> str:
        """Fetches."""
        return "fetched"

    assert "fetched" == await fetch()
    with pytest.raises(RateLimited):
        await fetch()

    assert ("fetch", "Fetches.") == (fetch.__name__, fetch.__doc__)
    assert inspect.iscoroutinefunction(fetch)


async def test_a_call_can_wait_for_its_turn(clock: ManualClock) -> None:
    """In a coroutine, and on a thread; time passes only when it is told to."""
    agent = Agent("memory://", clock=clock)

    @limited("1/second", agent=agent, name="calls", key="all", wait=True)
    async def call() -> str:
        return "called"

    @limited(agent.limiter("calls"), key="all", wait=5.0)
    def call_blocking() -> str:
        return "called"

    await call()
    task = asyncio.create_task(call())
    await eventually_in_loop(lambda: agent.limiter("calls").control.table.listeners, "somebody waits")
    assert not task.done()
    clock.advance(2)
    assert "called" == (await task)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call_blocking)
        eventually(lambda: clock.advance(0.1) or waiting.done(), "its turn")  # type: ignore[func-returns-value]
        assert "called" == waiting.result()


def test_who_cannot_wait_long_enough_is_told_at_once(agent: Agent) -> None:
    """`wait` is the longest time, in seconds."""

    @limited("1/minute", agent=agent, wait=0.5)
    def call() -> None: ...

    call()
    with pytest.raises(RateLimited):
        call()


def test_a_call_without_a_key_is_a_mistake(agent: Agent) -> None:
    """There is nobody else it could be counted for."""

    @limited("1/minute", agent=agent, key=lambda name: name)
    def call(name: str | None) -> None: ...

    with pytest.raises(InvalidKey):
        call(None)


def test_a_long_key_is_hashed(agent: Agent) -> None:
    """Neither kept nor refused."""

    @limited("1/minute", agent=agent, name="calls", key=lambda name: name)
    def call(name: str) -> None: ...

    call("a" * 10_000_000)
    with pytest.raises(RateLimited):
        call("a" * 10_000_000)
    assert 100 > max(map(len, agent.limiter("calls").control.table.cells))


@pytest.mark.parametrize(
    ("arguments", "settings", "error"),
    [
        (("1/minute",), {"agent": None}, InvalidSetting),
        (("1 per fortnight",), {}, InvalidLimit),
        (("2/minute",), {"cost": 3}, InvalidSetting),
        (("1/minute",), {"wait": -1}, InvalidSetting),
        (("1/minute",), {"wait": "long"}, InvalidSetting),
        (("1/minute",), {"key": asyncio.sleep}, InvalidSetting),
    ],
)
def test_a_mistake_is_told_when_it_is_made(agent: Agent, arguments: Any, settings: Any, error: type[Exception]) -> None:
    """And not with the first call."""
    with pytest.raises(error):
        limited(*arguments, **{"agent": agent} | settings)(lambda: None)
