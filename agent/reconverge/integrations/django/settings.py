"""Makes a guard and its rules from Django's setting RECONVERGE.

RECONVERGE = {"HUB": "redis://localhost:6379/0", "LIMITS": "100/minute", "RULES": [{"PATHS": ["/api/*"], ...}]}
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from reconverge.agent.agent import Agent
from reconverge.errors import InvalidSetting, MissingExtra, ReconvergeError, asked
from reconverge.integrations.environment_keys import in_environment
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.options import GuardSettings
from reconverge.integrations.web.pipeline import Decide, Find
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.web.request.key_sources import OfUser, reads_user, source_of
from reconverge.integrations.web.request.keys import Asked, asks, by_ip, waits
from reconverge.integrations.web.request.paths import BELOW, with_types
from reconverge.integrations.web.request.request import Request
from reconverge.integrations.web.rules import SPENT, Rule, RuleSettings
from reconverge.integrations.web.unmatched import Route, UnmatchedRules, methods_in

try:
    from django.conf import settings
    from django.core import checks
    from django.core.exceptions import ImproperlyConfigured, PermissionDenied
    from django.core.signals import setting_changed
    from django.http import Http404
    from django.urls import LocalePrefixPattern, get_resolver
    from django.utils.module_loading import import_string
    from django.views import View
except ModuleNotFoundError as error:
    raise MissingExtra("the middleware for Django", error.name or "django", "django") from error

SETTING: Final = "RECONVERGE"
OF_AGENT: Final = frozenset(name.upper() for name in inspect.signature(Agent).parameters) - {"IN_DOUBT"}
"""The names of the agent's settings, without `IN_DOUBT`, which is a setting of the guard."""
OF_GUARD: Final = frozenset(name.upper() for name in GuardSettings.__annotations__) - {"AGENT", "PASSES"}
OF_RULE: Final = frozenset(name.upper() for name in RuleSettings.__annotations__) | {"LIMITS", "VIEWS"}
OURS: Final = frozenset({"AGENT", "LIMITS", "RULES"})
FUNCTIONS: Final = frozenset(
    {"COST", "DEDUCT_WHEN", "EXEMPT_WHEN", "KEY_FUNC", "LIMITS", "METER", "ON_BREACH", "SETTLE"}
)
"""The settings whose value may be the dotted path of a function or a meter. Their other values do not look like dotted
paths."""
OTHER_WORDS: Final = {"KEY_FUNCTION": "KEY_FUNC"}
"""Settings that have another name in a guard's errors: the name in the error, and the name in RECONVERGE."""
OURS_BEGIN: Final = "reconverge.integrations.django."
AUTHENTICATION: Final = "django.contrib.auth.middleware.AuthenticationMiddleware"
logger = logging.getLogger("reconverge")
_LISTED: Final = re.compile(r"(?:[\w/.~-]|<[^<>]*>|\(\?P<\w+>(?:[^()]|\([^()]*\))*\))*")
"""Matches a URL pattern that can be compared with a rule's path: `items/<int:id>/`, or a simple regular expression."""
_PLAIN: Final = re.compile(r"(?:[\w.~-]+/)+")
"""Matches the fixed beginning of a URL pattern, which can be compared with a rule's path."""
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


