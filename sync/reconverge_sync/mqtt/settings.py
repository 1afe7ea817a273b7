"""What is posted for all nodes of a namespace, as one connection to a broker hears of it.

The broker keeps the newest message of one topic for newcomers, and hands it to every subscriber. Nothing is read of it
here: its reader knows by its signature whether it is to be believed.
"""

# Theory of operation.
#
# A broker tells a new subscriber what it has retained, and nothing if there is nothing: so "nothing is posted" and
# "nothing has come yet" look alike. A connection therefore sends a message to itself after it has subscribed; when that
# is back, what was retained has come (`complete`). Reading costs no message after that.
#
# `post` ends when the message has come back and not when the broker has confirmed it, because a broker of MQTT 3.1.1
# confirms what its access list throws away. MQTT 5 forgets the message when the document expires; MQTT 3.1.1 keeps it,
# and every node rejects it.
#
# Whatever may write to the topic may have retained nonsense. It is kept to a bounded length and handed on unread,
# because only its signature says whether it is to be believed.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from reconverge.errors import HubUnavailable

PAYLOAD_BYTES_MAX: Final = 1 << 17
"""Twice what any reader takes. Of a longer payload no more than this and a byte is kept, from whichever sender."""


class PostedSettings:
    """What has come on one connection, and the posts that have yet to come back."""

    def __init__(self) -> None:
        self.payload: bytes | None = None
        """What was posted last."""
        self.complete = False
        """Whether what the broker had kept has come, if there was anything."""
        self._awaited: set[tuple[bytes, asyncio.Future[None]]] = set()

    def hear(self, payload: bytes) -> None:
        """That was posted. What is empty takes back what was."""
        kept = payload[: PAYLOAD_BYTES_MAX + 1]
        self.payload = kept or None
        for posted, back in self._awaited:
            if posted == kept and not back.done():
                back.set_result(None)

    @contextlib.contextmanager
    def awaited(self, payload: bytes) -> Iterator[asyncio.Future[None]]:
        """Is done when that has come; fails with HubUnavailable if the connection is lost before."""
        back: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited = payload, back
        self._awaited.add(awaited)
        try:
            yield back
        finally:
            self._awaited.discard(awaited)
            if not back.cancel() and not back.cancelled():
                back.exception()  # or asyncio logs that it was never retrieved

    def clear(self, problem: HubUnavailable) -> None:
        """The connection is gone; the next one tells all of it again."""
        self.payload, self.complete = None, False
        for _, back in self._awaited:
            if not back.done():
                back.set_exception(HubUnavailable(problem.kind, "the connection is gone"))
