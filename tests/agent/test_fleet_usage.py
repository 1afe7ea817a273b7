"""Goal: whatever node is asked, it answers for the whole fleet, and says so when it cannot.

Method: several agents at one hub, in memory, on a real Redis and behind a fallback, on a thread and as a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reconverge import Agent, FleetUsage, InvalidKey, InvalidSetting
from reconverge.hub.port import Hub
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge_sync.memory import MemoryHub
from tests.support.agents import introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.no_reader import NoReader
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

HOURLY = "100/hour"


def ask(agent: Agent, key: str = "ada", limit: str = "login") -> FleetUsage:
    """Asks the agent about the whole fleet, from an event loop of its own."""
    return asyncio.run(agent.fleet_usage(agent.limiter(limit), key))


def fleet(make_agent: MakeAgent, hub: str | Hub, nodes: int = 3, **settings: object) -> list[Agent]:
    """Agents with one limit, of which each has admitted one request more than the one before, and the hub knows it."""
    agents = [make_agent(hub, **settings) for _ in range(nodes)]
    for number, agent in enumerate(agents):
        login = agent.limit("login", HOURLY)
        introduce(login)
        assert [True] * number == [login.allow("ada") for _ in range(number)]
    return agents


@pytest.mark.parametrize("shards", [1, 4])
def test_each_node_answers_for_all(make_agent: MakeAgent, redis_server: RedisServer, shards: int) -> None:
    """All nodes say the same of a key, one that has never met it included."""
    redis_server.command("FLUSHALL")
    hub = redis_server.url if shards == 1 else MemoryHub(shards=shards)
    agents = fleet(make_agent, hub)
    late = make_agent(hub)
    late.limit("login", HOURLY)
    eventually(lambda: ask(late).used == 1 + 2 + 3, "all reports")

    told = [ask(agent) for agent in (*agents, late)]

    assert {(6, 94, 100, 3, True, "")} == {
        (each.used, each.left, each.limit, each.nodes, each.fleetwide, each.problem) for each in told
    }
    assert 0.0 == told[0].next_free
    assert 0 == late.stats().keys


def test_what_lies_on_allowances_is_told(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """It is part of what is left, because it is not used yet."""
    redis_server.command("FLUSHALL")
    (agent,) = fleet(make_agent, redis_server.url, nodes=1)

    told = ask(agent)

    assert 0 < told.allowances <= told.left


class SpentHub(MemoryHub):
    """A hub at which 98 of 100 are used, by nodes that have allowances of 4 and have gone beyond others."""

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """Answers with more on allowances than is left."""
        found = await super().read_keys(shard, questions)
        return found._replace(keys=tuple(each._replace(used=98, allowances=4, capacity=100) for each in found.keys))


def test_allowances_are_no_more_than_what_is_left(make_agent: MakeAgent) -> None:
    """A part of what is left is no more than that: what other nodes have used beyond their allowances is gone."""
    agent = make_agent(SpentHub())
    agent.limit("login", HOURLY).allow("ada")

    told = ask(agent)

    assert (98, 2, 2) == (told.used, told.left, told.allowances)


def test_a_full_key_says_when_it_is_free_again(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """Within two windows, on a node that did not use it."""
    redis_server.command("FLUSHALL")
    busy, other = make_agent(redis_server.url), make_agent(redis_server.url)
    few = {agent: agent.limit("few", "2/hour") for agent in (busy, other)}
    eventually(lambda: not few[busy].allow("ada") and ask(busy, limit="few").left == 0, "a full key")

    told = ask(other, limit="few")

    assert (0, 0, True) == (told.left, told.allowances, told.fleetwide)
    assert 0 < told.next_free <= 2 * 3600


def test_each_quota_has_its_own_answer_and_the_scarcest_speaks(make_agent: MakeAgent) -> None:
    """By the names under which the hub knows them, of paced limits in whole requests."""
    agent = make_agent(MemoryHub())
    both = agent.limit("both", "5/minute; 100/hour")
    paced = agent.limit("paced", "10/second", algorithm="leaky-bucket")
    introduce(both)

    told = asyncio.run(agent.fleet_usages(both, "ada"))

    assert list(both.quotas) == list(told)
    assert [5, 100] == [each.limit for each in told.values()]
    assert 5 == asyncio.run(agent.fleet_usage(both, "ada")).limit
    assert 10 == asyncio.run(agent.fleet_usage(paced, "ada")).limit


def test_a_task_in_the_same_loop_is_answered(redis_server: RedisServer) -> None:
    """Where the exchanges run in the loop that asks; many questions at once are all answered."""
    redis_server.command("FLUSHALL")

    async def ask_often() -> list[FleetUsage]:
        async with Agent(redis_server.url) as agent:
            login = agent.limit("login", HOURLY)
            return await asyncio.gather(*(agent.fleet_usage(login, f"key{number}") for number in range(50)))

    assert [(0, True)] * 50 == [(each.used, each.fleetwide) for each in asyncio.run(ask_often())]


def test_a_hub_that_reads_no_keys_leaves_what_the_node_knows(make_agent: MakeAgent) -> None:
    """And the answer says that it is no more than that."""
    agents = fleet(make_agent, NoReader(), nodes=1)

    told = ask(agents[0])

    assert (1, 99, False) == (told.used, told.left, told.fleetwide)
    assert "name one that implements reconverge.hub.KeyReader" in told.problem


def test_a_node_alone_says_what_it_knows() -> None:
    """There is no fleet, and the answer says so."""
    agent = Agent("memory://")
    agent.limit("login", HOURLY).allow("ada")

    told = ask(agent)

    assert (1, 99, 1, False) == (told.used, told.left, told.nodes, told.fleetwide)
    assert "memory://" in told.problem


def test_an_outage_is_named_in_the_answer(make_agent: MakeAgent) -> None:
    """The answer has the node's own knowledge, and the reason why it has no more."""
    agent = make_agent(f"redis://127.0.0.1:{free_port()}/0", exchange_timeout=0.5)
    agent.limit("login", HOURLY).allow("ada")

    told = ask(agent)

    assert (1, False) == (told.used, told.fleetwide)
    assert told.problem.startswith("refused: ")


def test_of_two_hubs_the_one_that_the_node_is_with_is_asked(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """While the first does not answer, that is the fallback."""
    redis_server.command("FLUSHALL")
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    (agent,) = fleet(make_agent, nowhere, nodes=1, fallback=redis_server.url)
    eventually(lambda: ask(agent).fleetwide, "the fallback's answer")

    assert (1, 1) == (ask(agent).used, ask(agent).nodes)


def test_what_cannot_be_asked_is_refused(make_agent: MakeAgent) -> None:
    """Another agent's limiter, and a key that is none."""
    agent, other = make_agent(MemoryHub()), make_agent(MemoryHub())
    login, stranger = agent.limit("login", HOURLY), other.limit("login", HOURLY)

    with pytest.raises(InvalidSetting, match="no limiter of this agent"):
        asyncio.run(agent.fleet_usage(stranger, "ada"))
    with pytest.raises(InvalidKey):
        asyncio.run(agent.fleet_usage(login, ""))


def test_an_agent_that_was_stopped_can_be_asked(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """It begins to exchange again, as with a decision."""
    redis_server.command("FLUSHALL")
    (agent,) = fleet(make_agent, redis_server.url, nodes=1)
    agent.stop()

    assert ask(agent).fleetwide