class UserNotLoaded(Exception):
    """Raised if the user of a request must be loaded asynchronously. The caller loads the user, and decides again."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The guard and the rules that the setting RECONVERGE describes."""

    guard: Guard
    rules: Sequence[Declared]
    """The rules for all requests, besides those on views."""
    views: Mapping[str, Sequence[str]]
    """The names of views in each rule's VIEWS. The key is the place of the rule, such as `RECONVERGE['RULES'][0]`."""
    owns_agent: bool
    decide: Decide | None
    """A function that decides by all rules from a WSGI environment; None if the rules need a `Request`."""

    def check_names(self) -> None:
        """Raises ImproperlyConfigured for a name in VIEWS that no URL has; logs a warning for PATHS without a URL."""
        script = str(getattr(settings, "FORCE_SCRIPT_NAME", None) or "")
        unmatched = UnmatchedRules(self.rules, self.guard.failed)
        unmatched.look(lambda: list(_routes(get_resolver().url_patterns)), (script,), mounted=not script)
        if not self.views:
            return
        known = set(_names(get_resolver().url_patterns))
        for place, names in self.views.items():
            for name in names:
                if name not in known:
                    shown = ", ".join(sorted(known)) or "none"
                    raise ImproperlyConfigured(f"{place}: no URL has a view named {name!r}; known: {shown}")

    def check_limits(self, views: Sized) -> None:
        """Raises ImproperlyConfigured if nothing is limited, neither by a rule nor by a limit in `views`."""
        if self.rules or not self.guard.enabled:
            return
        try:
            list(_names(get_resolver().url_patterns))  # this imports the views, which applies their decorators
        except Exception:  # noqa: BLE001  # Django reports it better, at the first request
            return
        if not views:
            raise ImproperlyConfigured(
                f"{SETTING}: the middleware is there, but nothing is limited; write 'LIMITS': '100/minute', or 'RULES',"
                " or limit a view with @limit('5/minute')"
            )

    def log_late_user(self) -> None:
        """Logs a warning if a rule counts by a user that only a middleware below this one finds."""
        by_users = [declared.name for declared in self.rules if reads_user(declared.key_function)]
        names = list(settings.MIDDLEWARE)
        ours = next((place for place, name in enumerate(names) if name.startswith(OURS_BEGIN)), len(names))
        if by_users and AUTHENTICATION in names[ours:]:
            logger.warning(
                "reconverge: %s is by_user, but RateLimitMiddleware stands above AuthenticationMiddleware in "
                "MIDDLEWARE, so no request has a user of Django yet; put it below",
                ", ".join(by_users),
            )

    def check_blocking(self) -> None:
        """Raises ImproperlyConfigured if a rule has a coroutine function; called if the middleware cannot await any."""
        slow = [declared.name for declared in self.rules if declared.rule.ever_waits]
        if waits(_function("KEY_FUNC", _said().get("KEY_FUNC"), SETTING) or by_ip):
            slow.append("KEY_FUNC")
        if slow:
            raise ImproperlyConfigured(
                f"{SETTING}: {', '.join(slow)} has a coroutine function, but the middleware runs without an event loop"
                " here: under WSGI, or because a middleware below it is synchronous only; use a plain function"
            )


@checks.register  # type: ignore[untyped-decorator]  # Django has no types
def check_middleware(**_: object) -> list[checks.Warning]:
    """A check for `manage.py`: returns a warning if LIMITS or RULES have no effect, as the middleware is missing."""
    said = getattr(settings, SETTING, None) or {}
    if not any(said.get(name) for name in ("LIMITS", "RULES")) or OURS_BEGIN in "\n".join(settings.MIDDLEWARE):
        return []
    hint = f"add '{OURS_BEGIN}RateLimitMiddleware' to MIDDLEWARE"
    return [checks.Warning(f"{SETTING} has LIMITS or RULES, which the middleware obeys, and it is missing", hint=hint)]


@cache
def configured() -> Configured:
    """Reads the setting RECONVERGE once; returns its guard and rules. Raises ImproperlyConfigured for a mistake."""
    said = _said()
    _check_names(said, OF_AGENT | OF_GUARD | OURS, SETTING)
    agent = _agent(said)
    of_guard = {name: _function(name, said[name], SETTING) for name in said if name in OF_GUARD}
    passes = (UserNotLoaded, PermissionDenied, Http404)
    with _naming(SETTING):
        guard = Guard(agent, passes=passes, **{name.lower(): value for name, value in of_guard.items()})
    rules: list[Declared] = []
    views: dict[str, Sequence[str]] = {}
    if said.get("LIMITS"):
        place = f"{SETTING}['LIMITS']"
        with _naming(place):
            rules.append(guard.declare(_function("LIMITS", said["LIMITS"], SETTING)))
    several = said.get("RULES", ())
    if isinstance(several, str | Mapping) or not isinstance(several, Sequence):
        raise ImproperlyConfigured(
            f"{SETTING}['RULES']: is {type(several).__name__}, not a list of dictionaries, one for each rule"
        )
    for number, each in enumerate(cast("Sequence[object]", several)):
        place = f"{SETTING}['RULES'][{number}]"
        rule, names = _rule(each, place)
        if names:
            views[f"{place}['VIEWS']"] = names
        with _naming(place):
            rules.append(guard.declare(rule, name=names[0] if names else f"rule.{number}"))
    pipeline = guard.pipeline(rules, in_meta) if rules else None
    decide = None if pipeline is None else pipeline.decide
    return Configured(guard, rules, views, owns_agent="AGENT" not in said, decide=decide)


