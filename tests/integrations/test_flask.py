"""Goal: the extension limits views in the words that users of Flask-Limiter know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import flask
import flask.views
import pytest

from reconverge import Agent, InvalidSetting
from reconverge.integrations import SPENT, Guard, by_user
from reconverge.integrations.flask import Limits
from tests.integrations.asking import ADA, BOB, ask_wsgi, environment_of, statuses
from tests.integrations.test_wsgi import tokens
from tests.integrations.webserver import check_fields


@pytest.fixture
def app() -> flask.Flask:
    """An application with no views yet."""
    return flask.Flask(__name__)


def hello() -> str:
    """A view."""
    return "hello"


def add(app: flask.Flask | flask.Blueprint, path: str, view: Any = hello) -> None:
    """Route a path to a view, which has the path for an endpoint."""
    app.add_url_rule(path, path.strip("/") or "root", view, methods=["GET", "POST"])


def test_a_view_is_limited(app: flask.Flask, agent: Agent) -> None:
    """With problem details, and fields that parse on every response, once each."""
    limits = Limits(app=app, agent=agent)
    add(app, "/", limits.limit("2/minute")(hello))
    answers = [*ask_wsgi(app, times=3), *ask_wsgi(app, client=BOB)]

    assert [200, 200, 429, 200] == statuses(answers)
    assert "application/problem+json" == answers[2].headers["content-type"]
    for answer in answers:
        check_fields(answer.headers, refused=answer.status == 429)


def test_default_limits_are_for_views_without_limits(app: flask.Flask, agent: Agent) -> None:
    """Each view counts on its own; exempt ones do not, and what is not found is not a view."""
    limits = Limits(lambda: flask.request.remote_addr, app=app, agent=agent, default_limits=["2 per minute", "9/hour"])
    add(app, "/one")
    add(app, "/two")
    add(app, "/own", limits.limit("3/minute")(hello))
    add(app, "/besides", limits.limit("3/minute", override_defaults=False)(hello))
    add(app, "/free", limits.exempt(lambda: "free"))

    for path, expected in {"/one": 2, "/two": 2, "/own": 3, "/besides": 2, "/free": 4, "/lost": 0}.items():
        assert expected == statuses(ask_wsgi(app, path, times=4)).count(200), path
    assert [404] * 4 == statuses(ask_wsgi(app, "/lost", times=4))


def test_application_limits_are_for_everything_together(app: flask.Flask, agent: Agent) -> None:
    """Views, and what no view is found for; not for what is exempt."""
    limits = Limits(app=app, agent=agent, application_limits="3/minute")
    add(app, "/one")
    add(app, "/two")
    add(app, "/free", limits.exempt(lambda: "free"))

    paths = ["/one", "/two", "/lost", "/one", "/lost", "/free"]
    assert [200, 200, 404, 429, 429, 200] == [ask_wsgi(app, path)[0].status for path in paths]


def test_all_limits_of_a_request_are_charged_or_none_is(app: flask.Flask, agent: Agent) -> None:
    """What was charged before the view was called is given back when the view's own limit refuses."""
    limits = Limits(app=app, agent=agent, application_limits="9/minute")
    add(app, "/", limits.limit("1/minute")(limits.limit("5/minute", name="wide")(hello)))

    assert [200, 429, 429] == statuses(ask_wsgi(app, times=3))
    assert 1 == agent.limiter("application").usage(ADA).own
    assert 1 == agent.limiter("wide").usage(ADA).own


def test_several_limits_of_a_view_are_one_answer(app: flask.Flask, agent: Agent) -> None:
    """When both refuse, one is told to wait for the longer."""
    limits = Limits(app=app, agent=agent)
    add(app, "/", limits.limit("1/second")(limits.limit("1/hour")(hello)))
    served, refused = ask_wsgi(app, times=2)

    assert 2 == served.headers["ratelimit"].count(";r=")
    assert 3600 <= int(refused.headers["retry-after"])


