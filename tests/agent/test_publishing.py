"""Goal: nodes leave snapshots while a console is open, and not otherwise; and a console costs them next to nothing.

Method: real agents, with whichever kernel runs, at a hub in memory that counts what it is asked, and at a real Redis.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from reconverge import Agent
from reconverge.agent.snapshots.snapshot import NodeSnapshot, decoded
from reconverge.hooks import Refused
from reconverge.hub.board import LEFT, LOOK_NS
from reconverge.hub.hashing import KeyHasher
from reconverge.hub.registry import HubSettings
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.searched import stored
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own


class CountingHub(MemoryHub):
    """Counts what is asked about consoles."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def watched_s(self) -> float:
        self.asked["watched"] += 1
        return await super().watched_s()

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        self.asked["leave"] += 1
        return await super().leave_snapshot(name, payload, keep_s=keep_s)

    def nodes(self) -> list[NodeSnapshot]:
        """All snapshots, as far as they can be read."""
        return read(asyncio.run(self.snapshots()))


def read(snapshots: Mapping[str, bytes]) -> list[NodeSnapshot]:
    """Those that can be read."""
    return [node for payload in snapshots.values() if (node := decoded(payload)) is not None]


def test_no_snapshot_is_made_while_no_console_is_open(make_agent: MakeAgent) -> None:
    """There is one look in a second, and no hook and no thread of hooks."""
    hub = CountingHub()
    agent = make_agent(hub)
    agent.limit("login", "5/minute").allow("ada")

    eventually(lambda: hub.asked["watched"] >= 2, "two looks")

    assert 0 == hub.asked["leave"]
    assert not agent.watch.has_hooks
    assert "reconverge-dispatcher" not in [each.name for each in threading.enumerate()]


@pytest.mark.slow
def test_all_nodes_leave_snapshots_while_a_console_is_open(make_agent: MakeAgent) -> None:
    """Each under a name of its own, with what it has refused and to which key; then they stop."""
    hub = CountingHub()
    agents = [make_agent(hub) for _ in range(3)]
    for number, agent in enumerate(agents):
        agent.limit("login", "2/hour", policy="strict").allow(f"ada-{number}")
    asyncio.run(hub.watch(keep_s=60.0))

    def denied() -> bool:
        for number, agent in enumerate(agents):
            agent.limiter("login").hit(f"ada-{number}")
        return 3 == sum(bool(node.denials) for node in hub.nodes())

    eventually(denied, "three nodes to tell of denials")
    nodes = hub.nodes()
    assert {os.getpid()} == {node.pid for node in nodes}
    assert {"ready"} == {node.state for node in nodes}
    told = {(denial.limit, key) for node in nodes for denial in node.denials for key in denial.keys}
    assert {("login", f"ada-{number}") for number in range(3)} >= told
    assert {2} == {use.used for node in nodes for use in node.top}

    hub._board._until_us = 0  # the console is closed, and its mark has ended
    eventually(lambda: not any(agent.watch.has_hooks for agent in agents), "the hooks to go")
    before = hub.asked["leave"]
    looks = hub.asked["watched"]
    eventually(lambda: hub.asked["watched"] >= looks + 3, "each to look again")
    assert before == hub.asked["leave"]


def test_a_hidden_agent_is_no_node_of_the_fleet(make_agent: MakeAgent) -> None:
    """Such as that of a console."""
    hub = CountingHub()
    asyncio.run(hub.watch(keep_s=60.0))
    hidden, shown = make_agent(hub), make_agent(hub)
    hidden.hide_from_consoles()
    for agent in (hidden, shown):
        agent.start()

    eventually(lambda: bool(hub.nodes()), "a snapshot")

    names = set(asyncio.run(hub.snapshots()))
    assert {shown._publishing.name} == names


