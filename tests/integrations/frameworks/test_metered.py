"""Goal: a meter that a framework's guard is given comes to what the limits have charged, by identity, limit and route.

Method: frameworks that ask their limits in more than one step, on a real Redis; requests of two clients that succeed,
stream, lead nowhere, fail, are cancelled and are refused, with costs that their responses decide. Then the meter's
totals beside what the hub knows to have been charged in all, less what was given back. All other frameworks are in
`test_every_framework.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import fastapi
import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.test import Client, override_settings

from reconverge import Agent
from reconverge.hub.usage import Counts, UsageKey
from reconverge.integrations import SPENT, Outcome, Rule, by_header
from reconverge.integrations import aiohttp as for_aiohttp
from reconverge.integrations import asgi as for_asgi
from reconverge.integrations import fastapi as for_fastapi
from reconverge.integrations.decorators import limited
from reconverge.integrations.web.outcome import RateLimited
from reconverge.usage.meter import Meter
from tests.support.agents import net_at
from tests.support.applications import django_project
from tests.support.applications.asking import converse, http_scope, websocket_scope
from tests.support.servers import RedisServer

KEY = "x-api-key"
REQUESTS, TOKENS = "requests", "tokens"
ALL: list[str] = ["/ok/1", "/stream", "/lost/7", "/broken", "/ok/2"]
"""The requests of each client, three times over: 15, of which a few are refused by the end."""


class MeteredShop:
    """An agent on a real hub, and a meter; both are to come to the same."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.meter = Meter()
        self.agent = Agent(url, sync_interval=0.05, in_doubt="ask:2s")
        self.settings: dict[str, Any] = {
            "agent": self.agent,
            "meter": self.meter,
            "key_func": by_header(KEY),
            "missing": "refuse",
        }
        self.rules = [
            Rule(limits="10/hour", name=REQUESTS, deduct_when=lambda response: response.status != 404),
            Rule(limits="90/hour", name=TOKENS, cost=10, settle=lambda response: 3 + response.bytes_sent % 5),
        ]
        self.statuses: Counter[int] = Counter()
        self._counts: dict[UsageKey, Counts] = {}

    def counts(self) -> dict[UsageKey, Counts]:
        for each in self.meter.take():
            before = self._counts.get(each.key, Counts(0, 0, 0))
            self._counts[each.key] = Counts(*(one + other for one, other in zip(before, each.counts, strict=True)))
        return self._counts

    def sums(self, limit: str) -> Counts:
        found = [counts for key, counts in self.counts().items() if key.limit == limit]
        return Counts(*map(sum, zip(*found, strict=True))) if found else Counts(0, 0, 0)

    def charged(self, limit: str) -> int:
        """Returns the hub's charges, less refunds; the agent has ended."""
        self.agent.stop()
        return net_at(self.url, limit)

    def check(self, refused: int) -> None:
        """Totals are what was charged; and each request was admitted or refused."""
        served = sum(self.statuses.values()) - refused
        assert refused > 0
        for limit in (REQUESTS, TOKENS):
            cost = self.charged(limit)
            assert Counts(cost, served, refused) == self.sums(limit), limit
            assert cost > 0, limit
        assert {"ada", "bob"} == {key.identity for key in self.counts()}


@pytest.fixture
def shop(redis_server: RedisServer) -> Iterator[MeteredShop]:
    found = MeteredShop(redis_server.url)
    with found.agent:
        yield found


def asked() -> Iterator[tuple[str, str]]:
    """Which client asks for what, in turn."""
    for path in ALL * 3:
        for client in ("ada", "bob"):
            yield client, path


def routes(shop: MeteredShop, limit: str = TOKENS) -> set[str]:
    """Those that something was counted by."""
    return {key.route for key in shop.counts() if key.limit == limit}


# -------------------------------------------------------------------- ASGI by itself


