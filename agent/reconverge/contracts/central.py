"""Decides the requests of a recording by contracts, each at its recorded time, as one server for all of them would."""

# Theory of operation.
#
# The limiter is a single node without a hub. It uses the kernel that runs in production (the code that decides), with a
# clock that shows the time of the recording.
#
# A `Table` of the kernel has the counts of a limit with one quota, for all customers that have that quota. A customer
# whose plan ends within the recording has tables of its own. When the plan ends, these get the new quota in place, as
# in a fleet, so the customer's use stays counted (`same_cells`).
#
# All limits of a contract are charged in one moment or none is. One call of the compiled kernel charges all, if all
# have room. If one refuses, the others are tested, too, as callers want to know all limits that refuse. A limit in
# shadow is charged for requests that the others admit, and refuses nothing, as in an application.

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.contracts.answers import SEPARATOR, written
from reconverge.contracts.explaining import MissingFact
from reconverge.contracts.model import COUNTED_BY, CUSTOMER, REFUSED, Document
from reconverge.contracts.terms import Term, Terms, switch_at, terms_of
from reconverge.errors import CostExceedsQuota
from reconverge.kernel import Claimed, Kernel, Part, Table, hit_at_once, settle_jointly
from reconverge.kernel.table.lookup import check_size, look_up
from reconverge.kernel.table.slow_path import foresee
from reconverge.limit.checks import cost_of
from reconverge.limit.limit import Limit
from reconverge.policies import STRICT

NO_CONTRACT: Final = "no contract"
"""Stands in place of a limit's name when a customer is refused as unknown; no limit can have this name."""
EVERY_LIMIT: Final = "*"
"""Stands in place of a limit's name for all limits that have no column of their own."""
KEYS_MAX: Final = 1 << 40
"""The most keys of the kernel: so many that none is ever evicted, as the machine runs out of memory sooner."""
KEY_BYTES_MAX: Final = 1 << 20
"""The longest key in bytes: far longer than a key of eight facts."""
UNREPORTED: Final = "which the recording does not contain; name the column that has it, as in {fact}=COLUMN"
INTERVAL_NS: Final = SECOND_NS
"""The sync interval, without effect: a kernel needs one, but a single node never exchanges."""


class CustomerRequest(NamedTuple):
    """One recorded request of a customer.

    `Shape` names what the items of `facts`, `costs` and `settles` are, in the same order.
    """

    moment_ns: int
    """The moment in nanoseconds since 1970; never earlier than that of the previous request."""
    customer: str
    facts: tuple[str, ...] = ()
    costs: tuple[int, ...] = ()
    settles: tuple[int, ...] = ()
    """The costs that are added when the request is over."""
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Describes recorded requests: the facts and limits to which their values belong, and how long a request takes."""

    facts: tuple[str, ...] = ()
    """The names of the facts, in the order of `CustomerRequest.facts`."""
    costs: tuple[str, ...] = ()
    """The limit of each of `CustomerRequest.costs`, or EVERY_LIMIT; for all other limits a request costs 1."""
    settles: tuple[str, ...] = ()
    """The limit of each of `CustomerRequest.settles`, or EVERY_LIMIT; other limits charge nothing at the end of a
    request."""
    settle_after_ns: int = 0
    """The duration of a request in nanoseconds, after which `CustomerRequest.settles` are added."""
    ends_ns: int = NEVER_NS
    """The moment of the last request, in nanoseconds since 1970."""


class _RecordedTime:
    """A clock that shows the recorded moment of the request that is being decided."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


@dataclass(frozen=True, slots=True)
class _CentralAsk:
    """One limit of a customer's contract, and the places of its facts and its costs in a `CustomerRequest`."""

    term: Term
    table: Table
    facts: tuple[int, ...] | None
    """The indexes, in a request's facts, of those by which the limit counts; -1 is the customer. None if it counts by
    the customer alone."""
    cost: int
    """The index of the cost in `CustomerRequest.costs`; -1 if a request costs 1."""
    settle: int
    """The index of the later cost in `CustomerRequest.settles`; -1 if none is added later."""


@dataclass(frozen=True, slots=True)
class _Contract:
    """The limits that decide one customer's requests until `until_ns`, when its plan ends and another may begin."""

    refused: bool
    until_ns: float
    asked: tuple[_CentralAsk, ...] = ()
    switched: bool = False
    """Whether a limit may be in shadow, or off."""


class _CentralClaim(NamedTuple):
    """The key and the cost that one request charges to one limit, and the cost to charge when the request ends."""

    asked: _CentralAsk
    key: str
    cost: int
    settle: int


@dataclass(frozen=True, slots=True)
class _Settlement:
    """A cost that is charged to one key of a limit when a request ends."""

    due_ns: int
    table: Table
    key: str
    amount: int


