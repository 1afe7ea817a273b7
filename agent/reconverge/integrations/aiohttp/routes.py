"""Lists the routes of an aiohttp application, with the prefixes of sub-applications, and the routes' handlers."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Final

from aiohttp import web
from aiohttp.hdrs import METH_ALL

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.paths import BELOW
from reconverge.integrations.web.unmatched import Route, methods_in, wrapped_in

DEPTH_MAX: Final = 32
"""The most levels of nested sub-applications that are searched."""


def mount_of(request: web.Request) -> str:
    """Returns the prefix of the sub-application that serves a request; empty in the outermost application."""
    apps = request.match_info.apps
    here = request.app
    if len(apps) < 2 or here is apps[0]:
        return ""
    mounts = (resource.get_info() for resource in _resources(apps[0]))
    return next((info.get("prefix") or "" for info in mounts if info.get("app") is here), "")


def _resources(app: web.Application, depth: int = 0) -> Iterator[web.AbstractResource]:
    """Yields the resources of an application and of its sub-applications, each sub-application before its resources."""
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        yield resource
        below = resource.get_info().get("app")
        if isinstance(below, web.Application):
            yield from _resources(below, depth + 1)


def routes_of(app: web.Application) -> Iterator[Route]:
    """Yields all routes of an application and its sub-applications; a route of static files ends in a wildcard."""
    for resource in _resources(app):
        info = resource.get_info()
        if isinstance(info.get("app"), web.Application):
            continue
        if info.get("prefix") is not None or "rule" in info:
            yield Route(f"{info.get('prefix') or ''}{BELOW}")
        else:
            for route in resource:
                yield Route(resource.canonical, _methods_of(route))


def _methods_of(route: web.AbstractRoute) -> frozenset[str] | None:
    handler = route.handler
    if inspect.isclass(handler) and issubclass(handler, web.View):
        return methods_in([method for method in METH_ALL if hasattr(handler, method.lower())])
    return methods_in([route.method])


def _added(app: web.Application) -> Iterator[tuple[web.AbstractRoute, str]]:
    for resource in _resources(app):
        if not isinstance(resource.get_info().get("app"), web.Application):
            yield from ((route, resource.canonical) for route in resource)


def handled_in(app: web.Application) -> Iterator[tuple[object, Route]]:
    """Yields each handler, and each method of a class of views, with a route that leads to it."""
    for route, path in _added(app):
        handler = route.handler
        if inspect.isclass(handler) and issubclass(handler, web.View):
            for method in _methods_of(route) or ():
                yield getattr(handler, method.lower()), Route(path, frozenset({method}))
        else:
            yield handler, Route(path, _methods_of(route))


def check_handlers(app: web.Application, limited: Iterable[Any]) -> None:
    """Raises InvalidSetting for a limited handler that no route leads to, if a route leads to its unlimited original.

    This happens if `@limits.limit` is above `@routes.get`, which has registered the handler by then.
    """
    led_to = [*(route.handler for route, _ in _added(app)), *(handler for handler, _ in handled_in(app))]
    reached = {id(each) for handler in led_to for each in wrapped_in(handler)}
    for handler in limited:
        bare = handler.__wrapped__
        if id(handler) not in reached and id(bare) in reached:
            problem = "is never applied, as a route leads to the handler without its limit; put @limits.limit below"
            raise InvalidSetting(
                "limit", getattr(bare, "__qualname__", bare), f"{problem} @routes.get, or add the limited handler"
            )


def has_served(_limits: object) -> bool:
    """Returns whether any application of this process has begun to serve. Slow, as it looks at all objects."""
    return any(issubclass(type(each), web.Application) and each.frozen for each in gc.get_objects())
