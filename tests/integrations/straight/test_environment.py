"""Goal: what decides by the environment of WSGI alone says what the guard's general way says, to the last byte.

Method: the middleware of WSGI and the extension of Flask, each twice around the same application; one of the two has a
guard that goes the general way for each request. Both are given the same requests by turns, under clocks that agree:
environments as servers make them, and as none should; rules of all kinds; views that answer, stream and fail. What is
answered, what is left in the environment, what is counted and what is used is compared. And where a request is to be
decided by the environment, no object is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import flask
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.integrations import Guard, Outcome, Rule, by_header, by_ip, by_user
from reconverge.integrations.environment_keys import finder_for
from reconverge.integrations.flask import Limits as OfFlask
from reconverge.integrations.flask.extension import OUTCOMES
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX, Addresses
from reconverge.integrations.web.request.keys import asks, by_ip_network
from reconverge.integrations.web.straight import Admitted, Refused
from reconverge.integrations.wsgi import RateLimitMiddleware, WsgiRequest
from tests.integrations.straight.compared import (
    ALL_BETWEEN,
    BANS,
    BETWEEN,
    GUARDS,
    ODD,
    Compared,
    General,
    made_of,
    plain,
    seen_in,
    with_one_of,
)
from tests.support.applications.asking import ADA, environment_of, wsgi_answer
from tests.support.effort import tried

PATIENT: Final = "ask:10s"
now = {"key": "ada"}
"""What the key function says that takes no request."""


def by_nothing() -> object:
    """A key that is not found in the request, as Flask's users write their key functions."""
    if now["key"] == "fails":
        raise LookupError("a mistake of the application")
    return now["key"]


KEY_FUNCTIONS: Final[Sequence[Any]] = (
    by_header("x-key"),
    by_header("X-Key"),
    by_header("Content-Type"),
    by_ip,
    by_ip_network(48),
    by_user,
    by_nothing,
)
KEYS: Final[Sequence[str]] = ("ada", "bob", "", "fails", "~nobody", "\x00")
PLAIN: Final = {**plain(KEY_FUNCTIONS), "status": st.sampled_from([429, 503])}
MORE: Final = {
    **ODD,
    "deduct_when": st.just(lambda response: response is not None),
    "settle": st.sampled_from(["spent", lambda _response: 1]),
}
ONE_ODD: Final = with_one_of(MORE, PLAIN)
RULES: Final = st.one_of(st.fixed_dictionaries(PLAIN), st.fixed_dictionaries(PLAIN), ONE_ODD)


class Text(str):  # noqa: SLOT000  # as a server of its own may make them
    """A text whose own `__str__` shows another."""

    def __str__(self) -> str:
        return "another"


VALUES: Final[Sequence[Any]] = (
    "ada",
    "ada",
    "bob",
    "",
    "\xc3\xa9t\xc3\xa9",
    "~nobody",
    "~hashed:00",
    "\x00",
    "a|b%",
    "x" * 600,
    Text("ada"),
    None,
)
"""What a header field says; the last two as no server should."""
PEERS: Final[Sequence[Any]] = (
    *[ADA] * 6,
    "192.0.2.2",
    "10.0.0.1",
    "::ffff:192.0.2.1",
    "2001:db8::1",
    "2001:db8::2%eth0",
    "[2001:db8::1]:80",
    " 192.0.2.1 ",
    "",
    "testclient",
    "x" * ADDRESS_CHARACTERS_MAX,
    " " * ADDRESS_CHARACTERS_MAX + "192.0.2.1",
    "~nobody",
    "\x00",
    Text("192.0.2.1"),
    None,
)
USERS: Final[Sequence[Any]] = (None, None, "ada", "", 7, object())
"""What the application says of the user; the last is one of which it is not known what tells it from others."""
REQUESTS: Final = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "GET", "HEAD", "OPTIONS", "POST"]),
        "value": st.sampled_from(VALUES),
        "peer": st.sampled_from(PEERS),
        "user": st.sampled_from(USERS),
        "remote_user": st.sampled_from([None, "eve", ""]),
        "key": st.sampled_from(KEYS),
        "without": st.sampled_from([()] * 6 + [("REMOTE_ADDR",), ("HTTP_X_KEY",)]),
        "forwarded": st.sampled_from([None, None, "192.0.2.7, 10.0.0.2"]),
    }
)
ANSWERS: Final[Sequence[Any]] = (
    [("X-Mine", "yes")],
    [],
    [("RateLimit", '"other";r=1'), ("x-ratelimit-limit", "9")],
    [("Retry-After", "5")],
    [("X-Mine", "yes"), ("retry-after", "9")],
)
"""The header fields of the application."""
HOW: Final = ("answers", "answers", "streams", "fails")
STEPS: Final = st.lists(
    st.tuples(BETWEEN, REQUESTS, st.sampled_from(ANSWERS), st.sampled_from(HOW)),
    min_size=5,
    max_size=tried(10, long=16),
)


