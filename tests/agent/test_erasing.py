"""Goal: an identity that is to be forgotten is known to no node and to no hub afterwards, and nothing is granted twice.

Method: real agents, with whichever kernel runs, at a real Redis, all of whose keys and values are searched; some on
several shards, on two hubs, with hashed keys, cut off by a relay; and agents without a hub.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconverge import Agent, HubUnavailable, InvalidKey, RateLimiter
from reconverge.agent.erasing import Forgotten
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.agents import introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.relay import Relay
from tests.support.searched import stored
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

IDENTITY = "ada.lovelace@example.org"
NAME = b"lovelace"
SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own
LIMITS = {
    "burst": ("50/second", None),
    "daily": ("100/day; 1000/31 days", None),
    "bucket": ("20/minute burst 40", "token-bucket"),
    "log": ("30/hour", "sliding-log"),
    "smooth": ("5/second", "smooth-bursty"),
}


def limiters(agent: Agent) -> list[RateLimiter]:
    """Limits of all kinds."""
    return [agent.limit(name, text, algorithm=algorithm) for name, (text, algorithm) in LIMITS.items()]


def forget(agent: Agent, identity: str = IDENTITY, wait: float = 20.0) -> Forgotten:
    return asyncio.run(agent.forget(identity, wait=wait))


def known(agent: Agent) -> bool:
    """Whether an agent has a key of the identity."""
    return any(
        IDENTITY in limiter.control.keys_beside() for limiter in agent.limiters.values() for _ in limiter.control.tables
    )


def knows_nothing(agent: Agent) -> bool:
    """Whether no object of an agent's kernel and statistics has the identity any more."""
    kernel, watch = agent._kernel, agent.watch  # what is left in memory shows nowhere else
    keys = [key for table in kernel.tables.values() for key in table.cells]
    seen = [key for _, key in (*watch._seen, *watch.near_keys, *watch.refused_keys)]
    return not [key for key in (*keys, *seen) if IDENTITY in key]


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "hashed"])
def test_no_node_and_no_hub_knows_an_identity_that_is_erased(
    secret: str | None, make_agent: MakeAgent, redis_server: RedisServer
) -> None:
    """Of limits of all kinds; another identity, of which as much was used, stays."""
    redis_server.command("FLUSHALL")
    agents = [make_agent(redis_server.url, key_secret=secret) for _ in range(3)]
    for agent in agents:
        for limiter in limiters(agent):
            introduce(limiter, IDENTITY, "bob")
    if secret is None:
        assert NAME in stored(redis_server.url)

    done = forget(agents[0])

    assert done.complete
    eventually(lambda: all(map(knows_nothing, agents)), "all nodes to forget")
    assert NAME not in stored(redis_server.url)
    assert all("bob" in limiter.control.keys_beside() for agent in agents for limiter in agent.limiters.values())
    assert 3 == asyncio.run(agents[0].fleet_usage(agents[0].limiter("daily"), "bob")).used
    assert 0 == asyncio.run(agents[0].fleet_usage(agents[0].limiter("daily"), IDENTITY)).used


