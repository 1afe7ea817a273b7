"""Goal: a thread exchanges with a Redis without an event loop, and keeps every promise that it kept with one.

Method: a hub in the event loop of a thread of its own kind, with a real Redis, through a relay, or with a server that
never ends its reply; and a whole agent, whose thread is watched.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.exchange.exchanges import Exchanges
from reconverge.exchange.syncer import Syncer
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.port import Blocking
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Status
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge_sync.redis.blocking import packed
from reconverge_sync.redis.hub import RedisHub
from tests.support.agents import net_at
from tests.support.hubs.listener import Listener
from tests.support.hubs.parrot import Parrot
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

TIMEOUT_S = 0.4


class ThreadHub:
    """A hub as a thread that exchanges has it: the first exchange connects in an event loop, the others block."""

    def __init__(self, url: str, timeout_s: float = 5.0, shards: int = 1) -> None:
        self.hub = RedisHub(url, HubSettings("blocking", timeout_s), shards=shards)
        self.loop = ThreadEventLoop()
        self.turns = 0
        self._sequence = 0

    def connect(self) -> Answer:
        """Exchanges in the event loop, which connects if there is no connection."""
        self._sequence += 1
        return self.loop.run_until_complete(self.hub.exchange(trial_batch("ada", self._sequence)))

    def exchange(self) -> Answer:
        """Exchanges without the event loop; the hub must be ready for that."""
        assert self.hub.ready_to_block()
        self._sequence += 1
        return self.hub.exchange_blocking(trial_batch("ada", self._sequence), self._turn)

    def _turn(self) -> None:
        self.turns += 1

    def close(self) -> None:
        """Closes the hub and its event loop."""
        self.loop.run_until_complete(self.hub.close())
        self.loop.close()


@contextmanager
def hub_at(url: str, timeout_s: float = 5.0, shards: int = 1) -> Iterator[ThreadHub]:
    """A hub of a thread that exchanges, which has not connected yet."""
    hub = ThreadHub(url, timeout_s, shards)
    try:
        yield hub
    finally:
        hub.close()


class Dripping(Listener):
    """Answers anything with the beginning of a long reply, then with a byte every 20 ms, for ever."""

    async def _serve(self, heard: asyncio.StreamReader, says: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await heard.read(1 << 16)
            says.write(b"$100000\r\n")
            while True:
                says.write(b"x")
                await says.drain()
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", ["a host and a port", "a unix socket"])
def test_once_connected_a_thread_needs_no_event_loop(redis_server: RedisServer, way: str) -> None:
    """The answers are the same as in the event loop; without a connection it is not ready."""
    url = redis_server.url if way == "a host and a port" else f"redis+unix://{redis_server.socket}"
    with hub_at(url) as hub:
        ready_before = hub.hub.ready_to_block()
        first = hub.connect()
        then = [hub.exchange() for _ in range(3)]

    assert not ready_before
    assert [Status.MERGED] * 4 == [each.status for each in (first, *then)]
    assert {first.generation} == {each.generation for each in then}


def test_an_agent_exchanges_in_its_thread_without_an_event_loop(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the one that connects, one beside which marks are left, and the farewell; and all is counted."""
    ways: list[str] = []
    awaited, blocked = Exchanges._exchange, Exchanges._exchange_blocking

    async def awaits(exchanges: Exchanges, syncer: Syncer) -> bool:
        ways.append("awaited")
        return await awaited(exchanges, syncer)

    def blocks(exchanges: Exchanges, syncer: Syncer, hub: Blocking) -> None:
        ways.append("blocked")
        blocked(exchanges, syncer, hub)

    monkeypatch.setattr(Exchanges, "_exchange", awaits)
    monkeypatch.setattr(Exchanges, "_exchange_blocking", blocks)
    with Agent(redis_server.url, namespace="thread", sync_interval=0.02, max_silence=0) as agent:
        login = agent.limit("login", "1000000/hour")
        admitted = 0

        def goes_on() -> bool:
            nonlocal admitted
            admitted += login.allow("ada")
            return ways.count("blocked") >= 10

        eventually(goes_on, "ten exchanges")

    begins = ways.index("blocked")
    assert begins <= 2
    assert ["blocked"] * 10 == ways[begins : begins + 10]
    assert admitted == net_at(redis_server.url, namespace="thread")


