"""The limiter that applications ask about a limit on a rate, such as `100/minute`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reconverge.clock import Seconds, in_seconds
from reconverge.limiter.asking import WITHIN_S, checked_within_ns
from reconverge.limiter.faces.limiter import Limiter, check_keys
from reconverge.limiter.reservation import KEEP, OnAbandon, Reservation, check_on_abandon

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Many
    from reconverge.limit.limit import Limit
    from reconverge.limiter.control import LimitControl


class RateLimiter(Limiter):
    """A limit on how often something begins, such as `100/minute`. Nothing fails for a healthy call.

    Only `wait` and `wait_blocking` wait, and `ask` and its kin in doubt, and not for any input or output. All methods
    raise InvalidKey for a key that is not a usable string, InvalidCost for a cost that is not a whole number of zero or
    more, and CostExceedsQuota for one that could never be admitted. A cost of 0 asks whether the key is free to go on,
    and charges nothing. With a `kind`, `cost` counts requests of that kind, each of which costs what the limit's
    `costs` say; UnknownKind is raised for one that they do not name.

    A limit may have several quotas. Then all of them must hold and are charged in one moment, or none is.
    """

    def __init__(self, control: LimitControl) -> None:
        super().__init__(control)
        self._enforcement = control.enforcement
        control.on_turn = self._let_answer
        self._let_answer()

    def _let_answer(self) -> None:
        """Lets the mode in force answer."""
        # The instance's own attributes hide the methods below and save one call of every decision, about 60 ns.
        self.allow = self._enforcement.answers.allow  # type: ignore[method-assign]
        self.hit = self._enforcement.answers.hit  # type: ignore[method-assign]

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether `key` may use `cost` now; if so it is charged."""
        return self._enforcement.answers.allow(key, cost, kind)

    def allow_many(self, keys: Sequence[str], costs: Many | None = None) -> list[bool]:
        """As `allow` for each of `keys`, in that order, at a fraction of the price: for gateways.

        `costs` has one whole number for each key; a buffer of signed 64-bit numbers, such as `array("q")`, is read as
        it is. All keys and costs are looked at before anything is charged. A few hundred at a time are best: other
        threads wait meanwhile.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `allow` does; nothing has been charged then.
            InvalidSetting: there are more costs than keys, or fewer.
        """
        check_keys(keys)
        return self._enforcement.answers.allow_many(keys, costs)

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """As `allow`, but returns a Decision, with the numbers for response headers."""
        return self._enforcement.answers.hit(key, cost, kind)

    async def ask(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """As `hit`, but in doubt it asks the hub: no refusal and no admission is a guess where there is time to ask.

        A certain answer comes at once. In doubt (the key is new to this node, or its part of the limit is used up
        while others may have some) the request joins the node's next batch to the hub, and is answered by what the hub
        says; after `within` seconds (at most 10; 0: do not ask) by what memory says. Time in which the exchanges of
        this process stand still is not taken from that, up to a second. No request waits for a hub that
        has left one unanswered, until it answers again. What is cancelled is not charged.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `hit` does.
            InvalidSetting: `within` is no such number of seconds.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return (await self._enforcement.answers.ask(key, cost, kind, within_ns, marks=False))[0]

    def ask_blocking(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """As `ask`, for a thread. On one that runs an event loop, in a signal handler or a finalizer, memory answers.

        That is said once, and counted.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return self._enforcement.answers.ask_blocking(key, cost, kind, within_ns, marks=False)[0]

    async def wait(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
    ) -> Decision:
        """Wait until `key` may use `cost`, which is then charged; first come, first served on this node.

        The answer is a refusal, with the time after which another try may be worth it, if that cannot be within
        `timeout` seconds (0: do not wait at all) or if `max_queue` wait already. What is cancelled is not charged. A
        `leaky-bucket` lets out what waits at a steady rate; the other algorithms as soon as they would admit it.
        `allow` and `hit` do not queue, and may overtake.

        Of several quotas all have room, and are charged, in the moment in which one's turn ends; a refusal is that of
        the quota to wait for longest. With a parent one waits for the share and for what may be borrowed, whichever
        comes first; a waiter for the parent, or for another share of it, stands in a queue of its own.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `hit` does.
            InvalidSetting: `timeout` or `max_queue` is negative, or no number.
        """
        return await self._enforcement.answers.wait(key, cost, kind, in_seconds(timeout), max_queue)

    def wait_blocking(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
    ) -> Decision:
        """As `wait`, for a thread, in the same queue.

        Raises:
            RuntimeError: an event loop runs on this thread, and would be held up.
        """
        return self._enforcement.answers.wait_blocking(key, cost, kind, in_seconds(timeout), max_queue)

    def reserve(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = 0.0,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """Charge an estimate now and the truth later, with `Reservation.settle`, which counts in the same unit.

        Memory decides; with a time to ask the hub `within`, this thread waits in doubt as in `ask_blocking`.
        `on_abandon` says what becomes of the charge when the reservation's block is left without a settlement: it is
        kept, or given back with "return". Raises InvalidSetting for anything else.
        """
        check_on_abandon(on_abandon)
        answers = self._enforcement.answers
        if within == 0:
            decision, charges = answers.hit_and_mark(key, estimate, kind)
        else:
            within_ns = checked_within_ns(in_seconds(within))
            decision, charges = answers.ask_blocking(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    async def reserve_async(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = WITHIN_S,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """As `reserve`, but in doubt it asks the hub, as `ask` does."""
        check_on_abandon(on_abandon)
        within_ns = checked_within_ns(in_seconds(within))
        decision, charges = await self._enforcement.answers.ask(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    def refund(self, key: str, cost: int = 1, kind: str | None = None) -> None:
        """Give back what was charged to `key` on this node, as far as it still counts.

        It never takes what is used below zero: more than the quota is never left. Of a limit with a parent, its own
        share gets it back; what was borrowed comes back when a reservation is settled.
        """
        self._table.refund(key, cost, kind)
        self.control.tell(key)

    def reset(self, key: str) -> None:
        """Forget what `key` has used, and end its ban: here at once, on all other nodes with their next exchange."""
        self._table.reset(key)
        if self.control.bans is not None:
            self.control.bans.lift(key)
        self.control.tell(key)

    def change(
        self,
        limit: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | None = None,
        soft: float | str | None = None,
        max_debt: int | None = None,
        costs: Mapping[str, int] | None = None,
    ) -> None:
        """Replace the limit by another one from the next decision on, in which all use counts on.

        Quota, burst, `soft`, `max_debt` and `costs` can change, and are as said here, the same way as for
        `Agent.limit`; a limit string that names no algorithm means the limit's own. How is counted cannot change, nor
        the quota of a limit that has to do with shares. A larger quota is in force when the last node has changed; of a
        smaller one, every node keeps to its part at once. Of a paced limit, requests that wait are let out at the new
        rate, in their order; of a smooth one, the next request goes when it would have gone without the change, as
        after `setRate` of Guava's RateLimiter.
        Settings that are published for the fleet come before this one, as long as they are in force.

        Raises:
            InvalidLimit: the limit cannot be used, or cannot become this one; nothing has changed then.
            InvalidSetting: a setting contradicts what the limit says.
        """
        if algorithm is None and isinstance(limit, str):
            algorithm = self.control.own_algorithm
        self.control.plan_change(limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)()
