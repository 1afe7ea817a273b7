"""Sends an ASGI application's responses with the limits' header fields, and settles costs when the responses end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeAlias

from reconverge.integrations.web.fields import LISTS, Fields
from reconverge.integrations.web.outcome import Outcome, fields_together, go_on
from reconverge.integrations.web.pipeline import Admitted
from reconverge.integrations.web.request.request import CANCELLED, FAILED, Response

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

RETRY_AFTER_NAME: Final = b"retry-after"
RETRY_AFTER_LENGTH: Final = len(RETRY_AFTER_NAME)
BEGINNING: Final = "http.response.start"
BEGINNINGS: Final = frozenset({BEGINNING, "websocket.accept", "websocket.http.response.start"})
"""The types of the ASGI messages that carry header fields."""
_NOT_BEGUN: Final[tuple[int, Sequence[tuple[bytes, bytes]]]] = 0, ()


@lru_cache(maxsize=256)
def field_name(name: str) -> bytes:
    """Returns the name of a header field in lower case as bytes, as ASGI requires."""
    return name.lower().encode("latin-1", "replace")


def adding(send: Send, outcome: Admitted) -> Send:
    """Returns a `send` that adds the response fields of `outcome`, which has no costs to settle.

    This is a function, because making and calling an object would take twice the time, for each request.
    """

    def add(message: Message) -> Awaitable[None]:
        if message["type"] == BEGINNING:
            headers: Headers = [*(message.get("headers") or ())]
            # The same as `with_fields_of`, without its calls.
            fields = None
            for name, _ in headers:
                if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
                    break
            else:
                fields = outcome.pipeline.encoded(outcome.decisions, outcome.keys)
            if fields is None:
                headers = with_fields_of(outcome, headers)
            else:
                headers += fields
            if headers:
                message = {**message, "headers": headers}
        return send(message)

    return add


class Decided(list[Outcome]):
    """A list of the outcomes of one request so far.

    The list is in the scope, so that later limits find it. It has no reference to `send`: a server's `send` refers to
    the scope, and such a cycle would be left to the garbage collector.

    A subclass of list is used, because each request needs an empty one, and most requests get one outcome without costs
    to settle: an `Admitted` outcome may be appended directly.
    """

    unsettled = False
    """Whether the cost of an outcome depends on the response and must still be settled."""

    def add(self, outcome: Outcome) -> None:
        """Appends an outcome, so that its header fields are added to the response and its costs are settled."""
        if isinstance(outcome, Admitted):
            self.append(outcome)  # it has nothing to settle or to meter
        else:
            go_on(self, outcome)
            self.unsettled = self.unsettled or outcome.unsettled

    def take_back(self, refusing: Outcome) -> None:
        """Gives back the charges of all outcomes so far, and empties the list: `refusing` refuses the request."""
        go_on(self, refusing)
        self.clear()

    def merged(self, headers: Headers) -> Headers:
        """Returns `headers`, the header fields of the application's response, with those of the outcomes added."""
        if len(self) == 1 and isinstance(only := self[0], Admitted):
            return with_fields_of(only, headers)
        if not self:
            return [*headers]
        return merged(headers, fields_together(self, refused=says_when_to_retry(headers)))

    def settle(self, response: Response, *, spent: bool = True) -> None:
        """Settles the costs of all outcomes by `response`: corrects each charge to the true cost, once.

        If `spent` is False, costs of rules with `settle="spent"` stay open.
        """
        for outcome in self:
            outcome.finish(response, spent=spent)


def decided_once(outcome: Outcome) -> Decided:
    """Returns a list of one outcome, for a request about which no other limit decides."""
    decided = Decided()
    decided.add(outcome)
    return decided


