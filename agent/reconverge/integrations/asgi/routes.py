"""Which route an ASGI request takes, as Starlette, FastAPI and Litestar enter it in the scope; no framework is needed.

The entries are not the same in all their releases. What is not found is the empty route, which all such requests
share: that counts too much together, and never makes a key of what a client has thought of.
"""

# An application that is mounted at `/shops/{tenant}` hears from Starlette that it is mounted at `/shops/acme`. With
# that as a part of the route, a client that makes up a tenant for each request has a count of its own each time. So
# where parameters of the path are none of the route's own, their names stand for the whole prefix:
# `/{tenant}/items/{number}`. The values cannot be found in the prefix, because a converter has changed them. Two mounts
# with parameters of the same names around one route count together.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from reconverge.integrations.web.request.paths import BELOW, with_types
from reconverge.integrations.web.unmatched import Route, methods_in

FULL_MATCH: Final = 2
"""How Starlette's routes say that they are about a request."""
ROUTES_MAX: Final = 4096
"""So many routes are known by their address in memory: more than applications have."""
DEPTH_MAX: Final = 32
"""So many middlewares or mounted applications are looked into, one within the other."""


def route_of(scope: Mapping[str, Any]) -> str:
    """The pattern of the route with all its prefixes; looked for among the application's, if it was not found yet."""
    route = scope.get("route")
    if route is not None and not scope.get("root_path") and not scope.get("app_root_path"):
        own = scope.get("fastapi")
        context = own.get("effective_route_context") if own else None
        known = _known.get(id(route) if context is None else (id(route), id(context)))
        if known is not None:
            path = scope["path"]
            # A pattern that is a path itself is compared in a tenth of the time.
            if path == known.literal or known.regex.match(path) is not None:
                return known.path
        _remember(route, context)
    found = _found(scope)
    if found is None:
        found = next(_fitting(scope), None)
    return "" if found is None else f"{_prefix(scope, found)}{found}"


class _KnownRoutes(NamedTuple):
    """A route that is mounted nowhere, which is known by its address in memory as long as this keeps it."""

    regex: re.Pattern[str]
    path: str
    literal: str | None
    """The path, if the pattern is one and is about that."""
    kept: tuple[Any, Any]


_known: dict[int | tuple[int, int], _KnownRoutes] = {}
"""By the route; by that and its context, if it has one."""


def _remember(route: Any, context: Any) -> None:
    """Keep a route's holder, if its pattern names the route's paths.

    One route may stand for several patterns, so each request is compared with the pattern that is kept.
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
                _known[key] = _KnownRoutes(pattern, path, literal, (route, context))
            return


def router_in(app: Any) -> Any:
    """The application that has routes, inside of the middlewares around it; None if there is none to be seen."""
    for _ in range(DEPTH_MAX):
        if isinstance(getattr(app, "routes", None), list | tuple):
            return app
        app = getattr(app, "app", None)
        if app is None:
            return None
    return None


def root_of(router: Any) -> str:
    """The `root_path` that an application has of its own, as FastAPI's; empty if it has none."""
    root = getattr(router, "root_path", None)
    return root if isinstance(root, str) else ""


def routes_of(router: Any, wanted: Callable[[Any], bool] | None = None) -> list[Route] | None:
    """All routes of an application, `/*` below what shows no routes; None if that cannot be known.

    Or only those for which `wanted` is true, of what shows its routes.
    """
    routes = getattr(router, "routes", None)
    return None if routes is None else list(_routes(routes, wanted, 0))


def holders_of(router: Any) -> list[Any]:
    """Lists the objects that hold the router's routes, in the framework's own form."""
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
        contexts = getattr(route, "effective_route_contexts", None)  # of a router that was included
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
        else:  # something is mounted there
            below = router_in(getattr(route, "app", None))
            inner = unseen if below is None else _routes(below.routes, wanted, depth + 1)
            yield from (Route(f"{path.rstrip('/')}{each.path}", each.methods) for each in inner)


def _listed(route: object) -> str | None:
    """The pattern of a route, whose values say whether they may have slashes."""
    path, convertors = _path_of(route), getattr(route, "param_convertors", None)
    if path is None or not isinstance(convertors, Mapping):
        return path
    types = cast("Mapping[str, object]", convertors)
    return with_types(path, {name: getattr(each, "regex", None) for name, each in types.items()})


def templates_for(scope: Mapping[str, Any], router: Any, own: str) -> list[str]:
    """The pattern of the route that a request takes, with what the application is mounted at and without.

    `own` is the application's own prefix.
    """
    if router is None:
        found = route_of(scope)
        return [found] if found else []
    seen: dict[str, Any] = {**scope, "app": router, "root_path": own or scope.get("root_path") or ""}
    seen.pop("route", None)
    return [each for found in _fitting(seen) for each in (found, f"{seen['root_path']}{found}")]


def _prefix(scope: Mapping[str, Any], found: str) -> str:
    """Returns the prefix that the application is mounted at, with parameters' names in place of their values.

    Each value would be another route else. In the application below, nothing is known of the rest of such a prefix.
    """
    root, top = str(scope.get("root_path") or ""), str(scope.get("app_root_path") or "")
    written = [name for name in scope.get("path_params") or () if not re.search(rf"{{{re.escape(name)}[:}}]", found)]
    if not written or root == top:
        return root
    return top + "".join(f"/{{{name}}}" for name in written)


def _found(scope: Mapping[str, Any]) -> str | None:
    """Returns the template that the framework has found already; None if it has not."""
    template = scope.get("path_template")
    if isinstance(template, str):
        return template
    route = scope.get("route")
    if route is None:
        return None
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    # The route of a router that was included does not know the prefix; its context does.
    for holder in (getattr(context, "starlette_route", None), context, route):
        path = _path_of(holder)
        if path is not None and _is_about(holder, _rest(scope)):
            return path
    # One of several routes of this path, with different prefixes: their endpoints tell them apart.
    endpoint = scope.get("endpoint")
    name = f"{getattr(endpoint, '__module__', '')}.{getattr(endpoint, '__qualname__', '')}"
    return f"{_path_of(route) or ''}#{name}"


def _fitting(scope: Mapping[str, Any]) -> Iterator[str]:
    """The patterns of the application's routes that are about the request."""
    for route in getattr(scope.get("app"), "routes", None) or ():
        matches = getattr(route, "matches", None)
        if matches is None or not _matches(matches, scope):
            continue
        path = _path_of(route)
        if path is not None:
            yield path
            continue
        contexts = getattr(route, "effective_route_contexts", None)  # of a router that was included
        for context in contexts() if contexts is not None else ():
            holder = getattr(context, "starlette_route", None) or context
            path = _path_of(holder)
            if path is not None and _is_about(holder, _rest(scope)):
                yield path


def _matches(matches: Callable[..., Any], scope: Mapping[str, Any]) -> bool:
    """Whether a route is about the request; not if it fails to say, as of a number of thousands of digits."""
    try:
        return bool(matches(scope)[0].value == FULL_MATCH)
    except Exception:  # noqa: BLE001  # the application will meet it itself; until then, the request leads nowhere
        return False


def _path_of(holder: object) -> str | None:
    """The pattern of a route, or of a thing that stands for one; a mount's without the part below."""
    path = getattr(holder, "path", None)
    return path if isinstance(path, str) else None


def _is_about(holder: object, rest: str) -> bool:
    regex = getattr(holder, "path_regex", None)
    return regex is None or regex.match(rest) is not None


def _rest(scope: Mapping[str, Any]) -> str:
    """The path below what the application is mounted at."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(root) else path