class Side(Compared):
    """An application that answers as it is told to, behind a guard."""

    def __init__(self, guard: type[Guard], rule: dict[str, Any], common: dict[str, Any]) -> None:
        super().__init__(guard, common)
        self.answer: tuple[Any, str] = [], "answers"
        self.app: Any = None
        self.declared = self._build(rule)
        limiter = self.declared._limiter
        assert limiter is not None
        self.limiters = [limiter]

    def _build(self, rule: dict[str, Any]) -> Declared:
        self.app = RateLimitMiddleware(self._wsgi, rules=[Rule(**rule)], guard=self.guard)
        declared: Declared = self.app._rules[0]
        return declared

    def _wsgi(self, _environment: Any, start_response: Any) -> Any:
        headers, how = self.answer
        if how == "fails":
            raise LookupError("of the application")
        start_response("200 OK", [("Content-Type", "text/plain"), *headers])
        return (part for part in (b"o", b"k")) if how == "streams" else [b"ok"]

    def outcomes_in(self, environment: dict[str, Any]) -> list[Outcome]:
        """What the environment says that was decided."""
        return [environment[OUTCOME]] if OUTCOME in environment else []

    def said(self, drawn: dict[str, Any], answer: tuple[Any, str]) -> Any:
        """What becomes of a request: the answer, or the error; and what was decided."""
        self.answer, now["key"] = answer, drawn["key"]
        environment = environment_of("/", method=drawn["method"], x_key=drawn["value"])
        environment |= {"REMOTE_ADDR": drawn["peer"], "CONTENT_TYPE": "text/plain", "test.user": drawn["user"]}
        for name, value in (("REMOTE_USER", drawn["remote_user"]), ("HTTP_X_FORWARDED_FOR", drawn["forwarded"])):
            if value is not None:
                environment[name] = value
        for name in drawn["without"]:
            del environment[name]
        try:
            answered: Any = wsgi_answer(self.app, environment)
        except Exception as error:  # noqa: BLE001  # of the application, or of an environment that no server makes
            answered = repr(error)
        return answered, [seen_in(outcome) for outcome in self.outcomes_in(environment)]


class FlaskSide(Side):
    """The same of Flask. What fails is answered with status 500, or raised by the application as a server would see."""

    second: str | None = None
    """A further limit of the same view."""
    inner: str | None = None
    """A limit of a function that the view calls."""

    def _build(self, rule: dict[str, Any]) -> Declared:
        app = flask.Flask(__name__)
        limits = OfFlask(app=app, guard=self.guard)

        @app.before_request
        def _() -> None:
            user = flask.request.environ["test.user"]
            if user is not None:
                flask.g.user = user

        def view() -> Any:
            headers, how = self.answer
            if how == "fails":
                raise LookupError("of the application")
            body = (part for part in ("o", "k")) if how == "streams" else "ok"
            return flask.Response(body, headers=list(headers))

        if self.inner is not None:
            inner = limits.limit(self.inner, name="inner", key_func=by_ip)(view)

            def view() -> Any:
                return inner()

        if self.second is not None:
            view = limits.limit(self.second, key_func=by_ip)(view)
        rule = {"name": "view", **rule}
        view = limits.limit(rule.pop("limits"), **rule)(view)
        app.route("/", methods=["GET", "POST"])(view)
        self.app = app.wsgi_app
        return view.__reconverge_mark__.rules[-1]  # type: ignore[attr-defined, no-any-return]

    def outcomes_in(self, environment: dict[str, Any]) -> list[Outcome]:
        """What the environment says that was decided."""
        return list(environment.get(OUTCOMES, ()))


