"""The rules of an application: the limits, the keys that they count by, and the requests that they are about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypedDict

from reconverge.arguments import with_advice
from reconverge.clock import Seconds, in_seconds
from reconverge.contracts.contracts import Contracts
from reconverge.errors import InvalidSetting, nearest, shown
from reconverge.integrations.web.holding import check_queue
from reconverge.integrations.web.request.keys import METHODS, KeyFunction, asks, checked_missing, takes, waits
from reconverge.integrations.web.request.request import METHOD_CHARACTERS_MAX, Response
from reconverge.limit.checks import NAME_CHARACTERS, NAME_LENGTH_MAX
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import QUOTAS_MAX
from reconverge.limiter.bans import NAME_ROOM, ban_terms
from reconverge.limiter.doubt import within_s
from reconverge.limiter.faces.limiter import Limiter

Fixed: TypeAlias = str | Limit | Sequence[str | Limit] | Limiter
"""A limit string, quotas that must all hold, or the limiter of a limit that was declared with `agent.limit`."""
ByRequest: TypeAlias = Callable[..., Any]
"""Gives the limit of a request, for tiers; None if there is none. Takes the request, or nothing."""
Limits: TypeAlias = Fixed | ByRequest | Contracts

METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
OTHER_METHODS: Final = frozenset(["LINK", "UNLINK", "LOCK", "UNLOCK", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE"])
"""Further methods that are in use; those that are like none of the usual ones need not be here."""
LIKENESS_MIN: Final = 0.65
"""A method that is so like a usual one is taken for a typing error: GTE, PSOT, DELET."""
STATUSES: Final = (429, 503)
SPENT: Final = "spent"
"""The application itself counts the use of a request, with `Outcome.spend`."""


@with_advice()
@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that is limited.

    Functions take the request (or nothing), and may be coroutine functions where the framework is asynchronous; those
    that look at the response take that, and never wait.

    Raises:
        InvalidSetting: a value makes no sense. What the limits say is read when the rule is declared to a guard.
    """

    limits: Limits
    """With `Contracts`, the key of a request is its customer, and all limits of that customer's contract must hold."""
    name: str | None = None
    """Under which the hub, statistics and response fields know the limit; by default after what is decorated."""
    key_func: KeyFunction | None = None
    """The key of a request; by default the guard's."""
    missing: str | None = None
    """The fate of a request without a key: counted by its `address` (the guard's default) or as one `shared` by all
    such, `refuse`, or `exempt`."""
    scope: str | ByRequest | None = None
    """A text, or a function of the request that returns few different ones: each is counted apart, besides the key."""
    facts: Mapping[str, KeyFunction] | None = None
    """With contracts: the further facts by which their limits count, such as `{"user": by_user}`."""
    per_route: bool = False
    """Whether each route counts on its own."""
    per_method: bool = False
    """Whether each method counts on its own."""
    methods: Sequence[str] | None = None
    """The methods that are limited, with GET also HEAD; by default all of them."""
    paths: Sequence[str] | None = None
    """The paths that are limited, such as `/items/{id}`, `/files/{name:path}`, or `/api/*` for all below, in every
    spelling that may lead to the same place; by default all of them. The one that matches is the route for `by_route`,
    if the framework knows none."""
    cost: int | str | ByRequest = 1
    """The cost of a request, or the expected one: a number, or a kind of request that the limit's `costs` name.

    With a number, a limit that has `costs` charges as many requests of the kind that its method is.
    """
    settle: Callable[[Response], int] | str | None = None
    """Returns the true cost of the request, by its response; `spent` if the application reports it."""
    deduct_when: Callable[[Response], bool] | None = None
    """Whether a request that had this response costs anything at all."""
    exempt_when: ByRequest | None = None
    """Whether a request is not limited."""
    on_breach: Callable[..., Any] | None = None
    """Called with the outcome when the request is refused; what it returns, if anything, is the response."""
    error_message: str | Callable[[], str] | None = None
    """The text of the refusal."""
    status: int | None = None
    """Of the refusal: 429 (the guard's default), or 503 when it is load that is shed."""
    in_doubt: str | None = None
    """The fate of a request that memory cannot settle: it asks the hub, and waits for the answer for at most so long
    ("ask:25ms"), or memory decides ("refuse"). By default as the guard's."""
    wait: Seconds | None = None
    """With a limit on what is in progress, such as `20 in flight`: for how many seconds a request waits for a slot
    before it is refused. By default it does not wait for others to end."""
    max_queue: int | None = None
    """So many requests may wait for the slots of one key on this node; with `wait`, and by default any number."""
    order: str | None = None
    """Which of those that wait comes first: "fifo", the one that came first, or "lifo", the one that came last."""
    block_after: str | None = None
    """With `block_for`: so many certain refusals in a time ("20/minute") ban a key."""
    block_for: Seconds | str | None = None
    """For how long a ban refuses its key on all nodes: "10 minutes", or a number of seconds."""
    shadow: bool = False
    """Decide and count, but never refuse and never show."""
    override_defaults: bool = True
    """Whether this takes the place of the default limits, for the views that it decorates."""

    def __post_init__(self) -> None:
        if self.missing is not None:
            checked_missing(self.missing)
        if self.status is not None:
            checked_status(self.status)
        if self.in_doubt is not None:
            within_s(self.in_doubt)
        said = self.cost
        if isinstance(said, bool) or not (callable(said) or (said if isinstance(said, str) else _is_whole(said))):
            raise InvalidSetting("cost", said, "is no whole number of zero or more, no kind of request and no function")
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
        """Raise InvalidSetting for what goes with contracts alone, and for what does not go with them."""
        if not isinstance(self.limits, Contracts):
            if self.facts is not None:
                raise InvalidSetting("facts", self.facts, "go with limits=Contracts(...), and have no effect without")
            return
        if not isinstance(self.facts, Mapping | None):
            raise InvalidSetting("facts", self.facts, "is no table; write facts={'user': by_user}")
        for fact, function in (self.facts or {}).items():
            asks(function, f"facts[{fact!r}]")
        for name in ("scope", "per_route", "per_method"):
            if getattr(self, name):
                raise InvalidSetting(
                    name,
                    getattr(self, name),
                    "has no effect with contracts, whose limits name their facts in `by`; leave it out",
                )

    @property
    def name_room(self) -> int:
        """How many characters must fit behind the name of the limit."""
        return 0 if self.block_for is None else NAME_ROOM

    def _check_ban(self) -> None:
        """Raise InvalidSetting for a ban that makes no sense, or of a limit that was declared elsewhere."""
        if ban_terms(self.block_after, self.block_for) is None:
            return
        if isinstance(self.limits, Limiter | Contracts):
            problem = "has no effect on limits that were declared before; give it to agent.limit"
            raise InvalidSetting("block_for", self.block_for, problem)

    def _check_places(self) -> None:
        for name in ("methods", "paths"):
            value = getattr(self, name)
            is_list = isinstance(value, Sequence | None) and not isinstance(value, str)
            if not is_list or any(not isinstance(each, str) for each in value or ()):
                raise InvalidSetting(name, value, f"is not a list of strings; write {name}=[...]")
            if value is not None and not value:
                raise InvalidSetting(name, value, f"is empty, and limits nothing; leave it out for all {name}")
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
        for name in ("settle", "deduct_when"):
            value = getattr(self, name)
            if callable(value) and waits(value):
                raise InvalidSetting(
                    name, value, "is a coroutine function, which is never awaited here; write a plain one"
                )
        if callable(self.error_message) and waits(self.error_message):
            problem = "is a coroutine function, which is never awaited here; write a plain one"
            raise InvalidSetting("error_message", self.error_message, problem)

    @property
    def ever_waits(self) -> bool:
        """Whether any of its functions is a coroutine function."""
        asked = (self.limits, self.key_func, self.scope, self.cost, self.exempt_when, self.on_breach)
        return any(callable(value) and not isinstance(value, Limiter) and waits(value) for value in asked)


