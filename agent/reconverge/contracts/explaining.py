"""Explains whether a customer is admitted now, and if not, why and until when: as an object and as a plain sentence."""

# Theory of operation.
#
# A customer that was refused asks its supplier why. A decision has the answer, but for one limit and in terms of a
# program; a contract has several limits, some of which have room. The customer needs to know which one is used up, how
# large it is, and when it can go on. So this file turns the decisions of all limits into one `Explanation`, whose
# sentence can be pasted into an answer as it is: it names no node, no key and no number that is not the customer's own.
#
# This file does no I/O. Callers pass the state of each limit: from `Limiter.test`, which reads the memory of one node,
# or from the hub, for the whole fleet (`fleet.py`). Neither charges anything, so an explanation costs the customer
# nothing. Times are rounded up, so that a customer that returns at the announced moment is not refused for being too
# early.

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
"""The most limits that a sentence describes; it only counts the others. `Explanation.limits` has all of them."""
IN_DOUBT: Final = "as far as this server knows"
NOT_MET: Final = "this node does not have the contract of this customer yet, and is fetching it"
"""The reason that an explanation gives if it treats a customer as unknown because its contract is not fetched yet."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_WINDOWS: Final = {1: "a second", _MINUTE_S: "a minute", _HOUR_S: "an hour", _DAY_S: "a day", 7 * _DAY_S: "a week"}
_WAITS: Final = ((2 * _DAY_S, _DAY_S, "days"), (2 * _HOUR_S, _HOUR_S, "hours"), (2 * _MINUTE_S, _MINUTE_S, "minutes"))
"""For each unit: the least time that is written in it, the unit's seconds, and its name in the plural."""
_TENTHS_BELOW_S: Final = 10


class MissingFact(ReconvergeError, ValueError):
    """Raised when a request lacks a fact (a value such as its user) by which one of the customer's limits counts.

    `advice` is the end of the message, with the remedy; by default the remedy is to pass the fact as an argument.
    """

    def __init__(self, limit: str, fact: str, advice: str = "") -> None:
        self.limit = limit
        self.fact = fact
        advice = advice or f"which the request does not name; pass {fact}=..., or in a rule facts={{{fact!r}: ...}}"
        super().__init__(f"limit {limit!r} counts by {fact!r}, {advice}")


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """The state of one limit for one customer: the limit, the decision that a request would get, and the use so far."""

    term: Term
    decision: Decision
    """The answer to the next request of cost 1, which is not charged."""
    usage: Usage
    shadow: bool = False
    """Whether the limit is in shadow for this customer, so that it refuses nothing."""
    off: bool = False
    """Whether the limit is off for this customer, so that it does not even count."""
    lines: int = 0
    """The sum of the allowances of all nodes, which they may use without the hub; 0 if unknown. It is a part of
    `remaining`."""

    @property
    def refuses(self) -> bool:
        """Returns whether this limit refuses the customer's next request of cost 1."""
        return not self.decision.allowed and not self.shadow and not self.off

    @property
    def switch(self) -> str:
        """Returns the limit's switch for this customer: "on", "shadow" or "off"."""
        return "off" if self.off else "shadow" if self.shadow else self.decision.switch

    @property
    def would_refuse(self) -> bool:
        """Whether this limit is in shadow for the customer, and would refuse its next request if it were on."""
        return not self.off and (self.decision.would_refuse or (self.shadow and not self.decision.allowed))


@dataclass(frozen=True, slots=True)
class LimitExplained:
    """One limit of a customer's contract, as an explanation shows it: what is used and left, and how long to wait."""

    name: str
    allowed: bool
    """Whether this limit lets the next request go on."""
    quota: int
    """The cost that a window admits, or the slots in use at once."""
    window_s: float
    """The window in seconds; 0 for a limit on what is in progress, which has no window."""
    at_once: int
    """The cost that one moment admits: the quota, or the burst of a bucket."""
    in_force: int
    """The part of `at_once` that nodes admit now: less than all, if a node caps it or does not know a new quota yet."""
    used: int
    """The cost that all nodes have charged and that still counts; may exceed the quota, as `soft` and debts do."""
    remaining: int
    """The cost that may still be used, as far as it is known; 0 or more."""
    lines: int
    """The part of `remaining` that nodes hold as allowances, so that other nodes may refuse it for a moment; 0 if
    unknown."""
    refill_s: float
    """The seconds between two moments at which a part of the quota comes back; 0 if no time brings it back."""
    wait_s: float
    """The seconds until the next request may go on; 0.0 if it may now, infinite if no moment is known."""
    by: tuple[str, ...]
    """The names of the request's facts by which the limit counts."""
    switch: str
    """The limit's switch: "on", "shadow" or "off"."""
    certain: bool
    """Whether `allowed` is certain: no answer of the hub would change it."""
    former: bool
    """Whether the limit is from a former contract, and is in force until its use has stopped counting."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation for one customer: whether it is admitted now, else which limits refuse, and for how long."""

    customer: str
    plan: str
    """The name of the customer's plan; `REFUSED` if it has no contract, and customers without one are refused."""
    allowed: bool
    refused_by: tuple[str, ...]
    """The names of the limits that refuse, the one to wait for longest first."""
    wait_s: float
    """The seconds until the customer can go on; 0.0 if it can now, infinite if no moment is known."""
    limits: tuple[LimitExplained, ...]
    """All limits of the contract, in the order of the contract."""
    sentence: str
    """The explanation in plain English, to be pasted into an answer to the customer."""
    fleetwide: bool = False
    """Whether the use is that of all nodes, from the hub and at most a sync interval old. If False, it is one node's
    view."""
    problem: str = ""
    """The reason why the hub has not returned the use, without names of hosts; empty if it has, or was not asked."""


