"""The rules of an application: the limits, the keys that they count by, and the requests that they apply to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypedDict

from reconverge.arguments import takes, with_advice
from reconverge.clock import Seconds, in_seconds
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.model import NO_BANS
from reconverge.errors import InvalidSetting, nearest, shown
from reconverge.integrations.web.holding import check_queue
from reconverge.integrations.web.request.keys import (
    METHODS,
    KeyFunction,
    asks,
    checked_missing,
    name_of_function,
    waits,
)
from reconverge.integrations.web.request.request import METHOD_CHARACTERS_MAX, Response
from reconverge.limit.checks import NAME_CHARACTERS, NAME_LENGTH_MAX
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import QUOTAS_MAX
from reconverge.limiter.asking import within_s
from reconverge.limiter.enforcement.bans import NAME_ROOM, ban_terms
from reconverge.limiter.faces.limiter import Limiter

Fixed: TypeAlias = str | Limit | Sequence[str | Limit] | Limiter
"""Limits that are the same for all requests: a limit string, several quotas, or the result of `agent.limit`."""
ByRequest: TypeAlias = Callable[..., Any]
"""A function of the request, or without arguments. As `limits`, it returns the request's limit; None for no limit."""
Limits: TypeAlias = Fixed | ByRequest | Contracts

METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
OTHER_METHODS: Final = frozenset(["LINK", "UNLINK", "LOCK", "UNLOCK", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE"])
"""Methods in use that resemble a usual one, and are no typing errors."""
LIKENESS_MIN: Final = 0.65
"""The least similarity, from 0 to 1, to a usual method at which a method counts as a typing error: GTE, PSOT, DELET."""
STATUSES: Final = (429, 503)
SPENT: Final = "spent"
"""The value of `settle` with which the application reports the cost of a request itself, by `Outcome.spend`."""


OF_LIMIT: Final = frozenset(inspect.signature(Limit).parameters) - {"name"}


def of_limit(name: str, shown: str = "...") -> str:
    """Returns the end of an error message about `name`, a setting that belongs to the limit, not to the rule.

    The text shows the code to write instead; `shown` is the value in this code.
    """
    if name in ("quota", "window"):
        return "belongs to the limit, as in '5/minute'"
    if name == "burst":
        return f"belongs to the limit, as in '5/minute burst {shown}'"
    return f"is a setting of the limit itself; write Limit.parse('5/minute', {name}={shown}) in place of its text"


@with_advice({name: of_limit(name) for name in OF_LIMIT})
@dataclass(frozen=True, kw_only=True)
class Rule:
    """Limits, the key by which they count, and the requests to which they apply.

    Functions take the request (or no argument), and may be coroutine functions if the framework is asynchronous.
    Functions of the response take the response, and cannot be coroutine functions.

    Raises:
        InvalidSetting: a value is invalid. The limits are checked later, when the rule is declared to a guard.
    """

    limits: Limits
    """The limits. With `Contracts`, the key is the customer, and all limits in that customer's contract apply."""
    name: str | None = None
    """The limit's name at the hub, in statistics and in response fields; by default that of the decorated object."""
    key_func: KeyFunction | None = None
    """A function that returns the key of a request; by default that of the guard."""
    missing: str | None = None
    """The treatment of a request without a key; by default as in the guard. "address" counts it by its address,
    "shared" counts all such requests together, "refuse" refuses it, and "exempt" does not limit it."""
    scope: str | ByRequest | None = None
    """A text, or a function of the request that returns a text. Each text has separate counts; use few texts."""
    facts: Mapping[str, KeyFunction] | None = None
    """Functions that return the values by which limits in contracts count besides the customer: `{"user": by_user}`."""
    per_route: bool = False
    """Whether each route has its own count."""
    per_method: bool = False
    """Whether each method has its own count."""
    methods: Sequence[str] | None = None
    """The methods that are limited; GET includes HEAD. By default all methods."""
    paths: Sequence[str] | None = None
    """The limited paths, such as `/items/{id}`, `/files/{name:path}`, or `/api/*` for all paths below; by default all.
    The rule applies to every spelling that may lead to the same place. If the framework knows no route, `by_route` uses
    the matching path."""
    cost: int | str | ByRequest = 1
    """The cost of a request, or, with `settle`, the expected cost. It is a number, or a kind of request in the limit's
    `costs`. If the limit has `costs`, a number multiplies the price of the request's method."""
    settle: Callable[[Response], int] | str | None = None
    """A function that returns the true cost from the response, or "spent" if the application calls `Outcome.spend`."""
    deduct_when: Callable[[Response], bool] | None = None
    """A function that returns whether a request with the given response costs anything."""
    exempt_when: ByRequest | None = None
    """A function that returns whether a request is exempt from the limit."""
    on_breach: Callable[..., Any] | None = None
    """A function that is called with the outcome of a refused request. Its result, unless None, is the response."""
    error_message: str | Callable[[], str] | None = None
    """The text of the refusal."""
    status: int | None = None
    """The status of the refusal: 429 (the guard's default), or 503 for load shedding."""
    in_doubt: str | None = None
    """The treatment of a request that memory cannot decide; by default as in the guard. "ask:25ms" asks the hub, and
    waits for at most 25 ms; "refuse" decides from memory."""
    wait: Seconds | None = None
    """For limits such as `20 in flight`: the seconds for which a request waits for a slot before it is refused. By
    default it does not wait."""
    max_queue: int | None = None
    """With `wait`: the most requests that may wait for the slots of one key on this node; by default any number."""
    order: str | None = None
    """With `wait`: which waiting request gets the next slot: "fifo", the first to arrive, or "lifo", the last."""
    block_after: str | None = None
    """With `block_for`: the number of certain refusals in a time, such as "20/minute", after which a key is banned."""
    block_for: Seconds | str | None = None
    """How long a ban refuses its key on all nodes: "10 minutes", or a number of seconds."""
    shadow: bool = False
    """Whether the rule decides and counts, but neither refuses nor adds response fields."""
    override_defaults: bool = True
    """Whether the rule replaces the default limits on the views that it decorates."""

    def __post_init__(self) -> None:
        if self.missing is not None:
            checked_missing(self.missing)
        if self.status is not None:
            checked_status(self.status)
        if self.in_doubt is not None:
            within_s(self.in_doubt)
        said = self.cost
        if isinstance(said, bool) or not (callable(said) or (said if isinstance(said, str) else _is_whole(said))):
            raise InvalidSetting(
                "cost", said, "is neither a whole number of zero or more, nor a kind of request, nor a function"
            )
        if self.settle is not None and self.settle != SPENT and not callable(self.settle):
            raise InvalidSetting("settle", self.settle, f"is neither a function of the response nor {SPENT!r}")
        object.__setattr__(self, "wait", in_seconds(self.wait))
        check_queue(self)
        self._check_ban()
        self._check_functions()
        self._check_places()
        for name in ("per_route", "per_method", "shadow", "override_defaults"):
            checked_flag(name, getattr(self, name))
        self._check_facts()
        if not isinstance(self.name, str | None):
            raise InvalidSetting("name", self.name, "is not a string; write a text such as 'api'")
        if self.scope is not None and not isinstance(self.scope, str):
            asks(self.scope, "scope")

    def _check_facts(self) -> None:
        """Raises InvalidSetting for settings that need `Contracts` as the limits, or have no effect with them."""
        if not isinstance(self.limits, Contracts):
            if self.facts is not None:
                raise InvalidSetting("facts", self.facts, "need limits=Contracts(...), and have no effect without it")
            return
        if not isinstance(self.facts, Mapping | None):
            raise InvalidSetting("facts", self.facts, "must be a dict of functions, as in facts={'user': by_user}")
        for fact, function in (self.facts or {}).items():
            asks(function, f"facts[{fact!r}]")
        for name in ("scope", "per_route", "per_method"):
            if getattr(self, name):
                raise InvalidSetting(
                    name,
                    getattr(self, name),
                    "has no effect with contracts: each of their limits states in `by` what it counts by; leave it out",
                )

    @property
    def name_room(self) -> int:
        """Returns the number of characters to keep free after the limit's name for a ban's suffix; 0 without a ban."""
        return 0 if self.block_for is None else NAME_ROOM

    def _check_ban(self) -> None:
        """Raises InvalidSetting for an invalid ban, or for a ban of limits that were declared elsewhere."""
        if ban_terms(self.block_after, self.block_for) is None:
            return
        if isinstance(self.limits, Limiter | Contracts):
            problem = "has no effect on limits that were declared before; give it to agent.limit"
            if isinstance(self.limits, Contracts):
                problem = "has no effect here: " + NO_BANS
            raise InvalidSetting("block_for", self.block_for, problem)

    def _check_places(self) -> None:
        for name in ("methods", "paths"):
            value = getattr(self, name)
            is_list = isinstance(value, Sequence | None) and not isinstance(value, str)
            if not is_list or any(not isinstance(each, str) for each in value or ()):
                raise InvalidSetting(name, value, f"is not a list of strings; write {name}=[...]")
            if value is not None and not value:
                raise InvalidSetting(name, value, f"is empty, so nothing would be limited; leave it out for all {name}")
        for method in self.methods or ():
            _check_method(method)

    def _check_functions(self) -> None:
        check_takes("on_breach", self.on_breach, "the outcome")
        check_takes("settle", self.settle, "the response")
        check_takes("deduct_when", self.deduct_when, "the response")
        for name in ("exempt_when", "deduct_when", "on_breach"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise InvalidSetting(name, value, "is not a function; pass one, or leave it out")
        for name in ("settle", "deduct_when", "error_message"):
            value = getattr(self, name)
            if callable(value) and waits(value):
                raise InvalidSetting(
                    name, value, "is a coroutine function, which would never be awaited; use a plain function"
                )
        if self.error_message is not None and not callable(self.error_message):
            checked_message(self.error_message)

    @property
    def ever_waits(self) -> bool:
        """Whether any function of the rule is a coroutine function."""
        return _slow_setting(self) is not None


class UnscopedSettings(TypedDict, total=False):
    """The keyword arguments of `Rule` besides the limits and the scope, for functions that accept the same ones."""

    name: str | None
    key_func: KeyFunction | None
    missing: str | None
    per_route: bool
    per_method: bool
    methods: Sequence[str] | None
    paths: Sequence[str] | None
    cost: int | str | ByRequest
    settle: Callable[..., int] | str | None
    deduct_when: Callable[..., bool] | None
    exempt_when: ByRequest | None
    on_breach: Callable[..., Any] | None
    error_message: str | Callable[[], str] | None
    status: int | None
    in_doubt: str | None
    wait: Seconds | None
    max_queue: int | None
    order: str | None
    block_after: str | None
    block_for: Seconds | str | None
    shadow: bool
    override_defaults: bool


class RuleSettings(UnscopedSettings, total=False):
    """The keyword arguments of `Rule` besides the limits, for functions that accept the same ones."""

    scope: str | ByRequest | None
    facts: Mapping[str, KeyFunction] | None


def check_blocking(rule: Rule, where: str) -> None:
    """Raises InvalidSetting if a function of the rule is a coroutine function, which `where` cannot await."""
    slow = _slow_setting(rule)
    if slow is not None:
        problem = f"is a coroutine function, which {where} cannot await; use a plain function"
        raise InvalidSetting(slow, name_of_function(getattr(rule, slow)), problem)


def _slow_setting(rule: Rule) -> str | None:
    """Returns the name of the first setting whose value is a coroutine function; None if there is none."""
    for name in ("limits", "key_func", "scope", "cost", "exempt_when", "on_breach"):
        value = getattr(rule, name)
        if callable(value) and not isinstance(value, Limiter) and waits(value):
            return name
    return None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def all_rules(limits: Limits | None, rules: Sequence[Rule], *, besides: object = None) -> list[Rule]:
    """Returns the rules of a middleware: one for the limits of all requests together, if given, and the further ones.

    `besides` are limits that the middleware has in addition, such as those of messages. Raises InvalidSetting for a
    value that is not a list of rules, and if nothing is limited.
    """
    if isinstance(rules, Rule):
        raise InvalidSetting("rules", rules, "is a single Rule, not a list; write rules=[Rule(...)]")
    if not isinstance(rules, Sequence):
        raise InvalidSetting("rules", rules, "is not a list of Rule objects; write rules=[Rule(limits='5/minute')]")
    for each in rules:
        if not isinstance(each, Rule):
            raise InvalidSetting(
                "rules", rules, f"contains {shown(each)}, which is not a Rule; write Rule(limits='5/minute')"
            )
    if limits is None and besides is None and not rules:
        raise InvalidSetting(
            "limits",
            limits,
            "is None, and there are no rules, so nothing is limited; give limits such as '100/minute', or rules",
        )
    return [*([] if limits is None else [Rule(limits=limits)]), *rules]


def check_shared(scope: object) -> None:
    """Raises InvalidSetting unless `scope` is a text or a function, under which several routes can share a limit."""
    if not scope or not (isinstance(scope, str) or callable(scope)):
        raise InvalidSetting("scope", scope, "must be text, under which routes share a limit, such as 'api'")


def check_takes(what: str, function: object, given: str) -> None:
    """Raises InvalidSetting for a function that cannot be called with one argument.

    `what` is the setting that has the function as its value; `given` describes the argument.
    """
    if callable(function) and not takes(function, 1):
        raise InvalidSetting(what, function, f"must take one argument, {given}")


def _check_method(method: str) -> None:
    """Raises InvalidSetting for a method that no request can have, or that is probably a misspelt standard one."""
    name = method.upper()
    if not METHOD.fullmatch(name) or len(name) > METHOD_CHARACTERS_MAX:
        problem = "is not a valid method; write a method such as 'POST'; for methods of gRPC, write paths="
        raise InvalidSetting("methods", method, problem)
    if name not in METHODS and name not in OTHER_METHODS:
        near = nearest(name, sorted(METHODS), LIKENESS_MIN)
        if near is not None:
            raise InvalidSetting("methods", method, f"is not a known method; did you mean {near!r}?")


def checked_message(said: object) -> object:
    """Returns `said`, a refusal's text or an object that is written as one, such as a text to be translated.

    Raises InvalidSetting for an object that is written as in a program, such as a dict.
    """
    if isinstance(said, bytes) or type(said).__str__ is object.__str__:
        problem = "is no text; write one, or for a response of your own on_breach=, a function that returns it"
        raise InvalidSetting("error_message", said, problem)
    return said


def checked_status(status: object) -> int:
    """Returns the status of a refusal. Raises InvalidSetting unless it is 429 or 503."""
    if not isinstance(status, int) or status not in STATUSES:
        raise InvalidSetting("status", status, "is neither 429 (too many requests) nor 503 (to shed load)")
    return status


def checked_flag(name: str, value: object) -> bool:
    """Returns `value`, of the setting `name`. Raises InvalidSetting unless it is a bool: "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidSetting(name, value, "is neither True nor False")
    return value


def name_of(owner: object) -> str:
    """Returns a name for the limit of a function or class, the same in every process with the same code."""
    module = getattr(owner, "__module__", None) or ""
    qualified = getattr(owner, "__qualname__", None) or type(owner).__qualname__
    return fitting_name(f"{module}.{qualified}".replace("<locals>.", "").strip("."))


def fitting_name(text: str, *, room: int = 0) -> str:
    """Returns `text` as a valid name of a limit; a hash replaces characters that are cut off or not allowed.

    A name that is too long is cut, so that the suffixes for single quotas still fit after it. `room` is the number of
    characters that stay free for other suffixes.
    """
    name = "".join(character if character in NAME_CHARACTERS else "_" for character in text)
    if name == text and len(name) <= NAME_LENGTH_MAX - room:
        return name
    suffix = f".{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    return name[: NAME_LENGTH_MAX - max(room, len(f"#{QUOTAS_MAX}")) - len(suffix)] + suffix
