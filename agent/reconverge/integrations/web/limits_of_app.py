"""The base class of `Limits` for FastAPI, Flask and aiohttp, and a list of decorators that decorate nothing yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from reconverge.arguments import TakesArgumentsOnly, taken_by
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.rules import checked_flag

logger = logging.getLogger("reconverge")


class UnusedDecorators:
    """The decorators of one application's limits that decorate nothing yet, so that their limits limit nothing.

    `remedy` is the code that the warning tells to write, for example on a view.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._names: dict[object, str] = {}

    def add(self, decorator: object, name: str) -> None:
        """Adds a decorator that was made; `name` is how the application has called it."""
        self._names[decorator] = name

    def used(self, decorator: object) -> None:
        """Notes that a decorator decorates something."""
        self._names.pop(decorator, None)

    def __bool__(self) -> bool:
        return bool(self._names)

    def log(self) -> None:
        """Logs a warning for each unused decorator. Called when the application serves, so that all views exist."""
        for name in self._names.values():
            logger.warning("reconverge: %s decorates nothing, so it limits nothing; write %s", name, self._remedy)
        self._names.clear()


class Decorator:
    """A decorator of views. Raises TypeError if it is used in a `with` statement, which only other libraries allow."""

    def __init__(self, decorate: Callable[..., Any]) -> None:
        self._decorate = decorate
        self.__name__ = decorate.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._decorate(*args, **kwargs)

    if not TYPE_CHECKING:  # hidden from type checkers, which find the mistake themselves

        def __enter__(self) -> NoReturn:
            raise TypeError(
                "limits.limit(...) decorates views, and has no block; in a view ask a limiter of the agent, as in:"
                " if not limiter.ask_blocking(key): flask.abort(429)"
            )

        __exit__ = __enter__


class LimitsOfApp(TakesArgumentsOnly):
    """The base class of `Limits` for FastAPI, Flask and aiohttp."""

    guard: Guard

    @property
    def enabled(self) -> bool:
        """Whether the limits decide at all; a test can set it to False."""
        return self.guard.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self.guard.enabled = checked_flag("enabled", enabled)

    def reset(self) -> None:
        """Forgets all counts, for tests; see `Agent.reset`."""
        self.guard.agent.reset()

    def request_filter(self, function: Any) -> Any:
        """Exempts requests for which `function` returns true from all limits. Can be used as a decorator."""
        return self.guard.request_filter(function)

    def key_of(self, request: Any, name: str | None = None) -> str | None:
        """Returns the key under which the limit `name` has counted a framework's request, for `RateLimiter.reset`.

        Without a name, returns the key of the first limit. Returns None if no such limit has decided about the request.
        """
        keys = (outcome.key_of(name) for outcome in self._outcomes_of(request))
        return next((key for key in keys if key is not None), None)

    def _where_to_pass(self) -> Mapping[str, str]:
        return taken_by(Guard.__init__, "Limits(NAME=...)")

    def _outcomes_of(self, request: Any) -> Sequence[Outcome]:
        """Returns the outcomes of a request so far, in the order of the decisions."""
        raise NotImplementedError
