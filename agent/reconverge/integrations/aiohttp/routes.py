"""Lists the routes of an aiohttp server, with the prefixes of sub-applications, and the handlers of these routes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from aiohttp import web
from aiohttp.hdrs import METH_ALL

from reconverge.integrations.web.request.paths import BELOW
from reconverge.integrations.web.unmatched import Route, methods_in

logger = logging.getLogger("reconverge")

DEPTH_MAX: Final = 32
"""The most levels of nested sub-applications that are searched."""


def mount_of(request: web.Request) -> str:
    """Returns the prefix of the sub-application that serves a request; empty in the outermost application."""
    apps = request.match_info.apps
    here = request.app
    if len(apps) < 2 or here is apps[0]:
        return ""
    return next((prefix for app, prefix in _mounts(apps[0], 0) if app is here), "")


def _mounts(app: web.Application, depth: int) -> Iterator[tuple[web.Application, str]]:
    """Yields the sub-applications of an application at all levels, each with its path prefix."""
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        info = resource.get_info()
        below, prefix = info.get("app"), info.get("prefix")
        if isinstance(below, web.Application):
            yield below, prefix or ""
            yield from _mounts(below, depth + 1)


def routes_of(app: web.Application, depth: int = 0) -> Iterator[Route]:
    """Yields all routes of an application and of its sub-applications, static files as a prefix with a wildcard."""
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        info = resource.get_info()
        below, prefix = info.get("app"), info.get("prefix")
        if isinstance(below, web.Application):
            yield from routes_of(below, depth + 1)
        elif prefix is not None or "rule" in info:
            yield Route(f"{prefix or ''}{BELOW}")
        else:
            for route in resource:
                yield Route(resource.canonical, _methods_of(route))


def _methods_of(route: web.AbstractRoute) -> frozenset[str] | None:
    handler = route.handler
    if inspect.isclass(handler) and issubclass(handler, web.View):
        return methods_in([method for method in METH_ALL if hasattr(handler, method.lower())])
    return methods_in([route.method])


def handled_in(app: web.Application, depth: int = 0) -> Iterator[tuple[object, Route]]:
    """Yields each handler, and each method of a class of views, with a route that leads to it."""
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        below = resource.get_info().get("app")
        if isinstance(below, web.Application):
            yield from handled_in(below, depth + 1)
            continue
        for route in resource:
            handler = route.handler
            if inspect.isclass(handler) and issubclass(handler, web.View):
                for method in _methods_of(route) or ():
                    yield getattr(handler, method.lower()), Route(resource.canonical, frozenset({method}))
            else:
                yield handler, Route(resource.canonical, _methods_of(route))


def warn_of_unmatched(app: web.Application, limited: Iterable[Any]) -> None:
    """Logs a warning for each limited handler that no route leads to, if a route leads to its unlimited original.

    This happens if `@limits.limit` is above `@routes.get`, which has registered the handler by then.
    """
    led_to = [*_handlers(app), *(handler for handler, _ in handled_in(app))]
    reached = {id(each) for handler in led_to for each in _chain(handler)}
    for handler in limited:
        bare = handler.__wrapped__
        if id(handler) not in reached and id(bare) in reached:
            logger.warning(
                "reconverge: the limit of %s is never asked: a route leads to the handler without it; put @limits.limit"
                " below @routes.get, or add the limited handler to the router",
                getattr(bare, "__qualname__", bare),
            )


def _handlers(app: web.Application, depth: int = 0) -> Iterator[object]:
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        below = resource.get_info().get("app")
        if isinstance(below, web.Application):
            yield from _handlers(below, depth + 1)
        else:
            yield from (route.handler for route in resource)


def _chain(handler: Any) -> Iterator[object]:
    """Yields a handler, then the function that it wraps (`__wrapped__`), and so on to the innermost."""
    while handler is not None:
        yield handler
        handler = getattr(handler, "__wrapped__", None)
