"""Goal: in front of an ASGI application a stack refuses what it should, and holds what runs until its body has ended.

Method: applications are driven message by message, as a server does it; clients go away in the middle.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from reconverge import Agent
from reconverge.errors import InvalidSetting
from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.shedding import AdaptiveConcurrency, Fixed, FleetShedder, RequestRate, Stack, TrafficClasses
from tests.support.applications.asking import asgi_answer, ask_asgi, hello, http_scope, statuses


def stack_of(limit: int) -> tuple[AdaptiveConcurrency, Stack]:
    layer = AdaptiveConcurrency(Fixed(limit))
    return layer, Stack(layer)


def test_an_admitted_request_is_told_how_many_may_run() -> None:
    """Its response has the limit as a policy in units of concurrent requests, and what is left of it."""
    _, stack = stack_of(3)
    (answer,) = ask_asgi(LoadSheddingMiddleware(hello, stack))

    assert (200, b"hello") == (answer.status, answer.body)
    assert '"concurrency";q=3;qu="concurrent-requests"' == answer.headers["ratelimit-policy"]
    assert '"concurrency";r=2' == answer.headers["ratelimit"]


def test_fields_can_be_left_out() -> None:
    """Without them an admitted response is as the application has sent it."""
    _, stack = stack_of(3)
    (answer,) = ask_asgi(LoadSheddingMiddleware(hello, stack, fields=False))

    assert {"content-type": "text/plain"} == answer.headers


def test_what_is_too_much_is_refused_with_503_and_a_wait() -> None:
    """While one of one runs, the next is answered 503 with Retry-After, the layer's name, and problem details."""
    layer, stack = stack_of(1)

    async def run() -> Any:
        release = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await release.wait()
            await hello(scope, receive, send)

        app = LoadSheddingMiddleware(slow, stack)
        first = asyncio.create_task(asgi_answer(app, http_scope("/")))
        await asyncio.sleep(0)
        second = await asgi_answer(app, http_scope("/"))
        release.set()
        return await first, second

    first, second = asyncio.run(run())

    assert [200, 503] == statuses([first, second])
    assert "1" == second.headers["retry-after"]
    assert '"concurrency";q=1;qu="concurrent-requests"' == second.headers["ratelimit-policy"]
    assert '"concurrency";r=0' == second.headers["ratelimit"]
    assert ["concurrency"] == json.loads(second.body)["violated-policies"]
    assert 0 == layer.in_flight


def test_a_slot_lasts_until_the_body_has_ended() -> None:
    """Between two parts of a body one runs; after the last part none does, though the application still works."""
    layer, stack = stack_of(5)
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        seen.append(layer.in_flight)
        await send({"type": "http.response.body", "body": b"b"})
        seen.append(layer.in_flight)

    ask_asgi(LoadSheddingMiddleware(app, stack))

    assert [1, 0] == seen


@pytest.mark.parametrize("error", [RuntimeError, TimeoutError, asyncio.CancelledError])
def test_an_application_that_fails_holds_nothing(error: type[BaseException]) -> None:
    """Its error is raised, and no slot is left behind."""
    layer, stack = stack_of(5)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    with pytest.raises(error):
        ask_asgi(LoadSheddingMiddleware(app, stack))

    assert 0 == layer.in_flight


def test_head_is_refused_without_a_body() -> None:
    """The refusal of a HEAD has the fields of the refusal, and no content."""
    _, stack = stack_of(1)
    stack.enter("")
    (answer,) = ask_asgi(LoadSheddingMiddleware(hello, stack), method="HEAD")

    assert (503, b"") == (answer.status, answer.body)


def test_the_layer_that_refuses_is_said() -> None:
    """A client over its own quota is answered 429 by that layer, and the fleet's 503 is not its fault."""
    agent = Agent("memory://")
    stack = Stack(RequestRate(agent.limit("api", "2/hour")), FleetShedder(agent, "1000/hour"))
    app = LoadSheddingMiddleware(hello, stack, key_func=lambda scope: "ada")
    answers = ask_asgi(app, times=3)

    assert [200, 200, 429] == statuses(answers)
    assert ["api"] == json.loads(answers[2].body)["violated-policies"]
    assert '"api";r=0' in answers[2].headers["ratelimit"]


def test_what_something_else_adds_to_a_refusal_is_in_no_other_response() -> None:
    """The words of a refusal are kept; a middleware outside that adds a field adds it to one response."""
    app = LoadSheddingMiddleware(hello, Stack(FleetShedder(Agent("memory://"), "10/hour", reserved={"critical": 0.9})))

    async def marked(scope: Any, receive: Any, send: Any) -> None:
        async def add(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-trace", b"7"))
            await send(message)

        await app(scope, receive, add)

    before, *_, outside = ask_asgi(marked, times=3)
    after = ask_asgi(app)[0]

    assert [200, 503, 503] == statuses([before, outside, after])
    assert "7" == outside.headers["x-trace"]
    assert [] == [name for name in after.headers if name == "x-trace"]
    assert outside.body == after.body


def test_the_class_of_a_request_comes_from_method_and_header() -> None:
    """A POST, a GET, and a GET that calls itself test traffic are counted by class; none calls itself critical."""
    _, stack = stack_of(5)
    app = LoadSheddingMiddleware(hello, stack)
    ask_asgi(app, method="POST")
    ask_asgi(app, x_traffic_class="critical")
    ask_asgi(app, x_traffic_class="test")

    assert {"critical": 0, "POST": 1, "GET": 1, "test": 1} == stack.stats().admitted


def test_a_classifier_that_fails_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """The request goes on, the failure is counted, and the log has it."""

    def broken(request: Any) -> str:
        raise KeyError("plan")

    app = LoadSheddingMiddleware(hello, Stack(classes=TrafficClasses(classify=broken)))
    (answer,) = ask_asgi(app)

    assert (200, 1) == (answer.status, app.failures)
    assert "went on without load shedding" in caplog.text


def test_what_is_no_request_is_passed_through() -> None:
    """The lifespan reaches the application with the very arguments that the server gave."""
    seen: list[Any] = []

    async def app(*arguments: Any) -> None:
        seen.append(arguments)

    arguments: Any = ({"type": "lifespan"}, object(), object())
    asyncio.run(LoadSheddingMiddleware(app, Stack())(*arguments))

    assert [arguments] == seen


def test_settings_that_make_no_sense_are_told() -> None:
    """A missing or useless key function, no stack, and an application of WSGI are errors that say what to do."""
    agent = Agent("memory://")
    rate = Stack(RequestRate(agent.limit("api", "2/hour")))

    def wsgi(environment: Any, start_response: Any) -> list[bytes]:
        return []

    with pytest.raises(InvalidSetting, match="is missing: the layer 'api'"):
        LoadSheddingMiddleware(hello, rate)
    with pytest.raises(InvalidSetting, match="has no effect"):
        LoadSheddingMiddleware(hello, key_func=lambda scope: "ada")
    with pytest.raises(InvalidSetting, match="is not a Stack"):
        LoadSheddingMiddleware(hello, AdaptiveConcurrency())  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidSetting, match="WsgiLoadSheddingMiddleware"):
        LoadSheddingMiddleware(wsgi)  # type: ignore[arg-type]  # what is tested
