"""Goal: an agent outlives its hub: it decides meanwhile, warns once, and recovers alone.

Method: agents with real loops, and a real Redis that is not there yet, is killed, hangs or forgets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from reconverge import Agent, RateLimiter
from tests.support.agents import net_at
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

QUOTA = 100


@pytest.fixture
def absent_redis(caplog: pytest.LogCaptureFixture) -> Iterator[RedisServer]:
    """A Redis that has not been started yet."""
    caplog.set_level(logging.WARNING, "reconverge")
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def present_redis(absent_redis: RedisServer) -> RedisServer:
    """A Redis that has been."""
    return absent_redis.start()


def test_a_hub_that_is_absent_at_the_start(absent_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A balanced agent decides within the cold allowance until the hub comes, and then all is made known there."""
    with Agent(absent_redis.url, namespace="shop", sync_interval=0.02) as agent:
        login = agent.limit("login", f"{QUOTA}/day")
        assert QUOTA == _admitted(login, 3 * QUOTA)
        eventually(lambda: _failures(agent).get("refused", 0) > 3, "several attempts")
        assert 0 == _admitted(login, QUOTA)
        assert not agent.ready

        absent_redis.start()

        eventually(lambda: agent.ready and net_at(absent_redis.url, namespace="shop") == QUOTA, "the hub knows")
        assert 0 == _admitted(login, QUOTA)
    assert ["is unavailable", "answers again"] == _said(caplog)


