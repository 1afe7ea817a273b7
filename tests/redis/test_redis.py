"""Goal: the hub on Redis keeps every promise of a hub, however it is reached.

Method: the contract that all hubs share, on real servers: with the test's clock and with the server's, divided into
shards, and with a user who may do nothing else; through a unix socket and TLS what depends on the way.
"""

from __future__ import annotations

import pytest

from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import HubClaims, ManualClock, ReaderClaims
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import TLSRedis, shop_url
from tests.support.hubs.reached import WayClaims
from tests.support.servers import RedisServer, free_port

SETTINGS = HubSettings("claims", 5.0)


class OnRedis(WayClaims):
    """One Redis whose time is the test's; every node has a connection of its own."""

    seeds = range(1)
    shards = 1
    settings = SETTINGS

    @pytest.fixture(autouse=True)
    def on_a_server(self, redis_server: RedisServer) -> None:
        """Use the empty server that the tests share."""
        self.server = redis_server
        self.url = redis_server.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub on an empty server."""
        self.server.command("FLUSHALL")
        self.clock = clock
        return self.open_hub(self.url, self.settings)

    def join(self, hub: Hub) -> Hub:
        """Another client of the same server."""
        return self.open_hub(self.url, self.settings)

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet on the same server; another user's, where the server has users."""
        return self.open_hub(self.server.url, HubSettings("contract2", 5.0))

    def make_unreachable(self) -> Hub:
        """A hub on a port that nobody listens on."""
        return RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)

    async def lose_data(self, hub: Hub) -> None:
        """Flushes the server, as an operator's mistake does, or a restart without persistence."""
        self.server.command("FLUSHALL")

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """One more client."""
        return RedisHub(url, settings, clock=self.clock, shards=self.shards)


class TestRedisHub(OnRedis, HubClaims, ReaderClaims):
    """The script merges as the rule does in Python."""

    seeds = range(4)


class TestRedisHubOfFourShards(TestRedisHub):
    """Shards change nothing for a node that speaks to each as if it were the only one."""

    shards = 4
    seeds = range(2)


class TestRedisHubWithItsOwnClock(TestRedisHub):
    """The way it is used: all that needs no time to pass."""

    own_clock = True
    seeds = range(2)

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """A client that has the script ask for the time."""
        return RedisHub(url, settings)


class TestRedisHubOverASocket(OnRedis):
    """Where the server is on the same machine."""

    @pytest.fixture(autouse=True)
    def on_a_server(self, redis_server: RedisServer) -> None:
        """Use the unix socket of the server that the tests share."""
        self.server = redis_server
        self.url = f"redis+unix://{redis_server.socket}?db=3"


class TestRedisHubOfAUserWithFewRights(TestRedisHubWithItsOwnClock):
    """All that a hub does is allowed to a user who may do nothing else."""

    seeds = range(1)
    settings = HubSettings("shop", 5.0)

    @pytest.fixture(autouse=True)
    def on_a_server(self, acl_redis: RedisServer) -> None:
        """Use a server with such a user."""
        self.server = acl_redis
        self.url = shop_url(acl_redis)

    def make_operator(self, hub: Hub) -> Hub:
        """The server's administrator, who may look through its keys."""
        return self.open_hub(self.server.url, self.settings)


class TestRedisHubBehindTLS(OnRedis):
    """With a certificate that an authority of our own has signed."""

    @pytest.fixture(autouse=True)
    def behind_tls(self, tls_redis: TLSRedis, certificates: Certificates) -> None:
        """Use the server with TLS."""
        self.server = tls_redis.server
        self.url = tls_redis.url(certificates.authority)
