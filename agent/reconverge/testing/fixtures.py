"""A pytest plug-in for tests of any application: a clock that stands still, limits that are off or count anew.

A `conftest.py` loads it:

pytest_plugins = ["reconverge.testing.fixtures"]
"""

# It is no plug-in that pytest finds by itself: then pytest would rewrite the assertions of all modules of this
# distribution in every project that has it installed, and load them whether a test wants the fixtures or not.

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from reconverge.agent.agent import Agent
from reconverge.clock import ManualClock
from reconverge.limiter.enforcement.switches import OFF, VARIABLE
from reconverge.runtime.process import living_agents

START_S: Final = 1_750_000_000.0
"""The beginning of `manual_clock`, in seconds since 1970: a Sunday in June 2025, 15:06:40 UTC."""


class _ReadClock(ManualClock):
    """A clock that notes whether something has read it."""

    read = False

    def monotonic_ns(self) -> int:
        self.read = True
        return super().monotonic_ns()


@pytest.fixture
def manual_clock() -> Iterator[ManualClock]:
    """Returns a clock that the test moves, for `Agent("memory://", clock=manual_clock)`.

    Warns after the test if the test has moved it and no agent has read it.
    """
    clock = _ReadClock(START_S)
    yield clock
    if not clock.read and clock.wall_ns() != ManualClock(START_S).wall_ns():
        warnings.warn(
            "the test has moved manual_clock, and no agent has it; write Agent('memory://', clock=manual_clock)",
            stacklevel=1,
        )


@pytest.fixture
def fresh_limits() -> None:
    """Makes existing agents forget all use of their limits, such as that of earlier tests; see `Agent.reset`."""
    for agent in living_agents():
        if isinstance(agent, Agent):
            agent.reset()


@pytest.fixture
def limits_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switches all limits off during the test: those of existing agents, and those of agents that the test makes.

    After the test each existing agent is switched as before. An agent that the test makes with a `switch` of its own
    keeps that switch.
    """
    monkeypatch.setenv(VARIABLE, OFF)
    with ExitStack() as switched_back:
        for agent in living_agents():
            if isinstance(agent, Agent):
                switched_back.callback(agent.switch, agent.switched)
                agent.switch(OFF)
        yield
