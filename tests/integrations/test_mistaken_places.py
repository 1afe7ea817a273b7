"""Goal: a limit in a place where it would limit nothing is an error that shows the place, or a sentence in the log.

Method: each mistake in an application that runs; the message has the words that it must have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastapi
import flask
import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from reconverge import Agent
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.decorators import limited
from reconverge.integrations.grpc import AioRateLimitInterceptor
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.applications.asking import ask_wsgi, statuses

pytestmark = pytest.mark.usefixtures("bare_environment")

CALL_S_MAX = 30.0


def test_the_interceptor_for_asyncio_ends_each_call_of_a_server_on_threads(caplog: pytest.LogCaptureFixture) -> None:
    """Its clients do not wait for ever, and the server logs which interceptor to write."""
    served = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    wrong: Any = AioRateLimitInterceptor("2/minute", agent="memory://")
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[wrong])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop", {"Order": served}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, caplog.at_level(logging.ERROR, "grpc"):
            for _ in range(2):
                with pytest.raises(grpc.RpcError) as raised:
                    channel.unary_unary("/shop/Order")(b"", timeout=CALL_S_MAX)
                assert grpc.StatusCode.UNKNOWN == raised.value.code()
    finally:
        server.stop(None).wait()

    assert "write RateLimitInterceptor in grpc.server" in caplog.text


def of_fastapi() -> tuple[object, Callable[[Any], Any]]:
    app = fastapi.FastAPI()
    return app, app.get("/")


def of_router() -> tuple[object, Callable[[Any], Any]]:
    router = fastapi.APIRouter()
    return router, router.get("/")


def of_flask() -> tuple[object, Callable[[Any], Any]]:
    app = flask.Flask("shop")
    return app, app.get("/")


def of_blueprint() -> tuple[object, Callable[[Any], Any]]:
    blueprint = flask.Blueprint("shop", "shop")
    return blueprint, blueprint.get("/")


def of_aiohttp() -> tuple[object, Callable[[Any], Any]]:
    routes = web.RouteTableDef()
    return routes, routes.get("/")


@pytest.mark.parametrize("made", [of_fastapi, of_router, of_flask, of_blueprint, of_aiohttp])
def test_limited_above_the_decorator_of_a_route_is_logged(
    made: Callable[[], tuple[object, Callable[[Any], Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    """The framework calls the function below, without the limit. In the right order nothing is logged."""
    shop, route = made()
    agent = Agent("memory://")

    @route
    @limited("2/minute", agent=agent, name="right")
    async def right() -> None: ...

    assert "" == caplog.text

    @limited("2/minute", agent=agent, name="wrong")
    @route
    async def wrong() -> None: ...

    assert shop
    assert "limits nothing of what shop serves" in caplog.text
    assert "put @limited below it" in caplog.text


async def test_limits_of_aiohttp_without_their_middleware_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At the first request to a decorated handler, which is all that the limits see."""
    app, limits = web.Application(), AiohttpLimits("100/minute", agent="memory://")

    @limits.limit("2/minute")
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    app.router.add_get("/", answer)
    async with TestClient(TestServer(app)) as client:
        assert [200, 200, 429] == [(await client.get("/")).status for _ in range(3)]

    assert 1 == caplog.text.count("the limits requests limit nothing")
    assert "write limits.install(app)" in caplog.text


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """Answers nothing."""


@pytest.mark.parametrize(("middleware", "app"), [(AsgiMiddleware, nothing), (WsgiMiddleware, flask.Flask("shop"))])
def test_a_middleware_that_is_dropped_before_its_first_request_is_logged(
    middleware: Any, app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The server calls the application without it."""
    middleware(app, "2/minute", agent="memory://")

    assert "its limits limit nothing" in caplog.text
    assert "app = RateLimitMiddleware(app" in caplog.text


def test_a_middleware_that_has_served_is_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """It was in its place."""
    app = WsgiMiddleware(flask.Flask("shop"), "1/minute", agent="memory://")
    assert [404, 429] == statuses(ask_wsgi(app, times=2))
    del app

    assert "" == caplog.text
