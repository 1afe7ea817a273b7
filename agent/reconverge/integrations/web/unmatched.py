"""Logs a warning for a rule that matches no route of the application, by path or by method, and so limits nothing.

A path may be misspelt, or be right in another application only: if the login is mounted at `/api/login`, a rule with
`paths=["/login"]` in a middleware around the whole application has no effect. If a framework can list its routes, they
are compared with the paths of all rules once the application has started. For a path that matches no route, a warning
is logged once, with the most similar route. A mounted application that cannot list its routes is treated as if it had
every route below its mount. At the same time, rules learn from the matching routes which values of their paths may
contain slashes.

The same comparison finds a rule with `methods=["POST"]` for routes that accept only GET. OPTIONS is not compared,
because it is often answered without a route, for example by a middleware for CORS. A limit on single views is compared
with the routes of these views only, if the framework reports them.

A key function of path parameters finds no key in a middleware before the router, nor by a name that the routes of its
view lack.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconverge.errors import asked
from reconverge.integrations.web.request.key_sources import parameters_of
from reconverge.integrations.web.request.paths import BELOW, deep_at, key_of
from reconverge.integrations.web.request.read_path import below_mount
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.integrations.web.bound_rule import Declared

logger = logging.getLogger("reconverge")

NEAREST_MAX: Final = 1000
"""The most routes that are compared in the search for the most similar route."""
_PARAMETER: Final = re.compile(r"[{](\w+)")
NO_ROUTE: Final = "OPTIONS"
"""The method that is often answered without a route."""


class Route(NamedTuple):
    """A route that an application serves."""

    path: str
    """The route's pattern."""
    methods: frozenset[str] | None = None
    """The methods that the route accepts; None for all, or if they are unknown."""


def methods_in(said: object) -> frozenset[str] | None:
    """Returns `said`, a framework's list of a route's methods, as a set; None for no list, or one with a wildcard."""
    if not isinstance(said, Collection) or isinstance(said, str):
        return None
    named = {each.upper() for each in said if isinstance(each, str)}
    return frozenset(named) if named and "*" not in named else None


