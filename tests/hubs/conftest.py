"""Servers that ask for a password or speak TLS, for tests of hubs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.redis.hub import RedisHub
from tests.brokers import Mosquitto, guarded_lines
from tests.certificates import Certificates, make_certificates, tls_options
from tests.redis_cluster import RedisCluster
from tests.servers import RedisServer, free_port

PASSWORD = "p@ss/w0rd:#?%"  # noqa: S105  # a test's own
"""With everything in it that means something in a URL."""
QUOTED_PASSWORD = quote(PASSWORD, safe="")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@dataclass(frozen=True)
class TLSRedis:
    """A Redis that also listens on a port with TLS."""

    server: RedisServer
    port: int

    def url(self, authority: Path, more: str = "") -> str:
        """Where a hub finds it that trusts `authority`."""
        return f"rediss://127.0.0.1:{self.port}/0?ssl_ca_certs={authority}{more}"


@pytest.fixture(scope="session")
def tls_redis(certificates: Certificates) -> Iterator[TLSRedis]:
    """One Redis with TLS for all tests that leave it as they found it; clients need no certificate."""
    port = free_port()
    with RedisServer("--tls-port", str(port), *tls_options(certificates)) as server:
        yield TLSRedis(server, port)


@pytest.fixture
def acl_line() -> str:
    """What RedisHub says its user must be allowed."""
    return _acl_line(RedisHub)


@pytest.fixture
def cluster_acl_line() -> str:
    """What ClusterHub says its user must be allowed."""
    return _acl_line(ClusterHub)


def _acl_line(hub_class: type[RedisHub]) -> str:
    found = re.search(r"ACL SETUSER \S+ (on .*?)\n\n", hub_class.__doc__ or "", re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RedisCluster]:
    """A cluster of three masters for all tests that leave it as they found it."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tls_cluster(certificates: Certificates) -> Iterator[RedisCluster]:
    """Likewise, with TLS, also among the servers."""
    with RedisCluster(tls=(*tls_options(certificates), "--tls-cluster", "yes")) as cluster:
        yield cluster


@pytest.fixture
def acl_redis(own_redis: RedisServer, acl_line: str) -> RedisServer:
    """A Redis with a user `shop` who may do what a hub of that namespace needs, and nothing else."""
    allow(own_redis, acl_line)
    return own_redis


def allow(server: RedisServer, line: str, *more: str) -> None:
    """Have the user `shop`, and what the line says it may do."""
    words = line.replace(">PASSWORD", f">{PASSWORD}").split()
    assert "+OK" == server.command("ACL", "SETUSER", "shop", "reset", *words, *more)


def shop_url(server: RedisServer) -> str:
    """Where that user's hub finds the server."""
    return f"redis://shop:{QUOTED_PASSWORD}@127.0.0.1:{server.port}/0"


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """One broker for all tests that use namespaces of their own."""
    with Mosquitto() as broker:
        yield broker


@pytest.fixture
def own_mosquitto() -> Iterator[Mosquitto]:
    """A broker of this test's own, to kill and to pause."""
    with Mosquitto() as broker:
        yield broker


@dataclass(frozen=True)
class GuardedMosquitto:
    """A broker that speaks TLS, and knows a user `limiter`, who may do what the documents say, and `stranger`."""

    broker: Mosquitto
    authority: Path

    def url(self, user: str = "limiter", password: str = QUOTED_PASSWORD, more: str = "") -> str:
        """Where a hub finds it."""
        return f"mqtts://{user}:{password}@127.0.0.1:{self.broker.port}?ssl_ca_certs={self.authority}{more}"


@pytest.fixture(scope="session")
def guarded_mosquitto(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GuardedMosquitto]:
    """One for all tests that leave it as they found it."""
    documented = re.search(r"```\n(user limiter\n.*?)```", Path("docs/mqtt.md").read_text(), re.DOTALL)
    assert documented is not None
    # The documents' namespace is `shop`; tests have one each.
    acl = documented[1].replace("shop/", "+/") + "\nuser stranger\n"
    place = tmp_path_factory.mktemp("guarded")
    lines = guarded_lines(place, certificates, users=("limiter", "stranger"), password=PASSWORD, acl=acl)
    with Mosquitto(*lines) as broker:
        yield GuardedMosquitto(broker, certificates.authority)
