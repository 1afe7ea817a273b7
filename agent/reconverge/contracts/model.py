"""The parts of a contracts document: plans, limits and customers; which limits share their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal, TypeAlias

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.errors import SHOWN_MAX, ReconvergeError, shown
from reconverge.limit.grammar import Quota, parse_quotas
from reconverge.limit.limit import DRAINED, SLIDING_WINDOW, Limit

PLANS_MAX: Final = 1000
CUSTOMERS_MAX: Final = 1_000_000
LIMITS_MAX: Final = 100
"""Of one plan. Each is decided about in every request of a customer."""
FORMER_MAX: Final = 100
"""Of one customer. A plan that is changed once a minute has no more that still count."""
FOLLOWING_MAX: Final = 16
"""So many plans follow a plan, one after the other. What a customer has of its own is read once for each of them."""
FACTS_MAX: Final = 8
"""A limit counts by so many facts of a request at most."""
IDENTITY_BYTES_MAX: Final = 512
NOTE_LENGTH_MAX: Final = 1000
LASTS_MAX_S: Final = 100 * 366 * 86_400
"""Of a plan: a hundred years. Beyond that arithmetic with moments overflows, and nothing is meant by it."""
CUSTOMER: Final = "customer"
"""The fact by which a limit counts unless it says otherwise, and by which contracts are looked up."""
REFUSED: Final = "refused"
"""In place of a plan for unknown customers: their requests are refused."""

Word: TypeAlias = Literal["on", "shadow", "off"]
WORDS: Final[dict[str, Word]] = {"on": "on", "shadow": "shadow", "off": "off"}


class InvalidContracts(ReconvergeError, ValueError):
    """Raised when a contracts document makes no sense. `path` leads to the field, as in `("plans", "free", "then")`."""

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{field_at(path)}: {problem}" if path else problem)


def field_at(path: Sequence[str]) -> str:
    """A path to a field as one word, in which no name can break the line or command the terminal."""
    return ".".join(part if part.isprintable() and len(part) <= SHOWN_MAX else shown(part) for part in path)


@dataclass(frozen=True, slots=True)
class Switching:
    """To what something is switched, for how many of its keys, and for how long."""

    to: Word
    percent: float = 100
    """Of the keys, by their hash: the same keys on all nodes. The other keys are on."""
    until: float | None = None
    """When it is on again; None: until that is said."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """One limit of a plan."""

    limit: Limit
    by: tuple[str, ...] = (CUSTOMER,)
    """The facts of a request by which it is counted."""
    switch: Switching | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits that many customers have."""

    limits: Mapping[str, PlanLimit]
    lasts: float | None = None
    """For how many seconds from a customer's `since` it holds; None: until the customer changes."""
    then: str | None = None
    """The plan after that."""


@dataclass(frozen=True, slots=True)
class Former:
    """A limit of a contract that has changed, which holds until all of its use has stopped counting."""

    name: str
    limit: Limit
    by: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Customer:
    """The contract of one customer."""

    plan: str
    limits: Mapping[str, str | Limit] = field(default_factory=dict[str, "str | Limit"])
    """Its own limits in place of the plan's, by name; text gives quota and burst, and all else is as in the plan."""
    since: float | None = None
    """When the plan began; plans that last need it."""
    until: float | None = None
    """When the contract ends, and the plan `then` begins."""
    then: str | None = None
    switch: Switching | None = None
    """Of the whole contract."""
    switches: Mapping[str, Switching] = field(default_factory=dict[str, Switching])
    """Of single limits."""
    former: tuple[Former, ...] = ()
    note: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class Document:
    """All contracts of a fleet."""

    plans: Mapping[str, Plan]
    customers: Mapping[str, Customer] = field(default_factory=dict[str, Customer])
    """By identity."""
    unknown: str = REFUSED
    """The plan of customers that are not named, or `REFUSED`."""


PLAIN_LIMIT_FIELDS: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "window", "burst", "name", "warmup")
)
"""Settings of a limit beside the limit string: each a field of `Limit` by its own name."""
COUNTED_BY: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "burst", "name", "soft", "max_debt", "costs")
)
"""The fields of `Limit` that say how it is counted; the others say how much it admits."""


def same_cells(one: Limit, other: Limit) -> bool:
    """Whether two limits of one name share their counts: they differ in how much they admit, and in nothing else."""
    return all(getattr(one, name) == getattr(other, name) for name in COUNTED_BY)


def counts_for_s(limit: Limit) -> float:
    """For how many seconds a charge to such a limit may still count."""
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as in DRAINED:
        return window_s * max(1.0, limit.capacity / limit.quota)
    return 2 * window_s if limit.algorithm == SLIDING_WINDOW else window_s


def overridden(limit: Limit, override: str | Limit) -> Limit:
    """The limit with a customer's quota and burst in place of its own; all of it, if that is over another window."""
    if isinstance(override, Limit):
        return override
    quota = parse_quotas(override)[0]
    if not says_how_much(quota, limit):
        return replace(Limit.parse(override), name=None)
    return replace(limit, quota=quota.amount, burst=quota.burst)


def says_how_much(quota: Quota, limit: Limit) -> bool:
    """Whether what a limit string says differs from a limit in how much it admits alone, and not in how it is counted.

    It is over the same window then, or limits what is in progress, too, with the same lease or without a word of it.
    """
    if quota.slots or limit.slots:
        lease_ns = limit.window_ns if quota.lease_s is None else _in_ns(quota.lease_s)
        return quota.slots and limit.slots and lease_ns == limit.window_ns
    return (_in_ns(quota.window_s), _in_ns(quota.warmup_s or 0)) == (limit.window_ns, limit.warmup_ns)


def _in_ns(seconds: float) -> int:
    """A time that a limit string says, as a limit has it."""
    return round(seconds * 1_000_000) * MICROSECOND_NS


def check_identity(identity: object, *path: str) -> str:
    """Return `identity` if it can name a customer. Raises InvalidContracts."""
    if not isinstance(identity, str):
        kind = type(identity).__name__
        raise InvalidContracts(
            f"{shown(identity)} names no customer: a customer is text, not {kind}; put it into quotes", *path
        )
    if not identity or "\x00" in identity:
        raise InvalidContracts(f"{shown(identity)} names no customer: a customer is text without NUL", *path)
    if len(identity.encode("utf-8", "surrogatepass")) > IDENTITY_BYTES_MAX:
        raise InvalidContracts(f"{shown(identity)} is longer than {IDENTITY_BYTES_MAX} bytes", *path)
    return identity
