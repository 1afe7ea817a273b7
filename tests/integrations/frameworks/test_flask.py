"""Goal: the extension limits views in the words that users of Flask-Limiter know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import flask
import pytest
from flask.views import MethodView, View

from reconverge import Agent, InvalidSetting
from reconverge.integrations import SPENT, by_user
from reconverge.integrations.flask import Limits
from tests.integrations.frameworks.test_wsgi import tokens
from tests.support.applications.asking import ADA, BOB, ask_wsgi, environment_of, statuses
from tests.support.applications.webserver import check_fields


@pytest.fixture
def app() -> flask.Flask:
    return flask.Flask(__name__)


def hello() -> str:
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
    """A charge before the view is given back when the view's own limit refuses."""
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
    """`decorators` limits them as a whole, and a limit of a method that alone."""
    limits = Limits(app=app, agent=agent)

    class Whole(View):
        decorators = [limits.limit("1/minute")]  # noqa: RUF012  # as Flask has it

        def dispatch_request(self) -> str:
            return "whole"

    class Parts(MethodView):
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
    assert {"ada", "bob"} == set(agent.limiter("users").control.table.cells)


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
    """Another function that looks at responses fails after ours: Flask's error page tells what is left."""
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
    """Any status may have one; Retry-After is told all the same."""
    limits = Limits(app=app, agent=agent)
    add(app, "/", limits.limit("1/minute")(hello))
    add(app, "/shed", limits.limit("1/minute", status=503)(lambda: "here"))
    app.register_error_handler(429, lambda error: (f"sorry: {error.outcome.rulings[0].key}", 429))
    refused, shed = ask_wsgi(app, times=2)[1], ask_wsgi(app, "/shed", times=2)[1]

    assert (429, f"sorry: {ADA}".encode()) == (refused.status, refused.body)
    assert 503 == shed.status
    for answer in (refused, shed):
        check_fields(answer.headers, refused=True)


def test_an_error_handler_knows_how_long_to_wait(app: flask.Flask, agent: Agent) -> None:
    """By the attribute that errors of Werkzeug have for it; a view knows how much is left."""
    limits = Limits(app=app, agent=agent)

    def left() -> str:
        outcome = limits.current_outcome
        assert outcome is not None
        assert outcome.decision is not None
        return str(outcome.decision.remaining)

    add(app, "/", limits.limit("5/hour; 2/minute")(left))
    app.register_error_handler(429, lambda error: (f"wait {error.retry_after} s", 429))
    first, second, refused = ask_wsgi(app, times=3)

    assert (b"1", b"0") == (first.body, second.body)
    assert f"wait {dict(refused.headers)['retry-after']} s".encode() == refused.body


def test_a_breach_may_be_answered_with_a_response(app: flask.Flask, agent: Agent) -> None:
    """Which `on_breach` returns, or None."""
    limits = Limits(app=app, agent=agent, on_breach=lambda _outcome: flask.Response("slow down", 420))
    add(app, "/", limits.limit("1/minute")(hello))
    refused = ask_wsgi(app, times=2)[1]

    assert (420, b"slow down") == (refused.status, refused.body)


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
    """As a filter, or to answer a breach, where it is declared."""

    async def key(_: object) -> str:
        return "ada"

    with pytest.raises(InvalidSetting, match="which WSGI cannot await"):
        Limits(app=app, agent=agent, on_breach=key).limit("1/minute")(hello)

    with pytest.raises(InvalidSetting, match="which WSGI cannot await"):
        Limits(app=app, agent=agent).request_filter(key)


def test_applications_made_twice_are_limited_alike(agent: Agent) -> None:
    """A factory makes each its own extension; the limits have the same names, and are the same."""
    for _ in range(2):
        app = flask.Flask(__name__)
        limits = Limits(app=app, agent=agent)
        add(app, "/", limits.limit("2/minute")(hello))

    assert ["tests.integrations.frameworks.test_flask.hello"] == list(agent.stats().limits)


def test_a_limit_above_the_route_is_an_error_at_each_request(app: flask.Flask, agent: Agent) -> None:
    """The endpoint is the bare function then, and unlimited: no request is served, and the error names the remedy."""
    limits = Limits(app=app, agent=agent)

    @limits.limit("2/day")
    @app.get("/slow")
    def slow() -> str:
        return "slow"

    app.testing = True
    for _ in range(2):
        with pytest.raises(InvalidSetting, match=r"put @limits\.limit below @app\.get") as raised:
            app.test_client().get("/slow")

        assert "limit('2/day')='slow': is never applied: the endpoint 'slow' lacks it" in str(raised.value)


