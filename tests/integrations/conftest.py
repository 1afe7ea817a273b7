"""Guards whose time stands still; what tests leave behind is put away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.integrations import Guard
from reconverge.integrations.dropin import shared_agent
from reconverge.testing import ManualClock
from tests.support.applications.asking import ADA, HERE
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

START_S = 1_700_000_000.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=START_S)


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    """An agent that is alone, and so exact."""
    return Agent("memory://", clock=clock)


@pytest.fixture
def guard(agent: Agent) -> Guard:
    return Guard(agent)


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment in which the tests run says nothing."""
    for name in [name for name in os.environ if name.startswith("RECONVERGE_")]:
        if name != "RECONVERGE_NO_EXTENSIONS":
            monkeypatch.delenv(name)


@pytest.fixture
def used_up(redis_server: RedisServer) -> Iterator[str]:
    """The URL of a hub that knows of a node which has used up all of a limit, `requests`, for two clients."""
    with Agent(redis_server.url, sync_interval=0.01) as other:
        limiter = other.limit("requests", "5/hour")

        def uses_all(key: str) -> bool:
            limiter.allow(key)
            return limiter.usage(key).own == 5

        eventually(lambda: uses_all(ADA), "nothing is left for one")
        eventually(lambda: uses_all(HERE), "nothing is left for the other")
        exchanges = other.stats().exchanges[0].exchanges
        eventually(lambda: other.stats().exchanges[0].exchanges > exchanges + 1, "the hub has heard of it")
        yield redis_server.url


@pytest.fixture(autouse=True)
def _shared_agents_end() -> Iterator[None]:
    """Agents that adapters share live as long as the process does; those of a test live as long as it."""
    yield
    while shared_agent._agents:
        _, agent = shared_agent._agents.popitem()
        agent.stop()
