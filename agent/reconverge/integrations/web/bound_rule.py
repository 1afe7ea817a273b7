"""A rule that a guard has declared: what it wants to know of a request, and which limiter is asked about it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypeVar, cast

from reconverge.agent.agent import Agent
from reconverge.contracts.answers import Standing
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import MissingFact
from reconverge.contracts.meeting import wait_for_page, wait_for_page_blocking
from reconverge.contracts.model import CUSTOMER, IDENTITY_BYTES_MAX, REFUSED
from reconverge.errors import InvalidKey, InvalidLimit, InvalidSetting, ReconvergeError, shown
from reconverge.integrations.web.costs import Price, check_fixed, checked_cost, most_of, price_of
from reconverge.integrations.web.holding import check_held
from reconverge.integrations.web.request.addresses import Located
from reconverge.integrations.web.request.keys import (
    ADDRESS,
    EXEMPT,
    NOWHERE,
    REFUSE,
    SHARED,
    SHARED_KEY,
    Asked,
    asks,
    by_ip,
    by_method,
    by_route,
    by_user,
    checked_answer,
    everybody,
    joined,
    name_of_function,
    plain,
    waits,
    written,
)
from reconverge.integrations.web.request.paths import Places
from reconverge.integrations.web.request.request import Request
from reconverge.integrations.web.rules import Fixed, Rule, fitting_name
from reconverge.limit.limit import Limit
from reconverge.limiter.doubt import within_s
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.long_keys import OURS, fitting

logger = logging.getLogger("reconverge")

TIERS_MAX: Final = 100
"""So many different limits may one rule have by request. More are no tiers, but numbers made up for each."""
BY_ADDRESS: Final = "is counted by its address, as it has no key"
BECOMES: Final = {
    ADDRESS: "is counted by its address",
    SHARED: "is counted with all others that have none",
    REFUSE: "is refused",
    EXEMPT: "is not limited",
}
"""The fate of a request without a key, by the word of the rule."""
NO_USER: Final = (
    ". No middleware has left a user in the request; in FastAPI, whose users come from a dependency, "
    "write key_func=Depends(current_user)"
)
MISSED_MAX: Final = 10
"""A key function that finds nothing in any of so many requests is logged."""
ALWAYS_FIND: Final[tuple[object, ...]] = (by_ip, by_method, by_route, everybody)
NO_IDENTITY: Final = "(no key)"
"""The identity under which a meter counts the charges of requests without a key."""
NOT_EXEMPT: Final = "is not exempt"
NO_SCOPE: Final = "is counted with all that have no scope"
IN_DOUBT: Final = "is taken for one that the rule is about"
STRICTEST: Final = "is counted by the strictest of the limits that the rule has given so far"
NO_TIER: Final = "is refused, as the rule has given no limit so far"
DEAREST: Final = "costs as much as the dearest one so far"
"""The fate of a request that a function of the application has failed for."""
BLAMED: Final = {
    BY_ADDRESS: "key_func",
    NOT_EXEMPT: "exempt_when",
    NO_SCOPE: "scope",
    STRICTEST: "limits",
    NO_TIER: "limits",
    DEAREST: "cost",
}
"""Which setting has the function that has failed."""
Mend: TypeAlias = Callable[[Exception, "Declared", str], None]
"""Hears of a failure, and of its request's fate. Raises the error again if that is not to be."""
Answer = TypeVar("Answer")
Steps: TypeAlias = Generator[Any, Any, Answer]
"""Yields what has to be awaited; is sent what that was, and ends with the answer."""
# One type for rule and guard; `Guard.check` and `Guard.check_async` are the shells that wait. The generators that wait
# for a turn (`limiter/waiters.py`) and for a server (`clients/outgoing.py`) yield a time to sleep, and have shells of
# their own: what a signal handler raises in that sleep goes to the caller, and is never raised inside the generator.


class TooManyTiers(ReconvergeError):
    """Raised when a function that gives the limit of a request has given too many different ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"rule {name!r} has given {TIERS_MAX} different limits by request, and no more are made; use a few tiers"
        )


class NoTier(ReconvergeError):
    """Raised when the limit of a request is not known, and the rule has given none so far to count it by."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the limit of the request is not known for {name!r}, and none is known")


