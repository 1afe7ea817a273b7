"""Goal: with a secret the hub sees no key, all else is the same, and nodes with different secrets log an error.

Method: real agents, with whichever kernel runs, at a real Redis, all of whose keys and values are searched.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from reconverge import Agent, InvalidSetting
from reconverge.agent.fleet_usage import asking_kernel
from reconverge.agent.key_marks import MARK_EVERY_NS, MARK_KEPT_S, KeyMarks
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub import Hub
from reconverge.hub.hashing import KeyHasher, hashing
from reconverge.hub.port import ContractStore, KeyReader, SettingsStore, Working
from reconverge.hub.registry import HubSettings
from reconverge.testing import HubClaims, ReaderClaims
from reconverge.testing.claims.keys import KeyClaims
from reconverge_sync.memory import MemoryHub
from tests.support.agents import introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.reached import StoreClaims, WayClaims
from tests.support.hubs.ways import OnRedis
from tests.support.searched import stored
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own
OTHER = "another secret, just as long as it"
IDENTITY = "ada.lovelace@example.org"
HASHER = KeyHasher(SECRET, namespace="claims")


class Hashed(ReaderClaims):
    """A hub that sees hashes finds no fact in a key: nodes drop keys that have several, by their whole names."""

    test_keys_with_several_facts_are_erased_by_each_of_them = None  # type: ignore[assignment]


class TestHashedMemoryHub(HubClaims, Hashed, StoreClaims):
    """Every promise of a hub holds through the hashes; settings, contracts and snapshots have none."""

    def make_hub(self, clock: ManualClock) -> Hub:
        return hashing(MemoryHub(clock=clock, shards=2), HASHER)


class TestHashedRedisHub(OnRedis, WayClaims, KeyClaims):
    """The promises also hold on a server, to which keys travel in another way."""

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        return hashing(super().open_hub(url, settings), HASHER)


def test_the_hub_keeps_no_byte_of_an_identity(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """The identity appears neither in a key nor in a value. Without a secret it does, so that the test would see it."""
    redis_server.command("FLUSHALL")
    limits = ("5/minute", "100/hour; 1000/31 days")
    agent = make_agent(redis_server.url, key_secret=SECRET)
    for number, limit in enumerate(limits):
        introduce(agent.limit(f"limit{number}", limit), IDENTITY)
    agent.stop()
    kept = stored(redis_server.url)
    assert b"limit0" in kept
    assert b"lovelace" not in kept
    assert KeyHasher(SECRET, namespace="default").hashed(IDENTITY).encode() in kept
    assert SECRET.encode() not in kept

    introduce(make_agent(redis_server.url).limit("limit0", limits[0]), IDENTITY)

    assert b"lovelace" in stored(redis_server.url)


def test_nodes_with_the_same_secret_share_a_key(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """One node admits the rest of what the other has admitted, and both see the use of the fleet."""
    redis_server.command("FLUSHALL")
    one, other = (make_agent(redis_server.url, key_secret=SECRET, policy="strict") for _ in range(2))
    for agent in (one, other):
        agent.limit("login", "7/hour")
    admitted = dict.fromkeys((one, other), 0)

    def use_up() -> bool:
        for agent in admitted:
            admitted[agent] += agent.limiter("login").allow(IDENTITY)
        return sum(admitted.values()) >= 7

    eventually(use_up, "the whole limit")

    eventually(lambda: [7, 7] == [_used(agent) for agent in (one, other)], "all reports")
    assert 7 == sum(admitted.values())
    assert not any(agent.limiter("login").allow(IDENTITY) for agent in (one, other))


def _used(agent: Agent) -> int:
    return asyncio.run(agent.fleet_usage(agent.limiter("login"), IDENTITY)).used


def test_a_node_with_another_secret_is_told(
    make_agent: MakeAgent, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A node with another secret logs one error, which shows neither secret."""
    redis_server.command("FLUSHALL")
    introduce(make_agent(redis_server.url, key_secret=SECRET).limit("login", "7/hour"))
    eventually(lambda: b"keymark" in stored(redis_server.url), "the mark of the first")

    with caplog.at_level(logging.ERROR, logger="reconverge"):
        introduce(make_agent(redis_server.url, key_secret=OTHER).limit("login", "7/hour"))
        eventually(lambda: "another secret" in caplog.text, "word of the other secret")

    assert 1 == caplog.text.count("another secret")
    assert SECRET not in caplog.text
    assert OTHER not in caplog.text


