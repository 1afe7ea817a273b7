"""Logs warnings about limits in places where they limit nothing.

A limit above a decorator such as `@app.get` limits nothing: that decorator has already registered the function without
the limit. The framework calls that bare function, and leaves no sign on it. So the names in the module and the function
that contain the decorated function are searched for an application that serves it; `app` in `@app.get` is such a name.

A middleware that is dropped before it serves a request limits nothing either. A middleware takes an application and
returns another one. A bare statement `RateLimitMiddleware(app, "5/minute")` drops the new one, and the server goes on
calling `app`.

A client's transport limits nothing either if no call reaches it, because the client's other settings choose another
transport. A transport can notice this only when it is closed or deleted. The warning is logged then, unless another
transport has used the same limit.

Limits of an application that are not installed limit nothing either, and the application does not know of them.
"""

from __future__ import annotations

import atexit
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet, finalize

from reconverge.errors import shown
from reconverge.limiter.enforcement.switches import OFF
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.agent.agent import Agent
    from reconverge.limiter.faces.limiter import Limiter
    from reconverge.limiter.faces.rate_limiter import RateLimiter

logger = logging.getLogger("reconverge")
_logged = LoggedOnce()


class Middleware(Protocol):
    """A middleware around an application of ASGI or WSGI."""

    app: Any


class Lack(NamedTuple):
    """The lack of an application without its middleware, now and in the past, and further arguments in a remedy."""

    now: str
    before: str
    arguments: str


LIMITS: Final = Lack("its limits limit nothing", "its limits have limited nothing", ", '100/minute'")
SHEDDING: Final = Lack("it sheds nothing", "it has shed nothing", "")

_middlewares: Final = WeakKeyDictionary[Middleware, "tuple[finalize, Lack]"]()  # type: ignore[type-arg]
"""The middlewares of this process, each with its finalizer, which is alive until the first request."""

_limited: Final = WeakKeyDictionary[object, WeakSet[object]]()
"""For each limiter, the functions that have its limit by a decorator."""

_without_effect: Final = WeakKeyDictionary[object, "tuple[finalize, Callable[[object], bool]]"]()  # type: ignore[type-arg]
"""Limits that no application has, and transports; each with its finalizer, and a function that returns whether an
application, or the transport's client, was used."""

CUSTOMERS_MAX: Final = 1000
"""The most customers whose names are compared with addresses."""
REGISTRIES: Final = frozenset({"asyncclick", "celery", "click", "cyclopts", "dramatiq", "huey", "procrastinate"})
"""Packages whose decorators return another object in place of the function, such as a task or a command."""
FRAMEWORKS: Final = frozenset({"aiohttp", "fastapi", "flask", "litestar", "quart", "starlette"})


def registry_of(function: object) -> str | None:
    """Returns the package whose decorator has turned a function into a task or a command; None for other objects.

    Such an object runs the bare function, even if the object is decorated later. Only the object's class is read,
    because a task may begin work when its attributes are read. The jobs of rq are functions with an attribute `delay`.
    """
    names = {cls.__module__.partition(".")[0] for cls in type(function).__mro__}
    found = sorted(names & REGISTRIES)
    if found:
        return found[0]
    return "its queue" if inspect.isfunction(function) and "delay" in vars(function) else None


def warn_if_registered(function: Any, caller: FrameType | None, decorator: str = "@limited") -> None:
    """Logs a warning if an application, or a table of routes, serves `function` already.

    Only objects that have a name in the frame `caller` are searched. `decorator` is how the caller writes the decorator
    that makes the limit.
    """
    if caller is None:
        return
    for name, each in [*caller.f_globals.items(), *caller.f_locals.items()]:
        # The attributes of other objects are not read, as a proxy or a lazy object may raise or begin work.
        if FRAMEWORKS.isdisjoint(cls.__module__.partition(".")[0] for cls in type(each).__mro__):
            continue
        if any(served is function for served in _served_by(each)):
            logger.warning(
                "reconverge: %s limits nothing of what %s serves: it is above the decorator that registered %s "
                "there, without the limit; put %s below it, next to the function",
                decorator,
                name,
                getattr(function, "__qualname__", function),
                decorator,
            )
            return


