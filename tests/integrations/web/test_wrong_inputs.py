"""Goal: what is written wrongly in an application is an error that says what to write, or is told of once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, cast

import pytest
from django.utils.functional import SimpleLazyObject
from fastapi import APIRouter, Depends, FastAPI
from flask import Flask
from flask.views import MethodView

from reconverge import Agent, InvalidSetting
from reconverge.integrations import Guard, PlainRequest, Rule, by_header, by_ip, by_path_parameter
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.decorators import limited
from reconverge.integrations.django import limit as django_limit
from reconverge.integrations.fastapi import Limits as FastapiLimits
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge.integrations.grpc import RateLimitInterceptor
from reconverge.integrations.web.request.request import Response
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.applications.asking import ask_asgi, statuses

Make = Callable[[Agent], object]

PATHS: Final = {
    "/users/:id": "write {id}",
    "/users/{user_id": "write {user_id}",
    "/users/user_id}": "write {user_id}",
    "/users/[id]": "write {id}",
    "/users/<id": "write {id}",
    "/log**in": "star that is not at the end",
    "/*/login": "star that is not at the end",
    "/us//ers": "write '/us/ers'",
    "https://shop.example/users": "does not begin with a slash",
}
METHODS: Final = {"GTE": "'GET'", "psot": "'POST'", "DELET": "'DELETE'", "GET ": "is not a valid method"}
FASTAPI: Any = FastapiLimits
FLASK: Any = FlaskLimits
ASGI: Any = AsgiMiddleware
WSGI: Any = WsgiMiddleware
AIOHTTP: Any = AiohttpLimits
DJANGO: Any = django_limit
RULE: Any = Rule
LIMITED: Any = limited
GUARD: Any = Guard
HEADER: Any = by_header


def nothing() -> str:
    return "no"


async def asgi_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application that answers nothing."""


def wsgi_app(_environment: Any, _start_response: Any) -> list[bytes]:
    return []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_whose_value_is_written_otherwise_is_an_error(path: str) -> None:
    """It would be a text that no path has, and limit nothing; the message says how values are written."""
    guard = Guard(Agent())

    with pytest.raises(InvalidSetting) as caught:
        guard.declare(Rule(limits="2/minute", paths=[path]))

    assert PATHS[path] in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["/users/{id}", "/users/<int:id>", "/v1/items:batch", "/{a}.{b}", "/x/{id:[0-9]{2}}", "/u/(?P<id>[0-9]+)/", "/*"],
)
def test_a_path_that_a_router_knows_is_none(path: str) -> None:
    """In the words of Starlette, Flask, aiohttp and Django."""
    assert Guard(Agent()).declare(Rule(limits="2/minute", paths=[path])).places is not None


@pytest.mark.parametrize("method", METHODS)
def test_a_misspelt_method_is_an_error(method: str) -> None:
    """It would limit nothing; the message says which one is meant."""
    with pytest.raises(InvalidSetting) as caught:
        Rule(limits="2/minute", methods=[method])

    assert METHODS[method] in str(caught.value)


@pytest.mark.parametrize("method", ["get", "PROPFIND", "UNLOCK", "QUERY", "WEBSOCKET", "PURGE", "REPORT", "LIST"])
def test_a_method_that_is_in_use_is_none(method: str) -> None:
    """Applications may have methods of their own."""
    assert [method] == Rule(limits="2/minute", methods=[method]).methods


@pytest.mark.parametrize("name", ["x api key", "x-api-key:", "clé", "a\nb"])
def test_a_header_field_that_cannot_be_is_an_error(name: str) -> None:
    """All requests would be counted by address."""
    with pytest.raises(InvalidSetting, match="not a valid name of a header field"):
        by_header(name)


@pytest.mark.parametrize("setting", ["exempt_when", "request_filter"])
def test_a_text_does_not_exempt_a_request(setting: str, caplog: pytest.LogCaptureFixture) -> None:
    """Any text would be true, "no" as well: such requests are limited, and that is said."""
    guard = Guard(Agent())
    exempt: dict[str, Any] = {"exempt_when": nothing} if setting == "exempt_when" else {}
    if setting == "request_filter":
        guard.request_filter(nothing)
    declared = guard.declare(Rule(limits="1/minute", **exempt))
    answers = [guard.check(PlainRequest(client="192.0.2.1"), [declared]).allowed for _ in range(2)]

    assert [True, False] == answers
    assert "answer='no': is text, where True or False is expected" in caplog.text


class Anonymous:
    """A user of a framework: each object is true."""


