"""A stack of layers in front of any ASGI application.

app = LoadSheddingMiddleware(app)
"""

# Theory of operation.
#
# A request is decided about when the server calls the application, and ends when the last part of its response body has
# been sent; work that the application does after its response does not count. If the body never ends, as when the
# client leaves, the call does. Each path leads to an end, and a second one changes nothing.
#
# Waiting for the client is no work (`shedding/admission.py`), so the request steps aside while
#
#     the rest of its body has not come    `receive` has to wait, and no response has begun
#     what was sent is not taken           `send` has to wait
#     it is an event stream                from the beginning of the response (text/event-stream) to its end
#     the application declares it          `with waiting(scope)`, as in a long poll
#
# and at no other time: a call that finds its message there changes nothing. What a handler awaits by itself, a database
# or the news of a long poll, looks alike from here, so it counts as work unless the application declares a wait. A
# `receive` after the whole body counts as work, too: it waits for the end of the connection while others work.
#
# With the last of its body a request asks for its slot again, and may be refused: 503 is sent, the application learns
# that the client has gone, and what it sends then is dropped. So a thousand uploads that are complete at one moment do
# not run at one moment. Any other wait ends in going on, counted beyond the limit if need be: half a response is worth
# nothing.
#
# Work in the shadow of a wait. Some frameworks read the body in a task beside the one that works (Quart), and a
# client that keeps back the last byte would be worked for uncounted. A response that begins while another task than the
# server's waits for the body shows such an application. From then on only the server's own task steps aside for a body;
# it is logged once. Where a response begins, the request goes on in any case.
#
# Websockets and the lifespan are passed through as they are.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final

from reconverge.integrations.asgi.sending import App, Headers, Message, Receive, Scope, Send
from reconverge.integrations.shedding.response import (
    Deciding,
    FieldWriter,
    KeyFunc,
    checked_stack,
    encoded_response_to,
    outcome_of,
)
from reconverge.integrations.shedding.waiting import ADMISSION, stepping_aside
from reconverge.integrations.web.options import check_asgi
from reconverge.shedding.admission import Admission
from reconverge.shedding.layers import DROPPED, IGNORED, ShedRefusal
from reconverge.shedding.stack import Stack

logger = logging.getLogger("reconverge")

START: Final = "http.response.start"
BODY: Final = "http.response.body"
GONE: Final = "http.disconnect"
PATH: Final = "http.response.pathsend"
"""An extension of ASGI: the whole body, as a file that the server sends."""

