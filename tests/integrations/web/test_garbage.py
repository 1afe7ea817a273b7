"""Goal: a limited request leaves nothing behind that only the garbage collector can free.

Method: requests through each integration, as its server makes them: with an object that knows the scope, and whose
method is `send`. Then the collector says how many objects it has found, beside the same application without limits.
Not of what Flask refuses: it keeps each exception of HTTP in a circle of its own, also that of a plain `abort(429)`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import fastapi
import flask
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from starlette.responses import StreamingResponse

from reconverge import Agent
from reconverge.integrations import SPENT, Rule, aiohttp, asgi, by_ip, wsgi
from reconverge.integrations import fastapi as for_fastapi
from reconverge.integrations import flask as for_flask
from reconverge.integrations.shedding import LoadSheddingMiddleware, WsgiLoadSheddingMiddleware
from reconverge.shedding import (
    AdaptiveConcurrency,
    Fixed,
    FleetShedder,
    Occupancy,
    RequestRate,
    Stack,
    WorkerShedder,
)
from tests.support.applications.asking import environment_of, http_scope, wsgi_answer

REQUESTS: Final = 40
WARM: Final = 5
"""Requests before: routers and templates are made with the first ones."""
ROOMY: Final = "1000/minute"
NONE_LEFT: Final = "1/hour"
CLIENTS: Final = list[Any]()
"""Of aiohttp: to be closed in the loop that they were made in."""
Loop: TypeAlias = asyncio.AbstractEventLoop
SETTLED: Final = Rule(limits=ROOMY, cost=5, settle=SPENT)


class Cycle:
    """A request as a server keeps it: it knows the scope, and is known by what the scope is served with."""

    def __init__(self) -> None:
        self.scope = http_scope("/")
        self.messages = list[Any]()
        self.asked = False

    async def receive(self) -> dict[str, Any]:
        """An empty body; then the client stays, for as long as it is waited for."""
        if self.asked:
            await asyncio.Event().wait()
        self.asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.messages.append(message)


def left_behind(serve: Callable[[], Any]) -> int:
    """How many objects of so many requests are left for the collector."""
    for _ in range(WARM):
        serve()
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            serve()
        return gc.collect()
    finally:
        gc.enable()


def of_asgi(app: Any, loop: Loop) -> Callable[[], None]:
    def serve() -> None:
        cycle = Cycle()
        loop.run_until_complete(app(cycle.scope, cycle.receive, cycle.send))

    return serve


def of_wsgi(app: Any) -> Callable[[], None]:
    return lambda: (wsgi_answer(app, environment_of("/")), None)[1]


# -------------------------------------------------------------------- the applications


async def plain_asgi(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def plain_wsgi(_environment: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"ok"]


def limited_asgi(limits: Any, loop: Loop) -> Callable[[], None]:
    rule = limits if isinstance(limits, Rule) else Rule(limits=limits)
    return of_asgi(asgi.RateLimitMiddleware(plain_asgi, rules=[rule], agent=Agent("memory://")), loop)


def limited_wsgi(limits: Any) -> Callable[[], None]:
    rule = limits if isinstance(limits, Rule) else Rule(limits=limits)
    return of_wsgi(wsgi.RateLimitMiddleware(plain_wsgi, rules=[rule], agent=Agent("memory://")))


def stack_of(*, roomy: bool) -> Stack:
    """The four layers, which go the fast path; or one that refuses whatever comes, as the only slot is in use."""
    if not roomy:
        full = Stack(AdaptiveConcurrency(Fixed(1)))
        full.enter()
        return full
    agent = Agent("memory://")
    rate, fleet = RequestRate(agent.limit("api", ROOMY)), FleetShedder(agent, ROOMY)
    return Stack(rate, AdaptiveConcurrency(), fleet, WorkerShedder(Occupancy(1000)))


def shed_asgi(loop: Loop, *, roomy: bool = True, shadow: bool = False) -> Callable[[], None]:
    """A stack in front of an application; with a layer in shadow it goes the general way."""
    stack = stack_of(roomy=roomy)
    if shadow:
        stack.switch("concurrency", "shadow")
    return of_asgi(LoadSheddingMiddleware(plain_asgi, stack, key_func=by_path if roomy else None), loop)


def shed_wsgi(*, roomy: bool) -> Callable[[], None]:
    key_func = (lambda _: "ada") if roomy else None
    return of_wsgi(WsgiLoadSheddingMiddleware(plain_wsgi, stack_of(roomy=roomy), key_func=key_func))


def by_path(scope: Any) -> str:
    return str(scope["path"])


def fastapi_app(
    loop: Loop, limits: Any = None, *, install: bool = True, streams: bool = False, **settings: Any
) -> Callable[[], None]:
    app = fastapi.FastAPI()
    dependencies = list[Any]()
    if limits is not None:
        made = for_fastapi.Limits(Agent("memory://"), key_func=by_ip)
        if install:
            made.install(app)
        dependencies = [fastapi.Depends(made(limits, **settings))]

    async def parts() -> AsyncIterator[bytes]:
        yield b"ok"

    @app.get("/", dependencies=dependencies)
    async def route() -> Any:
        return StreamingResponse(parts()) if streams else "ok"

    return of_asgi(app, loop)


def flask_app(limits: Any = None) -> Callable[[], None]:
    app = flask.Flask(__name__)

    def view() -> str:
        return "ok"

    if limits is not None:
        made = for_flask.Limits(by_ip, app=app, agent=Agent("memory://"))
        view = made.limit(limits)(view)
    app.get("/")(view)
    return of_wsgi(app.wsgi_app)


def aiohttp_app(loop: Loop, limits: Any = None) -> Callable[[], None]:
    """A server of aiohttp, asked by its own client, whose garbage is the same without limits."""

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    if limits is not None:
        made = aiohttp.Limits(agent=Agent("memory://"))
        made.install(app)
        handler = made.limit(limits)(handler)
    app.add_routes([web.get("/", handler)])
    client = TestClient(TestServer(app, loop=loop), loop=loop)
    loop.run_until_complete(client.start_server())
    CLIENTS.append(client)

    async def ask() -> None:
        async with client.get("/") as response:
            await response.read()

    return lambda: loop.run_until_complete(ask())


Make: TypeAlias = Callable[[Loop], Callable[[], None]]
CASES: Final[dict[str, tuple[Make, Make]]] = {
    "ASGI": (partial(of_asgi, plain_asgi), partial(limited_asgi, ROOMY)),
    "ASGI, refused": (partial(of_asgi, plain_asgi), partial(limited_asgi, NONE_LEFT)),
    "ASGI, two quotas": (partial(of_asgi, plain_asgi), partial(limited_asgi, "1000/minute; 5000/hour")),
    "ASGI, settled": (partial(of_asgi, plain_asgi), partial(limited_asgi, SETTLED)),
    "ASGI, a stack": (partial(of_asgi, plain_asgi), shed_asgi),
    "ASGI, a stack in shadow": (partial(of_asgi, plain_asgi), partial(shed_asgi, shadow=True)),
    "ASGI, refused by a stack": (partial(of_asgi, plain_asgi), partial(shed_asgi, roomy=False)),
    "WSGI, a stack": (lambda _: of_wsgi(plain_wsgi), lambda _: shed_wsgi(roomy=True)),
    "WSGI, refused by a stack": (lambda _: of_wsgi(plain_wsgi), lambda _: shed_wsgi(roomy=False)),
    "FastAPI": (fastapi_app, partial(fastapi_app, limits=ROOMY)),
    "FastAPI, not installed": (fastapi_app, partial(fastapi_app, limits=ROOMY, install=False)),
    "FastAPI, settled": (fastapi_app, partial(fastapi_app, limits=ROOMY, cost=5, settle=SPENT)),
    "FastAPI, streaming": (partial(fastapi_app, streams=True), partial(fastapi_app, limits=ROOMY, streams=True)),
    "WSGI": (lambda _: of_wsgi(plain_wsgi), lambda _: limited_wsgi(ROOMY)),
    "WSGI, refused": (lambda _: of_wsgi(plain_wsgi), lambda _: limited_wsgi(NONE_LEFT)),
    "WSGI, settled": (lambda _: of_wsgi(plain_wsgi), lambda _: limited_wsgi(SETTLED)),
    "Flask": (lambda _: flask_app(), lambda _: flask_app(ROOMY)),
    "aiohttp": (aiohttp_app, partial(aiohttp_app, limits=ROOMY)),
}


@pytest.fixture
def loop() -> Iterator[Loop]:
    """In which all is served; what still waits in it is cancelled at the end."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()
        while CLIENTS:
            runner.run(CLIENTS.pop().close())


@pytest.mark.parametrize("case", CASES)
def test_a_limited_request_leaves_no_garbage_in_circles(case: str, loop: Loop) -> None:
    """No more than the same request without limits does, of so many requests."""
    bare, limited = CASES[case]
    without = left_behind(bare(loop))

    assert max(0, left_behind(limited(loop)) - without) < REQUESTS


def test_such_garbage_would_be_found(loop: Loop) -> None:
    """A scope that knows what it is sent with is a circle with the server's own object, once for each request."""

    async def ties(scope: Any, receive: Any, send: Any) -> None:
        scope["send"] = send
        await plain_asgi(scope, receive, send)

    assert left_behind(of_asgi(ties, loop)) >= REQUESTS