@pytest.mark.parametrize("later", ["plain", "hashing"])
def test_a_node_without_a_secret_among_others_is_told(
    make_agent: MakeAgent, redis_server: RedisServer, caplog: pytest.LogCaptureFixture, later: str
) -> None:
    """The node that comes later logs the error, whether the mark at the hub is that of a secret or of none."""
    redis_server.command("FLUSHALL")
    secrets = [SECRET, None] if later == "plain" else [None, SECRET]
    introduce(make_agent(redis_server.url, key_secret=secrets[0]).limit("login", "7/hour"))
    eventually(lambda: b"keymark" in stored(redis_server.url), "the mark of the first")

    with caplog.at_level(logging.ERROR, logger="reconverge"):
        introduce(make_agent(redis_server.url, key_secret=secrets[1]).limit("login", "7/hour"))
        eventually(lambda: "count the same keys apart" in caplog.text, "word of the difference")

    assert ("this node hashes none" if later == "plain" else "as they are, without a secret") in caplog.text
    assert "give all nodes the same RECONVERGE_KEY_SECRET" in caplog.text
    assert SECRET not in caplog.text


def test_a_node_looks_at_the_mark_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """A node looks twice at first, as its first look may come before the hub keeps marks. It logs the error once."""
    clock = ManualClock(1_750_000_000.0)
    hub = MemoryHub(clock=clock)
    asyncio.run(hub.mark_keys(HASHER.mark, keep_s=MARK_KEPT_S))
    marks = KeyMarks(None, asking_kernel("default", hub), clock)
    looks = 0
    for _ in range(30 * 60):
        if marks.due_ns() <= clock.monotonic_ns():
            asyncio.run(marks.follow(hub, cut_off=False, timeout_s=1.0))
            looks += 1
        clock.advance(1)

    assert 4 == looks
    assert 1 == caplog.text.count("hash keys with a secret")


def test_a_mark_that_no_node_renews_ends() -> None:
    """When the mark has ended, all nodes may use another secret, and none of them logs an error."""
    clock = ManualClock(1_750_000_000.0)
    hub = MemoryHub(clock=clock)
    assert "one" == asyncio.run(hub.mark_keys("one", keep_s=MARK_KEPT_S))
    clock.advance_ns(MARK_EVERY_NS)
    assert "one" == asyncio.run(hub.mark_keys("one", keep_s=MARK_KEPT_S))
    clock.advance_ns(round(MARK_KEPT_S * SECOND_NS) - 1)
    assert "one" == asyncio.run(hub.mark_keys("other", keep_s=MARK_KEPT_S))

    clock.advance_ns(1)

    assert "other" == asyncio.run(hub.mark_keys("other", keep_s=MARK_KEPT_S))


def test_a_hash_depends_on_secret_namespace_and_key() -> None:
    """A hash depends on nothing else: it is the same in each process and version."""
    hashes = {
        KeyHasher(secret, namespace=namespace).hashed(key)
        for secret in (SECRET, OTHER)
        for namespace in ("shop", "default")
        for key in ("ada", "Ada", "ada \N{SNOWMAN}")
    }

    assert 12 == len(hashes)
    assert {32} == set(map(len, hashes))
    assert "ae76f4d581339b431c02019545f31514" == KeyHasher(SECRET.encode(), namespace="shop").hashed("ada")


def test_a_hashed_hub_can_do_what_the_other_can() -> None:
    """The hub with hashed keys has the methods of the hub inside it, and no others."""
    hashed = hashing(MemoryHub(), HASHER)

    assert isinstance(hashed, KeyReader)
    assert isinstance(hashed, SettingsStore)
    assert isinstance(hashed, ContractStore)
    assert not isinstance(hashed, Working)


@pytest.mark.parametrize("secret", ["", "short", b"fifteen bytes..", 5])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: object) -> None:
    """The error explains how to make a secret, and does not show the invalid one."""
    with pytest.raises(InvalidSetting, match="openssl rand") as caught:
        Agent("memory://", key_secret=secret)  # type: ignore[arg-type]

    assert "key_secret='***'" in str(caught.value)
    assert "fifteen" not in str(caught.value)


def test_the_environment_may_hold_the_secret(
    make_agent: MakeAgent, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error about an invalid secret in the environment names the variable."""
    redis_server.command("FLUSHALL")
    monkeypatch.setenv("RECONVERGE_KEY_SECRET", SECRET)
    introduce(make_agent(redis_server.url).limit("login", "7/hour"), IDENTITY)
    assert b"lovelace" not in stored(redis_server.url)
    monkeypatch.setenv("RECONVERGE_KEY_SECRET", "short")

    with pytest.raises(InvalidSetting, match="RECONVERGE_KEY_SECRET"):
        Agent(redis_server.url)
