"""A console in front of a hub in memory, and a browser that has not signed in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.integrations.console import console
from reconverge_sync.memory import MemoryHub
from tests.support.console import TOKENS, Browser
from tests.support.fixtures.agents import MakeAgent

SECRET = "a-secret-of-the-fleet-that-is-long"  # noqa: S105  # a test's own


@pytest.fixture
def hub() -> MemoryHub:
    """Where the nodes of the tests meet."""
    return MemoryHub()


@pytest.fixture
def agent(hub: MemoryHub, make_agent: MakeAgent) -> Agent:
    """The agent that the console is mounted beside; it obeys published settings."""
    made: Agent = make_agent(hub, namespace="shop", settings_secret=SECRET)
    made.limit("login", "2/hour", policy="strict")
    return made


@pytest.fixture
def client(agent: Agent) -> Iterator[Browser]:
    """A browser that has not signed in, at a console with tokens and switches."""
    with Browser(console(agent, tokens=TOKENS, settings_secret=SECRET)) as client:
        yield client
