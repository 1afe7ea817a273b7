"""Tests of the promises of `reconverge.hub.SnapshotBoard`, for the tests of such a hub to inherit."""

from __future__ import annotations

from typing import Final, Protocol
from unittest import SkipTest

from reconverge.clock import ManualClock
from reconverge.hub.board import SNAPSHOT_BYTES_MAX, SNAPSHOTS_MAX
from reconverge.hub.port import SnapshotBoard
from reconverge.testing.claims.scenes.trial import Tried, claims_by, run_and_close

START_S: Final = 1_750_000_000.0
MICROSECOND_S: Final = 1 / 1_000_000
PAYLOAD: Final = bytes(range(256))
KEEP_S: Final = 5.0


class BoardHub(SnapshotBoard, Protocol):
    """A board of snapshots that can be closed."""

    async def close(self) -> None: ...


@claims_by
def claim(suite: BoardClaims, tried: Tried) -> None:
    """Tries a claim on a new board."""
    suite._on_a_board(tried)  # noqa: SLF001  # it is of this file


class BoardClaims:
    """Tests of the promises of every board of snapshots; to be inherited beside `HubClaims`, or alone."""

    def make_board(self, clock: ManualClock) -> BoardHub:
        """Returns a hub without data that uses this clock. Called outside of any event loop, once for each claim."""
        raise NotImplementedError("define which hub to test: def make_board(self, clock: ManualClock) -> Hub")

    def join_board(self, hub: BoardHub) -> BoardHub:
        """Returns another object for the same hub, as another process would have; by default `hub` itself."""
        return hub

    def make_board_of_a_stranger(self, hub: BoardHub) -> BoardHub:
        """Returns a hub on the same server, with another namespace."""
        raise SkipTest("the suite has no make_board_of_a_stranger; define it to test a hub of another namespace")

    def _on_a_board(self, tried: Tried) -> None:
        """Runs a claim with a new board and a new clock."""
        self._clock = ManualClock(START_S)
        hub = self.make_board(self._clock)
        self._joined = [hub]
        run_and_close(tried(hub), self._joined)

    @claim
    async def test_nothing_is_taken_while_no_console_is_open(self, hub: BoardHub) -> None:
        """Without an open console the board takes no snapshots."""
        assert 0.0 == await hub.watched_s()
        assert not await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        assert {} == dict(await hub.snapshots())

    @claim
    async def test_a_console_is_open_to_the_last_microsecond(self, hub: BoardHub) -> None:
        """The board takes snapshots until a console's time is over, and none from that microsecond on."""
        await self._another(hub).watch(keep_s=10.0)
        self._clock.advance(10.0 - MICROSECOND_S)
        assert 0.0 < await hub.watched_s() <= MICROSECOND_S
        assert await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        self._clock.advance(MICROSECOND_S)
        assert 0.0 == await hub.watched_s()
        assert not await hub.leave_snapshot("b2", PAYLOAD, keep_s=KEEP_S)

    @claim
    async def test_of_two_consoles_the_one_that_is_open_longest_counts(self, hub: BoardHub) -> None:
        """A console that asks the board for a shorter time than another does not shorten the other's time."""
        await hub.watch(keep_s=60.0)
        await self._another(hub).watch(keep_s=1.0)
        assert 60.0 == await hub.watched_s()

    @claim
    async def test_the_newest_snapshot_of_each_node_is_read_by_all(self, hub: BoardHub) -> None:
        """All readers get each node's newest snapshot unchanged: any bytes, up to the bound."""
        await hub.watch(keep_s=60.0)
        for name, payload in (("a1", b"old"), ("b2", b""), ("a1", PAYLOAD), ("c3", b"x" * SNAPSHOT_BYTES_MAX)):
            assert await self._another(hub).leave_snapshot(name, payload, keep_s=KEEP_S)
        read = dict(await self._another(hub).snapshots())
        assert {"a1": PAYLOAD, "b2": b"", "c3": b"x" * SNAPSHOT_BYTES_MAX} == read

    @claim
    async def test_a_snapshot_is_kept_for_its_time(self, hub: BoardHub) -> None:
        """The board keeps a snapshot to the last microsecond of its time; no other node's snapshot extends that time."""
        await hub.watch(keep_s=60.0)
        await hub.leave_snapshot("a1", b"one", keep_s=KEEP_S)
        self._clock.advance(1.0)
        await hub.leave_snapshot("b2", b"two", keep_s=KEEP_S)
        self._clock.advance(KEEP_S - 1.0 - MICROSECOND_S)
        assert {"a1", "b2"} == set(await hub.snapshots())
        self._clock.advance(MICROSECOND_S)
        assert {"b2": b"two"} == dict(await hub.snapshots())

    @claim
    async def test_there_are_so_many_snapshots_and_no_more(self, hub: BoardHub) -> None:
        """A full board takes no further node's snapshot until one expires; nodes with a snapshot can renew it."""
        await hub.watch(keep_s=60.0)
        for number in range(SNAPSHOTS_MAX):
            assert await hub.leave_snapshot(f"{number:x}", b"", keep_s=KEEP_S)
        assert not await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
        assert await hub.leave_snapshot("0", b"again", keep_s=2 * KEEP_S)
        assert SNAPSHOTS_MAX == len(await hub.snapshots())
        self._clock.advance(KEEP_S)
        assert await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
        assert {"0", "ffff"} == set(await hub.snapshots())

    @claim
    async def test_what_is_too_long_or_has_no_name_is_an_error(self, hub: BoardHub) -> None:
        """The board raises ValueError for a snapshot that is too long, or that has no valid name."""
        await hub.watch(keep_s=60.0)
        for name, payload in (("a1", b"x" * (SNAPSHOT_BYTES_MAX + 1)), ("#", b""), ("", b""), ("0" * 33, b"")):
            try:
                await hub.leave_snapshot(name, payload, keep_s=KEEP_S)
            except ValueError:
                continue
            raise AssertionError(
                f"the hub took a snapshot of {len(payload)} bytes with the name {name!r}; it must raise ValueError"
            )
        assert {} == dict(await hub.snapshots())

    @claim
    async def test_namespaces_do_not_see_each_others_snapshots(self, hub: BoardHub) -> None:
        """A hub with another namespace sees neither the snapshots nor that a console is open."""
        stranger = self.make_board_of_a_stranger(hub)
        self._joined.append(stranger)
        await hub.watch(keep_s=60.0)
        await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        assert 0.0 == await stranger.watched_s()
        assert {} == dict(await stranger.snapshots())

    def _another(self, hub: BoardHub) -> BoardHub:
        joined = self.join_board(hub)
        self._joined.append(joined)
        return joined
