"""Builds the response fields for admitted requests, and the responses to requests that a layer has refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any, Final, Protocol

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.integrations.asgi.sending import Headers
from reconverge.integrations.asgi.sending import encoded as encoded_fields
from reconverge.integrations.web.fields import (
    FAR_S,
    IETF_11,
    INTEGER_MAX,
    POLICY,
    RETRY_AFTER,
    SERVICE,
    Fields,
    QuotaDecision,
    fields_of,
    policy_11,
    sf_string,
)
from reconverge.integrations.web.refusal import PROBLEM_JSON, encoded, problem_of
from reconverge.limit.limit import Limit
from reconverge.limiter.faces.limiter import Limiter
from reconverge.runtime.log_throttle import LogThrottle
from reconverge.shedding.adaptive.concurrency import SlotInUse
from reconverge.shedding.adaptive.slots import RunningCount
from reconverge.shedding.admission import Admission
from reconverge.shedding.fast_path import FastPath, Passage
from reconverge.shedding.layers import DROPPED, IGNORED, SERVED, InProgress, Outcome, ShedRefusal
from reconverge.shedding.rate import Charge
from reconverge.shedding.stack import Stack

logger = logging.getLogger("reconverge")

POLICY_BYTES: Final = POLICY.lower().encode()
LEFT_BYTES: Final = SERVICE.lower().encode()
OVERLOADED: Final = frozenset({503, 504})
"""The response statuses by which an application reports that it, or a service that it calls, is overloaded or slow."""
SAID_MAX: Final = 1024
"""The most responses to refusals that are cached; they differ in layer, numbers and time to wait."""
MESSAGES_MAX: Final = 10
"""The most failures of an application's functions that are logged in a minute."""

KeyFunc = Callable[[Any], str]


def outcome_of(status: int) -> Outcome:
    """Returns the outcome of a request for layers that measure load, by its status; 0 means that it got no response."""
    if status in OVERLOADED:
        return DROPPED
    return IGNORED if status >= 500 or not status else SERVED


class FieldWriter:
    """Writes RateLimit fields for admitted requests: about the caller's own quotas, and about requests in progress."""

    # Each response has these fields, and a part of them changes only with the limit. That part is cached as long as the
    # limit is the same object; only the remaining quota is written anew. For a limit with several quotas, or a decision
    # that names another quota, `integrations/web/fields.py` writes the fields.
    #
    # An admission by the fast path (`shedding/fast_path.py`) always involves the same two layers, so all of their
    # policies are cached as bytes, and both items are written at once.

    def __init__(self) -> None:
        self._known: dict[Limiter, tuple[Limit, str, str]] = {}
        """For each limiter of the stack: its limit, its item in RateLimit-Policy, and the beginning of its item in
        RateLimit."""
        self._prepared: _Prepared | None = None

    def encoded(self, admission: Admission) -> Headers:
        """Returns the response fields of an admission as pairs of bytes for ASGI; empty if no layer shows a quota."""
        if type(admission) is Passage:
            prepared = self._prepared
            if (
                prepared is None
                or prepared.fast_path is not admission.fast_path
                or prepared.slots.limit != prepared.most
                or prepared.table.limit is not prepared.limit
            ):
                prepared = self._prepared = _Prepared(admission.fast_path)
            decision = admission.charged
            free = prepared.most - admission.in_flight
            if decision is None:
                if prepared.between:
                    return [prepared.policy, (LEFT_BYTES, f"{prepared.between}{max(0, free)}".encode())]
                return []
            remaining, after_s = decision.remaining, decision.reset_after
            if decision.binding == prepared.binding and 0 <= remaining <= INTEGER_MAX and 0.0 < after_s < FAR_S:
                item = f"{prepared.opening}{remaining};t={ceil(after_s)}"
                if prepared.between:
                    item = f"{item}{prepared.between}{max(0, free)}"
                return [prepared.policy, (LEFT_BYTES, item.encode())]
        values = self.values(admission)
        return [] if values is None else [(POLICY_BYTES, values[0].encode()), (LEFT_BYTES, values[1].encode())]

    def values(self, admission: Admission) -> tuple[str, str] | None:
        """Returns the values of the fields RateLimit-Policy and RateLimit; None if no layer shows a quota."""
        policies = left = ""
        for ticket in admission.tickets:
            # The same as below without an intermediate object, because each request comes here.
            if type(ticket) is SlotInUse:
                holder = ticket.holder
                limit = holder.limit
                policy, opening = _concurrent(holder.name, limit)
                item = f"{opening}{limit - ticket.in_flight if limit > ticket.in_flight else 0}"
            elif type(ticket) is Charge:
                if not ticket.shown:
                    continue
                policy, item = self._of_charge(ticket)
            else:
                running: InProgress | None = getattr(ticket, "in_progress", None)
                if running is None:
                    continue
                policy, opening = _concurrent(running.name, running.limit)
                item = f"{opening}{running.left}"
            policies = f"{policies}, {policy}" if policies else policy
            left = f"{left}, {item}" if left else item
        return (policies, left) if policies else None

    def fields(self, admission: Admission) -> Fields:
        """Returns the response fields of an admission, as names and values; empty if no layer shows a quota."""
        values = self.values(admission)
        return [] if values is None else [(POLICY, values[0]), (SERVICE, values[1])]

    def _of_charge(self, charge: Charge) -> tuple[str, str]:
        limiter, decision = charge.limiter, charge.decision
        known = self._known.get(limiter)
        if known is None or known[0] is not limiter.control.table.limit:
            quotas = limiter.quotas
            if len(quotas) > 1 or decision.binding not in quotas:
                (_, policy), (_, item) = fields_of([QuotaDecision(decision, quotas)], (IETF_11,), wall_s=0.0)
                return policy, item
            name, limit = next(iter(quotas.items()))
            known = self._known[limiter] = (limit, policy_11(name, limit), f"{sf_string(name)};r=")
        remaining, after_s = decision.remaining, decision.reset_after
        if not 0 <= remaining <= INTEGER_MAX:
            remaining = min(max(0, remaining), INTEGER_MAX)
        if not after_s < FAR_S:
            return known[1], f"{known[2]}{remaining}"
        return known[1], f"{known[2]}{remaining};t={max(0, ceil(after_s))}"


