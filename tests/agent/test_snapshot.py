"""Goal: what an agent tells about itself is true at that moment, stays as it was told, and keeps secrets.

Method: real agents, alone, on a Redis, and on one that asks for a password.
"""

from __future__ import annotations

import dataclasses

import pytest

from reconverge import Agent, UnknownHub
from tests.support.agents import NEVER_FULL, admitted_of, exchanges_of, introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SECRETS = ("ada-the-user", "open-sesame")
CREDENTIALS = ":".join(SECRETS)


def test_stats_count_decisions_and_not_cost() -> None:
    """By limit: how many were admitted, how many refused, and of how many keys."""
    agent = Agent("memory://")
    login = agent.limit("login", "10/year")
    agent.limit("search", "10/year")
    login.allow("ada", cost=7)
    login.allow("ada", cost=4)
    login.allow("bob", cost=10)

    stats = agent.stats()

    assert (2, 1, 2) == (stats.limits["login"].admitted, stats.limits["login"].refused, stats.limits["login"].keys)
    assert (0, 0, 0) == (stats.limits["search"].admitted, stats.limits["search"].refused, stats.limits["search"].keys)
    assert 2 == stats.keys


def test_a_snapshot_stays_as_it_was_taken() -> None:
    """Later decisions do not change it."""
    agent = Agent("memory://")
    login = agent.limit("login", "10/year")
    login.allow("ada")
    before = agent.stats()

    admitted_of(login, 5)
    agent.limit("search", "10/year")

    assert 1 == before.limits["login"].admitted
    assert ["login"] == list(before.limits)
    assert 6 == agent.stats().limits["login"].admitted


def test_a_snapshot_cannot_be_changed(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """None of its parts."""
    agent = make_agent(redis_server.url)
    introduce(agent.limit("login", NEVER_FULL))
    stats = agent.stats()

    for part in (stats, stats.limits["login"], stats.exchanges[0]):
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, 0)


def test_stats_tell_how_the_exchanges_go(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """How many were answered, how long that took, and how many failed in what way."""
    agent = make_agent(own_redis.url)
    introduce(agent.limit("login", NEVER_FULL))
    well = agent.stats().exchanges[0]
    own_redis.kill()
    eventually(lambda: agent.stats().exchanges[0].failures_in_a_row >= 2, "exchanges that fail")
    badly = agent.stats().exchanges[0]

    assert {} == well.failures
    assert 0 < well.exchanges <= well.cells + 1
    assert 0 < well.round_trip < float("inf")
    assert {"refused", "connection"} >= set(badly.failures)
    assert badly.staleness > well.staleness


def test_an_agent_is_ready_once_the_hub_has_answered(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """And not a moment before."""
    agent = make_agent(redis_server.url)
    assert not agent.ready

    agent.start()

    eventually(lambda: agent.ready, "the first answer")
    assert exchanges_of(agent) > 0


def test_an_agent_is_not_ready_any_more_when_its_lease_is_over(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """The hub has been silent for longer than lines are good for; and ready again when it answers."""
    agent = make_agent(own_redis.url, exchange_timeout=0.1, lease_ttl=0.5)
    with agent:
        eventually(lambda: agent.ready, "the first answer")
        own_redis.kill()

        eventually(lambda: not agent.ready, "the end of the lease")
        assert agent.stats().running

        own_redis.start()
        eventually(lambda: agent.ready, "an answer after the cut")


def test_an_agent_that_has_left_is_not_ready(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Its lines have gone back."""
    with make_agent(redis_server.url) as agent:
        eventually(lambda: agent.ready, "the first answer")

    assert not agent.ready


def test_an_agent_shows_its_hub_its_namespace_and_its_limits() -> None:
    """So that a log line tells which one it is."""
    agent = Agent("memory://", namespace="shop")
    agent.limit("search", "10/second")
    login = agent.limit("login", "5/minute")

    assert "Agent('memory://', namespace='shop', limits=['login', 'search'])" == repr(agent)
    assert "RateLimiter('login', 5/60s (sliding-window), policy=balanced)" == repr(login)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://{CREDENTIALS}@localhost:6379/0",
        f"rediss://{CREDENTIALS}@localhost:6379/0",
        f"redis+unix://{CREDENTIALS}@localhost/run/redis.sock",
    ],
)
def test_nothing_that_an_agent_shows_contains_a_secret(url: str) -> None:
    """Neither the password nor the user's name, in whatever can be printed of it."""
    agent = Agent(url)
    login = agent.limit("login", "5/minute")

    shown = [*_everything_shown_by(agent), repr(login), str(login.limit), repr(login.control.policy)]

    assert [] == [text for text in shown for secret in SECRETS if secret in text]
    assert "***@" in agent.stats().hub


def test_a_mistaken_url_is_reported_without_its_secret() -> None:
    """Also in the facts that the error carries."""
    with pytest.raises(UnknownHub) as caught:
        Agent(f"postgres://{CREDENTIALS}@localhost/0")

    shown = [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    assert [] == [text for text in shown for secret in SECRETS if secret in text]


def test_an_outage_is_logged_once_and_so_is_its_end(
    own_redis: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """However many exchanges fail meanwhile."""
    own_redis.kill()
    agent = make_agent(own_redis.url)

    with agent:
        eventually(lambda: agent.stats().exchanges[0].failures_in_a_row >= 5, "failures")
        own_redis.start()
        eventually(lambda: agent.ready, "the first answer")

    hub = agent.stats().hub
    unavailable, available = (record.getMessage() for record in caplog.records if record.name == "reconverge")
    assert unavailable.startswith(f"reconverge: the hub {hub} is unavailable (refused: ")
    assert unavailable.endswith("deciding from memory until it answers")
    assert f"reconverge: the hub {hub} answers again" == available


def _everything_shown_by(agent: Agent) -> list[str]:
    inner = [
        repr(part)
        for owner in (agent, agent._lifecycle, agent._lifecycle.exchanges, agent._lifecycle.hub)
        for part in vars(owner).values()
    ]
    return [repr(agent), str(agent), repr(agent.stats()), *inner]
