"""The marks of keys, of their secret and of each limit's terms, as the broker retains them; see `KeyMarker`.

Each member receives the marks when it connects and whenever one is stored, so reading one costs no message. No leader
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
MARKS_MAX: Final = 10_000
"""The most marks that a member remembers; it ignores further ones, which are of limits that were renamed often."""
OF_ALL: Final = "all"
"""The last word of the topic of the mark of all keys; that of a limit's mark is the limit's name in hexadecimal."""


class RetainedMarks:
    """The marks of the fleet's keys, as one connection has received them."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock
        self._awaited = Awaited()
        self.kept: dict[str, tuple[str, int]] = {}
        """Each mark by the last word of its topic, with the moment of its end in milliseconds since 1970."""

    def hear(self, word: str, message: bytes) -> None:
        """Processes a message with a mark; an empty message deletes the mark. Raises MalformedMessage if invalid."""
        if not message:
            self.kept.pop(word, None)
        elif word in self.kept or len(self.kept) < MARKS_MAX:
            self.kept[word] = _read(message)
        self._awaited.hear(message)

    def clear(self, problem: HubUnavailable) -> None:
        """Drops the marks, because the connection is lost; the next connection receives them again."""
        self.kept.clear()
        self._awaited.fail(problem)

    async def leave(self, mark: str, *, keep_s: float, limit: str) -> str:
        """Returns the stored mark; if there is none, stores `mark` for `keep_s` seconds and waits until it is back.

        If `mark` is the stored one and expires soon, stores it anew.
        """
        word = limit.encode().hex() or OF_ALL
        now_ms, keep_ms = self._clock.wall_ns() // MILLISECOND_NS, round(keep_s * MILLI)
        known, until_ms = self.kept.get(word, (mark, 0))
        if known != mark and now_ms < until_ms:
            return known
        if until_ms < now_ms + keep_ms // RENEWED_SHARE:
            message = sealed(MessageKind.MARK, _UNTIL.pack(now_ms + keep_ms) + mark.encode())
            with self._awaited.back(message) as back:
                self._wire.post(f"{TOPIC}/{word}", message, retain=True, keep_s=keep_s)
                await back
        return self.kept.get(word, (mark, 0))[0]


def _read(message: bytes) -> tuple[str, int]:
    content = body(message, MessageKind.MARK)
    try:
        (until_ms,) = _UNTIL.unpack_from(content)
        mark = str(content[_UNTIL.size :], "utf-8")
    except (struct.error, ValueError):
        raise MalformedMessage("mark", f"a mark of keys has {len(content)} bytes that cannot be decoded") from None
    if not is_text(mark, 1):
        raise MalformedMessage("mark", f"a mark of keys has {len(mark)} characters; it must be short, not empty")
    return mark, until_ms
