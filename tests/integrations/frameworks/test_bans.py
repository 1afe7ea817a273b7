"""Goal: an application that bans says so in its responses, bans no client for another one's requests, and ends bans.

Method: FastAPI and Flask applications that are asked without a server, under a clock that the test moves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import flask
import pytest
from fastapi import Depends, FastAPI

from reconverge import Agent, InvalidSetting
from reconverge.clock import ManualClock
from reconverge.integrations import Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware as ASGILimits
from reconverge.integrations.fastapi import Limits as FastAPILimits
from reconverge.integrations.flask import Limits as FlaskLimits
from tests.support.applications.asking import ADA, BOB, asgi_answer, ask_asgi, ask_wsgi, http_scope, statuses

START_S = 1_750_000_000.0
BAN: dict[str, Any] = {"block_after": "3/minute", "block_for": "10 minutes"}
Ask = Callable[..., list[Any]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_S)


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    return Agent(clock=clock)


def fastapi_application(agent: Agent, **settings: Any) -> Ask:
    """Makes a FastAPI application with one route that bans, and a function that asks it."""
    app, limits = FastAPI(), FastAPILimits(agent)
    limits.install(app)

    @app.get("/", dependencies=[Depends(limits("2/minute", name="login", **BAN, **settings))])
    async def answer() -> str:
        return "here"

    return lambda **request: ask_asgi(app, **request)


def flask_application(agent: Agent, **settings: Any) -> Ask:
    """Makes a Flask application with one view that bans, and a function that asks it."""
    app = flask.Flask(__name__)
    limits = FlaskLimits(app=app, agent=agent)
    app.add_url_rule("/", "root", limits.limit("2/minute", name="login", **BAN, **settings)(lambda: "here"))
    return lambda **request: ask_wsgi(app, **request)


@pytest.fixture(params=[fastapi_application, flask_application], ids=["fastapi", "flask"])
def make_asking(request: pytest.FixtureRequest) -> Callable[..., Ask]:
    make: Callable[..., Ask] = request.param
    return make


def test_a_banned_client_is_told_of_the_ban_and_when_it_ends(
    make_asking: Callable[..., Ask], agent: Agent, clock: ManualClock
) -> None:
    """Problem details and fields name the ban, and Retry-After is its end; another client is served."""
    ask = make_asking(agent)
    ask(times=5)
    clock.advance(100)
    banned = ask()[0]

    assert 429 == banned.status
    assert "500" == banned.headers["retry-after"]
    assert '"login/ban";r=0;t=500' in banned.headers["ratelimit"]
    assert '"login/ban";q=1;w=600, "login";q=2;w=60' == banned.headers["ratelimit-policy"]
    assert ["login/ban"] == json.loads(banned.body)["violated-policies"]
    assert [200] == statuses(ask(client=BOB))


def test_a_hostile_client_is_free_when_the_ban_it_began_ends(
    make_asking: Callable[..., Ask], agent: Agent, clock: ManualClock
) -> None:
    """A client that asks all through its ban is served when that ends, and is banned anew for further refusals."""
    ask = make_asking(agent)
    ask(times=5)
    during = []
    for _ in range(59):
        clock.advance(10)
        during += statuses(ask(times=2))
    clock.advance(10)
    after = statuses(ask(times=5))
    clock.advance(60)

    assert {429} == set(during)
    assert [200, 200, 429, 429, 429] == after
    assert [429] == statuses(ask())


def test_a_client_that_is_believed_about_its_key_can_have_another_one_banned(
    make_asking: Callable[..., Ask], agent: Agent, clock: ManualClock
) -> None:
    """With a key that no one has verified a client bans whichever key it sends: the documents warn of that."""
    ask = make_asking(agent, key_func=by_header("X-User"))
    ask(times=5, x_user="ada")
    clock.advance(60)

    assert [429] == statuses(ask(client=BOB, x_user="ada"))
    assert [200] == statuses(ask(x_user="bob"))


def test_a_forwarding_header_of_a_stranger_bans_no_other_address(make_asking: Callable[..., Ask], agent: Agent) -> None:
    """A client that names another one's address in X-Forwarded-For is banned itself, and not that address."""
    ask = make_asking(agent)
    ask(times=5, x_forwarded_for=BOB)

    assert [429] == statuses(ask())
    assert [200] == statuses(ask(client=BOB))


