"""Goal: behind the middleware an ASGI application answers as it always did, with limits.

Method: applications are driven message by message, as a server does it; clients go away in the middle.
"""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from reconverge import Agent
from reconverge.integrations import Rule, by_header, by_route
from reconverge.integrations.asgi import AsgiRequest, RateLimitMiddleware
from reconverge.integrations.asgi.routes import route_of
from tests.support.applications.asking import (
    ADA,
    asgi_answer,
    ask_asgi,
    converse,
    hello,
    http_scope,
    statuses,
    websocket_scope,
)
from tests.support.applications.webserver import check_fields
from tests.support.waiting import eventually_in_loop


def test_what_is_streamed_is_sent_as_it_comes(agent: Agent) -> None:
    """Each message of the body is passed on as the very same object, at once."""
    (answer,) = ask_asgi(RateLimitMiddleware(hello, "2/minute", agent=agent))

    assert [b"hel", b"lo"] == [message["body"] for message in answer.messages[1:]]
    assert "text/plain" == answer.headers["content-type"]


def test_header_fields_may_be_told_one_by_one(agent: Agent) -> None:
    """ASGI has them iterable, and no more; they stay, whether we add any or not."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields = (field for field in [(b"x-own", b"1")])
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body"})

    for enabled in (True, False):
        (answer,) = ask_asgi(RateLimitMiddleware(app, "9/minute", agent=agent, headers_enabled=enabled))
        assert "1" == answer.headers["x-own"]
        assert enabled == ("ratelimit" in answer.headers)


def test_lifespan_and_others_are_passed_through(agent: Agent) -> None:
    """With the very arguments that the server gave."""
    seen: list[Any] = []

    async def app(*arguments: Any) -> None:
        seen.append(arguments)

    arguments: Any = ({"type": "lifespan"}, object(), object())
    asyncio.run(RateLimitMiddleware(app, "1/minute", agent=agent)(*arguments))

    assert [arguments] == seen


def test_head_is_refused_without_a_body(agent: Agent) -> None:
    """HTTP has no body there."""
    app = RateLimitMiddleware(hello, "1/minute", agent=agent)

    assert b"" == ask_asgi(app, times=2, method="HEAD")[1].body


def test_an_application_of_its_own_may_answer_a_breach(agent: Agent) -> None:
    """`on_breach` returns an ASGI application."""
    app = RateLimitMiddleware(hello, "1/minute", agent=agent, on_breach=lambda _outcome: hello)

    assert [b"hello", b"hello"] == [answer.body for answer in ask_asgi(app, times=2)]


def test_what_the_application_says_of_limits_stays(agent: Agent) -> None:
    """Lists of ours are added to; other fields are the application's."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"X-RateLimit-Limit", b"7"), (b"retry-after", b"1"), (b"ratelimit", b'"own";r=0;t=1')]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body"})

    (answer,) = ask_asgi(RateLimitMiddleware(app, "9/minute", agent=agent, dialect="ietf-11,x-ratelimit"))

    assert [("x-ratelimit-limit", "7")] == [(n.lower(), v) for n, v in answer.pairs if n.lower() == "x-ratelimit-limit"]
    assert ['"own";r=0;t=1', '"requests";r=8'] == [value for name, value in answer.pairs if name == "ratelimit"]


# -------------------------------------------------------------------- what has to be settled


def tokens(agent: Agent) -> int:
    return agent.limiter("tokens").usage(ADA).own


def settling(app: Any, agent: Agent) -> Any:
    """An application whose responses cost what they have in bytes, expected to be fifty."""
    rule = Rule(limits="100/minute", name="tokens", cost=50, settle=lambda response: response.bytes_sent)
    return RateLimitMiddleware(app, rules=[rule], agent=agent)


def test_a_response_is_settled_before_background_tasks(agent: Agent) -> None:
    """They run after the last byte, for as long as they like."""
    charged: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hello(scope, receive, send)
        charged.append(tokens(agent))

    ask_asgi(settling(app, agent))

    assert [5] == charged


