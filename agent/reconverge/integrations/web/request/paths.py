"""Finds the requests that a path in a rule applies to, however a client spells the path.

A rule names a place of the application, such as `/login` or `/items/{id}`. The rule must apply if the router leads a
request there, however its path is written. Routers accept spellings that a comparison of texts does not: the regular
expressions of Starlette and Django end with `$`, which also matches before a line feed; Litestar merges slashes and
drops those at both ends; Werkzeug drops those at the beginning, and accepts a request target without any; aiohttp keeps
`%2F` within a segment; some applications ignore case, decode twice, cut off `;parameters` or resolve dots. If a rule
only compared texts, a client could choose one of those spellings and evade the limit.

So a rule's path applies to a request in any of these cases:

1. The path of the request is the rule's path: either the whole path, or the path below the mount of the application
   (`root_path`, `SCRIPT_NAME`, the prefix of a sub-application), which the router of a mounted application reads.
2. The router has chosen a route with the same pattern. Some frameworks report that before the rule decides; other
   routers can be asked about a strangely spelled path.
3. A normal form of the request's path is a normal form of the rule's path. For a normal form, the path is decoded as
   often as possible, and case, empty segments, white space, control characters, parameters and dots are removed.
4. The path is too long to be read (`read_path.py`).

The third case covers more spellings than any single router accepts, so a strange spelling of a different path may be
limited without need. This cannot happen to a path in plain characters: it is its own normal form, except for its case
and for slashes at its end. The work is linear in the length of the path, also for paths with many repetitions, and a
request's path is read once for all rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.read_path import PATH_CHARACTERS_MAX, ReadPath, normal_forms, read_path_of

TEMPLATES_MAX: Final = 4096
"""The most patterns of routes whose key is cached; applications have fewer routes."""
TEMPLATE_CHARACTERS_MAX: Final = 512
"""The longest pattern of a route whose key is cached; a longer one may contain a prefix that a client has made up."""

_GAP: Final = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}|<[^<>/]*>|\(\?P<\w+>(?:[^()]|\([^()]*\))*\)")
"""Matches a placeholder for a value in a route: `{id}`, `{id:int}`, `{id:[0-9]{2}}`, `<int:id>`, `(?P<id>[0-9]+)`."""
_TYPE: Final = re.compile(r"\{\w*:(.*)\}|<(\w+)(?:\(.*\))?:\w*>|\(\?P<\w+>(.*)\)", re.DOTALL)
"""Matches a placeholder with a type: the groups are the name of the type, or the regular expression."""
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[./]", re.DOTALL)
"""Matches the parts of a regular expression that may stand for a slash: an escape, a set of characters, a dot."""
_FILLER: Final = "\ue000"
"""The character that replaces a placeholder while the literal parts of a path are brought into normal form."""
_DEEP_FILLER: Final = "\ue001"
"""The character that replaces a placeholder for values that may contain slashes."""
_ANY_FILLER: Final = "\ue002"
"""The character that replaces a placeholder for values that may contain slashes and may be empty."""
_DEEP: Final = re.compile(f"[{_DEEP_FILLER}{_ANY_FILLER}]")
_FILLERS: Final = re.compile(f"[{_FILLER}{_DEEP_FILLER}{_ANY_FILLER}]")
BELOW: Final = "/*"
"""The end of a rule's path that also applies to all paths below."""


