"""The limiter for limits on a rate, such as `100/minute`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconverge.clock import Seconds, in_seconds
from reconverge.limiter.asking import WITHIN_S, checked_within_ns
from reconverge.limiter.awaiting import undecided
from reconverge.limiter.enforcement.switches import ON
from reconverge.limiter.faces.limiter import Limiter, check_keys
from reconverge.limiter.reservation import KEEP, OnAbandon, Reservation, check_on_abandon
from reconverge.limiter.waiting.waiters import checked_room, checked_timeout_ns
from reconverge.runtime.log_throttle import LoggedOnce

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Many
    from reconverge.limit.limit import Limit
    from reconverge.limiter.control import LimitControl

logger = logging.getLogger("reconverge")

TESTS_ALONE: Final = 1000
"""After so many calls of `test`, and none that charges, a warning is logged: the program may take `test` for a request.
"""
ELSEWHERE: Final = {
    "slot": "limits a rate, and has no slots; declare a limit on work in progress by agent.concurrency",
    **dict.fromkeys(
        ("handle_request", "handle_async_request"),
        "is no transport; write LimitedTransport(limiter), or for an AsyncClient AsyncLimitedTransport(limiter), of "
        "reconverge.integrations.httpx",
    ),
    "send": "is no adapter; write session.mount(prefix, LimitedAdapter(limiter)) of reconverge.integrations.requests",
    "acquire": "has another name for it; write await limiter.wait(key), or limiter.wait_blocking(key) on a thread",
    **dict.fromkeys(
        ("check", "consume", "exceeded", "is_allowed", "try_acquire"),
        "has another name for it; write limiter.allow(key), which charges, and returns whether the key may go on",
    ),
    **dict.fromkeys(
        ("get_remaining", "get_window_stats", "peek", "remaining"),
        "has another name for it; write limiter.test(key).remaining, which charges nothing",
    ),
}
"""Methods of other limiters, also of other libraries, each with the end of the error about it."""


class RateLimiter(Limiter):
    """A limit on how often something begins, such as `100/minute`. No call fails for valid arguments.

    `wait` and `wait_blocking` wait until there is room; methods that ask the hub wait for its answer if in doubt; all
    others decide at once. All methods raise InvalidKey for a key that is not a usable string, InvalidCost for a cost
    that is not a whole number of zero or more, and CostExceedsQuota for a cost that could never be admitted. A cost of
    0 charges nothing, and asks whether anything is left for the key. With a `kind`, `cost` is a number of requests of
    that kind; `costs` of the limit has the cost of one. A kind without a cost raises UnknownKind.

    A limit may have several quotas. Then a request is charged to all of them in one moment, or to none if one refuses.
    """

    _elsewhere = ELSEWHERE

    def __init__(self, control: LimitControl) -> None:
        super().__init__(control)
        self._enforcement = control.enforcement
        control.on_turn = self._let_answer
        self._let_answer()
        self._logged = LoggedOnce()
        self._tests = 0

    def _let_answer(self) -> None:
        """Replaces `allow` and `hit` by the functions of the mode that is in force."""
        # The instance's own attributes hide the methods below and save one call of every decision, about 60 ns.
        self.allow = self._enforcement.answers.allow  # type: ignore[method-assign]
        self.hit = self._enforcement.answers.hit  # type: ignore[method-assign]

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns True and charges `cost` to `key` if there is room for it now; else returns False, charges nothing."""
        return self._enforcement.answers.allow(key, cost, kind)

    def allow_many(self, keys: Sequence[str], costs: Many | None = None) -> list[bool]:
        """Decides as `allow` for each of `keys`, in that order, at a fraction of the time. Returns a list of answers.

        `costs` has one whole number for each key; a buffer of signed 64-bit numbers, such as `array("q")`, is not
        copied. All keys and costs are checked before anything is charged. Other threads wait during the call, so pass
        at most a few hundred keys.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `allow` does; nothing has been charged then.
            InvalidSetting: there are more costs than keys, or fewer costs.
        """
        check_keys(keys)
        return self._enforcement.answers.allow_many(keys, costs)

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides and charges as `allow`. Returns the decision, with the numbers that response headers need."""
        return self._enforcement.answers.hit(key, cost, kind)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the decision that `hit` would return now, and charges nothing.

        A limiter of which only this method is called limits nothing; that is logged once, as a warning.
        """
        self._tests += 1
        if self._tests == TESTS_ALONE and self.switched == ON and not self.control.has_decided:
            logger.warning(
                "reconverge: limit %r was asked %d times by test(), which charges nothing, and by no other method in"
                " this process, so it limits nothing here; call allow(key) or hit(key) for each request",
                self.name,
                TESTS_ALONE,
            )
        return super().test(key, cost, kind)

    @undecided
    async def ask(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """Decides as `hit`, but asks the hub in doubt, so that neither a refusal nor an admission is a guess.

        A certain decision is returned at once. In doubt (the key is new to this node, or the node's part of the limit
        is used up while other nodes may have some) the request joins the node's next batch to the hub, and is decided
        by the hub's answer. After `within` seconds (at most 10; 0: do not ask) it is decided from memory. Time for
        which the exchange loop of this process stands still does not count, up to a second. If the hub leaves a request
        unanswered, no request waits until the hub answers again. A cancelled request is not charged.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `hit` does.
            InvalidSetting: `within` is not a number of seconds from 0 to 10.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return (await self._enforcement.answers.ask(key, cost, kind, within_ns, marks=False))[0]

    def ask_blocking(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """Decides as `ask`, for threads.

        On a thread that runs an event loop, in a signal handler or in a finalizer it does not wait and decides from
        memory; that is logged once, and counted.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return self._enforcement.answers.ask_blocking(key, cost, kind, within_ns, marks=False)[0]

    @undecided
    async def wait(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
        within: Seconds = WITHIN_S,
    ) -> Decision:
        """Waits until `key` may use `cost`, and charges it; requests on this node go in the order in which they came.

        Returns a refusal, with the time after which a retry may succeed, if there cannot be room within `timeout`
        seconds (0: wait for no other request) or if `max_queue` requests wait already. A request that this node would
        admit by a guess asks the hub first, as `ask` does, for `within` seconds. A cancelled request is not charged. A
        `leaky-bucket` admits waiting requests at a steady rate; the other algorithms admit each as soon as it fits.
        `allow` and `hit` do not queue, and may overtake.

        With several quotas, a request is admitted when all have room, and is charged to all; a refusal is that of the
        quota with the longest wait. With a parent, a request waits for its own share or for the parent's pool,
        whichever has room first; requests for the parent, or for another share of it, have a queue of their own.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `hit` does.
            InvalidSetting: `timeout` or `max_queue` is negative, or no number; `within` is not from 0 to 10.
        """
        timeout_s, within_ns = _checked_times(timeout, max_queue, within)
        return await self._enforcement.answers.wait(key, cost, kind, timeout_s, max_queue, within_ns)

    def wait_blocking(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
        within: Seconds = WITHIN_S,
    ) -> Decision:
        """Waits as `wait`, for threads, in the same queue.

        Raises:
            WrongMoment: an event loop runs on this thread, and would be held up.
        """
        timeout_s, within_ns = _checked_times(timeout, max_queue, within)
        return self._enforcement.answers.wait_blocking(key, cost, kind, timeout_s, max_queue, within_ns)

    def reserve(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = 0.0,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """Charges an estimate now; `Reservation.settle` later replaces it by the true cost, in the same unit.

        The node decides from memory. If `within` is above 0 and the node is in doubt, this thread asks the hub and
        waits as in `ask_blocking`. If the reservation's block ends without a settlement, the charge is kept with
        `on_abandon="keep"`, and given back with "return". Raises InvalidSetting for another value.
        """
        check_on_abandon(on_abandon)
        answers = self._enforcement.answers
        if within == 0:
            decision, charges = answers.hit_and_mark(key, estimate, kind)
        else:
            within_ns = checked_within_ns(in_seconds(within))
            decision, charges = answers.ask_blocking(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    @undecided
    async def reserve_async(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = WITHIN_S,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """Reserves as `reserve`, in an event loop: asks the hub in doubt, as `ask` does, for `within` seconds."""
        check_on_abandon(on_abandon)
        within_ns = checked_within_ns(in_seconds(within))
        decision, charges = await self._enforcement.answers.ask(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    def refund(self, key: str, cost: int = 1, kind: str | None = None) -> None:
        """Gives back `cost` that was charged to `key` on this node, as far as it still counts.

        The use never falls below zero, so that no more than the quota is ever left. With a parent, the refund goes to
        the limit's own share; a borrowed cost goes back to the pool when a reservation is settled. A key that this
        process does not count gets nothing back; the first such refund is logged, unless an earlier one met its key.
        """
        counted = type(key) is not str or self.control.has_counted(key)
        self._table.refund(key, cost, kind)
        self.control.tell(key)
        if self._logged.is_new("refund") and not counted:
            logger.warning(
                "reconverge: limit %r has given nothing back to a key that this process does not count; refund with the"
                " key that allow() or hit() got, in the same process, and before the window of the charge has ended",
                self.name,
            )
        own = self._table.own_tables
        for table, units in zip(own, self._table.costs_of(cost, kind), strict=False):  # a share's has its pool's, too
            if units > table.cost_max > 0 and self._logged.is_new("large refund"):
                logger.warning(
                    "reconverge: limit %r was to give %d back at once, and admits at most %d at once, so no request was"
                    " charged as much; refund the cost of each request, and call reset(key) to forget all use",
                    table.name,
                    units // table.unit,
                    table.cost_max // table.unit,
                )

    def reset(self, key: str) -> bool:
        """Deletes the use of `key`, and ends its ban: here at once, on all other nodes with their next exchange.

        Returns False if this process has not counted the key. The other nodes reset it nonetheless, and a warning is
        logged once, because requests may be counted by a key that is written differently.
        """
        counted = self.control.has_counted(key)
        if not counted and self._logged.is_new("reset"):
            logger.warning(
                "reconverge: limit %r was reset for a key that this process has not counted; requests may be counted"
                " by another key, which has their route in it: write outcome.reset(), or limits.key_of(request)",
                self.name,
            )
        self.control.reset(key)
        return counted

    def change(
        self,
        limit: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | None = None,
        soft: float | str | None = None,
        max_debt: int | None = None,
        costs: Mapping[str, int] | None = None,
    ) -> None:
        """Replaces the limit by another one from the next decision on; all earlier use still counts.

        Quota, burst, `soft`, `max_debt` and `costs` can change, and are given as for `Agent.limit`; a limit string that
        names no algorithm means the limit's own. Window, algorithm and other settings cannot change, nor the quota of a
        limit that has a share or a parent. A larger quota is in force when the last node has changed; a smaller one is
        in force on each node as soon as that node has changed. Requests that wait for a paced limit are admitted at the
        new rate, in their order. For a smooth limit, only requests after the next one follow the new rate, as after
        `setRate` of Guava's RateLimiter.

        A quota that is published for the fleet has precedence, as long as it is in force.

        Raises:
            InvalidLimit: the limit cannot be used, or cannot become this one; nothing has changed then.
            InvalidSetting: a setting contradicts `limit`.
        """
        if algorithm is None and isinstance(limit, str):
            algorithm = self.control.own_algorithm
        self.control.plan_change(limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)()


def _checked_times(timeout: Seconds | None, max_queue: int | None, within: Seconds) -> tuple[float | None, int]:
    """Returns the timeout of a request that waits, in seconds, and the nanoseconds for which it may ask the hub.

    Raises InvalidSetting for an invalid timeout, `max_queue` or `within`, even if the limit is off or in shadow.
    """
    timeout_s, within_ns = in_seconds(timeout), checked_within_ns(in_seconds(within))
    checked_timeout_ns(timeout_s)
    checked_room(max_queue)
    return timeout_s, within_ns
