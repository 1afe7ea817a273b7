"""Questions to contracts and their answers: a decision of all limits, what holds for a customer, and keys."""

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

SEPARATOR: Final = "|"
"""Between the facts of a key; within a fact it is written as %7C."""


class UsageMeter(Protocol):
    """Counts what customers use; `reconverge.usage.Meter` is one."""

    def add_request(
        self,
        identity: str,
        charges: Iterable[tuple[str, int]],
        route: str = "",
        *,
        refused: bool = False,
        address: str | None = None,
    ) -> None:
        """Count one request that several limits were charged for, each with its cost."""


@runtime_checkable
class ErasableMeter(Protocol):
    """A meter that can forget identities; `reconverge.usage.Meter` is one."""

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forget the identities that are named."""


@dataclass(frozen=True, slots=True)
class ContractDecision:
    """Whether a request may go on by all limits of its customer's contract. True when allowed."""

    allowed: bool
    customer: str
    plan: str
    """The plan that the customer is on; "refused" for a customer that is not known, where those are refused."""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """The decision of each limit, by name; one that still holds beside its successor has "(former" in its name."""
    refused_by: str | None = None
    """The limit that refuses the request, of several the one to wait for longest; None if it is allowed or unknown."""
    pending: bool = False
    """Whether it is not known yet what the contracts say of the customer: its page is being fetched."""

    @property
    def known(self) -> bool:
        """Whether there is a contract for the customer, or a plan for those that are not named."""
        return self.plan != REFUSED

    @property
    def retry_after(self) -> float:
        """Seconds to wait before the same request may be admitted; 0.0 if it is, infinite for an unknown customer.

        A second at most while `pending`: what holds is known by then.
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
    """One limit of a contract, as one request asks it."""

    term: Term
    limiter: Limiter
    key: str
    switch: Word

    @property
    def shadow(self) -> bool:
        """Whether the contract has it in shadow, so that it refuses nothing."""
        return self.switch == "shadow"

    @property
    def label(self) -> str:
        """The name under which a decision shows the limit's answer."""
        return label_of(self.term)

    def price(self, cost: int, kind: str | None) -> tuple[int, str | None]:
        """Returns the cost of a request here: so many of a kind, if the limit has costs by kind.

        A former limit that is smaller than the request is needed as a whole.
        """
        if self.limiter.control.has_costs:
            return cost, kind
        return (min(cost, self.limiter.limit.cost_max) if self.term.former else cost), None


@dataclass(frozen=True, slots=True)
class Standing:
    """A customer's terms, with the limiters that keep them."""

    plan: str
    parts: tuple[tuple[Term, Limiter], ...]
    until: float
    plain: RateLimiter | None
    """The one limiter of a contract that counts by the customer alone and is switched on."""
    pending: bool = False
    """Whether it is what holds until the customer's page is there."""

    def kind(self, kind: str | None) -> str | None:
        """The kind of a request as the one limiter takes it: none, if it has no costs by kind."""
        return kind if self.plain is not None and self.plain.control.has_costs else None


def key_of(by: Sequence[str], customer: str, facts: Mapping[str, str]) -> str:
    """The key under which a limit counts a request."""
    if len(by) == 1:
        return customer if by[0] == CUSTOMER else facts[by[0]]
    return SEPARATOR.join(written(customer if fact == CUSTOMER else facts[fact]) for fact in by)


def missing_fact(term: Term, facts: Mapping[str, str]) -> str | None:
    """The first fact that a limit counts by and a request does not name; None if it names all."""
    return next((fact for fact in term.by if fact != CUSTOMER and fact not in facts), None)


def check_facts(term: Term, facts: Mapping[str, object]) -> None:
    """Raise InvalidKey if a fact by which a limit counts is no text, or is empty: no key can be made of it."""
    for fact in term.by:
        value = facts[fact] if fact != CUSTOMER else fact
        if not isinstance(value, str):
            kind = "None" if value is None else type(value).__name__
            raise InvalidKey(
                f"the fact {fact!r}, by which the limit {term.name!r} counts, is text, not {kind}: turn {shown(value)}"
                " into text first"
            )
        if not value:
            raise InvalidKey(f"the fact {fact!r}, by which the limit {term.name!r} counts, is empty: name what it is")


def hub_name(term: Term) -> str:
    """The name by which the hub knows the limit: what counts by other facts has other keys, and so another name."""
    if term.by == (CUSTOMER,):
        return term.name
    name = f"{term.name}/{'.'.join(term.by)}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{term.name[:40]}/{blake2b(name.encode(), digest_size=8).hexdigest()}"


def cells_name(term: Term) -> tuple[object, ...]:
    """Returns a name that is equal for limits that share their cells, and so their keys."""
    return hub_name(term), *(getattr(term.limit, name) for name in COUNTED_BY)


def identity_in(by: Sequence[str], key: str) -> str:
    """The customer in a key; empty if the key does not name one."""
    if CUSTOMER not in by:
        return ""
    parts = key.split(SEPARATOR) if len(by) > 1 else [key]
    if len(parts) != len(by):
        return ""
    fact = parts[by.index(CUSTOMER)]
    return unwritten(fact) if len(by) > 1 else fact


def written(fact: str) -> str:
    """A fact as it stands in a key with others."""
    return fact.replace("%", "%25").replace(SEPARATOR, "%7C") if "%" in fact or SEPARATOR in fact else fact


def unwritten(text: str) -> str:
    """The fact that was written so."""
    return text.replace("%7C", SEPARATOR).replace("%25", "%")


def label_of(term: Term) -> str:
    """Returns the name under which a decision shows a limit's answer."""
    return f"{term.name} (former {tier_name(term.limit)} by {', '.join(term.by)})" if term.former else term.name


def tier_name(limit: Limit) -> str:
    """Returns a name that distinguishes limits of one name: the limit string, and a hash of their other fields."""
    said = said_of_limit(limit)
    if isinstance(said, str):
        return said.replace(" ", "_")
    return f"{said['limit']}~{blake2b(str(limit).encode(), digest_size=4).hexdigest()}".replace(" ", "_")
