"""One central limiter that goes by a contracts document, at whatever moment the recording is that it decides about."""

# Theory of operation.
#
# It is a lone node: the kernel that runs in production, on a clock that stands where the recording is.
#
# A table of the kernel counts a limit by one quota, for all customers that have that quota. A customer whose plan ends
# within the recording has tables of its own, which are changed when the plan ends as a limit in use is: what was used
# stays in the counts (`same_cells`).
#
# All limits of a contract are charged in one moment or none is. The compiled kernel tells in one call that all have
# room. Where one refuses the others are looked at, as callers want to know all limits that refuse. A limit in shadow is
# charged for what the others admit, and refuses nothing, as in an application.

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
"""Stands for a limit where a customer is refused for being unknown; no limit can be called so."""
EVERY_LIMIT: Final = "*"
"""In place of a limit's name: all limits without an amount of their own."""
KEYS_MAX: Final = 1 << 40
"""No key of a recording leaves for want of room: a reader of the file runs out of memory sooner."""
KEY_BYTES_MAX: Final = 1 << 20
"""Far more than eight facts of a request have."""
UNREPORTED: Final = "which the recording does not tell; name the column that does, as in {fact}=COLUMN"
INTERVAL_NS: Final = SECOND_NS
"""A kernel has an interval, and one that is alone never exchanges."""


class CustomerRequest(NamedTuple):
    """One request of a recording. What its tuples are about is in the `Shape` of the recording."""

    moment_ns: int
    """Since 1970; never before that of the request before."""
    customer: str
    facts: tuple[str, ...] = ()
    costs: tuple[int, ...] = ()
    settles: tuple[int, ...] = ()
    """The cost that is added once the request is over."""
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a recording, beside the moment and the customer of each request."""

    facts: tuple[str, ...] = ()
    """Their names, in the order of `CustomerRequest.facts`."""
    costs: tuple[str, ...] = ()
    """The limits that `CustomerRequest.costs` are of, or EVERY_LIMIT; a request costs 1 of all others."""
    settles: tuple[str, ...] = ()
    """Likewise; of all others nothing is added afterwards."""
    settle_after_ns: int = 0
    """How long a request takes."""
    ends_ns: int = NEVER_NS
    """The moment of the last request, since 1970."""


class _RecordedTime:
    """A clock that stands where the recording is."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


@dataclass(frozen=True, slots=True)
class _CentralAsk:
    """The part of a request that one limit of its customer's contract looks at."""

    term: Term
    table: Table
    facts: tuple[int, ...] | None
    """Where the facts stand by which it counts, -1 being the customer; None if it counts by the customer alone."""
    cost: int
    """Where its cost stands; -1 if a request costs 1."""
    settle: int
    """Where that stands which comes on top; -1 if nothing does."""


@dataclass(frozen=True, slots=True)
class _Contract:
    """The terms of a customer for a while."""

    refused: bool
    until_ns: float
    asked: tuple[_CentralAsk, ...] = ()
    switched: bool = False
    """Whether a limit may be in shadow, or off."""


class _CentralClaim(NamedTuple):
    """The claim of one request on one limit."""

    asked: _CentralAsk
    key: str
    cost: int
    settle: int


@dataclass(frozen=True, slots=True)
class _Settlement:
    """The cost that is added when a request is over."""

    due_ns: int
    table: Table
    key: str
    amount: int


class CentralLimiter:
    """Decides the requests of a recording, one after the other, by what a document says at the moment of each."""

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
        """Of all customers that the document does not name."""
        self._tables: dict[tuple[object, ...], Table] = {}
        self._settlements: deque[_Settlement] = deque()
        """In the order of their moments, as all requests take equally long."""

    def decide(self, request: CustomerRequest) -> tuple[str, ...]:
        """The names of the limits that refuse a request; none if it is admitted, and charged to all.

        Raises MissingFact, and UnknownKind for a kind of which a limit that has costs by kind knows none.
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
        """Declares the limits of all plans when the recording begins: a paced one stores permits from then on."""
        for plan in self._document.plans.values():
            for name, each in plan.limits.items():
                if not each.limit.slots:
                    self._table((name, each.limit), name, each.limit)

    def _be_at(self, moment_ns: int) -> None:
        """Lets time pass until a moment, and settles the requests that are over by then."""
        settlements = self._settlements
        while settlements and settlements[0].due_ns <= moment_ns:
            over = settlements.popleft()
            self._clock.now_ns = over.due_ns
            over.table.correct(over.key, 0, over.amount)  # which window it was charged in matters to what is given back
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
                id(table),  # a former limit may say what holds anyhow, and nothing is charged twice
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
        """Finds the places of the facts, as `_CentralAsk.facts` has them. Raises MissingFact."""
        if term.by == (CUSTOMER,):
            return None
        for fact in term.by:
            if fact != CUSTOMER and fact not in self._shape.facts:
                raise MissingFact(term.name, fact, UNREPORTED.format(fact=fact))
        return tuple(-1 if fact == CUSTOMER else self._shape.facts.index(fact) for fact in term.by)

    def _table_of(self, term: Term, customer: str | None) -> Table:
        """The table of a limit: of all customers with that quota, or of one alone, which is changed where it can be."""
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
        """The table in that place, declared if there is none."""
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
    """Where the amount stands that is of a limit, or else of every limit; -1 if none is."""
    wanted = limit if limit in names else EVERY_LIMIT
    return names.index(wanted) if wanted in names else -1


def _key_of(facts: Sequence[str]) -> str:
    """The key under which a limit counts by those facts."""
    if len(facts) == 1:
        return facts[0]
    return SEPARATOR.join(map(written, facts))


def _switched(claims: Sequence[_CentralClaim], moment_ns: int) -> tuple[list[_CentralClaim], list[_CentralClaim]]:
    """The claims on limits that are on, and on those in shadow."""
    words = [switch_at(claim.asked.term, claim.key, moment_ns / SECOND_NS) for claim in claims]
    pairs = list(zip(words, claims, strict=True))
    return [claim for word, claim in pairs if word == "on"], [claim for word, claim in pairs if word == "shadow"]


def _refusing(claims: Sequence[_CentralClaim]) -> tuple[str, ...]:
    """The names of the limits that refuse; none if all admit, and each has charged its cost in that moment."""
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
    """Whether a limit has room for a request that another one, or the same, refuses for certain; charges nothing.

    The compiled kernel tells a refusal in a fraction of the time that a closer look takes.
    """
    if claim is refusing or hit_at_once([claim, refusing], certain=False) == 0:
        return False
    return _would_admit(claim.limit.tables[0], claim.key, claim.cost)


def _would_admit(table: Table, key: str, cost: int) -> bool:
    """As `Table.test`, without the grounds, which take longer than the answer."""
    try:
        return table.lock.run(_foreseen, table, key, cost * table.unit, table.now_ns())
    except CostExceedsQuota:
        return False


def _foreseen(table: Table, key: str, cost: int, now_ns: int) -> bool:
    check_size(table, cost)
    return foresee(table, look_up(table, key, now_ns), cost, now_ns)


def _names(claims: Sequence[_CentralClaim], admitted: Sequence[bool]) -> tuple[str, ...]:
    """The names of those that do not admit, each once: a limit may hold beside what it was formerly."""
    return tuple(dict.fromkeys(claim.asked.term.name for claim, fits in zip(claims, admitted, strict=True) if not fits))