class RulePath:
    """One path of a rule. Raises InvalidSetting unless it begins with a slash and has valid placeholders for values."""

    def __init__(self, path: str) -> None:
        _check_values(path)
        self.path = path
        self.patterns = [path_pattern(path)]
        """Regular expressions for the path in the rule, and for each route's pattern that `learn` has added. All ignore
        case."""
        self.below = path.endswith(BELOW)
        self.key = key_of(path.removesuffix(BELOW))
        self._of_forms = [_pattern(form) for form in _forms_of_rule(path)]

    def is_near(self, forms: Iterable[str]) -> bool:
        """Returns whether one of `forms`, the normal forms of a request's path, matches this path."""
        patterns = dict.fromkeys((*self._of_forms, *self.patterns))  # most paths are their own normal form
        return any(pattern.fullmatch(form) for form in forms for pattern in patterns)

    def is_of(self, key: str) -> bool:
        """Returns whether a route is at this path, or, if the path ends in `/*`, below it.

        `key` is the route's key from `key_of`: its pattern without names and types of values.
        """
        if key == self.key:
            return True
        return self.below and (key.startswith(f"{self.key}/") or self.key == "/")

    def learn(self, template: str) -> bool:
        """Adds a route's pattern, which shows which values may contain slashes. Returns whether it was new."""
        if key_of(template) != self.key or deep_at(template) is None:
            return False
        pattern = path_pattern(f"/{template.lstrip('/')}")
        if pattern in self.patterns:
            return False
        self.patterns.append(pattern)
        return True


class Places:
    """All paths of a rule."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.all = [RulePath(path) for path in paths]
        self._matching = self._matchers()

    def find(self, request: Any) -> str | None:
        """Returns the first of the rule's paths that the request matches, in any spelling; None if none matches."""
        read = read_path_of(request)
        if not read.is_too_long:
            for matches, found in self._matching:
                for path in read.paths:
                    if matches(path):
                        return found
            templates: Sequence[str] = getattr(request, "templates", ())
            for template in templates:
                key = key_of(template)
                for place in self.all:
                    if place.is_of(key):
                        return place.path
            if not read.is_strange:
                return None
            forms = read.forms
            if not read.is_too_long:
                return self._find_strange(request, read, forms)
        return self.all[0].path  # any path of the rule may apply

    def _find_strange(self, request: Any, read: ReadPath, forms: Sequence[str]) -> str | None:
        for place in self.all:
            if place.is_near(forms):
                return place.path
        keys = read.sought(request, key_of)
        return next((place.path for place in self.all if any(map(place.is_of, keys))), None)

    def learn(self, templates: Iterable[str]) -> None:
        """Adds each of `templates`, patterns of the application's routes, to the rule's path with the same key."""
        for template in templates:
            learned = [place.learn(template) for place in self.all]
            if any(learned):
                self._matching = self._matchers()

    def _matchers(self) -> list[tuple[Callable[[str], object], str]]:
        return [(pattern.fullmatch, place.path) for place in self.all for pattern in place.patterns]


def path_pattern(path: str) -> re.Pattern[str]:
    """Returns a regular expression for a path such as `/items/{id}` or `/api/*` (all below). Raises InvalidSetting."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise InvalidSetting("paths", path, "does not begin with a slash; write a path such as /api/*")
    return _pattern(_with_fillers(path))


def _check_values(path: object) -> None:
    """Raises InvalidSetting for a path with a malformed placeholder, which would match no request."""
    if not isinstance(path, str):
        return
    literal = _GAP.sub(_FILLER, path.removesuffix(BELOW))
    for segment in literal.split("/"):
        if segment.startswith(":") or re.search(r"[][{}<>]", segment):
            name = re.sub(r"\W+", "", segment.replace(_FILLER, "")) or "id"
            said = f"has {segment.replace(_FILLER, '{...}')!r}, which is no placeholder for a value; write {{{name}}}"
            raise InvalidSetting("paths", path, f"{said}, as in /users/{{id}}")
        if "*" in segment:
            raise InvalidSetting(
                "paths", path, "has a star that is not at the end; write /api/* for all paths below /api"
            )
    if len(path) > PATH_CHARACTERS_MAX:
        raise InvalidSetting(
            "paths", path, f"is longer than {PATH_CHARACTERS_MAX} characters, the most that a path may have"
        )
    if "//" in path and path.startswith("/"):  # otherwise its first character is the mistake, as of a URL
        raise InvalidSetting("paths", path, f"has an empty segment; write {re.sub('/+', '/', path)!r}")


def key_of(template: str) -> str:
    """Returns a route's pattern in a form common to all frameworks: `/items/{}` for `/items/<int:id>`."""
    return _key_of(template) if len(template) <= TEMPLATE_CHARACTERS_MAX else _key_of.__wrapped__(template)


