"""Servers that ask for a password or speak TLS, for tests of hubs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from reconverge_sync.cluster import ClusterHub
from reconverge_sync.redis import RedisHub
from tests.brokers import Mosquitto
from tests.redis_cluster import RedisCluster
from tests.servers import RedisServer, free_port

PASSWORD = "p@ss/w0rd:#?%"  # noqa: S105  # a test's own
"""With everything in it that means something in a URL."""
QUOTED_PASSWORD = quote(PASSWORD, safe="")


@dataclass(frozen=True)
class Certificates:
    """An authority, and what it has signed; `stranger` has signed nothing."""

    authority: Path
    server: Path
    client: Path
    stranger: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once, by openssl. Each file holds a certificate and its key."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = _self_signed(directory, "authority")
    return Certificates(
        authority,
        _signed(directory, "server", authority, "subjectAltName=IP:127.0.0.1"),
        _signed(directory, "client", authority, "extendedKeyUsage=clientAuth"),
        _self_signed(directory, "stranger"),
    )


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


def tls_options(certificates: Certificates) -> tuple[str, ...]:
    """What makes a server speak TLS beside its port."""
    files = {
        "tls-cert-file": certificates.server,
        "tls-key-file": certificates.server,
        "tls-ca-cert-file": certificates.authority,
    }
    options = (word for name, path in files.items() for word in (f"--{name}", str(path)))
    return ("--tls-auth-clients", "optional", *options)


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


def _self_signed(directory: Path, name: str) -> Path:
    pem = directory / f"{name}.pem"
    _openssl("req", "-x509", *_new_key(name), "-days", "2", "-keyout", str(pem), "-out", str(directory / f"{name}.crt"))
    return _joined(pem)


def _signed(directory: Path, name: str, authority: Path, extension: str) -> Path:
    pem, request, extensions = (directory / f"{name}.{suffix}" for suffix in ("pem", "csr", "ext"))
    extensions.write_text(extension)
    _openssl("req", *_new_key(name), "-keyout", str(pem), "-out", str(request))
    signing = ["-CA", str(authority), "-CAkey", str(authority), "-set_serial", str(abs(hash(name)))]
    out = ["-out", str(directory / f"{name}.crt")]
    _openssl("x509", "-req", "-days", "2", "-in", str(request), *signing, "-extfile", str(extensions), *out)
    return _joined(pem)


def _joined(pem: Path) -> Path:
    with pem.open("a") as file:
        file.write(pem.with_suffix(".crt").read_text())
    return pem


def _new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"]


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)  # noqa: S607  # wherever the system has it


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
    directory = tmp_path_factory.mktemp("guarded")
    # The documents' namespace is `shop`; tests have one each.
    (directory / "acl").write_text(documented[1].replace("shop/", "+/") + "\nuser stranger\n")
    for user in ("limiter", "stranger"):
        words = ["mosquitto_passwd", *([] if user == "stranger" else ["-c"]), "-b", str(directory / "users")]
        subprocess.run([*words, user, PASSWORD], check=True, capture_output=True)
    (directory / "users").chmod(0o600)
    lines = [
        f"cafile {certificates.authority}",
        f"certfile {certificates.server}",
        f"keyfile {certificates.server}",
        "allow_anonymous false",
        f"password_file {directory / 'users'}",
        f"acl_file {directory / 'acl'}",
    ]
    with Mosquitto(*lines) as broker:
        yield GuardedMosquitto(broker, certificates.authority)