class UnscopedSettings(TypedDict, total=False):
    """The settings of `Rule` besides the limits and the scope; for functions that pass them on."""

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
    """The settings of `Rule` besides the limits; for functions that pass them on."""

    scope: str | ByRequest | None
    facts: Mapping[str, KeyFunction] | None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def all_rules(limits: Limits | None, rules: Sequence[Rule], *, besides: object = None) -> list[Rule]:
    """The rules of a middleware: what it limits all requests together by, if anything, and further ones.

    `besides` are other limits. Raises InvalidSetting for a value that is no list of rules, and if nothing is limited.
    """
    if isinstance(rules, Rule):
        raise InvalidSetting("rules", rules, "is one Rule, and not a list of them; write rules=[Rule(...)]")
    if not isinstance(rules, Sequence):
        raise InvalidSetting("rules", rules, "is not a list of Rule objects; write rules=[Rule(limits='5/minute')]")
    for each in rules:
        if not isinstance(each, Rule):
            raise InvalidSetting("rules", rules, f"has {shown(each)}, which is no Rule; write Rule(limits='5/minute')")
    if limits is None and besides is None and not rules:
        raise InvalidSetting("limits", limits, "nothing is limited; give limits such as '100/minute', or rules")
    return [*([] if limits is None else [Rule(limits=limits)]), *rules]


