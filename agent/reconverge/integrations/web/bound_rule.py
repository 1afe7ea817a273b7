"""A rule that a guard has declared: it matches requests, calls the rule's functions, and selects the limiter."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypeVar, cast

from reconverge.agent.agent import Agent
from reconverge.agent.notice import log_if_of_object
from reconverge.contracts.answers import Standing
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import MissingFact
from reconverge.contracts.meeting import wait_for_page, wait_for_page_blocking
from reconverge.contracts.model import CUSTOMER, IDENTITY_BYTES_MAX, REFUSED
from reconverge.errors import InvalidKey, InvalidLimit, InvalidSetting, ReconvergeError, shown
from reconverge.integrations.misplaced import warn_if_by_address
from reconverge.integrations.web.costs import Price, check_fixed, checked_cost, most_of, price_of, warn_if_free
from reconverge.integrations.web.fields import shown_name
from reconverge.integrations.web.holding import check_held
from reconverge.integrations.web.request.addresses import Located
from reconverge.integrations.web.request.key_sources import parameters_of
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
from reconverge.limiter.asking import within_s
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.long_keys import OURS, fitting

logger = logging.getLogger("reconverge")

TIERS_MAX: Final = 1000
"""The most different limits that a rule's function may return and that are counted exactly. A function that returns
more probably makes a new limit for each request, instead of choosing among a few tiers. Further limits are replaced by
coarser ones, of which there are as many again at most."""
BY_ADDRESS: Final = "is counted by its address, as it has no key; return None for a request without one"
BECOMES: Final = {
    ADDRESS: "is counted by its address",
    SHARED: "is counted with all others that have none",
    REFUSE: "is refused",
    EXEMPT: "is not limited",
}
"""For each value of the setting `missing`, the treatment of a request without a key, in words for log messages."""
NO_USER: Final = (
    ". No middleware has left a user in the request before this limit; in Django and Starlette, put "
    "AuthenticationMiddleware above ours in the list; in FastAPI, whose users come from a dependency, write "
    "key_func=Depends(current_user)"
)
NO_PARAMETER: Final = (
    ". A route has the parameters that its own path names, and a middleware before the router knows none; write the "
    "name as in the route, and limit the route itself"
)
MISSED_MAX: Final = 10
"""If a key function finds no key in this many first requests, a warning is logged."""
ALWAYS_FIND: Final[tuple[object, ...]] = (by_ip, by_method, by_route, everybody)
NO_IDENTITY: Final = "(no key)"
"""The identity under which a meter counts the charges of requests without a key."""
NOT_EXEMPT: Final = "is not exempt"
NO_SCOPE: Final = "is counted with all requests without a scope"
IN_DOUBT: Final = "is limited as if the rule applied to it"
COARSER: Final = "is counted with its quota rounded down to a power of two, together with others of such a quota"
STRICTEST: Final = "is counted by the strictest limit that the rule has returned so far"
NO_TIER: Final = "is refused, because the rule has returned no limit so far"
DEAREST: Final = "costs as much as the most expensive one so far"
"""How a request is treated if its cost function fails, in words for log messages. The constants above are such words
for failures of other functions."""
BLAMED: Final = {
    BY_ADDRESS: "key_func",
    NOT_EXEMPT: "exempt_when",
    NO_SCOPE: "scope",
    STRICTEST: "limits",
    NO_TIER: "limits",
    COARSER: "limits",
    DEAREST: "cost",
}
"""For each of the constants above, the setting of the rule whose function has failed."""
Mend: TypeAlias = Callable[[Exception, "Declared", str], None]
"""A function that handles a failure of an application's function. It takes the error, the rule, and a text that states
how the request is treated now; it may raise the error again."""
Answer = TypeVar("Answer")
Steps: TypeAlias = Generator[Any, Any, Answer]
"""A generator that yields awaitables, is sent their results, and returns the answer."""
# `Guard.check` and `Guard.check_async` run these generators and wait. Other generators yield a time to sleep, and have
# other runners (`limiter/waiting/running.py`): there, an error that a signal handler raises during the sleep goes to
# the caller, and never into the generator.


class TooManyTiers(ReconvergeError):
    """Raised if a rule's function for the limit of a request has returned too many different limits."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"rule {name!r} has returned more than {TIERS_MAX} different limits, the most that are counted exactly; "
            "return one of fewer tiers"
        )


