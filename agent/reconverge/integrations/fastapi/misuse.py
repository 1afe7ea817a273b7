"""Raises errors for limits that are misused in FastAPI, for example as decorators; the errors show the code to write.

FastAPI calls a dependency with its declared parameters. If a dependency is misused as a decorator, it is called with a
function. A dependency that is a coroutine function would then return a coroutine that is never awaited, so nothing
would be limited. Therefore a limit here is an object that checks its argument first.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Self, TypeAlias

from reconverge.arguments import takes
from reconverge.errors import InvalidSetting
from reconverge.integrations.asgi.routes import holders_of
from reconverge.integrations.fastapi.messages import BESIDE, MessagesBeside, SocketMessages
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.request.keys import name_of_function
from reconverge.integrations.web.rules import Limits, Rule
from reconverge.limiter.awaiting import Undecided
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.integrations.asgi.sending import App, Receive, Scope, Send

logger = logging.getLogger("reconverge")

WRITE = "write @app.get(path, dependencies=[Depends(limits('5/minute'))])"

SOCKETS_MAX: Final = 10
"""A limit on messages is logged if it has decided about no message after so many websockets that had some."""


class Dependency:
    """A limit as a dependency of FastAPI. Raises InvalidSetting if it is used as a decorator, or without Depends."""

    def __init__(self, ask: Callable[..., Awaitable[Outcome]], name: str, status: int, rule: Rule) -> None:
        self._ask = ask
        self.rule = rule
        self.attached = False
        """Whether FastAPI has read which parameters this limit takes, as it does for each dependency of a route."""
        self.called = False
        """Whether an application has called this limit itself, so that no route need depend on it."""
        self.status = status
        """The HTTP status of a refusal by this limit, 429 or 503."""
        self.__name__ = name
        # FastAPI reads the return annotation of a route, not that of a dependency.
        self._signature = inspect.signature(ask).replace(return_annotation=Annotated[Outcome, NoRoute()])
        vars(self)["__call__"] = ask  # FastAPI looks here to see whether the dependency must be awaited

    def __call__(self, connection: Any = None, response: Any = None, **found: Any) -> Awaitable[Outcome]:
        """Decides about a request. Returns an awaitable of the outcome.

        `found` has the value of the dependency that returns the key, if there is one. `connection` and `response` are
        named, because with `**found` alone the call would take twice as long.
        """
        if connection is None and not found:
            problem = "a limit is called by FastAPI alone; leave the last () out, as in Depends(limits('5/minute'))"
            raise InvalidSetting("limits", self, problem)
        if not hasattr(connection, "scope"):
            raise InvalidSetting("limits", connection, f"in FastAPI, a limit is a dependency, not a decorator; {WRITE}")
        if not self.attached:  # FastAPI has not read its parameters, so an application calls it, or forgets the await
            self.called = True
            return Undecided(self._ask_by_hand(connection, response))
        return self._ask(connection, response, **found) if found else self._ask(connection, response)

    async def _ask_by_hand(self, connection: Any, response: Any) -> Outcome:
        return await self._ask(connection, response)

    @property
    def __signature__(self) -> inspect.Signature:
        self.attached = True
        return self._signature

    @property
    def dependency(self) -> NoReturn:
        """Raises InvalidSetting: FastAPI reads this attribute of a limit that is listed without Depends."""
        raise InvalidSetting("dependencies", self, f"the limit {self.__name__!r} is listed without Depends; {WRITE}")

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        """Raises InvalidSetting. Pydantic calls this if the limit is in an annotation without Depends."""
        raise InvalidSetting("annotation", self, f"the limit {self.__name__!r} is annotated without Depends; {WRITE}")

    def __deepcopy__(self, _memo: object) -> Self:
        """Returns the object itself: FastAPI copies default values, and a copy would have its own counts."""
        return self

    def __repr__(self) -> str:
        return f"<limit {self.__name__}>"


class NoRoute:
    """A return annotation that makes FastAPI raise InvalidSetting if a limit is registered as a route."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        raise InvalidSetting("limits", "limits", f"a limit was used in the place of a route; {WRITE}")


