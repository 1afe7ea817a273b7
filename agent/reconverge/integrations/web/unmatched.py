"""Warns of a rule that matches no route of the application, by path or by method: it would limit nothing, silently.

A path may be misspelt, or be right in another application alone: where the login is mounted at `/api/login`, a rule
with `paths=["/login"]` in a middleware around the whole application does nothing. Where a framework lists its routes,
they are compared with the paths of all rules once the application has begun. A path that matches none of them is warned
of once, together with the nearest route. An application that cannot list its routes, such as one of another kind that
is mounted somewhere, counts as if it had every route there. On the same occasion rules learn which values of their
paths may have slashes, by the routes that they name.

The same comparison finds a rule with `methods=["POST"]` for routes that take nothing but GET. OPTIONS is left out of
it: what answers it, such as a middleware for CORS, is often no route. A limit that stands on single views is compared
with the routes of these views alone, where the framework shows which they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.integrations.web.request.paths import BELOW, deep_at, key_of
from reconverge.integrations.web.request.read_path import below_mount
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.integrations.web.bound_rule import Declared

logger = logging.getLogger("reconverge")

NEAREST_MAX: Final = 1000
"""Among so many routes the nearest one is looked for."""
NO_ROUTE: Final = "OPTIONS"
"""The method that is often answered where no route is."""


class Route(NamedTuple):
    """A route that an application serves."""

    path: str
    """The pattern."""
    methods: frozenset[str] | None = None
    """None for all, or if they are not known."""


def methods_in(said: object) -> frozenset[str] | None:
    """The methods that a framework says a route takes; None if it does not say."""
    if not isinstance(said, Collection) or isinstance(said, str):
        return None
    named = {each.upper() for each in said if isinstance(each, str)}
    return frozenset(named) if named and "*" not in named else None


class UnmatchedRules:
    """Warns of rules that match no route, of each path once. `failed` is called with errors, which break nothing.

    `views` says that the rules stand on views, whose routes they are compared with.
    """

    def __init__(
        self, rules: Iterable[Declared], failed: Callable[[Exception, str], None], *, views: bool = False
    ) -> None:
        self._rules = [declared for declared in rules if declared.places is not None or declared.methods is not None]
        self._failed = failed
        self._views = views
        self._logged = LoggedOnce()
        """Rules and paths that were warned of."""
        self.wanted = bool(self._rules)
        """Whether there is anything to look at, still."""

    def look(
        self,
        routes: Callable[[], Sequence[Route] | None],
        roots: Iterable[str] = (),
        *,
        mounted: bool = False,
        nested: bool = False,
    ) -> None:
        """Compare the rules with all routes; None if these cannot be listed.

        `roots` are what the application is mounted at. `mounted` says that it may be mounted elsewhere, too, which
        only a request shows; `nested` that its patterns may have a prefix that the paths do not have. Then this is
        called once more with the first request.
        """
        # Without a lock, which a request that a signal handler makes up would wait for. Two looks at once do no harm.
        if not self.wanted:
            return
        self.wanted = mounted or nested
        try:
            self._look(routes(), list(roots), mounted=mounted, nested=nested)
        except Exception as error:  # noqa: BLE001  # an application that cannot be looked at is served all the same
            self._failed(error, "routes")

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
                if mounted:  # at anything
                    wanted += [wanted[0][start:] for start in range(1, len(wanted[0]))]
                met = [methods for key, methods in keys if any(_meet(one, key) for one in wanted)]
                if met:
                    self._check_methods(declared, place.path, met)
                else:
                    self._tell_path(declared.name, place.path, [each.path for each in routes])

    def _check_methods(self, declared: Declared, path: str | None, met: Sequence[frozenset[str] | None]) -> None:
        """Log a rule none of whose methods is one of the routes that it meets."""
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
            "reconverge: rule %r limits nothing%s: it is about %s alone, and what it stands on takes %s."
            " Write methods= of those, or leave it out",
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
            "reconverge: rule %r limits nothing at its path %r, to which no route of %s leads; %s. %s",
            name,
            path,
            "its own view" if self._views else "this application",
            advice,
            "Leave paths= out, or put the limit on the view of that path"
            if self._views
            else "Write the path as the router below the limit has it",
        )


def nearest(path: str, patterns: Sequence[str]) -> str | None:
    """The pattern of the route that is most like a path: one that ends as it does, or else the most similar."""
    key = key_of(path.removesuffix(BELOW))

    def likeness(pattern: str) -> tuple[bool, float]:
        other = key_of(pattern)
        return other.endswith(key), SequenceMatcher(None, key, other).ratio()

    return max(patterns[:NEAREST_MAX], key=likeness, default=None)


def _segments(path: str) -> list[str]:
    """The segments of a path or a pattern; what may be anything is one that has a gap, and what follows `*` too."""
    deep = deep_at(path)
    if deep is not None:
        path = path[:deep].rpartition("/")[0] + BELOW
    return [segment for segment in key_of(path).split("/") if segment]


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether there is a path that both are about."""
    for number in range(max(len(one), len(other)) + 1):
        here, there = (each[number] if number < len(each) else None for each in (one, other))
        if here == "*" or there == "*":
            return True
        if here is None or there is None:
            return here is there
        if here != there and "{}" not in here and "{}" not in there:
            return False
    return True