class NoTier(ReconvergeError):
    """Raised if a rule's function for the limit of a request fails, and has never returned a limit to use instead."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the function of rule {name!r} has returned no limit for the request, nor for any before")


class NoKey(ReconvergeError):
    """Raised when a request has no key, and the rule refuses such requests."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the request has no key for the rule {name!r}, which refuses requests without a key")


@dataclass(slots=True)
class FoundKey:
    """The result of a rule's key function for a request, or the error that the function has raised."""

    declared: Declared
    value: object = None
    error: Exception | None = None


@dataclass(slots=True)
class Claim:
    """The charge that one limiter is asked to admit for a request: the limiter, the key and the cost."""

    declared: Declared
    limiter: Limiter
    key: str
    cost: int
    kind: str | None = None
    """The kind of the request, if each quota has its own price for that kind; None if all quotas charge `cost`."""
    shadow: bool = False
    """Whether the rule is in shadow: the claim is decided and counted, but never refuses the request."""
    identity: str = ""
    """The identity for which a usage meter counts the charge; empty if the key is the identity."""
    label: str = ""
    """The name of the limit under which a usage meter counts the charge; empty for the limiter's own name."""
    metered: bool = True
    """Whether a usage meter counts the charge. It is False for the former limit of a contract: the present limit is
    charged as well, and the meter counts that charge."""


class FirstRequests:
    """Counts the first requests of a rule while each of them lacks something, for one warning."""

    __slots__ = ("_lacking", "count")

    def __init__(self, *, count: bool = True) -> None:
        self.count = count
        """Whether further requests count: no request has had it, and fewer than `MISSED_MAX` have come."""
        self._lacking = 0

    def all_lack(self, lacks: bool) -> bool:  # noqa: FBT001  # the one question
        """Counts a request. Returns True once: at the last of `MISSED_MAX` requests if all of them lack it."""
        if not self.count:
            return False
        self._lacking += 1
        self.count = lacks and self._lacking < MISSED_MAX
        return lacks and not self.count


