"""The classes of a contracts document (plans, limits, customers), and a test whether two limits share their counts."""

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
"""The most limits of one plan. Every request of a customer is decided by each of them."""
FORMER_MAX: Final = 100
"""The most limits from former contracts that stay in force for one customer. Even if its plan changes once a minute, no
more than these still count."""
FOLLOWING_MAX: Final = 16
"""The most plans that follow a plan, one after the other. A customer's own limits are checked once against each."""
FACTS_MAX: Final = 8
"""The most facts of a request by which one limit counts."""
IDENTITY_BYTES_MAX: Final = 512
NOTE_LENGTH_MAX: Final = 1000
LASTS_MAX_S: Final = 100 * 366 * 86_400
"""The longest time that a plan lasts, in seconds: a hundred years. Arithmetic with moments overflows beyond that."""
CUSTOMER: Final = "customer"
"""The fact (property of a request) by which a limit counts if it has no `by`, and by which contracts are looked up."""
REFUSED: Final = "refused"
"""Stands in place of a plan for unknown customers, whose requests are then refused."""
NO_BANS: Final = (
    "contracts ban no customer; ban by a limit of the program's own: agent.limit(..., block_after=..., block_for=...)"
)
"""The end of an error message about a ban of limits in contracts."""

Word: TypeAlias = Literal["on", "shadow", "off"]
WORDS: Final[dict[str, Word]] = {"on": "on", "shadow": "shadow", "off": "off"}


class InvalidContracts(ReconvergeError, ValueError):
    """Raised when a contracts document is invalid.

    `path` has the names that lead to the invalid field, such as `("plans", "free", "then")`.
    """

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{field_at(path)}: {problem}" if path else problem)


def field_at(path: Sequence[str]) -> str:
    """Returns the path to a field as text with dots; names that are long or not printable are quoted and shortened."""
    return ".".join(part if part.isprintable() and len(part) <= SHOWN_MAX else shown(part) for part in path)


@dataclass(frozen=True, slots=True)
class Switching:
    """Switches a limit or a whole contract on, off, or to shadow, in which it counts and refuses nothing.

    The switch may apply to a percentage of the keys, and may end at a moment.
    """

    to: Word
    percent: float = 100
    """The percentage of keys to which the state applies, chosen by hash: the same keys on all nodes. Other keys are
    on."""
    until: float | None = None
    """The moment at which the limit is on again, in seconds since 1970; None if the switch has no end."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """One limit of a plan, with its switch, and with the facts (properties of a request) by which it counts."""

    limit: Limit
    by: tuple[str, ...] = (CUSTOMER,)
    """The names of the request's facts by which the limit counts."""
    switch: Switching | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A set of limits, by name, that many customers share."""

    limits: Mapping[str, PlanLimit]
    lasts: float | None = None
    """The seconds that the plan lasts, from a customer's `since`; None if only a change of the entry ends it."""
    then: str | None = None
    """The name of the plan that follows when this one ends."""


@dataclass(frozen=True, slots=True)
class Former:
    """A limit from before a contract changed. It stays in force until no charge to it counts any more."""

    name: str
    limit: Limit
    by: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Customer:
    """The contract of one customer."""

    plan: str
    limits: Mapping[str, str | Limit] = field(default_factory=dict[str, "str | Limit"])
    """The customer's own limits in place of the plan's, by name. Text sets quota and burst; the plan sets the rest."""
    since: float | None = None
    """The moment at which the plan began, in seconds since 1970; required by plans that last for a time, else None."""
    until: float | None = None
    """The moment at which the contract ends and the plan `then` begins, in seconds since 1970; None if it has no
    end."""
    then: str | None = None
    switch: Switching | None = None
    """The switch of the whole contract; None if there is none."""
    switches: Mapping[str, Switching] = field(default_factory=dict[str, Switching])
    """The switches of single limits, by the limit's name."""
    former: tuple[Former, ...] = ()
    note: str = ""
    """A comment for human readers."""


@dataclass(frozen=True, slots=True)
class Document:
    """All contracts of a fleet: the plans, and the customers that have a contract."""

    plans: Mapping[str, Plan]
    customers: Mapping[str, Customer] = field(default_factory=dict[str, Customer])
    """The contracts, by the customer's identity."""
    unknown: str = REFUSED
    """The plan of customers that have no entry, or `REFUSED`."""


PLAIN_LIMIT_FIELDS: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "window", "burst", "name", "warmup")
)
"""The settings of a limit that the limit string does not contain; each is a field of `Limit` under the same name."""
COUNTED_BY: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "burst", "name", "soft", "max_debt", "costs")
)
"""The fields of `Limit` that define how requests are counted; the other fields define how much is admitted."""


def is_plain(customer: Customer) -> bool:
    """Returns whether a contract has nothing but a plan, so that all customers of the plan can share it."""
    return customer == Customer(customer.plan)


def same_cells(one: Limit, other: Limit) -> bool:
    """Returns whether two limits of one name share their counts.

    They do if they differ only in how much they admit, and not, for instance, in algorithm or window.
    """
    return all(getattr(one, name) == getattr(other, name) for name in COUNTED_BY)


def counts_for_s(limit: Limit) -> float:
    """Returns the number of seconds for which a charge to the limit may still count."""
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as in DRAINED:
        return window_s * max(1.0, limit.counted.capacity / limit.counted.quota)
    return 2 * window_s if limit.algorithm == SLIDING_WINDOW else window_s


def overridden(limit: Limit, override: str | Limit) -> Limit:
    """Returns a plan's limit as a customer's own limit, `override`, changes it.

    A limit string over the same window sets only quota and burst. A `Limit`, or a limit string over another window,
    replaces the whole limit.
    """
    if isinstance(override, Limit):
        return override
    quota = parse_quotas(override)[0]
    if not says_how_much(quota, limit):
        return replace(Limit.parse(override), name=None)
    return replace(limit, quota=quota.amount, burst=quota.burst)


def says_how_much(quota: Quota, limit: Limit) -> bool:
    """Returns whether a customer's limit string, `quota`, changes only how much `limit` admits, and not how it counts.

    That is so if both have the same window and warmup. For two limits on work in progress, it is so if the string has
    no lease, or the same lease as the limit.
    """
    if quota.slots or limit.slots:
        lease_ns = limit.window_ns if quota.lease_s is None else _in_ns(quota.lease_s)
        return quota.slots and limit.slots and lease_ns == limit.window_ns
    return (_in_ns(quota.window_s), _in_ns(quota.warmup_s or 0)) == (limit.window_ns, limit.warmup_ns)


def _in_ns(seconds: float) -> int:
    """Converts seconds from a limit string to nanoseconds, rounded to whole microseconds, as `Limit` does it."""
    return round(seconds * 1_000_000) * MICROSECOND_NS


def check_identity(identity: object, *path: str) -> str:
    """Returns `identity` if it is a valid name of a customer. Raises InvalidContracts if not."""
    if not isinstance(identity, str):
        kind = type(identity).__name__
        raise InvalidContracts(
            f"{shown(identity)} is no name of a customer: a name is text, not {kind}; put it into quotes", *path
        )
    if not identity or "\x00" in identity:
        raise InvalidContracts(
            f"{shown(identity)} is no name of a customer: a name is text that is not empty, without NUL", *path
        )
    if len(identity.encode("utf-8", "surrogatepass")) > IDENTITY_BYTES_MAX:
        raise InvalidContracts(
            f"{shown(identity)} is too long: a customer's name has at most {IDENTITY_BYTES_MAX} bytes", *path
        )
    return identity
