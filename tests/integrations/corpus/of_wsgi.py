"""The middleware of WSGI and the extension of Flask, around applications that answer as the case says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import flask

from reconverge.integrations import Outcome, Rule, by_header, by_ip, by_user
from reconverge.integrations.flask import Limits
from reconverge.integrations.flask.extension import OUTCOMES
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX
from reconverge.integrations.web.request.keys import by_ip_network
from reconverge.integrations.wsgi import RateLimitMiddleware
from tests.integrations.corpus.drawing import ODD, Draw, Stand, seen_in
from tests.support.applications.asking import ADA, environment_of, wsgi_answer

now = {"key": "ada"}
"""The result of the key function that takes no request."""


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
MORE: Final = {
    **ODD,
    "deduct_when": (lambda response: response is not None,),
    "settle": ("spent", lambda _response: 1),
}
KEYS: Final = ("ada", "ada", "ada", "bob", "", "fails", "~nobody", "\x00")
VALUES: Final[Sequence[Any]] = (
    *["ada"] * 6,
    "bob",
    "",
    "\xc3\xa9t\xc3\xa9",
    "~nobody",
    "~hashed:00",
    "\x00",
    "a|b%",
    "x" * 600,
    None,
)
PEERS: Final[Sequence[Any]] = (
    *[ADA] * 8,
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
    None,
)
ANSWERS: Final[Sequence[Any]] = (
    [("X-Mine", "yes")],
    [("X-Mine", "yes")],
    [],
    [("RateLimit", '"other";r=1'), ("x-ratelimit-limit", "9")],
    [("Retry-After", "5")],
    [("X-Mine", "yes"), ("retry-after", "9")],
)
HOW: Final = ("answers", "answers", "streams", "fails")


class OfWsgi(Stand):
    def __init__(self, draw: Draw) -> None:
        super().__init__(draw.settings())
        self.answer: tuple[Any, str] = [], "answers"
        self.app: Any = None
        self.build(draw)

    def build(self, draw: Draw) -> None:
        rules = [Rule(**rule) for rule in draw.rules(KEY_FUNCTIONS, MORE)]
        self.app = RateLimitMiddleware(self._wsgi, rules=rules, guard=self.guard)
        self.limiters = [rule._limiter for rule in self.app._rules if rule._limiter is not None]

    def _wsgi(self, _environment: Any, start_response: Any) -> Any:
        headers, how = self.answer
        if how == "fails":
            raise LookupError("of the application")
        start_response("200 OK", [("Content-Type", "text/plain"), *headers])
        return (part for part in (b"o", b"k")) if how == "streams" else [b"ok"]

    def outcomes_in(self, environment: dict[str, Any]) -> list[Outcome]:
        return [environment[OUTCOME]] if OUTCOME in environment else []

    def said(self, draw: Draw) -> Any:
        """Serves a request: returns the answer, or the error, and the decisions."""
        self.answer, now["key"] = (draw.one(ANSWERS), draw.one(HOW)), draw.one(KEYS)
        method = draw.one(("GET", "GET", "HEAD", "OPTIONS", "POST"))
        environment = environment_of("/", method=method, x_key=draw.one(VALUES))
        environment |= {"REMOTE_ADDR": draw.one(PEERS), "CONTENT_TYPE": "text/plain"}
        environment |= {"test.user": draw.one((None, None, "ada", "", 7))}
        for name, value in (
            ("REMOTE_USER", draw.one((None, "eve", ""))),
            ("HTTP_X_FORWARDED_FOR", draw.one((None, None, "192.0.2.7, 10.0.0.2"))),
        ):
            if value is not None:
                environment[name] = value
        for name in draw.one(((),) * 6 + (("REMOTE_ADDR",), ("HTTP_X_KEY",))):
            del environment[name]
        try:
            answered: Any = wsgi_answer(self.app, environment)
        except Exception as error:  # noqa: BLE001  # of the application
            answered = repr(error)
        return answered, [seen_in(outcome) for outcome in self.outcomes_in(environment)]


class OfFlask(OfWsgi):
    """The same of Flask: limits of a view, and of a function that it calls."""

    def build(self, draw: Draw) -> None:
        app = flask.Flask(__name__)
        defaults = draw.one(((), (), (), ("7/minute",)))
        limits = Limits(app=app, guard=self.guard, default_limits=defaults)

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

        if draw.random() < 0.2:
            inner = limits.limit("7/minute", name="inner", key_func=by_ip)(view)

            def view() -> Any:
                return inner()

        rules = draw.rules(KEY_FUNCTIONS, MORE)
        for rule in rules:
            view = limits.limit(rule.pop("limits"), **rule)(view)
        app.route("/", methods=["GET", "POST"])(view)
        app.config["PROPAGATE_EXCEPTIONS"] = draw.random() < 0.3
        self.app = app.wsgi_app
        declared = view.__reconverge_mark__.rules  # type: ignore[attr-defined]
        self.limiters = [rule._limiter for rule in declared if rule._limiter is not None]

    def outcomes_in(self, environment: dict[str, Any]) -> list[Outcome]:
        return list(environment.get(OUTCOMES, ()))
