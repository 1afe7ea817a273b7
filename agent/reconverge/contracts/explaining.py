"""Why a customer may go on or not, and when, as values and in a sentence of plain English."""

# Theory of operation.
#
# A customer that was refused asks its supplier why. A decision has the answer, of one limit and in the words of a
# program; a contract has several limits, some of which have room. What the customer wants to know is which one is used
# up, how much of it there is, and when it can go on. So this file turns what each limit says into one `Explanation`,
# whose sentence can be pasted into an answer as it is: it names no node, no key and no number that is not the
# customer's own.
#
# Everything here is pure. What limits say comes from outside: as `Limiter.test` has it, out of the memory of one node,
# or as the hub has it, for the whole fleet (`fleet.py`). Neither charges anything, so an explanation costs the customer
# nothing, either. Times are rounded up: a customer that comes
# at the announced moment is not refused for having come too early.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, isfinite
from typing import Any, Final, Protocol, runtime_checkable

from reconverge.clock import SECOND_NS
from reconverge.contracts.model import CUSTOMER, REFUSED
from reconverge.contracts.terms import Term
from reconverge.decision import Decision, Usage
from reconverge.errors import ReconvergeError, shown
from reconverge.limit.limit import DRAINED, FIXED_WINDOW, INTERVAL, SLIDING_SLICES, Limit

SENTENCE_LIMITS_MAX: Final = 3
"""A sentence names so many limits, and only counts the others; all of them are in `Explanation.limits`."""
IN_DOUBT: Final = "as far as this server knows"
NOT_MET: Final = "the contract of this customer is not here yet, as its page is being fetched"
"""Why a node explains a customer as an unknown one; see `on_demand/customers.py`."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_WINDOWS: Final = {1: "a second", _MINUTE_S: "a minute", _HOUR_S: "an hour", _DAY_S: "a day", 7 * _DAY_S: "a week"}
_WAITS: Final = ((2 * _DAY_S, _DAY_S, "days"), (2 * _HOUR_S, _HOUR_S, "hours"), (2 * _MINUTE_S, _MINUTE_S, "minutes"))
"""From how many seconds on a time is given in which unit: no sentence names one of a unit."""
_TENTHS_BELOW_S: Final = 10


class MissingFact(ReconvergeError, ValueError):
    """Raised when a request does not name a fact by which one of the customer's limits counts.

    `advice` says what does not name it, and how it can be named; by default that is a call in a program.
    """

    def __init__(self, limit: str, fact: str, advice: str = "") -> None:
        self.limit = limit
        self.fact = fact
        advice = advice or f"which the request does not name; pass {fact}=..."
        super().__init__(f"limit {limit!r} counts by {fact!r}, {advice}")


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """How a customer stands with one limit of its contract: what holds, what a request would be answered, and use."""

    term: Term
    decision: Decision
    """The answer to the next request of cost 1, which is not charged."""
    usage: Usage
    shadow: bool = False
    """Whether the limit is in shadow for this customer, so that it refuses nothing."""
    off: bool = False
    """Whether the limit is off for this customer, so that it does not even count."""
    lines: int = 0
    """The allowances of nodes, if these are known; they are part of `remaining`."""

    @property
    def refuses(self) -> bool:
        """Whether the next request is refused for this limit."""
        return not self.decision.allowed and not self.shadow and not self.off

    @property
    def switch(self) -> str:
        """How the limit is switched for this customer: "on", "shadow" or "off"."""
        return "off" if self.off else "shadow" if self.shadow else self.decision.switch

    @property
    def would_refuse(self) -> bool:
        """Whether the next request would be refused, if the limit were not in shadow."""
        return not self.off and (self.decision.would_refuse or (self.shadow and not self.decision.allowed))


@dataclass(frozen=True, slots=True)
class LimitExplained:
    """One limit of a customer's contract, with what is used of it."""

    name: str
    allowed: bool
    """Whether this limit lets the next request go on."""
    quota: int
    """The cost that a window admits, or the slots in use at once."""
    window_s: float
    """0 of a limit on what is in progress, which has no window."""
    at_once: int
    """The cost that one moment admits: the quota, or the burst of a bucket."""
    in_force: int
    """The part of `at_once` that nodes admit now: less, if a node caps it, or has yet to hear of a larger quota."""
    used: int
    """The cost that all nodes have charged and that still counts; may exceed the quota, as `soft` and debts do."""
    remaining: int
    """The rest, as far as it is known; 0 or more."""
    lines: int
    """The part of it in nodes' allowances: other nodes may refuse it for a moment. 0 if it is
    not known."""
    refill_s: float
    """Seconds between two moments at which something of it comes back; 0 where no time does that."""
    wait_s: float
    """Seconds until the next request may go on; 0.0 if it may now, infinite if no moment is known."""
    by: tuple[str, ...]
    """The facts of a request by which it is counted."""
    switch: str
    """How the limit is switched: "on", "shadow" or "off"."""
    certain: bool
    """Whether no word of the hub would change `allowed`."""
    former: bool
    """Whether it is of the contract before the present one, and holds until its use has stopped counting."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a customer may go on now, why not, and when."""

    customer: str
    plan: str
    """The name of the plan that it is on; `REFUSED` if it has no contract, and customers without one are refused."""
    allowed: bool
    refused_by: tuple[str, ...]
    """The names of the limits that refuse, the one to wait for longest first."""
    wait_s: float
    """Seconds until the customer can go on; 0.0 if it can now, infinite if no moment is known."""
    limits: tuple[LimitExplained, ...]
    """All limits of the contract, in its order."""
    sentence: str
    """The same in plain English, to be pasted into an answer to the customer."""
    fleetwide: bool = False
    """Whether use is what the hub has of all nodes, at most a sync interval old; else it is what one node knows."""
    problem: str = ""
    """Why the hub has not answered, if it was asked; names no host."""


