"""The routes of an aiohttp server: of what is mounted in it, with its prefixes, and which handlers they lead to."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from aiohttp import web
from aiohttp.hdrs import METH_ALL

from reconverge.integrations.paths import BELOW
from reconverge.integrations.reach import Route, methods_in

DEPTH_MAX: Final = 32
"""So many applications are looked into, one mounted in the other."""


def mount_of(request: web.Request) -> str:
    """The prefix of the sub-application in which a request is being served; empty in the outermost one."""
    apps = request.match_info.apps
    here = request.app
    if len(apps) < 2 or here is apps[0]:
        return ""
    return next((prefix for app, prefix in _mounts(apps[0], 0) if app is here), "")


def _mounts(app: web.Application, depth: int) -> Iterator[tuple[web.Application, str]]:
    """The sub-applications of an application, with the prefixes of their paths."""
    for resource in app.router.resources() if depth < DEPTH_MAX else ():
        info = resource.get_info()
        below, prefix = info.get("app"), info.get("prefix")
        if isinstance(below, web.Application):
            yield below, prefix or ""
            yield from _mounts(below, depth + 1)


def routes_of(app: web.Application, depth: int = 0) -> Iterator[Route]:
    """All routes of an application and of those that are mounted in it, with and without prefixes."""
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
    """The methods that lead to a route; of a class of views, those that it has."""
    handler = route.handler
    if inspect.isclass(handler) and issubclass(handler, web.View):
        return methods_in([method for method in METH_ALL if hasattr(handler, method.lower())])
    return methods_in([route.method])


def handled_in(app: web.Application, depth: int = 0) -> Iterator[tuple[object, Route]]:
    """Each handler, and each method of a class of views, with a route that leads to it."""
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
