"""A member's copy of the broker's retained messages except claims: settings, contracts, and marks of keys.

A broker sends a new subscriber its retained messages, and nothing if there are none. So a member sends a message to
itself after it has subscribed: when that echo is back, all retained messages have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from secrets import token_bytes
from typing import Final

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.connection import MqttLink
from reconverge_sync.mqtt.messages import BROKER_BUSY, CONNECTION_LOST
from reconverge_sync.mqtt.retained import contracts, key_mark, settings
from reconverge_sync.mqtt.retained.contracts import PostedIndex, PostedPages
from reconverge_sync.mqtt.retained.key_mark import RetainedMarks
from reconverge_sync.mqtt.retained.settings import PostedSettings
from reconverge_sync.mqtt.retained.wire import Awaited

ECHO: Final = "echo"


class Retained:
    """The messages that the broker retains, as one member has received them. Implements `Wire`, which sends them.

    `rejects` counts the messages that were ignored, by reason.
    """

    def __init__(
        self,
        root: str,
        clock: Clock,
        *,
        wait_ns: int,
        term: Callable[[], int],
        claimed: Callable[[], int],
        may_answer: Callable[[int], bool],
        rejects: Counter[str],
    ) -> None:
        self._root = root
        self._link: MqttLink | None = None
        self._member = ""
        self._echoes = Awaited()
        self.complete = False
        """Whether all messages that the broker had retained have come."""
        self.settings = PostedSettings(self)
        self.index = PostedIndex(self, clock, wait_ns=wait_ns, term=term, claimed=claimed, may_answer=may_answer)
        self.pages = PostedPages(self, clock, rejects=rejects)
        self.marks = RetainedMarks(self, clock)

    @property
    def topics(self) -> list[str]:
        """The topics to which a member subscribes for as long as it is connected."""
        return [self.shown(topic) for topic in (settings.TOPIC, contracts.TOPIC, f"{key_mark.TOPIC}/#")]

    def connect(self, link: MqttLink, member: str) -> None:
        """Begins to use a new connection, on which this member has the name `member`.

        Sends an echo, a message to itself; when the echo is back, all retained messages have come.
        """
        self._link, self._member = link, member
        link.post(self._echo_topic, b"", qos=1)

    def clear(self, problem: HubUnavailable) -> None:
        """Drops all retained messages, because the connection is lost; the next connection receives them again."""
        self._link, self.complete = None, False
        self._echoes.fail(problem)
        for one in (self.settings, self.index, self.pages, self.marks):
            one.clear(problem)

    def hear(self, words: Sequence[str], payload: bytes) -> bool:
        """Processes a message whose topic consists of `words`; returns False if no retained message has that topic.

        Raises MalformedMessage if the message is invalid.
        """
        match words:
            case ["settings"]:
                self.settings.hear(payload)
            case ["contracts"]:
                self.index.hear(payload)
            case ["keymark", limit]:
                self.marks.hear(limit, payload)
            case ["page", digest]:
                self.pages.hear(digest, payload)
            case _:
                return False
        return True

    def hear_echo(self, payload: bytes) -> None:
        """Processes an echo, a message of this member to itself that has come back."""
        if payload:
            self._echoes.hear(payload)
        else:
            self.complete = True

    # ------------------------------------------------------------ as a wire

    def shown(self, topic: str) -> str:
        return f"{self._root}/{topic}"

    def post(self, topic: str, payload: bytes, *, retain: bool, keep_s: float | None = None) -> None:
        if not self._connected().post(self.shown(topic), payload, qos=1, retain=retain, keep_s=keep_s):
            raise HubUnavailable("busy", BROKER_BUSY, applied=False)

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._connected().subscribe([self.shown(topic) for topic in topics])

    def unsubscribe(self, topics: Sequence[str]) -> None:
        if self._link is not None:
            self._link.unsubscribe([self.shown(topic) for topic in topics])

    async def echoed(self) -> None:
        nonce = token_bytes(8)
        with self._echoes.back(nonce) as back:
            if not self._connected().post(self._echo_topic, nonce, qos=1):
                raise HubUnavailable("busy", BROKER_BUSY, applied=False)
            await back

    @property
    def _echo_topic(self) -> str:
        return f"{self._root}/0/to/{self._member}/{ECHO}/{self._member}"

    def _connected(self) -> MqttLink:
        if self._link is None:
            raise HubUnavailable("connection", CONNECTION_LOST, applied=False)
        return self._link
