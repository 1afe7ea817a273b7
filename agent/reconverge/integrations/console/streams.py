"""Sends the state of the fleet to open pages as server-sent events; at most `STREAMS_MAX` pages have such a stream."""

# A stream is counted from the request until its response is over, however that ends: if the client has disconnected
# before the first event, the generator of events never begins, so it could not count the end.

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from starlette.responses import StreamingResponse

from reconverge.integrations.contracts.problems import Problem

STREAM_S: Final = 1.0
"""The seconds between two events of a stream."""
STREAMS_MAX: Final = 100
"""The most pages that have a stream at one time; a further page has to poll."""
STREAM_EVENTS_MAX: Final = 15
"""The most events of one stream. Then the page opens another stream, for which its token is checked again. So a server
that waits for open responses at shutdown does not wait for long."""
STREAM_AGAIN: Final = b"retry: 250\n"
"""The delay after which a browser reconnects, in milliseconds, as a line of the stream."""

View = Callable[[], Awaitable[dict[str, Any]]]
"""A function that returns the present state of the fleet, which is the data of one event."""


class Streams:
    """Serves the event streams of one console to its browsers, and bounds how many are open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.open = 0
        """The number of open streams."""
        self.going_on: Callable[[], bool] = lambda: True
        """A function that returns False once the server shuts down; then all streams end."""

    def begin(self) -> StreamingResponse:
        """Returns the response of a new stream, which must be sent. Raises Problem (503) if there are too many."""
        if self.open >= STREAMS_MAX:
            raise Problem(
                503,
                "too many pages of the console are open; close one, or try again in five seconds",
                fields={"Retry-After": "5"},
            )
        self.open += 1  # no other request comes between this and the check, because nothing is awaited
        return _Stream(self._events(), self._end)

    def __repr__(self) -> str:
        return f"{self.open} of {STREAMS_MAX}"

    def _end(self) -> None:
        self.open -= 1

    async def _events(self) -> AsyncIterator[bytes]:
        for _ in range(STREAM_EVENTS_MAX):
            said = json.dumps(await self._view(), separators=(",", ":"))
            yield STREAM_AGAIN + f"data: {said}\n\n".encode("ascii")
            await asyncio.sleep(STREAM_S)
            if not self.going_on():
                return


class _Stream(StreamingResponse):
    """A streaming response that calls `end` when it is over, however it ends."""

    def __init__(self, events: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
