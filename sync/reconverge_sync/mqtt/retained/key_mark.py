"""The mark (a hash) of the secret with which a fleet hashes keys, as the broker retains it; see `KeyMarker`.

Each member receives the mark when it connects and whenever a mark is stored, so reading it costs no message. No leader
is needed: of two marks that are stored at once the broker retains the later one, and the node that sent the other one
notices this when it reads the mark again.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from reconverge.clock import MILLISECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind, body, is_text, sealed
from reconverge_sync.mqtt.retained.wire import Awaited, Wire

TOPIC: Final = "keymark"
_UNTIL: Final = Struct("<Q")
"""The head of a stored mark: the moment at which the mark ends, in milliseconds since 1970."""
MILLI: Final = 1000
RENEWED_SHARE: Final = 2
"""A node stores the mark again when less than this part of the time for which it is kept is left: one divided by this
number."""


class KeyMark:
    """The mark of the secret with which the fleet hashes keys, as one connection has received it."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock
        self._awaited = Awaited()
        self._mark = ""
        self._until_ms = 0

    def hear(self, message: bytes) -> None:
        """Processes a message with the mark; an empty message deletes the mark. Raises MalformedMessage if invalid."""
        self._mark, self._until_ms = ("", 0) if not message else _read(message)
        self._awaited.hear(message)

    def clear(self, problem: HubUnavailable) -> None:
        """Drops the mark, because the connection is lost; the next connection receives it again."""
        self._mark, self._until_ms = "", 0
        self._awaited.fail(problem)

    async def leave(self, mark: str, *, keep_s: float) -> str:
        """Returns the stored mark; if there is none, stores `mark` for `keep_s` seconds and waits until it is back.

        If `mark` is the stored one and expires soon, stores it anew.
        """
        now_ms, keep_ms = self._clock.wall_ns() // MILLISECOND_NS, round(keep_s * MILLI)
        known = self._mark if now_ms < self._until_ms else ""
        if known not in ("", mark):
            return known
        if not known or self._until_ms < now_ms + keep_ms // RENEWED_SHARE:
            message = sealed(MessageKind.MARK, _UNTIL.pack(now_ms + keep_ms) + mark.encode())
            with self._awaited.back(message) as back:
                self._wire.post(TOPIC, message, retain=True, keep_s=keep_s)
                await back
        return self._mark


def _read(message: bytes) -> tuple[str, int]:
    content = body(message, MessageKind.MARK)
    try:
        (until_ms,) = _UNTIL.unpack_from(content)
        mark = str(content[_UNTIL.size :], "utf-8")
    except (struct.error, ValueError):
        raise MalformedMessage(
            "mark", f"a mark of a key secret has {len(content)} bytes that cannot be decoded"
        ) from None
    if not is_text(mark, 1):
        raise MalformedMessage(
            "mark", f"a mark of a key secret has {len(mark)} characters; it must be short, not empty"
        )
    return mark, until_ms