class RaisingSide(FlaskSide):
    """The same, where what fails in a view is not answered: only the end of the request tells of it."""

    def _build(self, rule: dict[str, Any]) -> Declared:
        declared = super()._build(rule)
        self.app.__self__.config["PROPAGATE_EXCEPTIONS"] = True
        return declared


class TwiceSide(FlaskSide):
    """A view with two limits."""

    second = "7/minute"


class InnerSide(FlaskSide):
    """A view with a limit that calls a function with another one."""

    inner = "7/minute"


KINDS: Final = (Side, FlaskSide, RaisingSide, TwiceSide, InnerSide)


def _sides(kind: type[Side], rule: dict[str, Any], common: dict[str, Any] | None = None) -> list[Side]:
    return [kind(guard, {"limits": "2/minute", **rule}, common or {}) for guard in (Guard, General)]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=tried(60, long=800), suppress_health_check=[HealthCheck.too_slow])
@given(rule=RULES, bans=BANS, common=GUARDS, steps=STEPS)
def test_by_the_environment_and_the_general_way_the_same_is_said(
    kind: type[Side],
    rule: dict[str, Any],
    bans: dict[str, Any],
    common: dict[str, Any],
    steps: list[tuple[str, dict[str, Any], Any, str]],
) -> None:
    """Answered, raised, left in the environment, charged and counted, whatever comes and whatever changes meanwhile."""
    sides = _sides(kind, {**rule, **bans}, common)
    for between, drawn, headers, how in steps:
        for side in sides:
            side.meanwhile(between)
        by_environment, general = [side.said(drawn, (headers, how)) for side in sides]

        assert general == by_environment

    assert sides[1].counted() == sides[0].counted()


def _drawn(**differently: Any) -> dict[str, Any]:
    usual = {"method": "GET", "value": "ada", "peer": ADA, "user": None, "remote_user": None, "key": "ada"}
    return {**usual, "without": (), "forwarded": None, **differently}


