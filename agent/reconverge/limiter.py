"""One limit, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconverge.reservation import Reservation

if TYPE_CHECKING:
    from reconverge.decision import Decision, Usage
    from reconverge.kernel import Table
    from reconverge.limit import Limit
    from reconverge.policies import Policy


class Limiter:
    """Decides about one limit from this process's memory. Nothing here waits, and nothing fails for a healthy call.

    All methods raise InvalidKey for a key that is not a usable string, InvalidCost for a cost that is not a whole
    number of zero or more, and CostExceedsQuota for one that could never be admitted. A cost of 0 asks whether the
    key is free to go on, and charges nothing.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # The instance's own attribute hides the method below and saves one call of every decision, about 60 ns.
        self.allow = table.allow  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The limit's name."""
        return self._table.name

    @property
    def table(self) -> Table:
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

    def reserve(self, key: str, estimate: int) -> Reservation:
        """Charge an estimate now and the truth later, with `Reservation.settle`."""
        decision, mark = self._table.hit_and_mark(key, estimate)
        return Reservation(self._table, key, estimate, decision, mark)

    def warm(self, keys: Iterable[str]) -> None:
        """Ask the hub about `keys` ahead of their first request, so that none of them is new to this node then."""
        self._table.warm(keys)

    def __repr__(self) -> str:
        return f"Limiter({self.name!r}, {self.limit}, policy={self.policy.name})"
