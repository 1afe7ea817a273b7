"""Goal: an aiohttp server is limited, says so on whatever it answers, and is otherwise what it was.

Method: aiohttp's own server and client on a loopback port.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.integrations import Rule, by_header, by_route
from reconverge.integrations.aiohttp import Limits, outcome_of
from reconverge.integrations.web.request.request import Response
from tests.support.waiting import eventually_in_loop

PROBLEM = "application/problem+json"


def application(limits: Limits) -> web.Application:
    """An application of all kinds of answers, limited."""

    async def home(request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def unconnected(request: web.Request) -> web.Response:
        raise ConnectionRefusedError("by a database")

    async def gone(request: web.Request) -> web.Response:
        raise web.HTTPGone

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

    class ShelfHandler(web.View):
        @limits.limit("2/hour", name="shelf")
        async def get(self) -> web.Response:
            return web.Response(text="a shelf")

    app = web.Application(client_max_size=0)
    app.add_routes([
        web.get("/", home),
        web.get("/items/{number}", home),
        web.get("/broken", broken),
        web.get("/gone", gone),
        web.get("/unconnected", unconnected),
        web.get("/stream/{upto}", stream),
        web.get("/chat", chat),
        web.get("/limited", limited),
        web.get("/spending", spending),
        web.view("/shelf", ShelfHandler),
    ])  # fmt: skip
    return app


def served(limits: Limits) -> TestClient[web.Request, web.Application]:
    """A client of the application on a loopback port; not started yet."""
    app = application(limits)
    limits.install(app)
    return TestClient(TestServer(app))


async def gets(client: TestClient[Any, Any], *paths: str, **headers: str) -> list[tuple[int, dict[str, int]]]:
    """The status of each answer, and what it says is left by the name of the limit."""
    answers: list[tuple[int, dict[str, int]]] = []
    for path in paths:
        async with client.get(path, headers=headers) as response:
            await response.read()
            answers.append((response.status, remaining(response)))
    return answers


def remaining(response: Any) -> dict[str, int]:
    lines = ", ".join(response.headers.getall("RateLimit", []))
    return {name: int(left) for name, left in re.findall(r'"([^"]+)";r=(\d+)', lines)}


async def test_every_response_says_what_is_left_and_the_last_one_refuses() -> None:
    """Whether it is there, not found, raised, broken or streamed; streams keep what they say of limits themselves."""
    async with served(Limits("5/hour")) as client:
        answers = await gets(client, "/", "/nowhere", "/gone", "/broken", "/stream/3")
        async with client.get("/") as refused:
            problem = json.loads(await refused.read())

    assert [200, 404, 410, 500, 200] == [status for status, _ in answers]
    assert [4, 3, 2, 1, 0] == [left["requests"] for _, left in answers]
    assert 1 == answers[-1][1]["theirs"]
    assert (429, PROBLEM, 429) == (refused.status, refused.headers["Content-Type"], problem["status"])
    assert int(refused.headers["Retry-After"]) > 0
    assert 1 == len(refused.headers.getall("RateLimit"))


async def test_a_websocket_is_limited_when_it_connects() -> None:
    """It says what is left as it opens, its messages cost nothing, and the connection too many is refused."""
    async with served(Limits("1/hour")) as client:
        async with client.ws_connect("/chat") as socket:
            echoes: list[str] = []
            for number in range(5):
                await socket.send_str(str(number))
                echoes.append(await socket.receive_str())
            left = remaining(socket._response)
        async with client.get("/chat", headers={"Connection": "Upgrade", "Upgrade": "websocket"}) as refused:
            status = refused.status

    assert [f"echo {number}" for number in range(5)] == echoes
    assert ({"requests": 0}, 429) == (left, status)


@pytest.mark.parametrize("code", [1008, 1013])
async def test_messages_of_websockets_are_limited_if_asked(code: int) -> None:
    """For each key, over all its connections; one too many closes the connection, and others go on."""
    limits = Limits(key_func=by_header("X-Api-Key"))
    messages = limits.messages("3/hour", close_code=code)
    heard: list[str] = []

    async def chat(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in messages(request, socket):
            heard.append(message.data)
            await socket.send_str("heard")
        heard.append("over")
        return socket

    async def says(client: TestClient[Any, Any], key: str, *texts: str) -> Any:
        async with client.ws_connect("/", headers={"X-Api-Key": key}) as socket:
            for text in texts:
                await socket.send_str(text)
                if (await socket.receive()).type is not WSMsgType.TEXT:
                    break
            await socket.close()
            return socket.close_code

    app = web.Application()
    app.router.add_get("/", chat)
    limits.install(app)
    async with TestClient(TestServer(app)) as client:
        codes = [await says(client, key, *texts) for key, texts in (("a", "12"), ("a", "345"), ("b", "6"))]

    assert [1000, code, 1000] == codes
    assert ["1", "2", "over", "3", "over", "6", "over"] == heard


async def test_a_handler_may_count_messages_itself() -> None:
    """And do with one too many what it likes; in the middle of anything, the request it has come by is at hand."""
    limits = Limits()
    messages = limits.messages("1/hour", name="said")
    refused: list[float] = []

    async def chat(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            outcome = await messages.check(request)
            if not outcome:
                refused.append(outcome.rulings[0].decision.retry_after)
            await socket.send_str(message.data if outcome else "later")
        return socket

    app = web.Application()
    app.router.add_get("/", chat)
    async with TestClient(TestServer(app)) as client, client.ws_connect("/") as socket:
        answers: list[str] = []
        for text in "ab":
            await socket.send_str(text)
            answers.append(await socket.receive_str())

    assert ["a", "later"] == answers
    assert refused[0] > 0


async def test_a_stream_is_sent_as_it_comes() -> None:
    """Its first part is there before its last one is made; a client that goes away has used what it was sent."""
    settled: list[Response] = []

    def settle(response: Response) -> int:
        settled.append(response)
        return 7

    async with served(Limits(rules=[Rule(limits="1000/hour", name="bytes", settle=settle)])) as client:
        response = await client.get("/stream/1000000000")
        first = await response.content.readline()
        response.close()
        await eventually_in_loop(lambda: settled, "the stream is settled")
        (left,) = [left for _, left in await gets(client, "/")]

    assert b"0\n" == first
    assert (499, False) == (settled[0].status, settled[0].complete)
    assert {"bytes": 1000 - 7 - 1} == left


async def test_what_depends_on_the_response_is_settled_by_it() -> None:
    """Of a plain one, a stream, a raised one and a failure: its status, and its bytes where there are any."""
    settled: list[tuple[int, int]] = []

    def settle(response: Response) -> int:
        settled.append((response.status, response.bytes_sent))
        return 0

    async with served(Limits(rules=[Rule(limits="1000/hour", name="all", settle=settle)])) as client:
        await gets(client, "/", "/stream/3", "/gone", "/broken", "/unconnected")

    assert [200, 200, 410, 500, 500] == [status for status, _ in settled]
    assert 7 == settled[0][1]
    assert settled[1][1] > 6  # of a stream, aiohttp tells the bytes on the wire


async def test_handlers_and_methods_of_views_are_limited() -> None:
    """Each counts on its own; what refuses costs the others nothing."""
    async with served(Limits("9/hour")) as client:
        limited = await gets(client, "/limited", "/limited", "/limited")
        shelf = await gets(client, "/shelf", "/shelf", "/shelf")
        (home,) = await gets(client, "/")

    assert [200, 200, 429] == [status for status, _ in limited] == [status for status, _ in shelf]
    assert {"requests": 7, "limited": 0} == limited[1][1]
    assert {"requests": 9 - 2 - 2 - 1} == home[1]


async def test_a_decorator_works_without_the_middleware() -> None:
    """Where the limits were not installed, plain responses have the fields all the same."""
    async with TestClient(TestServer(application(Limits()))) as client:
        answers = await gets(client, "/limited", "/limited", "/limited", "/spending", "/spending")

    assert [200, 200, 429, 200, 200] == [status for status, _ in answers]
    assert [{"limited": 1}, {"limited": 0}, {"limited": 0}, {"spending": 90}, {"spending": 87}] == [
        left for _, left in answers
    ]


async def test_an_application_that_is_mounted_may_have_limits_of_its_own() -> None:
    """They and those of the application around it are charged together or not at all, and are one answer."""
    outer, inner = (Limits(rules=[Rule(limits=limits, name="own")]) for limits in ("9/hour", "1/hour"))
    app, mounted = application(outer), application(inner)
    outer.install(app)
    inner.install(mounted)
    app.add_subapp("/mounted/", mounted)
    async with TestClient(TestServer(app)) as client:
        (served,) = await gets(client, "/mounted/items/1")
        refused = [status for status, _ in await gets(client, *["/mounted/items/1"] * 3)]
        (home,) = await gets(client, "/")

    assert (200, [429] * 3) == (served[0], refused)
    assert {"own": 9 - 1 - 1} == home[1]


async def test_routes_are_patterns() -> None:
    """A thousand paths of one route are one key, and all that lead nowhere another."""
    async with served(Limits("2000/hour", key_func=by_route)) as client:
        items = await gets(client, *(f"/items/{number}" for number in range(1000)))
        nowhere = await gets(client, "/no/1", "/no/2")

    assert 1000 == items[-1][1]["requests"]
    assert 1998 == nowhere[-1][1]["requests"]


def test_what_makes_no_sense_is_told_when_it_is_declared() -> None:
    """Limits and settings, before any request."""
    with pytest.raises(InvalidLimit):
        Limits("often")
    with pytest.raises(InvalidSetting, match="fail"):
        Limits("1/hour", fail="maybe")
    with pytest.raises(InvalidSetting, match="close_code"):
        Limits().messages("1/hour", close_code=1000)


async def test_an_application_that_is_installed_twice_is_limited_once() -> None:
    """A factory that is called for what it has limited already charges no request twice."""
    app, limits = web.Application(), Limits("4/minute", agent="memory://")

    async def home(_request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    app.router.add_get("/", home)
    for _ in range(2):
        limits.install(app)
    async with TestClient(TestServer(app)) as client:
        assert [200] * 4 + [429] == [(await client.get("/")).status for _ in range(5)]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_limit_above_the_route_is_an_error(*, whole: bool) -> None:
    """At startup; in an application without the middleware, at each request to a limited handler.

    `@routes.get` has registered the bare handler then. A limit below it is none.
    """
    app, limits, routes = web.Application(), Limits(agent="memory://"), web.RouteTableDef()

    async def above(_request: web.Request) -> web.Response:
        return web.Response(text="above")

    @routes.get("/below")
    @limits.limit("2/minute")
    async def below(_request: web.Request) -> web.Response:
        return web.Response(text="below")

    limits.limit("2/minute")(routes.get("/above")(above))
    app.add_routes(routes)
    if whole:
        limits.install(app)
        with pytest.raises(InvalidSetting, match=r"above.*is never applied.*below @routes.get"):
            await TestServer(app).start_server()
    else:
        async with TestClient(TestServer(app)) as client:
            assert [500, 500] == [(await client.get("/below")).status for _ in range(2)]
