"""A rule that a guard has declared: what it wants to know of a request, and which limiter is asked about it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast

from reconverge.agent import Agent
from reconverge.errors import InvalidLimit, InvalidSetting, ReconvergeError, shown
from reconverge.integrations.cold import cold_s
from reconverge.integrations.keys import (
    ADDRESS,
    EXEMPT,
    NOBODY,
    NOWHERE,
    OURS,
    REFUSE,
    Asked,
    asks,
    by_ip,
    by_method,
    fitting,
    joined,
    plain,
    written,
)
from reconverge.integrations.paths import Places
from reconverge.integrations.request import Request
from reconverge.integrations.rules import Fixed, Rule, fitting_name
from reconverge.limit import Limit
from reconverge.limiter import Limiter

TIERS_MAX: Final = 100
"""So many different limits may one rule have by request. More are no tiers, but numbers made up for each."""
Steps: TypeAlias = Generator[Any, Any, "Claim | None"]
"""Yields what has to be awaited, is sent what that was, and ends with the claim; None when nothing is limited."""


class TooManyTiers(ReconvergeError):
    """Raised when a function that gives the limit of a request has given too many different ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"limit {name!r} was given {TIERS_MAX} different limits by request; use a few tiers")


class NoKey(ReconvergeError):
    """Raised when a request has no key, and is to be refused for that."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        super().__init__(f"the request has no key to be counted under for {declared.name!r}")


@dataclass(slots=True)
class Claim:
    """What one request asks of one limit."""

    declared: Declared
    limiter: Limiter
    key: str
    cost: int


class Declared:
    """A rule that is ready to be asked.

    Raises:
        InvalidSetting: a value makes no sense.
        InvalidLimit, LimitConflict: the limits cannot be read, or the name stands for others.
    """

    def __init__(
        self, agent: Agent, rule: Rule, *, name: str, key: Asked, missing: str, status: int, cold: str
    ) -> None:
        self.agent = agent
        self.rule = rule
        self.name = name
        self.status = rule.status or status
        self.missing = rule.missing or missing
        self.cold_s = cold_s(rule.cold or cold)
        self.settles = rule.settle is not None or rule.deduct_when is not None
        self._key = asks(rule.key_func) if rule.key_func is not None else key
        self._methods = None if rule.methods is None else _methods(rule.methods)
        self.places = None if rule.paths is None else Places(rule.paths)
        """The paths that the rule is about; None if it is about all."""
        self._parts = self._scopes()
        self._cost = asks(rule.cost, "cost") if callable(rule.cost) else None
        self._exempt = None if rule.exempt_when is None else asks(rule.exempt_when, "exempt_when")
        self._tiers: dict[object, Limiter] = {}
        self._declaring = threading.Lock()
        self._by_request: Asked | None = None
        self._limiter: Limiter | None = None
        if callable(rule.limits) and not isinstance(rule.limits, Limiter):
            self._by_request = asks(rule.limits, "limits")
        else:
            self._limiter = self._declare(name, rule.limits)

    def concerns(self, request: Request) -> bool:
        """Whether the rule is about such requests."""
        if self._methods is not None and request.method not in self._methods:
            return False
        return self.places is None or self.places.find(request) is not None

    def claim(self, request: Request) -> Steps:
        """What the request asks for. Raises NoKey, and whatever the application's functions raise."""
        if self._exempt is not None and (yield from _come(self._exempt(request))):
            return None
        limiter = self._limiter
        if limiter is None:
            assert self._by_request is not None
            limits = yield from _come(self._by_request(request))
            if not limits:
                return None
            limiter = self._tier(limits)
        found = self._key(request)
        if inspect.isawaitable(found):
            found = yield found
        key = written(found)
        if key is None:
            if self.missing == EXEMPT:
                return None
            key = self._stand_in(request)
        else:
            key = plain(key)
        if self._parts:
            parts: list[object] = []
            for part in self._parts:
                value = yield from _come(part(request))
                parts.append(written(value) or NOWHERE)
            key = joined([*parts, key]) or key
        cost = self.rule.cost
        if self._cost is not None:
            cost = yield from _come(self._cost(request))
        return Claim(self, limiter, fitting(key, limiter.table.kernel.key_bytes_max), cast("int", cost))

    def _stand_in(self, request: Request) -> str:
        """What to count under that has no key. Raises NoKey."""
        if self.missing == REFUSE:
            raise NoKey(self)
        address = by_ip(request) if self.missing == ADDRESS else None
        return NOBODY if address is None else f"{OURS}{ADDRESS}:{address}"

    def _path_of(self, request: Request) -> str | None:
        return None if self.places is None else self.places.find(request)

    # ------------------------------------------------------------ inside

    def _scopes(self) -> list[Asked]:
        rule, parts = self.rule, list[Asked]()
        if isinstance(rule.scope, str):
            scope = rule.scope
            parts.append(lambda _request: scope)
        elif rule.scope is not None:
            parts.append(asks(rule.scope, "scope"))
        if rule.per_route:
            parts.append(lambda request: request.route or self._path_of(request) or NOWHERE)
        if rule.per_method:
            parts.append(self._method_of)
        return parts

    def _method_of(self, request: Request) -> str:
        """The method, if it is one that is known, or that the rule names."""
        return request.method if self._methods and request.method in self._methods else by_method(request)

    def _tier(self, limits: object) -> Limiter:
        """The limiter of a limit that was given for a request."""
        if isinstance(limits, Limiter):
            return limits
        known = tuple(limits) if isinstance(limits, list) else limits
        limiter = self._tiers.get(known)
        if limiter is None:
            with self._declaring:
                if len(self._tiers) >= TIERS_MAX:
                    raise TooManyTiers(self.name)
                quotas = quotas_of_fixed(cast("Fixed", known))
                if len(quotas) == 1 and quotas[0].name is not None:
                    name = f"{self.name}.{quotas[0].name}"
                else:
                    text = "; ".join(map(str, quotas))
                    name = f"{self.name}.{blake2b(text.encode(), digest_size=4).hexdigest()}"
                limiter = self._tiers[known] = self._declare(fitting_name(name), quotas)
        return limiter

    def _declare(self, name: str, limits: Fixed) -> Limiter:
        if isinstance(limits, Limiter):
            return limits
        return self.agent.limit(name, quotas_of_fixed(limits))


def _methods(methods: Sequence[str]) -> frozenset[str]:
    """The methods that a rule is about: with GET also HEAD, which frameworks serve by the same view."""
    named = frozenset(method.upper() for method in methods)
    return named | {"HEAD"} if "GET" in named else named


def quotas_of_fixed(limits: object) -> list[Limit]:
    """All quotas that are meant. Raises InvalidLimit or InvalidSetting."""
    if isinstance(limits, str):
        return list(Limit.parse_all(limits))
    if isinstance(limits, Limit):
        return [limits]
    if not isinstance(limits, Sequence) or isinstance(limits, bytes) or not limits:
        raise InvalidSetting("limits", limits, "is no limit like '100/minute', no Limit and no list of these")
    quotas: list[Limit] = []
    for each in cast("Sequence[object]", limits):
        if not isinstance(each, str | Limit):
            raise InvalidLimit(shown(each), "a list of limits has strings and Limit objects only")
        quotas += quotas_of_fixed(each)
    return quotas


def _come(value: Any) -> Generator[Any, Any, Any]:
    """`value`, once it has come."""
    return (yield value) if inspect.isawaitable(value) else value
