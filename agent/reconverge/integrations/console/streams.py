"""Streams of events with which pages follow the fleet, no more at once than `STREAMS_MAX`."""

# A stream counts from the step in which it is asked for until its response is over, however that ends: a client may be
# gone before the first event, and then no generator of events would begin, or end.

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from starlette.responses import StreamingResponse

from reconverge.integrations.contracts.problems import Problem

STREAM_S: Final = 1.0
"""Between two events of a stream."""
STREAMS_MAX: Final = 100
"""Pages that are followed at once; a further one has to ask now and then instead."""
STREAM_EVENTS_MAX: Final = 15
"""After so many events a stream ends, and the page begins another one, for which it has to be let in again; so a server
that waits for responses before it ends does not wait for long."""
STREAM_AGAIN: Final = b"retry: 250\n"
"""How soon a browser begins another one, in milliseconds."""

View = Callable[[], Awaitable[dict[str, Any]]]
"""Makes the content of one event."""


class Streams:
    """The streams of one console."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.open = 0
        """How many there are."""
        self.going_on: Callable[[], bool] = lambda: True
        """Whether they go on."""

    def begin(self) -> StreamingResponse:
        """The response of one more, which has to be sent. Raises Problem (503) if there are too many."""
        if self.open >= STREAMS_MAX:
            raise Problem(
                503,
                "too many pages of the console are open; close one, or try again in five seconds",
                fields={"Retry-After": "5"},
            )
        self.open += 1  # in one step with the look, as nothing is awaited in between
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
    """A stream of one message, that it is over."""

    def __init__(self, events: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
