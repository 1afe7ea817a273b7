"""Goal: what interrupts a thread in the midst of the agent's work, and decides or raises there, leaves nothing behind.

Method: signal handlers and finalizers run between two instructions. So at each instruction in turn of what the calling
thread executes outside of the kernel, either an exception is raised or another decision is made.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from secrets import token_hex
from types import ModuleType
from typing import Any

import pytest

from reconverge import Agent, RateLimiter
from reconverge.agent import agent
from reconverge.exchange import driver, ownership, task_runner, thread_runner
from reconverge.hub.report import Totals
from reconverge.limiter.waiting import queue, waiters
from reconverge.runtime import event_loop, process, threads
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL
from tests.support.effort import tried
from tests.support.fixtures.agents import MakeAgent
from tests.support.opcodes import Interrupted, interrupted_at, raise_interrupted
from tests.support.threads import running_threads
from tests.support.waiting import eventually

RUNNERS = (agent, thread_runner, task_runner, ownership, driver, threads, process, event_loop)
"""Where runners are started, woken and stopped."""
QUEUES = (waiters, queue, threads)
"""Where those stand who wait."""
BEGIN_NS = 30_000_000
"""Instead of two seconds: how long a launch may take that was interrupted."""
RAISES_OR_DECIDES = pytest.mark.parametrize(
    "handler", [lambda _: raise_interrupted(), lambda login: login.allow("eve")], ids=["raises", "decides"]
)


@pytest.fixture(autouse=True)
def _launches_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_runner, "BEGIN_NS", BEGIN_NS)


def _net(hub: MemoryHub) -> int:
    return asyncio.run(hub.totals()).get("login", Totals(0, 0)).net


def _said(made: Agent, hub: MemoryHub) -> bool:
    """Whether the hub knows all that was admitted."""
    return made.stats().limits["login"].admitted == _net(hub)


def _started_and_said(made: Agent, hub: MemoryHub) -> bool:
    made.start()
    return _said(made, hub)


def _all_instructions(
    act: Callable[[Agent, RateLimiter], object],
    handler: Callable[[RateLimiter], object],
    make_agent: MakeAgent,
    *,
    started: bool = False,
    every: int = 1,
) -> Iterator[tuple[Agent, MemoryHub]]:
    """Interrupt `act` at one instruction after another, or one of so many, each time with another agent."""
    for at in itertools.count(0, every):
        hub = MemoryHub()
        made = make_agent(hub, sync_interval=0.01)
        login = made.limit("login", NEVER_FULL)
        if started:
            login.allow("bob")
            eventually(lambda: _started_and_said(made, hub), "the first exchange")  # noqa: B023  # it is called here
        reached = _reached(at, RUNNERS, lambda: act(made, login), lambda: handler(login))  # noqa: B023  # likewise
        yield made, hub
        made.stop()
        if not reached:
            assert at > 10
            return


def _reached(
    at: int, modules: tuple[ModuleType, ...], act: Callable[[], object], handler: Callable[[], object]
) -> bool:
    """Whether `act` has so many instructions in these modules; at that one `handler` interrupts it, on a thread."""
    found: list[bool] = []

    def interrupt() -> None:
        found.append(True)
        handler()

    def run() -> None:
        with suppress(Interrupted):
            interrupted_at(at, act, interrupt, tuple(str(module.__file__) for module in modules))

    _on_another_thread(run)
    return bool(found)


def _on_another_thread(act: Callable[[], object]) -> None:
    """So that what never comes back fails its test, and does not hold it up."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(30.0)
    if thread.is_alive():
        raise AssertionError(f"hangs in {sys._current_frames()[thread.ident or 0]}")


@pytest.mark.slow
@RAISES_OR_DECIDES
def test_a_start_that_is_interrupted_leaves_one_thread(
    handler: Callable[[RateLimiter], object], make_agent: MakeAgent
) -> None:
    """Never two, and never none for ever: later decisions get a thread, which tells the hub of all."""
    for made, hub in _all_instructions(lambda made, _: made.start(), handler, make_agent, every=tried(3, long=1)):
        login = made.limiter("login")

        eventually(lambda: login.allow(token_hex(4)) and _said(made, hub), "an exchange")  # noqa: B023  # called here
        eventually(lambda: 1 == len(running_threads()), "one thread")
        assert 0 == made.stats().bugs


@pytest.mark.slow
@RAISES_OR_DECIDES
def test_a_stop_that_is_interrupted_can_be_made_good(
    handler: Callable[[RateLimiter], object], make_agent: MakeAgent
) -> None:
    """The next stop ends all threads, and the hub knows everything."""
    for made, hub in _all_instructions(lambda made, _: made.stop(), handler, make_agent, started=True):
        made.stop()

        eventually(lambda: [] == running_threads(), "the end of all threads")
        assert _said(made, hub)
        assert 0 == made.stats().bugs


def test_a_wake_up_that_is_interrupted_by_another_one_waits_for_nothing(make_agent: MakeAgent) -> None:
    """A finalizer decides about a new key while its thread wakes the loop for another new key."""
    for made, hub in _all_instructions(
        lambda made, _: made._lifecycle.wake(), lambda login: login.allow("eve"), make_agent, started=True
    ):
        eventually(lambda: _said(made, hub), "an exchange")  # noqa: B023  # called here


HANDLERS: dict[str, Callable[[RateLimiter], Any]] = {
    "raises": lambda _: raise_interrupted(),
    "gives back": lambda login: login.refund("bob"),
    "resets": lambda login: login.reset("eve"),
    "waits": lambda login: login.wait_blocking("ada", timeout=0.001),
}


def _asked_before_and_after_a_reset(login: RateLimiter) -> Iterator[bool]:
    yield login.wait_blocking("ada", timeout=0.0).allowed
    login.reset("ada")
    yield login.wait_blocking("ada", timeout=10.0).allowed


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
def test_waiting_that_is_interrupted_leaves_nobody_in_the_queue(handler: str) -> None:
    """Whoever comes afterwards is first, and gets through as soon as there is room."""
    node = Agent(MemoryHub())
    node._lifecycle.ended = True  # it never hears of the hub; whoever waits hopes for others until the end
    for at in itertools.count(0, tried(3, long=1)):
        login = node.limit(f"login{at}", "10/hour")
        while login.allow("ada"):
            pass

        reached = _reached(
            at,
            QUEUES,
            lambda: login.wait_blocking("ada", timeout=0.001),  # noqa: B023  # it is called here
            lambda: HANDLERS[handler](login),  # noqa: B023  # likewise
        )
        answers: list[bool] = []
        _on_another_thread(lambda: answers.extend(_asked_before_and_after_a_reset(login)))  # noqa: B023

        assert [False, True] == answers, f"after {at} instructions"
        if not reached:
            assert at > 10
            return
