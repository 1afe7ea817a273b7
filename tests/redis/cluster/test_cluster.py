"""Goal: the hub on a Redis Cluster keeps every promise of a hub, however it is reached.

Method: what depends on the way to a hub, on a cluster of three real masters: with the test's clock; and with the
servers', over TLS, as a user who may do nothing else.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import BoardClaims, ManualClock, ReaderClaims
from reconverge.testing.board_claims import BoardHub
from reconverge_sync.cluster.hub import ClusterHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import QUOTED_PASSWORD, allow
from tests.support.hubs.reached import WayClaims
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import free_port

pytestmark = pytest.mark.slow  # several servers are started, and found

TIMEOUT_S = 30.0
SETTINGS = HubSettings("claims", TIMEOUT_S)


class OnCluster(WayClaims):
    """Eight shards on three masters; every node has connections of its own."""

    seeds = range(1)
    shards = 8
    settings = SETTINGS

    @pytest.fixture(autouse=True)
    def on_a_cluster(self, shared_cluster: RedisCluster) -> None:
        """Use the cluster that the tests share."""
        self.cluster = shared_cluster
        self.url = shared_cluster.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub on an empty cluster."""
        self.cluster.flush()
        self.clock = clock
        return self.open_hub(self.url, self.settings)

    def join(self, hub: Hub) -> Hub:
        """Another client of the same cluster."""
        return self.open_hub(self.url, self.settings)

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet on the same cluster; another user's, where the servers have users."""
        return self.open_hub(self.cluster.url, HubSettings("contract2", TIMEOUT_S))

    def make_unreachable(self) -> Hub:
        """A hub of which nobody listens."""
        return ClusterHub(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}", SETTINGS)

    async def lose_data(self, hub: Hub) -> None:
        """All of the cluster comes back empty."""
        self.cluster.flush()

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """One more client."""
        return ClusterHub(url, settings, clock=self.clock, shards=self.shards)


class TestClusterHub(OnCluster, ReaderClaims):
    """Keys are read, adopted and erased on all masters."""


class TestClusterHubBehindTLS(OnCluster):
    """With certificates that an authority of our own has signed, and as a user with few rights."""

    own_clock = True
    settings = HubSettings("shop", TIMEOUT_S)

    @pytest.fixture(autouse=True)
    def on_a_cluster(self, tls_cluster: RedisCluster, certificates: Certificates, cluster_acl_line: str) -> None:
        """Use a cluster whose servers speak TLS with each other, too."""
        for server in tls_cluster.servers:
            allow(server, cluster_acl_line)
        self.cluster = tls_cluster
        place = f"127.0.0.1:{tls_cluster.tls_ports[0]}"
        self.url = f"rediss+cluster://shop:{QUOTED_PASSWORD}@{place}?ssl_ca_certs={certificates.authority}"
        assert urlsplit(self.url).scheme == "rediss+cluster"

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet of another user, by the same way."""
        login = f"shop:{QUOTED_PASSWORD}@"
        return self.open_hub(self.url.replace(login, ""), HubSettings("contract2", TIMEOUT_S))

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """A client that has the script ask for the time, with as many shards as it has by itself."""
        return ClusterHub(url, settings)


class TestSnapshotsOnACluster(BoardClaims):
    """A console sees the nodes of a fleet on a cluster, as a user who may do nothing but what a hub does."""

    @pytest.fixture(autouse=True)
    def _on_a_cluster(self, shared_cluster: RedisCluster, cluster_acl_line: str) -> None:
        for server in shared_cluster.servers:
            allow(server, cluster_acl_line)
        self.cluster = shared_cluster

    def make_board(self, clock: ManualClock) -> BoardHub:
        self.cluster.flush()
        self.clock = clock
        return self._board("shop", f"shop:{QUOTED_PASSWORD}@")

    def join_board(self, hub: BoardHub) -> BoardHub:  # it is the same cluster
        return self._board("shop", f"shop:{QUOTED_PASSWORD}@")

    def make_board_of_a_stranger(self, hub: BoardHub) -> BoardHub:  # likewise
        return self._board("other", "")

    def _board(self, namespace: str, login: str) -> BoardHub:
        url = self.cluster.url.replace("://", f"://{login}")
        return ClusterHub(url, HubSettings(namespace, TIMEOUT_S), clock=self.clock)
