"""Limits as an extension of Flask, with the names of Flask-Limiter.

limits = Limits(key_func, app=app, agent="redis://localhost:6379/0", default_limits=["200/day", "50/hour"])

@app.get("/slow")
@limits.limit("10/minute")
def slow(): ...
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, Unpack, cast

from reconverge.agent.agent import Agent
from reconverge.arguments import NAMELESS, with_advice
from reconverge.errors import InvalidSetting, MissingExtra, PortableError, shown
from reconverge.integrations.environment_keys import in_environment
from reconverge.integrations.flask.flask_limiter_config import (
    APPLICATION,
    DEFAULT,
    ENABLED,
    HEADERS_ENABLED,
    PREFIX,
    agent_for,
    check_hub,
    check_unchanged,
    said_in,
)
from reconverge.integrations.web.bound_rule import Declared, FoundKey
from reconverge.integrations.web.fields import RETRY_AFTER
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.limits_of_app import Decorator, LimitsOfApp, UnusedDecorators
from reconverge.integrations.web.options import OF_LIMITS, SCOPE, CommonSettings, one_of, rule_of
from reconverge.integrations.web.outcome import Outcome, fields_for, go_on
from reconverge.integrations.web.pipeline import Admitted, Decide
from reconverge.integrations.web.refusal import PROBLEM_JSON
from reconverge.integrations.web.request.keys import KeyFunction, by_ip, waits
from reconverge.integrations.web.request.request import FAILED
from reconverge.integrations.web.request.request import Response as Ended
from reconverge.integrations.web.rules import Limits as RuleLimits
from reconverge.integrations.web.rules import Rule, RuleSettings, UnscopedSettings, check_shared, checked_flag
from reconverge.integrations.web.unmatched import UnmatchedRules
from reconverge.integrations.wsgi import (
    Environment,
    SettlingBody,
    added_to,
    declare_blocking,
    listed,
    says_when_to_retry,
)
from reconverge.limit.limit import Limit

try:
    import flask
    from werkzeug import exceptions

    from reconverge.integrations.flask import views as flask_views
    from reconverge.integrations.flask.request import FlaskRequest, current_request, user_now
    from reconverge.integrations.flask.views import (
        PARENTHESES,
        called_outside,
        check_view,
        checked_app,
        decorated_class,
        is_answered_by_flask,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("the extension for Flask", error.name or "flask", "flask") from error

logger = logging.getLogger("reconverge")
View = TypeVar("View", bound=Callable[..., Any])
Several: TypeAlias = "str | Sequence[RuleLimits]"
"""Several limits, all of which must admit a request: a limit string, or a sequence of values for `Rule.limits`."""

ORDER: Final[dict[str, str]] = dict.fromkeys(
    (NAMELESS, "key_func"), "was in another place in old versions of Flask-Limiter; write Limits(key_func, app=app)"
)
"""Advice for errors about arguments in the order of old versions of Flask-Limiter, by the name of the argument."""
ERROR: Final = 400
ERROR_BYTES_MAX: Final = 65_536
"""The longest error response whose body is read into memory, so that its cost can be settled before it is sent."""
RETRY_AFTER_NAME: Final = RETRY_AFTER.lower()
EXTENSION: Final = "reconverge"
"""The key of this extension's `Limits` in Flask's `app.extensions`."""
MARK: Final = "__reconverge_mark__"
"""The attribute in which decorators store a view's or a blueprint's limits (`_ViewMark`)."""
OUTCOMES: Final = "reconverge.outcomes"
"""The key, in a request's WSGI environment, of the list of its outcomes so far."""
ANSWERED: Final = "reconverge.answered"
"""The key in a request's WSGI environment that is set once a response settles the outcomes' costs."""


class TooManyRequests(PortableError, exceptions.TooManyRequests):
    """Raised for a refused request, to be answered with status 429; `outcome` has the reason.

    `retry_after` is the time to wait in whole seconds, as in the response; None if it is unknown.
    """

    outcome: Outcome


class ServiceUnavailable(PortableError, exceptions.ServiceUnavailable):
    """Raised for a refused request, to be answered with status 503; `outcome` has the reason."""

    outcome: Outcome


