"""Goal: an application forgets what a client has used, as after a login, without knowing how its key is made.

Method: a login in each framework, which resets the client's key, or names it for a reset elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp.web
import flask
import pytest
from aiohttp.test_utils import TestClient, TestServer
from fastapi import Depends, FastAPI, Request

from reconverge import Agent
from reconverge.integrations import Outcome
from reconverge.integrations import aiohttp as of_aiohttp
from reconverge.integrations import fastapi as of_fastapi
from reconverge.integrations import flask as of_flask
from tests.support.applications.asking import ask_asgi, ask_wsgi

Ask = Callable[[Sequence[str]], list[int]]
"""Requests paths one after the other, and returns the statuses."""


def in_fastapi(agent: Agent, keys: list[str | None]) -> tuple[of_fastapi.Limits, Ask]:
    app, limits = FastAPI(), of_fastapi.Limits(agent)
    limits.install(app)
    limit = Depends(limits("2/hour", name="login"))

    @app.get("/bad", dependencies=[limit, Depends(limits("9/hour", name="wide"))])
    async def bad(request: Request) -> None:
        keys.append(limits.key_of(request, "login"))

    found = Depends(limits("2/hour", name="login", scope="login"))

    @app.get("/good")
    async def good(outcome: Outcome = found) -> None:
        outcome.reset()

    return limits, lambda paths: [ask_asgi(app, path)[0].status for path in paths]


def in_flask(agent: Agent, keys: list[str | None]) -> tuple[of_flask.Limits, Ask]:
    app = flask.Flask(__name__)
    limits = of_flask.Limits(app=app, agent=agent)

    @app.get("/bad")
    @limits.limit("2/hour", name="login")
    def bad() -> str:
        keys.append(limits.key_of(flask.request))
        return ""

    @app.get("/good")
    @limits.limit("2/hour", name="other")
    def good() -> str:
        outcome = limits.current_outcome
        assert outcome is not None
        outcome.reset("other")
        return ""

    return limits, lambda paths: [ask_wsgi(app, path)[0].status for path in paths]


def in_aiohttp(agent: Agent, keys: list[str | None]) -> tuple[of_aiohttp.Limits, Ask]:
    limits = of_aiohttp.Limits(agent=agent)

    @limits.limit("2/hour", name="login")
    async def bad(request: aiohttp.web.Request) -> aiohttp.web.Response:
        keys.append(limits.key_of(request))
        return aiohttp.web.Response()

    @limits.limit("2/hour", name="other")
    async def good(request: aiohttp.web.Request) -> aiohttp.web.Response:
        outcome = of_aiohttp.outcome_of(request)
        assert outcome is not None
        outcome.reset()
        return aiohttp.web.Response()

    def ask(paths: Sequence[str]) -> list[int]:
        async def statuses() -> list[int]:
            app = aiohttp.web.Application()
            app.router.add_get("/bad", bad)
            app.router.add_get("/good", good)
            limits.install(app)
            async with TestClient(TestServer(app)) as client:
                return [(await client.get(path)).status for path in paths]

        return asyncio.run(statuses())

    return limits, ask


EACH = pytest.mark.parametrize("making", [in_fastapi, in_flask, in_aiohttp])
Making = Callable[[Agent, list[str | None]], tuple[Any, Ask]]


@EACH
def test_an_outcome_resets_the_keys_of_its_request(making: Making, agent: Agent) -> None:
    """So a client that logs in each time is never refused."""
    _, ask = making(agent, [])
    assert [200] * 5 == ask(["/good"] * 5)
    assert [200, 200, 429] == ask(["/bad"] * 3)


@EACH
def test_limits_name_the_key_of_a_request(making: Making, agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A limiter that is reset for it admits again; a key that was never counted is logged, with the remedy."""
    keys: list[str | None] = []
    _, ask = making(agent, keys)
    assert [200, 200, 429] == ask(["/bad"] * 3)
    login = agent.limiter("login")

    assert not login.reset("nobody")
    assert "write outcome.reset(), or limits.key_of(request)" in caplog.text
    assert [429] == ask(["/bad"])
    assert keys[0] is not None
    assert login.reset(keys[0])
    assert [200] == ask(["/bad"])


@EACH
def test_limits_are_switched_off_and_reset_as_a_whole(making: Making, agent: Agent) -> None:
    """In the words of Flask-Limiter, in each framework."""
    limits, ask = making(agent, [])
    assert [200, 200, 429] == ask(["/bad"] * 3)
    limits.enabled = False
    assert [200] == ask(["/bad"])
    limits.enabled = True
    assert [429] == ask(["/bad"])
    limits.reset()
    assert [200, 200, 429] == ask(["/bad"] * 3)


def test_a_limiter_counts_the_same_key_in_every_route(agent: Agent) -> None:
    """In FastAPI other limits count each route apart. So an application can reset its own limiter by an address."""
    app, limits = FastAPI(), of_fastapi.Limits(agent, key_func=lambda: "ada")
    login = agent.limit("login", "2/hour")

    @app.get("/one", dependencies=[Depends(limits(login))])
    @app.get("/two", dependencies=[Depends(limits(login))])
    async def log_in() -> None: ...

    assert [200, 200, 429] == [ask_asgi(app, path)[0].status for path in ("/one", "/two", "/one")]
    assert login.reset("ada")
    assert [200] == [ask_asgi(app, "/one")[0].status]
