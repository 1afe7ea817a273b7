"""Goal: members that meet at a broker keep every promise of a hub.

Method: the contract of all hubs, on a real mosquitto by MQTT 5; by MQTT 3.1.1, and over TLS with an ACL, what depends
on the way.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import HubClaims, ReaderClaims
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.mqtt.session import WAIT_SHARE
from tests.support.brokers import Mosquitto
from tests.support.fixtures.servers import GuardedMosquitto
from tests.support.hubs.fleet_on_mqtt import TENURE_NS, ImpatientHub, MqttFleet
from tests.support.hubs.reached import WayClaims
from tests.support.servers import free_port


class _OnMqtt(WayClaims):
    """By the protocol that `query` names."""

    query: ClassVar[str]
    seeds = range(1)
    grace_s = TENURE_NS / WAIT_SHARE / SECOND_NS
    url: str

    @pytest.fixture(autouse=True)
    def _broker(self, mosquitto: Mosquitto) -> None:
        self.url = mosquitto.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """The first member of a fleet of its own."""
        return MqttFleet(f"{self.url}{self.query}", hub_clock=clock).join()

    def join(self, hub: Hub) -> Hub:
        """One more member."""
        assert isinstance(hub, ImpatientHub)
        return hub.fleet.join()

    def make_stranger(self, hub: Hub) -> Hub:
        """A member of another fleet."""
        assert isinstance(hub, ImpatientHub)
        return MqttFleet(self.url + self.query, hub_clock=hub.fleet.hub_clock).join()

    def make_unreachable(self) -> Hub:
        """No broker is there."""
        return MqttHub(f"mqtt://127.0.0.1:{free_port()}", HubSettings("shop", 5.0))

    async def lose_data(self, hub: Hub) -> None:
        """Whoever keeps the ledger dies."""
        assert isinstance(hub, ImpatientHub)
        for shard in range(hub.shards):
            for keeper in hub.fleet.keepers(shard):
                await keeper.dies()


class TestMqttNew(_OnMqtt, HubClaims, ReaderClaims):
    """By MQTT 5, with several shards: members merge."""

    query = "?protocol=5&shards=2"
    seeds = range(2)


class TestMqttOld(_OnMqtt):
    """By MQTT 3.1.1."""

    query = "?protocol=3.1.1"


class TestMqttEncrypted(_OnMqtt):
    """Over TLS, as a user who may do what the documents say and no more."""

    query = ""

    @pytest.fixture(autouse=True)
    def _broker(self, guarded_mosquitto: GuardedMosquitto) -> None:
        self.url = guarded_mosquitto.url()