TYPE: Final = b"content-type"
TYPE_LENGTH: Final = len(TYPE)
EVENTS: Final = b"text/event-stream"


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
        self.writer: Final = FieldWriter() if fields else None
        self.works_beside = False
        """Whether the application works while a task of its own waits for the body; see above."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        """At which address the latest request came in."""
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
        server = scope.get("server")
        if server != self._server:
            self._server = server
            if server is not None and isinstance(server[1], int):
                self.stack.serves(server[1])
        admission = self._deciding.admission(scope, scope["method"], self._class_in(scope))
        if admission is None:
            await self.app(scope, receive, send)
        elif admission.refusal is not None:
            await _refuse(admission.refusal, scope, send)
        else:
            exchange = _Exchange()
            exchange.admission, exchange.front, exchange.scope = admission, self, scope
            exchange.own_receive, exchange.own_send, exchange.task = receive, send, asyncio.current_task()
            exchange.status, exchange.whole, exchange.listener, exchange.refused = 0, False, None, False
            scope[ADMISSION] = admission
            await self._serve(exchange)

    async def _serve(self, exchange: _Exchange) -> None:
        """Let the application answer; however that ends, the admission is finished."""
        admission = exchange.admission
        try:
            await self.app(exchange.scope, exchange.receive, exchange.send)
            if not admission.finished:  # the last part of the body has not been sent
                admission.finish(outcome_of(exchange.status))
        except TimeoutError:
            admission.finish(DROPPED)
            raise
        except Exception:
            admission.finish(IGNORED)
            if not exchange.refused:  # else it learned that its client has gone, and the client has an answer
                raise
        except BaseException:  # a cancelled task as well
            admission.finish(IGNORED)
            raise

    def worked_beside(self) -> None:
        """A request has been worked on while a task of its own waited for its body."""
        if not self.works_beside:
            self.works_beside = True
            logger.warning(
                "reconverge: %r works on a request whose body has not come; from now on requests whose body is read by "
                "a task of its own count as in progress while they wait for it",
                self.app,
            )

    def _class_in(self, scope: Scope) -> str | None:
        wanted = self._header
        if wanted is None:
            return None
        for name, value in scope["headers"]:
            if name == wanted:
                text: str = value.decode("latin-1")
                return text
        return None


class _Exchange:
    """One request and its response, and the state of its admission meanwhile."""

    # Made without a constructor: each request comes here, and that takes half as long.

    __slots__ = (
        "admission",
        "front",
        "listener",
        "own_receive",
        "own_send",
        "refused",
        "scope",
        "status",
        "task",
        "whole",
    )

    admission: Admission
    front: LoadSheddingMiddleware
    scope: Scope
    own_receive: Receive
    """The server's."""
    own_send: Send
    """The server's."""
    task: asyncio.Task[Any] | None
    """In which the server has called the application."""
    status: int
    """Of the response; 0 until it begins."""
    whole: bool
    """Whether the body of the request has come."""
    listener: asyncio.Task[Any] | None
    """The task that waits for more of the body, while the request has stepped aside for it."""
    refused: bool
    """Whether it was refused when its body had come."""

    def receive(self) -> Awaitable[Message]:
        """Hear one message, as ASGI has it."""
        if self.refused:
            return _gone()
        return self.own_receive() if self.whole or self.status else self._receive()

    async def _receive(self) -> Message:
        heard = False
        try:
            message = await stepping_aside(self.own_receive(), self._listen, _nothing)
            heard = True
        finally:
            if not heard:
                self._go_on(anyway=True)
        asks = message["type"] == "http.request"
        self.whole = not asks or not message.get("more_body", False)
        refusal = self._go_on(anyway=not (asks and self.whole))
        if refusal is None:
            return message
        self.refused = True
        await _refuse(refusal, self.scope, self.own_send)
        return {"type": GONE}

    def _listen(self) -> None:
        """More of the body has to be waited for."""
        task = asyncio.current_task()
        if self.listener is None and not self.status and (task is self.task or not self.front.works_beside):
            self.listener = task
            self.admission.step_aside(begun=False)

    def _go_on(self, *, anyway: bool) -> ShedRefusal | None:
        if self.listener is None:
            return None
        self.listener = None
        return self.admission.go_on(anyway=anyway)

    def send(self, message: Message) -> Awaitable[None]:
        """Send one message, as ASGI has it; the caller awaits the result."""
        if self.refused:
            return _no_more()
        kind = message["type"]
        if kind == START:
            return self._start(message)
        if (kind == BODY and not message.get("more_body", False)) or kind == PATH:
            return self._last(message)
        return self._send(message)

    async def _start(self, message: Message) -> None:
        self.status = message["status"]
        if self.listener is not None:
            if self.listener is not self.task:
                self.front.worked_beside()
            self._go_on(anyway=True)
        headers: Headers = [*(message.get("headers") or ())]
        events = _is_event_stream(headers)
        if self.front.writer is not None:
            headers += self.front.writer.encoded(self.admission)  # lists add up with the application's own
        admission = self.admission
        sent = self.own_send({**message, "headers": headers})
        await stepping_aside(sent, admission.step_aside, admission.go_on)
        if events:
            admission.step_aside()  # until its end

    async def _last(self, message: Message) -> None:
        admission = self.admission
        await stepping_aside(self.own_send(message), admission.step_aside, admission.go_on)
        admission.finish(outcome_of(self.status))

    async def _send(self, message: Message) -> None:
        admission = self.admission
        await stepping_aside(self.own_send(message), admission.step_aside, admission.go_on)


def _is_event_stream(headers: Headers) -> bool:
    """Whether a response tells of events as they happen: between two of them it waits."""
    for name, value in headers:
        if len(name) == TYPE_LENGTH and name.lower() == TYPE:
            return value.lower().startswith(EVENTS)
    return False


async def _refuse(refusal: ShedRefusal, scope: Scope, send: Send) -> None:
    """Answer a refused request."""
    status, headers, body = encoded_response_to(refusal)
    await send({"type": START, "status": status, "headers": headers})
    await send({"type": BODY, "body": b"" if scope["method"] == "HEAD" else body})


async def _gone() -> Message:
    """Tells an application whose request was refused that the client has gone."""
    return {"type": GONE}


async def _no_more() -> None:
    """Send nothing: the request was refused, and answered."""


def _nothing() -> None:
    """Do nothing."""
