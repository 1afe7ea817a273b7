"""Decisions of a limit with bans: it refuses banned keys, and counts its refusals of all other keys."""

# Theory of operation.
#
# A limit without bans must not pay for them: `On` answers for it, whose `allow` is the compiled store's own method. For
# a limit with bans, `Enforcement` uses `OnWithBans` in place of `On`. The modes off and shadow are the same as for all
# limits: in shadow, a decision about a banned key has `would_refuse`, and no refusal leads to a ban; while the limit is
# off, no ban is checked.
#
# `bans.py` stores which keys are banned.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconverge.limiter.enforcement.closed import Marked, checked_pairs
from reconverge.limiter.enforcement.modes import On
from reconverge.limiter.waiting.waiters import waiting_at

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Decider, Many
    from reconverge.limiter.enforcement.bans import Bans


class OnWithBans(On):
    """Answers for a limit that is on and bans keys that it refuses too often.

    Wrong arguments raise the same errors for a banned key as for any other.
    """

    def __init__(self, table: Decider, bans: Bans) -> None:
        super().__init__(table)
        self._bans = bans
        self.allow = self._allow_quickly()
        self.hit = self._hit_quickly()
        self.allow_many = self._allow_many
        self.settles = self._settles

    def _allow_quickly(self) -> Callable[..., bool]:
        free, decides = self._bans.free, self._table.allow

        def allow(key: str, cost: int = 1, kind: str | None = None) -> bool:
            if not (type(key) is str and key in free) and self._banned(key, cost, kind) is not None:
                return False
            if decides(key, cost, kind):
                return True
            if cost != 0 and self._is_certain_refusal(key, cost, kind):
                self._note(key)
            return False

        return allow

    def _hit_quickly(self) -> Callable[..., Decision]:
        free, decides = self._bans.free, self._table.hit

        def hit(key: str, cost: int = 1, kind: str | None = None) -> Decision:
            if not (type(key) is str and key in free):
                banned = self._banned(key, cost, kind)
                if banned is not None:
                    return banned
            decision = decides(key, cost, kind)
            return decision if decision.allowed else self._noted(key, cost, decision)

        return hit

    def _allow_many(self, keys: Sequence[str], costs: Many | None) -> list[bool]:
        pairs = checked_pairs(keys, costs)
        for key, cost in pairs:
            self._check(key, cost, None)
        return [self.allow(key, cost) for key, cost in pairs]

    def _settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        return self._bans.is_banned(key) or self._table.settles(key, cost, kind)

    def test(self, key: str, cost: int, kind: str | None) -> Decision:
        banned = self._banned(key, cost, kind, counts=False)
        return self._table.test(key, cost, kind) if banned is None else banned

    def hit_and_mark(self, key: str, estimate: int, kind: str | None) -> Marked:
        banned = self._banned(key, estimate, kind)
        if banned is not None:
            return banned, ()
        decision, charges = super().hit_and_mark(key, estimate, kind)
        return self._noted(key, estimate, decision), charges

    async def wait(
        self, key: str, cost: int, kind: str | None, timeout: float | None, max_queue: int | None, within_ns: int
    ) -> Decision:
        """Waits as `RateLimiter.wait`. Refuses a request for a banned key at once, even if it was already waiting."""
        banned = self._banned(key, cost, kind)
        if banned is not None:
            return banned
        waiting_at(self._table).barred = self._bans.decision
        return self._noted(key, cost, await super().wait(key, cost, kind, timeout, max_queue, within_ns))

    def wait_blocking(
        self, key: str, cost: int, kind: str | None, timeout: float | None, max_queue: int | None, within_ns: int
    ) -> Decision:
        banned = self._banned(key, cost, kind)
        if banned is not None:
            return banned
        waiting_at(self._table).barred = self._bans.decision
        return self._noted(key, cost, super().wait_blocking(key, cost, kind, timeout, max_queue, within_ns))

    async def ask(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Marked:
        """Asks as `RateLimiter.ask`. A request for a banned key is refused without a question to the hub."""
        banned = self._banned(key, cost, kind)
        if banned is not None:
            return banned, ()
        decision, charges = await super().ask(key, cost, kind, within_ns, marks=marks)
        return self._noted(key, cost, decision), charges

    def ask_blocking(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Marked:
        banned = self._banned(key, cost, kind)
        if banned is not None:
            return banned, ()
        decision, charges = super().ask_blocking(key, cost, kind, within_ns, marks=marks)
        return self._noted(key, cost, decision), charges

    def _banned(self, key: str, cost: int, kind: str | None, *, counts: bool = True) -> Decision | None:
        decision = self._bans.decision(key, counts=counts)
        if decision is not None:
            self._check(key, cost, kind)
        return decision

    def _check(self, key: str, cost: int, kind: str | None) -> None:
        """Raises InvalidKey, InvalidCost, UnknownKind or CostExceedsQuota, as a decision would."""
        self._bans.table.check_key(key)
        self._table.able(self._table.costs_of(cost, kind))

    def _is_certain_refusal(self, key: str, cost: int, kind: str | None) -> bool:
        """Returns whether no node has room for this request. Only such a refusal counts towards a ban."""
        answer = self._table.test(key, cost, kind)
        return not answer.allowed and answer.certain

    def _noted(self, key: str, cost: int, decision: Decision) -> Decision:
        """Counts a certain refusal towards a ban, unless the key is banned or the cost is 0. Returns `decision`."""
        if cost != 0 and not decision.allowed and decision.certain and decision.binding != self._bans.table.name:
            self._note(key)
        return decision

    def _note(self, key: str) -> None:
        """Counts a refusal towards a ban. If a ban begins, the requests that wait for the key are refused."""
        if self._bans.note(key):
            for table in self._table.tables:
                table.tell(key)
