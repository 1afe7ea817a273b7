"""A guard's outcome for a request: whether it may go on, its response's fields, and the costs to settle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from reconverge.decision import Decision
from reconverge.errors import InvalidSetting, ReconvergeError, shown
from reconverge.integrations.web.fields import OF_CONTENT, Binding, Fields, QuotaDecision, binding_first, fields_11
from reconverge.integrations.web.holding import HeldSlot
from reconverge.integrations.web.request.request import Response
from reconverge.integrations.web.rules import SPENT
from reconverge.limit.limit import Limit
from reconverge.limiter.certainty import has_charged, left_of_others
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.reservation import Reservation
from reconverge.runtime.truth import no_number
from reconverge.runtime.unique import Unique

if TYPE_CHECKING:
    from reconverge.integrations.web.bound_rule import Declared

OUTCOME: Final = "reconverge.outcome"
"""The key in an ASGI scope or a WSGI environment for the outcome of the request, which applications may read."""


@dataclass(slots=True)
class Ruling:
    """One limit's decision about a request."""

    declared: Declared
    limiter: Limiter
    key: str
    cost: int
    decision: Decision
    reservation: Reservation | HeldSlot | None = None
    """The reservation or slot that must be settled later; None if there is none."""
    kind: str | None = None
    """The kind of the request, if each quota charged its own price; None if all quotas charged `cost`."""
    charged: bool = True
    """Whether an admitted request was charged; False if the limit was only tested."""

    @property
    def name(self) -> str:
        """Returns the limit's name."""
        return self.limiter.name

    @property
    def quotas(self) -> Mapping[str, Limit]:
        """Returns the limit's quotas by name."""
        return self.limiter.quotas

    @property
    def quota_decision(self) -> QuotaDecision:
        """Returns the decision with the limit's quotas, under the names that responses show."""
        return self._shown([self.decision])[0]

    def quota_decisions(self) -> Sequence[QuotaDecision]:
        """Returns the decision about each quota of the limit, for the response fields; `quota_decision` comes first."""
        return self._shown([self.decision, *left_of_others(self.limiter, self.decision, self.key)])

    def _shown(self, decisions: Sequence[Decision]) -> Sequence[QuotaDecision]:
        quotas = self.limiter.control.quotas_in(self.decision)
        names = self.declared.shown_names(self.limiter, quotas)
        shown = {names[name]: limit for name, limit in quotas.items()}
        return [
            QuotaDecision(replace(each, binding=names.get(each.binding, each.binding)), shown) for each in decisions
        ]

    @property
    def has_charged(self) -> bool:
        """Returns whether the limit has charged the request.

        A limit that is off charges nothing. A limit in shadow charges nothing if it has no room.
        """
        return self.charged and has_charged(self.decision)

    def give_back(self) -> None:
        """Gives the charge back to the limit, because the request does not go on."""
        if self.has_charged:
            if self.reservation is not None:
                self.reservation.settle(0)
            elif self.cost and isinstance(self.limiter, RateLimiter):  # a limit with slots has a reservation instead
                self.limiter.control.take_back(self.key, self.cost, self.kind)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The response to a refused request."""

    status: int
    problem: Mapping[str, Any]
    """The members of the problem details (RFC 9457) in the body."""
    body: bytes
    fields: Fields
    """All header fields: type and length of the body, RateLimit fields, and Retry-After if the time is known."""

    @property
    def detail(self) -> str:
        """Returns the refusal as a sentence."""
        return str(self.problem.get("detail", self.problem["title"]))


class Judge(Protocol):
    """The methods of a guard that its outcomes call."""

    def fields(self, rulings: Sequence[Ruling], *, refused: bool = False) -> Fields:
        """Returns the response fields for rulings; `refused` means that other limits have refused the request."""
        ...

    def failed(self, error: Exception, name: str, becomes: str | None = None) -> None:
        """Counts an error of the function `name`, and logs some of these errors."""
        ...


class MeteredRequest(Protocol):
    """The interface of a usage meter's record of one request; the request's outcome corrects the meter through it."""

    def is_about_the_same_request(self) -> None:
        """Makes the meter count one request less, because another guard or limit has already counted this request."""
        ...

    def take_back(self) -> None:
        """Subtracts the request's charges from the meter's sums, because the request is refused after all."""
        ...


@no_number("an outcome", "write: if outcome, if not outcome")
class Outcome(Unique):
    """The result of a guard's decision about a request; it is true if the request may go on.

    An integration adds `fields` to the response, and calls `finish` once the response has ended in any way. `refusal`
    is the response to a refused request. `response` is the result of `on_breach`, a response of the framework to send
    instead. `shadows` are the rulings (limits' decisions) of rules in shadow.
    """

    __slots__ = ("_rulings", "_unsettled", "guard", "metered", "refusal", "response", "shadows")

    def __init__(self, guard: Judge, rulings: Sequence[Ruling] = (), shadows: Sequence[Ruling] = ()) -> None:
        self.guard = guard
        self.shadows = shadows
        self.refusal: Refusal | None = None
        self.response: Any = None
        self.metered: MeteredRequest | None = None
        """A meter's record of the request; None without a meter."""
        self._rulings = rulings
        self._unsettled: Sequence[Ruling] = [
            ruling for ruling in (*rulings, *shadows) if ruling.reservation is not None
        ]

    def __repr__(self) -> str:
        said = [*self.rulings, *self.shadows]
        return f"<{type(self).__name__}: {'goes on' if self.allowed else 'refused'}, {said}>"

    @property
    def rulings(self) -> Sequence[Ruling]:
        """Returns the rulings (limits' decisions) of all rules that are not in shadow."""
        return self._rulings

    @property
    def allowed(self) -> bool:
        """Whether the request may go on."""
        return self.refusal is None

    def __bool__(self) -> bool:
        return self.refusal is None

    def log_unsendable(self, wanted: str) -> None:
        """Counts and logs a failure if `on_breach` has returned a value: the framework cannot send it as a response.

        `wanted` describes a value that can be sent.
        """
        if self.response is not None:
            self.guard.failed(TypeError(f"returned {shown(self.response)}; return {wanted}, or None"), "on_breach")

    @property
    def fields(self) -> Fields:
        """Returns the response fields of the limits, for admitted and refused requests."""
        return self.fields_beside(refused=False)

    def fields_beside(self, *, refused: bool) -> Fields:
        """Returns the limits' response fields; `refused` means that another limit or the application has refused.

        In that case, the fields of limits that admit state no time; `web/fields.py` gives the reason.
        """
        return self.guard.fields(self.rulings, refused=refused)

    def prepared(self) -> Sequence[tuple[Binding, Decision]] | None:
        """Returns each limit's `Binding` and decision, to make `ietf-11` fields from; empty if fields are off.

        Returns None if the guard must write the fields.
        """
        return None

    @property
    def decision(self) -> Decision | None:
        """Returns the decision of the binding limit, with `remaining` and `retry_after`; None without limits.

        After a refusal, the binding limit is the refusing one with the longest wait; otherwise it is the limit of which
        the smallest part is left.
        """
        decided = [ruling.decision for ruling in self.rulings]
        return min(decided, key=lambda decision: binding_first((None, decision)), default=None)

    @property
    def unsettled(self) -> bool:
        """Whether a cost depends on the response and must still be settled."""
        return bool(self._unsettled)

    @property
    def holds(self) -> bool:
        """Whether a slot is held until the response has been sent."""
        return any(isinstance(ruling.reservation, HeldSlot) for ruling in self._unsettled)

    def spend(self, cost: int, name: str | None = None) -> None:
        """Charges further cost, to the limit `name`, or to all limits whose rule has `settle="spent"`.

        Cost beyond the rule's `cost` is charged at once; an unused rest is given back when the response has ended. A
        call after that charges nothing, and is counted and logged as a failure. Raises InvalidCost.
        """
        meant = self._meant(name)
        if meant and all(ruling.declared.rule.settle != SPENT for ruling in meant):
            rule = meant[0].declared.rule
            problem = f"spend() charges nothing, because the limit has no settle={SPENT!r}; add that to its rule"
            self.guard.failed(InvalidSetting("settle", rule.settle, problem), f"spend() of {meant[0].name}")
        elif cost and not self._unsettled and any(ruling.reservation is not None for ruling in meant):
            problem = "is spent after the end of the response; call spend() earlier, or hit() of the limiter"
            self.guard.failed(InvalidSetting("cost", cost, problem), f"spend() of {meant[0].name}")
        for ruling in self._unsettled:
            if ruling.reservation is not None and ruling.declared.rule.settle == SPENT:
                if name is None or name == ruling.name:
                    ruling.reservation.spend(cost)
                    ruling.declared.look_at_spent(spent=True)

    def key_of(self, name: str | None = None) -> str | None:
        """Returns the key under which the limit `name`, or without a name the first limit, has counted the request.

        Returns None if no such limit has decided about the request.
        """
        return next((ruling.key for ruling in self._meant(name)), None)

    def reset(self, name: str | None = None) -> None:
        """Resets the use of the request's key in the limit `name`, or in all its limits, for example after a login.

        Limits on work in progress are left alone. See `RateLimiter.reset`.
        """
        for ruling in self._meant(name):
            if isinstance(ruling.limiter, RateLimiter):
                ruling.limiter.control.reset(ruling.key)

    def _meant(self, name: str | None) -> Sequence[Ruling]:
        return [ruling for ruling in (*self.rulings, *self.shadows) if name is None or name == ruling.name]

    def take_back(self) -> None:
        """Gives back all charges, because the request does not go on after all. Never raises an error."""
        self._unsettled = ()
        for ruling in (*self.rulings, *self.shadows):
            try:
                ruling.give_back()
            except Exception as error:  # noqa: BLE001  # the application's functions may raise any error
                self.guard.failed(error, ruling.name)
        if self.metered is not None:
            self.metered.take_back()

    def finish(self, response: Response, *, spent: bool = True) -> None:
        """Settles all costs by the response. If `spent` is False, skips costs that `spend` may still change.

        Each cost is settled once; never raises an error.
        """
        unsettled, self._unsettled = self._unsettled, ()
        if not spent:
            self._unsettled = [ruling for ruling in unsettled if ruling.declared.rule.settle == SPENT]
            unsettled = [ruling for ruling in unsettled if ruling.declared.rule.settle != SPENT]
        for ruling in unsettled:
            assert ruling.reservation is not None
            rule = ruling.declared.rule
            try:
                if isinstance(ruling.reservation, HeldSlot):
                    ruling.reservation.__exit__(None, None, None)  # returned; the functions below cannot change that
                elif rule.deduct_when is not None and not rule.deduct_when(response):
                    ruling.reservation.settle(0)
                elif callable(rule.settle):
                    ruling.reservation.settle(rule.settle(response))
                else:
                    ruling.reservation.__exit__(None, None, None)  # settles the spent cost, if any
                    if rule.settle == SPENT and response.status < HTTPStatus.BAD_REQUEST:
                        ruling.declared.look_at_spent(spent=False)
            except Exception as error:  # noqa: BLE001  # an error of the application's functions; the estimate stays charged
                what = "settle" if rule.deduct_when is None else "deduct_when"
                self.guard.failed(error, f"{ruling.name}: {what}", "stays charged")


def fields_together(outcomes: Sequence[Outcome], *, refused: bool = False) -> Fields:
    """Returns the fields of all outcomes of a request; `refused` means that the application has refused the request."""
    if len(outcomes) == 1:
        return outcomes[0].fields_beside(refused=refused)
    judges = {id(outcome.guard): outcome.guard for outcome in outcomes}
    fields: Fields = []
    for judge in judges.values():
        own = [outcome for outcome in outcomes if outcome.guard is judge]
        prepared = [outcome.prepared() for outcome in own]
        if None in prepared:
            fields += judge.fields([ruling for outcome in own for ruling in outcome.rulings], refused=refused)
        else:
            fields += fields_11([pair for each in prepared for pair in each or ()], refused=refused)
    return fields


def fields_for(outcomes: Sequence[Outcome], *, refused: bool) -> Fields:
    """Returns the fields to add to a response of the application, without those that describe a refusal's body."""
    refusal = outcomes[0].refusal if outcomes else None
    if refusal is None:
        return fields_together(outcomes, refused=refused)
    return [each for each in refusal.fields if each[0].lower() not in OF_CONTENT]


def go_on(outcomes: list[Outcome], outcome: Outcome) -> bool:
    """If `outcome` admits the request, adds it to the request's earlier `outcomes` and returns True.

    If it refuses the request, gives back the charges of the earlier outcomes, replaces them by `outcome`, and returns
    False.
    """
    if outcomes and outcome.metered is not None:
        outcome.metered.is_about_the_same_request()
    if outcome.allowed:
        outcomes.append(outcome)
        return True
    for before in outcomes:
        before.take_back()
    outcomes[:] = [outcome]
    return False


class RateLimited(ReconvergeError):
    """Raised for a refused request or call by the parts of this library that report refusals as exceptions.

    `decision` is the refusing decision with the longest wait; None if no quota has refused. `retry_after` is in
    seconds.
    """

    def __init__(self, message: str, decision: Decision | None = None, outcome: Outcome | None = None) -> None:
        self.decision = decision
        self.outcome = outcome
        self.retry_after = 0.0 if decision is None else decision.retry_after
        super().__init__(message)

    @classmethod
    def of(cls, outcome: Outcome) -> RateLimited:
        """Returns the exception for a refusing outcome."""
        assert outcome.refusal is not None
        decision = outcome.decision
        return cls(outcome.refusal.detail, None if decision is None or decision.allowed else decision, outcome)
