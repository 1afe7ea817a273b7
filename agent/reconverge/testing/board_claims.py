"""Tests of the promises of `reconverge.hub.SnapshotBoard`, for the tests of such a hub to inherit."""

from __future__ import annotations

from typing import Final

from reconverge.hub.board import SNAPSHOT_BYTES_MAX, SNAPSHOTS_MAX
from reconverge.hub.port import Hub, SnapshotBoard
from reconverge.testing.claims.scenes.scene import Scene
from reconverge.testing.claims.scenes.trial import Trial, claim

MICROSECOND_S: Final = 1 / 1_000_000
PAYLOAD: Final = bytes(range(256))
KEEP_S: Final = 5.0


def board(hub: Hub) -> SnapshotBoard:
    """Returns `hub`. Raises AssertionError unless it is a board of snapshots."""
    assert isinstance(hub, SnapshotBoard), "the hub is no reconverge.hub.SnapshotBoard"
    return hub


class BoardClaims(Trial):
    """Tests of the promises of every board of snapshots; to be inherited beside `HubClaims`, or alone.

    `HubClaims` describes the methods to define.
    """

    @claim
    async def test_nothing_is_taken_while_no_console_is_open(self, scene: Scene) -> None:
        """Without an open console the board takes no snapshots."""
        hub = board(scene.hub)
        assert 0.0 == await hub.watched_s()
        assert not await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        assert {} == dict(await hub.snapshots())

    @claim
    async def test_a_console_is_open_to_the_last_microsecond(self, scene: Scene) -> None:
        """The board takes snapshots until a console's time is over, and none from that microsecond on."""
        hub = board(scene.hub)
        await board(scene.another_hub()).watch(keep_s=10.0)
        scene.pass_time(10.0 - MICROSECOND_S)
        assert 0.0 < await hub.watched_s() <= MICROSECOND_S
        assert await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        scene.pass_time(MICROSECOND_S)
        assert 0.0 == await hub.watched_s()
        assert not await hub.leave_snapshot("b2", PAYLOAD, keep_s=KEEP_S)

    @claim
    async def test_of_two_consoles_the_one_that_is_open_longest_counts(self, scene: Scene) -> None:
        """A console that asks the board for a shorter time than another does not shorten the other's time."""
        hub = board(scene.hub)
        await hub.watch(keep_s=60.0)
        await board(scene.another_hub()).watch(keep_s=1.0)
        scene.pass_time(1.0)
        assert 59.0 == await hub.watched_s()

    @claim
    async def test_the_newest_snapshot_of_each_node_is_read_by_all(self, scene: Scene) -> None:
        """All readers get each node's newest snapshot unchanged: any bytes, up to the bound."""
        hub = board(scene.hub)
        await hub.watch(keep_s=60.0)
        for name, payload in (("a1", b"old"), ("b2", b""), ("a1", PAYLOAD), ("c3", b"x" * SNAPSHOT_BYTES_MAX)):
            assert await board(scene.another_hub()).leave_snapshot(name, payload, keep_s=KEEP_S)
        read = dict(await board(scene.another_hub()).snapshots())
        assert {"a1": PAYLOAD, "b2": b"", "c3": b"x" * SNAPSHOT_BYTES_MAX} == read

    @claim
    async def test_a_snapshot_is_kept_for_its_time(self, scene: Scene) -> None:
        """The board keeps a snapshot to the last microsecond of its time; another node's does not extend that time."""
        hub = board(scene.hub)
        await hub.watch(keep_s=60.0)
        await hub.leave_snapshot("a1", b"one", keep_s=KEEP_S)
        scene.pass_time(1.0)
        await hub.leave_snapshot("b2", b"two", keep_s=KEEP_S)
        scene.pass_time(KEEP_S - 1.0 - MICROSECOND_S)
        assert {"a1", "b2"} == set(await hub.snapshots())
        scene.pass_time(MICROSECOND_S)
        assert {"b2": b"two"} == dict(await hub.snapshots())

    @claim
    async def test_there_are_so_many_snapshots_and_no_more(self, scene: Scene) -> None:
        """A full board takes no further node's snapshot until one expires; nodes with a snapshot can renew it."""
        hub = board(scene.hub)
        scene.pass_time(1.0)  # with a clock of its own, a slow hub would lose the first before the last
        await hub.watch(keep_s=3600.0)  # so that a server which expires keys by its own clock has it to the end
        for number in range(SNAPSHOTS_MAX):
            assert await hub.leave_snapshot(f"{number:x}", b"", keep_s=KEEP_S)
        assert not await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
        assert await hub.leave_snapshot("0", b"again", keep_s=2 * KEEP_S)
        assert SNAPSHOTS_MAX == len(await hub.snapshots())
        scene.pass_time(KEEP_S)
        assert await hub.leave_snapshot("ffff", b"", keep_s=KEEP_S)
        assert {"0", "ffff"} == set(await hub.snapshots())

    @claim
    async def test_what_is_too_long_or_has_no_name_is_an_error(self, scene: Scene) -> None:
        """The board raises ValueError for a snapshot that is too long, or that has no valid name."""
        hub = board(scene.hub)
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
    async def test_namespaces_do_not_see_each_others_snapshots(self, scene: Scene) -> None:
        """A hub with another namespace sees neither the snapshots nor that a console is open."""
        hub, stranger = board(scene.hub), board(scene.keep(self.make_stranger(scene.hub)))
        await hub.watch(keep_s=60.0)
        await hub.leave_snapshot("a1", PAYLOAD, keep_s=KEEP_S)
        assert 0.0 == await stranger.watched_s()
        assert {} == dict(await stranger.snapshots())