def _said() -> Mapping[str, Any]:
    said = getattr(settings, SETTING, None) or {}
    if not isinstance(said, Mapping):
        raise ImproperlyConfigured(
            f"{SETTING}: is {type(said).__name__}, not a dictionary such as {{'LIMITS': '100/minute'}}"
        )
    return cast("Mapping[str, Any]", said)


def in_meta(declared: Declared, addresses: Addresses) -> tuple[Find, Find | None] | None:
    """Returns two functions that read a WSGI request's `META`: the first finds a rule's key, the second its scope.

    The second is None if the rule has no scope. Returns None in place of both if the rule needs a `DjangoRequest`, for
    example to find Django's user.
    """
    return None if isinstance(source_of(declared.key_function), OfUser) else in_environment(declared, addresses)


def _agent(said: Mapping[str, Any]) -> Agent:
    of_agent = {name.lower(): said[name] for name in said if name in OF_AGENT}
    if "AGENT" not in said:
        with _naming(SETTING, "HUB"):
            return Agent(**of_agent)
    if of_agent:
        name = next(iter(of_agent)).upper()
        raise ImproperlyConfigured(
            f"{SETTING}[{name!r}]: is a setting of the agent, but 'AGENT' gives an agent already; leave out one of them"
        )
    agent = said["AGENT"]
    if isinstance(agent, str):
        agent = _imported(agent, f"{SETTING}['AGENT']")
    if not isinstance(agent, Agent):
        raise ImproperlyConfigured(
            f"{SETTING}['AGENT']: is neither an Agent nor the dotted path of one; or write 'HUB' with a URL instead"
        )
    return agent


def _rule(said: object, place: str) -> tuple[Rule, Sequence[str]]:
    """Returns a rule of the setting RULES, and the names of the views in its VIEWS; no names without VIEWS.

    `said` is the rule as written, a dictionary or a `Rule`, and `place` is where it is written, for error messages.
    """
    if isinstance(said, Rule):
        return said, ()
    if not isinstance(said, Mapping):
        raise ImproperlyConfigured(
            f"{place}: is {type(said).__name__}, neither a dictionary nor a Rule; write {{'LIMITS': '100/minute'}}"
        )
    rule = cast("Mapping[str, Any]", said)
    _check_names(rule, OF_RULE, place)
    if not rule.get("LIMITS"):
        raise ImproperlyConfigured(f"{place}: has no 'LIMITS', such as '100/minute'")
    of_rule = {name.lower(): _function(name, rule[name], place) for name in rule if name != "VIEWS"}
    views = rule.get("VIEWS")
    if views is not None:
        if isinstance(views, str) or not isinstance(views, Sequence) or not views:
            raise ImproperlyConfigured(
                f"{place}['VIEWS']: is {type(views).__name__}, not a list of one or more names of views"
            )
        with _naming(place):
            of_rule["exempt_when"] = _other_than(cast("Sequence[str]", views), of_rule.get("exempt_when"))
    with _naming(place):
        return Rule(**of_rule), views or ()


def _other_than(views: Sequence[str], exempt_when: object) -> Asked:
    """Returns a function that exempts requests for views not in `views`, and those that `exempt_when` exempts."""
    names = frozenset(views)
    exempt = asks((lambda _request: False) if exempt_when is None else exempt_when, "exempt_when")
    if waits(exempt):

        async def other_slowly(request: Request) -> object:
            return request.route not in names or await exempt(request)

        return other_slowly
    return lambda request: request.route not in names or exempt(request)