def proxy_of(user: object) -> Any:
    """Returns an object that stands for `user`, as the user of Django's request does."""
    return SimpleLazyObject(lambda: user)


@pytest.mark.parametrize("user", [Anonymous(), Anonymous, proxy_of(Anonymous())], ids=["object", "class", "proxy"])
def test_an_object_that_is_always_true_does_not_exempt_a_request(user: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An anonymous user is as true as any other. The log names the class, as a user's text may be a name."""
    guard = Guard(Agent())
    declared = guard.declare(Rule(limits="1/minute", exempt_when=lambda: user))
    answers = [guard.check(PlainRequest(client="192.0.2.1"), [declared]).allowed for _ in range(3)]

    assert [True, False, False] == answers
    assert 1 == caplog.text.count("all objects of which are true; return True or False, as user.is_staff is")
    assert "exempt_when <lambda>" in caplog.text


@pytest.mark.parametrize("answer", [True, 1, 1.5, [0], {"staff"}, re.match("a", "a")])
def test_an_answer_that_may_be_false_exempts_a_request(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    """A number or a container that may be empty; `re.match` returns None if nothing matches."""
    guard = Guard(Agent())
    declared = guard.declare(Rule(limits="1/minute", exempt_when=lambda: answer))
    answers = [guard.check(PlainRequest(client="192.0.2.1"), [declared]).allowed for _ in range(3)]

    assert [True, True, True] == answers
    assert "" == caplog.text


def test_a_message_that_is_no_text_when_it_is_made_is_replaced_by_the_usual_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And told of. A text that is translated later is an object with a text of its own, which is sent."""

    class Later:
        def __str__(self) -> str:
            return "slow down"

    guard = Guard(Agent())
    details = []
    for number, message in enumerate([lambda: {"code": 1}, Later()]):
        declared = guard.declare(Rule(limits="1/minute", name=f"n{number}", error_message=cast("Any", message)))
        refusal = [guard.check(PlainRequest(client="192.0.2.1"), [declared]).refusal for _ in range(2)][1]
        details.append(refusal and refusal.detail)

    assert "The quota n0 is used up. Try again in" in str(details[0])
    assert "slow down" == details[1]
    assert "error_message={'code': 1}: is no text; write one" in caplog.text


def test_a_path_parameter_that_is_never_there_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """By what the application has written."""
    guard = Guard(Agent())
    declared = guard.declare(Rule(limits="99/minute", key_func=by_path_parameter("id")))
    for number in range(10):
        guard.check(PlainRequest(client="192.0.2.1", path_parameters={"user_id": number}), [declared])

    assert "by_path_parameter.id has found no key in any of the first 10 requests" in caplog.text


WRONG: Final[dict[str, tuple[Make, str]]] = {
    "fastapi namespace": (lambda agent: FASTAPI(agent, namespace="x"), "setting of Agent"),
    "fastapi policy": (lambda _: FASTAPI(policy="strict"), "policy='strict')"),
    "fastapi hub": (lambda _: FASTAPI(hub="memory://"), "is called agent here"),
    "fastapi default_limits": (
        lambda agent: FASTAPI(agent, default_limits=["1/day"]),
        "FastAPI(dependencies=[Depends(",
    ),
    "fastapi key_fun": (lambda agent: FASTAPI(agent, key_fun=by_ip), "did you mean 'key_func'"),
    "fastapi key_fnc": (lambda agent: FASTAPI(agent)("1/day", key_fnc=by_ip), "did you mean 'key_func'"),
    "fastapi dialect": (lambda agent: FASTAPI(agent)("1/day", dialect="x"), "of all limits together"),
    "fastapi cost": (lambda agent: FASTAPI(agent, cost=2), "is a setting of one limit"),
    "flask namespace": (lambda agent: FLASK(agent=agent, namespace="x"), "namespace='x')"),
    "flask key_fun": (lambda agent: FLASK(agent=agent, key_fun=by_ip), "did you mean 'key_func'"),
    "flask key_fnc": (lambda agent: FLASK(agent=agent).limit("1/day", key_fnc=by_ip), "'key_func'"),
    "flask strategy": (lambda agent: FLASK(agent=agent, strategy="moving-window"), "algorithm="),
    "asgi namespace": (lambda agent: ASGI(asgi_app, "1/day", agent=agent, namespace="x"), "of Agent"),
    "asgi nonsense": (lambda agent: ASGI(asgi_app, "1/day", agent=agent, zzz=1), "known: "),
    "wsgi namespace": (lambda agent: WSGI(wsgi_app, "1/day", agent=agent, namespace="x"), "of Agent"),
    "aiohttp hub": (lambda _: AIOHTTP(hub="memory://"), "is called agent here"),
    "aiohttp key_fnc": (lambda agent: AIOHTTP(agent=agent).limit("1/day", key_fnc=by_ip), "'key_func'"),
    "django key_fnc": (lambda _: DJANGO("1/day", key_fnc=by_ip), "did you mean 'key_func'"),
    "fastapi limits beside the hub": (lambda agent: FASTAPI(agent, "5/minute"), "write Depends(limits('5/minute'))"),
    "fastapi shared by nothing": (lambda agent: FASTAPI(agent).shared_limit("1/day"), "scope='search'"),
    "flask shared by nothing": (lambda agent: FLASK(agent=agent).shared_limit("1/day"), "scope='search'"),
    "flask around fastapi": (lambda agent: FLASK(app=FastAPI(), agent=agent), "not a Flask application"),
    "a rule without a name": (lambda _: RULE("5/minute"), "write Rule(limits=...)"),
    "a rule without limits": (lambda _: RULE(name="x"), "write Rule(limits=...)"),
    "a rule's limit": (lambda _: RULE(limit="5/minute"), "did you mean 'limits'?"),
    "a rule's path": (lambda _: RULE(limits="5/minute", path="/x"), "did you mean 'paths'?"),
    "limited waitt": (lambda agent: LIMITED("1/day", agent=agent, waitt=1), "did you mean 'wait'?"),
    "limited at a hub": (lambda _: LIMITED("1/day", agent="redis://host"), "agent = Agent('redis://localhost"),
    "fastapi limits None": (lambda agent: FASTAPI(agent)(None), "is neither a limit string such as '100/minute'"),
    "fastapi limits 5": (lambda agent: FASTAPI(agent).limit(5), "is neither a limit string such as '100/minute'"),
    "fastapi decorator above": (lambda agent: FASTAPI(agent)("1/day")(nothing), "not a decorator; write @app.get(path"),
    "fastapi decorator below": (
        lambda agent: FastAPI().get("/")(FASTAPI(agent).limit("1/day")(nothing)),
        "dependencies=[Depends(limits('5/minute'))]",
    ),
    "fastapi without Depends": (
        lambda agent: FastAPI().get("/", dependencies=[FASTAPI(agent)("1/day")])(nothing),
        "is listed without Depends",
    ),
    "fastapi Depends(limits)": (
        lambda agent: FastAPI().get("/", dependencies=[Depends(FASTAPI(agent))])(nothing),
        "write Depends(limits('5/minute'))",
    ),
    "fastapi router": (lambda agent: FASTAPI(agent).install(APIRouter()), "is not a FastAPI application; for routers"),
    "aiohttp application": (lambda agent: AIOHTTP(agent=agent).install("app"), "write limits.install(app)"),
    "asgi around wsgi": (
        lambda agent: ASGI(wsgi_app, "1/day", agent=agent),
        "wrap it in RateLimitMiddleware of reconverge.integrations.wsgi",
    ),
    "asgi around flask": (
        lambda agent: ASGI(Flask("x"), "1/day", agent=agent),
        "wrap it in RateLimitMiddleware of reconverge.integrations.wsgi",
    ),
    "wsgi around asgi": (
        lambda agent: WSGI(asgi_app, "1/day", agent=agent),
        "wrap it in RateLimitMiddleware of reconverge.integrations.asgi",
    ),
    "wsgi around fastapi": (
        lambda agent: WSGI(FastAPI(), "1/day", agent=agent),
        "wrap it in RateLimitMiddleware of reconverge.integrations.asgi",
    ),
    "asgi without limits": (lambda agent: ASGI(asgi_app, agent=agent), "nothing is limited"),
    "wsgi without limits": (lambda agent: WSGI(wsgi_app, agent=agent), "nothing is limited"),
    "grpc without limits": (lambda agent: RateLimitInterceptor(agent=agent), "nothing is limited"),
    "limited without parentheses": (lambda _: LIMITED(nothing), "write @limited('10/second', agent=agent)"),
    "one rule": (
        lambda agent: ASGI(asgi_app, rules=Rule(limits="1/day"), agent=agent),
        "rules=[Rule(",
    ),
    "a rule that is a dictionary": (
        lambda agent: WSGI(wsgi_app, rules=[{"limits": "1/day"}], agent=agent),
        "write Rule(limits='5/minute')",
    ),
    "by_header without a name": (
        lambda agent: GUARD(agent, key_func=by_header),
        "write key_func=by_header('x-api-key')",
    ),
    "fastapi application as agent": (lambda _: FASTAPI(FastAPI()), "limits.install(app)"),
    "flask application as key_func": (lambda _: FLASK(Flask("x")), "write app=app"),
    "on_breach of a rule": (lambda _: RULE(limits="1/day", on_breach=nothing), "must take one argument, the outcome"),
    "on_breach of all": (lambda agent: GUARD(agent, on_breach=nothing), "must take one argument, the outcome"),
    "paths of nothing": (lambda _: RULE(limits="1/day", paths=[]), "leave it out for all paths"),
    "methods of nothing": (lambda _: RULE(limits="1/day", methods=[]), "leave it out for all methods"),
    "fastapi shared by none": (lambda agent: FASTAPI(agent).shared_limit("1/day", None), "routes share a limit"),
    "flask shared by none": (lambda agent: FLASK(agent=agent).shared_limit("1/day", None), "routes share a limit"),
    "deduct_when": (lambda _: RULE(limits="1/day", deduct_when=nothing), "must take one argument, the response"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_an_error_that_says_what_to_write(what: str, agent: Agent) -> None:
    """Where it is written, and not with the first request: whose setting it is, or which one is like it."""
    make, expected = WRONG[what]

    with pytest.raises(InvalidSetting) as caught:
        make(agent)

    assert expected in str(caught.value)


@pytest.mark.parametrize(("word", "advice"), [("init_app", "limits.install"), ("exempt", "exempt_when")])
def test_a_word_of_flask_is_told_in_fastapi(word: str, advice: str, agent: Agent) -> None:
    """The attribute is not there, so that `hasattr` is false; for other words Python's own message stands."""
    limits = FASTAPI(agent)

    with pytest.raises(AttributeError, match=f"limits.{word} is for Flask; .*{advice}"):
        getattr(limits, word)
    with pytest.raises(AttributeError, match="no attribute 'zzz'"):
        _ = limits.zzz


def test_a_limit_that_cannot_be_told_is_said_to_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The rule has given no limit that could stand in."""
    guard = Guard(Agent())
    declared = guard.declare(Rule(limits=lambda: "nonsense", name="tier"))
    refused = guard.check(PlainRequest(), [declared]).refusal

    assert refused is not None
    assert 503 == refused.status
    assert "and the request is refused, because the rule has returned no limit so far" in caplog.text
    assert "strictest" not in caplog.text


def test_what_fails_in_answering_a_refusal_is_said_to_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    """And not to go on."""

    def fail(_outcome: object) -> str:
        raise KeyError("an application's mistake")

    guard = Guard(Agent(), on_breach=fail)
    declared = guard.declare("1/minute")
    with caplog.at_level(logging.WARNING, "reconverge"):
        for _ in range(2):
            guard.check(PlainRequest(client="192.0.2.1"), [declared])

    assert "'on_breach' failed, and the request is refused with the usual response" in caplog.text


@pytest.mark.parametrize("word", ["limits", "limits.limit"])
def test_a_limit_for_fastapi_in_the_place_of_a_route_says_what_to_write(agent: Agent, word: str) -> None:
    """`@limits` below `@app.get`, without parentheses: FastAPI would complain of the type of a response."""
    app, limits = FastAPI(), FASTAPI(agent)

    async def read() -> str:
        return "yes"

    with pytest.raises(
        InvalidSetting, match=r"write @app\.get\(path, dependencies=\[Depends\(limits\('5/minute'\)\)\]\)"
    ):
        app.get("/a")((limits if word == "limits" else limits.limit)(read))


def test_a_limit_for_fastapi_above_a_route_is_told_of_once(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """It is made of a function that serves a route, and nothing depends on it."""
    app, limits = FastAPI(), FASTAPI(agent)
    limits.install(app)

    def tier(_request: object) -> str:
        return "5/minute"

    async def read() -> str:
        return "yes"

    limits(app.get("/a", dependencies=[Depends(limits(tier))])(read))
    answers = ask_asgi(app, "/a", times=3)
    told = [each.getMessage() for each in caplog.records if "limits nothing" in each.getMessage()]

    assert [200] * 3 == statuses(answers)
    (said,) = told
    assert "read serves a route; write @app.get(path" in said


def test_limits_for_aiohttp_are_no_decorator_themselves(agent: Agent) -> None:
    """`@limits` above a handler."""
    with pytest.raises(InvalidSetting, match=r"write @limits\.limit\('5/minute'\)"):
        AIOHTTP(agent=agent)(nothing)


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (lambda agent: AIOHTTP(agent=agent).limit, r"write @limits\.limit\('5/minute'\)"),
        (lambda _agent: DJANGO, r"write @limit\('5/minute'\)"),
    ],
    ids=["aiohttp", "django"],
)
def test_a_decorator_without_parentheses_says_so_with_the_first_request(
    agent: Agent, make: Callable[[Agent], Any], write: str
) -> None:
    """It is given the handler for a function that gives the limit, and stands in its place."""

    def handler(_request: object) -> str:
        return "yes"

    in_its_place = make(agent)(handler)

    with pytest.raises(InvalidSetting, match=write):
        in_its_place(object())


def test_flask_limits_an_application_once_however_often_it_is_told(agent: Agent) -> None:
    """`Limits(app=app)`, and `init_app` as well, as with extensions that want both: a request is charged once."""
    app = Flask("twice")
    limits = FlaskLimits(app=app, agent=agent, default_limits=["4/minute"])
    limits.init_app(app)
    app.add_url_rule("/", "home", nothing)
    client = app.test_client()

    assert [200] * 4 + [429] == [client.get("/").status_code for _ in range(5)]


def test_a_limit_for_fastapi_as_a_default_without_depends_is_told_of_once(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a route, and of what a route depends on: FastAPI takes it for a value."""
    app, limits = FastAPI(), FASTAPI(agent)
    limits.install(app)
    limit: Any = limits("2/minute")

    async def user(tier: Any = limit) -> str:
        return "ada"

    depends: Any = Depends(user)

    @app.get("/a")
    async def read(name: Any = depends, x: Any = limit) -> int:
        return 1

    ask_asgi(app, "/a", times=3)
    told = [each.getMessage() for each in caplog.records if "limits nothing" in each.getMessage()]

    assert ["read", "user"] == sorted("read" if " of read, " in each else "user" for each in told)
    assert all("=Depends(limits('5/minute'))" in each for each in told)


def test_a_limit_for_fastapi_in_an_annotation_without_depends_is_an_error(agent: Agent) -> None:
    """FastAPI leaves to pydantic what it does not know, and that would leave it out."""
    limit: Any = FASTAPI(agent)("2/minute")

    async def read(x: Any = None) -> int:
        return 1

    read.__annotations__["x"] = Annotated[None, limit]
    with pytest.raises(InvalidSetting, match="is annotated without Depends"):
        FastAPI().get("/a")(read)


def test_a_class_that_was_a_view_before_is_told_of_beside_another_endpoint(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The endpoint that came after the limit has it, and the one before has not."""
    app = Flask("late")
    limits = FlaskLimits(app=app, agent=agent)

    class Items(MethodView):
        def get(self) -> str:
            return "get"

    app.add_url_rule("/before", view_func=Items.as_view("before"))
    limits.limit("3/minute")(Items)
    app.add_url_rule("/after", view_func=Items.as_view("after"))
    app.test_client().get("/after")
    told = [each.getMessage() for each in caplog.records if "is never applied" in each.getMessage()]

    assert 1 == len(told)
    assert "the endpoint 'before' lacks it" in told[0]


def test_what_is_spent_of_a_limit_that_does_not_settle_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """`spend` without settle="spent" charges nothing, and says so once and not for each request."""
    guard = Guard(Agent())
    fixed = guard.declare(Rule(limits="9/minute", name="fixed", cost=2))
    spent = guard.declare(Rule(limits="9/minute", name="spent", cost=2, settle="spent"))
    for declared in (spent, fixed, fixed):
        guard.check(PlainRequest(client="192.0.2.1"), [declared]).spend(1)

    assert 1 == caplog.text.count("spend() charges nothing, because the limit has no settle='spent'")
    assert "the function 'spend() of fixed' failed" in caplog.text
    assert {"InvalidSetting": 2} == guard.stats().failures


def test_what_is_spent_after_the_end_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """As in a thread of its own: the cost is settled by then. It is counted each time, and nothing more is charged."""
    agent = Agent()
    guard = Guard(agent)
    spent = guard.declare(Rule(limits="9/minute", name="spent", cost=2, settle="spent"))
    outcome = guard.check(PlainRequest(client="192.0.2.1"), [spent])
    outcome.spend(3)
    outcome.finish(Response(200))
    outcome.spend(4)
    outcome.spend(0)

    assert "cost=4: is spent after the end of the response" in caplog.text
    assert {"InvalidSetting": 1} == guard.stats().failures
    assert 3 == agent.limiter("spent").usage("192.0.2.1").own
