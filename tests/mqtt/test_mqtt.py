"""Goal: members that meet at a broker keep every promise of a hub.

Method: the contract of all hubs, on a real mosquitto by MQTT 5; by MQTT 3.1.1, and over TLS with an ACL, what depends
on the way.
"""

from __future__ import annotations

import pytest

from reconverge.testing import ContractStoreClaims, HubClaims, ReaderClaims, SettingsStoreClaims
from tests.support.fixtures.servers import GuardedMosquitto
from tests.support.hubs.reached import WayClaims
from tests.support.hubs.ways import AtABroker


class TestMqttNew(AtABroker, HubClaims, ReaderClaims, SettingsStoreClaims, ContractStoreClaims):
    """By MQTT 5, with several shards: members merge."""

    query = "?protocol=5&shards=2"
    seeds = range(2)


class TestMqttOld(AtABroker, WayClaims, SettingsStoreClaims, ContractStoreClaims):
    """By MQTT 3.1.1."""

    query = "?protocol=3.1.1"


class TestMqttEncrypted(AtABroker, WayClaims, SettingsStoreClaims):
    """Over TLS, as a user who may do what the documents say and no more."""

    @pytest.fixture(autouse=True)
    def at(self, guarded_mosquitto: GuardedMosquitto) -> None:
        self.url = guarded_mosquitto.url()