async def of_asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/broken":
        raise ZeroDivisionError
    await send({"type": "http.response.start", "status": 404 if "lost" in scope["path"] else 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await asyncio.Event().wait() if scope["path"] == "/stream" else None
    await send({"type": "http.response.body", "body": b"bc"})


async def over_http(shop: MeteredShop, app: Any, paths: Iterator[tuple[str, str]]) -> None:
    """Ask as a client does; one that is answered by an error counts as 500."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for name, path in paths:
            shop.statuses[(await client.get(path, headers={KEY: name})).status_code] += 1


async def leave(app: Any, path: str, **headers: str) -> bool:
    """Ask, and go away once the response has begun; whether it was admitted."""
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.set_result(message["status"])

    task = asyncio.ensure_future(app(http_scope(path, **headers), asyncio.Event().wait, send))
    status = await begun
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return status == 200


def test_asgi_with_clients_that_leave(shop: MeteredShop) -> None:
    """A response that its client leaves is settled by what was sent, and counted so."""
    app = for_asgi.RateLimitMiddleware(of_asgi, rules=shop.rules, **shop.settings)

    async def ask() -> None:
        for client, path in asked():
            if path == "/stream":
                shop.statuses[200 if await leave(app, path, x_api_key=client) else 429] += 1
            else:
                await over_http(shop, app, iter([(client, path)]))

    asyncio.run(ask())
    shop.check(refused=shop.statuses[429])


def test_the_messages_of_a_websocket(shop: MeteredShop) -> None:
    """Each counts by its own limit, and the connection by those of requests; the last message is refused."""

    async def listen(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass

    messages = Rule(limits="4/hour", name="messages")
    app = for_asgi.RateLimitMiddleware(listen, rules=shop.rules, messages=messages, **shop.settings)
    asyncio.run(converse(app, websocket_scope(x_api_key="ada"), *["hello"] * 9))

    assert 4 == shop.charged("messages")
    assert Counts(4, 4, 1) == shop.sums("messages")
    assert Counts(1, 1, 0) == shop.sums(REQUESTS)


# -------------------------------------------------------------------- FastAPI


def of_fastapi(shop: MeteredShop, app: fastapi.FastAPI, **limits_of_tokens: Any) -> None:
    """Give an application of FastAPI limits, and routes that depend on these; two limits are asked one by one."""
    limits = for_fastapi.Limits(**shop.settings)
    limits.install(app)
    by_requests = fastapi.Depends(
        limits("10/hour", name=REQUESTS, scope="all", deduct_when=lambda response: response.status != 404)
    )
    tokens = limits("90/hour", name=TOKENS, scope="all", cost=10, settle=SPENT)
    both = [by_requests, fastapi.Depends(tokens)]

    @app.get("/ok/{number}", dependencies=both)
    async def item(number: int, budget: Annotated[Outcome, fastapi.Depends(tokens)]) -> int:
        budget.spend(2 * number)
        return number

    @app.get("/lost/{number}", dependencies=both)
    async def lost(number: int) -> None:
        raise fastapi.HTTPException(404)

    @app.get("/broken", dependencies=both)
    async def broken() -> None:
        raise ZeroDivisionError

    @app.get("/stream", dependencies=both)
    async def stream(budget: Annotated[Outcome, fastapi.Depends(tokens)]) -> fastapi.responses.StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(13):  # more than the estimate
                budget.spend(1)
                yield b"a"

        return fastapi.responses.StreamingResponse(parts())


def test_fastapi_asks_its_limits_one_by_one(shop: MeteredShop) -> None:
    """A request that a later limit refuses is taken back from an earlier one, and counts as refused by both."""
    app = fastapi.FastAPI()
    of_fastapi(shop, app)
    asyncio.run(over_http(shop, app, asked()))

    refused = shop.statuses[429]
    assert refused > 0
    assert shop.charged(REQUESTS) == shop.sums(REQUESTS).cost
    assert shop.charged(TOKENS) == shop.sums(TOKENS).cost
    assert sum(shop.statuses.values()) - refused == shop.sums(REQUESTS).requests == shop.sums(TOKENS).requests
    assert refused == shop.sums(REQUESTS).refused
    assert {"/ok/{number}", "/lost/{number}", "/broken", "/stream"} == routes(shop)


def test_a_middleware_finds_the_routes_of_the_application_below(shop: MeteredShop) -> None:
    """Their patterns; and all paths that lead nowhere are one route, the empty one."""
    app = fastapi.FastAPI()

    @app.get("/ok/{number}")
    async def item(number: int) -> int:
        return number

    limited_app = for_asgi.RateLimitMiddleware(app, "100/hour", **shop.settings)
    hostile = [("ada", f"/.env{number}") for number in range(30)]
    asyncio.run(over_http(shop, limited_app, iter([("ada", "/ok/1"), ("ada", "/ok/2"), *hostile])))

    assert {"/ok/{number}": 2, "": 30} == {key.route: counts.cost for key, counts in shop.counts().items()}


# -------------------------------------------------------------------- Django and aiohttp


def test_django(shop: MeteredShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is the name of the view, and what leads nowhere has none. The meter may be a dotted path."""
    monkeypatch.setattr(django_project, "METER", shop.meter, raising=False)
    setting = {name.upper(): value for name, value in shop.settings.items()}
    setting["METER"] = f"{django_project.__name__}.METER"
    rules = [
        {"LIMITS": "10/hour", "NAME": REQUESTS, "DEDUCT_WHEN": lambda response: response.status_code != 404},
        {"LIMITS": "90/hour", "NAME": TOKENS, "COST": 10, "SETTLE": django_project.settle},
    ]
    with override_settings(RECONVERGE=setting | {"RULES": rules}):
        client = Client(raise_request_exception=False)
        for name, path in [(name, path) for path in DJANGO * 3 for name in ("ada", "bob")]:
            response = client.get(path, headers={KEY: name})
            b"".join(response.streaming_content) if response.streaming else None
            response.close()
            shop.statuses[response.status_code] += 1

    shop.check(refused=shop.statuses[429])
    assert "" in routes(shop)


DJANGO = ["/", "/count/3/", "/no-such-view/", "/broken/", "/"]


def test_aiohttp(shop: MeteredShop) -> None:
    """The route is the pattern of the resource; limits of a handler are asked after those of the middleware."""
    limits = for_aiohttp.Limits(rules=shop.rules[:1], **shop.settings)

    @limits.limit("90/hour", name=TOKENS, cost=10, settle=lambda response: 3 + response.status // 200)
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/broken":
            raise ZeroDivisionError
        if request.path == "/stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"abc")
            return response
        return web.Response(status=404 if "lost" in request.path else 200)

    async def ask() -> None:
        app = web.Application()
        limits.install(app)
        app.add_routes([web.get(path, handler) for path in ("/ok/{n}", "/lost/{n}", "/broken", "/stream")])
        async with TestClient(TestServer(app)) as client:
            for name, path in asked():
                async with client.get(path, headers={KEY: name}) as response:
                    await response.read()
                    shop.statuses[response.status] += 1

    asyncio.run(ask())
    refused = shop.statuses[429]
    assert refused > 0
    assert (shop.charged(REQUESTS), shop.charged(TOKENS)) == (shop.sums(REQUESTS).cost, shop.sums(TOKENS).cost)
    assert sum(shop.statuses.values()) - refused == shop.sums(REQUESTS).requests == shop.sums(TOKENS).requests
    assert {"/ok/{n}", "/lost/{n}", "/broken", "/stream"} == routes(shop)


def test_functions(shop: MeteredShop) -> None:
    """Calls are counted by their key; what is refused costs nothing."""
    settings: dict[str, Any] = {"agent": shop.agent, "key": lambda name: name, "meter": shop.meter}

    @limited("9/hour", name="charge", cost=2, in_doubt="ask:2s", **settings)
    def charge(name: str) -> None:
        pass

    @limited("9/hour", name="slow", wait=0, **settings)
    async def slow(name: str) -> None:
        pass

    refused = 0
    for _ in range(6):
        for name in ("ada", "bob"):
            try:
                charge(name)
            except RateLimited:
                refused += 1
            with contextlib.suppress(RateLimited):
                asyncio.run(slow(name))

    cost = shop.charged("charge")
    assert (4, 16) == (refused, cost)
    assert Counts(16, 8, 4) == shop.sums("charge")
    assert shop.charged("slow") == shop.sums("slow").cost
