"""Logs warnings about limits in places where they limit nothing.

A limit above a decorator such as `@app.get` limits nothing: that decorator has registered the bare function by then.
The framework calls the bare function, and leaves no sign of that on the function. So the names that the decorated
module or function knows are searched for an application that serves it: the decorator below was found by such a name.

A middleware that is dropped before it serves a request limits nothing either. It takes an application and is one
itself. Where the statement `RateLimitMiddleware(app, "5/minute")` drops it, the server goes on calling the bare
application.

A transport of a client to which no call comes limits nothing either, as the client's other settings lead past it. A
transport sees only its own end, so that is when it is logged, unless another one has used the limit.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from reconverge.limiter.enforcement.switches import OFF
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.limiter.faces.rate_limiter import RateLimiter

logger = logging.getLogger("reconverge")
_logged = LoggedOnce()

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


def warn_if_dropped(middleware: object) -> finalize:  # type: ignore[type-arg]  # of any arguments
    """Returns a finalizer that logs a warning when `middleware` is deleted, unless the caller has detached it.

    At the end of the process, the finalizer logs nothing.
    """
    warning = finalize(middleware, _log_dropped, type(middleware).__name__)
    warning.atexit = False  # a process that only imports the application serves nothing
    return warning


def _log_dropped(name: str) -> None:
    logger.warning(
        "reconverge: a %s was made, and dropped before it served a request, so its limits limit nothing; keep it in "
        "the place of the application, as in app = %s(app, '100/minute')",
        name,
        name,
    )


def warn_if_unused(transport: object, limiter: RateLimiter, remedy: str) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning if no call has used the limiter of `transport` by its end.

    The transport's `close` calls the finalizer, otherwise its deletion does; at the end of the process, nothing does.
    """
    warning = finalize(transport, _log_unused, type(transport).__name__, limiter, remedy)
    warning.atexit = False
    return warning


def _log_unused(name: str, limiter: RateLimiter, remedy: str) -> None:
    if limiter.switched != OFF and not limiter.control.has_decided and _logged.is_new((name, limiter.name)):
        logger.warning(
            "reconverge: a %s of the limit %r ends, and no call has used that limit, so it has limited nothing; %s",
            name,
            limiter.name,
            remedy,
        )
