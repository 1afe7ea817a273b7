"""Goal: the hub on Redis keeps every promise of a hub, however it is reached.

Method: the contract that all hubs share, on real servers: with the test's clock and with the server's, divided into
shards, and with a user who may do nothing else; through a unix socket and TLS what depends on the way.
"""

from __future__ import annotations

import pytest

from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import HubClaims, ReaderClaims
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import TLSRedis, shop_url
from tests.support.hubs.reached import StoreClaims, WayClaims
from tests.support.hubs.ways import LOGIN, OnRedis
from tests.support.servers import RedisServer


class TestRedisHub(OnRedis, HubClaims, ReaderClaims, StoreClaims):
    """The script merges as the rule does in Python."""

    seeds = range(4)


class TestRedisHubOfFourShards(TestRedisHub):
    """Shards change nothing for a node that speaks to each as if it were the only one."""

    seeds = range(2)

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        return RedisHub(url, settings, clock=self.clock, shards=4)


class TestRedisHubWithItsOwnClock(TestRedisHub):
    """The way it is used: all that needs no time to pass."""

    own_clock = True
    seeds = range(2)


class TestRedisHubOverASocket(OnRedis, WayClaims):
    """Where the server is on the same machine."""

    @pytest.fixture(autouse=True)
    def on_a_server(self, redis_server: RedisServer) -> None:
        """Uses the unix socket of the server that the tests share."""
        self.server = redis_server
        self.url = f"redis+unix://{redis_server.socket}?db=3"


class TestRedisHubOfAUserWithFewRights(TestRedisHubWithItsOwnClock):
    """All that a hub does is allowed to a user who may do nothing else."""

    seeds = range(1)
    settings = HubSettings("shop", 5.0)

    @pytest.fixture(autouse=True)
    def on_a_server(self, acl_redis: RedisServer) -> None:
        """Uses a server with such a user."""
        self.server = acl_redis
        self.url = shop_url(acl_redis)

    def make_operator(self, hub: Hub) -> Hub:
        """The server's administrator, who may look through its keys."""
        return self.open_hub(self.url.replace(LOGIN, ""), self.settings)


class TestRedisHubBehindTLS(OnRedis, WayClaims):
    """With a certificate that an authority of our own has signed."""

    @pytest.fixture(autouse=True)
    def on_a_server(self, tls_redis: TLSRedis, certificates: Certificates) -> None:
        """Uses the server with TLS."""
        self.server = tls_redis.server
        self.url = tls_redis.url(certificates.authority)