async def test_a_cancelled_request_is_settled(agent: Agent) -> None:
    """In the middle of its body: for what was sent. Before its beginning: as a response with status 499."""
    begun = asyncio.Event()
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"seven..", "more_body": True})
        begun.set()
        await asyncio.Event().wait()

    def settle(response: Any) -> int:
        seen.append(response.status)
        assert not response.complete
        return int(response.bytes_sent)

    rule = Rule(limits="1000/minute", name="tokens", cost=50, settle=settle)
    limited = RateLimitMiddleware(app, rules=[rule], agent=agent)

    async def cancel(path: str) -> None:
        begun.clear()
        task = asyncio.create_task(asgi_answer(limited, http_scope(path)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await cancel("/begun")
    await cancel("/not-begun")

    assert [200, 499] == seen
    assert 7 == tokens(agent)


# -------------------------------------------------------------------- websockets


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Sends back what it receives, until it is told that the client has gone; and then once more."""
    assert "websocket.connect" == (await receive())["type"]
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        await send({"type": "websocket.send", "text": str(message.get("code", message.get("text")))})
        if message["type"] == "websocket.disconnect":
            return


def test_connections_are_limited(agent: Agent) -> None:
    """Before they are accepted: with a response where the server can, else by closing. Who is accepted is told."""
    app = RateLimitMiddleware(echo, "1/minute", agent=agent)
    accepted = asyncio.run(converse(app, websocket_scope(), "hi"))
    (closed,) = asyncio.run(converse(app, websocket_scope()))
    denied = asyncio.run(converse(app, websocket_scope(denial=True)))

    assert ["websocket.accept", "websocket.send", "websocket.send"] == [message["type"] for message in accepted]
    assert b"ratelimit" in dict(accepted[0]["headers"])
    assert ("websocket.close", 1013) == (closed["type"], closed["code"])
    assert 429 == denied[0]["status"]
    assert b"retry-after" in dict(denied[0]["headers"])


@pytest.mark.parametrize("code", [1008, 1013])
def test_messages_are_limited_if_asked(agent: Agent, code: int) -> None:
    """The connection is closed, its application learns that, and what it still says goes nowhere."""
    app = RateLimitMiddleware(echo, messages="2/minute", close_code=code, agent=agent)
    sent = asyncio.run(converse(app, websocket_scope(), "one", "two", "three", "four"))

    assert ["one", "two"] == [message["text"] for message in sent if message["type"] == "websocket.send"]
    assert ("websocket.close", code) == (sent[-1]["type"], sent[-1]["code"])


def test_nothing_is_said_while_a_connection_closes(agent: Agent) -> None:
    """Closing takes a while, in which another task of the application may go on sending."""
    closing, sent = asyncio.Event(), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def speak() -> None:
            await closing.wait()
            await send({"type": "websocket.send", "text": "too late"})
            sent.append("spoken")

        speaker = asyncio.create_task(speak())
        while (await receive())["type"] != "websocket.disconnect":
            pass
        await speaker

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.receive", "text": "hi"}

    async def send(message: Any) -> None:
        sent.append(message["type"])
        closing.set()
        await eventually_in_loop(lambda: "spoken" in sent, "the other task has had its turn")

    limited = RateLimitMiddleware(app, messages="1/minute", agent=agent)
    asyncio.run(limited(websocket_scope(), receive, send))

    assert ["websocket.close", "spoken"] == sent


def test_a_client_that_is_gone_needs_no_closing(agent: Agent) -> None:
    """The application learns that it is, as ever, and not by an error."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while seen[-1:] != ["websocket.disconnect"]:
            seen.append((await receive())["type"])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.receive", "text": "hi"}

    async def send(_message: Any) -> None:
        raise OSError("the client is gone")

    limited = RateLimitMiddleware(app, messages="1/minute", agent=agent)
    asyncio.run(limited(websocket_scope(), receive, send))

    assert ["websocket.receive", "websocket.disconnect"] == seen


def test_messages_are_not_limited_unless_asked(agent: Agent) -> None:
    """A connection is one request."""
    app = RateLimitMiddleware(echo, "1/minute", agent=agent)

    assert 6 == len(asyncio.run(converse(app, websocket_scope(), "a", "b", "c", "d")))


# -------------------------------------------------------------------- frameworks


def test_the_routes_of_starlette_are_found_before_it_looks(agent: Agent) -> None:
    """By their patterns, so that a limit for each route has as many keys as there are routes."""
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.middleware import Middleware  # noqa: PLC0415
    from starlette.responses import PlainTextResponse  # noqa: PLC0415
    from starlette.routing import Mount, Route  # noqa: PLC0415

    async def view(_request: Any) -> PlainTextResponse:
        return PlainTextResponse("here")

    routes = [Route("/items/{id}", view), Mount("/sub", routes=[Route("/{name}", view)])]
    rule = Rule(limits="2/minute", name="routes", key_func=by_route)
    app = Starlette(routes=routes, middleware=[Middleware(RateLimitMiddleware, rules=[rule], agent=agent)])

    for path in ("/items/1", "/items/2", "/sub/a", "/sub/b", "/nowhere", "/neither"):
        ask_asgi(app, path)
    assert ["-", "/items/{id}", "/sub"] == sorted(agent.limiter("routes").control.table.cells)
    assert [429, 429, 429] == [ask_asgi(app, path)[0].status for path in ("/items/3", "/sub/c", "/lost")]


def test_a_route_that_does_not_know_its_prefix_is_told_apart_by_its_endpoint() -> None:
    """In a release of a framework that tells less than we look for; what clients write is in no case part of it."""
    route = SimpleNamespace(path="/items/{id}", path_regex=re.compile("^/items/(?P<id>[^/]+)$"))
    scope = http_scope("/shop/items/7") | {"route": route, "endpoint": hello}

    assert "/items/{id}#tests.support.applications.asking.hello" == route_of(scope)
    assert "/shop/items/{id}" == route_of(scope | {"root_path": "/shop"})
    assert "" == route_of(http_scope("/shop/items/7") | {"app": SimpleNamespace(routes=[object()])})


def test_litestar_takes_the_middleware(agent: Agent) -> None:
    """It takes it as any other."""
    from litestar import Litestar, get  # noqa: PLC0415
    from litestar.middleware import DefineMiddleware  # noqa: PLC0415

    @get("/items/{number:int}", sync_to_thread=False)
    def items() -> str:
        return "here"

    middleware: Any = RateLimitMiddleware  # Litestar's messages are types of its own
    middleware = DefineMiddleware(middleware, limits="2/minute", agent=agent, key_func=by_route)
    app = Litestar([items], middleware=[middleware])
    answers = [ask_asgi(app, path)[0] for path in ("/items/1", "/items/2", "/items/3")]

    assert [200, 200, 429] == statuses(answers)
    assert ["/items/{number}"] == list(agent.limiter("requests").control.table.cells)
    for answer in answers:
        check_fields(answer.headers, refused=answer.status == 429)


def test_header_fields_of_one_name_are_one(agent: Agent) -> None:
    """HTTP joins them; the name may be asked for in any case."""
    scope = http_scope("/")
    scope["headers"] = [(b"x-key", b"a"), (b"other", b"x"), (b"x-key", b"b")]
    request = AsgiRequest(scope, RateLimitMiddleware(hello, "1/day", agent=agent).guard.addresses)

    assert "a, b" == request.header("X-Key")
    assert None is request.header("missing")


def test_a_key_that_is_said_twice_is_no_key(agent: Agent) -> None:
    """Applications believe the first or the last: whoever could add others to it would have a quota for each."""
    app = RateLimitMiddleware(hello, "2/minute", agent=agent, key_func=by_header("x-key"))

    def ask(*keys: bytes) -> int:
        scope = http_scope("/")
        scope["headers"] = [(b"x-key", key) for key in keys]
        return asyncio.run(asgi_answer(app, scope)).status

    assert [200, 200, 429] == [ask(b"ada", b"%d" % number) for number in range(3)]
    assert [200, 200, 429] == [ask(b"ada"), ask(b"ada", b"ada"), ask(b"ada")]
    assert {"ada", f"~address:{ADA}"} == set(agent.limiter("requests").control.table.cells)


def test_a_number_that_python_does_not_read_leads_nowhere(agent: Agent) -> None:
    """Starlette's routes raise for one of five thousand digits; the request is counted before that."""
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.middleware import Middleware  # noqa: PLC0415
    from starlette.responses import PlainTextResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    app = Starlette(
        routes=[Route("/items/{id:int}", PlainTextResponse("here"))],
        middleware=[Middleware(RateLimitMiddleware, limits="1/minute", agent=agent, key_func=by_route)],
    )
    with pytest.raises(ValueError, match="4300 digits"):
        ask_asgi(app, f"/items/{'9' * 5000}")

    assert [429] == statuses(ask_asgi(app, f"/items/{'9' * 5000}"))
    assert ["-"] == list(agent.limiter("requests").control.table.cells)


async def test_a_slow_limiter_does_not_hold_up_the_loop(agent: Agent) -> None:
    """While a key is awaited, others are served."""
    held = asyncio.Event()

    async def slow(request: Any) -> str:
        if request.path == "/slow":
            await held.wait()
        return "ada"

    app = RateLimitMiddleware(hello, "9/minute", agent=agent, key_func=slow)

    task = asyncio.create_task(asgi_answer(app, http_scope("/slow")))
    await asgi_answer(app, http_scope("/fast"))
    assert not task.done()
    held.set()
    await eventually_in_loop(task.done, "the slow one is served")