class Sending:
    """Wraps `send`: sends the application's messages, adds the outcomes' fields to them, and settles the costs."""

    __slots__ = ("_bytes", "_closed", "_complete", "_decided", "_headers", "_send", "_status")

    def __init__(
        self, send: Send, decided: Decided, status: int = 0, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Wraps `send`; `status` and `headers` are those of the application's response, if it has begun already."""
        self._send = send
        self._decided = decided
        self._status = status
        self._headers = headers
        self._bytes = 0
        self._closed = False
        self._complete = False

    async def serve(self, app: App, scope: Scope, receive: Receive) -> None:
        """Runs the application, and settles the outcomes' costs afterwards, even if the application fails."""
        status = FAILED
        try:
            await app(scope, receive, self)
        except (asyncio.CancelledError, GeneratorExit):
            status = CANCELLED
            raise
        finally:
            self.end(status)

    def end(self, status: int) -> None:
        """Settles the costs that are still open when the application has ended.

        `status` counts as the status of the response if no response had begun.
        """
        if self._decided.unsettled:
            self._decided.settle(self._response(self._status or status))

    def __call__(self, message: Message) -> Awaitable[None]:
        """Passes on one ASGI message, with the fields if it begins the response. The caller awaits the result."""
        if self._closed:
            return no_more()
        if message["type"] in BEGINNINGS:
            self._status = message.get("status", 101)
            headers: Headers = list(message.get("headers") or ())
            self._headers = headers
            with_fields = self._decided.merged(headers)
            if with_fields:  # the application's fields may have been a generator, which is used up now
                message = {**message, "headers": with_fields}
            return self._send(message)
        return self._settling(message) if self._decided.unsettled else self._send(message)

    async def _settling(self, message: Message) -> None:
        """Sends a message. If it ends the response, settles all costs except those with `settle="spent"`."""
        await self._send(message)
        kind = message["type"]
        if kind == "http.response.body":
            self._bytes += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        elif kind == "http.response.pathsend":
            self._complete = True
        if self._complete:
            self._decided.settle(self._response(self._status), spent=False)

    async def close(self, code: int) -> None:
        """Closes a websocket, though its connection may be lost; later messages of the application are dropped."""
        self._closed = True
        with suppress(OSError):
            await self._send({"type": "websocket.close", "code": code, "reason": "rate limit"})

    def _response(self, status: int) -> Response:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers}
        return Response(status, headers, self._bytes, self._complete)


async def serve_deciding(app: App, scope: Scope, receive: Receive, send: Send, decided: Decided) -> None:
    """Runs the application and settles costs as `Sending.serve` does, but faster if there are none to settle."""
    # One variable for both states, as each variable that is shared with the inner function costs time.
    so_far: Sending | tuple[int, Sequence[tuple[bytes, bytes]]] = _NOT_BEGUN

    def say(message: Message) -> Awaitable[None]:
        nonlocal so_far
        if isinstance(so_far, tuple):
            kind = message["type"]
            if not decided.unsettled:
                if kind == BEGINNING:
                    headers: Headers = [*(message.get("headers") or ())]
                    so_far = message.get("status", 101), headers
                    headers = decided.merged(headers)
                    return send({**message, "headers": headers} if headers else message)
                if kind not in BEGINNINGS:
                    return send(message)
            so_far = Sending(send, decided, *so_far)
        return so_far(message)

    ended = FAILED
    try:
        await app(scope, receive, say)
    except (asyncio.CancelledError, GeneratorExit):
        ended = CANCELLED
        raise
    finally:
        if decided.unsettled:
            (Sending(send, decided, *so_far) if isinstance(so_far, tuple) else so_far).end(ended)


async def no_more() -> None:
    """Drops a message of the application, after its websocket was closed or its request was answered."""


def with_fields_of(outcome: Admitted, headers: Headers) -> Headers:
    """Returns the application's header fields, with the fields of `outcome`, a request's only outcome, added."""
    refused = says_when_to_retry(headers)
    fields = outcome.pipeline.encoded(outcome.decisions, outcome.keys, refused=refused)
    return merged(headers, outcome.fields_beside(refused=refused)) if fields is None else headers + fields


def says_when_to_retry(headers: Headers) -> bool:
    """Returns whether a response has a Retry-After field, and so is a refusal by the application itself."""
    for name, _ in headers:  # noqa: SIM110  # faster than a generator, for each response
        if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
            return True
    return False


def merged(headers: Sequence[tuple[bytes, bytes]], fields: Fields) -> Headers:
    """Returns `headers`, the header fields of the application's response, with the limits' `fields` added.

    If both have a field of the same name, both are sent if the field is a list; otherwise only the application's is.
    """
    there = {name.lower() for name, _ in headers}
    ours = [(name, value) for name, value in encoded(fields) if name not in there or name.decode() in LISTS]
    return [*headers, *ours]


def encoded(fields: Fields) -> Headers:
    """Returns the fields as pairs of bytes, as ASGI requires."""
    return [(field_name(name), value.encode("ascii")) for name, value in fields]
