"""What a document says of one customer at one moment: which limits hold, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import Final

from reconverge.contracts.document import REFUSED, Customer, Document, Plan, Switching, Word, overridden
from reconverge.limit.limit import Limit

NO_ENTRY: Final = Customer(plan="")
"""In place of the entry of a customer that has none."""
_HASH_RANGE: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Term:
    """One limit that holds for the requests of a customer."""

    name: str
    limit: Limit
    by: tuple[str, ...]
    tier: str
    """What the quota goes by: the name of the plan, or "own" for what a customer has in place of the plan's."""
    switches: tuple[Switching, ...] = ()
    """Those of the plan's limit, of the contract and of the contract's limit, as far as there are any."""
    former: bool = False
    """Whether it holds for a while only, beside the one that has taken its place."""


@dataclass(frozen=True, slots=True)
class Terms:
    """All that holds for one customer at one moment."""

    plan: str
    """`REFUSED` if unknown customers are refused, and this is one; there are no terms then."""
    terms: tuple[Term, ...]
    until: float = inf
    """When something else holds, in seconds since 1970; infinite if nothing is planned."""


def terms_of(document: Document, identity: str, now_s: float) -> Terms:
    """What holds for a customer at a moment, in seconds since 1970."""
    customer = document.customers.get(identity)
    if customer is None:
        if document.unknown == REFUSED:
            return Terms(REFUSED, ())
        return Terms(document.unknown, _terms(document.plans[document.unknown], document.unknown, NO_ENTRY, {}))
    name, until = plan_at(document.plans, customer, now_s)
    plan = document.plans[name]
    formers = [each for each in customer.former if each.until > now_s]
    overrides = {limit: each for limit, each in customer.limits.items() if limit in plan.limits}
    terms = _terms(plan, name, customer, overrides)
    terms += tuple(Term(each.name, each.limit, each.by, tier=name, former=True) for each in formers)
    return Terms(name, terms, min([until, *(each.until for each in formers)]))


def plan_at(plans: Mapping[str, Plan], customer: Customer, now_s: float) -> tuple[str, float]:
    """The plan that a customer is on, and until when; plans that end are followed by others."""
    name, since, until = customer.plan, customer.since, inf
    if customer.until is not None and customer.then is not None:
        if now_s >= customer.until:
            return customer.then, inf
        until = customer.until
    while (lasts := plans[name].lasts) is not None and since is not None:
        since += lasts
        if now_s < since:
            return name, min(since, until)
        following = plans[name].then
        assert following is not None  # `checked` has seen to that
        name = following
    return name, until


def switch_at(term: Term, key: str, now_s: float) -> Word:
    """To what a limit is switched for one key: of all switches that hold, to the one that refuses least."""
    words: list[Word] = [
        each.to
        for each in term.switches
        if (each.until is None or now_s < each.until) and is_among(key, term.name, each.percent)
    ]
    return "off" if "off" in words else "shadow" if "shadow" in words else "on"


def is_among(key: str, limit_name: str, percent: float) -> bool:
    """Whether a key is among that part of all keys; the same on all nodes, and a larger part holds the smaller one."""
    if percent >= 100:  # all of them
        return True
    hashed = blake2b(f"{limit_name}\x00{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") < percent / 100 * _HASH_RANGE


def _terms(plan: Plan, plan_name: str, customer: Customer, overrides: Mapping[str, str | Limit]) -> tuple[Term, ...]:
    terms = []
    for name, each in plan.limits.items():
        override = overrides.get(name)
        limit = each.limit if override is None else overridden(each.limit, override)
        switches = [each.switch, customer.switch, customer.switches.get(name)]
        tier = plan_name if override is None else "own"
        terms.append(Term(name, limit, each.by, tier, tuple(switch for switch in switches if switch is not None)))
    return tuple(terms)
