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
from typing import Any

from reconverge.integrations.asgi.sending import App, Message, Receive, Scope, Send, merged
from reconverge.integrations.shedding.response import (
    Deciding,
    KeyFunc,
    checked_stack,
    fields_of_admission,
    names_of,
    outcome_of,
    response_to,
)
from reconverge.integrations.web.options import check_asgi
from reconverge.shedding.layers import DROPPED, IGNORED, Outcome
from reconverge.shedding.stack import Admission, Stack


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
        self._fields = fields
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
        elif admission.refusal is None:
            await self._serve(admission, scope, receive, send)
        else:
            status, fields, body = response_to(admission.refusal)
            await send({"type": "http.response.start", "status": status, "headers": names_of(fields)})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _serve(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        sending = _Sending(admission, send, fields=self._fields)
        outcome: Outcome = IGNORED
        try:
            await self.app(scope, receive, sending)
            outcome = outcome_of(sending.status)
        except TimeoutError:
            outcome = DROPPED
            raise
        finally:
            admission.finish(outcome)

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

    __slots__ = ("_admission", "_fields", "_send", "status")

    def __init__(self, admission: Admission, send: Send, *, fields: bool) -> None:
        self._admission = admission
        self._send = send
        self._fields = fields
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """Send one message, as ASGI has it."""
        kind: Any = message["type"]
        if kind == "http.response.start":
            self.status = message["status"]
            if self._fields:
                fields = fields_of_admission(self._admission)
                message = {**message, "headers": merged(message.get("headers", ()), fields)}
            await self._send(message)
        elif kind == "http.response.body" and not message.get("more_body", False):
            await self._send(message)
            self._admission.finish(outcome_of(self.status))
        else:
            await self._send(message)