class CentralLimiter:
    """Decides the requests of a recording, one after the other, by the contracts in force when each was made."""

    def __init__(self, document: Document, shape: Shape) -> None:
        self._document = document
        self._shape = shape
        self._clock = _RecordedTime()
        self._kernel = Kernel(
            self._clock,
            namespace="recorded",
            interval_ns=INTERVAL_NS,
            interval_min_ns=INTERVAL_NS,
            keys_max=KEYS_MAX,
            key_bytes_max=KEY_BYTES_MAX,
            alone=True,
        )
        self._contracts: dict[str, _Contract] = {}
        self._unknown: _Contract | None = None
        """The contract of all customers that the document does not name."""
        self._tables: dict[tuple[object, ...], Table] = {}
        self._settlements: deque[_Settlement] = deque()
        """Costs to be added later, in the order of their moments, as all requests take equally long."""

    def decide(self, request: CustomerRequest) -> tuple[str, ...]:
        """Decides a request. Returns the names of the limits that refuse it; if none does, all limits are charged.

        Raises MissingFact if the recording lacks a fact by which a limit counts, and UnknownKind if a limit has costs
        by kind but none for the request's kind.
        """
        self._be_at(request.moment_ns)
        if not self._tables:
            self._declare()
        contract = self._contract_of(request.customer, request.moment_ns)
        if contract.refused:
            return (NO_CONTRACT,)
        claims = [self._claim(asked, request) for asked in contract.asked]
        shadows: list[_CentralClaim] = []
        if contract.switched:
            claims, shadows = _switched(claims, request.moment_ns)
        refusing = _refusing(claims)
        if refusing:
            return refusing
        admitted = claims + [claim for claim in shadows if not _refusing([claim])]
        if self._shape.settles:
            self._settlements.extend(
                _Settlement(request.moment_ns + self._shape.settle_after_ns, claim.asked.table, claim.key, claim.settle)
                for claim in admitted
                if claim.settle
            )
        return ()

    def _declare(self) -> None:
        """Declares the limits of all plans at the beginning of the recording, not at their first requests.

        The reason is that a paced limit saves up permits for later requests from the moment of its declaration on.
        """
        for plan in self._document.plans.values():
            for name, each in plan.limits.items():
                if not each.limit.slots:
                    self._table((name, each.limit), name, each.limit)

    def _be_at(self, moment_ns: int) -> None:
        settlements = self._settlements
        while settlements and settlements[0].due_ns <= moment_ns:
            over = settlements.popleft()
            self._clock.now_ns = over.due_ns
            over.table.correct(over.key, 0, over.amount)  # the window of the charge matters only to a refund
        self._clock.now_ns = moment_ns

    def _contract_of(self, customer: str, moment_ns: int) -> _Contract:
        known = self._contracts.get(customer)
        if known is not None and moment_ns < known.until_ns:
            return known
        if customer not in self._document.customers:
            if self._unknown is None:
                self._unknown = self._made(customer, terms_of(self._document, customer, 0.0))
            return self._unknown
        made = self._made(customer, terms_of(self._document, customer, moment_ns / SECOND_NS))
        self._contracts[customer] = made
        return made

    def _made(self, customer: str, terms: Terms) -> _Contract:
        if terms.plan == REFUSED:
            return _Contract(refused=True, until_ns=inf)
        own = customer in self._contracts or terms.until * SECOND_NS <= self._shape.ends_ns
        asked: dict[int, _CentralAsk] = {}
        for term in terms.terms:
            if term.limit.slots:
                continue  # a recording tells when requests began, and not when they ended
            table = self._table_of(term, customer if own and CUSTOMER in term.by else None)
            asked.setdefault(
                id(table),  # a former limit may be the same as a present one, which must not be charged twice
                _CentralAsk(
                    term,
                    table,
                    self._places_of(term),
                    _place(self._shape.costs, term.name),
                    _place(self._shape.settles, term.name),
                ),
            )
        each = tuple(asked.values())
        return _Contract(
            refused=False,
            until_ns=terms.until * SECOND_NS,
            asked=each,
            switched=any(one.term.switches for one in each),
        )

    def _places_of(self, term: Term) -> tuple[int, ...] | None:
        """Returns the index in `CustomerRequest.facts` of each fact that a limit counts by; -1 stands for the customer.

        Returns None if the limit counts by customer alone. Raises MissingFact if the recording lacks a fact.
        """
        if term.by == (CUSTOMER,):
            return None
        for fact in term.by:
            if fact != CUSTOMER and fact not in self._shape.facts:
                raise MissingFact(term.name, fact, UNREPORTED.format(fact=fact))
        return tuple(-1 if fact == CUSTOMER else self._shape.facts.index(fact) for fact in term.by)

    def _table_of(self, term: Term, customer: str | None) -> Table:
        """Returns the `Table` with a limit's counts: of `customer` alone or, without one, of all with the same quota.

        A table for one customer is changed to the limit's present quota if possible; otherwise another table is
        returned.
        """
        if customer is None:
            return self._table((term.name, term.limit), term.name, term.limit)
        counted = tuple(getattr(term.limit, each) for each in COUNTED_BY)
        table = self._table((term.name, customer, *counted), term.name, term.limit)
        if table.limit != term.limit:
            if table.why_not(term.limit) is not None:
                return self._table((term.name, customer, term.limit), term.name, term.limit)
            table.change(term.limit)
        return table

    def _table(self, place: tuple[object, ...], name: str, limit: Limit) -> Table:
        table = self._tables.get(place)
        if table is None:
            table = self._tables[place] = self._kernel.table(f"{name}#{len(self._tables)}", limit, STRICT)
        return table

    @staticmethod
    def _claim(asked: _CentralAsk, request: CustomerRequest) -> _CentralClaim:
        key = request.customer
        if asked.facts is not None:
            key = _key_of([request.facts[place] if place >= 0 else key for place in asked.facts])
        cost = request.costs[asked.cost] if asked.cost >= 0 else 1
        settle = request.settles[asked.settle] if asked.settle >= 0 else 0
        costs = asked.term.limit.costs
        if costs is None or request.kind is None:
            return _CentralClaim(asked, key, cost, settle)
        factor = cost_of(asked.term.name, costs, request.kind)
        return _CentralClaim(asked, key, cost * factor, settle * factor)


