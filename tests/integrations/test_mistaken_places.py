"""Goal: a limit in a place where it would limit nothing is an error that shows the place, or a sentence in the log.

Method: each mistake in an application that runs; the message has the words that it must have.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import fastapi
import flask
import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from prometheus_client import CollectorRegistry

from reconverge import Agent, InvalidSetting
from reconverge.integrations import SPENT, Outcome, by_ip, by_path_parameter, together
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.decorators import limited
from reconverge.integrations.fastapi import Limits as FastapiLimits
from reconverge.integrations.fastapi.messages import BESIDE_MAX
from reconverge.integrations.fastapi.misuse import SOCKETS_MAX
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge.integrations.grpc import AioRateLimitInterceptor, RateLimitInterceptor
from reconverge.integrations.misplaced import log_bypassed, log_without_effect
from reconverge.integrations.prometheus import AgentCollector
from reconverge.integrations.shedding import LoadSheddingMiddleware, WsgiLoadSheddingMiddleware
from reconverge.integrations.web.bound_rule import MISSED_MAX
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.applications.asking import (
    ask_asgi,
    ask_wsgi,
    converse,
    hello,
    hello_wsgi,
    statuses,
    websocket_scope,
)

pytestmark = pytest.mark.usefixtures("bare_environment")

CALL_S_MAX = 30.0


@pytest.fixture(autouse=True)
def _leave_no_garbage_of_others() -> None:
    """Limits that another test has dropped log when they are collected, which must not happen during a test here."""
    gc.collect()


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what the library has logged; threads of servers may still log for themselves."""
    return [record.getMessage() for record in caplog.records if record.name == "reconverge"]


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


async def test_the_interceptor_for_threads_is_an_error_in_a_server_on_asyncio() -> None:
    """When the server is made; gRPC's own error does not name what to write. Others are looked at as ever."""
    wrong: Any = RateLimitInterceptor("2/minute", agent="memory://")
    none: Any = object()
    right = AioRateLimitInterceptor("2/minute", agent="memory://")
    with pytest.raises(
        InvalidSetting, match=r"is for grpc\.server; write AioRateLimitInterceptor in grpc\.aio\.server"
    ):
        grpc.aio.server(interceptors=[right, wrong])
    with pytest.raises(ValueError, match="Interceptor must be"):
        grpc.aio.server(interceptors=[none])

    assert grpc.aio.server(interceptors=[right])


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

    assert [] == _logged(caplog)

    @limited("2/minute", agent=agent, name="wrong")
    @route
    async def wrong() -> None: ...

    assert shop
    assert "limits nothing of what shop serves" in caplog.text
    assert "put @limited below it" in caplog.text


