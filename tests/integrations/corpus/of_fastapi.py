"""Limits as dependencies of FastAPI, of one route or several, that answer as the case says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID

import fastapi
from fastapi.responses import Response, StreamingResponse

from reconverge.integrations import by_header, by_ip
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.keys import by_ip_network, by_user
from tests.integrations.corpus.drawing import Draw, Stand, seen_in
from tests.integrations.corpus.of_asgi import CLIENTS, headers_of
from tests.support.applications.asking import http_scope


async def _user(request: fastapi.Request = None) -> Any:  # type: ignore[assignment]
    return None if request is None else request.scope.get("user")


KEY_FUNCTIONS: Final[tuple[Any, ...]] = (
    by_header("x-key"),
    by_ip,
    by_ip_network(48),
    by_user,
    fastapi.Depends(_user),
    lambda request: request.headers.get("x-key"),
)
PATHS: Final = (
    *["/"] * 4,
    "/items/1",
    "/items/2",
    "/items/a|b%",
    "/items/{number}",
    "/\n",
    "/shops/ada/items",
    "/stores/ada/items",
    "/shops/bob/items",
    "/mounted/ada/things/7",
    "/free",
    "/nowhere",
)
USERS: Final[tuple[Any, ...]] = (None, "ada", "ada", "", 7, UUID(int=7), "~nobody", {"sub": "eve"})
ANSWERS: Final = (
    *["text"] * 4,
    "fields",
    "no fields",
    "retry later",
    "stream",
    "half a stream",
    "refused",
    "fails",
    "a generator",
)


class _Bare(Response):
    """A response whose beginning is what the case says."""

    def __init__(self, headers: Any) -> None:
        super().__init__()
        self._begin = headers

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        begin = {} if self._begin is None else {"headers": self._begin}
        await send({"type": "http.response.start", "status": 203, **begin})
        await send({"type": "http.response.body", "body": b"bare"})


async def _parts(*, whole: bool) -> AsyncIterator[bytes]:
    yield b"one"
    if not whole:
        raise RuntimeError("half of it")
    yield b"two"


def answered(how: str) -> Any:
    if how in ("stream", "half a stream"):
        return StreamingResponse(_parts(whole=how == "stream"))
    if how == "refused":
        raise fastapi.HTTPException(429, headers={"Retry-After": "5"})
    if how == "fails":
        raise RuntimeError("as it happens")
    if how == "no fields":
        return _Bare(None)
    if how == "a generator":
        return _Bare((name, value) for name, value in [(b"x-own", b"1")])
    if how == "retry later":
        return _Bare([(b"Retry-After", b"9")])
    if how == "fields":
        return Response("own", headers={"RateLimit": '"other";r=1', "x-ratelimit-limit": "9"})
    return "text"


class OfFastApi(Stand):
    def __init__(self, draw: Draw) -> None:
        super().__init__(draw.settings())
        self.answer = "text"
        limits = Limits(guard=self.guard)
        self.app = fastapi.FastAPI()
        if draw.random() < 0.7:
            limits.install(self.app)
        rules = draw.rules(KEY_FUNCTIONS)
        self._declare([fastapi.Depends(limits(**rule)) for rule in rules])
        self.limiters = [self.agent.limiter(rule["name"]) for rule in rules]

    def _declare(self, limited: list[Any]) -> None:
        router, below = fastapi.APIRouter(), fastapi.FastAPI()

        @self.app.api_route("/", methods=["GET", "POST"], dependencies=limited)
        @self.app.get("/items/{number}", dependencies=limited)
        @self.app.get("/free")
        @router.get("/items", dependencies=limited)
        @below.get("/things/{number}", dependencies=limited)
        async def answer() -> Any:
            return answered(self.answer)

        @self.app.websocket("/", dependencies=limited)
        async def converse(socket: fastapi.WebSocket) -> None:
            await socket.accept()
            await socket.close()

        self.app.include_router(router, prefix="/shops/{name}")
        self.app.include_router(router, prefix="/stores/{name}")
        self.app.mount("/mounted/{name}", below)

    def said(self, draw: Draw) -> Any:
        """Serves a connection: returns the messages, or the error, and the decisions in the scope."""
        self.answer, kind, user = draw.one(ANSWERS), draw.one(("http",) * 8 + ("websocket",)), draw.one(USERS)
        scope: dict[str, Any] = http_scope("/", method=draw.one(("GET", "GET", "GET", "POST")))
        scope |= {"type": kind, "path": draw.one(PATHS), "root_path": draw.one(("", "", "", "/api"))}
        scope |= {"headers": headers_of(draw), "client": draw.one(CLIENTS[:21])}
        if user is not None:
            scope["user"] = user
        if kind == "websocket":
            scope["subprotocols"] = []
            del scope["method"]
        sent, asked = list[Any](), False

        async def receive() -> Any:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # for ever: the client is still there
            asked = True
            return {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request"}

        async def send(message: Any) -> None:
            headers = message.get("headers")
            sent.append({**message, "headers": None if headers is None else list(headers)})
            if isinstance(headers, list):
                headers.clear()  # as others may do that send it on

        try:
            asyncio.run(self.app(scope, receive, send))
        except Exception as error:  # noqa: BLE001  # of the application
            sent.append(repr(error))
        return sent, seen_in(scope.get(OUTCOME))