def check_shared(scope: object) -> None:
    """Raise InvalidSetting for what is no scope that several routes can share: without one, they would not."""
    if not scope or not (isinstance(scope, str) or callable(scope)):
        raise InvalidSetting("scope", scope, "must be text, under which routes share a limit, such as 'api'")


def check_takes(what: str, function: object, given: str) -> None:
    """Raise InvalidSetting for a function that cannot be called with the one thing that it is given."""
    if callable(function) and not takes(function, 1):
        raise InvalidSetting(what, function, f"is called with one argument, {given}, and does not take it; declare it")


def _check_method(method: str) -> None:
    """Raise InvalidSetting for a method that no request can have, or that is like a usual one."""
    name = method.upper()
    if not METHOD.fullmatch(name) or len(name) > METHOD_CHARACTERS_MAX:
        problem = (
            "is a method that no request can have; write one like 'POST'; methods of gRPC are places: write paths="
        )
        raise InvalidSetting("methods", method, problem)
    if name not in METHODS and name not in OTHER_METHODS:
        near = nearest(name, sorted(METHODS), LIKENESS_MIN)
        if near is not None:
            raise InvalidSetting("methods", method, f"is no method that is known; did you mean {near!r}?")


def checked_status(status: object) -> int:
    """The status of a refusal. Raises InvalidSetting."""
    if not isinstance(status, int) or status not in STATUSES:
        raise InvalidSetting("status", status, "is neither 429 (too many requests) nor 503 (to shed load)")
    return status


def checked_flag(name: str, value: object) -> bool:
    """A setting that is True or False: a text such as "no" would be true. Raises InvalidSetting."""
    if not isinstance(value, bool):
        raise InvalidSetting(name, value, "is neither True nor False")
    return value


def name_of(owner: object, *, prefix: str = "") -> str:
    """A name for the limit of a function or class: the same in every process that has the same code."""
    module = getattr(owner, "__module__", None) or ""
    qualified = getattr(owner, "__qualname__", None) or type(owner).__qualname__
    return fitting_name(f"{prefix}{module}.{qualified}".replace("<locals>.", "").strip("."))


def fitting_name(text: str, *, room: int = 0) -> str:
    """`text` as the name of a limit; a hash stands for the parts that are cut off or replaced.

    A name that has to be cut is cut so far that the number of a quota still fits behind it. `room` is left for what
    else is put there.
    """
    name = "".join(character if character in NAME_CHARACTERS else "_" for character in text)
    if name == text and len(name) <= NAME_LENGTH_MAX - room:
        return name
    suffix = f".{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    return name[: NAME_LENGTH_MAX - max(room, len(f"#{QUOTAS_MAX}")) - len(suffix)] + suffix
