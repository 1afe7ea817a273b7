"""Tells whether the application calls a view that a limit was put on.

A decorator above `@app.get` wraps what that has registered already: the endpoint is the bare function, and the limit is
never asked. Only the list of all endpoints tells that, so it is looked at with the first request.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import flask
import flask.views

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.unmatched import Route
from reconverge.integrations.wsgi import listed

T = TypeVar("T")

logger = logging.getLogger("reconverge")

PARENTHESES = "stands above a view without parentheses; write @limits.limit('5/minute')"


def checked_app(app: object) -> flask.Flask:
    """The application, as it is. Raises InvalidSetting for one that is not Flask's."""
    if not isinstance(app, flask.Flask):
        problem = "is no application of Flask; for others see reconverge.integrations.fastapi, .aiohttp, .asgi, .wsgi"
        raise InvalidSetting("app", app, problem)
    return app


def check_view(view: object, word: str) -> None:
    """Raise InvalidSetting for an object that is no view, no class of views and no blueprint."""
    if isinstance(view, flask.Flask):
        raise InvalidSetting("view", view, "is an application; write default_limits= for all of its views")
    if inspect.isclass(view) and not issubclass(view, flask.views.View):
        raise InvalidSetting("view", view, "is a class, and no View of flask.views")
    if not callable(view):
        raise InvalidSetting("view", view, f"is no view; write @limits.{word} below @app.get")


def decorated_class(view: Any, decorate: Callable[[Any], Any]) -> Any:
    """A class of views, each of which is decorated once it is made a view."""
    view.decorators = [*view.decorators, decorate]
    return view


def warn_of_unmatched(
    app: flask.Flask, limited: Iterable[tuple[object, object, str]], rules_of: Callable[[object], Iterable[object]]
) -> None:
    """Warn of limits of views that are endpoints without them: for each its rule, what it was put on, and its text."""
    endpoints = {name: list(_chain(view)) for name, view in app.view_functions.items()}
    reached = {id(rule) for views in endpoints.values() for view in views for rule in rules_of(view)}
    for own, bare, text in limited:
        if id(own) in reached and not inspect.isclass(bare):  # which may serve without it elsewhere, on purpose
            continue
        names = [
            name
            for name, views in endpoints.items()
            if any(each is bare for each in views) and not any(rule is own for view in views for rule in rules_of(view))
        ]
        if names:
            logger.warning(
                "reconverge: %s of %s is never called: the endpoint %r is without it; put @limits.limit below @app.get,"
                " or on a class before as_view",
                text,
                getattr(bare, "__name__", bare),
                names[0],
            )


def routes_of_rules(
    apps: Iterable[flask.Flask], rules_of: Callable[[object], Iterable[T]]
) -> Iterable[tuple[T, list[Route]]]:
    """Each rule of views with the routes that lead to these, or to the methods of classes that have the rule."""
    found: dict[T, list[Route]] = {}
    for app in apps:
        for endpoint, view in app.view_functions.items():
            routes = [listed(each) for each in app.url_map.iter_rules(endpoint)]
            for each in _chain(view):
                for rule in rules_of(each):
                    found.setdefault(rule, []).extend(routes)
            of_class = getattr(view, "view_class", None)
            for method in getattr(of_class, "methods", None) or ():
                methods = frozenset({"GET", "HEAD"} if method == "GET" else {method})
                for rule in rules_of(getattr(of_class, method.lower(), None)):
                    found.setdefault(rule, []).extend(Route(route.path, methods) for route in routes)
    return found.items()


def _chain(view: Any) -> Iterable[Any]:
    """A view, what it wraps, and its class."""
    while view is not None:
        yield view
        if getattr(view, "view_class", None) is not None:
            yield view.view_class
        view = getattr(view, "__wrapped__", None)