@runtime_checkable
class Explainer(Protocol):
    """Explains the state of customers' contracts, and resets their use.

    Promises: explaining charges nothing and does not wait. A customer that the contracts do not name is on the plan for
    unknown customers, as in decisions.
    Does not promise: that the next request is decided as explained; other requests may come in between.
    """

    def explain(self, customer: str, **facts: str) -> Explanation:
        """Explains whether a customer's next request would be admitted; `facts` are the facts by which limits count.

        Raises MissingFact if a limit counts by a fact that `facts` lacks, and InvalidKey for a fact that cannot be in a
        key.
        """
        ...

    def reset(self, customer: str, **facts: str) -> None:
        """Resets the use of a customer: on this node at once, on all other nodes with their next exchange with the hub.

        A limit that counts by a fact that `facts` lacks is not reset. Raises InvalidKey as `explain` does.
        """
        ...


@runtime_checkable
class FleetExplainer(Explainer, Protocol):
    """An `Explainer` that can ask the hub for the use of all nodes.

    Promises the same as `Explainer`, except that it waits for the hub. All nodes give the same answer, as of the moment
    at which the hub is asked. If the hub cannot be asked, the answer is from this node's memory, and `problem` has the
    reason.
    """

    async def explain_fleet(self, customer: str, **facts: str) -> Explanation:
        """Explains as `explain` does, but by the use of the whole fleet. Raises as `explain` does."""
        ...


def explained(
    customer: str, plan: str, standings: Sequence[LimitStanding], *, fleetwide: bool = False, problem: str = ""
) -> Explanation:
    """Makes the explanation for a customer from the state of each limit of its contract; charges nothing.

    `fleetwide` and `problem` are fields of `Explanation`. If `problem` is not empty, the sentence mentions that only
    one server was asked.
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
    """Writes a customer's state in plain English: "acme may send 50 requests a second and has sent 50; ...".

    `one_server`: whether only one server was asked, although others may have charged the customer, too.
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
    """Returns an explanation as a dict for JSON, in which an infinite time to wait is null."""
    said = asdict(explanation)
    for each in (said, *said["limits"]):
        each["wait_s"] = each["wait_s"] if isfinite(each["wait_s"]) else None
    return said


def refill_s(limit: Limit) -> float:
    """Returns the seconds between two moments at which a part of the used quota is free again.

    For a sliding log, which frees single requests, this is the average. It is 0 for slots and for a quota of 0.
    """
    if limit.slots or limit.refuses_all:
        return 0.0
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as == FIXED_WINDOW or limit.refill == INTERVAL:
        return window_s
    if limit.counts_as == SLIDING_SLICES:
        assert limit.slices is not None  # a limit of slices always says how many
        return window_s / limit.slices
    return window_s / limit.counted.quota


def printable(customer: str) -> str:
    """Returns a customer's name for a sentence; a name with unprintable characters is quoted and escaped."""
    return customer if customer.isprintable() else shown(customer)


def written_wait(seconds: float) -> str:
    """Returns a time to wait as text for people, rounded up: `0.4 s`, `37 s`, `12 minutes`, `3 days`."""
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
    """Returns a clause on one limit, as "acme may send 50 requests a second and has sent 50" if `subject` is acme."""
    term, used = standing.term, standing.usage.total
    limit = term.limit
    verb, done, unit = ("use", "used", "unit") if limit.costs else ("send", "sent", "request")
    if limit.slots:
        verb = "have"
    many = "no" if limit.refuses_all else limit.quota
    amount = f"{many} {unit}{'' if limit.quota == 1 else 's'} {_window(limit)}"
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
    """Returns the end of an explaining sentence: when the customer is admitted again.

    `refusing` has the limits that refuse, `in_force` all that are not off. `doubts`: whether the ending mentions that a
    limit's answer is uncertain.
    """
    if not refusing:
        if any(each.would_refuse for each in in_force):
            return "the limit is only tried out (in shadow), so it can go on now"
        return "it can go on now"
    dated = [each for each in refusing if not each.term.limit.slots or each.term.limit.refuses_all]
    wait_s = max((each.decision.retry_after for each in dated), default=0.0)
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
    """Returns the seconds until a refusing limit admits again; infinite for slots, as the end of work is unknown."""
    return inf if standing.term.limit.slots else standing.decision.retry_after


def _free_fraction(standing: LimitStanding) -> tuple[bool, float]:
    """Returns a sort key for limits: first those in shadow that would refuse, then those with the least quota left."""
    decision = standing.decision
    return not standing.would_refuse, decision.remaining / max(1, decision.limit)


def _window(limit: Limit) -> str:
    """Returns the window of a limit as words, such as "a minute", "in 5 hours" or "in progress at once"."""
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
    return ceil(round(number, 6))