def _place(names: Sequence[str], limit: str) -> int:
    """Returns the index of `limit` in `names`, or else the index of EVERY_LIMIT; -1 if `names` has neither."""
    wanted = limit if limit in names else EVERY_LIMIT
    return names.index(wanted) if wanted in names else -1


def _key_of(facts: Sequence[str]) -> str:
    if len(facts) == 1:
        return facts[0]
    return SEPARATOR.join(map(written, facts))


def _switched(claims: Sequence[_CentralClaim], moment_ns: int) -> tuple[list[_CentralClaim], list[_CentralClaim]]:
    """Returns the claims (costs for keys) on limits that are on, and those on limits in shadow; drops all others."""
    words = [switch_at(claim.asked.term, claim.key, moment_ns / SECOND_NS) for claim in claims]
    pairs = list(zip(words, claims, strict=True))
    return [claim for word, claim in pairs if word == "on"], [claim for word, claim in pairs if word == "shadow"]


def _refusing(claims: Sequence[_CentralClaim]) -> tuple[str, ...]:
    """Charges all claims (costs for keys), or none if a limit refuses. Returns the names of the limits that refuse."""
    if not claims:
        return ()
    try:
        if len(claims) == 1:
            asked, key, cost, _ = claims[0]
            return () if asked.table.allow(key, cost) else (asked.term.name,)
        plain = [Claimed(claim.asked.table, claim.key, claim.cost) for claim in claims]
        answer = hit_at_once(plain, certain=False)
        if isinstance(answer, list):
            return ()
        if isinstance(answer, int):
            return _names(claims, [_has_room(claim, plain[answer]) for claim in plain])
        parts = [Part(claim.limit, claim.key, claim.limit.tables[0].costs_of(claim.cost)) for claim in plain]
        return _names(claims, [settled.decision.allowed for settled in settle_jointly(parts).settled])
    except CostExceedsQuota:  # so nothing has been charged
        return _names(claims, [_would_admit(claim.asked.table, claim.key, claim.cost) for claim in claims])


def _has_room(claim: Claimed, refusing: Claimed) -> bool:
    """Returns whether the limit of `claim` would admit a request that the limit of `refusing` has refused.

    Charges nothing.

    `claim` and `refusing` may be the same. The compiled kernel is asked first, as it detects a refusal in a fraction of
    the time that the full test takes.
    """
    if claim is refusing or hit_at_once([claim, refusing], certain=False) == 0:
        return False
    return _would_admit(claim.limit.tables[0], claim.key, claim.cost)


def _would_admit(table: Table, key: str, cost: int) -> bool:
    try:
        return table.lock.run(_foreseen, table, key, cost * table.unit, table.now_ns())
    except CostExceedsQuota:
        return False


def _foreseen(table: Table, key: str, cost: int, now_ns: int) -> bool:
    check_size(table, cost)
    return foresee(table, look_up(table, key, now_ns), cost, now_ns)


def _names(claims: Sequence[_CentralClaim], admitted: Sequence[bool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(claim.asked.term.name for claim, fits in zip(claims, admitted, strict=True) if not fits))
