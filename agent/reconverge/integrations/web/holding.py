"""Takes slots for requests, which hold them until their responses have ended."""

# Theory of operation.
#
# Under a limit such as `20 in flight`, a request takes a slot before the application gets it, and returns the slot when
# the last byte of its response has been sent, or the connection is lost. Every integration detects that moment already
# for costs that are settled by the response: ASGI at the last message of the body, WSGI when the server closes the
# body, a websocket at the end of its connection, and all of them if the application fails or the request is cancelled.
# So a slot is settled like a reservation:
#
#     the response has ended      `__exit__` returns the slot
#     another limit refuses       `settle(0)` returns the slot, and a meter learns that nothing was charged
#     neither happens             garbage collection returns the slot (`limiter/slots.py`)
#
# Nothing else of a slot is settled: a cost that the application computes from the response would have no meaning, so
# rules with `settle` or `deduct_when` are rejected for such limits.

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from reconverge.clock import Seconds
from reconverge.errors import InvalidSetting
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.slots import FIFO, SlotTerms
from reconverge.runtime.interruptions import has_a_loop

if TYPE_CHECKING:
    from collections.abc import Generator

    from reconverge.decision import Decision
    from reconverge.limiter.faces.limiter import Limiter
    from reconverge.limiter.slots import Order, Slot


class Queueing(Protocol):
    """The settings of a rule that concern slots, the units of a limit on requests in progress."""

    @property
    def wait(self) -> Seconds | None:
        """Returns the longest time, in seconds, for which a request waits for a slot; None if requests do not wait."""
        ...

    @property
    def max_queue(self) -> int | None:
        """Returns the most requests that may wait; None for any number."""
        ...

    @property
    def order(self) -> str | None:
        """Returns the order of waiting requests, "fifo" or "lifo"; None for the default."""
        ...


class HeldSlot:
    """A slot that a request holds, or a refusal in place of a slot. It has the methods of a `Reservation`."""

    __slots__ = ("_slot", "_tell", "decision")

    def __init__(self, slot: Slot) -> None:
        decision = slot.decision
        assert decision is not None  # the slot has been decided
        self._slot = slot
        self._tell: Callable[[int], None] | None = None
        self.decision: Decision = decision

    def settle(self, actual: int) -> None:
        """Returns the slot to its limit.

        `actual` is 0 if the request does not go on; then a usage meter counts nothing for the request.
        """
        cost, tell = self._slot.cost, self._tell
        self._slot.release()
        if actual == 0 and cost > 0 and tell is not None:
            tell(-cost)

    def spend(self, cost: int) -> None:
        """Does nothing, because slots are not spent."""

    def on_correction(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._slot.release()


def slot_for(
    limiter: Limiter,
    rule: Queueing,
    key: str,
    cost: int,
    kind: str | None,
    *,
    within_s: float,
    blocking: bool,
    waits: bool = True,
) -> Generator[Any, Any, HeldSlot]:
    """Takes a slot for a request, and first waits for one if the rule allows that.

    The request only waits if `waits` is True, and never on a thread that runs an event loop. With `blocking` it waits
    on this thread; otherwise this generator yields an awaitable of the slot to its caller.

    Raises:
        CostExceedsQuota: the cost is more slots than the limit has.
    """
    assert isinstance(limiter, SlotLimiter)
    wait_s = None if not waits or (blocking and has_a_loop()) else rule.wait
    if wait_s is None:
        slot = limiter.slot(key, cost, kind=kind, within=within_s)
    else:
        order = cast("Order", rule.order or FIFO)
        slot = limiter.slot(
            key, cost, kind=kind, within=within_s, timeout=wait_s, max_queue=rule.max_queue, order=order
        )
    if blocking:
        slot.acquire()
    else:
        yield slot.acquire_async()
    return HeldSlot(slot)


def check_queue(rule: Queueing) -> None:
    """Raises InvalidSetting for settings of a queue without `wait`, or an invalid `wait`."""
    if rule.wait is None:
        for name in ("max_queue", "order"):
            if getattr(rule, name) is not None:
                raise InvalidSetting(
                    name, getattr(rule, name), "has an effect only on requests that wait for a slot; add wait="
                )
        return
    if isinstance(rule.wait, bool) or not isinstance(rule.wait, int | float) or not rule.wait >= 0:
        raise InvalidSetting("wait", rule.wait, "must be the number of seconds for which a request waits for a slot")
    SlotTerms(timeout=rule.wait, max_queue=rule.max_queue, order=cast("Order", rule.order or FIFO))


def check_held(limiter: Limiter, rule: Queueing) -> None:
    """Raises InvalidSetting for a setting of `rule` that has no effect on a limit of this kind (slots, or a rate)."""
    if not isinstance(limiter, SlotLimiter):
        if rule.wait is not None:
            problem = f"is for limits with slots, but {limiter.name!r} limits a rate; leave it out"
            raise InvalidSetting("wait", rule.wait, problem)
        return
    for name in ("settle", "deduct_when"):
        if getattr(rule, name) is not None:
            problem = (
                f"has no effect on {limiter.name!r}, whose slots are returned when the response has ended; leave it out"
            )
            raise InvalidSetting(name, getattr(rule, name), problem)
