"""Goal: a request under a limit on what is in progress has its slot until the last of its response was sent.

Method: applications of ASGI and WSGI, with and without FastAPI and Flask, are driven as servers do it, and how many
slots are in use is looked at in the middle of a response; clients go away, applications fail, other limits refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import flask
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from reconverge import Agent, InvalidSetting, SlotLimiter
from reconverge.integrations import RateLimited, Rule
from reconverge.integrations.asgi import RateLimitMiddleware as OfAsgi
from reconverge.integrations.decorators import limited
from reconverge.integrations.fastapi import Limits as OfFastapi
from reconverge.integrations.flask import Limits as OfFlask
from reconverge.integrations.wsgi import RateLimitMiddleware as OfWsgi
from reconverge.usage import Meter
from tests.support.applications.asking import (
    ADA,
    BOB,
    asgi_answer,
    ask_asgi,
    ask_wsgi,
    converse,
    environment_of,
    http_scope,
    statuses,
    websocket_scope,
)


@pytest.fixture
def agent() -> Agent:
    """One that is alone, with two slots for each key."""
    agent = Agent("memory://")
    agent.concurrency("render", 2)
    return agent


@pytest.fixture
def render(agent: Agent) -> SlotLimiter:
    return agent.limiter("render", SlotLimiter)


def in_use(agent: Agent) -> int | None:
    return agent.stats().limits["render"].in_use


def streaming(seen: Callable[[], object]) -> Any:
    """An application that calls `seen` before each of its three messages, and after the last."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        seen()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        seen()
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        seen()
        await send({"type": "http.response.body", "body": b"b"})
        seen()

    return app


def test_a_slot_lasts_until_the_last_message_of_a_body(agent: Agent, render: SlotLimiter) -> None:
    """And not until what the application does after that."""
    found: list[int | None] = []
    ask_asgi(OfAsgi(streaming(lambda: found.append(in_use(agent))), render, agent=agent))

    assert [1, 1, 1, 0] == found


