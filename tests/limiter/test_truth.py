"""Goal: a forgotten `await`, or a slot without its block, is an error, and no limit that admits all or nothing.

Method: the truth of what each method returns is asked before anything was decided.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from reconverge import Agent, Decision, RateLimiter
from reconverge.contracts.contracts import Contracts

PLANS: dict[str, Any] = {"plans": {"free": {"limits": {"api": "1/minute"}}}, "unknown": "free"}
METHODS: dict[str, Callable[[Agent], Coroutine[Any, Any, Any]]] = {
    "ask": lambda agent: agent.limit("login", "1/minute").ask("ada"),
    "wait": lambda agent: agent.limit("login", "1/minute").wait("ada"),
    "reserve_async": lambda agent: agent.limit("login", "1/minute").reserve_async("ada", 1),
    "acquire_async": lambda agent: agent.concurrency("jobs", 1).slot("ada").acquire_async(),
    "ask of contracts": lambda agent: Contracts(agent, PLANS).ask("ada"),
}


@pytest.fixture
def agent() -> Agent:
    return Agent("memory://")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("error")
def test_what_was_not_awaited_has_no_truth(agent: Agent, method: str) -> None:
    """Python's own coroutines are true. The error names the method; nothing more is warned of afterwards."""
    with pytest.raises(TypeError, match="write await") as raised:
        bool(METHODS[method](agent))

    assert method.partition(" ")[0] in str(raised.value)


async def test_it_is_a_coroutine_in_all_else(agent: Agent) -> None:
    """Tasks, gathers, timeouts and `inspect` take it as before, and it decides once."""
    login = agent.limit("login", "3/minute")
    first, second = await asyncio.gather(login.ask("ada"), asyncio.create_task(login.ask("ada")))
    third = await asyncio.wait_for(login.ask("ada"), 5.0)
    fourth: Decision = await login.ask("ada")

    assert [True, True, True, False] == [bool(each) for each in (first, second, third, fourth)]
    coroutine = login.wait("ada")
    assert inspect.isawaitable(coroutine)
    coroutine.close()
    assert asyncio.iscoroutinefunction(RateLimiter.ask)


def test_a_slot_without_its_block_has_no_truth(agent: Agent) -> None:
    """It was never requested; within the block and after it, it is true or false as before."""
    jobs = agent.concurrency("jobs", 1)
    with pytest.raises(TypeError, match=r"with limiter\.slot"):
        bool(jobs.slot("ada"))
    with jobs.slot("ada") as first, jobs.slot("ada") as second:
        held = bool(first), bool(second)

    assert (True, False) == held
    assert (False, False) == (bool(first), bool(second))


@pytest.mark.parametrize("truth", [True, False])
def test_a_decision_is_not_compared_with_true_or_false(agent: Agent, truth: bool) -> None:
    """`limiter.hit(key) == False` would never hold, and the limit would admit all."""
    decision = agent.limit("login", "1/minute").hit("ada")

    for compare in (decision.__eq__, decision.__ne__):
        with pytest.raises(TypeError, match="write: if decision"):
            compare(truth)
    with pytest.raises(TypeError, match="if not decision"):
        [truth].index(decision)  # type: ignore[arg-type]
    assert decision == decision  # noqa: PLR0124
    assert decision != agent.limit("login", "1/minute").hit("ada")
    assert 1 == ["ada", decision, None, 0].count(decision)
    assert {decision} == {decision, decision}
