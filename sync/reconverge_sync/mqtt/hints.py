"""Hints by way of a broker of MQTT: one topic that all nodes of a namespace read and write, and nothing is kept."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from secrets import token_hex
from typing import Final

from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hint_channel import SETTING, Hear, Troubled
from reconverge.hubs import HubSettings, redacted
from reconverge_sync.client.per_loop import Here, let_go
from reconverge_sync.mqtt.connection import MqttLink
from reconverge_sync.mqtt.url import BrokerAddress

PAUSE_S: Final = (0.5, 1.5)
"""Before the next attempt to connect, at random, so that a fleet does not come back as one; then twice as long each
time."""
PAUSES_MAX: Final = 8
"""But no longer than so many such pauses."""


class MqttHints:
    """Hints by way of a broker. See `reconverge.hint_channel.HintChannel` for what it promises.

    Args:
        url: `mqtt://` or `mqtts://`, as for a hub there; shards and tenure are of no consequence.
        settings: the namespace, and the time that connecting may take.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    def __init__(self, url: str, settings: HubSettings) -> None:
        try:
            self._address = BrokerAddress.of(url)
        except InvalidSetting as error:
            problem = str(error).partition(": ")[2]
        else:
            problem = ""
        if problem:
            raise InvalidSetting(SETTING, redacted(url), problem)
        self._shown = redacted(url)
        self._settings = settings
        self._here = Here(self._session, let_go)
        self._hear: Hear = _ignore
        self._troubled: Troubled = _ignore

    def open(self, hear: Hear, troubled: Troubled) -> None:
        """See `HintChannel.open`."""
        self._hear, self._troubled = hear, troubled
        self._here.get()

    def tell(self, payload: bytes) -> None:
        """See `HintChannel.tell`."""
        self._here.get().tell(payload)

    async def close(self) -> None:
        """See `HintChannel.close`."""
        session = self._here.take()
        if session is not None:
            await session.close()

    def _session(self) -> _Session:
        topic = f"{self._settings.namespace}/rc/v1/hints"
        return _Session(self._address, topic, self._settings.timeout_s, hear=self._hear, troubled=self._troubled)

    def __repr__(self) -> str:
        return f"MqttHints({self._shown!r}, namespace={self._settings.namespace!r})"


class _Session:
    """What belongs to one process and one loop; made in the loop that it runs in, and begins there."""

    def __init__(self, address: BrokerAddress, topic: str, timeout_s: float, *, hear: Hear, troubled: Troubled) -> None:
        self._address = address
        self._topic = topic
        self._timeout_s = timeout_s
        self._hear = hear
        self._troubled = troubled
        self._random = Random()
        self._link: MqttLink | None = None
        self._task = asyncio.get_running_loop().create_task(self._stay_connected(), name="reconverge hints")

    def tell(self, payload: bytes) -> None:
        """Have it sent, or not."""
        if self._link is not None:
            self._link.post(self._topic, payload)

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            link = MqttLink(
                self._address, name=token_hex(10), gone_topic=None, timeout_s=self._timeout_s, hear=self._take
            )
            try:
                await link.open([self._topic])
            except HubUnavailable as problem:
                failures += 1
                self._troubled(problem)
            else:
                failures = 0
                self._link = link
                self._troubled(None)
                reason = await link.lost()
                self._link = None
                link.sever()
                self._troubled(reason)
            await asyncio.sleep(self._random.uniform(*PAUSE_S) * min(1 << min(failures, 8), PAUSES_MAX))

    def _take(self, topic: str, payload: bytes, kept: bool) -> None:  # noqa: FBT001  # as it is told
        """What a broker has kept is of another time: nobody of ours has it kept."""
        if not kept and topic == self._topic:
            self._hear(payload)

    async def close(self) -> None:
        """Say goodbye, and let go of everything."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def abandon(self) -> None:
        """Let go of everything at once, even where the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._task.cancel()
        if self._link is not None:
            self._link.sever()
        self._link = None

    def orphan(self) -> None:
        """Let go of what belongs to the parent, in a fork."""
        if self._link is not None:
            self._link.orphan()


def _ignore(_: object) -> None:
    """Nobody listens yet."""


def open_hints(url: str, settings: HubSettings) -> MqttHints:
    """The factory for `mqtt://` and `mqtts://`."""
    return MqttHints(url, settings)
