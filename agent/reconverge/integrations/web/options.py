"""The settings of guards and rules by name, and advice for unknown names.

A name that is misspelt, or that belongs to another object, raises an error when it is given. The error states where the
setting belongs, or which name is similar. Python's own error would name an internal function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from reconverge.agent.agent import Agent
from reconverge.arguments import NAMELESS, NUMBER, takes
from reconverge.errors import InvalidSetting, is_secret, nearest
from reconverge.integrations.web.request.keys import KeyFunction, is_application, waits
from reconverge.integrations.web.rules import OF_LIMIT, Limits, Rule, RuleSettings, of_limit
from reconverge.usage.meter import Meter

if TYPE_CHECKING:
    from reconverge.integrations.web.guard import Guard

Served = TypeVar("Served", bound=Callable[..., Any])


class CommonSettings(TypedDict, total=False):
    """The keyword arguments of `Guard` besides `agent` and `key_func`, for classes that accept the same ones."""

    missing: str
    dialect: str | Sequence[str]
    headers_enabled: bool
    trusted_proxies: Iterable[str]
    forwarded_header: str
    fail: str
    status: int
    in_doubt: str | None
    on_breach: Callable[..., Any] | None
    passes: tuple[type[BaseException], ...]
    meter: Meter | None
    enabled: bool


class GuardSettings(CommonSettings, total=False):
    """The keyword arguments of `Guard`, for classes that accept the same ones."""

    agent: Agent | str | None
    key_func: KeyFunction


NAMED: Final = "stands without a name; after the limit, write each setting with its name, as in key_func=by_user"
"""The end of the error about a second positional argument of a limit: further settings must be keyword arguments."""
OF_LIMITS: Final = {
    NAMELESS: NAMED,
    NUMBER: "stands without a name; a window is a part of the limit, so write '5/minute', or Limit(5, 60)",
    **dict.fromkeys(("limits", "limit_value"), "is missing; write it first, as in '5/minute' or '10/second; 100/hour'"),
}
"""Advice in errors of functions that declare a limit, by the name of the wrong or missing argument."""
SCOPE: Final = {
    NAMELESS: NAMED,
    "scope": "is missing; write shared_limit('5/minute', scope='search'), which names the count that the routes share",
}
"""Advice in errors of functions that declare a shared limit, by the name of the wrong or missing argument."""
LIKENESS_MIN: Final = 0.6
"""The least similarity, from 0 to 1, at which a known name is suggested. It is low, because any unknown name is an
error anyway."""
NAMEABLE: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
OF_GUARD: Final = frozenset(GuardSettings.__annotations__)
OF_RULE: Final = frozenset(RuleSettings.__annotations__)
OF_AGENT: Final = frozenset(inspect.signature(Agent).parameters)
STRATEGIES: Final = "the algorithm belongs to the limit: Limit(5, 60, algorithm='fixed-window')"
OF_OTHERS: Final[Mapping[str, str]] = {
    "hub": "is called agent here: agent='redis://localhost:6379/0'",
    "storage_uri": "is called agent here: agent='redis://localhost:6379/0'",
    "storage_options": "is not used here: write options of the client in the URL of the hub",
    "strategy": f"is not used here: {STRATEGIES}",
    "key_prefix": "is the namespace of an Agent here: agent=Agent('redis://localhost:6379/0', namespace='shop')",
    "swallow_errors": "is called fail here: 'open', the default, or 'closed'",
    "in_memory_fallback": "is not used here: without its hub an agent decides by the same limits, from memory",
    "in_memory_fallback_enabled": "is not used here: without its hub an agent decides from memory",
    "default_limits": "is a setting of the extension for Flask. For all routes together write"
    " FastAPI(dependencies=[Depends(limits.shared_limit('200/day', scope='all'))]),"
    " or RateLimitMiddleware(app, '200/day') around the application",
    "application_limits": "is a setting of the extension for Flask; RateLimitMiddleware(app, '200/day') limits all"
    " requests together",
    "header_name_mapping": "is not used here: dialect='x-ratelimit' has those names",
    "auto_check": "is not used here: all limits are always checked",
    "fail_on_first_breach": "is not used here: all limits of a request are charged together, or none",
    "retry_after": "is not used here: a refusal has Retry-After in seconds",
    **dict.fromkeys(
        ("times", "calls", "max_rate", "seconds", "minutes", "hours", "days", "period", "time_period", "rate"),
        "belongs to the limit, which is the first argument here, as in '5/minute'",
    ),
    "key": "is called key_func here, a function of the request such as by_ip or by_header('x-api-key')",
    "identifier": "is called key_func here, a function of the request such as by_ip or by_header('x-api-key')",
    "block": "is not used here: a refused request always ends here; shadow=True counts and refuses nothing",
    "group": "is called scope here: limits with one scope count together",
    "callback": "is called on_breach here, a function of the outcome that returns the response",
    **dict.fromkeys(("storage", "redis", "store", "url"), "is called agent here: agent='redis://localhost:6379/0'"),
    "config_filename": "is not used here: reconverge.integrations.config reads files of settings",
}
"""Names of settings in other libraries, or in other parts of this one, each with advice that ends an error about it."""


def check_words(said: Mapping[str, Any], known: frozenset[str], own: AbstractSet[str] = frozenset()) -> None:
    """Raises InvalidSetting for an unknown setting; the error states where it belongs, or which setting is similar.

    `own` are further settings that the error may name.
    """
    for name, value in said.items():
        if name not in known:
            raise InvalidSetting(name, value, _advice(name, value, known | own))


def _advice(name: str, value: object, known: AbstractSet[str]) -> str:
    if name in OF_OTHERS:
        return OF_OTHERS[name]
    shown = repr(value)[:40] if isinstance(value, str | int | float) and not is_secret(name) else "..."
    if name in OF_AGENT:
        return f"is a setting of Agent: agent=Agent('redis://localhost:6379/0', {name}={shown})"
    if name in OF_GUARD:
        return "is a setting of all limits together; give it where the agent is given"
    if name in OF_RULE:
        return "is a setting of one limit; give it where that limit is declared, or to its Rule"
    if name in OF_LIMIT:
        return of_limit(name, shown)
    near = nearest(name, known, LIKENESS_MIN)
    if near is not None:
        return f"there is no such setting; did you mean {near!r}?"
    return f"there is no such setting; known: {', '.join(sorted(known))}"


def one_of(guard: Guard | None, owner: object, /, **settings: Any) -> Guard | None:
    """Returns `guard`, which may be None, after a check of the `settings` that were given in addition to `owner`.

    Raises InvalidSetting if settings were given with a guard, as they would have no effect; for a setting that neither
    a guard nor the constructor of `owner` has; and for an application in the place of the agent.
    """
    if not settings.keys() <= OF_GUARD:
        own = {name for name, each in inspect.signature(type(owner)).parameters.items() if each.kind in NAMEABLE}
        check_words(settings, OF_GUARD, own)
    given = [name for name, value in settings.items() if value is not None]
    if guard is not None and given:
        raise InvalidSetting("guard", guard, f"has its own settings; give these to the guard, too: {', '.join(given)}")
    agent = settings.get("agent")
    if is_application(agent):
        raise InvalidSetting(
            "agent",
            agent,
            "is an application; give the URL of a hub or an Agent here, and the application to limits.install(app),"
            " or to Flask's Limits as app=app",
        )
    return guard


def rule_of(limits: Limits, settings: Mapping[str, Any]) -> Rule:
    """Returns the rule for a limit and its settings. Raises InvalidSetting for a setting that no rule has."""
    check_words(settings, OF_RULE)
    return Rule(limits=limits, **settings)


def check_asgi(app: Any, instead: str = "RateLimitMiddleware of reconverge.integrations.wsgi") -> None:
    """Raises InvalidSetting unless `app` may be an ASGI application; another one would fail at the first request.

    `instead` is the class to use for a WSGI application.
    """
    _check_callable(app)
    if hasattr(app, "wsgi_app") or (callable(app) and takes(app, 2) and not takes(app, 3)):
        raise InvalidSetting("app", app, f"is a WSGI application; wrap it in {instead}")


def with_advice_about_class(call: Served) -> Served:
    """Gives `__call__` of an ASGI middleware a name by which Python's error shows the mistake `add_middleware(object)`.

    Starlette calls the object with the application then, as if it were the class. A function around `__call__` that
    looks at the arguments would not be the coroutine function that servers look for.
    """
    name = call.__qualname__
    passed = f"pass the class, as in app.add_middleware({name.partition('.')[0]}, ...), not an object of it"
    call.__qualname__ = f"{passed}: {name}"
    return call


def check_wsgi(app: Any, instead: str = "RateLimitMiddleware of reconverge.integrations.asgi") -> None:
    """Raises InvalidSetting unless `app` may be a WSGI application; another one would fail at the first request.

    `instead` is the class to use for an ASGI application.
    """
    _check_callable(app)
    if callable(app) and (waits(app) or (takes(app, 3) and not takes(app, 2))):
        raise InvalidSetting("app", app, f"is an ASGI application; wrap it in {instead}")


def _check_callable(app: object) -> None:
    if not callable(app):
        raise InvalidSetting("app", app, "is no application; give the application first, and then the limit")
    if takes(app, 1) and not takes(app, 2):  # what Django passes to each class in MIDDLEWARE
        problem = "takes one argument, as the next middleware of Django; in MIDDLEWARE write"
        raise InvalidSetting("app", app, f"{problem} 'reconverge.integrations.django.RateLimitMiddleware'")
