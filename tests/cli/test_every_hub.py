"""Goal: replay and doctor serve for every hub that there is, over TLS and as a user with few rights.

Method: one Redis, one that Sentinels watch, a cluster, and a broker of MQTT; two seconds of requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis.sentinel.test_sentinel import FINDER_LINE, FINDER_OPTIONS
from tests.support.certificates import Certificates, tls_options
from tests.support.commands.checked import check
from tests.support.fixtures.servers import QUOTED_PASSWORD, GuardedMosquitto, TLSRedis, allow
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisService

pytestmark = pytest.mark.slow  # servers of all kinds are started

LOGIN = f"shop:{QUOTED_PASSWORD}@"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three keys are asked for a hundred times a second; one of them gets most of it."""
    path = tmp_path_factory.mktemp("recordings") / "short.csv"
    keys = ["ada", "ada", "eve", "ada", "bob"]
    path.write_text("t_s,client\n" + "".join(f"{n / 100},{keys[n % len(keys)]}\n" for n in range(250)))
    return path


@pytest.fixture
def redis_url(tls_redis: TLSRedis, certificates: Certificates, acl_line: str) -> str:
    """One Redis."""
    allow(tls_redis.server, _of_replays(acl_line))
    return tls_redis.url(certificates.authority).replace("://", f"://{LOGIN}")


@pytest.fixture
def cluster_url(tls_cluster: RedisCluster, certificates: Certificates, cluster_acl_line: str) -> str:
    """A cluster of three masters."""
    for server in tls_cluster.servers:
        allow(server, _of_replays(cluster_acl_line))
    place = f"127.0.0.1:{tls_cluster.tls_ports[0]}"
    return f"rediss+cluster://{LOGIN}{place}?shards=4&ssl_ca_certs={certificates.authority}"


@pytest.fixture
def sentinel_url(certificates: Certificates, acl_line: str) -> Iterator[str]:
    """A master, its replica and three Sentinels."""
    with RedisService(tls=tls_options(certificates), sentinel_lines=(FINDER_LINE,)) as service:
        for server in (service.master, service.replica):
            allow(server, _of_replays(acl_line))
        place = service.url.replace("redis+sentinel://", f"rediss+sentinel://{LOGIN}")
        yield f"{place}?{FINDER_OPTIONS}&ssl_ca_certs={certificates.authority}"


@pytest.fixture
def broker_url(guarded_mosquitto: GuardedMosquitto) -> str:
    """A mosquitto."""
    return guarded_mosquitto.url(more="&tenure=3")


HUBS = ["redis_url", "cluster_url", "sentinel_url", "broker_url"]


@pytest.mark.parametrize("hub", HUBS)
def test_a_recording_is_replayed(hub: str, recording: Path, request: pytest.FixtureRequest) -> None:
    """Strict is never over, the counts are exact, and the password is in nothing that is said."""
    words = [recording, "--limit", "20/second", "--key", "client", "--speed", 1, "--nodes", 3, "--policy", "strict"]
    command = [sys.executable, "-m", "reconverge.cli", "replay", *map(str, words), "--json"]
    command += ["--hub", request.getfixturevalue(hub)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr
    figures = json.loads(done.stdout)
    assert (250, 0) == (figures["requests"], figures["over_admission_max_pct"])
    assert figures["hub_total_equals_admitted"]
    assert 20 <= figures["admitted"] < 250
    assert QUOTED_PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("hub", HUBS)
def test_the_doctor_finds_nothing_wrong(hub: str, request: pytest.FixtureRequest) -> None:
    """The rights that the documents name are enough for the doctor, too."""
    checked = check(request.getfixturevalue(hub))

    assert [] == checked.at("problem")
    assert {"memory", "keys"} >= set(checked.at("warning")), "which take rights that no agent needs"
    assert {"reached", "login", "permission", "exchange"} <= set(checked.at("ok"))
    assert QUOTED_PASSWORD not in json.dumps(checked.report)


def _of_replays(line: str) -> str:
    """The documented rights, for namespaces that replays choose, too."""
    return line.replace("~shop:*", "~shop:* ~replay-*")
