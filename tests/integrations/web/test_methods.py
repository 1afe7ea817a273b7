"""Goal: a rule about methods or paths that no route of its views has is told of once, and not silently no limit.

Method: applications of every framework, asked without a server; what is right is told of nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
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
from tests.support.applications.asking import ask_asgi, hello, statuses


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "limits nothing" in each.getMessage()]


async def answer(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("yes")


async def read() -> str:
    return "yes"


def of_asgi(agent: Agent, **settings: Any) -> list[int]:
    app = Starlette(routes=[Route("/a", answer)])
    rule = Rule(limits="5/minute", name="function", **settings)
    return statuses(ask_asgi(RateLimitMiddleware(app, rules=[rule], agent=agent), "/a", times=2))


def of_fastapi(agent: Agent, **settings: Any) -> list[int]:
    """Beside another route that takes POST, but has no limit, and something mounted."""
    app, limits = FastAPI(), FastapiLimits(agent)
    app.get("/a", dependencies=[Depends(limits("5/minute", name="function", **settings))])(read)
    app.post("/b")(read)
    app.mount("/other", Starlette())
    return statuses(ask_asgi(app, "/a", times=2))


def of_flask(agent: Agent, **settings: Any) -> list[int]:
    """A function, and a method of a class."""
    app = flask.Flask("methods")
    limits = FlaskLimits(app=app, agent=agent)

    class Reading(flask.views.MethodView):
        @limits.limit("5/minute", name="method", **settings)
        def get(self) -> str:
            return "yes"

        def post(self) -> str:
            return "yes"

    app.add_url_rule("/a", "a", limits.limit("5/minute", name="function", **settings)(lambda: "yes"))
    app.add_url_rule("/b", "b", lambda: "yes", methods=["POST"])
    app.add_url_rule("/c", view_func=Reading.as_view("reading"))
    return [app.test_client().get(path).status_code for path in ("/a", "/a", "/c", "/c")]


def of_aiohttp(agent: Agent, *, installed: bool = True, **settings: Any) -> list[int]:
    """Likewise; the middleware tells at the start, and without it the first request does."""
    app, limits = web.Application(), AiohttpLimits(agent=agent)

    @limits.limit("5/minute", name="function", **settings)
    async def function(_request: web.Request) -> web.Response:
        return web.Response(text="yes")

    class Reading(web.View):
        @limits.limit("5/minute", name="method", **settings)
        async def get(self) -> web.Response:
            return web.Response(text="yes")

        async def post(self) -> web.Response:
            return web.Response(text="yes")

    async def served() -> list[int]:
        async with AiohttpClient(AiohttpServer(app)) as client:
            return [(await client.get(path)).status for path in ("/a", "/a", "/c", "/c")]

    app.router.add_get("/a", function)
    app.router.add_view("/c", Reading)
    app.router.add_post("/b", Reading)
    if installed:
        limits.install(app)
    return asyncio.run(served())


FRAMEWORKS: dict[str, tuple[Callable[..., list[int]], list[str]]] = {
    "asgi": (of_asgi, ["function"]),
    "asgi, about a path": (partial(of_asgi, paths=["/a"]), ["function"]),
    "fastapi": (of_fastapi, ["function"]),
    "flask": (of_flask, ["function", "method"]),
    "aiohttp": (of_aiohttp, ["function", "method"]),
    "aiohttp, not installed": (partial(of_aiohttp, installed=False), ["function", "method"]),
}
"""Functions that limit views which only get, ask each twice, and return the statuses; and the limits' names."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("methods", "wrong"),
    [
        (["POST"], True),
        (["DELETE", "PUT"], True),
        (["GET"], False),
        (["POST", "get"], False),
        (["OPTIONS"], False),
        (None, False),
    ],
)
def test_methods_that_no_route_takes_are_told_of(
    agent: Agent, caplog: pytest.LogCaptureFixture, framework: str, methods: list[str] | None, wrong: bool
) -> None:
    """Once, with what the routes take; requests are served meanwhile."""
    ask, limits = FRAMEWORKS[framework]
    answered = ask(agent, methods=methods)

    assert {200} == {*answered}
    assert (limits if wrong else []) == [said.split("'")[1] for said in told(caplog)]
    assert all("accept only GET" in said for said in told(caplog))


@pytest.mark.parametrize("ask", [of_fastapi, of_flask])
def test_a_path_of_another_view_is_told_of(
    agent: Agent, caplog: pytest.LogCaptureFixture, ask: Callable[..., list[int]]
) -> None:
    """The limit of /a is never asked about /b, although there is such a route."""
    answered = ask(agent, paths=["/b"])

    assert {200} == {*answered}
    said = told(caplog)[0]
    assert "'/b'" in said
    assert "no route of its own view matches; the nearest route is '/a'" in said


def test_a_rule_about_all_paths_may_be_about_what_is_mounted(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A mount that shows no routes takes any method."""
    app = Starlette(routes=[Route("/read", answer), Mount("/other", app=hello)])
    rule = Rule(limits="5/minute", methods=["POST"])
    ask_asgi(RateLimitMiddleware(app, rules=[rule], agent=agent), "/read")

    assert [] == told(caplog)


def test_fastapi_tells_nothing_of_a_path_of_one_of_several_routes(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of a router is about some of its routes."""
    app, limits = FastAPI(), FastapiLimits(agent)
    router = APIRouter(dependencies=[Depends(limits("5/minute", paths=["/api/b"], methods=["POST"]))])

    router.get("/a")(read)
    router.post("/b")(read)
    app.include_router(router, prefix="/api")
    answers = ask_asgi(app, "/api/a") + ask_asgi(app, "/api/b", method="POST")

    assert [200, 200] == statuses(answers)
    assert [] == told(caplog)


def test_django_refuses_methods_that_a_class_of_views_does_not_have() -> None:
    """A class says which methods it has, so it is told where it is declared."""

    class Reading(View):  # type: ignore[misc]
        def get(self, _request: object) -> None:
            """Nothing."""

    with pytest.raises(InvalidSetting, match=r"Reading only accepts GET, HEAD, OPTIONS; choose methods= from these"):
        django_limit("5/minute", methods=["POST"])(Reading)
    assert Reading is django_limit("5/minute", methods=["GET", "POST"])(Reading)
