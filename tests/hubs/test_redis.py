"""Goal: the hub on Redis keeps every promise of a hub, however it is reached.

Method: the contract that all hubs share, on real servers: with the test's clock and with the server's, through TCP, a
unix socket and TLS, with a user who may do nothing else, and divided into shards.
"""

from __future__ import annotations

import pytest

from reconverge.hub import Hub
from reconverge.hubs import HubSettings
from reconverge.testing import HubContract, ManualClock
from reconverge_sync.redis import RedisHub
from tests.servers import RedisServer, free_port

SETTINGS = HubSettings("contract", 5.0)


class TestRedisHub(HubContract):
    """One Redis whose time is the test's; every node has a connection of its own."""

    shards = 1

    @pytest.fixture(autouse=True)
    def on_a_server(self, redis_server: RedisServer) -> None:
        """Use the empty server that the tests share."""
        self.server = redis_server
        self.url = redis_server.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub on an empty server."""
        self.server.command("FLUSHALL")
        self.clock = clock
        return self._hub()

    def join(self, hub: Hub) -> Hub:
        """Another client of the same server."""
        return self._hub()

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet on the same server."""
        return self._hub(HubSettings("contract2", 5.0))

    def make_unreachable(self) -> Hub:
        """A hub on a port that nobody listens on."""
        return RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)

    async def lose_data(self, hub: Hub) -> None:
        """What an operator's mistake does, or a restart without persistence."""
        self.server.command("FLUSHALL")

    def _hub(self, settings: HubSettings = SETTINGS) -> RedisHub:
        return RedisHub(self.url, settings, clock=self.clock, shards=self.shards)


class TestRedisHubOfFourShards(TestRedisHub):
    """Shards change nothing for a node that speaks to each as if it were the only one."""

    shards = 4
    seeds = range(2)


class TestRedisHubWithItsOwnClock(TestRedisHub):
    """The way it is used: all that needs no time to pass."""

    own_clock = True
    seeds = range(2)

    def _hub(self, settings: HubSettings = SETTINGS) -> RedisHub:
        return RedisHub(self.url, settings)
