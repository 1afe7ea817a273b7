"""Which route an ASGI request takes, as Starlette, FastAPI and Litestar tell it in the scope; no framework is needed.

What they tell is not the same in all their releases. What is not found is the empty route, which all such requests
share: that counts too much together, and never makes a key of what a client has thought of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

FULL_MATCH: Final = 2
"""How Starlette's routes say that they are about a request."""


def route_of(scope: Mapping[str, Any]) -> str:
    """The pattern of the route with all its prefixes; looked for among the application's, if it was not found yet."""
    found = _found(scope)
    if found is None:
        found = next(_fitting(scope), None)
    return "" if found is None else f"{_prefix(scope, found)}{found}"


def _prefix(scope: Mapping[str, Any], found: str) -> str:
    """What the application is mounted at; where clients write part of that, the names of what they write and no more.

    Else each value would be another route. Of the rest of such a prefix nothing is known in the application below.
    """
    root, top = str(scope.get("root_path") or ""), str(scope.get("app_root_path") or "")
    written = [name for name in scope.get("path_params") or () if not re.search(rf"{{{re.escape(name)}[:}}]", found)]
    if not written or root == top:
        return root
    return top + "".join(f"/{{{name}}}" for name in written)


def _found(scope: Mapping[str, Any]) -> str | None:
    """What the framework has found already."""
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
    # One of several routes of this path, with different prefixes: they are told apart by what serves them.
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
    """The pattern of a route, or of whatever stands for one; a mount's without what is below."""
    path = getattr(holder, "path", None)
    return path if isinstance(path, str) else None


def _is_about(holder: object, rest: str) -> bool:
    regex = getattr(holder, "path_regex", None)
    return regex is None or regex.match(rest) is not None


def _rest(scope: Mapping[str, Any]) -> str:
    """The path below what the application is mounted at."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(root) else path
