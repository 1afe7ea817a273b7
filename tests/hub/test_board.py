"""Goal: hubs that keep snapshots of nodes keep the promises of `SnapshotBoard`; others are known not to.

Method: the same claims for the hub in memory, for a real Redis and for hubs that wrap another one; and faults planted
in the first, each of which a claim finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub.hashing import KeyHasher, hashing
from reconverge.hub.port import SnapshotBoard
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.testing import BoardClaims
from reconverge.testing.board_claims import BoardHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer

SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own


class TestBoardInMemory(BoardClaims):
    """The definition."""

    def make_board(self, clock: ManualClock) -> BoardHub:
        return MemoryHub(clock=clock)


class TestHashed(BoardClaims):
    """A hub that sees hashes in place of keys keeps snapshots as they are."""

    def make_board(self, clock: ManualClock) -> BoardHub:
        hub = hashing(MemoryHub(clock=clock), KeyHasher(SECRET, namespace="shop"), clock)
        assert isinstance(hub, SnapshotBoard)
        return hub


class TestBoardOnRedis(BoardClaims):
    """The twin, in scripts."""

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        redis_server.command("FLUSHALL")
        self.url = redis_server.url

    def make_board(self, clock: ManualClock) -> BoardHub:
        self.clock = clock
        return RedisHub(self.url, HubSettings("shop", 5.0), clock=clock)

    def join_board(self, hub: BoardHub) -> BoardHub:  # it is the same server
        return RedisHub(self.url, HubSettings("shop", 5.0), clock=self.clock)

    def make_board_of_a_stranger(self, hub: BoardHub) -> BoardHub:  # likewise
        return RedisHub(self.url, HubSettings("other", 5.0), clock=self.clock)


def test_a_redis_takes_the_time_from_its_own_clock(redis_server: RedisServer) -> None:
    """Where no test tells it another one; and it keeps nothing for ever."""
    redis_server.command("FLUSHALL")

    async def run() -> tuple[float, dict[str, bytes]]:
        hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))
        try:
            await hub.watch(keep_s=60.0)
            await hub.leave_snapshot("a1", b"one", keep_s=60.0)
            return await hub.watched_s(), dict(await hub.snapshots())
        finally:
            await hub.close()

    left_s, read = asyncio.run(run())

    assert {"a1": b"one"} == read
    assert 0 < left_s <= 60
    assert all(
        0 < int(redis_server.command("TTL", key).lstrip(":")) <= 130
        for key in ("shop:{0}:console", "shop:{0}:snapshots")
    )


def test_a_broker_keeps_no_snapshots() -> None:
    """A console that is opened there shows one process, and says so."""

    async def run() -> bool:
        hub = open_hub("mqtt://127.0.0.1:1", HubSettings("shop", 1.0))
        try:
            return isinstance(hub, SnapshotBoard)
        finally:
            await hub.close()

    assert not asyncio.run(run())


def test_a_reply_that_is_none_of_ours_is_unavailable(redis_server: RedisServer) -> None:
    """A key of that name that holds something else is told as what it is."""
    redis_server.command("FLUSHALL")
    redis_server.command("HSET", "shop:{0}:console", "#", "nonsense")

    async def run() -> None:
        hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))
        try:
            await hub.watched_s()
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable):
        asyncio.run(run())


class _Endless(MemoryHub):
    """Keeps what has ended."""

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        return await super().leave_snapshot(name, payload, keep_s=1000 * keep_s)


class _Open(MemoryHub):
    """Takes snapshots although no console is open."""

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        await self.watch(keep_s=1.0)
        return await super().leave_snapshot(name, payload, keep_s=keep_s)


class _Closing(MemoryHub):
    """Has a second console close the first one."""

    async def watch(self, *, keep_s: float) -> None:
        self._board._until_us = 0
        await super().watch(keep_s=keep_s)


class _Short(MemoryHub):
    """Keeps the beginning of a snapshot."""

    async def snapshots(self) -> Mapping[str, bytes]:
        return {name: payload[:100] for name, payload in (await super().snapshots()).items()}


@pytest.mark.parametrize(
    ("hub_class", "claim"),
    [
        (_Endless, "test_a_snapshot_is_kept_for_its_time"),
        (_Endless, "test_there_are_so_many_snapshots_and_no_more"),
        (_Open, "test_nothing_is_taken_while_no_console_is_open"),
        (_Open, "test_a_console_is_open_to_the_last_microsecond"),
        (_Closing, "test_of_two_consoles_the_one_that_is_open_longest_counts"),
        (_Short, "test_the_newest_snapshot_of_each_node_is_read_by_all"),
    ],
)
def test_a_wrong_board_is_found_out(hub_class: type[MemoryHub], claim: str) -> None:
    """The claim that its fault contradicts fails."""

    class Claims(BoardClaims):
        def make_board(self, clock: ManualClock) -> BoardHub:
            return hub_class(clock=clock)

    with pytest.raises(AssertionError):
        getattr(Claims(), claim)()