def test_views_share_a_limit(app: flask.Flask, agent: Agent) -> None:
    """By the name of its scope, or by what the scope makes of the endpoint."""
    limits = Limits(app=app, agent=agent)
    shared = limits.shared_limit("1/minute", scope="api")
    by_letter = limits.shared_limit("1/minute", lambda endpoint: endpoint[0])
    for path, decorate in {
        "/one": shared,
        "/two": shared,
        "/aa": by_letter,
        "/ab": by_letter,
        "/bb": by_letter,
    }.items():
        add(app, path, decorate(lambda: "here"))

    assert [200, 429] == [ask_wsgi(app, path)[0].status for path in ("/one", "/two")]
    assert [200, 429, 200] == [ask_wsgi(app, path)[0].status for path in ("/aa", "/ab", "/bb")]


def test_blueprints_are_limited_as_one(app: flask.Flask, agent: Agent) -> None:
    """All their views together, in place of the default limits; nested ones, too. They can be exempt."""
    limits = Limits(app=app, agent=agent, default_limits=["1/minute"], application_limits=["100/minute"])
    api, inner, free = (flask.Blueprint(name, __name__, url_prefix=f"/{name}") for name in ("api", "inner", "free"))
    limits.limit("3/minute")(api)
    limits.exempt(free)
    add(api, "/one")
    add(inner, "/two")
    add(free, "/three")
    api.register_blueprint(inner)
    app.register_blueprint(api)
    app.register_blueprint(free)

    paths = ["/api/one", "/api/inner/two", "/api/one", "/api/inner/two"]
    assert [200, 200, 200, 429] == [ask_wsgi(app, path)[0].status for path in paths]
    assert [200, 200] == statuses(ask_wsgi(app, "/free/three", times=2))


def test_class_based_views_are_limited(app: flask.Flask, agent: Agent) -> None:
    """As a whole by `decorators`, and method by method."""
    limits = Limits(app=app, agent=agent)

    class Whole(flask.views.View):
        decorators = [limits.limit("1/minute")]  # noqa: RUF012  # as Flask has it

        def dispatch_request(self) -> str:
            return "whole"

    class Parts(flask.views.MethodView):
        @limits.limit("1/minute")
        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    app.add_url_rule("/whole", view_func=Whole.as_view("whole"))
    app.add_url_rule("/parts", view_func=Parts.as_view("parts"))

    assert [200, 429] == statuses(ask_wsgi(app, "/whole", times=2))
    assert [200, 429] == statuses(ask_wsgi(app, "/parts", times=2))
    assert [200, 200] == statuses(ask_wsgi(app, "/parts", times=2, method="POST"))


