"""Goal: in front of a WSGI application a stack refuses what it should, and holds what runs until the body is closed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconverge.errors import InvalidSetting
from reconverge.integrations.shedding import WsgiLoadSheddingMiddleware
from reconverge.shedding import AdaptiveConcurrency, Fixed, LoopLag, Stack, WorkerShedder
from tests.support.applications.asking import ask_wsgi, environment_of, hello_wsgi


def test_an_admitted_request_is_told_how_many_may_run() -> None:
    """Its response has the limit as a policy in units of concurrent requests."""
    stack = Stack(AdaptiveConcurrency(Fixed(3)))
    (answer,) = ask_wsgi(WsgiLoadSheddingMiddleware(hello_wsgi, stack))

    assert (200, b"hello") == (answer.status, answer.body)
    assert '"concurrency";q=3;qu="concurrent-requests"' == answer.headers["ratelimit-policy"]


def test_a_slot_lasts_until_the_body_is_closed() -> None:
    """One runs while a body is made, a second is refused meanwhile, and none runs when the body was closed."""
    layer = AdaptiveConcurrency(Fixed(1))
    answers = []

    def app(environment: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        answers.extend(ask_wsgi(middleware))
        yield b"a"
        yield b"b"

    middleware = WsgiLoadSheddingMiddleware(app, Stack(layer))
    body: Any = middleware(environment_of("/"), lambda *_: None)
    first = next(body)
    body.close()
    (refused,) = answers

    assert b"a" == first
    assert (503, "1") == (refused.status, refused.headers["retry-after"])
    assert ["concurrency"] == json.loads(refused.body)["violated-policies"]
    assert 0 == layer.in_flight


def test_an_application_that_fails_holds_nothing() -> None:
    """Its error is raised, and no slot is left behind."""
    layer = AdaptiveConcurrency(Fixed(1))

    def app(environment: Any, start_response: Any) -> list[bytes]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ask_wsgi(WsgiLoadSheddingMiddleware(app, Stack(layer)))

    assert 0 == layer.in_flight


def test_workers_make_the_default_stack() -> None:
    """With their number alone there are adaptive concurrency and a shedder by how many are busy."""
    middleware = WsgiLoadSheddingMiddleware(hello_wsgi, workers=8)

    assert ["concurrency", "worker"] == [layer.name for layer in middleware.stack.layers]
    assert not middleware.stack.needs_loop


def test_settings_that_make_no_sense_are_told() -> None:
    """Neither or both of stack and workers, and a stack that measures an event loop, are errors that say so."""
    with pytest.raises(InvalidSetting, match="must be given"):
        WsgiLoadSheddingMiddleware(hello_wsgi)
    with pytest.raises(InvalidSetting, match="not both"):
        WsgiLoadSheddingMiddleware(hello_wsgi, Stack(AdaptiveConcurrency()), workers=8)
    with pytest.raises(InvalidSetting, match="an event loop, which WSGI does not have"):
        WsgiLoadSheddingMiddleware(hello_wsgi, Stack(WorkerShedder(LoopLag())))
