"""Rate limits for any WSGI application, as a middleware that wraps it. A streamed body is passed on part by part.

app = RateLimitMiddleware(app, "100/minute", agent="redis://localhost:6379/0")
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack, cast

from reconverge.arguments import with_advice
from reconverge.integrations.environment_keys import authenticated_by_server, in_environment, name_in_environment
from reconverge.integrations.misplaced import warn_if_charged_before, warn_if_dropped
from reconverge.integrations.web.bound_rule import Declared, FoundKey
from reconverge.integrations.web.fields import LISTS, Fields
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.options import OF_LIMITS, GuardSettings, check_wsgi, one_of
from reconverge.integrations.web.outcome import OUTCOME, Outcome, fields_together
from reconverge.integrations.web.pipeline import Admitted, Decide
from reconverge.integrations.web.refusal import TITLES
from reconverge.integrations.web.request.addresses import Addresses, Located
from reconverge.integrations.web.request.key_sources import check_unrouted
from reconverge.integrations.web.request.paths import BELOW, with_types
from reconverge.integrations.web.request.request import FAILED, HAS, METHOD_CHARACTERS_MAX, Response
from reconverge.integrations.web.rules import Limits, Rule, all_rules, check_blocking
from reconverge.integrations.web.unmatched import Route, UnmatchedRules, methods_in

Environment: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
App: TypeAlias = Callable[[Environment, StartResponse], Iterable[bytes]]

DEPTH_MAX: Final = 32
"""The most nested middlewares that are searched for an application that has routes."""
RETRY_AFTER_NAME: Final = "retry-after"
RETRY_AFTER_LENGTH: Final = len(RETRY_AFTER_NAME)


class WsgiRequest(Located):
    """Adapts a WSGI environment, kept as `raw`, to the interface `Request` that limits read."""

    __slots__ = ("_environment",)

    def __init__(self, environment: Environment, addresses: Addresses) -> None:
        super().__init__(addresses)
        self._environment = environment

    @property
    def method(self) -> str:
        return str(self._environment.get("REQUEST_METHOD", "GET"))[: METHOD_CHARACTERS_MAX + 1].upper()

    @property
    def path(self) -> str:
        return _decoded(self._environment.get("SCRIPT_NAME", "") + self._environment.get("PATH_INFO", "")) or "/"

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns the path without SCRIPT_NAME; empty if there is no SCRIPT_NAME."""
        if not self._environment.get("SCRIPT_NAME"):
            return ()
        return (_decoded(self._environment.get("PATH_INFO", "")) or "/",)

    @property
    def route(self) -> str:
        """Returns an empty string, because WSGI has no routes."""
        return ""

    @property
    def peer(self) -> str | None:
        return self._environment.get("REMOTE_ADDR") or None

    @property
    def user(self) -> object:
        """Returns the user that the server has authenticated."""
        return authenticated_by_server(self._environment)

    @property
    def path_parameters(self) -> Mapping[str, object]:
        """Returns an empty mapping, because WSGI has no routes."""
        return {}

    @property
    def raw(self) -> Any:
        return self._environment

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for an unknown attribute; the error lists the attributes of a request."""
        raise AttributeError(f"the request has no {name!r}; {HAS}, and `raw`, the environment of WSGI")

    def header(self, name: str) -> str | None:
        value = self._environment.get(name_in_environment(name))
        return None if value is None else str(value)


def _decoded(path: str) -> str:
    return path.encode("latin-1", "replace").decode("utf-8", "replace")


UNROUTED: Final = (
    "finds no key, as a WSGI middleware runs before the router and knows no path parameters; use the framework's own "
    "limits, such as @limits.limit in Flask"
)


@with_advice(OF_LIMITS)
class RateLimitMiddleware:
    """Limits the requests to a WSGI application.

    Args:
        app: the application.
        limits: the limits of all requests together, counted per key; see `Rule.limits`.
        rules: further limits, for example of requests to some paths.
        guard: the settings that all the limits share; or give these settings, such as `agent`, as keyword arguments.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
    """

    def __init__(
        self,
        app: App,
        limits: Limits | None = None,
        *,
        rules: Sequence[Rule] = (),
        guard: Guard | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        check_wsgi(app)
        self.app = app
        self.guard = one_of(guard, self, **settings) or Guard(**settings)
        self._rules = [declare_blocking(self.guard, rule) for rule in all_rules(limits, rules)]
        for declared in self._rules:
            check_unrouted(declared.key_function, UNROUTED)
        self._unmatched = UnmatchedRules(self._rules, self.guard.failed)
        pipeline = None if self._unmatched.wanted else self.guard.pipeline(self._rules, in_environment)
        self._quick = None if pipeline is None else pipeline.decide
        self._decide: Decide | None = None  # `_quick` from the first request on, so that only that one is noted
        self._unserved = warn_if_dropped(self)

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        outcome: Outcome | list[FoundKey] | None = None
        guard = self.guard
        if self._decide is None and self._unserved.alive:
            self._unserved.detach()
            self._decide = self._quick
            warn_if_charged_before(environment.get(OUTCOME), guard, self._rules)
        if self._decide is not None and guard.enabled and not guard.filters:
            outcome = self._decide(environment)
            if type(outcome) is Admitted:  # the same as below, earlier, because most requests end here
                environment[OUTCOME] = outcome
                return self.app(environment, adding(start_response, outcome))
        if self._unmatched.wanted:
            self._unmatched.look(lambda: routes_in(self.app), (environment.get("SCRIPT_NAME", ""),))
        if not isinstance(outcome, Outcome):
            request = WsgiRequest(environment, guard.addresses)
            if outcome is None:
                outcome = guard.check(request, self._rules)
            else:
                outcome = guard.check_further_blocking(request, self._rules, outcome)
        environment[OUTCOME] = outcome
        if not outcome.allowed:
            return refuse(outcome, environment, start_response)
        if isinstance(outcome, Admitted):
            return self.app(environment, adding(start_response, outcome))
        starting = Starting(start_response, outcome)
        if not outcome.unsettled:
            return self.app(environment, starting)
        try:
            body = self.app(environment, starting)
        except BaseException:
            outcome.finish(Response(FAILED))
            raise
        return SettlingBody(body, starting.ended)


def adding(start_response: StartResponse, outcome: Admitted) -> StartResponse:
    """Returns a `start_response` that adds the response fields of `outcome`, which has no costs to settle.

    This is a function, because making and calling an object would take twice the time, for each request.
    """

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        fields = None if says_when_to_retry(headers) else outcome.pipeline.fields(outcome.decisions, outcome.keys)
        if fields is None:
            return Starting(start_response, outcome)(status, headers, exc_info)
        headers = [*headers, *fields]  # these fields are lists, so repeating a name is correct
        return start_response(status, headers) if exc_info is None else start_response(status, headers, exc_info)

    return start


def says_when_to_retry(headers: Iterable[tuple[str, str]]) -> bool:
    """Returns whether a response has a Retry-After field, and so is a refusal by the application itself."""
    for name, _ in headers:  # noqa: SIM110  # faster than a generator, for each response
        if len(name) == RETRY_AFTER_LENGTH and name.lower() == RETRY_AFTER_NAME:
            return True
    return False


class Starting:
    """Wraps WSGI's `start_response` to add the response fields of an outcome."""

    def __init__(self, start_response: StartResponse, outcome: Outcome) -> None:
        self._start_response = start_response
        self.outcome = outcome
        self._status = FAILED
        self._headers: list[tuple[str, str]] = []

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """Begins the response; WSGI allows a second call after an error."""
        self._status, self._headers = int(status[:3]) if status[:3].isdecimal() else FAILED, headers
        fields = fields_together([self.outcome], refused=says_when_to_retry(headers))
        arguments = (status, merged(headers, fields))
        return self._start_response(*arguments) if exc_info is None else self._start_response(*arguments, exc_info)

    def ended(self, bytes_sent: int, complete: bool) -> None:  # noqa: FBT001  # as `SettlingBody` calls it
        """Settles the costs of the outcome when the body has been closed; `complete` means that all of it was sent."""
        headers = {name.lower(): value for name, value in self._headers}
        self.outcome.finish(Response(self._status, headers, bytes_sent, complete))