def test_a_view_is_checked_after_the_decorators_above_its_limit(app: flask.Flask, agent: Agent) -> None:
    """So a key may be what an authentication has found out."""
    limits = Limits(by_user, app=app, agent=agent, missing="refuse")

    def authenticated(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def call(*args: Any) -> Any:
            flask.g.user = flask.request.headers["X-User"]
            return view(*args)

        return call

    add(app, "/", authenticated(limits.limit("1/minute", name="users")(hello)))

    assert [200, 200, 429] == [ask_wsgi(app, x_user=user)[0].status for user in ("ada", "bob", "ada")]
    assert {"ada", "bob"} == set(agent.limiter("users").table.cells)


def test_a_response_may_cost_nothing(app: flask.Flask, agent: Agent) -> None:
    """`deduct_when` takes Flask's response."""
    limits = Limits(app=app, agent=agent)
    only_failures = limits.limit("2/minute", name="tokens", deduct_when=lambda response: response.status_code == 401)

    def login() -> tuple[str, int]:
        return "", 401 if flask.request.headers.get("X-Wrong") else 200

    add(app, "/", only_failures(login))

    assert [200] * 5 == statuses(ask_wsgi(app, times=5))
    assert [401, 401, 429] == statuses(ask_wsgi(app, times=3, x_wrong="1"))


def test_a_stream_is_settled_when_it_is_closed(app: flask.Flask, agent: Agent) -> None:
    """For what was used until its client went away; what is not streamed, when it was sent."""
    limits = Limits(app=app, agent=agent)

    def stream() -> flask.Response:
        outcome = limits.current_outcome
        assert outcome is not None

        def parts() -> Iterator[str]:
            for _ in range(5):
                outcome.spend(2)
                yield "x"

        return flask.Response(parts())

    add(app, "/", limits.limit("100/minute", name="tokens", cost=50, settle=SPENT)(stream))
    streamed = iter(app(environment_of("/"), lambda *_: lambda _part: None))
    next(streamed)
    next(streamed)
    assert 50 == tokens(agent)
    streamed.close()  # type: ignore[attr-defined]

    assert 4 == tokens(agent)
    ask_wsgi(app)
    assert 14 == tokens(agent)


def test_a_stream_with_its_request_says_what_it_has_used(app: flask.Flask, agent: Agent) -> None:
    """While it is streamed the outcome is there still, where Flask keeps the rest."""
    limits = Limits(app=app, agent=agent)

    def parts() -> Iterator[str]:
        for _ in range(3):
            outcome = limits.current_outcome
            assert outcome is not None
            outcome.spend(2)
            yield "x"

    def stream() -> flask.Response:
        return flask.Response(flask.stream_with_context(parts()))

    add(app, "/", limits.limit("100/minute", name="tokens", cost=50, settle=SPENT)(stream))

    assert [b"xxx"] == [answer.body for answer in ask_wsgi(app)]
    assert 6 == tokens(agent)
    assert [b"xxx"] == [answer.body for answer in ask_wsgi(app)]
    assert 12 == tokens(agent)


def test_a_stream_that_is_never_sent_is_settled(app: flask.Flask, agent: Agent) -> None:
    """As another function that looks at responses fails after ours: by Flask's error page, which says what is left."""
    seen: list[int] = []

    @app.after_request
    def fail_once(response: flask.Response) -> flask.Response:
        seen.append(response.status_code)
        if len(seen) == 1:
            raise KeyError("a mistake")
        return response

    limits = Limits(app=app, agent=agent)
    cost = {"cost": 50, "settle": lambda response: response.status_code - 499}
    add(app, "/", limits.limit("100/minute", name="tokens", **cost)(lambda: flask.Response(iter("ab"))))  # type: ignore[arg-type]
    (answer,) = ask_wsgi(app)

    assert (500, 1) == (answer.status, tokens(agent))
    check_fields(answer.headers, refused=False)


def test_a_view_that_fails_is_settled(app: flask.Flask, agent: Agent) -> None:
    """By the error page that Flask makes of it; where it makes none, as a response with status 500."""
    limits = Limits(app=app, agent=agent)

    @limits.limit("9/minute", name="tokens", cost=3, settle=lambda response: 1 if response.status_code == 500 else 2)
    def view() -> str:
        raise KeyError("a mistake")

    add(app, "/", view)
    assert [500] == statuses(ask_wsgi(app))
    assert 1 == tokens(agent)

    app.testing = True
    with pytest.raises(KeyError):
        ask_wsgi(app)
    assert 1 == tokens(agent)


def test_an_error_handler_may_answer_refusals(app: flask.Flask, agent: Agent) -> None:
    """As for any status; when to come again is told all the same."""
    limits = Limits(app=app, agent=agent)
    add(app, "/", limits.limit("1/minute")(hello))
    add(app, "/shed", limits.limit("1/minute", status=503)(lambda: "here"))
    app.register_error_handler(429, lambda error: (f"sorry: {error.outcome.rulings[0].key}", 429))
    refused, shed = ask_wsgi(app, times=2)[1], ask_wsgi(app, "/shed", times=2)[1]

    assert (429, f"sorry: {ADA}".encode()) == (refused.status, refused.body)
    assert 503 == shed.status
    for answer in (refused, shed):
        check_fields(answer.headers, refused=True)


def test_a_breach_may_be_answered_with_a_response(app: flask.Flask, agent: Agent) -> None:
    """Which `on_breach` returns, or None."""
    limits = Limits(app=app, agent=agent, on_breach=lambda _outcome: flask.Response("slow down", 420))
    add(app, "/", limits.limit("1/minute")(hello))
    refused = ask_wsgi(app, times=2)[1]

    assert (420, b"slow down") == (refused.status, refused.body)


@pytest.mark.parametrize("odd", [5, int, object()])
def test_a_breach_that_is_answered_with_nothing_usable_is_a_refusal(app: flask.Flask, agent: Agent, odd: Any) -> None:
    """And no error of the server's; it is counted."""
    limits = Limits(app=app, agent=agent, on_breach=lambda _outcome: odd)
    add(app, "/", limits.limit("1/minute")(hello))

    assert [200, 429] == statuses(ask_wsgi(app, times=2))
    assert 1 == sum(limits.guard.stats().failures.values())


def test_a_breach_may_be_answered_with_a_stream(app: flask.Flask, agent: Agent) -> None:
    """Which has no length: that of the body in whose place it stands would cut it off, or keep its client waiting."""

    def slowly(_outcome: object) -> flask.Response:
        return flask.Response(iter(["slow ", "down"]), 429)

    limits = Limits(app=app, agent=agent, on_breach=slowly)
    add(app, "/", limits.limit("1/minute")(hello))
    refused = ask_wsgi(app, times=2)[1]

    assert (429, b"slow down") == (refused.status, refused.body)
    assert "content-length" not in refused.headers
    assert "text/html; charset=utf-8" == refused.headers["content-type"]
    check_fields(refused.headers, refused=True)


def test_words_of_flask_limiter_mean_what_they_do_there(app: flask.Flask, agent: Agent) -> None:
    """Filters, exemptions, methods, costs and messages."""
    limits = Limits(app=app, agent=agent, headers_enabled=False)
    limits.request_filter(lambda: flask.request.headers.get("X-Internal") == "yes")
    says = {
        "/methods": limits.limit("1/minute", methods=["POST"]),
        "/per-method": limits.limit("1/minute", per_method=True),
        "/exempt": limits.limit("1/minute", exempt_when=lambda: True),
        "/cost": limits.limit("4/minute", cost=lambda: 2),
        "/message": limits.limit("1/minute", error_message=lambda: "come back later"),
        "/dynamic": limits.limit(lambda: "2/minute"),
    }
    for path, decorate in says.items():
        add(app, path, decorate(lambda: "here"))

    found = {
        path: [statuses(ask_wsgi(app, path, times=3, method=method)).count(200) for method in ("GET", "POST")]
        for path in says
    }
    assert {
        "/methods": [3, 1],
        "/per-method": [1, 1],
        "/exempt": [3, 3],
        "/cost": [2, 0],
        "/message": [1, 0],
        "/dynamic": [2, 0],
    } == found
    assert b"come back later" in ask_wsgi(app, "/message")[0].body
    assert "ratelimit" not in ask_wsgi(app, "/message")[0].headers
    assert [200] * 3 == statuses(ask_wsgi(app, "/message", times=3, x_internal="yes"))


def test_a_coroutine_function_is_refused_at_once(app: flask.Flask, agent: Agent) -> None:
    """Nobody awaits it under WSGI."""

    async def key() -> str:
        return "ada"

    with pytest.raises(InvalidSetting, match="nobody awaits"):
        Limits(app=app, agent=agent).limit("1/minute", key_func=key)(hello)
    with pytest.raises(InvalidSetting, match="nobody awaits"):
        Limits(key, app=app, agent=agent, default_limits="1/minute")
    with pytest.raises(InvalidSetting, match="nobody awaits"):
        Limits(app=app, agent=agent).request_filter(key)


def test_a_guard_comes_with_its_settings(app: flask.Flask, agent: Agent) -> None:
    """Whoever gives a key function besides is told so, as it would have no effect."""
    with pytest.raises(InvalidSetting, match="key_func"):
        Limits(by_user, app=app, guard=Guard(agent))


def test_applications_made_twice_are_limited_alike(agent: Agent) -> None:
    """A factory makes each its own extension; the limits have the same names, and are the same."""
    for _ in range(2):
        app = flask.Flask(__name__)
        limits = Limits(app=app, agent=agent)
        add(app, "/", limits.limit("2/minute")(hello))

    assert ["tests.integrations.test_flask.hello"] == list(agent.stats().limits)