def test_a_banned_request_is_charged_to_no_limit_of_its_view(clock: ManualClock, agent: Agent) -> None:
    """The charge of another limit is given back when the ban refuses."""
    app = flask.Flask(__name__)
    limits = FlaskLimits(app=app, agent=agent)
    both = limits.limit("50/hour", name="wide")(limits.limit("2/minute", name="login", **BAN)(lambda: "here"))
    app.add_url_rule("/", "root", both)
    ask_wsgi(app, times=5)
    clock.advance(60)

    assert [429] * 20 == statuses(ask_wsgi(app, times=20))
    assert 2 == agent.limiter("wide").usage(ADA).own


@pytest.mark.parametrize("first", ["ban", "slots"])
async def test_a_request_that_waited_for_a_slot_is_refused_if_its_key_was_banned_meanwhile(
    agent: Agent, first: str
) -> None:
    """In either order of the rules: the response is the ban's, no slot is taken, and nothing is charged."""
    let_go = asyncio.Event()
    served: list[str] = []

    async def slow(scope: Any, _receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    single = agent.concurrency("single", 1)
    login = agent.limit("login", "2/minute", **BAN)
    rules = [Rule(limits=login), Rule(limits=single, wait=60.0)]
    app = ASGILimits(slow, rules=rules if first == "ban" else rules[::-1], agent=agent)

    tasks = []
    for path in ("/served", "/waits"):
        tasks.append(asyncio.create_task(asgi_answer(app, http_scope(path))))
        await asyncio.sleep(0)
    while not login.test(ADA).binding.endswith("/ban"):
        login.hit(ADA)
    let_go.set()
    answers = list(await asyncio.gather(*tasks))

    assert [200, 429] == statuses(answers)
    assert ["login/ban"] == json.loads(answers[1].body)["violated-policies"]
    assert "600" == answers[1].headers["retry-after"]
    assert ["/served"] == served
    assert 0 == agent.stats().limits["single"].in_use


def test_a_rule_in_shadow_bans_no_client(make_asking: Callable[..., Ask], agent: Agent) -> None:
    """A client that a rule in shadow has always served is not banned by another rule with the same limit."""
    shadow = make_asking(agent, shadow=True)
    served = statuses(shadow(times=20))
    limits = agent.stats().limits

    assert [200] * 20 == served
    assert 0 == limits["login/refusals"].admitted
    assert 0 == limits["login/ban"].admitted


def test_a_rule_with_a_long_name_bans(agent: Agent) -> None:
    """Names are cut so far that the names of what counts bans fit behind them: a rule's own, and one of a function."""
    guard = FlaskLimits(app=flask.Flask(__name__), agent=agent)

    @guard.limit("2/minute", **BAN)
    def a_view_with_a_name_that_is_much_too_long_for_the_limit_that_it_stands_for() -> None: ...

    guard.limit("2/minute", name="x" * 60, **BAN)(lambda: "here")

    bans = [name for name in agent.stats().limits if name.endswith("/ban")]
    assert 2 == len(bans)


def test_a_rule_with_a_limiter_that_was_declared_before_says_no_ban(agent: Agent) -> None:
    """The ban belongs to the declaration; in the rule it would have no effect, and raises."""
    limiter = agent.limit("login", "2/minute")

    with pytest.raises(InvalidSetting, match="block_for"):
        Rule(limits=limiter, block_after="3/minute", block_for="10 minutes")