def _function(name: str, value: Any, place: str) -> Any:
    """Returns the value of a setting; if the value is the dotted path of a function, returns the imported function.

    `name` is the setting, and `place` is where it is written, for error messages.
    """
    if name not in FUNCTIONS or not isinstance(value, str) or (name == "SETTLE" and value == SPENT):
        return value
    return _imported(value, f"{place}[{name!r}]") if _DOTTED.fullmatch(value) else value


def _imported(path: str, place: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"{place}: cannot be imported: {error}; correct the dotted path {path!r}") from error


def _check_names(said: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    for name in said:
        if name not in known:
            advice = f"there is no such setting; known: {', '.join(sorted(known))}{asked(name, known)}"
            raise ImproperlyConfigured(f"{place}[{name!r}]: {advice}")


@contextmanager
def _naming(place: str, name: str | None = None) -> Iterator[None]:
    """A context manager that turns errors into ImproperlyConfigured about the setting `name` at `place`."""
    try:
        yield
    except ReconvergeError as error:
        name = error.name.upper() if isinstance(error, InvalidSetting) else name
        where = place if name is None else f"{place}[{OTHER_WORDS.get(name, name)!r}]"
        raise ImproperlyConfigured(f"{where}: {error}") from error


def _names(patterns: Sequence[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        below = getattr(pattern, "url_patterns", None)
        if below is None:
            yield f"{prefix}{pattern.name or pattern.lookup_str}"
        else:
            yield from _names(below, f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix)


def _routes(patterns: Sequence[Any], prefix: str = "/") -> Iterator[Route]:
    """Yields the routes of all views in `patterns`, Django's URL patterns, below `prefix`.

    If a regular expression is complicated, the route has only its fixed beginning, and a wildcard for the rest.
    """
    for pattern in patterns:
        types: Mapping[str, object] = getattr(pattern.pattern, "converters", {})
        expressions = {name: getattr(each, "regex", None) for name, each in types.items()}
        text = with_types(str(pattern.pattern).removeprefix("^"), expressions)
        below = getattr(pattern, "url_patterns", None)
        if below is not None and isinstance(pattern.pattern, LocalePrefixPattern):
            yield from _routes(below, prefix)
            text = "<language>/"
        if not _LISTED.fullmatch(text if below is not None else text.removesuffix("$")):
            plain = _PLAIN.match(text)
            yield Route(f"{prefix}{'' if plain is None else plain[0]}".rstrip("/") + BELOW)
        elif below is None:
            yield Route(f"{prefix}{text.removesuffix('$')}", methods_of(pattern.callback))
        else:
            yield from _routes(below, f"{prefix}{text}")


def check_methods(rule: Rule, view: object) -> None:
    """Raises InvalidSetting if a rule's methods include none that a class-based view accepts."""
    said, there = rule.methods, methods_of(view)
    if said is None or there is None or there & {method.upper() for method in said}:
        return
    name = getattr(view, "__name__", view)
    problem = f"limits nothing: {name} only accepts {', '.join(sorted(there))}; choose methods= from these"
    raise InvalidSetting("methods", list(said), problem)


def methods_of(view: object) -> frozenset[str] | None:
    """Returns the methods that a view accepts; None if they are unknown, as for function views."""
    of_class: Any = getattr(view, "view_class", None) or getattr(view, "cls", view)
    if not isinstance(of_class, type) or not issubclass(of_class, View):
        return None
    names: Sequence[str] = getattr(of_class, "http_method_names", ())
    found = {name.upper() for name in names if hasattr(of_class, name)}
    return methods_in(found | ({"HEAD"} if "GET" in found else set()))


def _forget(*, setting: str, **_: Any) -> None:
    """Drops the cached guard and rules, because a test has changed RECONVERGE; stops the agent made from it."""
    if setting == SETTING and configured.cache_info().currsize:
        before = configured()
        if before.owns_agent:
            before.guard.agent.stop()
        configured.cache_clear()


setting_changed.connect(_forget, dispatch_uid="reconverge")
