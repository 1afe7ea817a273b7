"""Goal: the hub on a Redis Cluster keeps every promise of a hub, however it is reached.

Method: what depends on the way to a hub, on a cluster of three real masters: with the test's clock; and with the
servers', over TLS, as a user who may do nothing else.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from reconverge.hub.registry import HubSettings
from reconverge.testing import ReaderClaims
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import allow
from tests.support.hubs.reached import StoreClaims, WayClaims
from tests.support.hubs.ways import LOGIN, OnCluster
from tests.support.redis_cluster import RedisCluster

pytestmark = pytest.mark.slow  # several servers are started, and found


class TestClusterHub(OnCluster, WayClaims, ReaderClaims, StoreClaims):
    """Keys are read, adopted and erased on all masters, over which pages of contracts are spread."""


class TestClusterHubBehindTLS(OnCluster, WayClaims, StoreClaims):
    """With certificates that an authority of our own has signed, as a user with few rights, with sixteen shards."""

    own_clock = True
    settings = HubSettings("shop", 30.0)

    @pytest.fixture(autouse=True)
    def on_a_cluster(self, tls_cluster: RedisCluster, certificates: Certificates, cluster_acl_line: str) -> None:
        """Uses a cluster whose servers speak TLS with each other, too."""
        for server in tls_cluster.servers:
            allow(server, cluster_acl_line)
        self.cluster = tls_cluster
        self.url = f"rediss+cluster://{LOGIN}127.0.0.1:{tls_cluster.tls_ports[0]}?ssl_ca_certs={certificates.authority}"
        assert urlsplit(self.url).scheme == "rediss+cluster"