class Declared:
    """A rule that a guard has declared, ready to decide about requests.

    A request is limited even if a function of the application fails or returns an unusable value: often the client's
    data make the function fail, so a client could otherwise choose to be unlimited. A value on the safe side replaces
    the result, and the limit applies; see `claim`.

    Raises:
        InvalidSetting: a value is invalid, or a cost that is the same for all requests exceeds the quota.
        InvalidLimit, LimitConflict: the limits are invalid, or the name belongs to other limits.
    """

    def __init__(
        self,
        agent: Agent,
        rule: Rule,
        *,
        name: str,
        key: Asked,
        missing: str,
        status: int,
        in_doubt: str,
        given: str | None = None,
    ) -> None:
        self.agent = agent
        self.rule = rule
        self.name = name
        self.status = rule.status or status
        self.missing = rule.missing or missing
        self.within_s = within_s(rule.in_doubt or in_doubt)
        """The most seconds for which a request waits for the hub's answer if memory cannot decide; 0 if it never
        asks."""
        self.settles = rule.settle is not None or rule.deduct_when is not None
        self._key = asks(rule.key_func) if rule.key_func is not None else key
        self.methods = None if rule.methods is None else _methods(rule.methods)
        """The methods to which the rule applies, in capitals; None if it applies to all methods."""
        self.places = None if rule.paths is None else Places(rule.paths)
        """The paths to which the rule applies; None if it applies to all paths."""
        self.is_about_all = self.methods is None and self.places is None
        """Whether the rule applies to all requests."""
        self._parts = self._scopes()
        self._cost = asks(rule.cost, "cost") if callable(rule.cost) else None
        self._exempt = None if rule.exempt_when is None else asks(rule.exempt_when, "exempt_when")
        self._keyless = FirstRequests(count=self._key not in ALWAYS_FIND)
        self._unlimited = FirstRequests()
        self._unspent = FirstRequests()
        """The first requests without a key, without a limit, and without a call of `spend`."""
        self._dearest = 1
        """The highest cost that the cost function has returned so far."""
        self._given = given
        """The name of the limit in responses; None if responses show the rate of each quota, such as `5/minute`."""
        self._tiers: dict[object, Limiter] = {}
        self._shown: dict[str, str | None] = {}
        """For each limit that the rule has declared, by name, the name in responses; None if responses show the
        rate."""
        self._limiters: dict[str, Limiter] = {}
        """The `Limiter` objects that the application's function has returned, by name; at most TIERS_MAX are stored."""
        self._by_request: Asked | None = None
        self._limiter: Limiter | None = None
        self._contracts: Contracts | None = None
        self._facts = {name: asks(function, name) for name, function in (rule.facts or {}).items()}
        if isinstance(rule.limits, Contracts):
            self._contracts = rule.limits
            if self._key is by_ip:
                warn_if_by_address(self.name, rule.limits.document.customers)
        elif callable(rule.limits) and not isinstance(rule.limits, Limiter):
            self._by_request = asks(rule.limits, "limits")
        else:
            if rule.settle is None and rule.scope is None and not isinstance(rule.limits, Limiter):
                warn_if_free(self.name, rule.cost)
            self._limiter = self._declare(name, rule.limits)
            check_fixed(self._limiter, rule.cost, "cost")
            check_held(self._limiter, rule)

    @property
    def only_limiter(self) -> RateLimiter | None:
        """Returns the rule's limiter if the rule is simple enough for the fast path; else None.

        A simple rule has one limiter, and no function except a plain key function. So nothing depends on a response or
        has to be awaited.
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
        """Returns the function that finds the route or `scope` that keys begin with; None if keys contain neither."""
        return self._parts[0] if self._parts else None

    @property
    def fixed_scope(self) -> str | None:
        """Returns the rule's scope if it is one text for all requests; None without one, or if a function finds it."""
        scope = self.rule.scope
        return scope if isinstance(scope, str) else None

    @property
    def fixed_cost(self) -> int:
        """Returns the cost of every request, for a rule whose cost is a number."""
        assert isinstance(self.rule.cost, int)
        return self.rule.cost

    def has_found_keys(self, key: str) -> None:
        """Records that the key function has found its first key, so that no warning about missing keys is logged."""
        if self._keyless.count:
            self._look(key)

    def look_at_spent(self, *, spent: bool) -> None:
        """Counts the first requests without a call of `spend`; logs a warning if all of `MISSED_MAX` were without.

        The rule has settle="spent".
        """
        if self._unspent.all_lack(not spent):
            logger.warning(
                "reconverge: rule %r has settle='spent', and none of its first %d requests has called spend(), so each"
                " is charged its whole estimate, cost=%s; take the request's Outcome, and call outcome.spend(cost)",
                self.name,
                MISSED_MAX,
                self.rule.cost if isinstance(self.rule.cost, int | str) else name_of_function(self.rule.cost),
            )

    def concerns(self, request: Request, mend: Mend) -> bool:
        """Returns whether the rule applies to a request, by method and path; True if the router raises an error.

        `mend` is called with the router's error, and may raise it again.
        """
        try:
            return self.is_about(request)
        except Exception as error:  # noqa: BLE001  # the error of a router
            mend(error, self, IN_DOUBT)
            return True

    def is_about(self, request: Request) -> bool:
        """Whether the rule applies to a request, by method and path. Raises any error of the application's router."""
        if self.methods is not None and request.method not in self.methods:
            return False
        return self.places is None or self.places.find(request) is not None

    def claim(self, request: Request, mend: Mend, found: FoundKey | None = None) -> Steps[Claim | None]:
        """Calls the rule's functions and returns the request's claim: limiter, key and cost; None if it is not limited.

        `found` is the result of the key function, if it was called already. `mend` is called with each failure of a
        function, and may raise the error again. Raises NoKey, NoTier, and the errors of `mend`.

        If a function fails, another value replaces its result. The client's address replaces a key, unless the rule
        refuses requests without a key or counts them together. The strictest limit, or the highest cost, that the
        function has returned so far replaces a limit or a cost. A scope that all such requests share replaces a scope.
        A request whose `exempt_when` fails is not exempt.
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
        """Returns the request's claim for the rule's limit, or, with contracts, a claim for each limit of the contract.

        Raises the same errors as `claim`.
        """
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
            customer = plain(f"{OURS}{customer}")  # a hash of the name, because names in contracts have no NUL
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
                cost = 1  # the cost for the other limits, such as tokens, is not a number of slots
            price = self._price(each.limiter, cost, request, mend)
            key = fitting(each.key, each.limiter.control.key_bytes_max)
            shadow, term = self.rule.shadow or each.shadow, each.term
            asked = Claim(self, each.limiter, key, price.cost, price.kind, shadow, identity, term.name, not term.former)
            claims.append(asked)
        return claims

    def _standing_of(self, contracts: Contracts, customer: str, *, blocking: bool) -> Steps[Standing]:
        """Returns a customer's contract, as far as this process knows it.

        If the contract must be fetched from the hub first, the request waits for it, but no longer than `within_s`.
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
        """Returns a request's key, or its replacement if it is missing; None if the request is not limited."""
        missing = self.missing
        try:
            if asked is not None and asked.error is not None:
                raise asked.error
            found: Any = self._key(request) if asked is None else asked.value
            if inspect.isawaitable(found):
                found = yield found
            key = written(found)
            if self._keyless.count:
                self._look(key)
        except Exception as error:  # noqa: BLE001  # an error of the application's function
            mend(error, self, BY_ADDRESS)
            key, missing = None, ADDRESS if missing == EXEMPT else missing
        if key is not None:
            return plain(key)
        if isinstance(request, Located) and request.has_gone:
            raise NoKey(self.name)  # otherwise a client could choose not to be counted by its key
        return None if missing == EXEMPT else self._stand_in(request, missing)

    def _facts_of(self, request: Request, mend: Mend) -> Steps[dict[str, str]]:
        """Returns a request's facts: the values, such as a user, by which contracts count besides the customer.

        If a fact is missing or its function fails, its value is NOWHERE, so that all requests without that fact are
        counted together.
        """
        facts = dict[str, str]()
        for name, function in self._facts.items():
            try:
                facts[name] = written((yield from _come(function(request)))) or NOWHERE
            except InvalidKey as error:
                mend(InvalidKey(f"the fact {name!r}: {error}"), self, NO_SCOPE)
                facts[name] = NOWHERE
            except Exception as error:  # noqa: BLE001  # an error of the application's function
                mend(error, self, NO_SCOPE)
                facts[name] = NOWHERE
        return facts

    def _is_exempt(self, request: Request, mend: Mend) -> Steps[bool]:
        assert self._exempt is not None
        try:
            return checked_answer((yield from _come(self._exempt(request))))
        except Exception as error:  # noqa: BLE001  # an error of the application's function
            mend(error, self, NOT_EXEMPT)
            return False

    def _limiter_by_request(self, request: Request, mend: Mend) -> Steps[Limiter | None]:
        """Calls the rule's function for limits with a request. Returns the limiter for its result; None for None."""
        assert self._by_request is not None
        try:
            limits = yield from _come(self._by_request(request))
            if self._unlimited.count:
                self._look_at_limits(limits)
            return None if limits is None else self._tier(limits, mend)
        except Exception as error:  # noqa: BLE001  # an error of the application's function
            mend(error, self, STRICTEST if self._tiers or self._limiters else NO_TIER)
            return self._strictest()

    def _scope_of(self, request: Request, mend: Mend) -> Steps[list[object]]:
        parts: list[object] = []
        for part in self._parts:
            try:
                value = yield from _come(part(request))
                parts.append(written(value) or NOWHERE)
            except Exception as error:  # noqa: BLE001  # an error of the application's function
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
        except Exception as error:  # noqa: BLE001  # an error of the application's function
            mend(error, self, DEAREST)
            return min(self._dearest, most_of(limiter))
        self._dearest = max(self._dearest, cost)
        return cost

    def _price(self, limiter: Limiter, cost: int | str, request: Request, mend: Mend) -> Price:
        price = price_of(limiter, cost, request.method)
        if price.unknown is not None:
            mend(price.unknown, self, "costs as much as the most expensive kind")
            if isinstance(cost, str) and not limiter.control.has_costs:
                return Price(min(self._dearest, most_of(limiter)))
        return price

    def _look_at_limits(self, limits: object) -> None:
        """Counts the first requests without a limit, and logs a warning if none of the first `MISSED_MAX` had one."""
        if self._unlimited.all_lack(limits is None):
            logger.warning(
                "reconverge: rule %r: the function %s has returned None for each of the first %d requests, and None is"
                " no limit; if a return is missing there, add it, as in return '100/minute'",
                self.name,
                name_of_function(self.rule.limits),
                MISSED_MAX,
            )

    def _look(self, key: str | None) -> None:
        """Counts the first requests without a key, and logs a warning if none of the first `MISSED_MAX` had one.

        Also logs a warning if the first key is the text of an object.
        """
        if key is not None:
            log_if_of_object(key, self.name)
        if self._keyless.all_lack(key is None):
            logger.warning(
                "reconverge: rule %r: the key function %s has found no key in any of the first %d requests; a request"
                " without a key %s%s",
                self.name,
                name_of_function(self._key),
                MISSED_MAX,
                BECOMES[self.missing],
                NO_USER if self._key is by_user else NO_PARAMETER if parameters_of(self._key) else "",
            )

    def _stand_in(self, request: Request, missing: str) -> str:
        """Returns the key that replaces a missing one. Raises NoKey if `missing` is "refuse"."""
        if missing == REFUSE:
            raise NoKey(self.name)
        address = by_ip(request) if missing == ADDRESS else None
        return SHARED_KEY if address is None else f"{OURS}{ADDRESS}:{address}"

    def blamed(self, becomes: str) -> str:
        """Returns the name of a failed function for log messages: the rule's name, the setting, the function's name.

        `becomes` is the text for the treatment of the request after the failure; `BLAMED` has the setting for it.
        """
        what = BLAMED.get(becomes)
        if what is None:
            return self.name
        function = self._key if what == "key_func" else getattr(self.rule, what)
        return f"{self.name}: {what} {name_of_function(function)}" if callable(function) else self.name

    @property
    def watches_addresses(self) -> bool:
        """Whether the rule's keys are identities, such as users, which may come from several addresses."""
        return self._key not in ALWAYS_FIND

    def path_of(self, request: Request) -> str | None:
        """Returns the path in the rule's `paths` that the request matches; None if the request matches none."""
        return None if self.places is None else self.places.find(request)

    def _scopes(self) -> list[Asked]:
        rule, parts = self.rule, list[Asked]()
        if isinstance(rule.scope, str):
            scope = rule.scope
            parts.append(lambda _request: scope)
        elif rule.scope is not None:
            parts.append(asks(rule.scope, "scope"))
        if rule.per_route:
            parts.append(lambda request: request.operation or self.path_of(request) or NOWHERE)
        if rule.per_method:
            parts.append(self._method_of)
        return parts

    def _method_of(self, request: Request) -> str:
        return request.method if self.methods and request.method in self.methods else by_method(request)

    def _tier(self, limits: object, mend: Mend) -> Limiter:
        """Returns the limiter for `limits`, a limit that the rule's function has returned. Raises TooManyTiers."""
        if isinstance(limits, Limiter):
            if len(self._limiters) < TIERS_MAX:
                self._limiters[limits.name] = limits
            return limits
        known = tuple(limits) if isinstance(limits, list) else limits
        limiter = self._tiers.get(known)
        if limiter is None:
            # No lock: if several threads declare the same tier at once, all get the same limiter.
            quotas = quotas_of_fixed(cast("Fixed", known))
            if len(self._tiers) >= TIERS_MAX:
                quotas = [_coarser(each) for each in quotas]
                known = tuple(quotas)
                if len(self._tiers) >= 2 * TIERS_MAX and known not in self._tiers:
                    raise TooManyTiers(self.name)
                mend(TooManyTiers(self.name), self, COARSER)
                if known in self._tiers:
                    return self._tiers[known]
            rest = ""
            if len(quotas) == 1 and quotas[0].name is not None:
                rest = f".{quotas[0].name}"
                name = f"{self.name}{rest}"
            else:
                text = "; ".join(map(str, quotas))
                name = f"{self.name}.{blake2b(text.encode(), digest_size=4).hexdigest()}"
            limiter = self._declare(fitting_name(name, room=room_for(quotas, self.rule.name_room)), quotas, rest)
            limiter = self._tiers.setdefault(known, limiter)
        return limiter

    def _strictest(self) -> Limiter:
        """Returns the limiter with the lowest rate that the rule's function has returned so far. Raises NoTier."""
        known = [*self._tiers.values(), *self._limiters.values()]
        if not known:
            raise NoTier(self.name)
        return min(known, key=_rate)

    def _declare(self, name: str, limits: Fixed, rest: str = "") -> Limiter:
        if isinstance(limits, Limiter):
            return limits
        rule = self.rule
        self._shown[name] = None if self._given is None else f"{self._given}{rest}"
        return self.agent.declare(name, quotas_of_fixed(limits), block_after=rule.block_after, block_for=rule.block_for)

    def shown_names(self, limiter: Limiter, quotas: Mapping[str, Limit]) -> dict[str, str]:
        """Returns the names of a limit's quotas in responses, by their names at the hub; see `shown_name`."""
        name = limiter.name
        if name not in self._shown:  # the application has declared this limit
            return {each: each for each in quotas}
        declared = limiter.quotas
        return {each: shown_name(each, name, declared, self._shown[name]) for each in quotas}