def _served_by(app: Any) -> Iterator[object]:
    """Yields the functions that an application, a blueprint, or a router or table of routes serves."""
    views = getattr(app, "view_functions", None)
    if isinstance(views, dict):
        yield from views.values()
    for deferred in _listed(getattr(app, "deferred_functions", None)):  # a blueprint's, before it is registered
        yield from inspect.getclosurevars(deferred).nonlocals.values()
    routes = app if isinstance(app, Iterable) else getattr(app, "routes", None)
    for route in _listed(routes):
        yield getattr(route, "endpoint", getattr(route, "handler", None))


def _listed(found: object) -> Iterable[Any]:
    return list(found) if isinstance(found, Iterable) and not isinstance(found, str) else ()


def warn_if_dropped(middleware: Middleware, lack: Lack = LIMITS) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning when `middleware` is deleted, unless the caller has detached it.

    At the end of the process, the finalizer logs nothing; `log_bypassed` checks the middleware then.
    """
    warning = finalize(middleware, _log_dropped, type(middleware).__name__, lack)
    warning.atexit = False  # a process that only imports the application serves nothing
    _middlewares[middleware] = warning, lack
    return warning


@atexit.register
def log_bypassed() -> None:
    """Logs a warning for each middleware that served nothing, though its application has served requests.

    In this case, the server was given the application instead of the middleware. Only applications of Starlette and
    Flask show that they have served requests, so there is no warning for others.
    """
    for middleware, (warning, lack) in list(_middlewares.items()):
        app, name = middleware.app, type(middleware).__name__
        app = getattr(app, "__self__", app)  # of Flask's app.wsgi_app
        served = getattr(app, "middleware_stack", None) is not None or getattr(app, "_got_first_request", False) is True
        if warning.alive and served:
            warning.detach()
            logger.warning(
                "reconverge: a %s was made around %r, which has served requests without it, so %s; have the server run"
                " the middleware, as in app = %s(app%s)",
                name,
                app,
                lack.before,
                name,
                lack.arguments,
            )


def warn_if_uncalled(limited: object, limiter: Limiter, decorator: str) -> None:
    """Logs a warning when `limited`, a function with a limit, is deleted, and the limit has decided about no call.

    Not if another function has the limit: a module may be read again. `decorator` is how the caller writes it.
    """
    having = _limited.setdefault(limiter, WeakSet())
    having.add(limited)
    finalize(limited, _log_uncalled, limiter, having, decorator).atexit = False


def _log_uncalled(limiter: Limiter, having: WeakSet[object], decorator: str) -> None:
    unused = not list(having) and not limiter.control.has_decided and limiter.switched != OFF
    if unused and _logged.is_new((_log_uncalled, limiter.name)):
        logger.warning(
            "reconverge: the function that %s(...) has returned for the limit %r was dropped before any call, so the"
            " limit limits nothing; use what it returns, as in function = %s(...)(function), or write @%s(...)",
            decorator,
            limiter.name,
            decorator,
            decorator,
        )


def warn_if_unapplied(decorate: object, decorator: str, limits: object) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning when `decorate` is deleted, unless the caller has detached it."""
    warning = finalize(decorate, _log_unapplied, decorator, shown(limits))
    warning.atexit = False
    return warning


def _log_unapplied(decorator: str, limits: str) -> None:
    logger.warning(
        "reconverge: %s(%s, ...) decorates nothing, so it limits nothing; write @%s(...) above a function",
        decorator,
        limits,
        decorator,
    )


def warn_if_not_installed(limits: object, names: str, has_served: Callable[[object], bool]) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning when `limits` is deleted, unless the caller has detached it.

    At the end of the process it is logged only if `has_served`: a process may have imported the limits alone. `names`
    are those of the limits.
    """
    return _warning_at_end(limits, has_served, _log_not_installed, names)


def _warning_at_end(
    of: object, was_used: Callable[[object], bool], log: Callable[..., None], *about: object
) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer of `of` that calls `log` with `about`; at the end of the process, only if it `was_used`."""
    warning = finalize(of, log, *about)
    warning.atexit = False
    _without_effect[of] = warning, was_used
    return warning


