"""Goal: a forgotten `await`, a slot without its block, or a wrongly used result is reported, and does not admit all.

Method: tests use what each method returns as a truth value before any decision, and take results for other things.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from reconverge import Agent, Decision, RateLimiter
from reconverge.contracts.contracts import Contracts
from reconverge.integrations import Guard, PlainRequest
from reconverge.kernel.decision import Decision as PlainDecision
from reconverge.limiter.faces.rate_limiter import TESTS_ALONE
from reconverge.shedding import AdaptiveConcurrency, Stack

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


@pytest.mark.filterwarnings("error")
async def test_a_block_of_what_was_not_awaited_is_told(agent: Agent) -> None:
    """The error names the place of the `await`."""
    reserve: Any = agent.limit("login", "1/minute").reserve_async

    with pytest.raises(TypeError, match=r"write await, as in: async with await .*reserve_async\(\.\.\.\)"):
        async with reserve("ada", 1):
            pass


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
    assert iscoroutinefunction(RateLimiter.ask)


def test_a_slot_without_its_block_has_no_truth(agent: Agent) -> None:
    """Such a slot was never requested. Within its block and after it, a slot is true or false as before."""
    jobs = agent.concurrency("jobs", 1)
    with pytest.raises(TypeError, match=r"with limiter\.slot"):
        bool(jobs.slot("ada"))
    with jobs.slot("ada") as first, jobs.slot("ada") as second:
        held = bool(first), bool(second)

    assert (True, False) == held
    assert (False, False) == (bool(first), bool(second))


RESULTS: dict[str, tuple[Callable[[Agent], object], str]] = {
    "decision": (lambda agent: agent.limit("login", "1/minute").hit("ada"), "if not decision"),
    "reservation": (lambda agent: agent.limit("login", "1/minute").reserve("ada", 1), "if not reservation"),
    "slot": (lambda agent: agent.concurrency("jobs", 1).slot("ada"), "if not slot"),
    "decision by contracts": (lambda agent: Contracts(agent, PLANS).hit("ada"), "if not decision"),
    "admission": (lambda _: Stack(AdaptiveConcurrency()).enter("ada", "GET"), "if not admission"),
    "outcome": (lambda agent: Guard(agent).check(PlainRequest(client="192.0.2.1"), []), "if not outcome"),
    "health": (lambda agent: agent.health(), "if not health"),
    "usage": (lambda agent: agent.limit("login", "1/minute").usage("ada"), "usage.total > 90"),
}


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_is_compared_with_no_truth_and_ordered_beside_no_number(agent: Agent, result: str) -> None:
    """`result == False` would never hold, so that an `if` would let each request go on. It still equals itself."""
    make, remedy = RESULTS[result]
    made: Any = make(agent)
    with pytest.raises(TypeError, match="is compared with False; ") as equal:
        _ = made == False  # noqa: E712
    with pytest.raises(TypeError, match="is compared with 90; ") as ordered:
        _ = 90 < made

    assert remedy in str(equal.value)
    assert remedy in str(ordered.value)
    assert made == made  # noqa: PLR0124
    assert made != 0
    with pytest.raises(TypeError, match="not supported"):
        _ = made < "x"


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("method", METHODS)
def test_what_was_not_awaited_has_neither_block_nor_result(agent: Agent, method: str) -> None:
    """An attribute of the decision, or a block, shows the missing `await`, not a class of the inside."""
    made: Any = METHODS[method](agent)
    with pytest.raises(AttributeError, match=r"write await, as in: \(await .*\.\.\.\)\)\.allowed"):
        _ = made.allowed
    with pytest.raises(TypeError, match="write await, as in: async with await"), made:
        pass


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", METHODS)
def test_what_was_not_awaited_is_compared_with_no_truth(agent: Agent, method: str) -> None:
    """The comparison raises the same error as an `if`."""
    with pytest.raises(TypeError, match="write await"):
        [False].index(METHODS[method](agent))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Decision, PlainDecision])
def test_a_decision_is_no_sequence_and_no_block(kind: Any) -> None:
    """Both kernels raise the same error, which names the right way to write it."""
    decision = kind(True, 5, 4, 0.0, 60.0, 0.0)
    with pytest.raises(TypeError, match=r"a decision is one object; read its attributes, as in decision\.allowed"):
        _allowed, _retry_after = decision
    with pytest.raises(TypeError, match=r"no block; write: if decision, or .*limiter\.reserve"), decision:
        pass


def test_a_refused_reservation_that_is_settled_is_told_of_unless_the_caller_has_looked(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Settling a refused reservation means work without room, and is logged; settling it for 0 means no work."""
    login = agent.limit("settled-blindly", "8/minute")
    login.allow("ada", 8)
    login.reserve("ada", 8).settle(0)
    if not (looked := login.reserve("ada", 8)):
        looked.settle(5)
    assert "" == caplog.text

    login.reserve("ada", 8).settle(5)

    assert "'settled-blindly' has refused a block, which ran all the same" in caplog.text


def test_a_limit_that_is_only_tested_is_told_of(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """Such a limit admits all, and logs a warning. One that is asked in another way now and then logs none."""
    looked_at, gate = agent.limit("looked-at", "2/minute"), agent.limit("gate", "2/minute")
    looked_at.hit("ada")
    for _ in range(2 * TESTS_ALONE):
        looked_at.test("ada")
        gate.test("ada")

    assert 1 == len(caplog.records)
    assert "'gate' was asked 1000 times by test(), which charges nothing" in caplog.text
    assert "call allow(key) or hit(key)" in caplog.text


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
