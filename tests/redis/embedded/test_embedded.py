"""Goal: the embedded hub keeps every promise of a hub. Method: what depends on the way, on its own server."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from reconverge.hub import Hub
from reconverge.hub.port import SnapshotBoard
from reconverge.hub.registry import HubSettings
from reconverge.testing import ManualClock
from reconverge_sync.embedded.hub import EmbeddedHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.hubs.reached import WayClaims

SETTINGS = HubSettings("claims", 5.0)
_numbers = count(1)


class TestEmbeddedHub(WayClaims):
    """A server for each claim, which goes by the machine's clock."""

    own_clock = True
    seeds = range(1)

    @pytest.fixture(autouse=True)
    def in_a_directory_of_its_own(self, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No other test, and nobody else, uses this server."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))

    def make_hub(self, clock: ManualClock) -> Hub:
        """The first to use a server that does not run yet; the last one may still be ending."""
        self.url = f"embedded://claims{next(_numbers)}"
        return EmbeddedHub(self.url, SETTINGS)

    def join(self, hub: Hub) -> Hub:
        """One more user of the same server."""
        return EmbeddedHub(self.url, SETTINGS)

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet that uses the same server."""
        return EmbeddedHub(self.url, HubSettings("contract2", 5.0))

    async def lose_data(self, hub: Hub) -> None:
        """Empty the server."""
        assert isinstance(hub, EmbeddedHub)
        await hub.ensure_running()
        redis = RedisHub(hub.url, SETTINGS)
        await redis._call("FLUSHALL")
        await redis.close()

    async def test_a_console_of_another_user_of_the_server_sees_snapshots(self) -> None:
        """It is a Redis like any; a port that is missing here would have each console show one process alone."""
        hub = self.make_hub(ManualClock(0.0))
        other = self.join(hub)
        assert isinstance(hub, SnapshotBoard)
        assert isinstance(other, SnapshotBoard)

        await other.watch(keep_s=60.0)
        watched_s = await hub.watched_s()
        left = await hub.leave_snapshot("a1", b"{}", keep_s=60.0)
        found = dict(await other.snapshots())
        await hub.close()
        await other.close()

        assert 0.0 < watched_s <= 60.0
        assert (True, {"a1": b"{}"}) == (left, found)