@pytest.mark.slow
def test_a_hub_sees_hashes_where_keys_are_hashed(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """In snapshots as elsewhere."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, key_secret=SECRET, namespace="shop")
    login = agent.limit("login", "1/hour", policy="strict")
    board = Board(redis_server.url)
    board.watch()

    def denied() -> bool:
        login.hit("ada")
        return any(node.top and node.denials for node in board.read())

    eventually(denied, "a denial")
    (node,) = board.read()
    hashed = KeyHasher(SECRET, namespace="shop").hashed("ada")
    assert [hashed] == [use.key for use in node.top]
    assert {hashed} == {key for denial in node.denials for key in denial.keys}


def test_a_forked_child_is_another_node(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """Under another name, with its own process and what it has refused itself."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, namespace="shop")
    login = agent.limit("login", "100/hour")
    login.allow("ada")
    board = Board(redis_server.url)
    board.watch()
    eventually(lambda: 1 == len(board.read()), "the parent's snapshot")

    child = os.fork()
    if child == 0:
        login.allow("ada")
        threading.Event().wait(30)
        os._exit(0)
    try:
        eventually(lambda: {os.getpid(), child} == {node.pid for node in board.read()}, "both snapshots")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_an_agent_that_is_stopped_tells_hooks_no_more(make_agent: MakeAgent) -> None:
    """Nor does it leave snapshots, until it begins again."""
    hub = CountingHub()
    agent = make_agent(hub)
    asyncio.run(hub.watch(keep_s=60.0))
    agent.limit("login", "5/minute").allow("ada")
    eventually(lambda: bool(hub.nodes()), "a snapshot")

    agent.stop()

    assert not agent.watch.has_hooks


@pytest.mark.slow
@pytest.mark.parametrize("hub_of", [lambda _: CountingHub(), lambda server: server.url], ids=["memory", "redis"])
def test_a_node_that_is_stopped_says_so_in_place_of_its_snapshot(
    make_agent: MakeAgent, redis_server: RedisServer, hub_of: Callable[[RedisServer], Any]
) -> None:
    """As with SIGTERM: consoles do not take it for one that is cut off; for as long as a console may be open unseen."""
    redis_server.command("FLUSHALL")
    hub = hub_of(redis_server)
    board = RedisHub(hub, HubSettings("default", 5.0)) if isinstance(hub, str) else hub

    def snapshots() -> dict[str, bytes]:
        async def ask() -> dict[str, bytes]:
            try:
                return dict(await board.snapshots())
            finally:
                await board.close()

        return asyncio.run(ask())

    agent = make_agent(hub)
    agent.limit("login", "5/minute").allow("ada")
    asyncio.run(watched(board))
    eventually(snapshots, "a snapshot")
    (name,) = snapshots()
    agent.stop()

    assert {name: LEFT, f"{name}f": LEFT} == snapshots()


async def watched(board: MemoryHub | RedisHub) -> None:
    """Opens a console for a minute."""
    await board.watch(keep_s=60.0)
    await board.close()


@pytest.mark.parametrize("console", [False, True], ids=["closed", "open"])
def test_a_hub_that_fails_about_consoles_fails_nothing_else(make_agent: MakeAgent, *, console: bool) -> None:
    """Exchanges go on; the look is tried again."""

    class Failing(CountingHub):
        async def watched_s(self) -> float:
            await super().watched_s()
            raise OSError("a hub of another author")

    class Unavailable(CountingHub):
        async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
            await super().leave_snapshot(name, payload, keep_s=keep_s)
            raise TimeoutError

    hub = Unavailable() if console else Failing()
    asyncio.run(hub.watch(keep_s=60.0))
    agent = make_agent(hub)
    agent.limit("login", "5/minute").allow("ada")

    eventually(lambda: hub.asked["watched"] >= 2 and agent.answers >= 2, "further looks and exchanges")

    assert "ready" == agent.health().state or not console


class Board:
    """The board of the namespace `shop` at a Redis, as a test looks at it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def watch(self) -> None:
        """Keeps a console open."""

        async def run() -> None:
            hub = RedisHub(self._url, HubSettings("shop", 5.0))
            try:
                await hub.watch(keep_s=60.0)
            finally:
                await hub.close()

        asyncio.run(run())

    def read(self) -> list[NodeSnapshot]:
        """All snapshots, as far as they can be read."""

        async def run() -> Mapping[str, bytes]:
            hub = RedisHub(self._url, HubSettings("shop", 5.0))
            try:
                return await hub.snapshots()
            finally:
                await hub.close()

        return read(asyncio.run(run()))


@pytest.mark.slow
def test_an_identity_that_is_erased_is_in_no_snapshot(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """Neither among the fullest keys nor among denials, nor in what the hub keeps of them."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, namespace="shop")
    login = agent.limit("login", "1/hour", policy="strict")
    board = Board(redis_server.url)
    board.watch()

    def denied() -> bool:
        login.hit("ada.lovelace")
        return any(node.top and any(each.keys for each in node.denials) for node in board.read())

    eventually(denied, "a denial")
    assert b"lovelace" in stored(redis_server.url)

    done = asyncio.run(agent.forget("ada.lovelace", wait=20.0))

    feed = agent._publishing._feed
    assert feed is not None
    feed.refused(Refused("login", 1, ("ada.lovelace",)))  # as hooks tell it that are late
    assert done.complete
    eventually(lambda: b"lovelace" not in stored(redis_server.url), "the name to go")
    eventually(lambda: any(node.denials for node in board.read()), "a snapshot that still tells of denials")
    assert not any(each.keys for node in board.read() for each in node.denials)


def test_a_node_with_keys_looks_once_in_a_second(make_agent: MakeAgent) -> None:
    """However often it exchanges."""
    hub = CountingHub()
    agent = make_agent(hub)
    login = agent.limit("login", "1000/minute")
    began_ns = agent.clock.monotonic_ns()

    def exchanged() -> bool:
        login.allow("ada")
        return agent.answers >= 50

    eventually(exchanged, "fifty exchanges")
    passed_ns = agent.clock.monotonic_ns() - began_ns

    assert 1 <= hub.asked["watched"] <= 2 + passed_ns // LOOK_NS


def test_an_agent_says_how_it_stands_without_a_console() -> None:
    """For a console that shows this process alone."""
    agent = Agent("memory://")
    agent.limit("login", "5/minute").allow("ada")

    assert ("ready", 1) == (agent.snapshot().state, len(agent.snapshot().top))
