"""The published settings of a namespace, as one connection to a broker receives them.

The broker keeps the newest message of one topic for new members, and sends it to every subscriber. The content is not
read here: its reader verifies the signature.
"""

# Theory of operation.
#
# A broker sends a new subscriber what it has retained, and nothing if there is nothing: so "nothing is posted" and
# "nothing has come yet" look alike. A connection therefore sends a message to itself after it has subscribed; when that
# is back, what was retained has come (`retained.py`). Reading costs no message after that.
#
# `post` ends when the message has come back and not when the broker has confirmed it, because a broker of MQTT 3.1.1
# confirms also messages that its access list drops. MQTT 5 deletes the message when the document expires; MQTT 3.1.1
# keeps it, and every node rejects it.
#
# Any client that may write to the topic may have stored nonsense. The payload is cut to a bounded length and returned
# without being interpreted, because only its signature proves that it is valid.

from __future__ import annotations

from typing import Final

from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.retained.wire import Awaited, Wire

TOPIC: Final = "settings"
PAYLOAD_BYTES_MAX: Final = 1 << 17
"""The most bytes of settings that are kept: twice the longest that any reader accepts. A longer payload is cut after
one byte more."""


class PostedSettings:
    """The settings that one connection has received, and those that it has sent and that have yet to come back."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._awaited = Awaited()
        self.payload: bytes | None = None
        """The settings that have come last; None if there are none."""

    @property
    def waits(self) -> bool:
        """Returns whether settings have been sent to the broker that have not come back yet."""
        return self._awaited.waits

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Sends settings to be retained, and waits until they have come back. Raises HubUnavailable."""
        with self._awaited.back(payload) as back:
            self._wire.post(TOPIC, payload, retain=True, keep_s=keep_s)
            await back

    def hear(self, payload: bytes) -> None:
        """Processes a message with settings; an empty payload deletes the settings."""
        kept = payload[: PAYLOAD_BYTES_MAX + 1]
        self.payload = kept or None
        self._awaited.hear(kept)

    def clear(self, problem: HubUnavailable) -> None:
        """Drops the settings, because the connection is lost; the next connection receives them again."""
        self.payload = None
        self._awaited.fail(problem)