def test_a_strict_agent_admits_nothing_without_a_hub(
    absent_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no allowance; it gets one soon after the hub has come, and then admits all that there is, and no more."""
    with Agent(absent_redis.url, namespace="shop", sync_interval=0.02, policy="strict") as agent:
        login = agent.limit("login", f"{QUOTA}/day")
        assert 0 == _admitted(login, QUOTA)
        eventually(lambda: _failures(agent).get("refused", 0) > 3, "several attempts")
        assert 0 == _admitted(login, QUOTA)

        absent_redis.start()

        admitted = _Sum(login)
        eventually(lambda: admitted.after_some_more() == QUOTA, "all of the quota is admitted")
        assert QUOTA == admitted.after_some_more()
    assert QUOTA == net_at(absent_redis.url, namespace="shop")
    assert ["is unavailable", "answers again"] == _said(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_a_hub_that_is_killed_and_comes_back_empty(
    present_redis: RedisServer, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """Its data are rebuilt from what the agents say, and no agent admits what another one holds."""
    agents = [Agent(present_redis.url, namespace="shop", sync_interval=0.02, policy=policy) for _ in range(3)]
    limiters = [agent.limit("login", f"{QUOTA}/day") for agent in agents]
    admitted = [_Sum(limiter) for limiter in limiters]

    def so_far() -> int:
        return sum(each.now for each in admitted)

    # Keys that are new to all may be admitted by each in a balanced fleet; this one is not.
    for limiter in limiters:
        limiter.warm(["ada"])
    eventually(lambda: all(limiter.usage("ada").staleness < 1 for limiter in limiters), "all know the key")
    eventually(lambda: admitted[0].after(1) + admitted[1].after(1) > QUOTA // 4, "some is admitted")

    present_redis.kill()
    eventually(lambda: all(agent.stats().exchanges[0].failures_in_a_row > 1 for agent in agents), "all notice")
    for each in admitted:
        each.after_some_more()
    present_redis.start()

    eventually(lambda: net_at(present_redis.url, namespace="shop") == so_far(), "the hub knows again")
    for _ in range(20):
        for each in admitted:
            each.after_some_more()
    bound = agents[0]._policy.bound(QUOTA, nodes=3)
    assert QUOTA // 4 < so_far() <= QUOTA + bound
    for agent in agents:
        agent.stop()
    assert so_far() == net_at(present_redis.url, namespace="shop")
    assert [1, 1, 1] == [agent.stats().exchanges[0].rebirths for agent in agents]
    assert sorted(["is unavailable", "answers again"] * 3) == sorted(_said(caplog))


@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_data_that_are_wiped_under_the_agents(present_redis: RedisServer, policy: str) -> None:
    """Nothing fails, so only the generation tells them; everything is known again, and nothing is admitted twice."""
    agents = [Agent(present_redis.url, namespace="shop", sync_interval=0.02, policy=policy) for _ in range(3)]
    admitted = [_Sum(agent.limit("login", f"{QUOTA}/day")) for agent in agents]
    for agent in agents:
        agent.limiter("login").warm(["ada"])
    eventually(lambda: all(agent.limiter("login").usage("ada").staleness < 1 for agent in agents), "all know the key")
    eventually(lambda: sum(each.after(1) for each in admitted) > QUOTA // 2, "some is admitted")

    present_redis.command("FLUSHALL")

    eventually(
        lambda: [each.after(1) for each in admitted] and all(agent.stats().exchanges[0].rebirths for agent in agents),
        "all notice",
    )
    eventually(
        lambda: net_at(present_redis.url, namespace="shop") == sum(each.now for each in admitted), "all is known again"
    )
    for each in admitted:
        each.after_some_more()
    for agent in agents:
        agent.stop()
    total = sum(each.now for each in admitted)
    assert total <= QUOTA + agents[0]._policy.bound(QUOTA, nodes=3)
    assert total == net_at(present_redis.url, namespace="shop")
    assert [{}, {}, {}] == [_failures(agent) for agent in agents]


def test_a_hub_that_hangs(present_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """While a stopped process accepts connections and answers nothing, and when it then answers all at once."""
    with Agent(present_redis.url, namespace="shop", sync_interval=0.02, exchange_timeout=0.1) as agent:
        admitted = _Sum(agent.limit("login", "1000000/day"))
        eventually(lambda: admitted.after_some_more() and agent.ready, "an exchange")

        present_redis.pause()
        eventually(lambda: admitted.after_some_more() and _failures(agent).get("timeout", 0) > 2, "timeouts")
        present_redis.resume()

        eventually(lambda: not agent.stats().exchanges[0].failures_in_a_row, "an answer")
    assert admitted.now == net_at(present_redis.url, namespace="shop")
    assert ["is unavailable", "answers again"] == _said(caplog)
    assert {"timeout"} == set(_failures(agent))


def test_a_forgotten_script_is_no_failure(present_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """The hub teaches it to the server again, within the same exchange."""
    with Agent(present_redis.url, namespace="shop", sync_interval=0.02) as agent:
        admitted = _Sum(agent.limit("login", "1000000/day"))
        for times in range(1, 4):
            present_redis.command("SCRIPT", "FLUSH")
            eventually(partial(_exchanged, agent, 10 * times, admitted), "more exchanges")
    assert admitted.now == net_at(present_redis.url, namespace="shop")
    assert {} == _failures(agent)
    assert [] == caplog.records


class _Sum:
    """A limiter that is asked, and how much it has admitted so far."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.now = 0

    def after(self, times: int) -> int:
        """Ask so many times more."""
        self.now += _admitted(self._limiter, times)
        return self.now

    def after_some_more(self) -> int:
        """Ask for a part of the quota."""
        return self.after(QUOTA // 5)


def _admitted(limiter: RateLimiter, times: int) -> int:
    return sum(limiter.allow("ada") for _ in range(times))


def _exchanged(agent: Agent, times: int, admitted: _Sum) -> bool:
    """Whether there have been so many exchanges, of which requests are the reason."""
    admitted.after(1)
    return agent.stats().exchanges[0].exchanges >= times


def _failures(agent: Agent) -> dict[str, int]:
    return agent.stats().exchanges[0].failures


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the log about the hub, in two words each."""
    words = ("is unavailable", "answers again")
    said = [record.getMessage() for record in caplog.records if "uses a second agent" not in record.getMessage()]
    return [next(word for word in words if word in text) for text in said]
