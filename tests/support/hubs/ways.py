"""The ways to a hub on which suites of claims are tried: each class opens hubs for a suite beside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import ClassVar, Final

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.trial import Trial
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.embedded.hub import EmbeddedHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.mqtt.session import WAIT_SHARE
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.brokers import Mosquitto
from tests.support.fixtures.servers import QUOTED_PASSWORD
from tests.support.hubs.fleet_on_mqtt import TENURE_NS, TIMEOUT_S, ImpatientHub, MqttFleet
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import SERVICE, RedisService
from tests.support.servers import RedisServer, free_port

SETTINGS: Final = HubSettings("claims", TIMEOUT_S)
LOGIN: Final = f"shop:{QUOTED_PASSWORD}@"
_numbers = count(1)


class InMemory(Trial):
    """A hub in memory: the merge rule and nothing else."""

    def make_hub(self, clock: ManualClock) -> Hub:
        self.clock = clock
        return MemoryHub(clock=clock)

    def make_stranger(self, hub: Hub) -> Hub:
        """Returns another hub in memory: the two share nothing."""
        return MemoryHub(clock=self.clock)

    async def lose_data(self, hub: Hub) -> None:
        assert isinstance(hub, MemoryHub)
        hub.lose_data()


class _ByUrl(Trial):
    """Hubs at a URL, with the test's time or the servers' own; each node has connections of its own."""

    seeds = range(1)
    settings = SETTINGS
    url: str
    nowhere: ClassVar[str]
    """The URL of a port at which no server listens."""
    opened: ClassVar[type[RedisHub]] = RedisHub

    def clear(self) -> None:
        """Empties the servers, as an operator's mistake does, or a restart without persistence."""
        raise NotImplementedError

    def make_hub(self, clock: ManualClock) -> Hub:
        self.clear()
        self.clock = clock
        return self.open_hub(self.url, self.settings)

    def join(self, hub: Hub) -> Hub:
        return self.open_hub(self.url, self.settings)

    def make_stranger(self, hub: Hub) -> Hub:
        """Returns a hub of another fleet on the same server, with another user if there are users."""
        return self.open_hub(self.url.replace(LOGIN, ""), replace(self.settings, namespace="contract2"))

    def make_unreachable(self) -> Hub:
        return self.opened(self.nowhere, self.settings)

    async def lose_data(self, hub: Hub) -> None:
        self.clear()

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """Returns one more client; its script asks for the time if the servers use their own."""
        return self.opened(url, settings) if self.own_clock else self.opened(url, settings, clock=self.clock)


class OnRedis(_ByUrl):
    nowhere = f"redis://127.0.0.1:{free_port()}/0"

    @pytest.fixture(autouse=True)
    def on_a_server(self, redis_server: RedisServer) -> None:
        """Uses the server that the tests share."""
        self.server = redis_server
        self.url = redis_server.url

    def clear(self) -> None:
        self.server.command("FLUSHALL")


class OnCluster(_ByUrl):
    """Hubs with eight shards on three masters."""

    opened = ClusterHub
    nowhere = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def on_a_cluster(self, shared_cluster: RedisCluster) -> None:
        """Uses the cluster that the tests share."""
        self.cluster = shared_cluster
        self.url = f"{shared_cluster.url}?shards=8"

    def clear(self) -> None:
        self.cluster.flush()


class AtAService(_ByUrl):
    """Hubs at the master that Sentinels name."""

    opened = SentinelHub
    nowhere = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{SERVICE}"

    @pytest.fixture(autouse=True)
    def on_a_service(self, shared_service: RedisService) -> None:
        """Uses the service that the tests share."""
        self.service = shared_service
        self.url = shared_service.url

    def clear(self) -> None:
        self.service.master.command("FLUSHALL")


class Embedded(Trial):
    """Hubs with a server for each claim, which uses the machine's clock."""

    own_clock = True
    seeds = range(1)

    @pytest.fixture(autouse=True)
    def in_a_directory_of_its_own(self, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gives the test a server of its own."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))

    def make_hub(self, clock: ManualClock) -> Hub:
        """Returns the first hub of a server that does not run yet; the last server may still be ending."""
        self.url = f"embedded://claims{next(_numbers)}"
        return EmbeddedHub(self.url, SETTINGS)

    def join(self, hub: Hub) -> Hub:
        return EmbeddedHub(self.url, SETTINGS)

    def make_stranger(self, hub: Hub) -> Hub:
        return EmbeddedHub(self.url, replace(SETTINGS, namespace="contract2"))

    async def lose_data(self, hub: Hub) -> None:
        assert isinstance(hub, EmbeddedHub)
        await hub.ensure_running()
        redis = RedisHub(hub.url, SETTINGS)
        await redis._call("FLUSHALL")
        await redis.close()


class AtABroker(Trial):
    """Members of a fleet at a broker, by the protocol that `query` names; the elected member merges."""

    query: ClassVar[str] = ""
    seeds = range(1)
    grace_s = TENURE_NS / WAIT_SHARE / SECOND_NS
    patience_s = TIMEOUT_S
    url: str

    @pytest.fixture(autouse=True)
    def at(self, mosquitto: Mosquitto) -> None:
        """Uses the broker that the tests share."""
        self.url = mosquitto.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """Returns the first member of a fleet of its own."""
        return MqttFleet(f"{self.url}{self.query}", hub_clock=clock).join()

    def join(self, hub: Hub) -> Hub:
        assert isinstance(hub, ImpatientHub)
        return hub.fleet.join()

    def make_stranger(self, hub: Hub) -> Hub:
        """Returns a member of another fleet."""
        assert isinstance(hub, ImpatientHub)
        return MqttFleet(self.url + self.query, hub_clock=hub.fleet.hub_clock).join()

    def make_unreachable(self) -> Hub:
        return MqttHub(f"mqtt://127.0.0.1:{free_port()}", SETTINGS)

    async def lose_data(self, hub: Hub) -> None:
        """Kills the members that keep the ledger."""
        assert isinstance(hub, ImpatientHub)
        for shard in range(hub.shards):
            for keeper in hub.fleet.keepers(shard):
                await keeper.dies()
