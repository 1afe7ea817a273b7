"""Limits as dependencies of FastAPI's routes, routers and applications.

limits = Limits("redis://localhost:6379/0")
limits.install(app)

@app.get("/items", dependencies=[Depends(limits("5/minute"))])
async def items(): ...
"""

# No `from __future__ import annotations` here: FastAPI reads a dependency's annotations, and may not find their names.

import functools
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from reconverge.agent.agent import Agent
from reconverge.arguments import NAMELESS, with_advice
from reconverge.contracts.contracts import Contracts
from reconverge.errors import InvalidSetting, MissingExtra, PortableError
from reconverge.integrations.asgi.middleware import POLICY_VIOLATION, AsgiRequest, checked_close_code, refuse
from reconverge.integrations.asgi.routes import routes_of
from reconverge.integrations.asgi.scope_keys import in_scope, part_in_scope
from reconverge.integrations.asgi.sending import App, Decided, Receive, Scope, Send, serve_deciding
from reconverge.integrations.fastapi.messages import SocketMessages
from reconverge.integrations.fastapi.misuse import Dependency, Misuse, OfCall, OfLimit, OfShared, depends_on
from reconverge.integrations.fastapi.openapi import describe_refusals
from reconverge.integrations.web.bound_rule import Declared, FoundKey, quotas_of_fixed
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.limits_of_app import LimitsOfApp
from reconverge.integrations.web.options import OF_LIMITS, SCOPE, CommonSettings, one_of, rule_of
from reconverge.integrations.web.outcome import OUTCOME, Outcome, go_on
from reconverge.integrations.web.pipeline import Admitted
from reconverge.integrations.web.request.keys import KeyFunction, by_ip, name_of_function
from reconverge.integrations.web.rules import Limits as RuleLimits
from reconverge.integrations.web.rules import Rule, RuleSettings, UnscopedSettings, check_shared, name_of
from reconverge.integrations.web.unmatched import Route, UnmatchedRules
from reconverge.limit.limit import Limit
from reconverge.limiter.faces.limiter import Limiter

try:
    from starlette.exceptions import HTTPException, WebSocketException
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response

    from reconverge.integrations.fastapi.dependency_keys import KEYS, FromDependency, key_function_of
except ModuleNotFoundError as error:
    raise MissingExtra("the dependency for FastAPI", error.name or "fastapi", "fastapi") from error

logger = logging.getLogger("reconverge")

DECIDED: Final = "reconverge.decided"
"""The key in an ASGI scope for a request's outcomes, if `Limits.install` has added a middleware to write their
fields."""
OUTCOMES: Final = "reconverge.outcomes"
"""The key in an ASGI scope for a request's outcomes so far, if `Limits.install` was not called."""
OF_FLASK: Final = {
    "init_app": "in FastAPI write limits.install(app)",
    "exempt": "in FastAPI a route is limited by what it depends on, so leave Depends(limits(...)) out,"
    " or write limits('5/minute', exempt_when=...)",
}
"""Names of methods that only Flask's `Limits` has, each with the code to write in FastAPI."""


class TooManyRequests(PortableError, HTTPException):
    """Raised by a dependency for a refused request; `outcome` has the reason.

    After `Limits.install`, the response has problem details; without it, FastAPI answers as for any HTTPException. An
    application can register an exception handler of its own for this class.
    """

    def __init__(self, outcome: Outcome) -> None:
        assert outcome.refusal is not None
        self.outcome = outcome
        own = {"content-type", "content-length"}
        headers = {name: value for name, value in outcome.refusal.fields if name.lower() not in own}
        super().__init__(outcome.refusal.status, detail=outcome.refusal.detail, headers=headers)


