"""Limits the messages that clients send through a websocket of FastAPI."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from reconverge.errors import InvalidSetting, WrongMoment
from reconverge.integrations.asgi.middleware import AsgiRequest
from reconverge.integrations.asgi.sending import Message, Receive
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.request.request import Response
from reconverge.limiter.awaiting import undecided

logger = logging.getLogger("reconverge")

BESIDE: Final = "reconverge.beside"
"""The key in a websocket's scope of its `MessagesBeside`, if the websocket is watched."""
BESIDE_MAX: Final = 20
"""If so many messages in a row pass by a loop over the messages, a warning is logged; a few may belong to one."""
LEAVING_TURNS: Final = 5
"""After so many turns of the event loop, it has closed an asynchronous generator that was dropped; it needs two."""

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


class MessagesBeside:
    """Counts the messages that an endpoint receives itself in the body of its loop over `SocketMessages`.

    After BESIDE_MAX of them in a row a warning is logged: the limit counts none of them.
    """

    def __init__(self, is_new: Callable[[Hashable], bool]) -> None:
        self._is_new = is_new
        self._name: str | None = None
        """The name of the limit whose loop runs its body; None between two messages."""
        self._count = 0
        self.has_received = False
        """Whether the websocket has had a message."""

    def is_counted(self) -> None:
        """Notes that the last message was counted by a limit after all."""
        self._count = 0

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Counts the messages that are received in a block, for the limit called `name`."""
        self._name, self._count = name, 0
        try:
            yield
        finally:
            self._name = None

    def counting(self, receive: Receive) -> Receive:
        """Returns a `receive` that counts the messages."""

        async def receive_counted() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                self.has_received = True
                self._count += 1
                if self._name is not None and self._count == BESIDE_MAX:
                    await self._log()
            return message

        return receive_counted

    async def _log(self) -> None:
        import anyio  # noqa: PLC0415  # comes with Starlette

        for _ in range(LEAVING_TURNS):  # a loop that was left by `break` is closed by the event loop meanwhile
            await anyio.lowlevel.checkpoint()
        if self._name is not None and self._is_new((BESIDE, self._name)):
            logger.warning(
                "reconverge: an endpoint has received %d messages itself in the body of async for text in "
                "messages(socket), so the limit %r does not count them; let the loop receive them, or write "
                "await messages.check(socket) for each",
                BESIDE_MAX,
                self._name,
            )


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

    @property
    def __signature__(self) -> NoReturn:
        """Raises InvalidSetting: FastAPI reads this attribute of a dependency when the route is declared."""
        problem = "is no dependency, as it limits messages; write async for text in messages(socket) in the endpoint"
        raise InvalidSetting("messages", self.name, problem)

    def __aiter__(self) -> NoReturn:
        raise TypeError("messages belong to a websocket; write: async for text in messages(socket)")

    async def __call__(self, socket: WebSocket) -> AsyncIterator[str | bytes]:
        """Yields the texts and bytes of an accepted websocket, and closes the websocket when a message is refused."""
        scope: Any = socket.scope
        beside: MessagesBeside | None = scope.get(BESIDE)
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message["type"] == "websocket.connect":
                raise WrongMoment(
                    f"the limit {self.name!r} was asked about messages of a websocket that is not accepted yet; "
                    "write await socket.accept() before async for text in messages(socket)"
                )
            if not await self.check(socket):
                await socket.close(self._close_code, "rate limit")
                return
            text = message.get("text")
            said = message["bytes"] if text is None else text
            if beside is None:
                yield said
            else:
                with beside.reading(self.name):
                    yield said

    @undecided
    async def check(self, socket: WebSocket) -> Outcome:
        """Counts one message, for endpoints that receive messages and close the websocket themselves.

        The returned outcome is false if the message is refused.
        """
        self.asked = True
        scope: Any = socket.scope
        if BESIDE in scope:
            scope[BESIDE].is_counted()
        request = AsgiRequest(scope, self._guard.addresses, connection=socket)
        outcome = await self._guard.check_async(request, self._rules)
        outcome.finish(Response(200))
        return outcome
