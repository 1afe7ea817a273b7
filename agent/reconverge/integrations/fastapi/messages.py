"""Limits the messages that clients send through a websocket of FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NoReturn

from reconverge.integrations.asgi.middleware import AsgiRequest
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.request.request import Response
from reconverge.limiter.awaiting import undecided

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


class SocketMessages:
    """Iterates over a websocket's messages until there are too many: `async for text in messages(socket)`.

    With the first refused message the websocket is closed and the iteration ends. `Limits.messages` makes this object.
    """

    def __init__(self, guard: Guard, declared: Declared, close_code: int) -> None:
        self.name = declared.name
        self.asked = False
        """Whether this limit has decided about any message so far."""
        self._guard = guard
        self._rules = [declared]
        self._close_code = close_code

    def __aiter__(self) -> NoReturn:
        raise TypeError("messages belong to a websocket; write: async for text in messages(socket)")

    async def __call__(self, socket: WebSocket) -> AsyncIterator[str | bytes]:
        """Yields the texts and bytes of an accepted websocket, and closes the websocket when a message is refused."""
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if not await self.check(socket):
                await socket.close(self._close_code, "rate limit")
                return
            text = message.get("text")
            yield message["bytes"] if text is None else text

    @undecided
    async def check(self, socket: WebSocket) -> Outcome:
        """Counts one message, for endpoints that receive messages and close the websocket themselves.

        The returned outcome is false if the message is refused.
        """
        self.asked = True
        scope: Any = socket.scope
        request = AsgiRequest(scope, self._guard.addresses, connection=socket)
        outcome = await self._guard.check_async(request, self._rules)
        outcome.finish(Response(200))
        return outcome
