"""Guards whose time stands still; what tests leave behind is put away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.integrations import Guard
from reconverge.integrations.dropin import shared_agent
from reconverge.testing import ManualClock

START_S = 1_700_000_000.0


@pytest.fixture
def clock() -> ManualClock:
    """A clock of the test's own."""
    return ManualClock(start=START_S)


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    """An agent that is alone, and so exact."""
    return Agent("memory://", clock=clock)


@pytest.fixture
def guard(agent: Agent) -> Guard:
    """A guard with nothing but defaults."""
    return Guard(agent)


@pytest.fixture(autouse=True)
def _shared_agents_end() -> Iterator[None]:
    """Agents that adapters share live as long as the process does; those of a test live as long as it."""
    yield
    while shared_agent._agents:
        _, agent = shared_agent._agents.popitem()
        agent.stop()