@lru_cache(maxsize=TEMPLATES_MAX)
def _key_of(template: str) -> str:
    text = _GAP.sub("{}", template.removeprefix("^").removesuffix("$"))
    return f"/{text.strip('/')}".replace("\\", "").casefold()


def _with_fillers(path: str) -> str:
    return _GAP.sub(_filler_for, path)


def _filler_for(gap: re.Match[str]) -> str:
    """Returns the filler character for a placeholder, which shows whether its values may contain slashes, or be empty.

    A `{name:path}` of Starlette or FastAPI may be empty, a `<path:name>` may not.
    """
    said = _TYPE.fullmatch(gap[0])
    if said is None:
        return _FILLER
    if gap[0][0] != "<" and said[1] == "path":
        return _ANY_FILLER
    expression = said[1] or said[3] or ""
    if said[2] == "path":
        return _DEEP_FILLER
    if expression.isidentifier() or not takes_slashes(expression):
        return _FILLER
    return _ANY_FILLER if takes_nothing(expression) else _DEEP_FILLER


def deep_at(path: str) -> int | None:
    """Returns the position of the first placeholder whose values may contain slashes; None if there is none."""
    return next((gap.start() for gap in _GAP.finditer(path) if _filler_for(gap) != _FILLER), None)


def takes_slashes(expression: str) -> bool:
    """Returns whether a regular expression may match a text with a slash; True if that is unknown."""
    try:
        return any(re.fullmatch(atom, "/") for atom in _ATOM.findall(expression))
    except re.error:
        return True


def takes_nothing(expression: str) -> bool:
    """Returns whether a regular expression may match the empty text; True if that is unknown."""
    try:
        return re.fullmatch(expression, "") is not None
    except re.error:
        return True


def with_types(path: str, expressions: Mapping[str, object]) -> str:
    """Returns a route's pattern with the type `path` for each value that may contain slashes.

    `expressions` are the router's regular expressions by the names of the values; applications may define types of
    their own.
    """
    for name, expression in expressions.items():
        if isinstance(expression, str) and takes_slashes(expression):
            written = f"{{{name}:path}}" if takes_nothing(expression) else f"<path:{name}>"
            named = re.escape(name)
            path = re.sub(rf"\{{{named}:\w+\}}|<\w+(?:\([^<>]*\))?:{named}>", written, path)
    return path


def _forms_of_rule(path: str) -> list[str]:
    below = path.endswith(BELOW)
    forms = dict.fromkeys(normal_forms(_with_fillers(path.removesuffix(BELOW))))
    return [f"{form.rstrip('/')}{BELOW}" if below else form for form in forms]


def _pattern(path: str) -> re.Pattern[str]:
    """Returns the regular expression of a rule's path in which filler characters have replaced the placeholders."""
    below = path.endswith(BELOW)
    text = path.removesuffix(BELOW).rstrip("/")
    deep = _DEEP.search(text)
    before = text if deep is None else text[: deep.start()]
    first, *others = map(re.escape, before.split(_FILLER))
    pattern = first
    if others:
        # The text between two values is matched at its first occurrence, without backtracking: a match exists there if
        # anywhere. So a client that repeats this text a thousand times does not make the matcher try every division of
        # the path.
        last = "" if deep else others.pop()
        pattern += "".join(f"[^/]++{piece}" if piece[:1] == "/" else f"(?>[^/]+?{piece})" for piece in others)
        if deep is None:  # a value that ends at a slash needs no backtracking
            pattern += f"[^/]++{last}" if last[:1] in ("", "/") else f"[^/]+{last}"
    if deep is not None:
        after = text[deep.end() :]
        pattern += ".*" if deep[0] == _ANY_FILLER else ".+"
        if not _FILLERS.search(after):  # otherwise all paths below match
            pattern += re.escape(after)
    return re.compile(pattern + ("(?:/.*)?" if below else "/*"), re.DOTALL | re.IGNORECASE)
