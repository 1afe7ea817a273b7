"""Finds the limits that are in force for a customer at a moment (its terms), and reduces limits to a node's caps."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf
from typing import Final

from reconverge.contracts.model import (
    REFUSED,
    Customer,
    Document,
    Former,
    InvalidContracts,
    Plan,
    Switching,
    Word,
    counts_for_s,
    overridden,
    same_cells,
)
from reconverge.errors import InvalidLimit, InvalidSetting, asked
from reconverge.limit.limit import Limit
from reconverge.published.caps import capped

logger = logging.getLogger("reconverge")

NO_ENTRY: Final = Customer(plan="")
"""The contract of a customer without an entry in the document."""
_HASH_RANGE: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Term:
    """One limit that is in force for the requests of a customer."""

    name: str
    limit: Limit
    by: tuple[str, ...]
    tier: str
    """The origin of the quota: the name of the plan, or "own" for a customer's own in place of the plan's."""
    switches: tuple[Switching, ...] = ()
    """The switches of the plan's limit, of the contract and of the customer's own limit, as far as there are any."""
    former: bool = False
    """Whether this is a former limit, which is in force for a while beside the limit that has replaced it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The plan and all limits that are in force for one customer at one moment."""

    plan: str
    """The plan's name; `REFUSED`, with no terms, if unknown customers are refused and this is one."""
    terms: tuple[Term, ...]
    until: float = inf
    """The end of these terms, in seconds since 1970; infinite if no end is planned."""


def terms_of(document: Document, identity: str, now_s: float) -> Terms:
    """Returns the plan and the limits in force for a customer at `now_s`, in seconds since 1970."""
    customer = document.customers.get(identity)
    if customer is None:
        if document.unknown == REFUSED:
            return Terms(REFUSED, ())
        return Terms(document.unknown, _terms(document.plans[document.unknown], document.unknown, NO_ENTRY))
    *ended, (name, until) = stages(document.plans, customer, now_s)
    terms = _terms(document.plans[name], name, customer)
    formers = [*customer.former, *_formers_of(document.plans, customer, ended)]
    formers = _tightest(still_apart([each for each in formers if each.until > now_s], terms))
    terms += tuple(Term(each.name, each.limit, each.by, tier=name, former=True) for each in formers)
    return Terms(name, terms, min([until, *(each.until for each in formers)]))


def stages(plans: Mapping[str, Plan], customer: Customer, now_s: float) -> list[tuple[str, float]]:
    """Returns the plans that a customer has had until `now_s`, in order, the present one last: name and end of each.

    Moments are in seconds since 1970; a plan without an end has an infinite one.
    """
    name, since = customer.plan, customer.since
    end = inf if customer.until is None else customer.until
    passed: list[tuple[str, float]] = []
    while True:
        lasts, following = plans[name].lasts, plans[name].then
        over = inf if lasts is None or since is None else since + lasts
        if now_s < min(over, end):
            return [*passed, (name, min(over, end))]
        passed.append((name, min(over, end)))
        if end <= over:
            assert customer.then is not None  # `checked` has seen to that
            return [*passed, (customer.then, inf)]
        assert following is not None  # likewise
        name, since = following, over


def _formers_of(plans: Mapping[str, Plan], customer: Customer, ended: Sequence[tuple[str, float]]) -> list[Former]:
    """Returns the limits of the plans in `ended`, each with the moment after which no charge to it counts any more."""
    return [
        Former(term.name, term.limit, term.by, end + counts_for_s(term.limit))
        for name, end in ended
        for term in _terms(plans[name], name, customer)
    ]


def still_apart(formers: Sequence[Former], terms: Sequence[Term]) -> list[Former]:
    """Returns the former limits that have to stay in force, because the present limits do not share their counts.

    These are limits whose name a present limit has, too, but with another algorithm, another window or other facts. Of
    two former limits that share their counts, the one that admits more is left out unless it ends later.
    """
    apart: list[Former] = []
    for each in formers:
        present = [term for term in terms if term.name == each.name]
        if not present or any(term.by == each.by and same_cells(term.limit, each.limit) for term in present):
            continue
        if not any(_makes_needless(other, each) for other in apart):
            apart = [other for other in apart if not _makes_needless(each, other)] + [each]
    return apart


def _makes_needless(one: Former, other: Former) -> bool:
    return _count_alike(one, other) and one.limit.capacity <= other.limit.capacity and one.until >= other.until


def _count_alike(one: Former, other: Former) -> bool:
    return one.name == other.name and one.by == other.by and same_cells(one.limit, other.limit)


def _tightest(formers: Sequence[Former]) -> list[Former]:
    """Of the former limits that share their counts, returns only the one that admits least."""
    tightest: list[Former] = []
    for each in sorted(formers, key=lambda former: former.limit.capacity):
        if not any(_count_alike(each, other) for other in tightest):
            tightest.append(each)
    return tightest


def switch_at(term: Term, key: str, now_s: float) -> Word:
    """Returns whether a limit is "on", "shadow" or "off" for one key: of several switches, the most lenient one."""
    words: list[Word] = [
        each.to
        for each in term.switches
        if (each.until is None or now_s < each.until) and is_among(key, term.name, each.percent)
    ]
    return "off" if "off" in words else "shadow" if "shadow" in words else "on"


def is_among(key: str, limit_name: str, percent: float) -> bool:
    """Returns whether a key is one of those `percent` of a limit's keys that have the lowest hashes, on all nodes.

    A larger percentage includes all keys of a smaller percentage.
    """
    if percent >= 100:  # all of them
        return True
    hashed = blake2b(f"{limit_name}\x00{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") < percent / 100 * _HASH_RANGE


def _terms(plan: Plan, plan_name: str, customer: Customer) -> tuple[Term, ...]:
    terms = []
    for name, each in plan.limits.items():
        override = customer.limits.get(name)
        limit = each.limit if override is None else overridden(each.limit, override)
        switches = [each.switch, customer.switch, customer.switches.get(name)]
        tier = plan_name if override is None else "own"
        terms.append(Term(name, limit, each.by, tier, tuple(switch for switch in switches if switch is not None)))
    return tuple(terms)


def cap_as_said(name: str, text: str) -> Limit:
    """Returns this node's cap, the most to which a document may raise the limit `name`, from the limit string `text`.

    Raises InvalidSetting.
    """
    try:
        return Limit.parse(text)
    except InvalidLimit as error:
        raise InvalidSetting("caps", text, f"is no valid cap for the limit {name!r}: {error.problem}") from None


def log_idle(caps: Iterable[str], document: Document) -> None:
    """Logs each limit name in `caps` that no plan has. That is no error: a later document may have such a limit."""
    named = sorted({name for plan in document.plans.values() for name in plan.limits})
    for name in set(caps).difference(named):
        have = f"the plans have {', '.join(named)}{asked(name, named)}"
        logger.warning("reconverge: the cap of %r caps nothing, as no plan has such a limit; %s", name, have)


def within_cap(limit: Limit, cap: Limit, name: str) -> Limit:
    """Returns the limit, reduced to this node's `cap` if it admits more.

    Raises InvalidContracts if the cap is over another window.
    """
    if cap.slots != limit.slots or (cap.window_ns != limit.window_ns and not cap.slots):
        raise InvalidContracts(
            f"is {limit}, and the cap of this node, {cap}, is over another window; give both the same window", name
        )
    burst = cap.burst if limit.burst is not None else None
    return capped(limit, replace(limit, quota=cap.quota, burst=burst))
