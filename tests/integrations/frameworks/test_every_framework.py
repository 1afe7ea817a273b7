"""Goal: a setting means the same in every framework, whose application says in its own way what it has used.

Method: the smallest application of each framework, asked by clients with keys; then what another worker has used up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp.web
import flask
import pytest
from aiohttp.test_utils import TestClient, TestServer
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings
from fastapi import Depends, FastAPI

from reconverge import Agent
from reconverge.errors import InvalidSetting
from reconverge.integrations import OUTCOME, SPENT, Guard, Outcome, Rule
from reconverge.integrations import aiohttp as of_aiohttp
from reconverge.integrations import asgi as of_asgi
from reconverge.integrations import fastapi as of_fastapi
from reconverge.integrations import flask as of_flask
from reconverge.integrations import wsgi as of_wsgi
from reconverge.usage import Meter
from tests.integrations.frameworks import test_django, test_grpc
from tests.support.applications import django_project
from tests.support.applications.asking import ask_asgi, ask_wsgi
from tests.support.servers import free_port

KEY = "x-api-key"
PATIENT = "ask:10s"
"""Far more than an answer takes; only a failing test waits so long."""
Ask = Callable[..., list[int]]
"""Asks once for each mapping of header fields, of which `method` is none, and returns the statuses."""
Framework = Callable[..., contextlib.AbstractContextManager[Ask]]
"""Makes an application under rules whose limit is called `requests`; each request says that it has used three."""
OF_RULES = ("cost", "exempt_when", "methods", "settle")


def by_key(request: Any) -> Any:
    return request.header(KEY)


async def by_key_slowly(request: Any) -> Any:
    await asyncio.sleep(0)
    return request.header(KEY)


def broken(_request: Any) -> str:
    raise ZeroDivisionError


def split(limits: str, settings: dict[str, Any]) -> tuple[list[Rule], dict[str, Any]]:
    """Returns the settings of the rule, and those of all rules."""
    of_rule = {name: value for name, value in settings.items() if name in OF_RULES}
    others = {name: value for name, value in settings.items() if name not in OF_RULES}
    return [Rule(limits=limits, name="requests", **of_rule)], others


def underscored(fields: dict[str, str]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in fields.items()}


@contextlib.contextmanager
def asgi(limits: str, **settings: Any) -> Iterator[Ask]:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        scope[OUTCOME].spend(3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    rules, others = split(limits, settings)
    app = of_asgi.RateLimitMiddleware(answer, rules=rules, **others)
    yield lambda *requests: [ask_asgi(app, **underscored(fields))[0].status for fields in requests]


@contextlib.contextmanager
def fastapi(limits: str, **settings: Any) -> Iterator[Ask]:
    (rule,), others = split(limits, settings)
    app, declared = FastAPI(), of_fastapi.Limits(**others)
    declared.install(app)
    of_rule = {name: settings[name] for name in OF_RULES if name in settings}
    limited = Depends(declared(rule.limits, name="requests", per_route=False, **of_rule))

    @app.get("/")
    async def answer(outcome: Outcome = limited) -> None:
        outcome.spend(3)

    yield lambda *requests: [ask_asgi(app, **underscored(fields))[0].status for fields in requests]


@contextlib.contextmanager
def wsgi(limits: str, **settings: Any) -> Iterator[Ask]:
    def answer(environment: Any, start_response: Any) -> list[bytes]:
        environment[OUTCOME].spend(3)
        start_response("200 OK", [])
        return [b""]

    rules, others = split(limits, settings)
    app = of_wsgi.RateLimitMiddleware(answer, rules=rules, **others)
    yield lambda *requests: [ask_wsgi(app, **underscored(fields))[0].status for fields in requests]


@contextlib.contextmanager
def flask_view(limits: str, **settings: Any) -> Iterator[Ask]:
    app = flask.Flask(__name__)
    (rule,), others = split(limits, settings)
    declared = of_flask.Limits(app=app, **others)

    def answer() -> str:
        outcome = declared.current_outcome
        assert outcome is not None
        outcome.spend(3)
        return "here"

    of_rule = {name: settings[name] for name in OF_RULES if name in settings}
    app.add_url_rule("/", "root", declared.limit(rule.limits, name="requests", **of_rule)(answer))
    yield lambda *requests: [ask_wsgi(app, **underscored(fields))[0].status for fields in requests]


@contextlib.contextmanager
def aiohttp_handler(limits: str, **settings: Any) -> Iterator[Ask]:
    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        outcome = of_aiohttp.outcome_of(request)
        assert outcome is not None
        outcome.spend(3)
        return aiohttp.web.Response()

    rules, others = split(limits, settings)
    declared = of_aiohttp.Limits(rules=rules, **others)

    async def ask(requests: Sequence[dict[str, str]]) -> list[int]:
        app = aiohttp.web.Application()
        declared.install(app)
        app.router.add_get("/", answer)
        async with TestClient(TestServer(app)) as client:
            return [(await client.get("/", headers=fields)).status for fields in requests]

    yield lambda *requests: asyncio.run(ask(requests))


def django(limits: str, get: Callable[..., Any], **settings: Any) -> Iterator[Ask]:
    of_rule = {name.upper(): settings.pop(name) for name in OF_RULES if name in settings}
    setting = {name.upper(): value for name, value in settings.items()}
    rules = [{"LIMITS": limits, "NAME": "requests", **of_rule}]
    with override_settings(RECONVERGE=setting | {"RULES": rules}):
        WSGIHandler() if get is test_django.sync_get else ASGIHandler()
        yield lambda *requests: [get("/spending/", **fields).status_code for fields in requests]


@contextlib.contextmanager
def django_wsgi(limits: str, **settings: Any) -> Iterator[Ask]:
    yield from django(limits, test_django.sync_get, **settings)


@contextlib.contextmanager
def django_asgi(limits: str, **settings: Any) -> Iterator[Ask]:
    yield from django(limits, test_django.async_get, **settings)


STATUS = {"OK": 200, "RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503}


def grpc(serves: test_grpc.Serves, limits: str, settings: dict[str, Any]) -> Iterator[Ask]:
    rules, others = split(limits, settings)
    with serves(rules=rules, **others) as address:
        yield lambda *requests: [
            STATUS[code]
            for fields in requests
            for code in test_grpc.codes(address, "unary_unary", metadata=tuple(fields.items()))
        ]


@contextlib.contextmanager
def grpc_on_threads(limits: str, **settings: Any) -> Iterator[Ask]:
    yield from grpc(test_grpc.on_threads, limits, settings)


@contextlib.contextmanager
def grpc_in_a_loop(limits: str, **settings: Any) -> Iterator[Ask]:
    yield from grpc(test_grpc.in_a_loop, limits, settings)


ON_THREADS: tuple[Framework, ...] = (wsgi, flask_view, django_wsgi, grpc_on_threads)
IN_LOOPS: tuple[Framework, ...] = (asgi, fastapi, aiohttp_handler, django_asgi, grpc_in_a_loop)
OF_HTTP = tuple(each for each in (*ON_THREADS, *IN_LOOPS) if each not in {grpc_on_threads, grpc_in_a_loop})


def of(frameworks: Sequence[Framework]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("framework", frameworks, ids=lambda each: each.__name__)


EACH = of([*ON_THREADS, *IN_LOOPS])


@EACH
def test_each_key_has_its_own_quota(framework: Framework, agent: Agent) -> None:
    """A client is refused beyond it, and others are not."""
    with framework("2/hour", agent=agent, key_func=by_key) as ask:
        assert [200, 200, 429, 200] == ask({KEY: "a"}, {KEY: "a"}, {KEY: "a"}, {KEY: "b"})


@EACH
def test_an_application_says_itself_what_it_has_used(framework: Framework, agent: Agent) -> None:
    """Of an estimate of ten, three were used, so that a second request fits into fifteen."""
    with framework("15/hour", agent=agent, cost=10, settle=SPENT) as ask:
        assert [200, 200, 429] == ask({}, {}, {})


ROUTES: dict[Framework, str] = {
    flask_view: "root",
    django_wsgi: f"{django_project.HERE}.spending",
    django_asgi: f"{django_project.HERE}.spending",
    grpc_on_threads: "/shop.Orders/unary_unary",
    grpc_in_a_loop: "/shop.Orders/unary_unary",
    fastapi: "/",
    aiohttp_handler: "/",
}
"""The route of the request as each calls it; the bare protocols know of none."""


@EACH
def test_a_meter_comes_to_what_was_charged(framework: Framework, agent: Agent) -> None:
    """For each client and route: what was used of the estimates, and what was refused."""
    meter, route = Meter(), ROUTES.get(framework, "")
    with framework("15/hour", agent=agent, meter=meter, key_func=by_key, cost=10, settle=SPENT) as ask:
        ask({KEY: "a"}, {KEY: "a"}, {KEY: "a"}, {KEY: "b"})

    counted = {tuple(each.key): tuple(each.counts) for each in meter.take()}
    assert {("a", "requests", route): (6, 2, 1), ("b", "requests", route): (3, 1, 0)} == counted


@EACH
@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8", "192.0.2.0/24")], ids=["nobody", "proxy"])
def test_forwarding_fields_are_believed_of_trusted_proxies_only(
    framework: Framework, agent: Agent, trusted: tuple[str, ...]
) -> None:
    """Otherwise a client that makes them up is counted by its own address, every time."""
    forged = [{"x-forwarded-for": f"198.51.100.{number}"} for number in range(3)]
    with framework("2/hour", agent=agent, trusted_proxies=list(trusted)) as ask:
        assert [200, 200, 200 if trusted else 429] == ask(*forged)


@EACH
@pytest.mark.parametrize(
    ("missing", "expected"),
    [("address", [200, 429]), ("shared", [200, 429]), ("exempt", [200, 200]), ("refuse", [429, 429])],
)
def test_requests_without_a_key_are_treated_as_said(
    framework: Framework, agent: Agent, missing: str, expected: list[int]
) -> None:
    """Counted by address, counted together, let pass, or refused."""
    with framework("1/hour", agent=agent, key_func=by_key, missing=missing) as ask:
        assert expected == ask({}, {})


@EACH
@pytest.mark.parametrize(("fail", "expected"), [("open", [200, 429]), ("closed", [503, 503])])
def test_a_function_that_fails_makes_no_request_unlimited(
    framework: Framework, agent: Agent, fail: str, expected: list[int]
) -> None:
    """Open, requests are counted by address; closed, they are refused as such that cannot be checked."""
    with framework("1/hour", agent=agent, key_func=broken, fail=fail) as ask:
        assert expected == ask({}, {})


@of(IN_LOOPS)
def test_a_coroutine_function_is_awaited_in_a_loop(framework: Framework, agent: Agent) -> None:
    """Its keys count apart."""
    with framework("1/hour", agent=agent, key_func=by_key_slowly) as ask:
        assert [200, 200, 429] == ask({KEY: "a"}, {KEY: "b"}, {KEY: "a"})


@of(ON_THREADS)
@pytest.mark.parametrize("setting", ["key_func", "exempt_when"], ids=["of all rules", "of one"])
def test_a_coroutine_function_is_refused_on_threads(framework: Framework, agent: Agent, setting: str) -> None:
    """When it is declared, as nothing would await it."""
    settings: dict[str, Any] = {setting: by_key_slowly}
    wrong = pytest.raises((InvalidSetting, ImproperlyConfigured), match=r"coroutine function|cannot await")
    with wrong, framework("1/hour", agent=agent, **settings):
        raise AssertionError


@of([asgi, wsgi])
def test_methods_are_in_capitals(framework: Framework, agent: Agent) -> None:
    """Some applications take `post` for POST, so a rule about POST does."""
    with framework("1/hour", agent=agent, methods=["POST"]) as ask:
        assert [200, 429] == ask({"method": "POST"}, {"method": "post"})


@of([asgi, fastapi, wsgi, flask_view, aiohttp_handler, grpc_on_threads])
def test_a_guard_comes_with_its_settings(framework: Framework, agent: Agent) -> None:
    """Others beside it would have no effect, and are named."""
    with pytest.raises(InvalidSetting, match="key_func"), framework("1/hour", guard=Guard(agent), key_func=by_key):
        raise AssertionError


@of([asgi, wsgi, flask_view])
@pytest.mark.parametrize("odd", [int, 5, object()], ids=["class", "number", "object"])
def test_a_breach_that_is_answered_with_nothing_usable_is_a_refusal(
    framework: Framework, agent: Agent, odd: object
) -> None:
    """And no error of the server's."""
    with framework("1/hour", agent=agent, on_breach=lambda _outcome: odd) as ask:
        assert [200, 429] == ask({}, {})