def wrapped_in(function: Any) -> Iterator[Any]:
    """Yields a function, then the one that it wraps (`__wrapped__`), and so on to the innermost."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


class UnmatchedRules:
    """Logs a warning, once, for each path of a rule that matches no route.

    `failed` is called with each error of this check, so that no request fails because of it. `views` means that the
    rules are on views; each is compared only with the routes of its views.
    """

    def __init__(
        self, rules: Iterable[Declared], failed: Callable[[Exception, str], None], *, views: bool = False
    ) -> None:
        rules = list(rules)
        self._by_parameter = [declared for declared in rules if parameters_of(declared.key_function)]
        self._rules = [declared for declared in rules if declared.places is not None or declared.methods is not None]
        self._failed = failed
        self._views = views
        self._logged = LoggedOnce()
        """The rules and paths for which a warning was logged."""
        self.wanted = bool(self._rules or self._by_parameter)
        """Whether `look` must still be called."""

    def look(
        self,
        routes: Callable[[], Sequence[Route] | None],
        roots: Iterable[str] = (),
        *,
        mounted: bool = False,
        nested: bool = False,
    ) -> None:
        """Compares the rules with all routes, and logs warnings. `routes` returns None if routes cannot be listed.

        `roots` are the prefixes at which the application is mounted. `mounted` means that it may have further prefixes,
        which only a request shows; `nested` means that the routes' patterns may have a prefix that the rules' paths
        lack. In both cases, the caller calls this again at the first request.
        """
        # No lock: a signal handler that makes a request would wait for it. Two checks at once do no harm.
        if not self.wanted:
            return
        self.wanted = mounted or nested
        try:
            self._look(routes(), list(roots), mounted=mounted, nested=nested)
        except Exception as error:  # noqa: BLE001  # the application is served in any case
            self._failed(error, "routes")

    def look_at_parameters(self, found: Collection[str] | None, routes: Callable[[], Sequence[Route] | None]) -> None:
        """Logs a warning for each rule by a path parameter that requests lack. Called at the first request.

        `found` are the names of its parameters; None if no router has looked for any yet.
        """
        for declared in self._by_parameter:
            for name in parameters_of(declared.key_function):
                if found is None:
                    problem = "a middleware runs before the router, and knows none; limit the route itself"
                    self._tell_parameter(declared.name, name, problem)
                    continue
                there = [each.path for each in routes() or ()]
                known = {*found, *(known for path in there for known in _PARAMETER.findall(path))}
                if there and name not in known and not any(path.endswith(BELOW) for path in there):
                    problem = f"its route {there[0]} has no such parameter{asked(name, known)}"
                    self._tell_parameter(declared.name, name, problem)

    def _tell_parameter(self, rule: str, name: str, problem: str) -> None:
        if self._logged.is_new((rule, name)):
            logger.warning("reconverge: rule %r is by the path parameter %r, and finds no key: %s", rule, name, problem)

    def _look(self, routes: Sequence[Route] | None, roots: Sequence[str], *, mounted: bool, nested: bool) -> None:
        if routes is None:
            return
        prefixes = [root.rstrip("/") for root in roots if root]
        above = [Route(f"{prefix}{each.path}", each.methods) for prefix in prefixes for each in routes]
        below = [Route(inner, each.methods) for each in routes for inner in below_mount(each.path, prefixes)]
        known = list(dict.fromkeys([*routes, *above, *below]))
        keys = [(_segments(each.path), each.methods) for each in known]
        if nested:
            keys += [(key[start:], methods) for key, methods in keys for start in range(1, len(key))]
        for declared in self._rules:
            if declared.places is None:
                self._check_methods(declared, None, [methods for _, methods in keys])
                continue
            declared.places.learn([each.path for each in known])
            for place in declared.places.all:
                wanted = [_segments(each) for each in (place.path, *below_mount(place.path, roots))]
                if mounted:  # at any prefix
                    wanted += [wanted[0][start:] for start in range(1, len(wanted[0]))]
                met = [methods for key, methods in keys if any(_meet(one, key) for one in wanted)]
                if met:
                    self._check_methods(declared, place.path, met)
                else:
                    self._tell_path(declared.name, place.path, [each.path for each in routes])

    def _check_methods(self, declared: Declared, path: str | None, met: Sequence[frozenset[str] | None]) -> None:
        """Logs a warning for a rule if none of its methods is accepted by the routes that it matches.

        `met` has the methods of each of these routes; None for a route that accepts all. `path` is the rule's path, if
        any.
        """
        wanted = declared.methods
        if wanted is None or NO_ROUTE in wanted or any(each is None or each & wanted for each in met):
            return
        if not met or not self._logged.is_new((declared.name, path or "")):
            return
        there = sorted(frozenset[str]().union(*(each for each in met if each is not None)))
        if path is not None:
            where = f" at its path {path!r}"
        else:
            where = " of its view" if self._views else ""
        logger.warning(
            "reconverge: rule %r limits nothing%s: it applies to %s only, and its routes accept only %s."
            " Choose methods= from these, or leave it out",
            declared.name,
            where,
            ", ".join(sorted(wanted)),
            ", ".join(there),
        )

    def _tell_path(self, name: str, path: str, patterns: Sequence[str]) -> None:
        if not self._logged.is_new((name, path)):
            return
        near = nearest(path, patterns)
        advice = "it has no routes" if near is None else f"the nearest route is {near!r}"
        logger.warning(
            "reconverge: rule %r limits nothing at its path %r, which no route of %s matches; %s. %s",
            name,
            path,
            "its own view" if self._views else "this application",
            advice,
            "Leave paths= out, or put the limit on the view of that path"
            if self._views
            else "Write the path as in the router below the limit",
        )


def nearest(path: str, patterns: Sequence[str]) -> str | None:
    """Returns the one of `patterns`, of routes, that is most similar to `path`; None without patterns.

    Patterns that end with the path come first.
    """
    key = key_of(path.removesuffix(BELOW))

    def likeness(pattern: str) -> tuple[bool, float]:
        other = key_of(pattern)
        return other.endswith(key), SequenceMatcher(None, key, other).ratio()

    return max(patterns[:NEAREST_MAX], key=likeness, default=None)


def _segments(path: str) -> list[str]:
    """Returns the segments of a route's pattern: `{}` stands for a value.

    A value that may contain slashes ends the list, as `*`, together with all segments after it.
    """
    deep = deep_at(path)
    if deep is not None:
        path = path[:deep].rpartition("/")[0] + BELOW
    return [segment for segment in key_of(path).split("/") if segment]


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Returns whether some path matches both patterns, given as segments."""
    for number in range(max(len(one), len(other)) + 1):
        here, there = (each[number] if number < len(each) else None for each in (one, other))
        if here == "*" or there == "*":
            return True
        if here is None or there is None:
            return here is there
        if here != there and "{}" not in here and "{}" not in there:
            return False
    return True
