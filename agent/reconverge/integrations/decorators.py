"""Limits calls of functions and methods outside of frameworks, and of the methods of class-based views.

@limited("10/second", agent=agent, key=lambda customer, **_: customer)
async def charge(customer, amount): ...
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from reconverge.agent.agent import Agent
from reconverge.agent.notice import log_if_of_object
from reconverge.arguments import takes, with_advice
from reconverge.clock import Seconds, in_seconds
from reconverge.decision import Decision
from reconverge.errors import InvalidKey, InvalidSetting, shown
from reconverge.hub.registry import redacted
from reconverge.integrations.clients.turns import wait_for_turn
from reconverge.integrations.misplaced import registry_of, warn_if_registered, warn_if_unapplied, warn_if_uncalled
from reconverge.integrations.web.bound_rule import quotas_of_fixed, room_for
from reconverge.integrations.web.costs import check_of_call, kind_of_call, warn_if_free
from reconverge.integrations.web.metering import checked_meter, count_call
from reconverge.integrations.web.outcome import RateLimited
from reconverge.integrations.web.request import keys
from reconverge.integrations.web.request.keys import name_of_function, plain, waits, written
from reconverge.integrations.web.rules import Fixed, fitting_name, name_of
from reconverge.limiter.asking import ASK, within_s
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.long_keys import fitting
from reconverge.limiter.slots import Slot
from reconverge.limiter.waiting.waiters import checked_room
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.usage.meter import Meter

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("reconverge")
_logged = LoggedOnce()
_named: WeakKeyDictionary[Limiter, ref[object]] = WeakKeyDictionary()
"""The first function that each limiter was named after, by limiter."""

NEXT_TO_IT: Final = "put @limited(...) next to the function, below all other decorators"
EVERY_CALL: Final = "calls"
"""The key that all calls share if the decorator has no `key`."""


@with_advice()
def limited(
    limits: Fixed,
    *,
    agent: Agent | None = None,
    name: str | None = None,
    key: str | Callable[..., Any] | None = None,
    cost: int | str | Callable[..., int | str] = 1,
    wait: bool | Seconds = False,
    max_queue: int | None = None,
    in_doubt: str | None = None,
    meter: Meter | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Limits how often a function or a coroutine function is called.

    A call over the limit raises `RateLimited`, which has the decision; or, with `wait`, it waits for its turn in order
    of arrival. A limit such as `20 in flight` holds a slot for each call until the function has returned or raised.

    Args:
        limits: a limit string, quotas, or a `Limiter`, which needs no agent.
        agent: the agent that decides.
        name: the name of the limit; the function's by default. Functions with one name share their counts.
        key: the key of a call: a text, or a function of the call's arguments. By default all calls share one key.
        cost: the cost of a call, or a function of the call's arguments; a text names a kind in the limit's `costs`.
        wait: True to wait without end, or the time (seconds, `timedelta`) after which `RateLimited` is raised.
        max_queue: the most calls that may wait for a key on this node; see `RateLimiter.wait`.
        in_doubt: how to decide a call of which this process is not certain: "ask:25ms" asks the hub for at most 25 ms,
            and "refuse" decides from memory; by default as in the agent.
        meter: counts the charges and the refusals of each key; a `reconverge.usage.Meter`.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: see `Agent.limit`; also for a fixed cost that exceeds the quota.
    """
    _check_limits(limits)
    _check_agent(agent, needed=not isinstance(limits, Limiter))
    wait = _checked_wait(wait)
    asks_s = within_s((ASK if agent is None else agent.in_doubt) if in_doubt is None else in_doubt)
    meter = checked_meter(meter)
    _check_functions(key=key, cost=cost)
    checked_room(max_queue)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        unapplied.detach()
        _check_function(function)
        here = inspect.currentframe()
        warn_if_registered(function, here and here.f_back)
        del here  # the frame would refer to itself, and keep what is dropped
        _check_taken(function, key=key, cost=cost)
        if isinstance(limits, Limiter):
            limiter = limits
        else:
            own = fitting_name(name or name_of(function), room=room_for(limits))
            warn_if_free(own, cost)
            limiter = cast("Agent", agent).declare(own, quotas_of_fixed(limits))
            if name is None:
                _note_name(limiter, function)
        check_of_call(limiter, cost, "cost")
        _check_ends(limiter, function)
        call = _Call(limiter, key, cost, wait, max_queue, asks_s, meter)
        if not waits(function) and wait is not False and inspect.isasyncgenfunction(function):
            raise InvalidSetting(
                "wait", wait, f"cannot be used for an asynchronous generator such as {name_of(function)}"
            )
        around = call.around_coroutine(function) if waits(function) else call.around(function)
        warn_if_uncalled(around, limiter, "limited")
        return cast("Callable[P, R]", around)

    unapplied = warn_if_unapplied(decorate, "limited", limits)
    return decorate