class _Nothing:
    """Takes the place of the counts, or of the slots, in `_Prepared`, if the stack has no layer that has them."""

    limit = 0


_NOTHING: Final = _Nothing()


class Counting(Protocol):
    """The interface of a limiter's table of counts: the counts of one quota, by key."""

    limit: Limit
    """The quota. If the limit changes, another object replaces this one."""


class _Prepared:
    """The parts of the response fields that stay the same until the quota or the number of slots changes."""

    __slots__ = ("between", "binding", "fast_path", "limit", "most", "opening", "policy", "slots", "table")

    def __init__(self, fast_path: FastPath) -> None:
        rate, concurrency = fast_path.rate, fast_path.concurrency
        self.fast_path = fast_path
        self.table: Counting | _Nothing = _NOTHING if rate is None else rate.limiter.control.table
        self.limit = self.table.limit
        self.slots: RunningCount | _Nothing = _NOTHING if concurrency is None else concurrency.slots
        self.most = self.slots.limit
        self.binding = self.opening = self.between = ""
        policies = []
        if rate is not None and isinstance(self.limit, Limit) and len(rate.limiter.control.tables) == 1:
            self.binding = rate.limiter.control.table.name
            self.opening = f"{sf_string(self.binding)};r="
            policies.append(policy_11(self.binding, self.limit))
        if concurrency is not None:
            policy, opening = _concurrent(concurrency.name, self.most)
            self.between = f", {opening}" if policies else opening
            policies.append(policy)
        self.policy = (POLICY_BYTES, ", ".join(policies).encode())


def response_to(refusal: ShedRefusal) -> tuple[int, Fields, bytes]:
    """Returns the response to a refused request: status, fields, and problem details as the body."""
    fields, body, _ = _said_of(refusal)
    return refusal.status, [*fields, *_quota_fields(refusal)], body


def encoded_response_to(refusal: ShedRefusal) -> tuple[int, Headers, bytes]:
    """Returns the response to a refused request for ASGI: status, fields as pairs of bytes, and body."""
    _, body, headers = _said_of(refusal)
    return refusal.status, [*headers, *encoded_fields(_quota_fields(refusal))], body