def depends_on(dependant: Any, on: object) -> bool:
    """Returns whether a route or a dependency depends on `on`, directly or through other dependencies.

    `dependant` is FastAPI's own record of the route or the dependency.
    """
    below = getattr(dependant, "dependencies", None) or ()
    return any(each.call is on or depends_on(each, on) for each in below)


class Misuse:
    """Finds limits of one application that limit nothing, or that charge a request twice. Logs a warning about each.

    The check runs at the first request, when all routes exist.
    """

    def __init__(self) -> None:
        self._functions: list[object] = []
        """The functions that were passed as limits; none of them may serve a route."""
        self.made: list[Dependency] = []
        """The limits that were made since the last check, some of which may be in no route."""
        self._messages: list[SocketMessages] = []
        self._sockets = 0
        self._to_watch = 0
        self._logged = LoggedOnce()

    def note_function(self, function: Callable[..., object]) -> None:
        """Records a function that was passed as limits. Raises InvalidSetting for an application."""
        if takes(function, 3) and not takes(function, 1):
            problem = "is an application, and limits are no middleware; write limits.install(app)"
            raise InvalidSetting("limits", function, problem)
        self._functions.append(function)

    def install(self, app: Any, middleware: object) -> None:
        """Adds a middleware to `app`, which gets this object. Raises InvalidSetting if `app` has begun to serve."""
        try:
            app.add_middleware(middleware, misuse=self)
        except RuntimeError:
            problem = "has begun to serve, and takes no middleware any more; call limits.install(app) where it is made"
            raise InvalidSetting("app", app, problem) from None

    def noted(self, messages: SocketMessages) -> SocketMessages:
        """Returns `messages`, a limit on messages, and records it as one that has decided about no message yet."""
        self._messages.append(messages)
        self._to_watch = SOCKETS_MAX
        return messages

    def look(self, scope: Scope, *, again: bool) -> None:
        """Logs the mistakes that show at the first request or websocket, or, if `again` is True, at a later one."""
        if again:
            self._log_late()
        else:
            self._log(scope.get("app"))

    def watching(self, app: App) -> App:
        """Returns `app`, or one that seeks misuse in a websocket: in the first ones, or while a limit is unasked.

        Only a websocket that ends after a message counts for `_log_unread`: an idle one shows nothing, nor does one
        whose endpoint is busy with a message and may yet ask about it.
        """
        if not self._messages and not self._to_watch:
            return app
        self._to_watch = max(0, self._to_watch - 1)

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            beside = scope[BESIDE] = MessagesBeside(self._logged.is_new)
            try:
                await app(scope, beside.counting(receive), send)
            finally:
                if beside.has_received:
                    self._log_unread()

        return watched

    def _log_unread(self) -> None:
        """After `SOCKETS_MAX` websockets, logs a warning for each limit on messages that has decided about none."""
        self._messages = [each for each in self._messages if not each.asked]
        self._sockets += 1
        if self._sockets >= SOCKETS_MAX:
            for each in self._messages:
                logger.warning(
                    "reconverge: %d websockets have had messages, and none has asked the limit %r about one; if it is"
                    " to limit theirs, write async for text in messages(socket) in their endpoint",
                    SOCKETS_MAX,
                    each.name,
                )
            self._messages.clear()

    def _log(self, app: object) -> None:
        """Logs a warning for each limit that has no effect, or is charged twice; `app` has all its routes by now."""
        holders = holders_of(app)
        _log_defaults(holders)
        endpoints = {id(getattr(holder, "endpoint", None)) for holder in holders}
        for function in self._functions:
            if id(function) in endpoints:
                name = name_of_function(function)
                logger.warning(
                    "reconverge: limits(%s) limits nothing: in FastAPI a limit is no decorator, and %s serves a route;"
                    " %s",
                    name,
                    name,
                    WRITE,
                )
        for limit in self._take_unused():
            if id(limit.rule.limits) not in endpoints:
                logger.warning(
                    "reconverge: no route depends on the limit %r, so it limits nothing unless a function awaits it;"
                    " %s",
                    limit.__name__,
                    WRITE,
                )
        _log_twice(holders)

    def _log_late(self) -> None:
        """Logs a warning, once for each name, about unused limits that were made while the application serves.

        A dependency that returns a limit makes a new limit for each request, and FastAPI never calls that limit.
        """
        for limit in self._take_unused():
            if self._logged.is_new(limit.__name__):
                logger.warning(
                    "reconverge: the limit %r was made while the application serves, and decided about no request, so"
                    " it limits nothing; FastAPI does not call what a dependency returns, so make the limit once, and"
                    " %s",
                    limit.__name__,
                    WRITE,
                )

    def _take_unused(self) -> list[Dependency]:
        """Empties `made`, and returns the unused limits among them, except those that share a name with a used one.

        FastAPI makes a limit in a text annotation several times, and uses only one of these objects.
        """
        made, self.made = self.made, []
        used = {limit.__name__ for limit in made if limit.attached or limit.called}
        return [limit for limit in made if limit.__name__ not in used]