@pytest.mark.parametrize("kind", [Side, FlaskSide])
@pytest.mark.parametrize("key_func", KEY_FUNCTIONS)
@pytest.mark.parametrize("missing", ["address", "shared", "refuse", "exempt"])
def test_of_each_kind_of_key_the_same_is_said(kind: type[Side], key_func: Any, missing: str) -> None:
    """Of all that an environment may have in the places that are looked at."""
    sides = _sides(kind, {"key_func": key_func, "missing": missing})
    drawn = [_drawn(value=value) for value in VALUES] + [_drawn(peer=peer) for peer in PEERS]
    drawn += [_drawn(user=user, remote_user=other) for user in USERS for other in (None, "eve", "")]
    drawn += [_drawn(key=key, method=method) for key in KEYS for method in ("GET", "HEAD")]
    drawn += [_drawn(without=(name,)) for name in ("REMOTE_ADDR", "HTTP_X_KEY")]
    for each in drawn:
        by_environment, general = [side.said(each, ([], "answers")) for side in sides]

        assert general == by_environment
    assert sides[1].counted() == sides[0].counted()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("between", ALL_BETWEEN)
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_happens_between_two_requests_is_heeded(kind: type[Side], between: str, answer: Any) -> None:
    """From the next one on: admitted and refused, and whatever the application answers itself."""
    sides = _sides(kind, {"key_func": by_header("x-key"), "block_after": "2/minute", "block_for": "2 minutes"})
    for number in range(9):
        if number == 2:
            for side in sides:
                side.meanwhile(between)
        by_environment, general = [side.said(_drawn(), (answer, HOW[number % 4])) for side in sides]

        assert general == by_environment
    assert sides[1].counted() == sides[0].counted()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects that were made for requests."""
    return made_of(monkeypatch, WsgiRequest)


@pytest.mark.parametrize("kind", [Side, FlaskSide])
@pytest.mark.parametrize("key_func", [by_header("x-key"), by_ip, by_ip_network(48), by_user, by_nothing])
@pytest.mark.parametrize("headers_enabled", [True, False])
def test_for_a_request_that_says_its_key_no_object_is_made(
    kind: type[Side], key_func: Any, headers_enabled: bool, made: list[Any]
) -> None:
    """Else the comparison above would compare nothing: admitted, and refused."""
    rule = {"limits": "1/minute", "key_func": key_func}
    side = kind(Guard, rule, {"headers_enabled": headers_enabled})
    environments = [environment_of("/", x_key="ada") | {"test.user": None, "REMOTE_USER": "ada"} for _ in range(2)]
    now["key"] = "ada"
    statuses = [wsgi_answer(side.app, environment).status for environment in environments]

    assert [200, 429] == statuses
    assert [Admitted, Refused] == [type(side.outcomes_in(each)[0]) for each in environments]
    assert [] == made


@pytest.mark.parametrize("kind", [Side, FlaskSide])
@pytest.mark.parametrize("trusted", [["10.0.0.0/8"], ["unix"]])
def test_where_a_proxy_is_believed_an_address_is_asked_for(
    kind: type[Side], trusted: list[str], made: list[Any]
) -> None:
    """What header fields say of it is read by one piece of code alone."""
    side = kind(Guard, {"limits": "1/minute", "key_func": by_ip}, {"trusted_proxies": trusted})
    wsgi_answer(side.app, environment_of("/") | {"test.user": None})

    assert 1 == len(made)


def test_a_function_around_one_of_ours_is_asked() -> None:
    """It may say something else, also where it has taken over all that the other one is called."""
    ours: list[Callable[..., Any]] = [by_header("x-key"), by_user, asks(by_nothing)]

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(function)(lambda request: f"tenant {function(request)}")

    assert all(finder_for(function, Addresses()) is not None for function in ours)
    assert [None] * len(ours) == [finder_for(around(function), Addresses()) for function in ours]


@pytest.mark.parametrize("kind", [Side, FlaskSide])
def test_a_key_function_that_fails_is_asked_once(kind: type[Side]) -> None:
    """What was found by the environment is what the guard goes on with."""
    asked = list[int]()

    def fails() -> str:
        asked.append(1)
        raise LookupError("a mistake of the application")

    side = kind(Guard, {"limits": "1/minute", "key_func": fails}, {})
    statuses = [wsgi_answer(side.app, environment_of("/") | {"test.user": None}).status for _ in range(2)]

    assert [200, 429] == statuses
    assert 2 == len(asked)


def test_a_user_of_the_application_comes_before_that_of_the_server() -> None:
    """Both ways find the user by one function, so that is looked at by itself."""
    side = FlaskSide(Guard, {"limits": "2/minute", "key_func": by_user}, {})
    for user in ("ada", None):
        wsgi_answer(side.app, environment_of("/") | {"test.user": user, "REMOTE_USER": "eve"})

    assert ["ada", "eve"] == sorted(side.limiters[0].table.cells)


def test_an_application_without_anything_to_settle_is_not_told_of_the_end_of_requests() -> None:
    """Flask calls what is told of it with each request; the first request that leaves something to settle connects."""
    side = FlaskSide(Guard, {"limits": "9/minute", "key_func": by_ip}, {})
    settling = FlaskSide(Guard, {"limits": "9/minute", "key_func": by_ip, "cost": 3, "settle": "spent"}, {})
    receivers = flask.request_tearing_down.receivers_for
    for each in (side, settling):
        wsgi_answer(each.app, environment_of("/") | {"test.user": None})

    assert [0, 1] == [len(list(receivers(each.app.__self__))) for each in (side, settling)]


@pytest.mark.parametrize("kind", [Side, FlaskSide])
def test_a_request_in_doubt_asks_the_hub_as_ever(kind: type[Side], used_up: str) -> None:
    """Once; nothing was charged for it before, and from then on memory refuses."""
    with Agent(used_up, in_doubt=PATIENT) as agent:
        if kind is Side:
            app: Any = RateLimitMiddleware(_hello, rules=[Rule(limits="5/hour", name="requests")], agent=agent)
        else:
            made = flask.Flask(__name__)
            view = OfFlask(app=made, agent=agent).limit("5/hour", name="requests")(lambda: "hello")
            made.get("/")(view)
            app = made.wsgi_app
        answers = [wsgi_answer(app, environment_of("/", client=ADA)) for _ in range(2)]
        asks_of = agent.stats().limits["requests"].asks.results

    assert [429, 429] == [each.status for each in answers]
    assert 1 == asks_of["refused"] == sum(asks_of.values())


def _hello(_environment: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]