class Limits(LimitsOfApp):
    """Makes FastAPI dependencies that limit routes: calling this object with a limit returns a dependency.

    Args:
        agent: the agent that decides; or the URL of a hub, for which an agent is made.
        key_func: returns the key of a request: a function of the request, or `Depends(current_user)` for a FastAPI
            dependency that returns a key or a user.
        guard: a guard with the settings that all limits share; or give these settings as keyword arguments.

    Raises:
        InvalidSetting: a setting is invalid.
    """

    @with_advice(
        {
            NAMELESS: "is one argument too many: limits are declared at the routes, write Depends(limits('5/minute'));"
            " settings have names, as in Limits('redis://localhost:6379/0', key_func=by_user)",
            "agent": "is given twice; leave out one, or in place of app.add_middleware write limits.install(app)",
        }
    )
    def __init__(
        self,
        agent: Agent | str | None = None,
        *,
        key_func: KeyFunction = by_ip,
        guard: Guard | None = None,
        **settings: Unpack[CommonSettings],
    ) -> None:
        key_func = key_function_of(key_func)
        guard = one_of(guard, self, agent=agent, key_func=None if key_func is by_ip else key_func, **settings)
        settings.setdefault("passes", (HTTPException, WebSocketException))
        self.guard = guard or Guard(agent, key_func=key_func, **settings)
        self._key = key_func
        self._key_functions: dict[str | None, object] = {}
        """By limit name, if it is made of a limit string: the code object of the first key function used with it."""
        self._misuse = Misuse()

    @with_advice(OF_LIMITS)
    def __call__(self, limits: OfCall, **settings: Unpack[RuleSettings]) -> Dependency:
        """Returns a dependency that admits or refuses requests. Its value is the `Outcome`.

        See `Rule` for the settings.

        Each route that depends on it has its own count. If a `scope` or a `Limiter` is given, all of these routes share
        one count. The limit is named after its text, as in `5/minute`, or after the scope, so it has the same name in
        every process. With `Contracts`, a customer has one count for all routes, and no `scope` is allowed.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        """
        if callable(limits):
            self._misuse.note_function(limits)
        elif not isinstance(limits, Limiter | Contracts):
            quotas_of_fixed(limits)
        if settings.get("scope") is None and not isinstance(limits, Limiter | Contracts):
            settings.setdefault("per_route", True)
        key = settings.get("key_func")
        if key is not None:
            key = settings["key_func"] = key_function_of(key)
        rule = rule_of(limits, settings)
        named = rule.name is not None or isinstance(rule.scope, str)
        if rule.name is None:
            settings["name"] = self._name_of(rule)
            rule = rule_of(limits, settings)
            if not isinstance(limits, Limiter | Contracts):  # a customer has one name, whichever key function finds it
                self._warn_of_shared_name(rule)
        declared = self.guard.declare(rule, shown=named)
        source = key or self._key
        if isinstance(source, FromDependency):
            asked = _DependencyAsk(self.guard, declared, source)
            checks = _limited_by_dependency(asked.checks(), source)
        else:
            asked = _DependencyAsk(self.guard, declared)
            checks = asked.checks()
        asked.dependency = Dependency(checks, declared.name, declared.status, rule)
        self._misuse.made.append(asked.dependency)
        return asked.dependency

    @with_advice(OF_LIMITS)
    def limit(self, limits: OfLimit, **settings: Unpack[RuleSettings]) -> Dependency:
        """Returns a dependency, as calling this object does. In other frameworks, `limit` returns a decorator."""
        return self(limits, **settings)

    def _warn_of_shared_name(self, rule: Rule) -> None:
        """Logs a warning if two limits have the same name but different key functions: they count equal keys together.

        A client that can choose its key in one limit could use up another client's quota in the other limit.
        """
        function: Any = rule.key_func or self.guard.key_func
        function = function.depends.dependency if isinstance(function, FromDependency) else function
        code = name_of_function(function), getattr(function, "__code__", function)
        if self._key_functions.setdefault(rule.name, code) != code:
            logger.warning(
                "reconverge: two limits with different key functions have the name %r, so they count equal keys"
                " together; give one of the limits another name=",
                rule.name,
            )

    def _name_of(self, rule: Rule) -> str:
        """Returns a name for a rule's limit, made of its text, and thus the same in every process."""
        if isinstance(rule.scope, str):
            return rule.scope
        limits = rule.limits
        if isinstance(limits, Limiter):
            return limits.name
        if isinstance(limits, Contracts):
            return "contracts"
        if isinstance(limits, str):
            text = limits
        elif isinstance(limits, Limit):
            text = limits.name or str(limits)
        elif callable(limits):
            text = name_of(limits)
        else:
            text = ";".join(map(str, limits))
        name = re.sub(r"[ ,;|]+", "-", text.strip())
        if rule.key_func is not None and rule.key_func is not self.guard.key_func:
            name = f"{name}.{name_of_function(rule.key_func)}"
        return name.replace("<lambda>", "key")

    def messages(
        self, limits: RuleLimits, *, close_code: int = POLICY_VIOLATION, **settings: Unpack[RuleSettings]
    ) -> SocketMessages:
        """Limits clients' messages through websockets; all connections of one key share a count. See `Rule`.

        Args:
            limits: see `Rule.limits`.
            close_code: the code that closes a websocket with too many messages: 1008, or 1013 (try again later).
            settings: see `Rule`, without dependencies; without a `name` the limit is called `messages`.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        """
        key = key_function_of(settings.get("key_func") or self._key)
        if isinstance(key, FromDependency):
            problem = (
                "is a dependency, which FastAPI calls for connections and not for messages; set socket.state.user"
                " before the first message, and pass by_user"
            )
            raise InvalidSetting("key_func", key.__name__, problem)
        declared = self.guard.declare(rule_of(limits, settings), name="messages")
        return self._misuse.noted(SocketMessages(self.guard, declared, checked_close_code(close_code)))

    @with_advice(SCOPE)
    def shared_limit(self, limits: OfShared, scope: str, **settings: Unpack[UnscopedSettings]) -> Dependency:
        """Returns a dependency for routes that share a count under the name of their `scope`."""
        check_shared(scope)
        return self(limits, scope=scope, **settings)

    def _outcomes_of(self, request: HTTPConnection) -> Sequence[Outcome]:
        scope = request.scope
        decided = scope.get(DECIDED) or scope.get(OUTCOMES)
        outcome: Outcome | None = scope.get(OUTCOME)
        return list(decided) if decided else [] if outcome is None else [outcome]

    def install(self, app: Any) -> None:
        """Adds to `app` a middleware that adds response fields and settles costs, and a handler that answers refusals.

        The application's OpenAPI document then describes refusals. Raises InvalidSetting if `app` has begun to serve.
        """
        if not hasattr(app, "add_middleware") or not hasattr(app, "add_exception_handler"):
            problem = "is not a FastAPI application; for routers, too, write limits.install(app) with the application"
            raise InvalidSetting("app", app, problem)
        self._misuse.install(app, _Fields)
        app.add_exception_handler(TooManyRequests, answer_refusal)
        if hasattr(app, "openapi"):  # an application of Starlette alone has no document
            describe_refusals(app)

    if not TYPE_CHECKING:  # hidden from type checkers

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError; for a name of Flask's extension, the error shows what to write in FastAPI."""
            if name in OF_FLASK:
                raise AttributeError(f"limits.{name} is for Flask; {OF_FLASK[name]}", name=name, obj=self)
            return object.__getattribute__(self, name)