def _checked_wait(wait: bool | Seconds) -> bool | float:  # noqa: FBT001  # as the user gives it
    seconds = in_seconds(wait)
    if not isinstance(seconds, bool) and not (isinstance(seconds, int | float) and seconds >= 0):
        raise InvalidSetting("wait", seconds, "is neither True nor a number of seconds")
    return seconds


def _check_limits(limits: object) -> None:
    if callable(limits) and not isinstance(limits, Limiter):
        problem = "is a function, not a limit; write @limited('10/second', agent=agent) above it"
        raise InvalidSetting("limits", limits, problem)


def _check_ends(limiter: Limiter, function: object) -> None:
    """Raises InvalidSetting for a limit with slots on a generator function: its call returns before its code runs."""
    if isinstance(limiter, SlotLimiter) and (
        inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    ):
        problem = "is a generator, whose work lasts longer than the call; take the slot within it, with limiter.slot()"
        raise InvalidSetting("limits", name_of(function), problem)


def _check_function(function: object) -> None:
    """Raises InvalidSetting for anything but a function, such as a class or an object that a decorator has returned."""
    kind = type(function).__name__
    if inspect.isclass(function):
        problem = "is a class, which would be one no more; limit its __init__, or its methods"
    elif isinstance(function, staticmethod | classmethod | property) or not callable(function):
        problem = f"is no function but a {kind}; {NEXT_TO_IT}"
    elif (registry := registry_of(function)) is not None:
        problem = f"is what {registry} calls already, without this limit; {NEXT_TO_IT}"
    else:
        return
    raise InvalidSetting("function", function, problem)


def _note_name(limiter: Limiter, function: object) -> None:
    """Logs a warning, once, if another function of the same name has this limiter already, and so shares its counts."""
    try:
        first = _named.setdefault(limiter, ref(function))()
    except TypeError:  # raised for an object whose class takes no weak references
        return
    if first is not function and first is not None and _logged.is_new(limiter.name):
        logger.warning(
            "reconverge: two functions are called %r, so @limited counts their calls together; give each a limit of"
            " its own by name=, or both the same name= if this is meant",
            limiter.name,
        )


def _check_functions(**found: object) -> None:
    """Raises InvalidSetting for a coroutine function, or for a key function of this library, made for web requests."""
    for what, value in found.items():
        if callable(value) and getattr(value, "__module__", None) == keys.__name__:
            problem = f"takes a web request, and limited() calls {what} with the arguments of the function; write "
            example = f"{what}=lambda request, **_: request.client.host"
            raise InvalidSetting(what, name_of_function(value), problem + example)
        if callable(value) and inspect.iscoroutinefunction(value):
            raise InvalidSetting(
                what, value, "is a coroutine function, which would never be awaited; use a plain function"
            )


def _check_taken(function: Callable[..., object], **found: object) -> None:
    """Raises InvalidSetting for a function in `found` that cannot be called with the arguments of `function`.

    Also raises it for a key that is the name of an argument: all calls would share this text as their key.
    """
    named = list(inspect.signature(function).parameters.values())
    bare = [each.replace(annotation=each.empty, default=each.empty) for each in named]
    arguments = str(inspect.Signature(bare))[1:-1]
    key = found.get("key")
    if key in [each.name for each in named]:
        problem = f"names an argument of {name_of(function)}, but a text counts all calls together; write "
        raise InvalidSetting("key", key, f"{problem}key=lambda {arguments}: {key}")
    least = sum(each.default is each.empty for each in named)
    if all(each.kind is each.POSITIONAL_OR_KEYWORD for each in named):
        for what, value in found.items():
            if callable(value) and not any(takes(value, number) for number in range(least, len(named) + 1)):
                problem = f"is called with the arguments of {name_of(function)}, and takes others; write "
                example = f"{what}=lambda {arguments}: ..."
                raise InvalidSetting(what, name_of_function(value), problem + example)


