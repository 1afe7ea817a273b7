"""One limit, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconverge.reservation import Reservation
from reconverge.waiting import waiting_at

if TYPE_CHECKING:
    from reconverge.decision import Decision, Usage
    from reconverge.kernel import WaitTable
    from reconverge.limit import Limit
    from reconverge.policies import Policy


class Limiter:
    """Decides about one limit from this process's memory. Nothing fails for a healthy call.

    Only `wait` and `wait_blocking` wait, and not for any input or output. All methods raise InvalidKey for a key that
    is not a usable string, InvalidCost for a cost that is not a whole number of zero or more, and CostExceedsQuota for
    one that could never be admitted. A cost of 0 asks whether the key is free to go on, and charges nothing.
    """

    def __init__(self, table: WaitTable) -> None:
        self._table = table
        # The instance's own attribute hides the method below and saves one call of every decision, about 60 ns.
        self.allow = table.allow  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The limit's name."""
        return self._table.name

    @property
    def table(self) -> WaitTable:
        """The limit's part of the kernel, for whoever checks decisions against the truth."""
        return self._table

    @property
    def limit(self) -> Limit:
        """What was declared."""
        return self._table.limit

    @property
    def policy(self) -> Policy:
        """How far past its line this node may go."""
        return self._table.policy

    def allow(self, key: str, cost: int = 1) -> bool:
        """Whether `key` may use `cost` now; if so it is charged."""
        return self._table.allow(key, cost)

    def hit(self, key: str, cost: int = 1) -> Decision:
        """As `allow`, with what a response header wants to know."""
        return self._table.hit(key, cost)

    def test(self, key: str, cost: int = 1) -> Decision:
        """What `hit` would answer now; nothing is charged, and `remaining` is what is left before this cost."""
        return self._table.test(key, cost)

    def usage(self, key: str) -> Usage:
        """How much `key` has used, on this node and on all."""
        return self._table.usage(key)

    def reset(self, key: str) -> None:
        """Forget what `key` has used: here at once, on all other nodes with their next exchange."""
        self._table.reset(key)
        self._table.tell(key)

    def reserve(self, key: str, estimate: int) -> Reservation:
        """Charge an estimate now and the truth later, with `Reservation.settle`."""
        decision, mark = self._table.hit_and_mark(key, estimate)
        return Reservation(self._table, key, estimate, decision, mark)

    async def wait(
        self, key: str, cost: int = 1, *, timeout: float | None = None, max_queue: int | None = None
    ) -> Decision:
        """Wait until `key` may use `cost`, which is then charged; first come, first served on this node.

        The answer is a refusal, with the time after which another try may be worth it, if that cannot be within
        `timeout` seconds (0: do not wait at all) or if `max_queue` wait already. What is cancelled is not charged. A
        `leaky-bucket` lets out what waits at a steady rate; the other algorithms as soon as they would admit it.
        `allow` and `hit` do not queue, and may overtake.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `hit` does.
            InvalidSetting: `timeout` or `max_queue` is negative, or no number.
        """
        return await waiting_at(self._table).wait(key, cost, timeout, max_queue)

    def wait_blocking(
        self, key: str, cost: int = 1, *, timeout: float | None = None, max_queue: int | None = None
    ) -> Decision:
        """As `wait`, for a thread, in the same queue.

        Raises:
            RuntimeError: an event loop runs on this thread, and would be held up.
        """
        return waiting_at(self._table).wait_blocking(key, cost, timeout, max_queue)

    def warm(self, keys: Iterable[str]) -> None:
        """Ask the hub about `keys` ahead of their first request, so that none of them is new to this node then."""
        self._table.warm(keys)

    def __repr__(self) -> str:
        return f"Limiter({self.name!r}, {self.limit}, policy={self.policy.name})"