def _log_twice(holders: Iterable[object]) -> None:
    """Logs a warning for each route that depends on the same rule twice: each request is charged twice to one count."""
    for holder in holders:
        limits = list(dict.fromkeys(_limits_in(getattr(holder, "dependant", None))))
        for number, limit in enumerate(limits):
            if any(limit.rule == other.rule for other in limits[:number]):
                logger.warning(
                    "reconverge: the route %s depends on the limit %r twice, so each request is charged twice; leave"
                    " one of the two out, or make the limit once, and write Depends(that_limit) in both places",
                    getattr(holder, "path", holder),
                    limit.__name__,
                )


def _limits_in(dependant: Any) -> Iterator[Dependency]:
    """Yields the limits on which a route depends, also through other dependencies."""
    if dependant is not None:
        if isinstance(dependant.call, Dependency):
            yield dependant.call
        for below in dependant.dependencies:
            yield from _limits_in(below)


def _log_defaults(holders: Iterable[object]) -> None:
    """Logs a warning for each limit that is a parameter's default value without Depends, and so limits nothing."""
    asked = {id(each): each for holder in holders for each in _asked(getattr(holder, "dependant", None))}
    for function in asked.values():
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # raised for functions written in C
            continue
        for each in parameters:
            if isinstance(each.default, Dependency):
                each.default.attached = True  # it is not logged once more as a limit that stands nowhere
                logger.warning(
                    "reconverge: the limit %r limits nothing: it is the default of the parameter %s of %s, but without"
                    " Depends; write %s=Depends(limits('5/minute'))",
                    each.default.__name__,
                    each.name,
                    name_of_function(function),
                    each.name,
                )


def _asked(dependant: Any) -> Iterator[Callable[..., Any]]:
    """Yields the function that serves a route, and the functions of all its dependencies.

    `dependant` is FastAPI's own record of the route.
    """
    if dependant is not None:
        if callable(dependant.call) and not isinstance(dependant.call, Dependency):
            yield dependant.call
        for below in dependant.dependencies:
            yield from _asked(below)


class NoParameter:
    """An annotation that makes FastAPI raise InvalidSetting for `Depends(limits)`, without a limit in parentheses.

    `called` is the name of what stands in place of `limits`, and `arguments` what to write in its parentheses.
    """

    def __init__(self, called: str = "limits", arguments: str = "'5/minute'") -> None:
        self._called = called
        self._arguments = arguments

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        write = f"Depends({self._called}({self._arguments}))"
        problem = f"makes dependencies, but is not one itself; write {write}"
        raise InvalidSetting("Depends", self._called, problem)


OfCall: TypeAlias = Annotated[Limits, NoParameter()]
OfLimit: TypeAlias = Annotated[Limits, NoParameter("limits.limit")]
OfShared: TypeAlias = Annotated[Limits, NoParameter("limits.shared_limit", "'5/minute', 'scope'")]
"""The limits of each method that makes a dependency, and is none itself."""