_ERRORS: Final[dict[int, type[TooManyRequests | ServiceUnavailable]]] = {429: TooManyRequests, 503: ServiceUnavailable}


@dataclass(slots=True)
class _ViewMark:
    """The limits and the exemption that decorators have stored at a view or a blueprint."""

    rules: list[Declared] = field(default_factory=list[Declared])
    exempt: bool = False
    checks: Callable[..., Any] | None = None
    """The limited view, which checks the rules when it is called; None on a blueprint."""
    decide: Decide | None = None
    """A function that decides from the WSGI environment alone; None if the rules need a `Request`."""

    @property
    def overrides_defaults(self) -> bool:
        return self.exempt or any(declared.rule.override_defaults for declared in self.rules)


@with_advice(ORDER)
class Limits(LimitsOfApp):
    """Limits the views of Flask applications.

    Args:
        key_func: returns the key of a request; it takes the request, or no argument as in Flask-Limiter.
        app: the application; or call `init_app`.
        agent: the agent that decides; or the URL of a hub, for which an agent is made. `storage_uri` is another name.
        default_limits: limits, for each key, of every view that has no limits of its own.
        application_limits: limits that count the requests to all views together, also requests without a view.
        guard: a guard with the settings that all limits share; or give these settings as keyword arguments.
        default_limits_*, application_limits_*: see `Rule`.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
    """

    def __init__(
        self,
        key_func: KeyFunction = by_ip,
        *,
        app: flask.Flask | None = None,
        agent: Agent | str | None = None,
        storage_uri: str | None = None,
        default_limits: Several | None = (),
        default_limits_per_method: bool = False,
        default_limits_exempt_when: Callable[..., bool] | None = None,
        default_limits_deduct_when: Callable[[flask.Response], bool] | None = None,
        default_limits_cost: int | str | Callable[..., Any] = 1,
        application_limits: Several | None = (),
        application_limits_per_method: bool = False,
        application_limits_exempt_when: Callable[..., bool] | None = None,
        application_limits_deduct_when: Callable[[flask.Response], bool] | None = None,
        application_limits_cost: int | str | Callable[..., Any] = 1,
        guard: Guard | None = None,
        **settings: Unpack[CommonSettings],
    ) -> None:
        agent = agent_for(agent, storage_uri, {} if app is None or guard is not None else checked_app(app).config)
        guard = one_of(guard, self, agent=agent, key_func=None if key_func is by_ip else key_func, **settings)
        settings.setdefault("passes", (exceptions.HTTPException,))
        self.guard = guard or Guard(agent, key_func=key_func, **settings)
        self._blueprints: dict[object, _ViewMark] = {}
        self._apps: dict[flask.Flask, dict[str, Any]] = {}
        """The limited applications, each with the settings that were read from its configuration."""
        self._settling: list[flask.Flask] = []
        """The applications for which Flask calls `_teardown` at the end of each request, to settle costs."""
        self._unmatched: UnmatchedRules | None = None
        self._hub = agent
        self._said: dict[str, Any] = {}
        self._limited_views: list[tuple[object, object, str]] = []
        self._unused = UnusedDecorators("@limits.limit('5/minute') below @app.get(path)")
        self._of_defaults: dict[str, Any] = {
            "per_route": True,
            "per_method": default_limits_per_method,
            "exempt_when": default_limits_exempt_when,
            "deduct_when": _of_flask(default_limits_deduct_when, failed=True),
            "cost": default_limits_cost,
        }
        self._of_application: dict[str, Any] = {
            "per_method": application_limits_per_method,
            "exempt_when": application_limits_exempt_when,
            "deduct_when": _of_flask(application_limits_deduct_when, failed=True),
            "cost": application_limits_cost,
        }
        self._defaults = self._several("default", default_limits, **self._of_defaults)
        self._application = self._several("application", application_limits, **self._of_application)
        if app is None:
            flask.request_started.connect(self._without_app)
        else:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Limits an application. Raises InvalidSetting for a mistake about limits in its configuration."""
        self._read(checked_app(app).config)
        limited, self._apps[app] = app in self._apps, self._said
        if limited:  # limiting it twice would charge each request twice
            return
        flask.request_started.disconnect(self._without_app)
        other = app.extensions.get(EXTENSION)
        if isinstance(other, Limits) and all(each._defaults or each._application for each in (self, other)):  # noqa: SLF001
            logger.warning("reconverge: %r has two Limits for all requests, each of which charges them; make one", app)
        app.extensions[EXTENSION] = self
        # With every request, Flask checks for each of these whether it must be awaited, which is faster for a function
        # than for a method. The end of a request is handled only once an outcome needs settling.
        app.before_request(self._looking_first())
        app.after_request(self._adding())

    def _read(self, config: Mapping[str, Any]) -> None:
        """Reads the settings of Flask-Limiter in an application's configuration. Raises InvalidSetting."""
        said = said_in(config)
        check_hub(said, self._hub)
        for name in (ENABLED, HEADERS_ENABLED):
            if name in said:
                setattr(self.guard, name.removeprefix(PREFIX).lower(), checked_flag(name, said[name]))
        for name, declared, word, settings in (
            (DEFAULT, self._defaults, "default", self._of_defaults),
            (APPLICATION, self._application, "application", self._of_application),
        ):
            if name in said and self._said.get(name) != said[name]:
                if declared:
                    raise InvalidSetting(
                        name, said[name], f"cannot be combined with {word}_limits; leave out one of them"
                    )
                declared.extend(self._several(word, said[name], **settings))
        self._said = said

    def _without_app(self, sender: flask.Flask, **_: Any) -> None:
        """Logs a warning, at the first request to any application, if its limits need a call of `init_app`."""
        flask.request_started.disconnect(self._without_app)
        own = {id(declared) for declared, _, _ in self._limited_views}
        flask_views.warn_without_app(
            sender,
            self._blueprints,
            lambda view: [rule for rule in (_mark_of(view) or _ViewMark()).rules if id(rule) in own],
            limits_all=bool(self._defaults or self._application),
        )

    @with_advice(OF_LIMITS)
    def limit(self, limit_value: RuleLimits, **settings: Unpack[RuleSettings]) -> Callable[[Any], Any]:
        """Returns a decorator that limits a view, a class-based view's method, or all views of a blueprint together.

        The settings are those of `Rule`; `deduct_when` and `settle` get Flask's response. A view is checked when it is
        called, after the decorators above the limit. Several limits of one view are charged all or none.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        """
        settings["deduct_when"] = _of_flask(settings.get("deduct_when"), failed=True)
        settle = settings.get("settle")
        if callable(settle):
            settings["settle"] = _of_flask(settle, failed=0)
        rule = rule_of(limit_value, settings)

        def decorate(view: Any = None, /, **_: Any) -> Any:
            self._unused.used(decorate)
            if callable(limit_value) and view is None:
                raise InvalidSetting("limits", limit_value, PARENTHESES)
            if isinstance(view, flask.Blueprint):
                declared = declare_blocking(self.guard, rule, name=f"blueprint.{view.name}")
                self._blueprints.setdefault(view, _ViewMark()).rules.append(declared)
                return view
            check_view(view, "limit")
            declared = declare_blocking(self.guard, rule, owner=view)
            if inspect.isclass(view):
                self._limited_views.append((declared, view, f"limit({limit_value!r})"))
                return decorated_class(view, lambda each: self._limited(each, declared))
            limited = self._limited(view, declared)
            self._limited_views.append((declared, view, f"limit({limit_value!r})"))
            return limited

        self._unused.add(decorate, f"limit({shown(limit_value)})")
        return Decorator(decorate)

    if not TYPE_CHECKING:  # a type checker reports the call

        def __call__(self, *_: object, **__: object) -> NoReturn:
            """Raises TypeError, which shows the decorator."""
            raise TypeError("limits is no decorator; write @limits.limit('5/minute') below @app.get(path)")

    @with_advice(SCOPE)
    def shared_limit(
        self, limit_value: RuleLimits, scope: str | Callable[[str], str], **settings: Unpack[UnscopedSettings]
    ) -> Callable[[Any], Any]:
        """Returns a decorator for views; all views with the same `scope` share one count.

        `scope` is a text, or a function that returns a text for the name of an endpoint.
        """
        check_shared(scope)
        if callable(scope):
            by_endpoint = scope
            settings.setdefault("name", "shared")
            return self.limit(limit_value, scope=lambda request: by_endpoint(request.route), **settings)
        settings.setdefault("name", f"shared.{scope}")
        return self.limit(limit_value, scope=scope, **settings)

    @with_advice({"view": "is missing; write @limits.exempt without parentheses"})
    def exempt(self, view: Any) -> Any:
        """Exempts a view, or a blueprint's views, from default and application limits. Can be used as a decorator."""
        if isinstance(view, flask.Blueprint):
            self._blueprints.setdefault(view, _ViewMark()).exempt = True
            return view
        check_view(view, "exempt")
        if inspect.isclass(view):
            decorated_class(view, self.exempt)
        else:
            mark = _mark_of(view) or _ViewMark()
            mark.exempt = True
            setattr(view, MARK, mark)
        return view

    def request_filter(self, function: Any) -> Any:
        """Exempts requests for which `function` returns true from all limits. Can be used as a decorator."""
        if callable(function) and waits(function):
            raise InvalidSetting(
                "request_filter", function, "is a coroutine function, which WSGI cannot await; use a plain one"
            )
        return super().request_filter(function)

    @property
    def current_outcome(self) -> Outcome | None:
        """Returns the last outcome of the current request; None if no limit has decided about it."""
        outcomes = current_request().environ.get(OUTCOMES) if flask.has_request_context() else None
        return outcomes[-1] if outcomes else None

    def _outcomes_of(self, request: flask.Request) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = request.environ.get(OUTCOMES, ())
        return outcomes

    def _several(self, name: str, limits: Several | None, /, **settings: Unpack[RuleSettings]) -> list[Declared]:
        """Declares rules for `limits`, all of which must admit a request, and returns the rules.

        One rule has all limit strings and `Limit` objects; each function or limiter gets a rule of its own.
        """
        _check_several(f"{name}_limits", limits)
        each = [limits] if isinstance(limits, str) else list(limits or ())
        fixed = [limit for limit in each if isinstance(limit, str | Limit)]
        rules = [Rule(limits=fixed, **settings)] if fixed else []
        rules += [Rule(limits=limit, **settings) for limit in each if not isinstance(limit, str | Limit)]
        return [declare_blocking(self.guard, rule, name=name) for rule in rules]

    def _limited(self, view: View, declared: Declared) -> View:
        before = _mark_of(view)
        if before is not None and before.checks is view:
            before.rules.append(declared)
            before.decide = self._decides(before.rules)
            return view
        mark = _ViewMark([declared], exempt=before is not None and before.exempt)
        mark.decide = self._decides(mark.rules)
        awaited = not inspect.isroutine(view) or inspect.iscoroutinefunction(view)
        guard, request_now = self.guard, current_request

        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            decide = mark.decide
            try:
                environment = request_now().environ
            except RuntimeError:
                raise called_outside(view) from None
            if decide is None or guard.filters or not guard.enabled:
                self._check(mark.rules)
            else:
                outcome = decide(environment)
                if type(outcome) is not Admitted:
                    self._check_further(mark.rules, outcome)
                elif OUTCOMES in environment:
                    environment[OUTCOMES].append(outcome)
                else:
                    environment[OUTCOMES] = [outcome]
            # Flask would check for a plain function at each request whether it must be awaited.
            return (flask.current_app.ensure_sync(view) if awaited else view)(*args, **kwargs)

        mark.checks = limited
        setattr(limited, MARK, mark)
        return cast("View", limited)

    def _decides(self, rules: Sequence[Declared]) -> Decide | None:
        pipeline = self.guard.pipeline(rules, functools.partial(in_environment, user_in=user_now))
        return None if pipeline is None else pipeline.decide

    def _look(self) -> None:
        """Logs warnings about rules whose paths match no route. Called at the first request, when all routes exist.

        Also reads the configuration again, because tests may switch limits off there after they import an application.
        """
        self._unused.log()
        for app, read in self._apps.items():
            check_unchanged(app.config, read)
            enabled = app.config.get(ENABLED)
            if enabled is not None and enabled != read.get(ENABLED):
                self.guard.enabled = checked_flag(ENABLED, enabled)
            flask_views.warn_of_unmatched(app, self._limited_views, lambda view: (_mark_of(view) or _ViewMark()).rules)
        flask_views.warn_of_unregistered(self._apps, self._blueprints)
        roots = (flask.request.root_path,)
        rules = [*self._application, *self._defaults]
        rules += [declared for mark in self._blueprints.values() for declared in mark.rules]
        self._unmatched = UnmatchedRules(rules, self.guard.failed)
        self._unmatched.look(lambda: [listed(each) for app in self._apps for each in app.url_map.iter_rules()], roots)
        for declared, routes in flask_views.routes_of_rules(
            self._apps, lambda view: (_mark_of(view) or _ViewMark()).rules
        ):
            UnmatchedRules([declared], self.guard.failed, views=True).look(functools.partial(list, routes), roots)

    def _looking_first(self) -> Callable[[], None]:
        application, defaults, blueprints = self._application, self._defaults, self._blueprints

        def look() -> None:
            if self._unmatched is None:
                self._look()
            if application or defaults or blueprints:  # otherwise each limited view checks its own limits
                self._before()

        return look

    def _before(self) -> None:
        request, app = current_request(), flask.current_app
        if is_answered_by_flask(app, request):
            return
        view = app.view_functions.get(request.endpoint or "")
        blueprints = [app.blueprints[name] for name in request.blueprints if name in app.blueprints]
        marks = [self._blueprints[blueprint] for blueprint in blueprints if blueprint in self._blueprints]
        of_view = _mark_of(view)
        if of_view is not None:
            marks.append(of_view)
        rules = [] if any(mark.exempt for mark in marks) else list(self._application)
        for mark in marks:
            rules += [] if mark.checks is not None else mark.rules
        if view is not None and not any(mark.overrides_defaults for mark in marks):
            rules += self._defaults
        self._check(rules)

    def _check(self, rules: Sequence[Declared]) -> None:
        """Checks the current request. If a rule refuses it, raises TooManyRequests or ServiceUnavailable."""
        if rules:
            request = FlaskRequest(current_request(), self.guard.addresses)
            self._go_on(self.guard.check(request, rules))

    def _check_further(self, rules: Sequence[Declared], found: Outcome | list[FoundKey]) -> None:
        """Checks the current request as `_check` does, using the result `found` of the fast path.

        `found` is the outcome, or, if the guard must still decide, the keys found so far.
        """
        if not isinstance(found, Outcome):
            request = FlaskRequest(current_request(), self.guard.addresses)
            found = self.guard.check_further_blocking(request, rules, found)
        self._go_on(found)

    def _go_on(self, outcome: Outcome) -> None:
        if outcome.unsettled:
            self._settle_at_the_end()
        if go_on(current_request().environ.setdefault(OUTCOMES, []), outcome):
            return
        # Raised without a local variable: the error refers to this frame, and the cycle would be left to the garbage
        # collector.
        raise self._error_of(outcome)

    def _error_of(self, outcome: Outcome) -> TooManyRequests | ServiceUnavailable:
        assert outcome.refusal is not None
        error = _ERRORS[outcome.refusal.status](outcome.refusal.detail, self._response_of(outcome))
        error.outcome = outcome
        # Werkzeug shows this attribute to error handlers, and adds a field for it only to responses that it makes.
        after = next((value for name, value in outcome.refusal.fields if name == RETRY_AFTER), None)
        error.retry_after = None if after is None else int(after)
        return error

    def _response_of(self, outcome: Outcome) -> flask.Response:
        """Returns the response of `on_breach`, if Flask can convert it, or else the refusal as problem details."""
        if outcome.response is not None:
            try:
                return flask.current_app.make_response(outcome.response)
            except Exception as error:  # noqa: BLE001  # the request is refused anyway
                self.guard.failed(error, "on_breach")
        refusal = outcome.refusal
        assert refusal is not None
        return flask.Response(refusal.body, refusal.status, content_type=PROBLEM_JSON)

    def _adding(self) -> Callable[[flask.Response], flask.Response]:
        request_now, after = current_request, self._after

        def add(response: flask.Response) -> flask.Response:
            environment = request_now().environ
            outcomes: list[Outcome] | None = environment.get(OUTCOMES)
            if not outcomes:
                return response
            outcome, headers = outcomes[-1], response.headers
            if type(outcome) is not Admitted or len(outcomes) > 1 or says_when_to_retry(headers):
                return after(response, environment, outcomes)
            fields = outcome.pipeline.fields(outcome.decisions, outcome.keys)
            if fields is None:
                return after(response, environment, outcomes)
            for name, value in fields:  # these fields are lists, so repeating a name is correct
                headers.add(name, value)
            return response

        return add

    def _after(self, response: flask.Response, environment: Environment, outcomes: Sequence[Outcome]) -> flask.Response:
        """Adds the limits' fields to a response, and settles costs: now, or when a streamed response ends."""
        there = {name.lower() for name, _ in response.headers}
        for name, value in added_to(there, fields_for(outcomes, refused=RETRY_AFTER_NAME in there)):
            response.headers.add(name, value)
        unsettled = [outcome for outcome in outcomes if outcome.unsettled]
        if unsettled:
            environment[ANSWERED] = True

            def ended(bytes_sent: int, complete: bool) -> None:  # noqa: FBT001  # as `SettlingBody` calls it
                headers = {name.lower(): value for name, value in response.headers.items()}
                for outcome in unsettled:
                    outcome.finish(Ended(response.status_code, headers, bytes_sent, complete, response))

            holds = any(outcome.holds for outcome in unsettled)
            if response.status_code >= ERROR and (response.content_length or inf) <= ERROR_BYTES_MAX:
                response.make_sequence()  # an HTTPException's body is an iterator, which test clients do not read
            if holds and not response.is_streamed:
                length = response.content_length or 0
                response.call_on_close(functools.partial(ended, length, True))  # noqa: FBT003  # as in `ended`
            elif response.is_streamed and (holds or not response.direct_passthrough):
                response.response = SettlingBody(response.response, ended)
            else:  # the size is known already
                ended(response.content_length or 0, True)  # noqa: FBT003  # as above
        return response

    def _settle_at_the_end(self) -> None:
        """Makes Flask call `_teardown` at the end of each request to the application, the current request included.

        This happens when a cost must be settled for the first time, because most applications settle none.
        """
        app = flask.current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
        if app in self._apps and app not in self._settling:
            flask.request_tearing_down.connect(self._teardown, app)  # harmless if another thread has done it already
            self._settling.append(app)

    def _teardown(self, _app: flask.Flask, **_: Any) -> None:
        """Settles the costs of a request that failed and got no response. Flask calls this twice for a stream."""
        environment = current_request().environ
        unsettled = [outcome for outcome in environment.get(OUTCOMES, ()) if outcome.unsettled]
        if unsettled and ANSWERED not in environment:
            for outcome in unsettled:
                outcome.finish(Ended(FAILED))


def _mark_of(view: object) -> _ViewMark | None:
    mark = getattr(view, MARK, None)
    return mark if isinstance(mark, _ViewMark) else None


def _check_several(setting: str, limits: object) -> None:
    """Raises InvalidSetting if the setting named `setting` is a single `Limit`, limiter or function without a list."""
    if not isinstance(limits, str | Sequence | None):
        raise InvalidSetting(setting, limits, f"is not a list of limits; write {setting}=['100/minute']")


def _of_flask(function: Any, *, failed: Any) -> Any:
    """Wraps `function`, a value of `deduct_when` or `settle`, so that it is called with Flask's own response.

    If a request got no response, the wrapper returns `failed`. A value that is no function is returned unchanged.
    """
    if not callable(function):
        return function
    return lambda ended: failed if ended.raw is None else function(ended.raw)
