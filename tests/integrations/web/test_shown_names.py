"""Goal: clients see each quota of a limit, under the name that the application has given, or else by its rate.

Method: limits without a name, with one, and from functions, in four frameworks; the fields and bodies of responses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import flask
import pytest
from fastapi import Depends, FastAPI

from reconverge import Agent, Limit, RateLimiter
from reconverge.integrations import Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from reconverge.testing import ManualClock
from tests.support.applications.asking import ask_asgi, ask_wsgi

Ask = Callable[[], Any]
TWO = "2/minute; 9/hour"


def of_fastapi(agent: Agent, limits: Any, **settings: Any) -> Ask:
    app, declared = FastAPI(), Limits(agent)
    declared.install(app)

    @app.get("/", dependencies=[Depends(declared(limits, **settings))])
    async def secret_view() -> None: ...

    return lambda: ask_asgi(app)[0]


def of_flask(agent: Agent, limits: Any, **settings: Any) -> Ask:
    app = flask.Flask(__name__)
    declared = FlaskLimits(app=app, agent=agent)

    @app.get("/")
    @declared.limit(limits, **settings)
    def secret_view() -> str:
        return ""

    return lambda: ask_wsgi(app)[0]


def of_asgi(agent: Agent, limits: Any, **settings: Any) -> Ask:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return lambda: ask_asgi(RateLimitMiddleware(application, rules=[Rule(limits=limits, **settings)], agent=agent))[0]


def of_wsgi(agent: Agent, limits: Any, **settings: Any) -> Ask:
    def application(environment: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    app = WsgiMiddleware(application, rules=[Rule(limits=limits, **settings)], agent=agent)
    return lambda: ask_wsgi(app)[0]


FRAMEWORKS = [of_fastapi, of_flask, of_asgi, of_wsgi]


@pytest.fixture
def agent() -> Agent:
    return Agent("memory://", clock=ManualClock(start=1_800_000_000))


def names_in(answer: Any) -> set[str]:
    fields = f"{answer.headers['ratelimit-policy']} {answer.headers['ratelimit']}"
    return set(re.findall(r'"([^"]*)"', fields))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_fields_have_the_rest_of_each_quota(agent: Agent, framework: Callable[..., Ask]) -> None:
    """Of the quota that binds first; in a refusal it alone has a time."""
    ask = framework(agent, TWO, name="api")

    admitted, _, refused = ask(), ask(), ask()

    assert ['"api";r=1', '"api#2";r=8'] == re.findall(r'"[^"]*";r=\d+', admitted.headers["ratelimit"])
    assert re.fullmatch(r'"api";r=0;t=\d+, "api#2";r=7', refused.headers["ratelimit"])
    assert ["api"] == json.loads(refused.body)["violated-policies"]


@pytest.mark.parametrize("framework", [of_fastapi, of_flask])
@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (TWO, {"2/minute", "9/hour"}),
        ("2/minute; 9/day as daily", {"2/minute", "daily"}),
        (Limit(2, 62, algorithm="fixed-window"), {"2/62s"}),
        ([Limit(2, 60, algorithm="fixed-window"), "9/second"], {"2/minute", "9/second"}),
        (lambda: TWO, {"2/minute", "9/hour"}),
        (lambda: Limit(2, 60, name="gold"), {"gold"}),
    ],
)
def test_a_limit_without_a_name_is_shown_by_its_rates(
    agent: Agent, framework: Callable[..., Ask], limits: Any, shown: set[str]
) -> None:
    """No client sees the name of a module, of a function or of a key function, or a hash of anything."""
    ask = framework(agent, limits, key_func=by_header("x-secret"))

    assert shown == names_in(ask())
    ask()
    assert set(json.loads(ask().body)["violated-policies"]) <= shown


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("settings", "shown"), [({}, "2/hour"), ({"name": "api"}, "api#2")])
def test_a_refusal_names_the_quota_that_refuses_as_its_fields_do(
    agent: Agent, framework: Callable[..., Ask], settings: dict[str, str], shown: str
) -> None:
    """Also if that is not the first quota of the limit."""
    if framework in (of_asgi, of_wsgi) and not settings:
        shown = "requests#2"
    ask = framework(agent, "9/minute; 2/hour", **settings)

    _, _, refused = ask(), ask(), ask()

    assert f'"{shown}";r=0' in refused.headers["ratelimit"]
    assert [shown] == json.loads(refused.body)["violated-policies"]


def test_a_refusal_names_a_quota_by_its_present_rate(agent: Agent) -> None:
    """An earlier refusal of the same wait had another rate in its body."""
    ask = of_fastapi(agent, Limit(2, 60, algorithm="fixed-window"))
    _, _, before = ask(), ask(), ask()
    (limiter,) = agent.limiters.values()
    assert isinstance(limiter, RateLimiter)
    limiter.change(Limit(1, 60, algorithm="fixed-window"))

    after = ask()

    assert before.headers["retry-after"] == after.headers["retry-after"]
    assert ["2/minute"] == json.loads(before.body)["violated-policies"]
    assert ["1/minute"] == json.loads(after.body)["violated-policies"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_limit_from_a_function_is_shown_by_the_name_of_its_rule(agent: Agent, framework: Callable[..., Ask]) -> None:
    """Whichever limit the function returns."""
    assert {"plan", "plan#2"} == names_in(framework(agent, lambda: TWO, name="plan")())


def test_of_two_limits_of_one_rate_clients_see_the_one_that_binds(agent: Agent) -> None:
    """The other would have the same name and a larger rest."""
    app, limits = FastAPI(), Limits(agent)
    limits.install(app)
    limit = Depends(limits("5/minute"))

    @app.get("/a", dependencies=[limit])
    async def a() -> None: ...

    @app.get("/", dependencies=[limit, Depends(limits("5/minute", key_func=by_header("x"), cost=2))])
    async def b() -> None: ...

    assert [("5/minute", "3")] == re.findall(r'"([^"]*)";r=(\d+)', ask_asgi(app)[0].headers["ratelimit"])