@of([asgi, fastapi, wsgi, django_wsgi, django_asgi, aiohttp_handler])
def test_a_response_of_another_framework_is_logged(
    framework: Framework, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """As the function would think that its response is sent."""
    with framework("1/hour", agent=agent, on_breach=lambda _outcome: ("slow down", 429)) as ask:
        assert [200, 429] == ask({}, {})

    assert "the function 'on_breach' failed, and the request is refused" in caplog.text
    assert "returned ('slow down', 429); return " in caplog.text


@of([asgi, fastapi, wsgi, flask_view, aiohttp_handler])
def test_a_message_of_ones_own_can_tell_how_long_to_wait(framework: Framework, agent: Agent) -> None:
    """The outcome has the decision of the limit that refuses, with its numbers."""
    refusals: list[Any] = []

    def note(outcome: Outcome) -> None:
        refusals.append(outcome.decision)

    with framework("1/hour", agent=agent, on_breach=note) as ask:
        assert [200, 429] == ask({}, {})
    [decision] = refusals
    assert (1, 0) == (decision.limit, decision.remaining)
    assert 0 < decision.retry_after <= 2 * 3600


@EACH
def test_a_server_works_without_a_hub_that_answers(framework: Framework) -> None:
    """Nothing listens where the hub should be: all requests are answered, within the limit."""
    with Agent(f"redis://127.0.0.1:{free_port()}/0") as agent, framework("5/hour", agent=agent) as ask:
        assert [200] * 5 + [429] * 2 == ask(*[{}] * 7)


@EACH
@pytest.mark.parametrize(("in_doubt", "expected"), [(PATIENT, 429), ("refuse", 200)], ids=["asks", "trusts"])
def test_what_another_worker_has_used_up_is_refused(
    framework: Framework, used_up: str, in_doubt: str, expected: int
) -> None:
    """Where the application says that it does not ask, a request is admitted on trust."""
    with Agent(used_up) as agent, framework("5/hour", agent=agent, in_doubt=in_doubt) as ask:
        assert [expected] == ask({})
