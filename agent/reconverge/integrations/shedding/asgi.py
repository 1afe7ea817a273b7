"""A stack of load-shedding layers in front of any ASGI application.

app = LoadSheddingMiddleware(app)
"""

# Theory of operation.
#
# A request is decided when the server calls the application, and ends when the last part of its response body has been
# sent; work of the application after its response does not count. If the body never ends, for example because the
# client disconnects, the request ends with the application's call. Every path leads to an end, and a second end has no
# effect.
#
# Waiting for the client is not work (`shedding/admission.py`). So the request steps aside, which frees its slot, while
#
#     the rest of its body is missing      `receive` has to wait, and no response has begun
#     the server cannot send yet           `send` has to wait
#     it is an event stream                from the beginning of the response (text/event-stream) to its end
#     the application declares a wait      `with waiting(scope)`, as in a long poll
#
# and at no other time. A `receive` whose message is available at once changes nothing. If a handler awaits something
# else, the middleware cannot distinguish a query to a database from the wait of a long poll, so both count as work
# unless the application declares a wait. A `receive` after the whole body counts as work, too: it waits for the end of
# the connection while other tasks work.
#
# When the last part of its body has arrived, a request asks for a slot again, and may be refused: 503 is sent, the
# application is informed that the client has disconnected, and any response of the application is dropped. So a
# thousand uploads that become complete at one moment are not all served at that moment. After any other wait the
# request always goes on, if necessary beyond the limit, because half a response is worth nothing.
#
# Work during a wait. In some frameworks (Quart), one task reads the body while another one works on the request. A
# client that holds back the last byte would get work done that is not counted. If a response begins while another task
# than the server's waits for the body, the application is of this kind. From then on, only the server's own task steps
# aside for a body; this is logged once. Once a response has begun, the request goes on in any case.
#
# Websockets and the lifespan are passed through unchanged.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final

from reconverge.integrations.asgi.sending import App, Headers, Message, Receive, Scope, Send, no_more
from reconverge.integrations.misplaced import SHEDDING, warn_if_dropped
from reconverge.integrations.shedding.response import (
    Deciding,
    FieldWriter,
    KeyFunc,
    checked_stack,
    encoded_response_to,
    outcome_of,
)
from reconverge.integrations.shedding.waiting import ADMISSION, stepping_aside
from reconverge.integrations.web.options import check_asgi, with_advice_about_class
from reconverge.shedding.admission import Admission
from reconverge.shedding.layers import DROPPED, IGNORED, ShedRefusal
from reconverge.shedding.stack import Stack

logger = logging.getLogger("reconverge")

START: Final = "http.response.start"
BODY: Final = "http.response.body"
GONE: Final = "http.disconnect"
PATH: Final = "http.response.pathsend"
"""The type of the ASGI message with which an application has the server send a file as the whole body."""

TYPE: Final = b"content-type"
TYPE_LENGTH: Final = len(TYPE)
EVENTS: Final = b"text/event-stream"


class LoadSheddingMiddleware:
    """Refuses requests that an application cannot serve now, the least important ones first.

    Args:
        app: the application.
        stack: the layers; by default adaptive concurrency and the worker shedder, with the four default classes.
        key_func: returns the key that a `RequestRate` layer counts by, from the ASGI scope.
        fields: whether responses to admitted requests have the fields RateLimit and RateLimit-Policy, which show what
            is left of the limits.

    Raises InvalidSetting if the application or the stack is of a wrong type, or `key_func` is missing or has no effect.
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
        """Whether the application was seen to work on a request while another of its tasks waited for the body."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        """The address and port of the server in the latest request's scope, to notice a new port."""
        header = self.stack.classes.header
        self._header = None if header is None else header.encode("ascii")
        self._unserved = warn_if_dropped(self, SHEDDING)

    @property
    def failures(self) -> int:
        """Returns how many requests were served without a decision because a function of the application failed."""
        return self._deciding.failures

    @with_advice_about_class
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._unserved.detach()
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
            if not exchange.refused:  # after a refusal, the client has its response, and the application may fail
                raise
        except BaseException:  # a cancelled task as well
            admission.finish(IGNORED)
            raise

    def worked_beside(self) -> None:
        """Sets `works_beside`, and logs once that a task worked on a request while another waited for the body."""
        if not self.works_beside:
            self.works_beside = True
            logger.warning(
                "reconverge: the application %r works on a request before its body has come. So from now on a request "
                "counts as in progress while a task of its own waits for its body, and a slow client takes a slot; "
                "read the body in the task that answers the request to avoid that",
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
    """An admitted request: passes its messages on, and frees its slot while it waits for the client."""

    # Made without a constructor: every request makes one, and this takes half the time.

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
    own_send: Send
    task: asyncio.Task[Any] | None
    """The task in which the server has called the application."""
    status: int
    """The status of the response; 0 until it begins."""
    whole: bool
    """Whether the whole body of the request has arrived."""
    listener: asyncio.Task[Any] | None
    """The task that waits for more of the body; None unless the request has freed its slot to wait for that."""
    refused: bool
    """Whether the request was refused late: when its body had arrived, no slot was free."""

    def receive(self) -> Awaitable[Message]:
        if self.refused:
            return _gone()
        return self.own_receive() if self.whole or self.status else self._receive()

    async def _receive(self) -> Message:
        heard = False
        try:
            message = await stepping_aside(self.own_receive(), self._listen, lambda: None)
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
        """Frees the slot of the request while it waits for more of its body."""
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
        """Sends one ASGI message of the application, or drops it if the request was refused late.

        The caller awaits the result.
        """
        if self.refused:
            return no_more()
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
            # List fields are sent in addition to the application's own.
            headers += self.front.writer.encoded(self.admission)
        admission = self.admission
        sent = self.own_send({**message, "headers": headers})
        await stepping_aside(sent, admission.step_aside, admission.go_on)
        if events:
            admission.step_aside()  # until the stream ends

    async def _last(self, message: Message) -> None:
        admission = self.admission
        await stepping_aside(self.own_send(message), admission.step_aside, admission.go_on)
        admission.finish(outcome_of(self.status))

    async def _send(self, message: Message) -> None:
        admission = self.admission
        await stepping_aside(self.own_send(message), admission.step_aside, admission.go_on)


def _is_event_stream(headers: Headers) -> bool:
    """Returns whether a response is a stream of server-sent events. Between two events such a response waits."""
    for name, value in headers:
        if len(name) == TYPE_LENGTH and name.lower() == TYPE:
            return value.lower().startswith(EVENTS)
    return False


async def _refuse(refusal: ShedRefusal, scope: Scope, send: Send) -> None:
    status, headers, body = encoded_response_to(refusal)
    await send({"type": START, "status": status, "headers": headers})
    await send({"type": BODY, "body": b"" if scope["method"] == "HEAD" else body})


async def _gone() -> Message:
    """Returns the ASGI message `http.disconnect`, for an application whose request was refused after it had begun."""
    return {"type": GONE}
