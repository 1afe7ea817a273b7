"""Guards whose time stands still."""

from __future__ import annotations

import pytest

from reconverge import Agent
from reconverge.integrations import Guard
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
