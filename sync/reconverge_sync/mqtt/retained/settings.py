"""The settings of all nodes of a namespace, as one connection to a broker hears of them.

The broker keeps the newest message of one topic for newcomers, and hands it to every subscriber. Nothing is read of it
here: its reader knows by its signature whether it is to be believed.
"""

# Theory of operation.
#
# A broker sends a new subscriber what it has retained, and nothing if there is nothing: so "nothing is posted" and
# "nothing has come yet" look alike. A connection therefore sends a message to itself after it has subscribed; when that
# is back, what was retained has come (`retained.py`). Reading costs no message after that.
#
# `post` ends when the message has come back and not when the broker has confirmed it, because a broker of MQTT 3.1.1
# confirms what its access list throws away. MQTT 5 forgets the message when the document expires; MQTT 3.1.1 keeps it,
# and every node rejects it.
#
# Whatever may write to the topic may have retained nonsense. It is kept to a bounded length and handed on unread,
# because only its signature says whether it is to be believed.

from __future__ import annotations

from typing import Final

from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.retained.wire import Awaited, Wire

TOPIC: Final = "settings"
PAYLOAD_BYTES_MAX: Final = 1 << 17
"""Twice what any reader takes. Of a longer payload no more than this and a byte is kept, from whichever sender."""


class PostedSettings:
    """The settings that have come on one connection, and the posts that have yet to come back."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._awaited = Awaited()
        self.payload: bytes | None = None
        """The last post."""

    @property
    def waits(self) -> bool:
        """Whether something was posted that is not back yet."""
        return self._awaited.waits

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Lets the broker retain a payload; returns when it has come back. Raises HubUnavailable."""
        with self._awaited.back(payload) as back:
            self._wire.post(TOPIC, payload, retain=True, keep_s=keep_s)
            await back

    def hear(self, payload: bytes) -> None:
        """Take in a post. An empty one takes the last back."""
        kept = payload[: PAYLOAD_BYTES_MAX + 1]
        self.payload = kept or None
        self._awaited.hear(kept)

    def clear(self, problem: HubUnavailable) -> None:
        """Forget the payload, as the connection is gone; the next one receives it again."""
        self.payload = None
        self._awaited.fail(problem)
