"""A stack of layers in front of any ASGI application.

app = LoadSheddingMiddleware(app)
"""

# Theory of operation.
#
# A request is decided about when the server calls the application, and holds its slot until the last part of its
# response body has been sent: a response that is streamed for a minute is in progress for a minute, and work that the
# application does after its response is not. If the body never ends, as when the client leaves, the end of the call
# does. Each path leads through `finally`, and a second end changes nothing.
#
# Websockets and the lifespan are passed through as they are.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from reconverge.integrations.asgi.sending import App, Message, Receive, Scope, Send
from reconverge.integrations.shedding.response import (
    Deciding,
    FieldWriter,
    KeyFunc,
    checked_stack,
    encoded_response_to,
    outcome_of,
)
from reconverge.integrations.web.options import check_asgi
from reconverge.shedding.admission import Admission
from reconverge.shedding.layers import DROPPED, IGNORED
from reconverge.shedding.stack import Stack

START: Final = "http.response.start"
BODY: Final = "http.response.body"
PATH: Final = "http.response.pathsend"
"""An extension of ASGI: the whole body, as a file that the server sends."""


class LoadSheddingMiddleware:
    """Refuses requests that an application cannot serve now, the least important ones first.

    Args:
        app: the application.
        stack: the layers; by default adaptive concurrency and the worker shedder, with the four default classes.
        key_func: from the scope to the key that a `RequestRate` counts by.
        fields: whether responses to admitted requests say what is left, in the fields of draft-ietf-httpapi-ratelimit.

    Raises InvalidSetting for an application or a stack that is none, and for a `key_func` that is missing or useless.
    """

    def __init__(
        self, app: App, stack: Stack | None = None, *, key_func: KeyFunc | None = None, fields: bool = True
    ) -> None:
        check_asgi(app, "WsgiLoadSheddingMiddleware of reconverge.integrations.shedding")
        self.app = app
        self.stack = checked_stack(stack)
        self._deciding = Deciding(self.stack, key_func)
        self._writer = FieldWriter() if fields else None
        self._loop: asyncio.AbstractEventLoop | None = None
        header = self.stack.classes.header
        self._header = None if header is None else header.encode("ascii")

    @property
    def failures(self) -> int:
        """How many requests have gone on because the application's own functions failed."""
        return self._deciding.failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self.stack.watch(loop)
        admission = self._deciding.admission(scope, scope["method"], self._class_in(scope))
        if admission is None:
            await self.app(scope, receive, send)
        elif admission.refusal is not None:
            status, headers, body = encoded_response_to(admission.refusal)
            await send({"type": START, "status": status, "headers": headers})
            await send({"type": BODY, "body": b"" if scope["method"] == "HEAD" else body})
        else:
            sending = _Sending()
            sending.admission, sending.own, sending.writer, sending.status = admission, send, self._writer, 0
            try:
                await self.app(scope, receive, sending.send)
                if not admission.finished:  # the last part of the body has not been sent
                    admission.finish(outcome_of(sending.status))
            except TimeoutError:
                admission.finish(DROPPED)
                raise
            except BaseException:  # a cancelled task as well
                admission.finish(IGNORED)
                raise

    def _class_in(self, scope: Scope) -> str | None:
        wanted = self._header
        if wanted is None:
            return None
        for name, value in scope["headers"]:
            if name == wanted:
                text: str = value.decode("latin-1")
                return text
        return None


class _Sending:
    """Sends what the application sends, and finishes the admission with the last part of the body."""

    # Made without a constructor, and called by a method: each request comes here, and both take half as long so.

    __slots__ = ("admission", "own", "status", "writer")

    admission: Admission
    own: Send
    """The server's."""
    status: int
    writer: FieldWriter | None

    def send(self, message: Message) -> Awaitable[None]:
        """Send one message, as ASGI has it; what is returned has to be awaited."""
        kind = message["type"]
        if kind == START:
            self.status = message["status"]
            if self.writer is not None:
                fields = self.writer.encoded(self.admission)
                if fields:  # lists add up with those that the application has set
                    message = {**message, "headers": [*(message.get("headers") or ()), *fields]}
        elif (kind == BODY and not message.get("more_body", False)) or kind == PATH:
            return self._last(message)
        return self.own(message)

    async def _last(self, message: Message) -> None:
        await self.own(message)
        self.admission.finish(outcome_of(self.status))