class _Fields:
    """An ASGI middleware that adds the fields of all limits that decided about a request to its response."""

    def __init__(self, app: App, misuse: Misuse) -> None:
        self.app = app
        self._misuse = misuse
        self._looked = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves one connection, as an ASGI application. A plain function is faster here than a coroutine function."""
        kind = scope["type"]
        if kind != "http" and kind != "websocket":  # noqa: PLR1714  # half as long as to look into a set
            return self.app(scope, receive, send)
        app = self.app
        if not self._looked or self._misuse.made or kind == "websocket":  # all routes exist by now
            again, self._looked = self._looked, True
            self._misuse.look(scope, again=again)
            if kind == "websocket":
                app = self._misuse.watching(app)
        decided = scope[DECIDED] = Decided()
        return serve_deciding(app, scope, receive, send, decided)


class _RefusedDependency(Response):
    def __init__(self, outcome: Outcome) -> None:
        assert outcome.refusal is not None
        self._outcome = outcome
        super().__init__(outcome.refusal.body, outcome.refusal.status)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await refuse(self._outcome, scope, receive, send)


async def answer_refusal(_request: Request, error: Exception) -> Response:
    """The exception handler that `Limits.install` adds. Returns problem details, or the response of `on_breach`."""
    return _RefusedDependency(cast("TooManyRequests", error).outcome)


def _limited_by_dependency(check: Callable[[Any, Any], Awaitable[Outcome]], key: FromDependency) -> Any:
    """Returns a dependency that has FastAPI call the dependency `key.depends` first, and then checks the request."""

    async def limited(
        connection: HTTPConnection,
        response: Response = None,  # type: ignore[assignment]
        found: Any = key.depends,
    ) -> Outcome:
        connection.scope.setdefault(KEYS, {})[key] = found
        return await check(connection, response)

    return limited


class _DependencyAsk:
    """The rule of a FastAPI dependency, and the function that checks requests by it."""

    def __init__(self, guard: Guard, declared: Declared, key: FromDependency | None = None) -> None:
        self._guard = guard
        self._declared = declared
        self._rules = [declared]
        finders = in_scope if key is None else lambda rule, _: (key.in_scope, part_in_scope(rule))
        pipeline = guard.pipeline(self._rules, finders)
        self._decide = None if pipeline is None else pipeline.decide
        self._unmatched = UnmatchedRules([declared], guard.failed, views=True)
        self.dependency: object = None
        """The dependency object by which routes depend on this rule."""

    def _routes(self, app: object) -> list[Route] | None:
        """Returns the routes of an application that depend on this rule; None if no such route is found."""
        routes = routes_of(app, lambda holder: depends_on(getattr(holder, "dependant", None), self.dependency))
        return routes or None

    def checks(self) -> Callable[..., Awaitable[Outcome]]:
        guard, decide = self._guard, self._decide

        async def check(connection: HTTPConnection, response: Response = None) -> Outcome:  # type: ignore[assignment]
            found: Outcome | list[FoundKey] | None = None
            if decide is not None and guard.enabled and not guard.filters:
                scope: Any = connection.scope
                found = decide(scope)
                if isinstance(found, Admitted):  # the same as in `_check`, earlier, because most requests end here
                    decided = scope.get(DECIDED)
                    if isinstance(decided, Decided):
                        scope[OUTCOME] = found
                        decided.append(found)
                        return found
            return await self._check(connection, response, found)

        return check

    async def _check(
        self, connection: HTTPConnection, response: Response | None, outcome: Outcome | list[FoundKey] | None
    ) -> Outcome:
        """Decides about a request by the rule, and adds the response fields. Raises an error for a refused request.

        `outcome` is the decision, if it is made already. A list holds the keys found so far, and the guard must still
        decide. With None, no key has been sought yet.
        """
        scope: Any = connection.scope
        if self._unmatched.wanted:
            routes = functools.partial(self._routes, scope.get("app"))
            self._unmatched.look(routes, (str(scope.get("root_path") or ""),))
            self._unmatched.look_at_parameters(scope.get("path_params") or {}, routes)
        if not isinstance(outcome, Outcome):
            request = AsgiRequest(scope, self._guard.addresses, connection=connection)
            if outcome is None:
                outcome = self._guard.at_once(request, self._rules)
            if not isinstance(outcome, Outcome):
                outcome = await self._guard.check_further(request, self._rules, outcome)
        scope[OUTCOME] = outcome
        return self._entered(outcome, scope, response)

    def _entered(self, outcome: Outcome, scope: Any, response: Response | None) -> Outcome:
        """Adds an outcome's fields to the response, and returns the outcome. Raises an error for a refusing outcome.

        The error is TooManyRequests; for a websocket, WebSocketException. Raises InvalidSetting for a cost that depends
        on the response if `Limits.install` was not called.
        """
        decided = scope.get(DECIDED)
        if isinstance(decided, Decided) and outcome.allowed:
            decided.add(outcome)
            return outcome
        before: list[Outcome] = scope.setdefault(OUTCOMES, [])
        if not outcome.allowed:
            if isinstance(decided, Decided):
                decided.take_back(outcome)
            go_on(before, outcome)
            if scope["type"] == "websocket":
                raise WebSocketException(POLICY_VIOLATION, "rate limit")
            raise TooManyRequests(outcome)
        go_on(before, outcome)
        if outcome.unsettled:
            holds = outcome.holds
            for each in before:
                each.take_back()
            if holds:
                problem = "holds a slot until the response ends, so it needs limits.install(app)"
                raise InvalidSetting("limits", self._declared.rule.limits, problem)
            problem = "a limit on what is in progress, or that depends on the response, needs limits.install(app)"
            raise InvalidSetting("settle", self._declared.name, problem)
        if response is not None:  # a websocket has none
            for name, value in outcome.fields:
                response.headers.append(name, value)
        return outcome