@pytest.mark.parametrize("why", ["several shards", "an application's event loop"])
def test_the_event_loop_stays_where_something_else_runs_in_it(redis_server: RedisServer, why: str) -> None:
    """Shards are exchanged side by side, and an application goes on while its agent waits."""
    if why == "several shards":
        with hub_at(redis_server.url, shards=2) as hub:
            hub.connect()
            assert not hub.hub.ready_to_block()
        return

    async def in_an_application() -> bool:
        hub = RedisHub(redis_server.url, HubSettings("blocking", 5.0))
        await hub.exchange(trial_batch("ada", 1))
        ready = hub.ready_to_block()
        await hub.close()
        return ready

    assert not asyncio.run(in_an_application())


def test_a_script_that_the_server_has_lost_is_sent_again(own_redis: RedisServer) -> None:
    """Within the same exchange, as nothing was applied."""
    with hub_at(own_redis.url) as hub:
        hub.connect()
        own_redis.command("SCRIPT", "FLUSH")

        assert hub.exchange().status is Status.MERGED


def test_a_connection_that_the_server_has_closed_costs_no_exchange(own_redis: RedisServer) -> None:
    """As after a restart, or a proxy's time for idle connections: the thread is not ready, and connects anew."""
    with hub_at(own_redis.url) as hub:
        hub.connect()
        own_redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(lambda: not hub.hub.ready_to_block(), "the end of the connection")

        assert hub.connect().status is Status.MERGED
        assert hub.exchange().status is Status.MERGED


def _swallows(relay: Relay) -> None:
    relay.lose_requests = 1.0


def _replies_late(relay: Relay) -> None:
    relay.lose_replies = 1.0


@pytest.mark.parametrize("loses", [_swallows, _replies_late])
def test_without_an_answer_the_exchange_ends_in_time_and_the_connection_with_it(
    redis_server: RedisServer, loses: Callable[[Relay], None]
) -> None:
    """The reply may still come, when another one is expected. The thread has looked up all the time."""
    with Relay(redis_server.port) as relay, hub_at(relay.url, TIMEOUT_S) as hub:
        hub.connect()
        loses(relay)
        begun_ns = SystemClock.monotonic_ns()
        with pytest.raises(HubUnavailable, match="timeout"):
            hub.exchange()
        took_s = (SystemClock.monotonic_ns() - begun_ns) / 1e9
        relay.heal()

        assert TIMEOUT_S <= took_s < 5 * TIMEOUT_S
        assert hub.turns > 1
        assert not hub.hub.ready_to_block()
        assert hub.connect().status is Status.MERGED


def test_a_reply_that_never_ends_does_not_hold_the_thread() -> None:
    """Each byte comes in time, and all of them would take half an hour."""
    with Dripping() as dripping, hub_at(f"redis://127.0.0.1:{dripping.port}/0", TIMEOUT_S) as hub:
        begun_ns = SystemClock.monotonic_ns()
        with pytest.raises(HubUnavailable, match="timeout"):
            hub.connect()

        assert (SystemClock.monotonic_ns() - begun_ns) / 1e9 < 5 * TIMEOUT_S


def test_the_reply_of_a_wrong_server_ends_the_connection(redis_server: RedisServer) -> None:
    """After a failover by name the next exchange connects anew, and reaches the right server."""
    reply = b"-READONLY You can't write against a read only replica.\r\n"
    with Parrot(reply) as wrong, Relay(wrong.port) as relay, hub_at(relay.url) as hub:
        with pytest.raises(HubUnavailable, match="read-only"):
            hub.connect()
        relay.target_port = redis_server.port

        assert not hub.hub.ready_to_block()
        assert hub.connect().status is Status.MERGED


def test_a_forked_child_does_not_use_the_connection_of_its_parent(redis_server: RedisServer) -> None:
    """It is not ready; and the parent goes on with its connection after the child has ended."""
    with hub_at(redis_server.url) as hub:
        hub.connect()
        child = os.fork()
        if child == 0:
            os._exit(int(hub.hub.ready_to_block()))
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert hub.exchange().status is Status.MERGED


def test_a_command_is_packed_as_redis_reads_it() -> None:
    """Texts as UTF-8, numbers in decimal digits, bytes as they are, each after its length in bytes."""
    assert b"*4\r\n$3\r\nSET\r\n$3\r\n\xc3\xa9!\r\n$2\r\n12\r\n$3\r\n\x00\r\n\r\n" == packed(
        ("SET", "é!", 12, b"\x00\r\n")
    )
