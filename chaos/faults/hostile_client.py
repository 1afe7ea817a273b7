"""A hostile client of the broker: it has the rights of members and rivals, and sends messages that they never send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final

from paho.mqtt.client import Client, MQTTMessage

from chaos.names import MERGED, OURS
from chaos.rivals.collector import QOS, mqtt_client
from reconverge_sync.mqtt.messages import MEMBER
from reconverge_sync.mqtt.session import VERSION
from tests.support.poison import STRANGER, corpus, wrong_batches
from tests.support.servers import wait_until

LATELY_S: Final = 1.0
"""The time, in seconds, after its last message for which a client counts as present."""
AT_ONCE: Final = 50
PAUSE_S: Final = 0.04
"""The pause, in seconds, between messages: a broker drops messages that a client receives too slowly."""
PUBLISH_S: Final = 10.0
POISON_MAX: Final = 10_000
NONSENSE: Final = (b"", b"\xff\x00", b"[]", b"NaN", b'{"number": "all"}', b'{"sums": 7}', b"[[[[[[[[")
"""Messages for a rival that speaks JSON."""


class HostileClient:
    """A client that listens from the beginning, to learn which clients are present."""

    def __init__(self, url: str, rivals_url: str) -> None:
        self._url = url
        self._members: dict[str, dict[str, float]] = {OURS: {}, MERGED: {}}
        self._addresses: dict[str, float] = {}
        """The addresses at which rivals receive their answers, by the moment of their last message."""
        self._insider = self._listening(url, [f"{name}/rc/{VERSION}/#" for name in self._members], self._hear)
        self._rival = self._listening(rivals_url, ["+/heard/+"], self._hear_rivals)
        self._taken: list[Client] = []
        source = corpus(Random("poison"))
        self._poison = [next(source) for _ in range(POISON_MAX)]
        """Messages that are drawn before they are needed, which takes a while."""

    async def leave(self) -> None:
        """Disconnects."""
        await self.give_names_back()
        for client in (self._insider, self._rival):
            await asyncio.to_thread(_end, client)

    async def take_names(self) -> None:
        """Connects under the name of each client that is present."""
        for members in self._members.values():
            for name in _lately(members):
                client = mqtt_client(self._url, name)
                client.loop_start()
                self._taken.append(client)
        await asyncio.to_thread(wait_until, lambda: all(one.is_connected() for one in self._taken), "other names")

    async def give_names_back(self) -> None:
        """Disconnects under these names."""
        taken, self._taken = self._taken, []
        for client in taken:
            await asyncio.to_thread(_end, client)

    async def publish_poison(self, messages: int) -> dict[str, int]:
        """Publishes `count` messages to our members, and a tenth of that to rivals.

        Returns how many should be rejected.
        """
        return await asyncio.to_thread(self._publish_poison, messages)

    def _publish_poison(self, messages: int) -> dict[str, int]:
        random = Random("poison")
        names = sorted(_lately(self._members[OURS]))
        addresses = sorted(_lately(self._addresses))
        letters = [(f"0/to/{name}/batch/{STRANGER}", wrong, 1) for wrong in wrong_batches() for name in names]
        for kind, payload in self._poison[: messages - len(letters)]:
            heard = 1
            if kind == "claims":
                topic, heard = "0/claims", len(names)
            elif random.random() < 0.05:
                topic = f"0/to/{random.choice(names)}/nonsense/{STRANGER}"
            else:
                topic = f"0/to/{random.choice(names)}/{kind}/{random.choice([STRANGER, *names])}"
            letters.append((topic, payload, heard))
        random.shuffle(letters)
        for number, (topic, payload, _) in enumerate(letters):
            sent = self._insider.publish(f"{OURS}/rc/{VERSION}/{topic}", payload, QOS)
            if addresses and number % 10 == 0:
                self._rival.publish(random.choice(addresses), random.choice(NONSENSE), QOS)
            if number % AT_ONCE == 0:
                sent.wait_for_publish(PUBLISH_S)
                time.sleep(PAUSE_S)
        return {"poison": len(letters), "to be rejected": sum(heard for _, _, heard in letters)}

    def _hear(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        name, _, topic = message.topic.partition(f"/rc/{VERSION}/")
        for word in topic.split("/"):
            if MEMBER.fullmatch(word) and word != STRANGER:
                self._members[name][word] = time.monotonic()
        if topic.startswith("gone/"):
            self._members[name].pop(topic.removeprefix("gone/"), None)

    def _hear_rivals(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self._addresses[message.topic] = time.monotonic()

    @staticmethod
    def _listening(url: str, topics: list[str], hear: Callable[[Client, object, MQTTMessage], None]) -> Client:
        client = mqtt_client(url)

        def connected(client: Client, *_: object) -> None:
            client.subscribe([(topic, QOS) for topic in topics])

        client.on_connect = connected
        client.on_message = hear
        client.loop_start()
        return client


def _lately(heard: dict[str, float]) -> list[str]:
    since_s = time.monotonic() - LATELY_S
    return [name for name, heard_s in list(heard.items()) if heard_s >= since_s]


def _end(client: Client) -> None:
    client.disconnect()
    client.loop_stop()
