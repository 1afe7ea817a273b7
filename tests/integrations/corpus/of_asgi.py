"""The middleware of ASGI, around an application that answers as the case says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from reconverge import RateLimiter
from reconverge.integrations import Rule, by_header, by_ip
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX
from reconverge.integrations.web.request.keys import by_ip_network, by_user
from tests.integrations.corpus.drawing import Draw, Stand, seen_in
from tests.support.applications.asking import http_scope

KEY_FUNCTIONS: Final[Sequence[Any]] = (
    by_header("x-key"),
    by_header("X-Key"),
    by_ip,
    by_ip_network(48),
    by_ip_network(128),
    by_user,
    lambda request: request.header("x-key"),
)
VALUES: Final[Sequence[Any]] = (
    *[b"ada"] * 6,
    b"bob",
    b"",
    b"\xc3\xa9t\xc3\xa9",
    b"\xff",
    b"~nobody",
    b"~hashed:00",
    b"\x00",
    b"a|b%",
    b"x" * 600,
)
FIELDS: Final = (b"x-key", b"x-key", b"x-key", b"X-Key", b"x-keys", b"x-forwarded-for", b"accept")
SHAPES: Final[Sequence[Callable[[list[Any]], Any]]] = (list, list, list, tuple, iter)
"""In what header fields come."""
CLIENTS: Final[Sequence[Any]] = (
    *[("192.0.2.1", 50000)] * 12,
    ("192.0.2.1", 50001),
    ["192.0.2.2", 50000],
    ("10.0.0.1", 50000),
    ("::ffff:192.0.2.1", 50000),
    ("2001:db8::1", 50000, 0, 0),
    ("2001:db8::2%eth0", 50000),
    ("2001:DB8:0:0:1::1", 50000),
    ("[2001:db8::1]:80", 50000),
    ("192.0.2.1:80", 50000),
    (" 192.0.2.1 ", 50000),
    ("", 0),
    ("/run/service.sock", None),
    ("testclient", 50000),
    ("x" * ADDRESS_CHARACTERS_MAX, 1),
    (" " * ADDRESS_CHARACTERS_MAX + "192.0.2.1", 1),
    ("~nobody", 1),
    ("\x00", 1),
    (),
    None,
)
ANSWERS: Final[Sequence[Any]] = (
    [(b"content-type", b"text/plain")],
    [(b"content-type", b"text/plain")],
    [],
    None,
    [(b"RateLimit", b'"other";r=1'), (b"x-ratelimit-limit", b"9")],
    [(b"Retry-After", b"5")],
    [(b"content-type", b"text/plain"), (b"retry-after", b"9")],
)
"""The header fields of the application; None for none at all."""


def headers_of(draw: Draw) -> list[Any]:
    if draw.random() < 0.6:
        return [(b"accept", b"*/*"), (b"x-key", draw.one((b"ada", b"ada", b"bob")))]
    headers: list[Any] = [(draw.one(FIELDS), draw.one(VALUES)) for _ in range(draw.randrange(4))]
    return [*headers, (b"x-forwarded-for", b"192.0.2.7, 10.0.0.2")] if draw.random() < 0.2 else headers


class OfAsgi(Stand):
    def __init__(self, draw: Draw) -> None:
        super().__init__(draw.settings())
        self.answer: tuple[Any, bool] = None, False
        rules = [Rule(**rule) for rule in draw.rules(KEY_FUNCTIONS)]
        self.middleware = RateLimitMiddleware(self._app, rules=rules, guard=self.guard)
        self.limiters = [rule._limiter for rule in self.middleware._rules if isinstance(rule._limiter, RateLimiter)]

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        headers, as_generator = self.answer
        start: dict[str, Any] = {"type": "http.response.start", "status": 200}
        if scope["type"] == "websocket":
            await receive()
            start = {"type": "websocket.accept"}
        if headers is not None:
            start["headers"] = (each for each in headers) if as_generator else headers
        await send(start)
        if scope["type"] == "http":
            await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    def said(self, draw: Draw) -> Any:
        """Serves a connection: returns the messages, or the error, and the decisions in the scope."""
        self.answer = draw.one(ANSWERS), draw.random() < 0.3
        method = draw.one(("GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "brew"))
        scope: dict[str, Any] = http_scope("/", method=method)
        scope |= {"type": draw.one(("http",) * 8 + ("websocket", "lifespan"))}
        scope |= {"headers": draw.one(SHAPES)(headers_of(draw)), "client": draw.one(CLIENTS)}
        if draw.random() < 0.05:
            del scope["client"]
        sent = list[Any]()

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            headers = message.get("headers")
            sent.append({**message, "headers": None if headers is None else list(headers)})
            if isinstance(headers, list) and headers is not self.answer[0]:
                headers.clear()  # as others may do that send it on

        try:
            asyncio.run(self.middleware(scope, receive, send))
        except Exception as error:  # noqa: BLE001  # of the application
            sent.append(repr(error))
        return sent, seen_in(scope.get(OUTCOME))
