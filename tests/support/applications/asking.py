"""A vocabulary for tests of applications: asks them once, without a server, and records all that they send."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

ADA: Final = "192.0.2.1"
BOB: Final = "192.0.2.2"
HERE: Final = "127.0.0.1"


@dataclass
class Answer:
    status: int
    pairs: list[tuple[str, str]]
    """All header fields, in order, with names in small letters."""
    body: bytes
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The ASGI messages in the order in which they were sent."""

    @property
    def headers(self) -> dict[str, str]:
        """Returns the header fields; raises an error if a name occurs twice."""
        assert len(self.pairs) == len({name for name, _ in self.pairs}), f"said twice: {self.pairs}"
        return dict(self.pairs)


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers in two parts."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hel", "more_body": True})
    await send({"type": "http.response.body", "body": b"lo"})


def hello_wsgi(_environment: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hel", b"lo"]


def http_scope(path: str, *, method: str = "GET", client: str | None = ADA, **headers: str) -> dict[str, Any]:
    """Returns the scope of a request as an ASGI server makes it.

    Underscores in names of header fields become dashes.
    """
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (name.replace("_", "-").lower().encode(), value.encode("latin-1")) for name, value in headers.items()
        ],
        "client": None if client is None else (client, 50000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


async def asgi_answer(app: Any, scope: dict[str, Any]) -> Answer:
    """Asks an ASGI application without a body; the client stays afterwards."""
    sent: list[dict[str, Any]] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()  # for ever: the client is still there
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return answer_of(sent)


def answer_of(sent: list[dict[str, Any]]) -> Answer:
    """Returns the answer that messages make; there is one beginning to it."""
    (start,) = (message for message in sent if message["type"] == "http.response.start")
    assert start is sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], pairs, body, sent)


def ask_asgi(app: Any, path: str = "/", *, times: int = 1, **details: Any) -> list[Answer]:
    async def ask() -> list[Answer]:
        return [await asgi_answer(app, http_scope(path, **details)) for _ in range(times)]

    return asyncio.run(ask())


def websocket_scope(path: str = "/ws", *, denial: bool = False, **headers: str) -> dict[str, Any]:
    """Returns the scope of a websocket; with `denial`, the server can answer in another way than by closing."""
    scope = http_scope(path, **headers) | {"type": "websocket", "subprotocols": []}
    del scope["method"]
    return scope | ({"extensions": {"websocket.http.response": {}}} if denial else {})


async def converse(app: Any, scope: dict[str, Any], *texts: str) -> list[dict[str, Any]]:
    """Connects, sends these texts and leaves. Returns the messages that the server was to send."""
    coming: list[dict[str, Any]] = [{"type": "websocket.connect"}]
    coming += [{"type": "websocket.receive", "text": text} for text in texts]
    coming.append({"type": "websocket.disconnect", "code": 1000})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def ask_wsgi(app: Any, path: str = "/", *, times: int = 1, **details: Any) -> list[Answer]:
    """Asks a WSGI application several times, reads all of each body, and closes it."""
    return [wsgi_answer(app, environment_of(path, **details)) for _ in range(times)]


def environment_of(path: str, *, method: str = "GET", client: str | None = ADA, **headers: str) -> dict[str, Any]:
    """Returns the environment of a request as a WSGI server makes it."""
    environment: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": client or "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    return environment | {f"HTTP_{name.upper()}": value for name, value in headers.items()}


def wsgi_answer(app: Callable[..., Iterable[bytes]], environment: dict[str, Any]) -> Answer:
    """Asks a WSGI application, and reads all of its answer."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> object:
        assert exc_info is not None or not started, "begun twice"
        started.append((status, headers))
        return None

    body = app(environment, start_response)
    try:
        content = b"".join(body)
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
    status, headers = started[-1]
    return Answer(int(status[:3]), [(name.lower(), value) for name, value in headers], content)


def statuses(answers: Sequence[Answer]) -> list[int]:
    return [answer.status for answer in answers]
