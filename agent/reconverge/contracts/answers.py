"""The decision on a request by all limits of its customer's contract, and the keys under which these limits count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Final, Protocol, runtime_checkable

from reconverge.contracts.model import COUNTED_BY, CUSTOMER, REFUSED, Word
from reconverge.contracts.on_demand.customers import PENDING_S
from reconverge.contracts.terms import Term
from reconverge.contracts.writing import said_of_limit
from reconverge.decision import Decision
from reconverge.errors import InvalidKey, shown
from reconverge.limit.checks import NAME_LENGTH_MAX
from reconverge.limit.limit import Limit
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.truth import no_number

SEPARATOR: Final = "|"
"""Separates the facts in a key; within a fact the same character is written as %7C."""


class UsageMeter(Protocol):
    """Counts what customers use; `reconverge.usage.Meter` implements this interface."""

    def add_request(
        self,
        identity: str,
        charges: Iterable[tuple[str, int]],
        route: str = "",
        *,
        refused: bool = False,
        address: str | None = None,
    ) -> None:
        """Counts one request of the customer `identity`; `charges` pairs the name of each limit with its charge."""


@runtime_checkable
class ErasableMeter(Protocol):
    """A usage meter that can forget the counts of customers; `reconverge.usage.Meter` implements this interface."""

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forgets the counts of all customers for whose names `is_named` returns True."""


@no_number("a decision", "write: if decision, if not decision")
@dataclass(frozen=True, slots=True)
class ContractDecision:
    """The decision on a request by all limits of its customer's contract. It is true if the request is allowed."""

    allowed: bool
    customer: str
    plan: str
    """The customer's plan; "refused" for an unknown customer, if unknown customers are refused."""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """The decision of each limit, by its name; a former limit that is still in force has "(former" in its name."""
    refused_by: str | None = None
    """The limit that refuses the request: of several, the one to wait for longest.

    None if the request is allowed, or the customer has no contract.
    """
    pending: bool = False
    """Whether the decision is provisional, because the page (part) of the contracts with this customer is being
    fetched."""

    @property
    def known(self) -> bool:
        """Returns whether a plan applies to the customer: that of its contract, or the plan for unknown customers."""
        return self.plan != REFUSED

    @property
    def retry_after(self) -> float:
        """Returns the seconds until the same request may be admitted; 0.0 if it is allowed, infinite if it never may.

        An unknown customer without a plan is never admitted. While `pending`, the wait is one second at most: by then
        the page with the customer's contract should have come.
        """
        if self.allowed:
            return 0.0
        refusal = None if self.refused_by is None else self.decisions.get(self.refused_by)
        if refusal is None:
            return PENDING_S if self.pending else inf
        return min(refusal.retry_after, PENDING_S) if self.pending else refusal.retry_after

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class Asked:
    """One limit that decides a request: its limiter, the key under which it counts, and whether it is in shadow."""

    term: Term
    limiter: Limiter
    key: str
    switch: Word

    @property
    def shadow(self) -> bool:
        """Returns whether the contract has switched the limit to shadow, so that the limit refuses nothing."""
        return self.switch == "shadow"

    @property
    def label(self) -> str:
        """Returns the limit's name in `ContractDecision.decisions`."""
        return label_of(self.term)

    def price(self, cost: int, kind: str | None) -> tuple[int, str | None]:
        """Returns the cost to charge to this limit, and the kind of request: None if the limit has no costs by kind.

        For a limit from a former contract without costs by kind, a cost above the most that it can admit is reduced to
        that.
        """
        if self.limiter.control.has_costs:
            return cost, kind
        return (min(cost, self.limiter.limit.cost_max) if self.term.former else cost), None