class NoKey(ReconvergeError):
    """Raised when a request has no key, and is to be refused for that."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the request has no key to be counted under for {name!r}")


@dataclass(slots=True)
class FoundKey:
    """The result of a rule's key function for a request, or the error that it has failed with."""

    declared: Declared
    value: object = None
    error: Exception | None = None


@dataclass(slots=True)
class Claim:
    """One request's demand on one limit."""

    declared: Declared
    limiter: Limiter
    key: str
    cost: int
    kind: str | None = None
    """The kind of the cost, as `Price.kind`."""
    shadow: bool = False
    """Whether it decides and counts, and never refuses."""
    identity: str = ""
    """The identity that a meter counts it for, where that is not the key."""
    label: str = ""
    """Under what name a meter counts it, where that is not the limit's."""
    metered: bool = True
    """Whether a meter counts it: not a former limit of a contract, beside which another charges the same request."""


class Declared:
    """A rule that is ready to be asked.

    A function of the application that fails, or returns what cannot be used, makes no request unlimited: often it is
    the client that chooses what is looked at, and so when the function fails. What stands for its result is on the
    safe side, and the limit holds; see `claim`.

    Raises:
        InvalidSetting: a value makes no sense, or a cost that is the same for all requests exceeds the quota.
        InvalidLimit, LimitConflict: the limits cannot be read, or the name stands for others.
    """

    def __init__(
        self, agent: Agent, rule: Rule, *, name: str, key: Asked, missing: str, status: int, in_doubt: str
    ) -> None:
        self.agent = agent
        self.rule = rule
        self.name = name
        self.status = rule.status or status
        self.missing = rule.missing or missing
        self.within_s = within_s(rule.in_doubt or in_doubt)
        """For how long a request in doubt asks the hub; zero if it does not."""
        self.settles = rule.settle is not None or rule.deduct_when is not None
        self._key = asks(rule.key_func) if rule.key_func is not None else key
        self.methods = None if rule.methods is None else _methods(rule.methods)
        """The methods that the rule is about, in capitals; None if it is about all."""
        self.places = None if rule.paths is None else Places(rule.paths)
        """The paths that the rule is about; None if it is about all."""
        self.is_about_all = self.methods is None and self.places is None
        """Whether the rule is about all requests."""
        self._parts = self._scopes()
        self._cost = asks(rule.cost, "cost") if callable(rule.cost) else None
        self._exempt = None if rule.exempt_when is None else asks(rule.exempt_when, "exempt_when")
        self._missed = -1 if self._key in ALWAYS_FIND else 0
        """How many requests had no key before the first that had one; -1 once that is of no interest."""
        self._dearest = 1
        """The highest cost that a function has given so far."""
        self._tiers: dict[object, Limiter] = {}
        self._given: dict[str, Limiter] = {}
        """Limiters that the application has given by request itself, by name; as many as tiers are remembered."""
        self._by_request: Asked | None = None
        self._limiter: Limiter | None = None
        self._contracts: Contracts | None = None
        self._facts = {name: asks(function, name) for name, function in (rule.facts or {}).items()}
        if isinstance(rule.limits, Contracts):
            self._contracts = rule.limits
        elif callable(rule.limits) and not isinstance(rule.limits, Limiter):
            self._by_request = asks(rule.limits, "limits")
        else:
            self._limiter = self._declare(name, rule.limits)
            check_fixed(self._limiter, rule.cost, "cost")
            check_held(self._limiter, rule)

    @property
    def only_limiter(self) -> RateLimiter | None:
        """The limiter, of a rule that asks no other, and nothing but a plain function for the key; else None.

        So nothing of it depends on a response, or on a function that may have to be awaited.
        """
        rule = self.rule
        plain = (
            self._exempt is None
            and not self.settles
            and not rule.shadow
            and type(rule.cost) is int
            and not waits(self._key)
            and (
                not self._parts
                or (len(self._parts) == 1 and (rule.per_route or (rule.scope and isinstance(rule.scope, str))))
            )
        )
        limiter = self._limiter
        return limiter if plain and isinstance(limiter, RateLimiter) else None

    @property
    def key_function(self) -> Asked:
        """Returns the function that finds the key of a request."""
        return self._key

    @property
    def part_of_key(self) -> Callable[[Request], Any] | None:
        """Returns the function that finds the part of a key for a route or scope; None without `only_limiter`."""
        return self._parts[0] if self._parts else None

    @property
    def fixed_scope(self) -> str | None:
        """That part of a key, of an `only_limiter`, if it is the same for all requests."""
        scope = self.rule.scope
        return scope if isinstance(scope, str) else None

    @property
    def fixed_cost(self) -> int:
        """Returns the cost of every request, of a rule that has a number."""
        assert isinstance(self.rule.cost, int)
        return self.rule.cost

    def has_found_keys(self) -> None:
        """Note that the key function has found a key."""
        if self._missed >= 0:
            self._missed = -1

    def concerns(self, request: Request, mend: Mend) -> bool:
        """Whether the rule is about such requests; true if that cannot be found out. Raises what `mend` raises."""
        try:
            return self.is_about(request)
        except Exception as error:  # noqa: BLE001  # of a router that was asked
            mend(error, self, IN_DOUBT)
            return True

    def is_about(self, request: Request) -> bool:
        """Whether the rule is about such requests. Raises what a router raises that is asked about a path."""
        if self.methods is not None and request.method not in self.methods:
            return False
        return self.places is None or self.places.find(request) is not None

    def claim(self, request: Request, mend: Mend, found: FoundKey | None = None) -> Steps[Claim | None]:
        """Asks a rule's functions for the request's claim; None when nothing is limited.

        Raises NoKey, NoTier, and `mend`'s errors.

        `found` is what the key function has said, if it was asked already.

        What a function has failed to say is replaced: a key by the request's address, unless the rule refuses requests
        without a key or counts them together; a limit by the strictest one that the function has given so far; a cost
        by the highest one; a scope by one that all such requests share. An exemption is never assumed.
        """
        if self._exempt is not None and (yield from self._is_exempt(request, mend)):
            return None
        limiter = self._limiter
        if limiter is None:
            limiter = yield from self._limiter_by_request(request, mend)
            if limiter is None:
                return None
        key = yield from self._key_of(request, mend, found)
        if key is None:
            return None
        identity = _identity_in(key) if key[0] == OURS else ""
        if self._parts:
            parts = yield from self._scope_of(request, mend)
            identity, key = identity or key, joined([*parts, key]) or key
        cost: int | str = cast("int | str", self.rule.cost)
        if self._cost is not None:
            cost = yield from self._cost_by_request(request, limiter, mend)
        key = fitting(key, limiter.control.key_bytes_max)
        if type(cost) is int and not limiter.control.has_costs:
            return Claim(self, limiter, key, cost, None, self.rule.shadow, identity)
        price = self._price(limiter, cost, request, mend)
        return Claim(self, limiter, key, price.cost, price.kind, self.rule.shadow, identity)

    def claims(
        self, request: Request, mend: Mend, found: FoundKey | None = None, *, blocking: bool
    ) -> Steps[list[Claim]]:
        """Returns the request's claims on one limit, or on all limits of a contract. Raises as `claim` does."""
        if self._contracts is None:
            claim = yield from self.claim(request, mend, found)
            return [] if claim is None else [claim]
        if self._exempt is not None and (yield from self._is_exempt(request, mend)):
            return []
        customer = yield from self._key_of(request, mend)
        if customer is None:
            return []
        contracts, claims = self._contracts, list[Claim]()
        if "\x00" in customer:
            customer = plain(f"{OURS}{customer}")  # a hash of it: contracts are for text without NUL
        customer = fitting(customer, IDENTITY_BYTES_MAX)
        identity = _identity_in(customer)
        standing = yield from self._standing_of(contracts, customer, blocking=blocking)
        if standing.plan == REFUSED:
            raise NoKey(self.name)
        facts = yield from self._facts_of(request, mend)
        for term, _ in standing.parts:
            for fact in term.by:
                if fact != CUSTOMER and fact not in facts:  # the contracts have changed since the rule was written
                    mend(MissingFact(term.name, fact), self, NO_SCOPE)
                    facts[fact] = NOWHERE
        for each in contracts.asked(customer, standing, facts):
            cost: int | str = cast("int | str", self.rule.cost)
            if self._cost is not None:
                cost = yield from self._cost_by_request(request, each.limiter, mend)
            if isinstance(each.limiter, SlotLimiter) and not (each.limiter.control.has_costs and isinstance(cost, str)):
                cost = 1  # what it costs of the other limits, such as tokens, is no number of slots
            price = self._price(each.limiter, cost, request, mend)
            key = fitting(each.key, each.limiter.control.key_bytes_max)
            shadow, term = self.rule.shadow or each.shadow, each.term
            asked = Claim(self, each.limiter, key, price.cost, price.kind, shadow, identity, term.name, not term.former)
            claims.append(asked)
        return claims

    def _standing_of(self, contracts: Contracts, customer: str, *, blocking: bool) -> Steps[Standing]:
        """Returns the contract of a customer.

        While it is fetched, a request waits as one in doubt waits for the hub.
        """
        standing = contracts.standing(customer)
        if not standing.pending:
            return standing
        if blocking:
            wait_for_page_blocking(contracts.document, customer, self.within_s)
        else:
            yield wait_for_page(contracts.document, customer, self.within_s)
        return contracts.standing(customer)

    def _key_of(self, request: Request, mend: Mend, asked: FoundKey | None = None) -> Steps[str | None]:
        """The key of a request, or what stands for it; None if the request is not limited. Raises as `claim` does."""
        missing = self.missing
        try:
            if asked is not None and asked.error is not None:
                raise asked.error
            found: Any = self._key(request) if asked is None else asked.value
            if inspect.isawaitable(found):
                found = yield found
            key = written(found)
            if self._missed >= 0:
                self._look(key)
        except Exception as error:  # noqa: BLE001  # of the application's function
            mend(error, self, BY_ADDRESS)
            key, missing = None, ADDRESS if missing == EXEMPT else missing
        if key is not None:
            return plain(key)
        if isinstance(request, Located) and request.has_gone:
            raise NoKey(self.name)  # or a client would choose not to be counted as itself
        return None if missing == EXEMPT else self._stand_in(request, missing)

    def _facts_of(self, request: Request, mend: Mend) -> Steps[dict[str, str]]:
        """The further facts of a request; all requests of which a fact is not known count together."""
        facts = dict[str, str]()
        for name, function in self._facts.items():
            try:
                facts[name] = written((yield from _come(function(request)))) or NOWHERE
            except InvalidKey as error:
                mend(InvalidKey(f"the fact {name!r}: {error}"), self, NO_SCOPE)
                facts[name] = NOWHERE
            except Exception as error:  # noqa: BLE001  # of the application's function
                mend(error, self, NO_SCOPE)
                facts[name] = NOWHERE
        return facts

    def _is_exempt(self, request: Request, mend: Mend) -> Steps[bool]:
        assert self._exempt is not None
        try:
            return checked_answer((yield from _come(self._exempt(request))))
        except Exception as error:  # noqa: BLE001  # of the application's function
            mend(error, self, NOT_EXEMPT)
            return False

    def _limiter_by_request(self, request: Request, mend: Mend) -> Steps[Limiter | None]:
        """The limiter that is meant for the request; None for no limit, which only None means."""
        assert self._by_request is not None
        try:
            limits = yield from _come(self._by_request(request))
            return None if limits is None else self._tier(limits)
        except Exception as error:  # noqa: BLE001  # of the application's function
            mend(error, self, STRICTEST if self._tiers or self._given else NO_TIER)
            return self._strictest()

    def _scope_of(self, request: Request, mend: Mend) -> Steps[list[object]]:
        parts: list[object] = []
        for part in self._parts:
            try:
                value = yield from _come(part(request))
                parts.append(written(value) or NOWHERE)
            except Exception as error:  # noqa: BLE001  # of the application's function
                mend(error, self, NO_SCOPE)
                parts.append(NOWHERE)
        return parts

    def _cost_by_request(self, request: Request, limiter: Limiter, mend: Mend) -> Steps[int | str]:
        assert self._cost is not None
        try:
            said = yield from _come(self._cost(request))
            if isinstance(said, str):
                return said
            cost = checked_cost(said)
        except Exception as error:  # noqa: BLE001  # of the application's function
            mend(error, self, DEAREST)
            return min(self._dearest, most_of(limiter))
        self._dearest = max(self._dearest, cost)
        return cost

    def _price(self, limiter: Limiter, cost: int | str, request: Request, mend: Mend) -> Price:
        """Prices a request by the limit's own table."""
        price = price_of(limiter, cost, request.method)
        if price.unknown is not None:
            mend(price.unknown, self, "costs as much as the dearest kind")
            if isinstance(cost, str) and not limiter.control.has_costs:
                return Price(min(self._dearest, most_of(limiter)))
        return price

    def _look(self, key: str | None) -> None:
        """Say once if the key function has found nothing in any of the first requests."""
        self._missed = self._missed + 1 if key is None else -1
        if self._missed == MISSED_MAX:
            self._missed = -1
            logger.warning(
                "reconverge: %r: %s has found no key in any of the first %d requests; a request without a key %s%s",
                self.name,
                name_of_function(self._key),
                MISSED_MAX,
                BECOMES[self.missing],
                NO_USER if self._key is by_user else "",
            )

    def _stand_in(self, request: Request, missing: str) -> str:
        """Returns the key to count a request under that has none. Raises NoKey."""
        if missing == REFUSE:
            raise NoKey(self.name)
        address = by_ip(request) if missing == ADDRESS else None
        return SHARED_KEY if address is None else f"{OURS}{ADDRESS}:{address}"

    def blamed(self, becomes: str) -> str:
        """Names the function and the setting that have failed, by what becomes of the request, for messages."""
        what = BLAMED.get(becomes)
        if what is None:
            return self.name
        function = self._key if what == "key_func" else getattr(self.rule, what)
        return f"{self.name}: {what} {name_of_function(function)}" if callable(function) else self.name

    @property
    def watches_addresses(self) -> bool:
        """Whether its keys are identities that may come from several addresses."""
        return self._key not in ALWAYS_FIND

    def path_of(self, request: Request) -> str | None:
        """The rule's own path that the request takes; None if the rule names none."""
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
            parts.append(lambda request: request.route or self.path_of(request) or NOWHERE)
        if rule.per_method:
            parts.append(self._method_of)
        return parts

    def _method_of(self, request: Request) -> str:
        """The method, if it is one that is known, or that the rule names."""
        return request.method if self.methods and request.method in self.methods else by_method(request)

    def _tier(self, limits: object) -> Limiter:
        """The limiter of a limit that was given for a request."""
        if isinstance(limits, Limiter):
            if len(self._given) < TIERS_MAX:
                self._given[limits.name] = limits
            return limits
        known = tuple(limits) if isinstance(limits, list) else limits
        limiter = self._tiers.get(known)
        if limiter is None:
            # Without a lock: of several that declare the same tier at once, all get the same limiter.
            if len(self._tiers) >= TIERS_MAX:
                raise TooManyTiers(self.name)
            quotas = quotas_of_fixed(cast("Fixed", known))
            if len(quotas) == 1 and quotas[0].name is not None:
                name = f"{self.name}.{quotas[0].name}"
            else:
                text = "; ".join(map(str, quotas))
                name = f"{self.name}.{blake2b(text.encode(), digest_size=4).hexdigest()}"
            limiter = self._tiers.setdefault(known, self._declare(fitting_name(name, room=self.rule.name_room), quotas))
        return limiter

    def _strictest(self) -> Limiter:
        """The limiter of the lowest rate among those that were given so far. Raises NoTier."""
        known = [*self._tiers.values(), *self._given.values()]
        if not known:
            raise NoTier(self.name)
        return min(known, key=_rate)

    def _declare(self, name: str, limits: Fixed) -> Limiter:
        if isinstance(limits, Limiter):
            return limits
        rule = self.rule
        return self.agent.declare(name, quotas_of_fixed(limits), block_after=rule.block_after, block_for=rule.block_for)


def _identity_in(key: str) -> str:
    """Returns the identity that a meter counts a key for; all requests without a key of their own are one identity.

    Else a client that leaves its key out would make a row of each of its addresses.
    """
    return NO_IDENTITY if key == SHARED_KEY or key.startswith(f"{OURS}{ADDRESS}:") else key


def _rate(limiter: Limiter) -> tuple[float, int]:
    """How much a limit admits in the long run, and at once."""
    quotas = limiter.quotas.values()
    return min(limit.quota / limit.window for limit in quotas), min(limit.capacity for limit in quotas)


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


def _come(value: Any) -> Steps[Any]:
    """`value`, once it has come."""
    return (yield value) if inspect.isawaitable(value) else value