def test_a_limit_that_is_called_is_not_told_of(
    app: flask.Flask, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one of a function that is another endpoint without it, or that no endpoint is."""
    limits = Limits(app=app, agent=agent)
    limits.limit("2/day")(lambda: "a helper")
    add(app, "/", wraps(hello)(limits.limit("2/day")(hello)))
    add(app, "/free", hello)
    ask_wsgi(app)

    assert "" == caplog.text


@pytest.mark.parametrize("how", ["call", "decorator"])
def test_classes_of_views_are_limited(app: flask.Flask, agent: Agent, how: str) -> None:
    """All methods together, as a decorator or by a call whose value is thrown away; or they are exempt."""
    limits = Limits(app=app, agent=agent, default_limits=["3/day"])

    class Items(MethodView):
        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    class Free(Items):
        pass

    limited: Any = limits.limit("2/day")(Items)
    limits.exempt(Free)
    Free.decorators = [limits.exempt]
    app.add_url_rule("/items", view_func=(Items if how == "call" else limited).as_view("items"))
    app.add_url_rule("/free", view_func=Free.as_view("free"))

    assert [200, 200, 429] == [ask_wsgi(app, "/items", method=method)[0].status for method in ("GET", "POST", "GET")]
    assert [200] * 4 == statuses(ask_wsgi(app, "/free", times=4))


def test_what_is_no_view_is_an_error(app: flask.Flask, agent: Agent) -> None:
    """Such as the name of an endpoint, which was limited by nothing."""
    limits: Any = Limits(app=app, agent=agent)

    for wrong, said in (
        {
            "slow": "below @app.get",
            5: "is not a view",
            app: "default_limits=",
            dict: "not a subclass of flask.views.View",
        }
    ).items():
        for decorate in (limits.limit("2/day"), limits.exempt):
            with pytest.raises(InvalidSetting, match=said):
                decorate(wrong)
    with pytest.raises(InvalidSetting, match="is not a Flask application"):
        limits.init_app("app")


def test_a_limit_without_parentheses_says_so(app: flask.Flask, agent: Agent) -> None:
    """With each request, as the view is taken for a function that gives the limit."""
    limits: Any = Limits(app=app, agent=agent)
    app.testing = True
    app.get("/<number>")(limits.limit(hello))

    with pytest.raises(InvalidSetting, match=r"write @limits\.limit\('5/minute'\)"):
        ask_wsgi(app, "/5")


def test_default_limits_without_an_application_are_told_of(
    app: flask.Flask, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the first request to any application; not if the application came later than the limits."""
    forgotten = Limits(agent="memory://", default_limits=["2/day"])
    Limits(agent=agent, default_limits=["2/hour"]).init_app(app)
    add(app, "/")
    ask_wsgi(app, times=3)

    assert forgotten.guard.enabled
    assert 1 == caplog.text.count("call limits.init_app(app)")


def test_limited_views_without_an_application_are_told_of(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A limited view refuses by itself, but only `init_app` lets it add fields and settle. So with a class of views."""
    limits = Limits(agent=agent)

    class Page(MethodView):
        get = staticmethod(hello)

    for name, view in [("function", hello), ("class", Page.as_view("page"))]:
        app = flask.Flask(name)
        app.add_url_rule("/", view_func=limits.limit("2/hour", name=name)(view))
        assert [200, 200, 429] == statuses(ask_wsgi(app, times=3))

    assert 1 == caplog.text.count("no RateLimit field and no Retry-After is added, and no cost or slot given back, in")
    assert "<Flask 'function'>; call limits.init_app(app)" in caplog.text


def test_limited_blueprints_without_an_application_are_told_of(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """They limit nothing."""
    app, limits = flask.Flask("shop"), Limits(agent=agent)
    blueprint = limits.limit("2/hour")(flask.Blueprint("parts", "parts"))
    blueprint.add_url_rule("/", view_func=hello)
    app.register_blueprint(blueprint)
    assert [200] * 3 == statuses(ask_wsgi(app, times=3))

    assert 1 == caplog.text.count("the limits of blueprints limit nothing in <Flask 'shop'>; call limits.init_app(app)")


def test_limits_of_another_application_are_not_told_of(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """An application that has none of them serves first, as in a test."""
    app, limits = flask.Flask("shop"), Limits(agent=agent)
    app.add_url_rule("/", view_func=hello)
    flask.Flask("other").add_url_rule("/", view_func=limits.limit("2/hour")(hello))
    ask_wsgi(app)

    assert "" == caplog.text


def test_the_words_of_flask_limiters_configuration_are_read(app: flask.Flask) -> None:
    """Those that make sense here; the hub if the application is there when the limits are made."""
    app.config |= {
        "RATELIMIT_STORAGE_URI": "memory://words",
        "RATELIMIT_DEFAULT": "2 per day;9/hour",
        "RATELIMIT_APPLICATION": "3/day",
        "RATELIMIT_HEADERS_ENABLED": False,
    }
    limits = Limits(app=app)
    add(app, "/one")
    add(app, "/two")
    answers = [ask_wsgi(app, path)[0] for path in ("/one", "/one", "/one", "/two", "/two")]

    assert [200, 200, 429, 200, 429] == statuses(answers)
    assert "ratelimit" not in answers[0].headers
    assert limits.guard.agent.limiter("default").name == "default"


@pytest.mark.parametrize("setting", [{"RATELIMIT_DEFAULT": "1/day"}, {"RATELIMIT_HEADERS_ENABLED": False}], ids=str)
def test_what_the_configuration_is_given_too_late_fails_each_request(
    app: flask.Flask, agent: Agent, setting: dict[str, Any]
) -> None:
    """A default limit would be absent. Read again, it holds."""
    app.config["TESTING"] = True
    limits = Limits(app=app, agent=agent)
    app.config.update(setting)
    for _ in range(2):
        with pytest.raises(InvalidSetting, match=r"was set after .* call limits.init_app\(app\) below it"):
            app.test_client().get("/")
    limits.init_app(app)
    app.test_client().get("/")


def test_limits_can_be_switched_off_by_the_configuration(app: flask.Flask, agent: Agent) -> None:
    """Tests of applications do so."""
    app.config["RATELIMIT_ENABLED"] = False
    Limits(agent=agent, default_limits="1/day").init_app(app)
    add(app, "/")

    assert [200, 200] == statuses(ask_wsgi(app, times=2))


def test_limits_can_be_switched_off_by_the_configuration_until_the_first_request(
    app: flask.Flask, agent: Agent
) -> None:
    """A fixture that imports an application sets this after the limits were made; then `limits.enabled` says more."""
    limits = Limits(app=app, agent=agent, default_limits="1/day")
    add(app, "/")
    app.config["RATELIMIT_ENABLED"] = False
    off = statuses(ask_wsgi(app, times=2))
    limits.enabled = True

    assert [200, 200] == off
    assert [200, 429] == statuses(ask_wsgi(app, times=2))


def test_a_late_switch_that_is_neither_true_nor_false_is_an_error(app: flask.Flask, agent: Agent) -> None:
    """Otherwise limits would be on or off by how Python reads a word."""
    app.config["TESTING"] = True
    Limits(app=app, agent=agent)
    app.config["RATELIMIT_ENABLED"] = "no"

    with pytest.raises(InvalidSetting, match="RATELIMIT_ENABLED='no': is neither True nor False"):
        app.test_client().get("/")


def test_storage_uri_is_the_hub(app: flask.Flask) -> None:
    """Users of Flask-Limiter may keep the word; default limits of None are none."""
    limits = Limits(app=app, storage_uri="reconverge+memory://words", default_limits=None)
    add(app, "/", limits.limit("1/day")(hello))

    assert [200, 429] == statuses(ask_wsgi(app, times=2))
    with pytest.raises(InvalidSetting, match="leave out one"):
        Limits(storage_uri="memory://", agent="memory://")


CONFIGURED: dict[str, tuple[object, str]] = {
    "RATELIMIT_STRATEGY": ("moving-window", "the algorithm belongs to the limit"),
    "RATELIMIT_KEY_PREFIX": ("shop", "namespace"),
    "RATELIMIT_DEFAULTS_PER_METHOD": (True, r"Limits\(default_limits_per_method="),
    "RATELIMIT_DEFUALT": ("1/day", "did you mean 'RATELIMIT_DEFAULT'"),
    "RATELIMIT_STORAGE_URI": ("redis://elsewhere", r"is read by Limits\(app=app\)"),
    "RATELIMIT_DEFAULT": ("1/day", "cannot be combined with default_limits"),
    "RATELIMIT_ENABLED": ("no", "is neither True nor False"),
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_word_of_the_configuration_without_effect_is_an_error(app: flask.Flask, agent: Agent, name: str) -> None:
    """It says what stands for it here."""
    app.config[name], said = CONFIGURED[name]
    app.config["RATELIMIT_LOGIN"] = "5/minute"  # the application's own

    with pytest.raises(InvalidSetting, match=said):
        Limits(agent=agent, default_limits="9/day").init_app(app)


def test_key_functions_that_know_flasks_requests_find_their_keys(
    app: flask.Flask, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Some take the request from a global; a missing attribute is named with those that there are."""
    limits: Any = Limits(lambda request: request.remote_addr, app=app, agent=agent)
    add(app, "/", limits.limit("1/day")(hello))
    add(app, "/wrong", limits.limit("1/day", key_func=lambda request: request.remote_adr)(lambda: "here"))

    assert [200, 200, 429] == [ask_wsgi(app, client=client)[0].status for client in (ADA, BOB, ADA)]
    assert "" == caplog.text
    ask_wsgi(app, "/wrong")
    assert "the request has no 'remote_adr'; its attributes are `method`" in caplog.text
