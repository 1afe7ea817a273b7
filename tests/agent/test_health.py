"""Goal: a readiness probe is told how well the agent can decide, and why not better.

Method: a real Redis that comes late, goes, and comes back; the same snapshot on both sides of each edge.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge.exchange.syncer import SyncerStats
from reconverge.stats import AgentStats, health_of
from tests.support.agents import introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

SHARD = SyncerStats(
    node="a.0",
    exchanges=1,
    early=0,
    cells=1,
    failures={},
    failures_in_a_row=0,
    rebirths=0,
    lapses=0,
    round_trip=0.001,
    clock_error=0.0,
    staleness=0.1,
    lease=30.0,
)
"""A shard with which all is well."""


def snapshot(*shards: SyncerStats, keys: int = 0, running: bool = True) -> AgentStats:
    return AgentStats("redis://", running, "pure", keys, {}, shards, 0)


@pytest.mark.parametrize(
    ("state", "shards", "running"),
    [
        ("ready", (), False),
        ("ready", (SHARD,), True),
        ("ready", (SHARD,), False),
        ("degraded", (replace(SHARD, failures_in_a_row=1, failing="timeout"),), True),
        ("degraded", (replace(SHARD, failures_in_a_row=1, lease=0.001),), True),
        ("partitioned", (replace(SHARD, failures_in_a_row=1, lease=0.0),), True),
        ("starting", (replace(SHARD, exchanges=0, lease=0.0),), True),
        ("starting", (replace(SHARD, exchanges=0, lease=0.0),), False),
        ("degraded", (SHARD, replace(SHARD, failures_in_a_row=2)), True),
        ("partitioned", (replace(SHARD, failures_in_a_row=2), replace(SHARD, failures_in_a_row=9, lease=0.0)), True),
    ],
)
def test_the_worst_shard_counts(state: str, shards: tuple[SyncerStats, ...], running: bool) -> None:
    """And there are grounds for whatever is not as it should be, naming the shard."""
    health = health_of(snapshot(*shards, running=running), keys_max=100)

    assert state == health.state
    assert (state in ("ready", "degraded")) == bool(health)
    assert (state == "ready") == (health.grounds == ())


@pytest.mark.slow
def test_an_agent_goes_through_all_states_with_its_hub(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """It starts, is ready, is degraded while its allowances last, cut off when they do not, and ready in the end."""
    # From the first failure the allowances last for more than three seconds, in which even a busy machine looks once.
    agent = make_agent(own_redis.url, lease_ttl=4.0, exchange_timeout=0.5)
    limiter = agent.limit("login", "1000/hour")
    seen = [agent.health()]

    def sees(state: str) -> None:
        def is_so() -> bool:
            health = agent.health()
            seen.extend([health] if health.state == state else [])
            return health.state == state

        eventually(is_so, state)

    introduce(limiter)
    sees("ready")
    own_redis.pause()
    sees("degraded")
    sees("partitioned")
    own_redis.resume()
    sees("ready")

    assert ["starting", "ready", "degraded", "partitioned", "ready"] == [health.state for health in seen]
    grounds = seen[3].grounds
    assert "'timeout'" in grounds[0]
    assert own_redis.url not in grounds[0]


def test_whose_hub_was_never_there_is_cut_off(make_agent: MakeAgent) -> None:
    """From the first failure on, and not merely slow to start."""
    agent = make_agent(f"redis://:secret@127.0.0.1:{free_port()}/0", stop_timeout=0.0)
    with agent:
        eventually(lambda: agent.health().state == "partitioned", "a failure")

    assert "secret" not in str(agent.health())


def test_whoever_has_stopped_has_nobody_who_exchanges(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Until the next decision."""
    agent = make_agent(redis_server.url)
    introduce(agent.limit("login", "1000/hour"))
    agent.stop()
    stopped = agent.health()
    agent.limiter("login").allow("ada")
    eventually(lambda: agent.health().state == "ready", "an answer")

    assert "starting" == stopped.state
    assert "the agent was stopped" in stopped.grounds[0]