@pytest.mark.slow
def test_a_node_that_was_cut_off_brings_nothing_back(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """It holds an allowance, so the key stays until it is heard of again; then it lets go of the key by itself."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url)
    limiter = agent.limit("daily", "100/day")
    port = int(redis_server.url.split(":")[2].split("/")[0])
    with Relay(port) as relay:
        far = make_agent(relay.url, exchange_timeout=0.2)
        introduce(far.limit("daily", "100/day"), IDENTITY)
        introduce(limiter, IDENTITY)
        relay.lose_requests = 1.0

        done = forget(agent, wait=1.0)

        assert (1, False) == (done.kept, done.complete)
        assert knows_nothing(agent)
        far.limiter("daily").hit(IDENTITY)
        relay.heal()
        eventually(lambda: knows_nothing(far), "the other node to forget")
        eventually(lambda: NAME not in stored(redis_server.url), "the hub to forget")
        far.stop()


def test_use_counts_as_long_as_the_identity_is_in_use(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """An identity whose requests go on stays, is told of, and is not admitted a request more than its limit."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, policy="strict")
    limiter = agent.limit("daily", "100/day")
    introduce(limiter, IDENTITY)

    async def erase_under_fire() -> tuple[int, Forgotten]:
        erasing = asyncio.create_task(agent.forget(IDENTITY, wait=1.0))
        admitted = 0
        while not erasing.done():
            admitted += limiter.allow(IDENTITY)
            await asyncio.sleep(0)
        return admitted, erasing.result()

    admitted, done = asyncio.run(erase_under_fire())

    assert (1, False) == (done.kept, done.complete)
    assert admitted <= 100


def test_what_was_used_is_forgotten_as_by_a_reset(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """When the identity comes again it begins anew, with the whole limit and no more."""
    redis_server.command("FLUSHALL")
    agents = [make_agent(redis_server.url, policy="strict") for _ in range(2)]
    for agent in agents:
        agent.limit("daily", "10/day")
    introduce(agents[1].limiter("daily"), IDENTITY)
    eventually(lambda: not agents[1].limiter("daily").allow(IDENTITY), "the limit to be used up")

    assert forget(agents[0]).complete

    eventually(lambda: not known(agents[1]), "the other node to forget")
    used = [0, 0]

    def use_up() -> bool:
        for number, agent in enumerate(agents):
            used[number] += agent.limiter("daily").allow(IDENTITY)
        return sum(used) >= 10

    eventually(use_up, "ten more requests")
    assert not any(agent.limiter("daily").allow(IDENTITY) for agent in agents)


def test_an_identity_is_erased_from_both_of_two_hubs(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """From the fallback too, to which nodes may have been."""
    redis_server.command("FLUSHALL")
    with RedisServer() as fallback:
        other = make_agent(fallback.url)
        introduce(other.limit("daily", "100/day"), IDENTITY)
        other.stop()
        agent = make_agent(redis_server.url, fallback=fallback.url)
        introduce(agent.limit("daily", "100/day"), IDENTITY)
        assert NAME in stored(fallback.url)

        done = forget(agent)

        assert done.complete
        assert NAME not in stored(redis_server.url) + stored(fallback.url)


def test_keys_of_departed_nodes_and_of_unknown_limits_are_found(
    make_agent: MakeAgent, redis_server: RedisServer
) -> None:
    """In all shards, by a search that needs none of the limits to be declared."""
    redis_server.command("FLUSHALL")
    settings = HubSettings("default", 5.0)
    gone = make_agent(RedisHub(redis_server.url, settings, shards=4))
    for limiter in limiters(gone):
        introduce(limiter, IDENTITY)
    gone.stop()
    assert NAME in stored(redis_server.url)

    done = forget(make_agent(RedisHub(redis_server.url, settings, shards=4)))

    assert (6, 0) == (done.cells, done.kept)
    assert NAME not in stored(redis_server.url)


def test_an_agent_without_a_hub_forgets_at_once(make_agent: MakeAgent) -> None:
    """All that there is of the identity is here."""
    agent = make_agent("memory://")
    for limiter in limiters(agent):
        limiter.hit(IDENTITY)
        limiter.hit("bob")

    done = forget(agent)

    assert Forgotten(6, 0, 0) == done
    assert knows_nothing(agent)
    assert 0 == agent.limiter("daily").usage(IDENTITY).total
    assert 1 == agent.limiter("daily").usage("bob").total


def test_a_call_that_waits_keeps_the_key(make_agent: MakeAgent) -> None:
    """It has the name in hand; once it is through, the identity can be erased."""

    async def scenario() -> tuple[Forgotten, Forgotten]:
        agent = make_agent("memory://")
        limiter = agent.limit("slow", "1/minute", algorithm="token-bucket")
        limiter.hit(IDENTITY)
        waiting = asyncio.create_task(limiter.wait(IDENTITY, timeout=120))
        for _ in range(10):
            await asyncio.sleep(0)
        first = await agent.forget(IDENTITY)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return first, await agent.forget(IDENTITY)

    first, then = asyncio.run(scenario())

    assert (0, 1) == (first.cells, first.kept)
    assert "waits" in first.problem
    assert Forgotten(1, 0, 0) == then


class ThirdPartyHub:
    """A hub with no more than a hub has to have."""

    def __init__(self) -> None:
        hub = MemoryHub()
        self.shards = hub.shards
        self.exchange, self.totals, self.close = hub.exchange, hub.totals, hub.close


def test_a_hub_without_the_port_says_so(make_agent: MakeAgent) -> None:
    """Loudly: an identity that stays at the hub is not forgotten."""
    hub: Any = ThirdPartyHub()
    assert isinstance(hub, Hub)
    agent = make_agent(hub)
    introduce(agent.limit("daily", "100/day"), IDENTITY)

    with pytest.raises(HubUnavailable, match=r"reconverge\.hub\.Eraser"):
        forget(agent)


@pytest.mark.parametrize("identity", [None, 5, b"ada", "", "\0ada", "x" * 1025, "\ud800"])
def test_what_is_no_identity_is_refused(identity: Any, make_agent: MakeAgent) -> None:
    """Before anything is forgotten."""
    with pytest.raises(InvalidKey):
        forget(make_agent("memory://"), identity)