@dataclass(frozen=True, slots=True)
class Standing:
    """A customer's limits in force, with their limiters, as computed once and cached."""

    plan: str
    parts: tuple[tuple[Term, Limiter], ...]
    until: float
    plain: RateLimiter | None
    """The limiter, if the contract has just one limit, which counts by the customer alone and is on; else None."""
    pending: bool = False
    """Whether these terms are provisional, until the customer's page has come."""

    def kind(self, kind: str | None) -> str | None:
        """Returns the kind of request to pass to the limiter `plain`; None if that limiter has no costs by kind."""
        return kind if self.plain is not None and self.plain.control.has_costs else None


def key_of(by: Sequence[str], customer: str, facts: Mapping[str, str]) -> str:
    """Returns the key under which a limit counts a request, made of the facts in `by`, such as customer and user."""
    if len(by) == 1:
        return customer if by[0] == CUSTOMER else facts[by[0]]
    return SEPARATOR.join(written(customer if fact == CUSTOMER else facts[fact]) for fact in by)


def missing_fact(term: Term, facts: Mapping[str, str]) -> str | None:
    """Returns the name of the first fact that the limit counts by and `facts` lacks; None if no fact is missing."""
    return next((fact for fact in term.by if fact != CUSTOMER and fact not in facts), None)


def check_facts(term: Term, facts: Mapping[str, object]) -> None:
    """Checks that each fact by which the limit counts is text and not empty, so that a key can contain it.

    Raises InvalidKey.
    """
    for fact in term.by:
        value = facts[fact] if fact != CUSTOMER else fact
        if not isinstance(value, str):
            kind = "None" if value is None else type(value).__name__
            raise InvalidKey(
                f"the fact {fact!r}, by which the limit {term.name!r} counts, must be text, not {kind}: turn "
                f"{shown(value)} into text first"
            )
        if not value:
            raise InvalidKey(f"the fact {fact!r}, by which the limit {term.name!r} counts, is empty: pass its value")


def hub_name(term: Term) -> str:
    """Returns the limit's name at the hub: with the names of the facts it counts by, unless that is the customer alone.

    If the name would be too long, a hash stands in place of the facts' names.
    """
    if term.by == (CUSTOMER,):
        return term.name
    name = f"{term.name}/{'.'.join(term.by)}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{term.name[:40]}/{blake2b(name.encode(), digest_size=8).hexdigest()}"


def cells_name(term: Term) -> tuple[object, ...]:
    """Returns a tuple that is equal for two limits exactly if a key has the same counts in both."""
    return hub_name(term), *(getattr(term.limit, name) for name in COUNTED_BY)


def identity_in(by: Sequence[str], key: str) -> str:
    """Returns the customer that a key names if the key was made of the facts `by`; an empty string if it names none."""
    if CUSTOMER not in by:
        return ""
    parts = key.split(SEPARATOR) if len(by) > 1 else [key]
    if len(parts) != len(by):
        return ""
    fact = parts[by.index(CUSTOMER)]
    return unwritten(fact) if len(by) > 1 else fact


def written(fact: str) -> str:
    """Returns a fact with the separator escaped, for use in a key of several facts."""
    return fact.replace("%", "%25").replace(SEPARATOR, "%7C") if "%" in fact or SEPARATOR in fact else fact


def unwritten(text: str) -> str:
    """Returns the original text of a fact that `written` has escaped for use in a key."""
    return text.replace("%7C", SEPARATOR).replace("%25", "%")


def label_of(term: Term) -> str:
    """Returns the limit's name for users, such as "calls", or "calls (former 10/minute by customer)"."""
    return f"{term.name} (former {tier_name(term.limit)} by {', '.join(term.by)})" if term.former else term.name


def tier_name(limit: Limit) -> str:
    """Returns a name made of a limit's settings: its limit string, and a hash of settings that the string lacks."""
    said = said_of_limit(limit)
    if isinstance(said, str):
        return said.replace(" ", "_")
    return f"{said['limit']}~{blake2b(str(limit).encode(), digest_size=4).hexdigest()}".replace(" ", "_")
