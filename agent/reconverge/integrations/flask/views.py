"""Finds limited views that the application never calls.

A decorator above `@app.get` wraps a function that Flask has registered already. So Flask calls the bare function, and
the limit is never checked. Only the list of all endpoints shows this, so the check runs at the first request.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import flask
import flask.views

from reconverge.errors import InvalidSetting
from reconverge.integrations.misplaced import registry_of
from reconverge.integrations.web.rules import name_of
from reconverge.integrations.web.unmatched import Route, wrapped_in
from reconverge.integrations.wsgi import listed

T = TypeVar("T")

logger = logging.getLogger("reconverge")

PARENTHESES = "was used without parentheses; write @limits.limit('5/minute')"

NO_VIEW = (
    "limits of Flask count requests to views; limit another function, such as a command, by @limited('5/minute',"
    " agent=agent) of reconverge.integrations.decorators"
)


def checked_app(app: object) -> flask.Flask:
    """Returns `app`. Raises InvalidSetting unless it is a Flask application."""
    if not isinstance(app, flask.Flask):
        problem = "is not a Flask application; for others see reconverge.integrations.fastapi, .aiohttp, .asgi, .wsgi"
        raise InvalidSetting("app", app, problem)
    return app


def is_answered_by_flask(app: flask.Flask, request: flask.Request) -> bool:
    """Returns whether Flask answers a request without a view: for a static file, or for an OPTIONS request."""
    if request.method == "OPTIONS" and getattr(request.url_rule, "provide_automatic_options", False):
        return True  # a browser sends these itself, before requests to other origins
    blueprint, _, name = (request.endpoint or "").rpartition(".")
    owner = app.blueprints.get(blueprint) if blueprint else app
    return name == "static" and owner is not None and owner.has_static_folder


def check_view(view: object, word: str) -> None:
    """Raises InvalidSetting unless `view` is a view, a class of views or a blueprint; `word` names the decorator."""
    if isinstance(view, flask.Flask):
        raise InvalidSetting("view", view, "is an application; use default_limits= for all of its views")
    if inspect.isclass(view) and not issubclass(view, flask.views.View):
        raise InvalidSetting("view", view, "is a class, but not a subclass of flask.views.View; inherit that")
    if not callable(view):
        raise InvalidSetting("view", view, f"is not a view; write @limits.{word} below @app.get")
    registry = registry_of(view)
    if registry is not None:
        raise InvalidSetting("view", view, f"is what {registry} calls, and {NO_VIEW}")


def called_outside(view: object) -> InvalidSetting:
    """Returns the error about a limited view that is called where there is no request, as by a command."""
    return InvalidSetting("view", name_of(view), f"was called outside of a request, and {NO_VIEW}")


def decorated_class(view: Any, decorate: Callable[[Any], Any]) -> Any:
    """Adds `decorate` to the decorators of a class-based view, which `as_view` applies. Returns the class."""
    view.decorators = [*view.decorators, decorate]
    return view


def warn_of_unmatched(
    app: flask.Flask, limited: Iterable[tuple[object, object, str]], rules_of: Callable[[object], Iterable[object]]
) -> None:
    """Raises InvalidSetting for a limit above `@app.get`: Flask has registered the view without the limit.

    If a class is registered once with its limit and once without, only logs a warning. Each item of `limited` has the
    limit's rule, the view without the limit, and the text of the limit.
    """
    endpoints = {name: list(_chain(view)) for name, view in app.view_functions.items()}
    reached = {id(rule) for views in endpoints.values() for view in views for rule in rules_of(view)}
    for own, bare, text in limited:
        # A class may have another endpoint without the limit on purpose.
        if id(own) in reached and not inspect.isclass(bare):
            continue
        names = [
            name
            for name, views in endpoints.items()
            if any(each is bare for each in views) and not any(rule is own for view in views for rule in rules_of(view))
        ]
        if not names:
            continue
        name = getattr(bare, "__name__", bare)
        problem = f"is never applied: the endpoint {names[0]!r} lacks it; put @limits.limit below @app.get"
        problem += ", or on a class before as_view"
        if id(own) not in reached:
            raise InvalidSetting(text, name, problem)
        logger.warning("reconverge: %s of %s %s", text, name, problem)


def warn_without_app(
    app: flask.Flask,
    blueprints: Iterable[object],
    rules_of: Callable[[object], Iterable[object]],
    *,
    limits_all: bool,
) -> None:
    """Logs a warning if the limits of an application need `init_app`, which was not called.

    `blueprints` are the limited ones; `limits_all` is whether there are default or application limits.
    """
    if limits_all:
        lack = "default_limits limit nothing in"
    elif any(each is blueprint for each in app.blueprints.values() for blueprint in blueprints):
        lack = "the limits of blueprints limit nothing in"
    elif any(rule for view in app.view_functions.values() for each in _chain(view) for rule in rules_of(each)):
        lack = "no RateLimit field and no Retry-After is added, and no cost or slot given back, in"
    else:
        return
    logger.warning("reconverge: %s %r; call limits.init_app(app)", lack, app)


def warn_of_unregistered(apps: Iterable[flask.Flask], limited: Iterable[object]) -> None:
    """Logs a warning for each limited blueprint that no application has registered."""
    registered = {id(blueprint) for app in apps for blueprint in app.blueprints.values()}
    for blueprint in limited:
        if id(blueprint) not in registered:
            logger.warning(
                "reconverge: the limits of the blueprint %r limit nothing, as no application has it; write"
                " app.register_blueprint(blueprint), or limit the blueprint that has the views",
                getattr(blueprint, "name", blueprint),
            )


def routes_of_rules(
    apps: Iterable[flask.Flask], rules_of: Callable[[object], Iterable[T]]
) -> Iterable[tuple[T, list[Route]]]:
    """Returns each rule with the routes that lead to the views, or methods of class-based views, that it limits."""
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
    """Yields a view, then the function that it wraps, and so on.

    If one of them was made from a class of views, yields this class after it.
    """
    for each in wrapped_in(view):
        yield each
        if getattr(each, "view_class", None) is not None:
            yield each.view_class