class SettlingBody:
    """Wraps a response's body. When closed, calls `ended` with the number of bytes sent, and whether all were sent."""

    def __init__(self, body: Iterable[Any], ended: Callable[[int, bool], None]) -> None:
        self._body = body
        self._ended = ended
        self._parts: Iterator[Any] | None = None
        self._bytes = 0
        self._complete = False

    def __iter__(self) -> SettlingBody:
        return self

    def __next__(self) -> Any:
        if self._parts is None:
            self._parts = iter(self._body)
        try:
            part = next(self._parts)
        except StopIteration:
            self._complete = True
            raise
        self._bytes += len(part)
        return part

    def close(self) -> None:
        """Closes the body. Servers call this even if they have not sent all of it."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._ended(self._bytes, self._complete)


def routes_in(app: Any, depth: int = 0) -> list[Route] | None:
    """Returns the routes of a Werkzeug or Flask application, even inside middlewares; None for other applications."""
    if app is None or depth > DEPTH_MAX:
        return None
    mounts = getattr(app, "mounts", None)
    if isinstance(mounts, dict):  # Werkzeug's DispatcherMiddleware
        mounted = cast("dict[str, Any]", mounts)
        apps = {"": getattr(app, "app", None), **mounted}
        inner = {path: routes_in(each, depth + 1) for path, each in apps.items()}
        return [
            Route(f"{path}{each.path}", each.methods)
            for path, routes in inner.items()
            for each in ([Route(BELOW)] if routes is None else routes)
        ]
    owner = getattr(app, "__self__", None)  # of a bound method, such as `app.wsgi_app`
    below = getattr(app, "wsgi_app", None)
    if owner is None and below is not None and getattr(below, "__self__", None) is not app:
        return routes_in(below, depth + 1)  # a middleware that was assigned to `app.wsgi_app`
    rules = getattr(getattr(owner or app, "url_map", None), "iter_rules", None)
    if rules is not None:
        return [listed(each) for each in rules()]
    return routes_in(getattr(app, "app", None), depth + 1)


def listed(rule: Any) -> Route:
    """Returns a Werkzeug rule as a `Route`; values that may contain slashes have the type `path` in its pattern."""
    types: Mapping[str, object] = getattr(rule, "_converters", None) or {}
    path = with_types(str(rule.rule), {name: getattr(each, "regex", None) for name, each in types.items()})
    return Route(path, methods_in(getattr(rule, "methods", None)))


def declare_blocking(guard: Guard, rule: Rule | Limits, **names: Any) -> Declared:
    """Declares a rule for WSGI. Raises InvalidSetting for coroutine functions, which WSGI cannot await."""
    rule = rule if isinstance(rule, Rule) else Rule(limits=rule)
    guard.check_blocking("WSGI")
    check_blocking(rule, "WSGI")
    return guard.declare(rule, **names)


def refuse(outcome: Outcome, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
    """Returns the response to a refused request."""
    assert outcome.refusal is not None
    refusal = outcome.refusal
    status = f"{refusal.status} {TITLES[refusal.status]}"
    anew: tuple[Any, ...] = ()
    if callable(outcome.response):
        try:
            return cast("Iterable[bytes]", outcome.response(environment, start_response))
        except Exception as error:  # noqa: BLE001  # the request is refused anyway
            outcome.guard.failed(error, "on_breach")
            anew = (sys.exc_info(),)
    else:
        outcome.log_unsendable("an application of WSGI, such as a Response of Werkzeug")
    start_response(status, list(refusal.fields), *anew)
    return [] if environment.get("REQUEST_METHOD") == "HEAD" else [refusal.body]


def merged(headers: Sequence[tuple[str, str]], fields: Fields) -> list[tuple[str, str]]:
    """Returns `headers`, the header fields of the application's response, with the limits' `fields` added."""
    return [*headers, *added_to({name.lower() for name, _ in headers}, fields)]


def added_to(there: Container[str], fields: Fields) -> Fields:
    """Returns the limits' fields that must be added to a response, from all of the limits' `fields`.

    `there` are the lower-case names of the response's own fields. A field that the response has already is added again
    only if it is a list; otherwise only the application's own field is sent.
    """
    return [each for each in fields if each[0].lower() not in there or each[0].lower() in LISTS]
