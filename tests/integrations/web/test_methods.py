"""Goal: a rule about methods or paths that no route of its views has is told of once, and not silently no limit.

Method: applications of every framework, asked without a server; what is right is told of nowhere.
"""

from __future__ import annotations

import logging
from typing import Any

import flask
import flask.views
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer as AiohttpServer
from django.views import View
from fastapi import APIRouter, Depends, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from reconverge import Agent, InvalidSetting
from reconverge.integrations import Rule
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.django import limit as django_limit
from reconverge.integrations.fastapi import Limits as FastapiLimits
from reconverge.integrations.flask import Limits as FlaskLimits
from tests.support.applications.asking import ask_asgi, statuses


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "limits nothing" in each.getMessage()]


async def answer(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("yes")


METHODS = [
    (["POST"], True),
    (["DELETE", "PUT"], True),
    (["GET"], False),
    (["POST", "get"], False),
    (["OPTIONS"], False),
    (None, False),
]
"""The methods of a rule for a view that only gets, and whether it is warned about."""


@pytest.mark.parametrize(("methods", "wrong"), METHODS)
@pytest.mark.parametrize("paths", [None, ["/read"]])
def test_a_middleware_tells_of_methods_that_no_route_takes(
    agent: Agent, caplog: pytest.LogCaptureFixture, methods: list[str] | None, paths: list[str] | None, wrong: bool
) -> None:
    """Once, with what the routes take; requests are served meanwhile."""
    app = Starlette(routes=[Route("/read", answer)])
    rule = Rule(limits="5/minute", methods=methods, paths=paths, name="reading")
    answers = ask_asgi(RateLimitMiddleware(app, rules=[rule], agent=agent), "/read", times=2)

    assert [200, 200] == statuses(answers)
    assert ([True] if wrong else []) == ["GET, HEAD" in said and "'reading'" in said for said in told(caplog)]


def test_a_rule_about_all_paths_may_be_about_what_is_mounted(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A mount that shows no routes takes any method."""

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("yes")(scope, receive, send)

    app = Starlette(routes=[Route("/read", answer), Mount("/other", app=mounted)])
    rule = Rule(limits="5/minute", methods=["POST"])
    ask_asgi(RateLimitMiddleware(app, rules=[rule], agent=agent), "/read")

    assert [] == told(caplog)


def fastapi_app(agent: Agent, **settings: Any) -> FastAPI:
    """With a limit on a view that gets, beside one that posts, and something mounted."""
    app, limits = FastAPI(), FastapiLimits(agent)

    @app.get("/a", dependencies=[Depends(limits("5/minute", **settings))])
    async def read() -> str:
        return "yes"

    @app.post("/b")
    async def write() -> str:
        return "yes"

    app.mount("/other", Starlette())
    return app


@pytest.mark.parametrize(("methods", "wrong"), METHODS)
def test_fastapi_tells_of_methods_that_no_route_of_a_limit_takes(
    agent: Agent, caplog: pytest.LogCaptureFixture, methods: list[str] | None, wrong: bool
) -> None:
    """Another route takes POST, but has no limit."""
    answers = ask_asgi(fastapi_app(agent, methods=methods), "/a", times=2)

    assert [200, 200] == statuses(answers)
    assert ([True] if wrong else []) == ["accept only GET" in said for said in told(caplog)]


def test_fastapi_tells_of_a_path_of_another_route(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """The dependency of /a is never asked about /b, although there is such a route."""
    answers = ask_asgi(fastapi_app(agent, paths=["/b"]), "/a", times=2)

    assert [200, 200] == statuses(answers)
    (said,) = told(caplog)
    assert "'/b'" in said
    assert "no route of its own view matches; the nearest route is '/a'" in said


def test_fastapi_tells_nothing_of_a_path_of_one_of_several_routes(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of a router is about some of its routes."""
    app, limits = FastAPI(), FastapiLimits(agent)
    router = APIRouter(dependencies=[Depends(limits("5/minute", paths=["/api/b"], methods=["POST"]))])

    @router.get("/a")
    async def read() -> str:
        return "yes"

    @router.post("/b")
    async def write() -> str:
        return "yes"

    app.include_router(router, prefix="/api")
    answers = ask_asgi(app, "/api/a") + ask_asgi(app, "/api/b", method="POST")

    assert [200, 200] == statuses(answers)
    assert [] == told(caplog)


@pytest.mark.parametrize(("methods", "wrong"), METHODS)
def test_flask_tells_of_methods_that_a_view_does_not_take(
    agent: Agent, caplog: pytest.LogCaptureFixture, methods: list[str] | None, wrong: bool
) -> None:
    """Of a function, and of a method of a class."""
    app = flask.Flask("methods")
    limits = FlaskLimits(app=app, agent=agent)

    @app.get("/a")
    @limits.limit("5/minute", methods=methods, name="function")
    def read() -> str:
        return "yes"

    class Reading(flask.views.MethodView):
        @limits.limit("5/minute", methods=methods, name="method")
        def get(self) -> str:
            return "yes"

        def post(self) -> str:
            return "yes"

    app.add_url_rule("/c", view_func=Reading.as_view("reading"))

    @app.post("/b")
    def write() -> str:
        return "yes"

    answered = [app.test_client().get(path).status_code for path in ("/a", "/a", "/c", "/c")]

    assert [200] * 4 == answered
    assert (["function", "method"] if wrong else []) == [said.split("'")[1] for said in told(caplog)]


def test_flask_tells_of_a_path_of_another_view(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of /a is never asked about /b."""
    app = flask.Flask("methods")
    limits = FlaskLimits(app=app, agent=agent)
    app.add_url_rule("/a", "a", limits.limit("5/minute", paths=["/b"])(lambda: "yes"))
    app.add_url_rule("/b", "b", lambda: "yes")
    app.test_client().get("/a")

    (said,) = told(caplog)
    assert "the nearest route is '/a'" in said


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize(("methods", "wrong"), METHODS)
async def test_aiohttp_tells_of_methods_that_a_handler_does_not_take(
    agent: Agent, caplog: pytest.LogCaptureFixture, methods: list[str] | None, wrong: bool, installed: bool
) -> None:
    """Of a function, and of a method of a class; with the middleware at the start, without it by the first request."""
    with caplog.at_level(logging.WARNING, "reconverge"):
        app, limits = web.Application(), AiohttpLimits(agent=agent)

        @limits.limit("5/minute", methods=methods, name="function")
        async def read(_request: web.Request) -> web.Response:
            return web.Response(text="yes")

        class Reading(web.View):
            @limits.limit("5/minute", methods=methods, name="method")
            async def get(self) -> web.Response:
                return web.Response(text="yes")

            async def post(self) -> web.Response:
                return web.Response(text="yes")

        app.router.add_get("/a", read)
        app.router.add_view("/c", Reading)
        app.router.add_post("/b", Reading)
        if installed:
            limits.install(app)
        async with AiohttpClient(AiohttpServer(app)) as client:
            for path in ("/a", "/a", "/c", "/c"):
                assert 200 == (await client.get(path)).status

    assert (["function", "method"] if wrong else []) == [said.split("'")[1] for said in told(caplog)]


def test_django_refuses_methods_that_a_class_of_views_does_not_have() -> None:
    """A class says which methods it has, so it is told where it is declared."""

    class Reading(View):  # type: ignore[misc]
        def get(self, _request: object) -> None:
            """Nothing."""

    with pytest.raises(InvalidSetting, match=r"Reading only accepts GET, HEAD, OPTIONS; choose methods= from these"):
        django_limit("5/minute", methods=["POST"])(Reading)
    assert Reading is django_limit("5/minute", methods=["GET", "POST"])(Reading)
