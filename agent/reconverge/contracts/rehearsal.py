"""Rehearses a change of contracts: finds the recorded requests that it would newly refuse or newly admit."""

# Theory of operation.
#
# The problem. A quota is halved in a file, and a reviewer has to know, before the change is made, which customers it
# would refuse. Averages do not show that: two customers with equal use in a day may differ in every minute.
#
# How it works. Two central limiters decide every request of a recording at its own moment: one by the contracts that
# hold now, one by those that may follow. They share nothing. A request that only one of them admits is charged there
# alone, so later requests find the counts that they would have found. A rehearsal does not show the effects of a fleet,
# whose nodes learn of each other's use only now and then; `reconverge replay` measures these.
#
# Requests come in the order of their moments, so counting the current hour is enough to find the busiest one, and
# memory grows with the customers and not with the requests.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.contracts.central import CentralLimiter, CustomerRequest, Shape
from reconverge.contracts.model import Document

HOUR_NS: Final = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Effect:
    """A group of requests of one customer, all of which a change of contracts newly refuses, or newly admits.

    The same limits refuse all of them: limits of the new contracts if newly refused, else of the present ones.
    """

    customer: str
    limits: tuple[str, ...]
    """The names of all limits that refuse these requests, under the candidate contracts or under the present ones."""
    requests: int
    first_ns: int
    """The moment of the first of these requests; all moments here are in nanoseconds since 1970."""
    last_ns: int
    busiest_ns: int
    """The beginning of the hour with most of these requests; the first such hour, if there are several."""
    in_busiest: int
    asked: int
    """The number of all requests of that customer."""


@dataclass(slots=True)
class LimitEffect:
    """The number of requests that one limit refuses before and after a change.

    A request that several limits refuse counts for each of them.
    """

    refuses_now: int = 0
    would_refuse: int = 0
    newly_refused: int = 0
    newly_admitted: int = 0


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """The effect of a change of contracts on a whole recording of requests.

    Effects are sorted by their number of requests, highest first.
    """

    requests: int
    customers: int
    newly_refused: int
    newly_admitted: int
    refused_by_both: int
    refused: Sequence[Effect]
    """The effects on newly refused requests; their requests sum to `newly_refused`."""
    admitted: Sequence[Effect]
    """The effects on newly admitted requests; their requests sum to `newly_admitted`."""
    limits: Mapping[str, LimitEffect]
    """The effects on limits that refuse any request, by the limit's name, in alphabetical order."""


class Rehearsal:
    """Decides each request of a recording twice: by the present contracts, and by the candidate contracts."""

    def __init__(self, current: Document | None, candidate: Document, shape: Shape) -> None:
        """Prepares both limiters. If `current` is None, the present contracts admit every request."""
        self._now = None if current is None else CentralLimiter(current, shape)
        self._then = CentralLimiter(candidate, shape)
        self._asked: dict[str, int] = {}
        self._refused: dict[tuple[str, tuple[str, ...]], _RehearsalTally] = {}
        self._admitted: dict[tuple[str, tuple[str, ...]], _RehearsalTally] = {}
        self._limits: dict[str, LimitEffect] = {}
        self._by_both = 0

    def see(self, request: CustomerRequest) -> None:
        """Decides the next request by both documents, and counts the result. Raises MissingFact and UnknownKind."""
        customer = request.customer
        self._asked[customer] = self._asked.get(customer, 0) + 1
        now = () if self._now is None else self._now.decide(request)
        then = self._then.decide(request)
        if not now and not then:
            return
        for name in now:
            effect = self._limits.setdefault(name, LimitEffect())
            effect.refuses_now += 1
            effect.newly_admitted += not then
        for name in then:
            effect = self._limits.setdefault(name, LimitEffect())
            effect.would_refuse += 1
            effect.newly_refused += not now
        if now and then:
            self._by_both += 1
            return
        tallies, limits = (self._admitted, now) if now else (self._refused, then)
        tally = tallies.get((customer, limits))
        if tally is None:
            tally = tallies[customer, limits] = _RehearsalTally(request.moment_ns)
        tally.add(request.moment_ns)

    def outcome(self) -> RehearsalOutcome:
        """Returns the effects of the change on all requests so far."""
        refused, admitted = self._effects(self._refused), self._effects(self._admitted)
        return RehearsalOutcome(
            requests=sum(self._asked.values()),
            customers=len(self._asked),
            newly_refused=sum(effect.requests for effect in refused),
            newly_admitted=sum(effect.requests for effect in admitted),
            refused_by_both=self._by_both,
            refused=refused,
            admitted=admitted,
            limits=dict(sorted(self._limits.items())),
        )

    def _effects(self, tallies: Mapping[tuple[str, tuple[str, ...]], _RehearsalTally]) -> list[Effect]:
        effects = [
            Effect(
                customer=customer,
                limits=limits,
                requests=tally.requests,
                first_ns=tally.first_ns,
                last_ns=tally.last_ns,
                busiest_ns=tally.busiest * HOUR_NS,
                in_busiest=tally.in_busiest,
                asked=self._asked[customer],
            )
            for (customer, limits), tally in tallies.items()
        ]
        return sorted(effects, key=lambda effect: (-effect.requests, effect.customer, effect.limits))


class _RehearsalTally:
    """Counts the requests of one `Effect`, in the order of their moments, and finds the hour that has most of them."""

    __slots__ = ("_hour", "_in_hour", "busiest", "first_ns", "in_busiest", "last_ns", "requests")

    def __init__(self, first_ns: int) -> None:
        self.first_ns = self.last_ns = first_ns
        self.requests = 0
        self._hour = self.busiest = first_ns // HOUR_NS
        self._in_hour = self.in_busiest = 0

    def add(self, moment_ns: int) -> None:
        """Counts one more request, at a moment in nanoseconds since 1970."""
        hour = moment_ns // HOUR_NS
        if hour != self._hour:
            self._hour, self._in_hour = hour, 0
        self._in_hour += 1
        if self._in_hour > self.in_busiest:
            self.busiest, self.in_busiest = hour, self._in_hour
        self.requests += 1
        self.last_ns = moment_ns
