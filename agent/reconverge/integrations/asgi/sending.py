"""Sends the responses of an ASGI application with the fields of its outcomes, and settles at their end."""

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
"""The messages that have header fields."""
_NOT_BEGUN: Final[tuple[int, Sequence[tuple[bytes, bytes]]]] = 0, ()


@lru_cache(maxsize=256)
def field_name(name: str) -> bytes:
    """The name of a field, as ASGI has it."""
    return name.lower().encode("latin-1", "replace")


def adding(send: Send, outcome: Admitted) -> Send:
    """Wraps `send` so that the response has the fields of an outcome that leaves nothing to settle.

    A function and no object: that takes half the time to make and to call, for each request.
    """

    def add(message: Message) -> Awaitable[None]:
        if message["type"] == BEGINNING:
            headers: Headers = [*(message.get("headers") or ())]
            # What `with_fields_of` does, without the calls.
            fields = None
            for name, _ in headers:
                if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
                    break
            else:
                fields = outcome.pipeline.encoded(outcome.decisions)
            if fields is None:
                headers = with_fields_of(outcome, headers)
            else:
                headers += fields
            if headers:
                message = {**message, "headers": headers}
        return send(message)

    return add


class Decided(list[Outcome]):
    """Lists the outcomes of one request so far.

    It lies in the scope, where what is decided later finds it. So it must not know how to send: a server's function for
    that knows the scope, and the three would be garbage that the collector has to look for. It is a list because an
    empty one is made of every request, and most get one outcome of which nothing is to be noted: an `Admitted` one may
    be appended.
    """

    unsettled = False
    """Whether anything depends on the response."""

    def add(self, outcome: Outcome) -> None:
        """Appends an outcome, which the response will show and settle."""
        if isinstance(outcome, Admitted):
            self.append(outcome)  # nothing is settled or metered
        else:
            go_on(self, outcome)
            self.unsettled = self.unsettled or outcome.unsettled

    def take_back(self, refusing: Outcome) -> None:
        """Take back the outcomes so far, and show none: another one refuses the request."""
        go_on(self, refusing)
        self.clear()

    def merged(self, headers: Headers) -> Headers:
        """The header fields of the application with those of the outcomes."""
        if len(self) == 1 and isinstance(only := self[0], Admitted):
            return with_fields_of(only, headers)
        if not self:
            return [*headers]
        return merged(headers, fields_together(self, refused=says_when_to_retry(headers)))

    def settle(self, response: Response) -> None:
        """Settle what has not been."""
        for outcome in self:
            outcome.finish(response)


def decided_once(outcome: Outcome) -> Decided:
    """Makes a list of the only outcome of a request."""
    decided = Decided()
    decided.add(outcome)
    return decided


class Sending:
    """Sends the application's messages, with the fields of the outcomes, and settles these in the end."""

    __slots__ = ("_bytes", "_closed", "_decided", "_headers", "_send", "_status")

    def __init__(
        self, send: Send, decided: Decided, status: int = 0, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """`status` and `headers` are those of the application, if it has begun to answer."""
        self._send = send
        self._decided = decided
        self._status = status
        self._headers = headers
        self._bytes = 0
        self._closed = False

    async def serve(self, app: App, scope: Scope, receive: Receive) -> None:
        """Let the application answer; the outcomes are settled even if it fails."""
        status = FAILED
        try:
            await app(scope, receive, self)
        except (asyncio.CancelledError, GeneratorExit):
            status = CANCELLED
            raise
        finally:
            self.end(status)

    def end(self, status: int) -> None:
        """Settle the rest when the application has ended; `status` is that of a request without an answer."""
        if self._decided.unsettled:
            self._settle(self._status or status, complete=False)

    def __call__(self, message: Message) -> Awaitable[None]:
        """Send one message on, as ASGI has it; the caller awaits the result."""
        if self._closed:
            return _no_more()
        if message["type"] in BEGINNINGS:
            self._status = message.get("status", 101)
            headers: Headers = list(message.get("headers") or ())
            self._headers = headers
            with_fields = self._decided.merged(headers)
            if with_fields:  # they may have come as a generator, and are used up then
                message = {**message, "headers": with_fields}
            return self._send(message)
        return self._settling(message) if self._decided.unsettled else self._send(message)

    async def _settling(self, message: Message) -> None:
        """Send a message after which there may be something to settle: before background tasks begin."""
        await self._send(message)
        kind = message["type"]
        if kind == "http.response.body":
            self._bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                self._settle(self._status, complete=True)
        elif kind == "http.response.pathsend":
            self._settle(self._status, complete=True)

    async def close(self, code: int) -> None:
        """Close a websocket, which from then on takes no more messages of the application; it may be gone already."""
        self._closed = True
        with suppress(OSError):
            await self._send({"type": "websocket.close", "code": code, "reason": "rate limit"})

    def _settle(self, status: int, *, complete: bool) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers}
        self._decided.settle(Response(status, headers, self._bytes, complete))


async def serve_deciding(app: App, scope: Scope, receive: Receive, send: Send, decided: Decided) -> None:
    """Does as `Sending.serve` for outcomes of the application itself, at less cost while nothing is to be settled."""
    # One variable for both, as each that is shared with the function costs a request something.
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


async def _no_more() -> None:
    """Send nothing: the connection is closed."""


def with_fields_of(outcome: Admitted, headers: Headers) -> Headers:
    """Header fields with those of a single outcome, as `merged` returns them."""
    refused = False
    for name, _ in headers:
        if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
            refused = True
            break
    fields = outcome.pipeline.encoded(outcome.decisions, refused=refused)
    return merged(headers, outcome.fields_beside(refused=refused)) if fields is None else headers + fields


def says_when_to_retry(headers: Headers) -> bool:
    """Whether a response is a refusal already, which the application has made."""
    for name, _ in headers:  # noqa: SIM110  # faster than a generator, for each response
        if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
            return True
    return False


def merged(headers: Sequence[tuple[bytes, bytes]], fields: Fields) -> Headers:
    """Header fields with ours. Lists add up; of the others, the application's stand."""
    there = {name.lower() for name, _ in headers}
    ours = [(name, value) for name, value in encoded(fields) if name not in there or name.decode() in LISTS]
    return [*headers, *ours]


def encoded(fields: Fields) -> Headers:
    """Fields as ASGI has them."""
    return [(field_name(name), value.encode("ascii")) for name, value in fields]