@runtime_checkable
class Explainer(Protocol):
    """Explains how customers stand with their contracts, and resets their use.

    Promises: explaining charges nothing and does not wait. A customer that the contracts do not name is on the plan for
    unknown customers, as in decisions.
    Does not promise: that the next request is answered as explained; other requests come in between.
    """

    def explain(self, customer: str, **facts: str) -> Explanation:
        """How a customer stands now; `facts` are those of a request by which limits count, such as `user="ada"`.

        Raises MissingFact if a limit counts by a fact that is not named, and InvalidKey for one that cannot be a key.
        """
        ...

    def reset(self, customer: str, **facts: str) -> None:
        """Forget what a customer has used: here at once, on all other nodes with their next exchange.

        Limits that count by facts that are not named stay as they are. Raises InvalidKey as `explain` does.
        """
        ...


@runtime_checkable
class FleetExplainer(Explainer, Protocol):
    """An `Explainer` that can ask the hub what all nodes have charged.

    Promises: what `Explainer` promises, but that it waits; all nodes answer alike, as of the moment that the hub is
    asked; where the hub cannot be asked, the answer is what this node knows, and says so.
    """

    async def explain_fleet(self, customer: str, **facts: str) -> Explanation:
        """As `explain`, by the use of the whole fleet. Raises as `explain` does."""
        ...


def explained(
    customer: str, plan: str, standings: Sequence[LimitStanding], *, fleetwide: bool = False, problem: str = ""
) -> Explanation:
    """Explain how a customer stands, from what each limit of its contract says. Pure: it charges and asks nothing.

    `fleetwide`, `problem`: see `Explanation`. With a problem the sentence says that it is what one server knows.
    """
    limits = tuple(map(_explained_limit, standings))
    refusing = sorted((each for each in limits if not each.allowed), key=lambda each: -each.wait_s)
    no_contract = plan == REFUSED and not limits
    wait_s = inf if no_contract else max((each.wait_s for each in refusing), default=0.0)
    return Explanation(
        customer=customer,
        plan=plan,
        allowed=not refusing and not no_contract,
        refused_by=tuple(each.name for each in refusing),
        wait_s=wait_s,
        limits=limits,
        sentence=sentence_of(customer, plan, standings, one_server=bool(problem)),
        fleetwide=fleetwide,
        problem=problem,
    )


def sentence_of(customer: str, plan: str, standings: Sequence[LimitStanding], *, one_server: bool = False) -> str:
    """How a customer stands, in plain English: "acme may send 50 requests a second and has sent 50; ...".

    `one_server`: whether one server alone was asked, although others may have charged the customer, too.
    """
    name = printable(customer)
    if not standings:
        if plan == REFUSED:
            return f"{name} has no contract, and requests without one are refused."
        return f"{name} is on the plan {plan}, which limits nothing now; it can go on now."
    in_force = [each for each in standings if each.switch != "off"]
    if not in_force:
        return f"all limits of {name} are switched off; it can go on now."
    refusing = sorted((each for each in in_force if each.refuses), key=lambda each: -each.decision.retry_after)
    about = refusing or sorted(in_force, key=_free_fraction)
    clauses = [_clause(each, name if number == 0 else "it") for number, each in enumerate(about[:SENTENCE_LIMITS_MAX])]
    more = len(about) - len(clauses)
    if more:
        one, several = ("refuses", "refuse") if refusing else ("has room", "have room")
        clauses.append(f"{more} more of its limits {one if more == 1 else several}")
    doubt = f"{IN_DOUBT}, " if one_server else ""
    return f"{doubt}{', and '.join(clauses)}; {_ending(refusing, in_force, doubts=not one_server)}."


