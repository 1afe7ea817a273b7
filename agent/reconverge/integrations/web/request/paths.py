"""Which requests a path in a rule is about, however a client spells the path.

A rule names a place of the application, such as `/login` or `/items/{id}`; what counts is where the router sends a
request, and not how its path is written. Routers forgive what a comparison of texts does not: Starlette's and Django's
expressions end with `$`, which also matches before a line feed; Litestar merges slashes and drops those at both ends;
Werkzeug drops those at the beginning, and takes a request target without any; aiohttp keeps `%2F` within a segment;
some applications ignore case, decode twice, cut off `;parameters` or resolve dots. If a rule compared texts, a client
would choose one of those spellings, and would be served past the limit.

So a request falls under a path in any of these cases:

1. A path of the request is the path: the whole one, or the one below what the application is mounted at (`root_path`,
   `SCRIPT_NAME`, the prefix of a sub-application), which is what the router of a mounted application looks at.
2. The router has chosen a route with the same pattern, where the framework tells that before the rule is decided, and
   where a router can be asked about a path that is spelled strangely.
3. A normal form of a path of the request is a normal form of the path: decoded as often as it can be, without case,
   empty segments, white space, control characters, parameters and dots.
4. The path is too long to be read (`read_path.py`).

The third case takes in more than any one router does. A strange spelling that leads elsewhere is then limited once too
often, and nothing else is but what is too long: a path in plain characters is its own normal form, but for its case and
slashes at its end. Work is linear in the length of the path, also for paths that a client repeats itself in; and a
request's path is read once, whichever rules look at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.read_path import PATH_CHARACTERS_MAX, ReadPath, normal_forms, read_path_of

TEMPLATES_MAX: Final = 4096
"""Patterns of routes whose form is remembered. There are as many as the application has routes."""
TEMPLATE_CHARACTERS_MAX: Final = 512
"""The form of a longer one is not remembered: what an application is mounted at may be in it, as a client wrote it."""

_GAP: Final = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}|<[^<>/]*>|\(\?P<\w+>(?:[^()]|\([^()]*\))*\)")
"""A value in a path, as routers write it: `{id}`, `{id:int}`, `{id:[0-9]{2}}`, `<int:id>`, `(?P<id>[0-9]+)`."""
_TYPE: Final = re.compile(r"\{\w*:(.*)\}|<(\w+)(?:\(.*\))?:\w*>|\(\?P<\w+>(.*)\)", re.DOTALL)
"""A value in a path, and its own name of a type, or an expression."""
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[./]", re.DOTALL)
"""The parts of an expression that may match a slash."""
_FILLER: Final = "\ue000"
"""Stands for a value in a path whose literal parts are brought into normal form."""
_DEEP_FILLER: Final = "\ue001"
"""Stands for a value that may have slashes."""
_ANY_FILLER: Final = "\ue002"
"""The same of one that may also be empty."""
_DEEP: Final = re.compile(f"[{_DEEP_FILLER}{_ANY_FILLER}]")
_FILLERS: Final = re.compile(f"[{_FILLER}{_DEEP_FILLER}{_ANY_FILLER}]")
BELOW: Final = "/*"
"""How a path ends that is about all paths below, too."""


class RulePath:
    """One path of a rule. Raises InvalidSetting unless it begins with a slash, and writes its values as routes do."""

    def __init__(self, path: str) -> None:
        _check_values(path)
        self.path = path
        self.patterns = [path_pattern(path)]
        """The path as it is written, but for its case."""
        self.below = path.endswith(BELOW)
        self.key = key_of(path.removesuffix(BELOW))
        self._of_forms = [_pattern(form) for form in _forms_of_rule(path)]

    def is_near(self, forms: Iterable[str]) -> bool:
        """Whether one of these normal forms of a path is one of this."""
        patterns = dict.fromkeys((*self._of_forms, *self.patterns))  # most paths are their own normal form
        return any(pattern.fullmatch(form) for form in forms for pattern in patterns)

    def is_of(self, key: str) -> bool:
        """Whether this is the route with that key, or above it where all below is meant."""
        if key == self.key:
            return True
        return self.below and (key.startswith(f"{self.key}/") or self.key == "/")

    def learn(self, template: str) -> bool:
        """Take in the pattern of a route that is this place: the router knows whether a value may have slashes.

        Returns whether that was new.
        """
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
        """The first path that the request falls under; None if it falls under none. See the head of this file."""
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
        return self.all[0].path  # it may be any of them

    def _find_strange(self, request: Any, read: ReadPath, forms: Sequence[str]) -> str | None:
        for place in self.all:
            if place.is_near(forms):
                return place.path
        keys = read.sought(request, key_of)
        return next((place.path for place in self.all if any(map(place.is_of, keys))), None)

    def learn(self, templates: Iterable[str]) -> None:
        """Take in the patterns of the application's routes, as far as they are among these."""
        for template in templates:
            learned = [place.learn(template) for place in self.all]
            if any(learned):
                self._matching = self._matchers()

    def _matchers(self) -> list[tuple[Callable[[str], object], str]]:
        return [(pattern.fullmatch, place.path) for place in self.all for pattern in place.patterns]