@pytest.mark.parametrize(
    "declare",
    [
        lambda: limited("5/minute", agent=Agent("memory://"), name="free", cost=0)(answer_one),
        lambda: FastapiLimits("memory://")("5/minute", name="free", cost=0),
    ],
    ids=["call", "dependency"],
)
def test_a_cost_of_nothing_is_logged(declare: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    """Where it is declared. It is no error, as something else may charge the limit."""
    declare()

    assert "the limit 'free' has cost=0, which charges nothing" in caplog.text
    assert "leave cost out, or write a number of at least 1" in caplog.text


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


async def test_limits_of_aiohttp_that_were_never_installed_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When they are dropped; at the end of the process only if an application has served by then."""
    log_without_effect()  # of what other tests have made and still hold
    caplog.clear()
    app, limits = web.Application(), AiohttpLimits("100/minute", agent="memory://")
    # Applications of other tests, which have served, may live as long as this process.
    monkeypatch.setattr("reconverge.integrations.aiohttp.routes.gc", SimpleNamespace(get_objects=lambda: [app]))
    log_without_effect()
    before = _logged(caplog)
    async with TestClient(TestServer(app)) as client:
        assert 404 == (await client.get("/")).status
    log_without_effect()
    log_without_effect()

    assert [] == before
    assert "the limits requests were never installed in an application, so they limited nothing" in caplog.text
    assert [1, True] == [caplog.text.count("were never installed"), limits.enabled]


def test_limits_of_aiohttp_that_are_dropped_are_logged_unless_they_are_installed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Or their middleware is added by hand."""
    uses: list[Callable[[AiohttpLimits], object]] = [
        lambda limits: limits.install(web.Application()),
        lambda limits: limits.middleware,
    ]
    for use in uses:
        use(AiohttpLimits("100/minute", agent="memory://"))
        gc.collect()
    before = caplog.text
    AiohttpLimits("100/minute", agent="memory://")
    gc.collect()

    assert "" == before
    assert 1 == caplog.text.count("were never installed in an application")


def test_a_limit_for_aiohttp_above_the_decorator_of_a_route_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Where it is written: without the middleware no request leads to it."""
    routes, limits = web.RouteTableDef(), AiohttpLimits(agent="memory://")

    @limits.limit("2/minute")
    @routes.get("/")
    async def wrong(_request: web.Request) -> web.Response:
        return web.Response()

    assert "@limits.limit limits nothing of what routes serves" in caplog.text
    assert "put @limits.limit below it" in caplog.text


def fastapi_with(limits: FastapiLimits, *depends: Any) -> fastapi.FastAPI:
    """An application with one route, which depends on some limits."""
    app = fastapi.FastAPI()
    limits.install(app)
    app.get("/", dependencies=[fastapi.Depends(each) for each in depends])(answer_one)
    return app


def answer_one() -> int:
    return 1


def test_a_limit_for_fastapi_on_which_no_route_depends_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the first request, when all routes exist. A limit that stands in a route is not."""
    limits = FastapiLimits("memory://")
    limits("2/minute", name="nowhere")
    app = fastapi_with(limits, limits("9/minute"))
    assert [200, 200] == statuses(ask_asgi(app, times=2))

    assert 1 == len(caplog.records)
    assert "no route depends on the limit 'nowhere', so it limits nothing unless a function awaits" in caplog.text


def test_a_cost_that_no_request_spends_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each request is charged its estimate for ever. One that has failed before it could spend is no sign of that."""
    limits = FastapiLimits("memory://")
    spent = fastapi.Depends(limits("9000/minute", name="spent", cost=5, settle=SPENT))
    app = fastapi_with(limits, limits("9000/minute", name="kept", cost=5, settle=SPENT))

    @app.get("/spent/{fails}")
    async def spending(fails: bool, outcome: Outcome = spent) -> None:
        if fails:
            raise fastapi.HTTPException(404)
        outcome.spend(2)

    ask_asgi(app, "/spent/true", times=MISSED_MAX)
    ask_asgi(app, "/spent/false", times=2 * MISSED_MAX)
    ask_asgi(app, times=MISSED_MAX - 1)
    assert "" == caplog.text
    ask_asgi(app, times=2 * MISSED_MAX)

    assert 1 == caplog.text.count("settle='spent', and none of its first 10 requests has called spend()")
    assert "rule 'kept'" in caplog.text
    assert "cost=5; take the request's Outcome, and call outcome.spend(cost)" in caplog.text


def test_a_limit_that_fastapi_makes_several_times_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It evaluates an annotation that is text more than once, and reads the parameters of only one of the limits."""
    limits = FastapiLimits("memory://")
    limits("9/minute")
    app = fastapi_with(limits, limits("9/minute"))
    limits("9/minute")
    assert [200, 200] == statuses(ask_asgi(app, times=2))

    assert [] == _logged(caplog)


def test_a_route_that_depends_on_one_limit_twice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Of `4/minute` two requests are admitted. One object in both places is one limit."""
    limits = FastapiLimits("memory://")
    once = limits("9/minute")
    ask_asgi(fastapi_with(limits, once, once))
    assert [] == _logged(caplog)
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits, limits("4/minute"), limits("4/minute"))
    assert [200, 200, 429] == statuses(ask_asgi(app, times=3))

    assert "the route / depends on the limit '4/minute' twice, so each request is charged twice" in caplog.text
    assert "write Depends(that_limit) in both places" in caplog.text


def test_limits_for_fastapi_as_a_middleware_are_an_error() -> None:
    """Their own middleware is added by `install`."""
    app, limits = fastapi.FastAPI(), FastapiLimits("memory://")
    app.add_middleware(limits)  # type: ignore[arg-type]

    with pytest.raises(InvalidSetting, match=r"is an application, and limits are no middleware; write limits\.install"):
        ask_asgi(app)


@pytest.mark.parametrize("kind", [AsgiMiddleware, LoadSheddingMiddleware])
def test_an_object_in_place_of_the_class_of_a_middleware_is_an_error(kind: Any) -> None:
    """When the application starts. Starlette calls it as it would call the class."""
    app = fastapi.FastAPI()
    made: Any = kind(app, "2/minute", agent="memory://") if kind is AsgiMiddleware else kind(app)
    app.add_middleware(made)

    with pytest.raises(
        TypeError, match=rf"pass the class, as in app\.add_middleware\({kind.__name__}, \.\.\.\), not an"
    ):
        ask_asgi(app)


def test_limits_cannot_be_installed_in_an_application_that_has_begun_to_serve() -> None:
    """The framework's own error does not name what to write."""
    app, limits = fastapi.FastAPI(), FastapiLimits("memory://")
    ask_asgi(app)
    with pytest.raises(InvalidSetting, match=r"has begun to serve, .*; call limits\.install\(app\) where it is made"):
        limits.install(app)
    frozen = web.Application()
    frozen.freeze()

    with pytest.raises(InvalidSetting, match="has begun to serve"):
        AiohttpLimits("2/minute", agent="memory://").install(frozen)


def test_a_decorator_for_flask_that_decorates_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the first request."""
    app = flask.Flask("shop")
    limits = FlaskLimits(lambda: "ada", app=app, agent="memory://")
    limits.limit("2/minute")
    app.get("/")(limits.limit("9/minute")(lambda: "x"))
    client = app.test_client()
    assert [200, 200] == [client.get("/").status_code for _ in range(2)]

    assert 1 == len(caplog.records)
    assert "limit('2/minute') decorates nothing, so it limits nothing; write @limits.limit" in caplog.text


async def test_a_decorator_for_aiohttp_that_decorates_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """When the application starts."""
    app, limits = web.Application(), AiohttpLimits("9/minute", agent="memory://")
    limits.install(app)
    limits.limit("2/minute")
    async with TestClient(TestServer(app)):
        pass

    assert "limit('2/minute') decorates nothing" in caplog.text
    assert "below @routes.get(path)" in caplog.text


def test_two_functions_of_one_name_that_share_a_limit_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Functions with a `name=` are meant to; one function may be decorated again, as when its module is read again."""
    agent = Agent("memory://")

    def made(**named: Any) -> Callable[[], int]:
        def task() -> int:
            return 1

        before = limited("2/minute", agent=agent, **named)(task)
        again = limited("2/minute", agent=agent, **named)(task)
        del before
        return again

    kept = [made(name="tasks"), made(name="tasks"), made()]
    assert [] == _logged(caplog)

    kept.append(made())

    assert 4 == len(kept)
    assert 1 == caplog.text.count("two functions are called")
    assert "give each a limit of its own by name=" in caplog.text


def test_a_limited_function_that_is_dropped_before_its_first_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The caller goes on with the function that has no limit. One that was called may end, as may one of several."""
    agent = Agent("memory://")

    async def waiting() -> int:
        return 1

    once = limited("2/minute", agent=agent, name="once")(answer_one)
    once()
    del once
    kept = limited("2/minute", agent=agent, name="twice")(answer_one)
    limited("2/minute", agent=agent, name="twice")(answer_one)
    assert "" == caplog.text
    for _ in range(2):
        limited("2/minute", agent=agent, name="plain")(answer_one)
        limited("2/minute", agent=agent, name="waiting")(waiting)

    assert callable(kept)
    assert 1 == caplog.text.count("has returned for the limit 'plain' was dropped before any call, so the limit limits")
    assert 1 == caplog.text.count("has returned for the limit 'waiting' was dropped before any call")


def test_a_decorator_of_functions_that_decorates_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """When it is dropped."""
    limited("2/minute", agent=Agent("memory://"))
    limited("9/minute", agent=Agent("memory://"))(answer_one)()

    assert [
        "limited('2/minute', ...) decorates nothing, so it limits nothing; write @limited(...) above a function"
    ] == [text.removeprefix("reconverge: ") for text in _logged(caplog)]


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


@pytest.mark.parametrize("of_wsgi", [False, True])
def test_load_shedding_that_is_dropped_before_its_first_request_is_logged(
    of_wsgi: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """So the server calls the application without it. Not one that has served."""

    def make() -> Any:
        return WsgiLoadSheddingMiddleware(hello_wsgi, workers=8) if of_wsgi else LoadSheddingMiddleware(hello)

    served = make()
    (ask_wsgi if of_wsgi else ask_asgi)(served, times=2)
    del served
    assert "" == caplog.text
    make()

    name = "WsgiLoadSheddingMiddleware" if of_wsgi else "LoadSheddingMiddleware"
    assert f"a {name} was made, and dropped before it served a request, so it sheds nothing" in caplog.text
    assert f"as in app = {name}(app)" in caplog.text


def test_a_middleware_that_has_served_is_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """It was in its place."""
    app = WsgiMiddleware(flask.Flask("shop"), "1/minute", agent="memory://")
    assert [404, 429] == statuses(ask_wsgi(app, times=2))
    del app

    assert [] == _logged(caplog)


def test_a_middleware_around_an_application_that_is_served_without_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the end of the process. One that serves, or whose application serves nothing, is not logged."""
    kept: list[Any] = []
    starlette, of_wsgi, served, unserved = (
        fastapi.FastAPI(),
        flask.Flask("bypassed"),
        flask.Flask("x"),
        flask.Flask("y"),
    )
    kept += [AsgiMiddleware(starlette, "2/minute", agent="memory://")]
    kept += [WsgiMiddleware(of_wsgi.wsgi_app, "2/minute", agent="memory://")]
    kept += [WsgiMiddleware(each, "1/minute", agent="memory://") for each in (served, unserved)]
    ask_asgi(starlette)
    of_wsgi.test_client().get("/")
    assert [404, 429] == statuses(ask_wsgi(kept[2], times=2))

    log_bypassed()
    log_bypassed()
    ask_wsgi(kept[3])  # otherwise it would be logged as one that was dropped

    assert 2 == len(caplog.records)
    assert "RateLimitMiddleware was made around <Flask 'bypassed'>, which has served requests without" in caplog.text
    assert "have the server run the middleware, as in app = RateLimitMiddleware(app" in caplog.text


def test_a_dependency_that_returns_a_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """FastAPI does not call what a dependency returns. The limit is made with each request, and not kept."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits, lambda: limits("2/minute"))
    assert [200] * 4 == statuses(ask_asgi(app, times=4))

    assert 1 == len(caplog.records)
    assert "'2/minute' was made while the application serves, and decided about no request" in caplog.text
    assert "dependencies=[Depends(limits('5/minute'))]" in caplog.text


def test_a_limit_of_fastapi_that_a_route_calls_itself_decides_only_if_it_is_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without `await` it would be true. With it, a limit that is made by the route is not logged."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits)

    @app.get("/awaited")
    async def awaited(request: fastapi.Request) -> bool:
        return bool(await limits("2/minute", name="by-hand")(request))

    @app.get("/forgotten")
    async def forgotten(request: fastapi.Request) -> bool:
        return bool(limits("2/minute", name="by-hand")(request))

    assert [200, 200, 429] == statuses(ask_asgi(app, path="/awaited", times=3))
    assert [] == _logged(caplog)
    with pytest.raises(TypeError, match="write await"):
        ask_asgi(app, path="/forgotten")


@pytest.mark.parametrize("made", [FastapiLimits, AiohttpLimits])
@pytest.mark.filterwarnings("error")
def test_a_check_of_a_message_that_was_not_awaited_has_no_truth(made: Any) -> None:
    """A handler that reads its websocket itself would go on."""
    messages = made(agent="memory://").messages("2/minute")

    with pytest.raises(TypeError, match=r"check\(\) has decided nothing before it is awaited; write await"):
        bool(messages.check(None))


def test_a_limit_on_messages_that_no_websocket_asks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once, after some websockets. One that has decided about a message is not."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits)
    asked, unasked = limits.messages("9/minute"), limits.messages("5/minute", name="unasked")

    @app.websocket("/")
    async def echo(socket: fastapi.WebSocket) -> None:
        await socket.accept()
        await asked.check(socket)
        await socket.send_text(await socket.receive_text())

    for _ in range(2 * SOCKETS_MAX):
        asyncio.run(converse(app, websocket_scope("/"), "x"))

    assert not unasked.asked
    assert 1 == len(caplog.records)
    assert "none has asked the limit 'unasked' about one" in caplog.text
    assert "write async for text in messages(socket)" in caplog.text


@pytest.mark.parametrize("reads", ["itself", "itself and asks", "by the loop"])
def test_messages_that_pass_by_a_limit_on_messages_are_logged(reads: str, caplog: pytest.LogCaptureFixture) -> None:
    """An endpoint may receive them itself in the body of the loop; once it is logged, though many websockets do so."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits)
    messages = limits.messages("999/minute")

    @app.websocket("/")
    async def read(socket: fastapi.WebSocket) -> None:
        await socket.accept()
        async for _ in messages(socket):
            for _ in range(0 if reads == "by the loop" else BESIDE_MAX):
                await socket.receive_text()
                if reads == "itself and asks":
                    await messages.check(socket)

    for _ in range(2):
        asyncio.run(converse(app, websocket_scope("/"), *(["x"] * (BESIDE_MAX + 1))))

    assert (1 if reads == "itself" else 0) == len(_logged(caplog))
    if reads == "itself":
        assert f"received {BESIDE_MAX} messages itself" in caplog.text
        assert "the limit 'messages' does not count them; let the loop receive them" in caplog.text


def test_a_few_messages_that_belong_to_one_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nor are those that come after the loop has ended."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits)
    messages = limits.messages("999/minute")

    @app.websocket("/")
    async def read(socket: fastapi.WebSocket) -> None:
        await socket.accept()
        for _ in range(2):
            async for _ in messages(socket):
                for _ in range(BESIDE_MAX - 1):
                    await socket.receive_text()
                break
        for _ in range(BESIDE_MAX):
            await socket.receive_text()

    asyncio.run(converse(app, websocket_scope("/"), *(["x"] * (3 * BESIDE_MAX))))

    assert [] == _logged(caplog)


def asgi_twice(inner: Agent, outer: Agent) -> Any:
    app = fastapi.FastAPI()
    app.get("/")(answer_one)
    app.add_middleware(AsgiMiddleware, limits="4/minute", agent=inner)
    return AsgiMiddleware(app, "4/minute", agent=outer)


def wsgi_twice(inner: Agent, outer: Agent) -> Any:
    return WsgiMiddleware(WsgiMiddleware(hello_wsgi, "4/minute", agent=inner), "4/minute", agent=outer)


@pytest.mark.parametrize(("made", "ask"), [(asgi_twice, ask_asgi), (wsgi_twice, ask_wsgi)], ids=["ASGI", "WSGI"])
def test_a_middleware_inside_of_another_one_with_its_limit_is_logged(
    made: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: each request is charged twice. One that has another agent, and so other counts, is not logged."""
    apart = made(Agent("memory://"), Agent("memory://"))
    assert [200, 200, 200, 200, 429] == statuses(ask(apart, times=5))
    assert [] == _logged(caplog)
    agent = Agent("memory://")
    assert [200, 200, 429, 429] == statuses(ask(made(agent, agent), times=4))

    (said,) = _logged(caplog)
    assert "the middleware with the limit 'requests' is inside of another one with the same limit" in said
    assert "each request is charged twice; leave one of the two out" in said


def test_a_middleware_twice_is_logged_by_the_first_request_after_the_startup(caplog: pytest.LogCaptureFixture) -> None:
    """The messages of the startup have no outcome of a limit."""
    agent = Agent("memory://")
    app = AsgiMiddleware(AsgiMiddleware(hello, "4/minute", agent=agent), "4/minute", agent=agent)
    with pytest.raises(TypeError):  # of `hello`, which is called with a `send` that is none
        asyncio.run(app({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert [200, 200, 429] == statuses(ask_asgi(app, times=3))

    assert 1 == caplog.text.count("is inside of another one with the same limit")


@pytest.mark.parametrize("texts", [[], ["x"]], ids=["idle", "busy with the first message"])
def test_websockets_that_have_asked_about_no_message_yet_are_no_mistake(
    texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Many may be open at once in which nothing was said, or whose first message waits for something else."""
    limits = FastapiLimits("memory://")
    app = fastapi_with(limits)
    messages = limits.messages("5/minute")
    loaded = asyncio.Event()

    @app.websocket("/")
    async def echo(socket: fastapi.WebSocket) -> None:
        await socket.accept()
        async for _ in socket.iter_text():
            await loaded.wait()
            await messages.check(socket)

    async def all_at_once() -> None:
        open_ones = [asyncio.create_task(converse(app, websocket_scope("/"), *texts)) for _ in range(3 * SOCKETS_MAX)]
        for _ in range(20):
            await asyncio.sleep(0)
        loaded.set()
        await asyncio.gather(*open_ones)

    asyncio.run(all_at_once())

    assert bool(texts) == messages.asked
    assert [] == _logged(caplog)


def test_a_limited_blueprint_that_no_application_has_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It may be another one that has the views."""
    app = flask.Flask("shop")
    limits = FlaskLimits(lambda: "ada", app=app, agent="memory://")
    right, wrong = flask.Blueprint("right", "right"), flask.Blueprint("wrong", "wrong")
    right.get("/")(lambda: "x")
    app.register_blueprint(right)
    limits.limit("2/minute")(right)
    limits.limit("2/minute")(wrong)

    assert [200, 200, 429] == [app.test_client().get("/").status_code for _ in range(3)]
    assert 1 == len(caplog.records)
    assert "the limits of the blueprint 'wrong' limit nothing" in caplog.text
    assert "write app.register_blueprint(blueprint)" in caplog.text


@pytest.mark.parametrize("returned", [None, "100/minute"])
def test_a_function_of_limits_that_returns_none_is_logged(
    returned: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A `return` that is missing there makes all requests unlimited. A function that has returned a limit is not."""
    app = WsgiMiddleware(flask.Flask("shop"), lambda _: returned, agent="memory://")
    ask_wsgi(app, times=2 * MISSED_MAX)

    assert (1 if returned is None else 0) == caplog.text.count("has returned None for each of the first")
    assert ("if a return is missing there, add it" in caplog.text) == (returned is None)


@pytest.mark.parametrize("key", [by_path_parameter("tenant"), together(by_ip, by_path_parameter("tenant"))])
@pytest.mark.parametrize(
    "made",
    [
        lambda key: WsgiMiddleware(flask.Flask("shop"), "5/minute", key_func=key, agent="memory://"),
        lambda key: RateLimitInterceptor("5/minute", key_func=key, agent="memory://"),
    ],
    ids=["WSGI", "gRPC"],
)
def test_a_path_parameter_where_there_is_none_is_an_error(made: Callable[[Any], object], key: Any) -> None:
    """A middleware of WSGI and an interceptor of gRPC never know one."""
    with pytest.raises(InvalidSetting, match=r"by_path_parameter.tenant.*finds no key, as .* path parameters; use"):
        made(key)


def test_a_path_parameter_in_a_middleware_before_the_router_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At the first request, once. In a middleware that the router calls it is found."""

    def answer(tenant: str) -> str:
        return tenant

    app = fastapi.FastAPI()
    app.get("/{tenant}")(answer)
    inside = AsgiMiddleware(app, "1/minute", key_func=by_path_parameter("tenant"), agent="memory://")
    outside = fastapi.FastAPI()
    outside.mount("/{tenant}/shop", inside)
    assert [200, 200, 429] == [ask_asgi(outside, path=f"/{each}/shop/x")[0].status for each in ("ada", "bob", "ada")]
    assert [] == _logged(caplog)

    before = AsgiMiddleware(app, "1/minute", key_func=by_path_parameter("tenant"), agent="memory://")
    assert [200, 429] == [ask_asgi(before, path=f"/{each}")[0].status for each in ("ada", "bob")]
    (said,) = caplog.messages
    assert "is by the path parameter 'tenant', and finds no key: a middleware runs before the router" in said


def test_a_path_parameter_that_a_route_of_fastapi_lacks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At the first request, with the one that is meant."""

    def answer(tenant: str) -> str:
        return tenant

    limits = FastapiLimits("memory://")
    app = fastapi.FastAPI()
    limits.install(app)
    for path, name in (("/right/{tenant}", "tenant"), ("/wrong/{tenant}", "tenant_id")):
        limit = limits("9/minute", name=name, key_func=by_path_parameter(name))
        app.get(path, dependencies=[fastapi.Depends(limit)])(answer)
    for path in ("/right/ada", "/wrong/ada", "/wrong/bob"):
        ask_asgi(app, path=path)

    (said,) = caplog.messages
    assert (
        "rule 'tenant_id' is by the path parameter 'tenant_id', and finds no key: its route /wrong/{tenant} has no such"
        " parameter; did you mean 'tenant'?"
    ) in said


def test_a_limit_of_fastapi_that_needs_the_middleware_names_itself() -> None:
    """And why: no setting of that error was written."""
    limits = FastapiLimits("memory://")
    app = fastapi.FastAPI()
    app.get("/", dependencies=[fastapi.Depends(limits("2 in flight"))])(answer_one)

    with pytest.raises(InvalidSetting, match=r"limits='2 in flight': holds a slot until .* needs limits.install"):
        ask_asgi(app)


class User:
    """An object whose class has no `__str__`, as one of a database may be."""


def test_a_key_that_is_the_text_of_an_object_is_logged_once_for_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Each object has another text. A text that only looks alike is none."""
    app = WsgiMiddleware(flask.Flask("shop"), "1/minute", agent="memory://", key_func=lambda _request: str(User()))
    sent = limited("1/minute", agent=Agent("memory://"), key=str, name="sent-to-objects")(lambda _user: None)
    assert [404, 404] == statuses(ask_wsgi(app, times=2))
    users = [User(), User()]
    for user in users:
        sent(user)
    told = _logged(caplog)
    limited("1/minute", agent=Agent("memory://"), key=str, name="sent-to-names")(lambda _user: None)("an object")

    assert 2 == len(told)
    assert "'sent-to-objects' is '<tests.integrations.test_mistaken_places.User object at 0x" in told[1]
    assert all("return what identifies it, as str(user.id)" in each for each in told)
    assert told == _logged(caplog)


def test_a_collector_that_no_registry_has_is_logged_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Or at the end of a process that has decided. One that a registry has had, or that was read itself, is not."""
    agent, idle = Agent("memory://"), Agent("memory://")
    agent.limit("login", "2/minute").allow("ada")
    registry = CollectorRegistry()
    registry.register(had := AgentCollector(agent))
    registry.unregister(had)
    list((read := AgentCollector(agent)).collect())
    waits = AgentCollector(idle)
    del had, read
    log_without_effect()
    assert [] == _logged(caplog)
    del waits
    told = _logged(caplog)

    assert 1 == len(told)
    assert "a collector, AgentCollector, ends, and no registry has got it" in told[0]
    assert "write registry.register(AgentCollector(agent))" in told[0]


def test_messages_of_a_websocket_that_is_not_accepted_are_an_error_that_says_so() -> None:
    """The first thing that a websocket receives is no message, but the wish to connect."""
    limits = FastapiLimits("memory://")
    messages = limits.messages("2/minute")
    app = fastapi.FastAPI()
    limits.install(app)

    @app.websocket("/")
    async def chat(socket: fastapi.WebSocket) -> None:
        async for _ in messages(socket):
            pass

    with pytest.raises(RuntimeError, match=r"write await socket\.accept\(\) before async for"):
        asyncio.run(converse(app, websocket_scope("/"), "hi"))


def test_an_aiohttp_application_that_starts_already_takes_no_limits() -> None:
    """Its startup handlers are called when its lists cannot be changed any more."""
    app = web.Application()

    async def install(app: web.Application) -> None:
        AiohttpLimits("2/minute", agent="memory://").install(app)

    app.on_startup.append(install)

    async def start() -> None:
        async with TestServer(app):
            pass

    with pytest.raises(InvalidSetting, match=r"has begun to serve.*call limits\.install"):
        asyncio.run(start())


def test_a_request_in_the_place_of_an_aiohttp_socket_is_an_error() -> None:
    """Both stand in one call, in an order that is easily mistaken."""
    socket: Any = make_mocked_request("GET", "/ws")
    messages = AiohttpLimits(agent="memory://").messages("2/minute")

    with pytest.raises(InvalidSetting, match=r"write messages\(request, socket\)"):
        asyncio.run(anext(messages(web.WebSocketResponse(), socket)))  # type: ignore[arg-type]
