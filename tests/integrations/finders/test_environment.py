"""Goal: the key of a request is found in the environment of WSGI itself, and no object is made for the request.

Method: what is made is noted; what is answered is compared with what was recorded, by the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import flask
import pytest

from reconverge import Agent
from reconverge.integrations import Guard, Outcome, Rule, by_header, by_ip, by_user
from reconverge.integrations.environment_keys import finder_for
from reconverge.integrations.flask import Limits as OfFlask
from reconverge.integrations.flask.extension import OUTCOMES
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.pipeline import Admitted, RefusedByOne
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.web.request.keys import asks, by_ip_network
from reconverge.integrations.wsgi import RateLimitMiddleware, WsgiRequest
from tests.integrations.finders.made import made_of
from tests.support.applications.asking import environment_of, hello_wsgi, wsgi_answer


def by_nothing() -> str:
    """A key that is not found in the request, as Flask's users write their key functions."""
    return "ada"


class Side:
    def __init__(self, rule: dict[str, Any], common: dict[str, Any]) -> None:
        self.guard = Guard(Agent("memory://"), **common)
        self.app: Any = self.build(rule)

    def build(self, rule: dict[str, Any]) -> Any:
        return RateLimitMiddleware(hello_wsgi, rules=[Rule(name="view", **rule)], guard=self.guard)

    def outcomes_in(self, environment: dict[str, Any]) -> Sequence[Outcome]:
        return [environment[OUTCOME]]


class FlaskSide(Side):
    def build(self, rule: dict[str, Any]) -> Any:
        app = flask.Flask(__name__)

        @app.before_request
        def _() -> None:
            user = flask.request.environ["test.user"]
            if user is not None:
                flask.g.user = user

        app.get("/")(OfFlask(app=app, guard=self.guard).limit(**_in_words(rule))(lambda: "hello"))
        return app.wsgi_app

    def outcomes_in(self, environment: dict[str, Any]) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = environment[OUTCOMES]
        return outcomes


def _in_words(rule: dict[str, Any]) -> dict[str, Any]:
    return {"name": "view", "limit_value": rule["limits"], **{name: rule[name] for name in rule if name != "limits"}}


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
    """Admitted, and refused."""
    rule = {"limits": "1/minute", "key_func": key_func}
    side = kind(rule, {"headers_enabled": headers_enabled})
    environments = [environment_of("/", x_key="ada") | {"test.user": None, "REMOTE_USER": "ada"} for _ in range(2)]
    statuses = [wsgi_answer(side.app, environment).status for environment in environments]

    assert [200, 429] == statuses
    assert [Admitted, RefusedByOne] == [type(side.outcomes_in(each)[0]) for each in environments]
    assert [] == made


@pytest.mark.parametrize("kind", [Side, FlaskSide])
@pytest.mark.parametrize("trusted", [["10.0.0.0/8"], ["unix"]])
def test_where_a_proxy_is_believed_an_address_is_asked_for(
    kind: type[Side], trusted: list[str], made: list[Any]
) -> None:
    """One piece of code alone reads the proxy's header fields."""
    side = kind({"limits": "1/minute", "key_func": by_ip}, {"trusted_proxies": trusted})
    wsgi_answer(side.app, environment_of("/") | {"test.user": None})

    assert 1 == len(made)


def test_a_function_around_one_of_ours_is_asked() -> None:
    """It may say something else, also where it has taken over all that the other one is called."""
    ours: list[Callable[..., Any]] = [by_header("x-key"), by_user, asks(by_nothing)]

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(function)(lambda request: f"tenant {function(request)}")

    assert all(finder_for(function, Addresses()) is not None for function in ours)
    assert [None] * len(ours) == [finder_for(around(function), Addresses()) for function in ours]


def test_a_user_of_the_application_comes_before_that_of_the_server() -> None:
    """Both ways find the user by one function, so that is looked at by itself."""
    side = FlaskSide({"limits": "2/minute", "key_func": by_user}, {})
    for user in ("ada", None):
        wsgi_answer(side.app, environment_of("/") | {"test.user": user, "REMOTE_USER": "eve"})

    assert ["ada", "eve"] == sorted(side.guard.agent.limiter("view").control.table.cells)


def test_an_application_without_anything_to_settle_is_not_told_of_the_end_of_requests() -> None:
    """Flask calls what is told of it with each request; the first request that leaves something to settle connects."""
    side = FlaskSide({"limits": "9/minute", "key_func": by_ip}, {})
    settling = FlaskSide({"limits": "9/minute", "key_func": by_ip, "cost": 3, "settle": "spent"}, {})
    receivers = flask.request_tearing_down.receivers_for
    for each in (side, settling):
        wsgi_answer(each.app, environment_of("/") | {"test.user": None})

    assert [0, 1] == [len(list(receivers(each.app.__self__))) for each in (side, settling)]