def path_pattern(path: str) -> re.Pattern[str]:
    """Compiles a path such as `/items/{id}`, or `/api/*` with all below. Raises InvalidSetting."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise InvalidSetting("paths", path, "does not begin with a slash; write a path such as /api/*")
    return _pattern(_with_fillers(path))


def _check_values(path: object) -> None:
    """Raise InvalidSetting for a path with a value that no rule can have: it would be a text that no path has."""
    if not isinstance(path, str):
        return
    literal = _GAP.sub(_FILLER, path.removesuffix(BELOW))
    for segment in literal.split("/"):
        if segment.startswith(":") or re.search(r"[][{}<>]", segment):
            name = re.sub(r"\W+", "", segment.replace(_FILLER, "")) or "id"
            said = f"has {segment.replace(_FILLER, '{...}')!r}, which is no value in a path; write {{{name}}}"
            raise InvalidSetting("paths", path, f"{said}, as in /users/{{id}}")
        if "*" in segment:
            raise InvalidSetting("paths", path, "has a star that is not at the end; /api/* is about all below /api")
    if len(path) > PATH_CHARACTERS_MAX:
        raise InvalidSetting("paths", path, f"is longer than {PATH_CHARACTERS_MAX} characters, which no path may be")
    if "//" in path:
        raise InvalidSetting("paths", path, f"has an empty segment; write {re.sub('/+', '/', path)!r}")


def key_of(template: str) -> str:
    """The pattern of a route as it is the same in all frameworks: without the names and types of its values."""
    return _key_of(template) if len(template) <= TEMPLATE_CHARACTERS_MAX else _key_of.__wrapped__(template)


@lru_cache(maxsize=TEMPLATES_MAX)
def _key_of(template: str) -> str:
    text = _GAP.sub("{}", template.removeprefix("^").removesuffix("$"))
    return f"/{text.strip('/')}".replace("\\", "").casefold()


def _with_fillers(path: str) -> str:
    """A path with one character in place of each value."""
    return _GAP.sub(_filler_for, path)


def _filler_for(gap: re.Match[str]) -> str:
    """Returns the filler for a value: Starlette's and FastAPI's `{name:path}` may be empty, `<path:name>` may not."""
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
    """Where in a path the first value stands that may have slashes; None if there is none."""
    return next((gap.start() for gap in _GAP.finditer(path) if _filler_for(gap) != _FILLER), None)


def takes_slashes(expression: str) -> bool:
    """Whether a regular expression may match a text with a slash; if that is not known, it may."""
    try:
        return any(re.fullmatch(atom, "/") for atom in _ATOM.findall(expression))
    except re.error:
        return True


def takes_nothing(expression: str) -> bool:
    """Whether a regular expression may match the empty text; if that is not known, it may."""
    try:
        return re.fullmatch(expression, "") is not None
    except re.error:
        return True


def with_types(path: str, expressions: Mapping[str, object]) -> str:
    """The pattern of a route in which each value that may have slashes is marked, with any name of its type.

    `expressions` are those that the router compares the values with, by the names of these: an application may have
    types of its own.
    """
    for name, expression in expressions.items():
        if isinstance(expression, str) and takes_slashes(expression):
            written = f"{{{name}:path}}" if takes_nothing(expression) else f"<path:{name}>"
            named = re.escape(name)
            path = re.sub(rf"\{{{named}:\w+\}}|<\w+(?:\([^<>]*\))?:{named}>", written, path)
    return path


def _forms_of_rule(path: str) -> list[str]:
    """The path of a rule in normal form."""
    below = path.endswith(BELOW)
    forms = dict.fromkeys(normal_forms(_with_fillers(path.removesuffix(BELOW))))
    return [f"{form.rstrip('/')}{BELOW}" if below else form for form in forms]


def _pattern(path: str) -> re.Pattern[str]:
    """Compiles a path whose values are fillers."""
    below = path.endswith(BELOW)
    text = path.removesuffix(BELOW).rstrip("/")
    deep = _DEEP.search(text)
    before = text if deep is None else text[: deep.start()]
    first, *others = map(re.escape, before.split(_FILLER))
    pattern = first
    if others:
        # What stands between two gaps is taken where it comes first, and for good: it is found there if at all, and a
        # client that repeats it a thousand times does not have every way to divide the path tried out.
        last = "" if deep else others.pop()
        pattern += "".join(f"[^/]++{piece}" if piece[:1] == "/" else f"(?>[^/]+?{piece})" for piece in others)
        if deep is None:  # nothing is given back of a value that only a slash can end
            pattern += f"[^/]++{last}" if last[:1] in ("", "/") else f"[^/]+{last}"
    if deep is not None:
        after = text[deep.end() :]
        pattern += ".*" if deep[0] == _ANY_FILLER else ".+"
        if not _FILLERS.search(after):  # else all that is below falls under it
            pattern += re.escape(after)
    return re.compile(pattern + ("(?:/.*)?" if below else "/*"), re.DOTALL | re.IGNORECASE)
