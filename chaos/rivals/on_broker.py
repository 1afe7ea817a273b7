"""Rivals that meet at a broker of MQTT: each reports its new counts to a collector, and waits for its answer."""

from __future__ import annotations

import json
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Any

from paho.mqtt.client import Client, MQTTMessage

from chaos.rivals.collector import QOS, mqtt_client
from chaos.rivals.usual import Counting, Dropping, Namesake, Requeueing


class OnBroker(Counting):
    """Reports over a broker. Unanswered differences are handled as by the other base class."""

    qos = QOS
    client_id = ""

    def connect(self) -> Client:
        self._number = 0
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        client = mqtt_client(self.plan.rivals_url, self.client_id)
        client.on_connect = self._connected
        client.on_message = self.hear
        return client

    def begin(self) -> None:
        self.client.loop_start()
        super().begin()

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        self._number += 1
        said = {"number": self._number, "epoch": self.epoch(), **self.said(taken)}
        self.client.publish(f"{self.name}/tell/{self.account}", json.dumps(said), self.qos)
        try:
            while True:
                answer = self._answers.get(timeout=self.plan.timeout_s)
                if answer["number"] == self._number:
                    return answer["sums"], answer["total"]
        except Empty:
            raise TimeoutError("no answer in time") from None

    def said(self, taken: Counter[str]) -> dict[str, Any]:
        """Returns the content of the message to the collector."""
        return {"differences": dict(taken)}

    def _connected(self, client: Client, *_: object) -> None:
        client.subscribe(f"{self.name}/heard/{self.account}", QOS)

    def hear(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        """Handles a message that has arrived."""
        try:
            said = json.loads(message.payload)
            answer = {
                "number": int(said["number"]),
                "total": int(said["total"]),
                "sums": {str(field): int(cost) for field, cost in said["sums"].items()},
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._answers.put(answer)


class DroppingOnBroker(OnBroker, Dropping):
    """Does not report again what may have arrived, and neither does its client."""

    qos = 0


class RequeueingOnBroker(OnBroker, Requeueing):
    """Reports again what may not have arrived, and its client does so, too."""


class NamesakeOnBroker(OnBroker, Namesake):
    """Connects under one name, which the configuration gives to all nodes."""

    client_id = "limiter"

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        return OnBroker.tell(self, taken)

    def said(self, taken: Counter[str]) -> dict[str, Any]:  # noqa: ARG002  # it reports the whole count
        return {"differences": {}, "charged": self.charged}


class Gullible(RequeueingOnBroker):
    """Believes that every message at its address has the format of its own messages."""

    def hear(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        try:
            self._answers.put(json.loads(message.payload))
        except Exception as error:  # noqa: BLE001  # it would end the client's thread
            self.recorder.write("escaped", who=self.name, what=f"{type(error).__name__}: {error}"[:200])
