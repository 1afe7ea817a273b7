"""Says what to write where a limit for FastAPI is taken for something else: a decorator, say, or a dependency itself.

FastAPI asks a dependency by the names of what it takes. A decorator is called with a function instead, at once; what a
coroutine function returns then is a coroutine that is never awaited, and no limit. So a dependency here is an object
that looks before it returns one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Annotated, Any, NoReturn, Self

from reconverge.errors import InvalidSetting
from reconverge.integrations.asgi.routes import holders_of
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.request.keys import name_of_function

logger = logging.getLogger("reconverge")

WRITE = "write @app.get(path, dependencies=[Depends(limits('5/minute'))])"


class Dependency:
    """A coroutine function that FastAPI asks. Raises InvalidSetting as a decorator, or without Depends."""

    def __init__(self, ask: Callable[..., Awaitable[Outcome]], name: str) -> None:
        self._ask = ask
        self.__name__ = name
        # FastAPI reads what a route returns, and not what a dependency does.
        self.__signature__ = inspect.signature(ask).replace(return_annotation=Annotated[Outcome, NoRoute()])
        vars(self)["__call__"] = ask  # where FastAPI looks whether it has to be awaited

    def __call__(self, connection: Any, response: Any = None, **found: Any) -> Awaitable[Outcome]:
        """Decide about a request. What it takes has names here, as it is called twice as fast then."""
        if not hasattr(connection, "scope"):
            raise InvalidSetting("limits", connection, f"a limit is a dependency in FastAPI, and no decorator; {WRITE}")
        return self._ask(connection, response, **found) if found else self._ask(connection, response)

    @property
    def dependency(self) -> NoReturn:
        """Raises InvalidSetting when FastAPI finds the limit in a list of dependencies, without Depends."""
        raise InvalidSetting("dependencies", self, f"the limit {self.__name__!r} stands there without Depends; {WRITE}")

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        """Raises InvalidSetting when FastAPI finds the limit in an annotation, without Depends."""
        raise InvalidSetting("annotation", self, f"the limit {self.__name__!r} stands there without Depends; {WRITE}")

    def __deepcopy__(self, _memo: object) -> Self:
        """FastAPI copies the default of a parameter, and a count for all requests cannot be copied."""
        return self

    def __repr__(self) -> str:
        return f"<limit {self.__name__}>"


class NoRoute:
    """Marks what FastAPI would take for the response of a route if a limit stood in its place."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        raise InvalidSetting("limits", "limits", f"a limit stands in the place of a route; {WRITE}")


def log_endpoints(app: object, functions: Iterable[object]) -> None:
    """Warn of each function that was given for limits and is what serves a route: it is another `@limits` above it."""
    holders = holders_of(app)
    _log_defaults(holders)
    endpoints = {id(getattr(holder, "endpoint", None)) for holder in holders}
    for function in functions:
        if id(function) in endpoints:
            name = name_of_function(function)
            logger.warning("reconverge: limits(%s) limits nothing, %s serves a route; %s", name, name, WRITE)


def _log_defaults(holders: Iterable[object]) -> None:
    """Warn of each limit that is the default of a parameter: for FastAPI that is a value like any other."""
    asked = {id(each): each for holder in holders for each in _asked(getattr(holder, "dependant", None))}
    for function in asked.values():
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # of what is written in C
            continue
        for each in parameters:
            if isinstance(each.default, Dependency):
                logger.warning(
                    "reconverge: the limit %r limits nothing, it is the default of %s of %s without Depends; write"
                    " %s=Depends(limits('5/minute'))",
                    each.default.__name__,
                    each.name,
                    name_of_function(function),
                    each.name,
                )


def _asked(dependant: Any) -> Iterator[Callable[..., Any]]:
    """Yields the function that serves a route, and all functions that it depends on."""
    if dependant is not None:
        if callable(dependant.call) and not isinstance(dependant.call, Dependency):
            yield dependant.call
        for below in dependant.dependencies:
            yield from _asked(below)


class NoParameter:
    """Marks what FastAPI would take for a parameter of a request if the maker of limits were a dependency itself."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> NoReturn:
        raise InvalidSetting("Depends", "limits", "makes dependencies, and is none; write Depends(limits('5/minute'))")
