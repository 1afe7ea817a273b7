"""The layer for request rates: charges a limiter for each request, and refunds the charge if a later layer refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconverge.errors import InvalidSetting
from reconverge.limiter.certainty import for_any_node
from reconverge.limiter.enforcement.switches import OFF
from reconverge.limiter.faces.kinds import checked_kind
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.shedding.layers import Arrival, Outcome, ShedRefusal

if TYPE_CHECKING:
    from reconverge.decision import Decision


class RequestRate:
    """Refuses requests of a key that sends more than its limit: with 429, or `status`.

    `limiter` is the result of `agent.limit`. The layer's `name` is by default that of the limit. Raises InvalidSetting
    if `limiter` is another object, and for a status other than 429 and 503.
    """

    counts_by_key: Final = True

    def __init__(self, limiter: RateLimiter, *, name: str | None = None, status: int = 429) -> None:
        self.limiter = checked_kind("limiter", limiter, RateLimiter)
        if status not in (429, 503):
            raise InvalidSetting("status", status, "is neither 429 (too many requests) nor 503 (to shed load)")
        self.name = limiter.name if name is None else name
        self._status = status

    def enter(self, arrival: Arrival) -> Charge | ShedRefusal | None:
        """Charges the limit; returns the charge or a refusal. Raises InvalidKey for an unusable key."""
        decision = self.limiter.hit(arrival.key)
        if decision.allowed:
            return Charge(self.limiter, arrival.key, decision)
        return self.refusal(arrival.key, decision)

    def refusal(self, key: str, decision: Decision) -> ShedRefusal:
        return refusal_of(self.name, self._status, self.limiter, key, decision)

    def enter_anyway(self, arrival: Arrival) -> Charge | None:  # noqa: ARG002  # nothing was charged
        return None

    def readings(self) -> Mapping[str, float]:
        """Returns an empty mapping, because the agent's own metrics describe the limiter."""
        return {}


def refusal_of(layer: str, status: int, limiter: RateLimiter, key: str, decision: Decision) -> ShedRefusal:
    """Returns the refusal by the layer `layer`, with HTTP status `status`, of a request that `limiter` has refused."""
    decision = for_any_node(limiter, decision, key)
    reason = f"The quota {decision.binding} is used up."
    return ShedRefusal(layer, status, decision.retry_after, reason, decision, limiter.quotas)


class Charge:
    """The record of a request that was charged to a limit; `give_back` refunds the charge."""

    # A reservation would work, too, but costs ten times as much as a hit: it marks the charge, so that the charge can
    # be corrected exactly in any window. A charge that is given back here was made microseconds ago.

    __slots__ = ("_key", "decision", "limiter", "shown")

    def __init__(self, limiter: RateLimiter, key: str, decision: Decision, *, shown: bool = True) -> None:
        self.limiter = limiter
        self.shown = shown
        """Whether response fields show this limit; False for a quota that is not the caller's own."""
        self._key = key
        self.decision = decision

    def finish(self, now_ns: int, outcome: Outcome) -> None:
        """Does nothing, as a rate is charged however a request ends."""

    def give_back(self, now_ns: int) -> None:  # noqa: ARG002  # the limit has a clock of its own
        decision = self.decision
        if decision.switch == OFF or decision.would_refuse:
            return  # nothing was charged
        control = self.limiter.control
        charged = control.tables[1] if decision.borrowed else control.enforcement.table
        charged.refund(self._key, 1)
        control.tell(self._key)
