"""Finds the route of an ASGI request from the scope of Starlette, FastAPI or Litestar. No framework is imported.

The scopes differ between releases. If no route is found, the route is the empty string, which all such requests share:
they are counted together, and a path that a client has invented never becomes a key.
"""

# If an application is mounted at `/shops/{tenant}`, Starlette reports the prefix with the value: `/shops/acme`. With
# this prefix in the route, a client that makes up a tenant for each request would get a new count each time. So if
# the path has parameters besides the route's own, their names replace the whole prefix: `/{tenant}/items/{number}`.
# The values themselves cannot be found in the prefix, because a converter has changed them. Two mounts of one route
# whose parameters have the same names are counted together.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from reconverge.integrations.web.request.paths import BELOW, with_types
from reconverge.integrations.web.unmatched import Route, methods_in

FULL_MATCH: Final = 2
"""The value of Starlette's enumeration `Match` for a route that matches a request."""
ROUTES_MAX: Final = 4096
"""The most routes that are cached by their address in memory; applications have fewer."""
DEPTH_MAX: Final = 32
"""The most levels of nested middlewares or mounted applications that are searched."""


def route_of(scope: Mapping[str, Any]) -> str:
    """Returns the route's pattern with all its prefixes; "" without a route.

    If the framework has not routed the request yet, searches the application's routes.
    """
    known = _known_route(scope)
    if known is not None:
        return known.path
    found = _found(scope)
    if found is None:
        found = next(_fitting(scope), None)
    return "" if found is None else f"{_prefix(scope, found)}{found}"


def operation_of(scope: Mapping[str, Any]) -> str:
    """Returns methods and pattern of the route that the framework has found, such as `GET /items`.

    With the methods, two routes of the same path differ. Returns the pattern alone if the route has no methods, and an
    empty string if no route matches.
    """
    known = _known_route(scope)
    if known is not None:
        return known.operation
    pattern = route_of(scope)
    return f"{_methods_of(scope.get('route'))}{pattern}" if pattern else ""


def _known_route(scope: Mapping[str, Any]) -> _KnownRoutes | None:
    """Returns the cached route of a request; None if the request is not routed yet, or its route is not cached.

    Routes below a mount are never cached.
    """
    route = scope.get("route")
    if route is not None and not scope.get("root_path") and not scope.get("app_root_path"):
        own = scope.get("fastapi")
        context = own.get("effective_route_context") if own else None
        known = _known.get(id(route) if context is None else (id(route), id(context)))
        if known is not None:
            path = scope["path"]
            # Comparing strings takes a tenth of the time of the regular expression.
            if path == known.literal or known.regex.match(path) is not None:
                return known
        _remember(route, context)
    return None


def _methods_of(route: object) -> str:
    """Returns a route's methods as text that ends in a space: `GET,POST `; empty if the route has no methods.

    The HEAD that Starlette adds to GET is left out.
    """
    methods = methods_in(getattr(route, "methods", None)) or ()
    named = sorted(method for method in methods if method != "HEAD" or "GET" not in methods)
    return f"{','.join(named)} " if named else ""


class _KnownRoutes(NamedTuple):
    """The pattern of one route, cached under the route's address in memory (`id`).

    Only routes without a mount are cached. `kept` refers to the route, so that no other object can get its address.
    """

    regex: re.Pattern[str]
    path: str
    operation: str
    literal: str | None
    """The only path that the pattern matches, if it has no parameters; else None."""
    kept: tuple[Any, Any]


_known: dict[int | tuple[int, int], _KnownRoutes] = {}
"""The cached routes, by the `id` of the route object; in an included router, by the `id` of the route and its
context."""


def _remember(route: Any, context: Any) -> None:
    """Caches the pattern of a route, if it has a path and a regular expression.

    `context` is the context in which FastAPI has included the route, or None. One route may have several patterns, so
    the path of each later request is compared with the cached pattern.
    """
    for holder in (getattr(context, "starlette_route", None), context, route):
        path, regex = _path_of(holder), getattr(holder, "path_regex", None)
        if path is not None:
            if isinstance(regex, re.Pattern):
                if len(_known) >= ROUTES_MAX:
                    _known.clear()
                pattern = cast("re.Pattern[str]", regex)
                literal = path if "{" not in path and pattern.match(path) is not None else None
                key = id(route) if context is None else (id(route), id(context))
                _known[key] = _KnownRoutes(pattern, path, f"{_methods_of(route)}{path}", literal, (route, context))
            return


def router_in(app: Any) -> Any:
    """Returns `app` if it has routes, or else the first application inside its middlewares that has; None if none."""
    for _ in range(DEPTH_MAX):
        if isinstance(getattr(app, "routes", None), list | tuple):
            return app
        app = getattr(app, "app", None)
        if app is None:
            return None
    return None


def root_of(router: Any) -> str:
    """Returns the `root_path` that an application declares, as FastAPI applications do; empty if it declares none."""
    root = getattr(router, "root_path", None)
    return root if isinstance(root, str) else ""


def routes_of(router: Any, wanted: Callable[[Any], bool] | None = None) -> list[Route] | None:
    """Returns an application's routes; None if it does not list them. A mounted part that lists none becomes `/*`.

    With `wanted`, a function of a route object, only routes for which it returns true are returned, and no `/*`.
    """
    routes = getattr(router, "routes", None)
    return None if routes is None else list(_routes(routes, wanted, 0))