def _identity_in(key: str) -> str:
    """Returns the identity for which a usage meter counts a key; all requests without a key are one identity.

    Otherwise a client that omits its key would create a row for each of its addresses.
    """
    return NO_IDENTITY if key == SHARED_KEY or key.startswith(f"{OURS}{ADDRESS}:") else key


def _rate(limiter: Limiter) -> tuple[float, int]:
    """Returns how much a limit admits per second in the long run, and how much at once, to compare limits."""
    quotas = limiter.quotas.values()
    return min(limit.quota / limit.window for limit in quotas), min(limit.capacity for limit in quotas)


def _methods(methods: Sequence[str]) -> frozenset[str]:
    """Returns the methods that a rule applies to: HEAD is added to GET, because frameworks serve both by one view."""
    named = frozenset(method.upper() for method in methods)
    return named | {"HEAD"} if "GET" in named else named


def quotas_of_fixed(limits: object) -> list[Limit]:
    """Returns all quotas in the given limits. Raises InvalidLimit or InvalidSetting."""
    if isinstance(limits, str):
        return list(Limit.parse_all(limits))
    if isinstance(limits, Limit):
        return [limits]
    if not isinstance(limits, Sequence) or isinstance(limits, bytes) or not limits:
        raise InvalidSetting(
            "limits", limits, "is neither a limit string such as '100/minute', nor a Limit, nor a list of these"
        )
    quotas: list[Limit] = []
    for each in cast("Sequence[object]", limits):
        if not isinstance(each, str | Limit):
            raise InvalidLimit(shown(each), "a list of limits may contain only strings and Limit objects")
        quotas += quotas_of_fixed(each)
    return quotas


def room_for(limits: object, room: int = 0) -> int:
    """Returns how many characters to reserve after a limit's name: `room`, or more if a quota's name needs more."""
    if callable(limits) or isinstance(limits, Limiter | Contracts):
        return room
    return max([room, *(len(f"#{each.name}") for each in quotas_of_fixed(limits) if each.name)])


def _coarser(limit: Limit) -> Limit:
    """Returns `limit` with its quota rounded down to a power of two, so that few different limits are possible."""
    quota = 0 if limit.refuses_all else 1 << limit.quota.bit_length() - 1
    return replace(limit, quota=quota, initial=None if limit.initial is None else min(limit.initial, quota), name=None)


def _come(value: Any) -> Steps[Any]:
    return (yield value) if inspect.isawaitable(value) else value