def _check_agent(agent: object, *, needed: bool) -> None:
    if agent is None and needed:
        raise InvalidSetting("agent", agent, "is missing; pass an Agent, or a limiter of an agent")
    if agent is not None and not isinstance(agent, Agent):
        problem = "is not an Agent; make one for all functions, agent = Agent('redis://localhost:6379/0'), and pass it"
        raise InvalidSetting("agent", redacted(agent) if isinstance(agent, str) else agent, problem)


class _Call:
    def __init__(
        self,
        limiter: Limiter,
        key: str | Callable[..., Any] | None,
        cost: int | str | Callable[..., int | str],
        wait: bool | float,  # noqa: FBT001  # private, with one caller
        max_queue: int | None,
        asks_s: float,
        meter: Meter | None,
    ) -> None:
        self._limiter = limiter
        self._key = key
        self._cost = cost
        self._waits = wait is not False
        self._timeout = None if isinstance(wait, bool) else wait
        self._max_queue = max_queue
        self._asks_s = asks_s
        self._meter = meter

    def around(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            asked = key, cost, kind = self._asked(args, kwargs)
            limiter = self._limiter
            if not isinstance(limiter, RateLimiter):
                with self._slot(key, cost, kind) as slot:
                    self._check(cast("Decision", slot.decision), asked)
                    return function(*args, **kwargs)
            if self._waits:
                room, asks_s = self._max_queue, self._asks_s
                decision = wait_for_turn(
                    limiter, key, cost, timeout_s=self._timeout, max_queue=room, kind=kind, within_s=asks_s
                )
            elif self._asks_s:
                decision = limiter.ask_blocking(key, cost, within=self._asks_s, kind=kind)
            else:
                decision = limiter.hit(key, cost, kind)
            self._check(decision, asked)
            return function(*args, **kwargs)

        return call

    def around_coroutine(self, function: Callable[P, Any]) -> Callable[P, Any]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            asked = key, cost, kind = self._asked(args, kwargs)
            limiter = self._limiter
            if not isinstance(limiter, RateLimiter):
                async with self._slot(key, cost, kind) as slot:
                    self._check(cast("Decision", slot.decision), asked)
                    return await function(*args, **kwargs)
            if self._waits:
                room, asks_s = self._max_queue, self._asks_s
                decision = await limiter.wait(
                    key, cost, timeout=self._timeout, max_queue=room, kind=kind, within=asks_s
                )
            elif self._asks_s:
                decision = await limiter.ask(key, cost, within=self._asks_s, kind=kind)
            else:
                decision = limiter.hit(key, cost, kind)
            self._check(decision, asked)
            return await function(*args, **kwargs)

        return call

    def _slot(self, key: str, cost: int, kind: str | None) -> Slot:
        limiter = self._limiter
        assert isinstance(limiter, SlotLimiter)
        if not self._waits:
            return limiter.slot(key, cost, kind=kind, within=self._asks_s)
        timeout = inf if self._timeout is None else self._timeout
        room, asks_s = self._max_queue, self._asks_s
        return limiter.slot(key, cost, kind=kind, timeout=timeout, max_queue=room, within=asks_s)

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int, str | None]:
        """Returns a call's key, cost, and kind or None. Raises InvalidKey, and the errors of the user's functions."""
        found = self._key(*args, **kwargs) if callable(self._key) else self._key or EVERY_CALL
        key = written(found)
        if key is None:
            raise InvalidKey(
                f"a call has no key for the limit {self._limiter.name!r}: its key function returned {shown(found)}; "
                "return a text or a number"
            )
        log_if_of_object(key, self._limiter.name)
        said = self._cost(*args, **kwargs) if callable(self._cost) else self._cost
        cost, kind = kind_of_call(self._limiter, said)
        return fitting(plain(key), self._limiter.control.key_bytes_max), cost, kind

    def _check(self, decision: Decision, asked: tuple[str, int, str | None]) -> None:
        """Raises RateLimited if `decision` refuses the call. Counts the call in the meter, if there is one.

        `asked` is the call's key, cost and kind.
        """
        if self._meter is not None:
            count_call(self._meter, self._limiter, *asked, decision)
        if not decision.allowed:
            grounds = "is used up" if decision.certain else "may have no room, of which this process is not certain"
            message = f"limit {decision.binding!r} {grounds}; try again in {decision.retry_after:.3g} s"
            raise RateLimited(message, decision)