def table_of_explanation(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON, in which a time without an end is null."""
    said = asdict(explanation)
    for each in (said, *said["limits"]):
        each["wait_s"] = each["wait_s"] if isfinite(each["wait_s"]) else None
    return said


def refill_s(limit: Limit) -> float:
    """Seconds between two moments at which something of a limit comes back; of a log, on average; 0 of slots."""
    if limit.slots:
        return 0.0
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as == FIXED_WINDOW or limit.refill == INTERVAL:
        return window_s
    if limit.counts_as == SLIDING_SLICES:
        assert limit.slices is not None  # a limit of slices always says how many
        return window_s / limit.slices
    return window_s / limit.quota


def printable(customer: str) -> str:
    """A customer's name as a sentence may have it: what moves the cursor or turns the writing is shown."""
    return customer if customer.isprintable() else shown(customer)


def written_wait(seconds: float) -> str:
    """A time to wait, as a reader says it, rounded up: `0.4 s`, `37 s`, `12 minutes`, `3 days`."""
    for least_s, unit_s, name in _WAITS:
        if seconds > least_s:
            return f"{_up(seconds / unit_s)} {name}"
    if seconds > _TENTHS_BELOW_S:
        return f"{_up(seconds)} s"
    return f"{max(1, _up(seconds * 10)) / 10:g} s"


def _explained_limit(standing: LimitStanding) -> LimitExplained:
    term, decision = standing.term, standing.decision
    return LimitExplained(
        name=term.name,
        allowed=not standing.refuses,
        quota=term.limit.quota,
        window_s=0.0 if term.limit.slots else term.limit.window_ns / SECOND_NS,
        at_once=term.limit.nominal,
        in_force=_in_force(standing),
        used=standing.usage.total,
        remaining=max(0, decision.remaining),
        lines=standing.lines,
        refill_s=refill_s(term.limit),
        wait_s=_wait_s(standing) if standing.refuses else 0.0,
        by=term.by,
        switch=standing.switch,
        certain=decision.certain,
        former=term.former,
    )


def _clause(standing: LimitStanding, subject: str) -> str:
    """Writes how much a customer may use of one limit, and has used."""
    term, used = standing.term, standing.usage.total
    limit = term.limit
    verb, done, unit = ("use", "used", "unit") if limit.costs else ("send", "sent", "request")
    if limit.slots:
        verb = "have"
    amount = f"{limit.quota} {unit}{'' if limit.quota == 1 else 's'} {_window(limit)}"
    if limit.nominal != limit.quota and limit.algorithm in DRAINED:
        amount += f", {limit.nominal} of them at once,"
    if term.former:
        amount += " by its former contract"
    in_force = _in_force(standing)
    if in_force < limit.nominal:
        amount += f", of which the servers allow {in_force} now,"
    others = [fact for fact in term.by if fact != CUSTOMER]
    if CUSTOMER not in term.by:
        use = f"have {used} of them" if limit.slots else f"have {done} {used}"
        return f"{subject} shares {amount} with others of the same {_listed(others)}, which {use} together"
    if others:
        amount += f" for each {_listed(others)}"
    return f"{subject} may {verb} {amount} and has {used if limit.slots else f'{done} {used}'}"


def _in_force(standing: LimitStanding) -> int:
    return min(standing.term.limit.nominal, standing.usage.limit)


def _ending(refusing: Sequence[LimitStanding], in_force: Sequence[LimitStanding], *, doubts: bool) -> str:
    """When a customer can go on; `doubts`: whether the sentence has yet to say that it is not certain."""
    if not refusing:
        if any(each.would_refuse for each in in_force):
            return "the limit is only tried out (in shadow), so it can go on now"
        return "it can go on now"
    wait_s = max((each.decision.retry_after for each in refusing if not each.term.limit.slots), default=0.0)
    if not isfinite(wait_s):
        when = "cannot go on until its contract changes"
    elif any(each.term.limit.slots for each in refusing):
        at_least = f", and not before {written_wait(wait_s)} from now" if wait_s else ""
        when = f"can go on when something in progress has ended{at_least}"
    else:
        when = f"can go on in {written_wait(wait_s)}"
    if not doubts or all(each.decision.certain for each in refusing):
        return f"it {when}"
    return f"{IN_DOUBT}, it {when}"


def _wait_s(standing: LimitStanding) -> float:
    """Until a limit that refuses lets the next request go on; infinite of slots, as nothing shows when work ends."""
    return inf if standing.term.limit.slots else standing.decision.retry_after


def _free_fraction(standing: LimitStanding) -> tuple[bool, float]:
    """By what a list of limits is sorted that has the tightest first; what would refuse comes before all else."""
    decision = standing.decision
    return not standing.would_refuse, decision.remaining / max(1, decision.limit)


def _window(limit: Limit) -> str:
    """For how long a quota lasts."""
    if limit.slots:
        return "in progress at once"
    if limit.calendar is not None:
        return f"a calendar {limit.calendar.unit.name}"
    window_s = limit.window_ns / SECOND_NS
    if window_s in _WINDOWS:
        return _WINDOWS[int(window_s)]
    for unit_s, name in ((_DAY_S, "days"), (_HOUR_S, "hours"), (_MINUTE_S, "minutes")):
        if window_s % unit_s == 0:
            return f"in {window_s / unit_s:.0f} {name}"
    return f"in {window_s:g} s"


def _listed(facts: Sequence[str]) -> str:
    return " and ".join(facts)


def _up(number: float) -> int:
    """`number` rounded up, without what floating point has added to a whole number."""
    return ceil(round(number, 6))