def test_the_third_of_two_requests_is_refused_while_they_last(agent: Agent, render: SlotLimiter) -> None:
    """With the unit that says what is counted, no window, and a Retry-After; the two go on."""
    began = asyncio.Event()

    async def slow(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await began.wait()
        await send({"type": "http.response.body"})

    async def story() -> list[Any]:
        app = OfAsgi(slow, render, agent=agent)
        tasks = [asyncio.create_task(asgi_answer(app, http_scope("/"))) for _ in range(2)]
        await asyncio.sleep(0)
        third = await asgi_answer(app, http_scope("/"))
        began.set()
        return [third, *await asyncio.gather(*tasks)]

    third, *others = asyncio.run(story())

    assert (429, [200, 200]) == (third.status, statuses(others))
    assert '"render";q=2;qu="concurrent-requests"' == third.headers["ratelimit-policy"]
    assert '"render";r=0' == third.headers["ratelimit"]
    assert int(third.headers["retry-after"]) >= 1
    assert 0 == in_use(agent)


async def test_a_request_that_is_cancelled_gives_its_slot_back(agent: Agent, render: SlotLimiter) -> None:
    """A server cancels it when the client has gone away in the middle of a stream."""

    async def endless(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    task = asyncio.create_task(asgi_answer(OfAsgi(endless, render, agent=agent), http_scope("/")))
    await asyncio.sleep(0)
    found = in_use(agent)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert 1 == found
    assert 0 == in_use(agent)
    assert 0 == agent.stats().limits["render"].dropped_slots


def test_an_application_that_fails_gives_its_slot_back(agent: Agent, render: SlotLimiter) -> None:
    """Of ASGI and of WSGI, before either has begun to answer."""

    async def of_asgi(*_: Any) -> None:
        raise KeyError("a mistake")

    def of_wsgi(*_: Any) -> Any:
        raise KeyError("a mistake")

    for _ in range(3):
        with pytest.raises(KeyError):
            ask_asgi(OfAsgi(of_asgi, render, agent=agent))
        with pytest.raises(KeyError):
            ask_wsgi(OfWsgi(of_wsgi, render, agent=agent))

    assert 0 == in_use(agent)


def test_a_websocket_has_its_slot_until_it_is_closed(agent: Agent, render: SlotLimiter) -> None:
    """Messages come and go meanwhile."""
    found: list[int | None] = []

    async def echo(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "a"})
        found.append(in_use(agent))

    asyncio.run(converse(OfAsgi(echo, render, agent=agent), websocket_scope()))

    assert ([1], 0) == (found, in_use(agent))


def test_what_another_limit_refuses_takes_no_slot(agent: Agent, render: SlotLimiter) -> None:
    """In either order of the rules; and what has no slot is not charged to the other limit."""
    rate, slots = Rule(limits="1/minute", name="rate"), Rule(limits=render)
    for client, rules in ((ADA, [rate, slots]), (BOB, [slots, rate])):
        app = OfAsgi(streaming(lambda: None), rules=rules, agent=agent)

        assert [200, 429] == statuses(ask_asgi(app, times=2, client=client))
        assert 0 == in_use(agent)


def test_what_finds_no_slot_is_not_charged_to_a_rate(agent: Agent, render: SlotLimiter) -> None:
    """It would be refused for its rate later on, for nothing."""
    agent.limit("rate", "5/minute")
    app = OfAsgi(streaming(lambda: None), rules=[Rule(limits=agent.limiter("rate")), Rule(limits=render)], agent=agent)
    with render.slot(ADA), render.slot(ADA):
        assert [429, 429] == statuses(ask_asgi(app, times=2))

    assert 0 == agent.limiter("rate").usage(ADA).own


@pytest.mark.parametrize(("order", "expected"), [("fifo", ["one", "two"]), ("lifo", ["two", "one"])])
async def test_requests_wait_for_a_slot_in_the_order_of_their_rule(
    agent: Agent, order: str, expected: list[str]
) -> None:
    """Two wait for the only slot, and the third, for which the queue has no room, is refused at once."""
    single = agent.concurrency("single", 1)
    served: list[str] = []
    let_go = asyncio.Event()

    async def slow(scope: Any, _receive: Any, send: Any) -> None:
        served.append(scope["path"][1:])
        await let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    app = OfAsgi(slow, rules=[Rule(limits=single, wait=30.0, max_queue=2, order=order)], agent=agent)
    tasks = []
    for path in ("/first", "/one", "/two"):
        tasks.append(asyncio.create_task(asgi_answer(app, http_scope(path))))
        await asyncio.sleep(0)
    refused = await asgi_answer(app, http_scope("/three"))
    let_go.set()

    assert [429, 200, 200, 200] == statuses([refused, *await asyncio.gather(*tasks)])
    assert ["first", *expected] == served


def test_a_slot_lasts_until_the_server_closes_the_body(agent: Agent, render: SlotLimiter) -> None:
    """Of WSGI, whether all of it was sent or not."""

    def app(_environment: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"a", b"b"]

    body: Any = OfWsgi(app, render, agent=agent)(environment_of("/"), lambda *_: None)
    next(iter(body))
    assert 1 == in_use(agent)
    body.close()

    assert 0 == in_use(agent)


@pytest.mark.parametrize("streams", [True, False])
def test_a_view_of_flask_has_its_slot_until_the_response_is_closed(
    streams: bool, agent: Agent, render: SlotLimiter
) -> None:
    """Be it a stream or a text; for a view that fails, until its error page is."""
    app = flask.Flask("tests")
    limits = OfFlask(app=app, agent=agent)

    def view() -> Any:
        return flask.Response(iter(["a", "b"])) if streams else "ab"

    def fails() -> Any:
        raise KeyError("a mistake")

    app.add_url_rule("/", view_func=limits.limit(render)(view))
    app.add_url_rule("/fails", view_func=limits.limit(render)(fails))
    body: Any = app(environment_of("/"), lambda *_: lambda _part: None)
    next(iter(body))
    assert 1 == in_use(agent)
    body.close()
    assert 0 == in_use(agent)

    assert [500, 500, 500] == statuses(ask_wsgi(app, "/fails", times=3))
    assert 0 == in_use(agent)


def test_a_dependency_of_fastapi_holds_a_slot_until_a_stream_has_ended(agent: Agent, render: SlotLimiter) -> None:
    """And every route that depends on it counts on its own, as with any limit."""
    app, limits = FastAPI(), OfFastapi(agent)
    limits.install(app)
    found: list[int | None] = []

    @app.get("/", dependencies=[Depends(limits(render))])
    async def stream() -> StreamingResponse:
        async def words() -> AsyncIterator[str]:
            for word in ("a", "b"):
                found.append(in_use(agent))
                yield word

        return StreamingResponse(words())

    assert [200, 200, 200] == statuses(ask_asgi(app, times=3))
    assert [1] * 6 == found
    assert 0 == in_use(agent)


def test_a_dependency_without_the_middleware_takes_no_slot(agent: Agent, render: SlotLimiter) -> None:
    """Nothing would give it back when the response has ended; the error says what to call."""
    app, limits = FastAPI(), OfFastapi(agent)

    @app.get("/", dependencies=[Depends(limits(render))])
    async def answer() -> str:
        return "here"

    with pytest.raises(InvalidSetting, match=r"needs limits\.install"):
        ask_asgi(app)
    assert 0 == in_use(agent)


def test_a_function_has_its_slot_until_it_has_ended(agent: Agent, render: SlotLimiter) -> None:
    """Be it ordinary or a coroutine function, and however it ends; a call too many raises RateLimited."""
    depth = 0

    @limited(render)
    def call() -> int | None:
        nonlocal depth
        depth += 1
        return in_use(agent) if depth == 2 else call()

    @limited(render)
    async def fail() -> None:
        raise KeyError("a mistake")

    assert 2 == call()
    depth = -5
    with pytest.raises(RateLimited, match="'render'"):
        call()
    for _ in range(3):
        with pytest.raises(KeyError):
            asyncio.run(fail())
    assert 0 == in_use(agent)


def test_a_generator_cannot_be_given_a_slot_by_its_call(render: SlotLimiter) -> None:
    """Its work begins when the call has ended; the error says where the slot can be taken."""
    with pytest.raises(InvalidSetting, match="take the slot within it"):

        @limited(render)
        def parts() -> Iterator[int]:
            yield 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"limits": "20 in flight", "settle": lambda _response: 1}, "settle.*no effect"),
        ({"limits": "20 in flight", "deduct_when": lambda _response: True}, "deduct_when.*no effect"),
        ({"limits": "20 in flight", "cost": 21}, "more than 20"),
        ({"limits": "20/minute", "wait": 1.0}, "limits a rate"),
        ({"limits": "20 in flight", "max_queue": 3}, "add wait="),
        ({"limits": "20 in flight", "wait": 1.0, "order": "random"}, "fifo"),
        ({"limits": "20 in flight", "wait": -1.0}, "must be the number of seconds"),
    ],
)
def test_a_setting_that_has_no_effect_on_slots_is_refused(settings: dict[str, Any], problem: str, agent: Agent) -> None:
    """When the rule is made, or when it is declared."""
    with pytest.raises(InvalidSetting, match=problem):
        OfAsgi(streaming(lambda: None), rules=[Rule(**settings)], agent=agent)


def test_a_meter_counts_a_request_that_had_a_slot(agent: Agent, render: SlotLimiter) -> None:
    """Once, although the slot is given back; and what is refused by another limit costs nothing."""
    meter = Meter()
    rules = [Rule(limits=render), Rule(limits="2/minute", name="rate")]
    ask_asgi(OfAsgi(streaming(lambda: None), rules=rules, agent=agent, meter=meter), times=3)
    cost, _, refused = map(sum, zip(*[each.counts for each in meter.take() if each.key.limit == "render"], strict=True))

    assert (2, 1) == (cost, refused)
