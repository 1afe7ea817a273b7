"""Goal: a dependency finds its key in the scope and makes no object; what turns up late is settled all the same.

Method: what is made is noted; what is answered is compared with what was recorded, by the corpus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
import pytest
from starlette.routing import Route

from reconverge import Agent
from reconverge.integrations import Guard, Outcome
from reconverge.integrations.asgi import AsgiRequest
from reconverge.integrations.asgi import sending as of_asgi
from reconverge.integrations.asgi.routes import route_of
from reconverge.integrations.asgi.sending import BEGINNING, Decided, Sending, serve_deciding
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.pipeline import Admitted, RefusedByOne
from tests.integrations.corpus.of_fastapi import KEY_FUNCTIONS
from tests.integrations.finders.made import made_of
from tests.support.applications.asking import asgi_answer, http_scope


async def serve_generally(app: Any, scope: Any, receive: Any, send: Any, decided: Decided) -> None:
    """Serves an application whose requests may leave something to settle."""
    await Sending(send, decided).serve(app, scope, receive)


def test_a_route_that_is_known_by_another_pattern_is_not_told_by_that() -> None:
    """One object may stand for several: what was found for one path holds for those that its pattern is about."""
    for pattern, about in [("/here", "/here"), ("/items/{number}", "/items/1")]:
        route, paths = Route(pattern, _endpoint), (about, "/elsewhere", about, "/elsewhere", pattern)
        told = [route_of({"route": route, "path": path, "endpoint": _endpoint}) for path in paths]

        assert [*[pattern, f"{pattern}#{__name__}._endpoint"] * 2, pattern] == told


async def _endpoint(_request: Any) -> Any:
    return None


async def _endpoint_without_request() -> str:
    return "hello"


# -------------------------------------------------------------------- what is not to be done


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects that were made for requests, or to send their responses."""
    return made_of(monkeypatch, AsgiRequest, of_asgi.Sending)


@pytest.mark.parametrize("key_func", KEY_FUNCTIONS[:-1])
@pytest.mark.parametrize("parts", [{}, {"scope": "web"}, {"per_route": False}])
def test_for_a_request_that_says_its_key_no_object_is_made(
    key_func: Any, parts: dict[str, Any], made: list[Any]
) -> None:
    """Admitted, and refused."""
    limits, app = Limits("memory://"), fastapi.FastAPI()
    limits.install(app)
    limited = fastapi.Depends(limits("1/minute", key_func=key_func, **parts))
    app.get("/", dependencies=[limited])(_endpoint_without_request)
    scopes = [{**http_scope("/", x_key="ada"), "user": "ada"} for _ in range(2)]
    statuses = [asyncio.run(asgi_answer(app, scope)).status for scope in scopes]

    assert [200, 429] == statuses
    assert [Admitted, RefusedByOne] == [type(scope[OUTCOME]) for scope in scopes]
    assert [] == made


# -------------------------------------------------------------------- what is decided when the response has begun


class _Settles(Outcome):
    """An outcome that notes what it is settled with."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.seen = list[Any]()

    @property
    def unsettled(self) -> bool:
        return True

    def finish(self, response: Any, *, spent: bool = True) -> None:
        self.seen.append(response)


@pytest.mark.parametrize("when", ["before", "begun", "between", "at the end"])
@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("kind", [BEGINNING, "websocket.accept"])
def test_what_turns_up_late_is_settled_as_ever(when: str, ends: str, kind: str) -> None:
    """With the status and the fields that the application has begun with."""
    messages: list[dict[str, Any]] = [
        {"type": kind, "status": 201, "headers": [(b"X-Own", b"1")]},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"three"},
    ]
    served: list[Callable[..., Awaitable[None]]] = [serve_deciding, serve_generally]
    results = list[Any]()
    for serve in served:
        decided, outcome, sent = Decided(), _Settles(Guard(Agent("memory://"))), list[Any]()

        async def app(
            _scope: Any, _receive: Any, send: Any, decided: Decided = decided, outcome: _Settles = outcome
        ) -> None:
            for at, message in enumerate(messages):
                if at == ["before", "begun", "between"].index(when) if when != "at the end" else False:
                    decided.add(outcome)
                await send(message)
            if when == "at the end":
                decided.add(outcome)
            if ends == "badly":
                raise RuntimeError(ends)

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        try:
            asyncio.run(serve(app, {}, None, send, decided))  # type: ignore[arg-type]
        except RuntimeError as error:
            sent.append(repr(error))
        results.append((sent, outcome.seen))

    assert results[1] == results[0]
    assert results[0][1]
