"""Agents that are stopped with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from reconverge import Agent, Hub

MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent() -> Iterator[MakeAgent]:
    """Make agents at a brisk pace, which are stopped in the end."""
    with ExitStack() as agents:

        def make(hub: str | Hub, **settings: Any) -> Agent:
            defaults: dict[str, Any] = {"sync_interval": 0.02, "exchange_timeout": 5.0, "stop_timeout": 10.0}
            agent = Agent(hub, **(defaults | settings))
            agents.callback(agent.stop)
            return agent

        yield make
