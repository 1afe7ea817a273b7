"""Logs a warning about a limit above a decorator such as `@app.get`, which has registered the bare function by then.

The framework calls the bare function, and leaves no sign of that on the function. So the names that the decorated
module or function knows are searched for an application that serves it: the decorator below was found by such a name.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Final

logger = logging.getLogger("reconverge")

FRAMEWORKS: Final = frozenset({"aiohttp", "fastapi", "flask", "litestar", "quart", "starlette"})


def warn_if_registered(function: Any, caller: FrameType | None) -> None:
    """Logs a warning if an application, or a table of routes, that `caller` can name serves `function` already."""
    if caller is None:
        return
    for name, each in [*caller.f_globals.items(), *caller.f_locals.items()]:
        # The attributes of other objects are not read, as a proxy or a lazy object may raise or begin work.
        if FRAMEWORKS.isdisjoint(cls.__module__.partition(".")[0] for cls in type(each).__mro__):
            continue
        if any(served is function for served in _served_by(each)):
            logger.warning(
                "reconverge: @limited limits nothing of what %s serves: it is above the decorator that registered %s "
                "there, without the limit; put @limited below it, next to the function",
                name,
                getattr(function, "__qualname__", function),
            )
            return


def _served_by(app: Any) -> Iterator[object]:
    """Yields the functions that an application, a blueprint, or a router or table of routes serves."""
    views = getattr(app, "view_functions", None)
    if isinstance(views, dict):
        yield from views.values()
    for deferred in _listed(getattr(app, "deferred_functions", None)):  # a blueprint's, before it is registered
        yield from inspect.getclosurevars(deferred).nonlocals.values()
    routes = app if isinstance(app, Iterable) else getattr(app, "routes", None)
    for route in _listed(routes):
        yield getattr(route, "endpoint", getattr(route, "handler", None))


def _listed(found: object) -> Iterable[Any]:
    return list(found) if isinstance(found, Iterable) and not isinstance(found, str) else ()