def _said_of(refusal: ShedRefusal) -> tuple[Fields, bytes, Headers]:
    wait = refusal.retry_after
    retry_after = max(1, ceil(wait)) if wait is not None and wait < FAR_S else None
    in_progress = refusal.concurrent_max if refusal.decision is None or not refusal.quotas else None
    return _said(refusal.status, refusal.layer, refusal.reason, retry_after, in_progress)


@lru_cache(maxsize=SAID_MAX)
def _said(
    status: int, layer: str, reason: str, retry_after: int | None, in_progress: int | None
) -> tuple[Fields, bytes, Headers]:
    """Returns a refusal's fields, its body, and the same fields as pairs of bytes, all without RateLimit of a quota.

    The result is cached, because an overloaded service sends thousands of equal refusals a second. It must not be
    changed.
    """
    detail = reason if retry_after is None else f"{reason} Try again in {retry_after} s."
    body = encoded(problem_of(status, violated=[layer], retry_after=retry_after, detail=detail))
    fields: Fields = [("Content-Type", PROBLEM_JSON), ("Content-Length", str(len(body)))]
    if retry_after is not None:
        fields.append((RETRY_AFTER, str(retry_after)))
    if in_progress is not None:
        fields += [(POLICY, _concurrent(layer, in_progress)[0]), (SERVICE, f"{sf_string(layer)};r=0")]
    return fields, body, encoded_fields(fields)


def _quota_fields(refusal: ShedRefusal) -> Fields:
    """Returns the RateLimit fields of the quota that has refused; empty if the refusing layer has no quota."""
    decision, quotas = refusal.decision, refusal.quotas
    if decision is None or not quotas:
        return []
    return fields_of([QuotaDecision(decision, quotas)], (IETF_11,), wall_s=0.0, refused=True)


@lru_cache(maxsize=1024)
def _concurrent(name: str, limit: int) -> tuple[str, str]:
    """Returns the RateLimit-Policy item for `limit` concurrent requests, and the RateLimit item up to its number."""
    return f'{sf_string(name)};q={limit};qu="concurrent-requests"', f"{sf_string(name)};r="


class Deciding:
    """Has a stack decide about requests; if a function of the application fails, the request goes on undecided."""

    def __init__(self, stack: Stack, key_func: KeyFunc | None) -> None:
        if key_func is not None and not callable(key_func):
            raise InvalidSetting("key_func", key_func, "must be a function from a request to a string")
        rates = [layer.name for layer in stack.layers if getattr(layer, "counts_by_key", False)]
        if rates and key_func is None:
            problem = f"is missing: the layer {rates[0]!r} counts by key; pass a function from a request to its key"
            raise InvalidSetting("key_func", None, problem)
        if key_func is not None and not any(getattr(layer, "counts_by_key", True) for layer in stack.layers):
            raise InvalidSetting(
                "key_func", key_func, "has no effect: no layer of the stack counts by key; leave it out"
            )
        self.stack = stack
        self.failures = 0
        """The number of requests that have gone on because a function failed, or returned an unusable key."""
        self._key_func = key_func
        self._throttle = LogThrottle(MESSAGES_MAX, within_ns=60 * SECOND_NS)

    def admission(self, request: Any, method: str, field: str | None) -> Admission | None:
        """Returns the stack's admission of a request; None if a function failed, and the request must go on.

        `field` is the value of the header field that may name the request's class.
        """
        try:
            rank = self.stack.classes.rank_of(request, method, field)
            if self._key_func is None:
                return self.stack.enter_ranked("", rank)
            return self.stack.enter_ranked(self._key_func(request), rank)
        except Exception as error:  # noqa: BLE001  # a failure in here must not break a request
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        now_ns = self.stack.now_ns()
        if self._throttle.allows(now_ns):
            self._throttle.note(now_ns)
            logger.error(
                "reconverge: a request went on without load shedding; mend the function that names its class or key",
                exc_info=error,
            )


def checked_stack(stack: object) -> Stack:
    """Returns `stack`; if it is None, a new one of adaptive concurrency and the worker shedder.

    Raises InvalidSetting for any other object.
    """
    if stack is None:
        return Stack()
    if not isinstance(stack, Stack):
        raise InvalidSetting(
            "stack", stack, "is not a Stack; make one from its layers: Stack(AdaptiveConcurrency(), ...)"
        )
    return stack
