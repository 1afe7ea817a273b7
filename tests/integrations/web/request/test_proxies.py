"""Goal: the guard logs a proxy that is not trusted, behind which all clients are counted as one, and nothing else.

Method: the same clients through middlewares of several frameworks, whose own requests have the field in other places.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import flask
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from reconverge.integrations import Guard, PlainRequest, Rule, by_header
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge.integrations.web.request.proxies import CLIENTS_MIN, REFUSED_MIN
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.applications.asking import ask_asgi, ask_wsgi, hello, hello_wsgi

pytestmark = pytest.mark.usefixtures("bare_environment")

LIMIT: Final = "1/hour"
PROXY: Final = "10.0.0.3"
CLIENTS: Final = [f"198.51.100.{number % CLIENTS_MIN}" for number in range(REFUSED_MIN)]


def through_asgi(clients: Iterable[str], peer: str = PROXY, **settings: Any) -> None:
    app = AsgiMiddleware(hello, LIMIT, agent="memory://", **settings)
    for client in clients:
        ask_asgi(app, client=peer, x_forwarded_for=client)


def through_wsgi(clients: Iterable[str], peer: str = PROXY, **settings: Any) -> None:
    app = WsgiMiddleware(hello_wsgi, LIMIT, agent="memory://", **settings)
    for client in clients:
        ask_wsgi(app, client=peer, x_forwarded_for=client)


def through_a_guard_that_calls_a_function(clients: Iterable[str], peer: str = PROXY) -> None:
    guard = Guard("memory://")
    rules = [guard.declare(Rule(limits=LIMIT, exempt_when=lambda: False))]
    for client in clients:
        guard.check(PlainRequest(client=peer, headers={"x-forwarded-for": client}), rules)


def through_a_route_of_flask(clients: Iterable[str], peer: str = PROXY) -> None:
    app = flask.Flask("shop")
    FlaskLimits(app=app, agent="memory://", default_limits=[LIMIT])
    app.get("/items/<int:item>")(str)
    asked = app.test_client()
    for client in clients:
        asked.get("/items/7", headers={"X-Forwarded-For": client}, environ_base={"REMOTE_ADDR": peer})


def through_aiohttp(clients: Iterable[str]) -> None:
    async def ask() -> None:
        app = web.Application()
        AiohttpLimits(LIMIT, agent="memory://").install(app)
        async with TestClient(TestServer(app)) as asked:
            for client in clients:
                await asked.get("/", headers={"X-Forwarded-For": client})

    asyncio.run(ask())


THROUGH: Final[dict[str, Callable[[Iterable[str]], None]]] = {
    "ASGI": through_asgi,
    "WSGI": through_wsgi,
    "a guard": through_a_guard_that_calls_a_function,
    "Flask": through_a_route_of_flask,
    "aiohttp": through_aiohttp,
}


def told(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("trusted_proxies=[")


@pytest.mark.parametrize("what", THROUGH)
def test_a_private_address_that_names_many_clients_is_told_of_once(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """With as many refused requests as say it for sure; the first request of all is admitted, and is not counted."""
    caplog.set_level(logging.WARNING, "reconverge")
    proxy = "127.0.0.1" if what == "aiohttp" else PROXY
    THROUGH[what](CLIENTS)
    before = told(caplog)
    THROUGH[what]([*CLIENTS, *CLIENTS, *CLIENTS])

    assert [0, 1] == [before, told(caplog)]
    assert f"{REFUSED_MIN} requests from the private address {proxy} were refused" in caplog.text
    assert f"if the address is that of your proxy, add it: trusted_proxies=[{proxy!r}]" in caplog.text


@pytest.mark.parametrize("peer", ["172.16.0.1", "172.31.255.1", "192.168.7.7", "fd00:1::2", "::1"])
def test_each_private_network_is_known(peer: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of IPv6, the network by which its clients are counted is named."""
    through_wsgi([*CLIENTS, CLIENTS[0]], peer)

    assert 1 == told(caplog)


@pytest.mark.parametrize(
    ("clients", "peer", "settings"),
    [
        ([*CLIENTS, ""], PROXY, {}),
        (["198.51.100.1"] * 2 * REFUSED_MIN, PROXY, {}),
        ([""] * 2 * REFUSED_MIN, PROXY, {}),
        (CLIENTS * 2, "198.51.100.77", {}),
        (CLIENTS * 2, "172.32.0.1", {}),
        (CLIENTS * 2, "2001:db8::1", {}),
        (CLIENTS * 2, PROXY, {"key_func": by_header("x-forwarded-for-key"), "missing": "shared"}),
        (CLIENTS * 2, PROXY, {"key_func": lambda: PROXY}),
        (CLIENTS * 2, PROXY, {"trusted_proxies": ["10.0.0.0/8"]}),
    ],
    ids=["too few", "one client", "none", "public", "beside", "IPv6", "shared", "own key", "trusted"],
)
@pytest.mark.parametrize("through", [through_asgi, through_wsgi])
def test_what_may_be_no_proxy_is_not_told_of(
    through: Any, clients: list[str], peer: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A client with a public address may write any field, and one with a private address names itself."""
    through(clients, peer, **settings)

    assert 0 == told(caplog)


def test_fields_of_an_odd_form_end_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """A server that reports them is at fault; the request is refused as any other, and the failure is counted."""
    app = AsgiMiddleware(hello, LIMIT, agent="memory://")
    answers: list[int] = []

    async def ask() -> None:
        async def send(message: Any) -> None:
            answers.append(message.get("status", 0))

        for headers in ([], [(b"x-forwarded-for",)], [7]):
            scope = {"type": "http", "method": "GET", "path": "/", "client": (PROXY, 1), "headers": headers}
            await app(scope, send, send)  # type: ignore[arg-type]

    asyncio.run(ask())

    assert [200, 429, 429] == [status for status in answers if status]
    assert {"ValueError": 1, "TypeError": 1} == app.guard.stats().failures
    assert 0 == told(caplog)


def test_fields_that_are_an_iterator_are_left_to_the_application(caplog: pytest.LogCaptureFixture) -> None:
    """The application would find none after another reader."""
    app = AsgiMiddleware(hello, LIMIT, agent="memory://")
    left: list[int] = []

    async def ask() -> None:
        async def send(_message: Any) -> None: ...

        for client in CLIENTS * 2:
            headers = iter([(b"x-forwarded-for", client.encode())])
            scope = {"type": "http", "method": "GET", "path": "/", "client": (PROXY, 1), "headers": headers}
            await app(scope, send, send)  # type: ignore[arg-type]
            left.append(len(list(headers)))

    asyncio.run(ask())

    assert [2 * REFUSED_MIN, 0] == [sum(left), told(caplog)]
