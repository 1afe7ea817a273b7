"""Says of a rule with a path that no route of the application leads to: it would limit nothing, and nobody would know.

A rule can miss its place by a typing error, or because it names the place as another application has it: a rule in a
middleware around an application whose login is mounted at `/api/login` does nothing with `paths=["/login"]`. Where a
framework lists its routes, they are compared with the paths of all rules once the application has begun, and a path
that meets none of them is told of in one warning, with the route that is nearest. What cannot be listed, such as an
application of another kind that is mounted somewhere, counts as if it had every route there. At the same occasion rules
learn which values of their paths may have slashes, by the routes that they name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from reconverge.integrations.paths import BELOW, below_mount, deep_at, key_of

if TYPE_CHECKING:
    from reconverge.integrations.declared import Declared

logger = logging.getLogger("reconverge")

NEAREST_MAX: Final = 1000
"""Among so many routes the nearest one is looked for."""


class Reach:
    """Tells of the paths of rules that lead nowhere, each once. `failed` is told of errors, which break nothing."""

    def __init__(self, rules: Iterable[Declared], failed: Callable[[Exception, str], None]) -> None:
        self._rules = [declared for declared in rules if declared.places is not None]
        self._failed = failed
        self._told: dict[tuple[str, str], object] = {}
        self.wanted = bool(self._rules)
        """Whether there is anything to look at, still."""

    def look(
        self,
        patterns: Callable[[], Sequence[str] | None],
        roots: Iterable[str] = (),
        *,
        mounted: bool = False,
        nested: bool = False,
    ) -> None:
        """Compare the rules with the patterns of all routes; None if these cannot be listed.

        `roots` are what the application is mounted at. `mounted` says that it may be mounted elsewhere, too, which is
        only told by a request; `nested` that its patterns may have a prefix that the paths do not have. Then this is
        called once more with the first request.
        """
        # Without a lock, which a request that a signal handler makes up would wait for. Two looks at once do no harm.
        if not self.wanted:
            return
        self.wanted = mounted or nested
        try:
            self._look(patterns(), list(roots), mounted=mounted, nested=nested)
        except Exception as error:  # noqa: BLE001  # an application that cannot be looked at is served all the same
            self._failed(error, "routes")

    def _look(self, patterns: Sequence[str] | None, roots: Sequence[str], *, mounted: bool, nested: bool) -> None:
        if patterns is None:
            return
        prefixes = [root.rstrip("/") for root in roots if root]
        above = [f"{prefix}{each}" for prefix in prefixes for each in patterns]
        below = [inner for each in patterns for inner in below_mount(each, prefixes)]
        known = list(dict.fromkeys([*patterns, *above, *below]))
        keys = [_segments(each) for each in known]
        if nested:
            keys += [key[start:] for key in keys for start in range(1, len(key))]
        for declared in self._rules:
            assert declared.places is not None
            declared.places.learn(known)
            for place in declared.places.all:
                wanted = [_segments(each) for each in (place.path, *below_mount(place.path, roots))]
                if mounted:  # at anything
                    wanted += [wanted[0][start:] for start in range(1, len(wanted[0]))]
                if not any(_meet(one, other) for one in wanted for other in keys):
                    self._tell(declared.name, place.path, patterns)

    def _tell(self, name: str, path: str, patterns: Sequence[str]) -> None:
        mine = object()
        if self._told.setdefault((name, path), mine) is not mine:
            return
        near = nearest(path, patterns)
        advice = "it has no routes" if near is None else f"the nearest route is {near!r}"
        logger.warning(
            "reconverge: rule %r limits nothing at its path %r, to which no route of this application leads; %s."
            " Write the path as the router below the limit has it",
            name,
            path,
            advice,
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
