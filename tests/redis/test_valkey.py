"""Goal: Valkey is a hub like Redis, by URLs that say so.

Method: the claims that all hubs share, on a real valkey-server; agents that share a limit through one, through its
socket, through a cluster of three and through Sentinels; and what the doctor says of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconverge import InvalidSetting
from reconverge.hub.registry import HubSettings, open_hub
from reconverge_sync.redis.hub import RedisHub
from tests.redis.test_redis import TestRedisHub as ClaimsOnRedis
from tests.support.commands.checked import check
from tests.support.fixtures.agents import MakeAgent
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisService
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # .ci/valkey has to fetch the server

BUILT = Path(__file__).parents[2] / ".tools" / "valkey-server"


@pytest.fixture(scope="module", autouse=True)
def servers_are_valkey() -> Iterator[None]:
    """Makes the servers of this module Valkey; where merges are decided about, its absence is a failure."""
    program = str(BUILT) if BUILT.exists() else shutil.which("valkey-server") or ""
    if not program:
        missing = "there is no valkey-server; run .ci/valkey, or install one"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECONVERGE_TEST_REDIS", program)
        yield


@pytest.fixture(scope="module")
def valkey(servers_are_valkey: None) -> Iterator[RedisServer]:
    """One Valkey for all tests that leave it as they found it."""
    with RedisServer() as server:
        yield server


def as_valkey(url: str) -> str:
    """The same place, by a scheme of Valkey's."""
    return url.replace("redis", "valkey", 1)


class TestValkeyHub(ClaimsOnRedis):
    """Promises of the hub on Redis, with Valkey."""

    seeds = range(2)

    @pytest.fixture(autouse=True)
    def on_a_server(self, valkey: RedisServer) -> None:
        """Use the Valkey that these tests share."""
        self.server = valkey
        self.url = as_valkey(valkey.url)


def check_one_limit(make_agent: MakeAgent, url: str) -> None:
    """Two agents count together there, and not each by itself."""
    agents = [make_agent(url, policy="strict") for _ in range(2)]
    for agent in agents:
        agent.limit("daily", "10/day")
    used: list[bool] = []

    def use_up() -> bool:
        used.extend(agent.limiter("daily").allow("ada") for agent in agents)
        return sum(used) >= 10

    eventually(use_up, "ten requests of both")

    assert not any(agent.limiter("daily").allow("ada") for agent in agents)
    assert {10} == {agent.limiter("daily").usage("ada").limit for agent in agents}
    eventually(lambda: all(agent.limiter("daily").usage("ada").total == 10 for agent in agents), "both to know of ten")


def test_agents_meet_at_a_valkey(make_agent: MakeAgent, valkey: RedisServer) -> None:
    """By `valkey://`."""
    valkey.command("FLUSHALL")

    check_one_limit(make_agent, as_valkey(valkey.url))


def test_agents_meet_at_the_socket_of_a_valkey(make_agent: MakeAgent, valkey: RedisServer) -> None:
    """By `valkey+unix://`."""
    valkey.command("FLUSHALL")

    check_one_limit(make_agent, f"valkey+unix://{valkey.socket}")


def test_agents_meet_at_a_cluster_of_valkeys(make_agent: MakeAgent) -> None:
    """By `valkey+cluster://`."""
    with RedisCluster() as cluster:
        check_one_limit(make_agent, as_valkey(cluster.url))


def test_agents_meet_at_the_valkey_that_sentinels_name(make_agent: MakeAgent) -> None:
    """By `valkey+sentinel://`."""
    with RedisService() as service:
        check_one_limit(make_agent, as_valkey(service.url))


def test_the_doctor_says_that_it_is_a_valkey(valkey: RedisServer) -> None:
    """With nothing to correct but that it keeps nothing on disk."""
    checked = check(as_valkey(valkey.url))

    assert checked.only("server")["fact"].startswith("Valkey ")
    assert [] == checked.at("problem")


@pytest.mark.parametrize("scheme", ["valkeys", "valkeys+cluster", "valkeys+sentinel"])
def test_a_scheme_with_an_s_speaks_tls(scheme: str) -> None:
    """Rediss does so: options of TLS may stand in the URL, and in that of the plain scheme they may not."""
    url = f"{scheme}://localhost/{'mymaster' if 'sentinel' in scheme else ''}?ssl_cert_reqs=none"

    hub = open_hub(url, HubSettings("shop", 1.0))

    assert isinstance(hub, RedisHub)
    assert hub._connection.address.encrypted
    with pytest.raises(InvalidSetting, match="ssl_cert_reqs"):
        open_hub(url.replace("valkeys", "valkey"), HubSettings("shop", 1.0))
