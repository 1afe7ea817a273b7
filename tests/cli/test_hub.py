"""Goal: an operator decides about a hub's data knowingly: what is shown is true, and nothing is done unasked.

Method: the command, on a real Redis that has lost its data while agents went on.
"""

from __future__ import annotations

import json
from functools import partial

import pytest

from reconverge import Agent
from tests.support.agents import introduce
from tests.support.commands.checked import said_by
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

run = partial(said_by, "hub")


@pytest.fixture
def monthly(make_agent: MakeAgent, redis_server: RedisServer) -> Agent:
    """An agent with a strict limit of 1000 per 31 days, which has used one of `ada`; then the server lost its data."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, policy="strict", sync_interval=0.02)
    introduce(agent.limit("monthly", "1000/31 days"))
    redis_server.command("FLUSHALL")
    eventually(lambda: agent.stats().exchanges[0].rebirths > 0, "word of the loss")
    return agent


def generation_of(server: RedisServer) -> str:
    """The name of the data that the server has now."""
    return server.command("HGET", "default:{0}:meta", "generation").splitlines()[-1]


def test_a_loss_is_shown_and_left_alone(monthly: Agent, redis_server: RedisServer) -> None:
    """With what it would cost to adopt it, and the words that do."""
    said = run("adopt", "--hub", redis_server.url)

    assert 1 == said.status
    assert "data were lost before" in said.all
    assert f"reconverge hub adopt --generation {generation_of(redis_server)}" in said.all
    assert "may be admitted once more" in said.all
    assert "0" != redis_server.command("HGET", "default:{0}:meta", "lost").splitlines()[-1]


def test_a_loss_is_told_as_json(monthly: Agent, redis_server: RedisServer) -> None:
    """By `hub adopt`, shard by shard, and by `status`, which ends with status 1 then."""
    adopted = run("adopt", "--json", "--hub", redis_server.url)
    looked = said_by("status", "--json", "--hub", redis_server.url)

    (shard,) = json.loads(adopted.stdout)
    assert (1, True, True) == (adopted.status, shard["waits"], shard["lost"])
    assert generation_of(redis_server) == shard["generation"]
    assert (1, 1) == (looked.status, json.loads(looked.stdout)["shards_lost"])


def test_an_adopted_loss_is_over_for_a_limit_per_month(
    monthly: Agent, make_agent: MakeAgent, redis_server: RedisServer
) -> None:
    """A node that was not there before is granted a line at once, where it would have waited for 62 days."""
    late = make_agent(redis_server.url, policy="strict", sync_interval=0.02)
    limiter = late.limit("monthly", "1000/31 days")
    assert not limiter.allow("bob")
    words = ("adopt", "--hub", redis_server.url, "--generation", generation_of(redis_server))
    eventually(lambda: 0 == run(*words).status, "the end of the nodes' telling")

    eventually(lambda: limiter.allow("bob"), "a line for a key that is new")

    eventually(lambda: limiter.allow("ada"), "a line for a key of which a node had brought lines along")
    assert "adopted" in run("adopt", "--hub", redis_server.url).all


def test_a_node_that_lived_through_the_loss_notices_the_end_of_the_wait(
    monthly: Agent, redis_server: RedisServer
) -> None:
    """It tells clients to come again after an interval, not after two windows, as soon as it is granted a line."""
    limiter = monthly.limiter("monthly")
    eventually(lambda: limiter.hit("eve", cost=900).retry_after > 31 * 86_400, "the advice to come again much later")
    words = ("adopt", "--hub", redis_server.url, "--generation", generation_of(redis_server))
    eventually(lambda: 0 == run(*words).status, "the end of the nodes' telling")

    eventually(lambda: limiter.allow("new"), "a line for a key that is new")

    eventually(lambda: limiter.hit("eve", cost=900).retry_after < 60, "the advice to come again soon")


def test_other_data_than_those_that_were_named_are_left_alone(monthly: Agent, redis_server: RedisServer) -> None:
    """A name from before the next loss does nothing."""
    said = run("adopt", "--hub", redis_server.url, "--generation", "0123456789abcdef")

    assert 1 == said.status
    assert "data were lost before" in said.all


def test_a_hub_that_is_no_place_has_no_data() -> None:
    """Counts within a process are no operator's affair."""
    said = run("adopt", "--hub", "memory://")

    assert 2 == said.status
    assert "no hub that nodes share" in said.all
