"""A collector that adds up what rivals publish on a broker, and answers each, as a server of their own would."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from reconverge_sync.mqtt.url import BrokerAddress

RECONNECT_S: Final = 1
QOS: Final = 1
INFLIGHT_MAX: Final = 200
"""The most messages that the broker has yet to confirm."""


def mqtt_client(url: str, name: str = "") -> Client:
    """Returns a client that connects by itself, again and again, once its loop runs."""
    address = BrokerAddress.of(url)
    client = Client(CallbackAPIVersion.VERSION2, client_id=name)
    if address.login.user is not None:
        client.username_pw_set(address.login.user, address.login.password)
    context = address.tls_context()
    if context is not None:
        client.tls_set_context(context)
    client.reconnect_delay_set(RECONNECT_S, RECONNECT_S)
    client.max_inflight_messages_set(INFLIGHT_MAX)
    client.connect_async(address.host, address.port)
    return client


class Collector:
    """Receives `NAME/tell/ACCOUNT` and answers at `NAME/heard/ACCOUNT`. It has a thread of its own, and never fails."""

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._reported: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The sum that each account has reported, by fleet."""
        self._client = mqtt_client(url)
        self._client.on_connect = self._connected
        self._client.on_message = self._heard
        self._client.loop_start()

    def reported(self, name: str) -> int:
        """Returns the sum that a fleet has reported."""
        with self._lock:
            return self._reported[name].total()

    def stop(self) -> None:
        """Stops receiving."""
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: Client, *_: object) -> None:
        client.subscribe("+/tell/+", QOS)

    def _heard(self, client: Client, _data: object, message: MQTTMessage) -> None:
        try:
            name, _, account = message.topic.split("/")
            said: dict[str, Any] = json.loads(message.payload)
            answer = self._added(name, account, said)
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # another client has sent nonsense
        client.publish(f"{name}/heard/{account}", json.dumps(answer), QOS)

    def _added(self, name: str, account: str, said: dict[str, Any]) -> dict[str, Any]:
        differences = {str(field): int(cost) for field, cost in said["differences"].items()}
        epoch, number = int(said["epoch"]), int(said["number"])
        with self._lock:
            if "charged" in said:
                self._reported[name][account] = int(said["charged"])
            else:
                self._reported[name][account] += sum(differences.values())
            sums = self._sums[name]
            sums.update(differences)
            for field in [field for field in sums if int(field.rpartition(":")[2]) < epoch]:
                del sums[field]
            return {"number": number, "sums": dict(sums), "total": self._reported[name].total()}