def holders_of(router: Any) -> list[Any]:
    """Returns the framework's own route objects of an application and of the applications mounted in it."""
    found: list[Any] = []

    def note(holder: Any) -> bool:
        found.append(holder)
        return False

    routes_of(router, note)
    return found


def _routes(routes: Any, wanted: Callable[[Any], bool] | None, depth: int) -> Iterator[Route]:
    unseen = [Route(BELOW)] if wanted is None else []
    if depth > DEPTH_MAX:
        yield from unseen
        return
    for route in routes:
        path = _listed(route)
        contexts = getattr(route, "effective_route_contexts", None)  # an included router has these
        if path is None and contexts is not None:
            for each in contexts():
                holder = getattr(each, "starlette_route", None) or each
                if wanted is None or wanted(holder):
                    yield Route(_listed(holder) or BELOW, methods_in(getattr(holder, "methods", None)))
        elif path is None:
            yield from unseen
        elif hasattr(route, "endpoint") or hasattr(route, "methods"):
            if wanted is None or wanted(route):
                yield Route(path, methods_in(getattr(route, "methods", None)))
        else:  # the route is a mount
            below = router_in(getattr(route, "app", None))
            inner = unseen if below is None else _routes(below.routes, wanted, depth + 1)
            yield from (Route(f"{path.rstrip('/')}{each.path}", each.methods) for each in inner)


def _listed(route: object) -> str | None:
    """Returns a route's pattern, or None; parameters that may contain slashes have the type `path` in it."""
    path, convertors = _path_of(route), getattr(route, "param_convertors", None)
    if path is None or not isinstance(convertors, Mapping):
        return path
    types = cast("Mapping[str, object]", convertors)
    return with_types(path, {name: getattr(each, "regex", None) for name, each in types.items()})


def templates_for(scope: Mapping[str, Any], router: Any, own: str) -> list[str]:
    """Returns the patterns of the routes that match a request, each without and with the mount's prefix.

    `own` is the `root_path` that the application declares itself.
    """
    if router is None:
        found = route_of(scope)
        return [found] if found else []
    seen: dict[str, Any] = {**scope, "app": router, "root_path": own or scope.get("root_path") or ""}
    seen.pop("route", None)
    return [each for found in _fitting(seen) for each in (found, f"{seen['root_path']}{found}")]


def _prefix(scope: Mapping[str, Any], found: str) -> str:
    """Returns the prefix at which the application is mounted, with the names of parameters in place of their values.

    With the values, clients could make up any number of routes. The application does not know the pattern of its own
    mount. `found` is the pattern of the route below the mount.
    """
    root, top = str(scope.get("root_path") or ""), str(scope.get("app_root_path") or "")
    written = [name for name in scope.get("path_params") or () if not re.search(rf"{{{re.escape(name)}[:}}]", found)]
    if not written or root == top:
        return root
    return top + "".join(f"/{{{name}}}" for name in written)


def _found(scope: Mapping[str, Any]) -> str | None:
    """Returns the pattern of the route that the framework has found; None if the request is not routed yet."""
    template = scope.get("path_template")
    if isinstance(template, str):
        return template
    route = scope.get("route")
    if route is None:
        return None
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    # The route of an included router lacks the router's prefix; the context has it.
    for holder in (getattr(context, "starlette_route", None), context, route):
        path = _path_of(holder)
        if path is not None and _is_about(holder, _rest(scope)):
            return path
    # Several routes have this path, with different prefixes: the endpoint's name distinguishes them.
    endpoint = scope.get("endpoint")
    name = f"{getattr(endpoint, '__module__', '')}.{getattr(endpoint, '__qualname__', '')}"
    return f"{_path_of(route) or ''}#{name}"


def _fitting(scope: Mapping[str, Any]) -> Iterator[str]:
    for route in getattr(scope.get("app"), "routes", None) or ():
        matches = getattr(route, "matches", None)
        if matches is None or not _matches(matches, scope):
            continue
        path = _path_of(route)
        if path is not None:
            yield path
            continue
        contexts = getattr(route, "effective_route_contexts", None)  # an included router has these
        for context in contexts() if contexts is not None else ():
            holder = getattr(context, "starlette_route", None) or context
            path = _path_of(holder)
            if path is not None and _is_about(holder, _rest(scope)):
                yield path


def _matches(matches: Callable[..., Any], scope: Mapping[str, Any]) -> bool:
    """Returns whether a route's method `matches` accepts a request; False if the method raises an error.

    Starlette raises one, for example, for a number with thousands of digits in the path.
    """
    try:
        return bool(matches(scope)[0].value == FULL_MATCH)
    except Exception:  # noqa: BLE001  # the application will get this error itself; until then, no route matches
        return False


def _path_of(holder: object) -> str | None:
    """Returns the path pattern of a route, or the prefix of a mount; None if the object has no path."""
    path = getattr(holder, "path", None)
    return path if isinstance(path, str) else None


def _is_about(holder: object, rest: str) -> bool:
    regex = getattr(holder, "path_regex", None)
    return regex is None or regex.match(rest) is not None


def _rest(scope: Mapping[str, Any]) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(root) else path
