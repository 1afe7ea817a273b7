"""Goal: an aiohttp server is limited, says so on whatever it answers, and is otherwise what it was.

Method: aiohttp's own server and client on a loopback port; two servers with an agent each on one Redis.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from reconverge import Agent
from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.integrations import Rule, by_header, by_route
from reconverge.integrations.aiohttp import Limits, outcome_of
from reconverge.integrations.request import Response
from tests.servers import RedisServer, free_port
from tests.waiting import eventually_in_loop

PROBLEM = "application/problem+json"
A_MEGABYTE = 1024 * 1024
TEN_MB = 10 * A_MEGABYTE


def application(limits: Limits) -> web.Application:
    """An application of all kinds of answers, limited."""

    async def home(request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def teapot(request: web.Request) -> web.Response:
        raise web.HTTPImATeapot

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"RateLimit": '"theirs";r=1'})
        await response.prepare(request)
        for number in range(int(request.match_info["upto"])):
            await response.write(b"%d\n" % number)
            await asyncio.sleep(0)
        return response

    async def chat(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"echo {message.data}")
        return socket

    @limits.limit("2/hour", name="limited")
    async def limited(request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    @limits.limit("100/hour", name="spending", settle="spent", cost=10)
    async def spending(request: web.Request) -> web.Response:
        outcome = outcome_of(request)
        assert outcome is not None
        outcome.spend(3)
        return web.Response(text="welcome")

    class Shelf(web.View):
        @limits.limit("2/hour", name="shelf")
        async def get(self) -> web.Response:
            return web.Response(text="a shelf")

    app = web.Application(client_max_size=0)
    app.add_routes([
        web.get("/", home),
        web.get("/items/{number}", home),
        web.get("/broken", broken),
        web.get("/teapot", teapot),
        web.get("/stream/{upto}", stream),
        web.get("/chat", chat),
        web.get("/limited", limited),
        web.get("/spending", spending),
        web.view("/shelf", Shelf),
    ])  # fmt: skip
    return app


def served(limits: Limits, *, max_field_size: int = 8190) -> TestClient[web.Request, web.Application]:
    """A client of the application on a loopback port; not started yet."""
    app = application(limits)
    limits.install(app)
    return TestClient(TestServer(app), server_kwargs={"max_field_size": max_field_size})


async def gets(client: TestClient[Any, Any], *paths: str, **headers: str) -> list[tuple[int, dict[str, int]]]:
    """The status of each answer, and what it says is left by the name of the limit."""
    answers: list[tuple[int, dict[str, int]]] = []
    for path in paths:
        async with client.get(path, headers=headers) as response:
            await response.read()
            answers.append((response.status, remaining(response)))
    return answers


def remaining(response: Any) -> dict[str, int]:
    """What a response says is left, by the name of the limit."""
    lines = ", ".join(response.headers.getall("RateLimit", []))
    return {name: int(left) for name, left in re.findall(r'"([^"]+)";r=(\d+)', lines)}


async def test_every_response_says_what_is_left_and_the_last_one_refuses() -> None:
    """Whether it is there, not found, raised, broken or streamed; streams keep what they say of limits themselves."""
    async with served(Limits("5/hour")) as client:
        answers = await gets(client, "/", "/nowhere", "/teapot", "/broken", "/stream/3")
        async with client.get("/") as refused:
            problem = json.loads(await refused.read())

    assert [200, 404, 418, 500, 200] == [status for status, _ in answers]
    assert [4, 3, 2, 1, 0] == [left["requests"] for _, left in answers]
    assert 1 == answers[-1][1]["theirs"]
    assert (429, PROBLEM, 429) == (refused.status, refused.headers["Content-Type"], problem["status"])
    assert int(refused.headers["Retry-After"]) > 0
    assert 1 == len(refused.headers.getall("RateLimit"))