@atexit.register
def log_without_effect() -> None:
    """Logs a warning for all limits that no application has, though one has served, and for bypassed transports."""
    for each, (warning, has_served) in list(_without_effect.items()):
        waits = warning.alive and has_served(each) and warning.detach()
        if waits:  # a finalizer does nothing by itself at the end of the process
            waits[1](*waits[2])


def _log_not_installed(names: str) -> None:
    logger.warning(
        "reconverge: the limits %s were never installed in an application, so they limited nothing; write "
        "limits.install(app)",
        names,
    )


def _log_dropped(name: str, lack: Lack) -> None:
    logger.warning(
        "reconverge: a %s was made, and dropped before it served a request, so %s; keep it in the place of the"
        " application, as in app = %s(app%s)",
        name,
        lack.now,
        name,
        lack.arguments,
    )


def warn_if_charged_before(outcome: Any, guard: Any, rules: Iterable[Any]) -> None:
    """Logs a warning for each rule that a middleware around this one has charged for the same request already.

    `outcome` is the `Outcome` of the other middleware, None if there is none; `guard` and `rules`, which were declared
    to it, are those of this one. Their modules import this one, and so are not named here.
    """
    if outcome is None or outcome.guard.key_func != guard.key_func:
        return
    charged = [ruling.declared for ruling in outcome.rulings]
    for each in rules:
        if any((each.agent, each.name, each.rule) == (other.agent, other.name, other.rule) for other in charged):
            logger.warning(
                "reconverge: the middleware with the limit %r is inside of another one with the same limit, so each "
                "request is charged twice; leave one of the two out",
                each.name,
            )


def warn_if_by_address(rule: str, customers: Iterable[str]) -> None:
    """Logs a warning about a rule of contracts that counts by address, unless a customer is named like an address.

    Of many customers only some are looked at.
    """
    if not any(_is_address(name) for name in islice(customers, CUSTOMERS_MAX)):
        logger.warning(
            "reconverge: rule %r decides by contracts and has no key function, so each address is a customer, and none "
            "of the contracts is known by one; add key_func=, which returns the customer",
            rule,
        )


def _is_address(name: str) -> bool:
    try:
        ip_network(name)
    except ValueError:
        return False
    return True


def warn_if_unused(
    transport: object, limiter: RateLimiter, remedy: str, has_called: Callable[[object], bool]
) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning if no call has used the limiter of `transport` by its end.

    The transport's `close` calls the finalizer, otherwise its deletion does; the end of the process only if its client
    `has_called`.
    """
    return _warning_at_end(transport, has_called, _log_unused, type(transport).__name__, limiter, remedy)


def warn_if_unread(collector: object, agent: Agent) -> finalize:  # type: ignore[type-arg]
    """Returns a finalizer that logs a warning if no registry has got `collector`, which shows the metrics of `agent`.

    Its reader detaches the finalizer. At the end of the process it is logged only if a limit of the agent has decided.
    """

    def has_decided(_collector: object) -> bool:
        return any(limiter.control.has_decided for limiter in agent.limiters.values())

    return _warning_at_end(collector, has_decided, _log_unread, type(collector).__name__)


def _log_unread(name: str) -> None:
    if _logged.is_new(name):
        logger.warning(
            "reconverge: a collector, %s, ends, and no registry has got it, so no scrape has shown its metrics; write "
            "registry.register(%s(agent)), as with prometheus_client.REGISTRY",
            name,
            name,
        )


class CallAtTransport:
    """A block around the decision about a call: a call that raises an error there has come to the transport, too.

    Otherwise the transport would warn at its end that no call has reached it. `unused` is its finalizer.
    """

    __slots__ = ("_unused",)

    def __init__(self, unused: finalize) -> None:  # type: ignore[type-arg]
        self._unused = unused

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        if error is not None:
            self._unused.detach()


def _log_unused(name: str, limiter: RateLimiter, remedy: str) -> None:
    if limiter.switched != OFF and not limiter.control.has_decided and _logged.is_new((name, limiter.name)):
        logger.warning(
            "reconverge: a %s of the limit %r ends, and no call has used that limit, so it has limited nothing; %s",
            name,
            limiter.name,
            remedy,
        )
