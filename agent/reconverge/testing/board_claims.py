"""The promises of `reconverge.hub.SnapshotBoard`, as tests that the tests of such a hub inherit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from unittest import SkipTest

from reconverge.clock import ManualClock
from reconverge.hub.board import SNAPSHOT_BYTES_MAX, SNAPSHOTS_MAX
from reconverge.hub.port import SnapshotBoard

START_S: Final = 1_750_000_000.0
MICROSECOND_S: Final = 1 / 1_000_000
PAYLOAD: Final = bytes(range(256))
KEEP_S: Final = 5.0


class BoardHub(SnapshotBoard, Protocol):
    """A board that has connections to let go of."""

    async def close(self) -> None: ...


Claim = Callable[[BoardHub, ManualClock], Awaitable[None]]


class BoardClaims:
    """Promises of every board of snapshots, claim by claim; to be inherited beside `HubClaims`, or alone."""

    def make_board(self, clock: ManualClock) -> BoardHub:
        """A hub that keeps nothing yet, and goes by that clock. Called outside of any event loop, for each claim."""
        raise NotImplementedError("say which hub to test: def make_board(self, clock: ManualClock) -> Hub")

    def join_board(self, hub: BoardHub) -> BoardHub:
        """Another object for the same hub, as another process would have; else `hub` itself."""
        return hub

    def make_board_of_a_stranger(self, hub: BoardHub) -> BoardHub:
        """A hub on the same server, with another namespace."""
        raise SkipTest("make_board_of_a_stranger is not provided")

    def test_nothing_is_taken_while_no_console_is_open(self) -> None:
        """A hub without a console has no snapshots to keep."""

        async def claim(hub: BoardHub, _clock: ManualClock) -> None:
            assert 0.0 == await hub.watched_s()
            assert not await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
            assert {} == dict(await hub.snapshots())

        self._try(claim)

    def test_a_console_is_open_to_the_last_microsecond(self) -> None:
        """Snapshots are taken until the mark ends, and not from then on."""

        async def claim(hub: BoardHub, clock: ManualClock) -> None:
            await self._another(hub).watch(keep_s=10.0)
            clock.advance(10.0 - MICROSECOND_S)
            assert 0.0 < await hub.watched_s() <= MICROSECOND_S
            assert await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
            clock.advance(MICROSECOND_S)
            assert 0.0 == await hub.watched_s()
            assert not await hub.leave_snapshot("b2", PAYLOAD, keep_s=KEEP_S)

        self._try(claim)

    def test_of_two_consoles_the_one_that_is_open_longest_counts(self) -> None:
        """One that asks for less does not close another."""

        async def claim(hub: BoardHub, _clock: ManualClock) -> None:
            await hub.watch(keep_s=60.0)
            await self._another(hub).watch(keep_s=1.0)
            assert 60.0 == await hub.watched_s()

        self._try(claim)

    def test_the_newest_snapshot_of_each_node_is_read_by_all(self) -> None:
        """Any bytes, up to the bound, as they were left."""

        async def claim(hub: BoardHub, _clock: ManualClock) -> None:
            await hub.watch(keep_s=60.0)
            for name, payload in (("a1", b"old"), ("b2", b""), ("a1", PAYLOAD), ("c3", b"x" * SNAPSHOT_BYTES_MAX)):
                assert await self._another(hub).leave_snapshot(name, payload, keep_s=KEEP_S)
            read = dict(await self._another(hub).snapshots())
            assert {"a1": PAYLOAD, "b2": b"", "c3": b"x" * SNAPSHOT_BYTES_MAX} == read

        self._try(claim)

    def test_a_snapshot_is_kept_for_its_time(self) -> None:
        """To the last microsecond, and by each node's own newest one."""

        async def claim(hub: BoardHub, clock: ManualClock) -> None:
            await hub.watch(keep_s=60.0)
            await hub.leave_snapshot("a1", b"one", keep_s=KEEP_S)
            clock.advance(1.0)
            await hub.leave_snapshot("b2", b"two", keep_s=KEEP_S)
            clock.advance(KEEP_S - 1.0 - MICROSECOND_S)
            assert {"a1", "b2"} == set(await hub.snapshots())
            clock.advance(MICROSECOND_S)
            assert {"b2": b"two"} == dict(await hub.snapshots())

        self._try(claim)

    def test_there_are_so_many_snapshots_and_no_more(self) -> None:
        """One too many is not taken until another one is over; a node that has one goes on."""

        async def claim(hub: BoardHub, clock: ManualClock) -> None:
            await hub.watch(keep_s=60.0)
            for number in range(SNAPSHOTS_MAX):
                assert await hub.leave_snapshot(f"{number:x}", b"", keep_s=KEEP_S)
            assert not await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
            assert await hub.leave_snapshot("0", b"again", keep_s=2 * KEEP_S)
            assert SNAPSHOTS_MAX == len(await hub.snapshots())
            clock.advance(KEEP_S)
            assert await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
            assert {"0", "ffff"} == set(await hub.snapshots())

        self._try(claim)

    def test_what_is_too_long_or_has_no_name_is_an_error(self) -> None:
        """Both would be a mistake of this package."""

        async def claim(hub: BoardHub, _clock: ManualClock) -> None:
            await hub.watch(keep_s=60.0)
            for name, payload in (("a1", b"x" * (SNAPSHOT_BYTES_MAX + 1)), ("#", b""), ("", b""), ("0" * 33, b"")):
                try:
                    await hub.leave_snapshot(name, payload, keep_s=KEEP_S)
                except ValueError:
                    continue
                raise AssertionError(f"{name!r} with {len(payload)} bytes was taken")
            assert {} == dict(await hub.snapshots())

        self._try(claim)

    def test_namespaces_do_not_see_each_others_snapshots(self) -> None:
        """Neither that a console is open."""

        async def claim(hub: BoardHub, _clock: ManualClock) -> None:
            stranger = self.make_board_of_a_stranger(hub)
            self._joined.append(stranger)
            await hub.watch(keep_s=60.0)
            await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
            assert 0.0 == await stranger.watched_s()
            assert {} == dict(await stranger.snapshots())

        self._try(claim)

    def _another(self, hub: BoardHub) -> BoardHub:
        joined = self.join_board(hub)
        self._joined.append(joined)
        return joined

    def _try(self, claim: Claim) -> None:
        clock = ManualClock(START_S)
        hub = self.make_board(clock)
        self._joined = [hub]

        async def run() -> None:
            try:
                await claim(hub, clock)
            finally:
                for each in self._joined:
                    await each.close()

        asyncio.run(run())
