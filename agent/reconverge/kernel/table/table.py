"""The decisions about one limit on this node. No I/O, and no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import ceil, inf
from typing import Final, NamedTuple, TypeVarTuple

from reconverge.errors import InvalidCost
from reconverge.kernel.cell import Cell, Mark
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import COMPILED, Decision, Lock, Reentered, Reentry
from reconverge.kernel.keys import plain_key
from reconverge.kernel.table.cells import Node
from reconverge.kernel.table.fast_path import charge_at_once, goes_straight_on
from reconverge.kernel.table.native import serve
from reconverge.kernel.table.slow_path import SlowPath
from reconverge.limit.checks import cost_of
from reconverge.limit.limit import QUOTA_MAX, Limit
from reconverge.policies import Policy

COST_MAX = QUOTA_MAX
"""The largest cost that can be charged afterwards or given back; a request never costs more than its quota."""
REENTRY_RETRY_S: Final = 0.001
"""What was refused in the middle of another decision may be asked again after so long: decisions take microseconds."""
STRAIGHT_ON: Final = not COMPILED and goes_straight_on()
"""Whether Python may do without the lock what C does without it."""
_ONE = 1

Ts = TypeVarTuple("Ts")


class Verdict(NamedTuple):
    """One decision, and the place in time that it belongs to by this node's reckoning."""

    allowed: bool
    epoch: int
    hub_ns: int
    known: bool
    """The hub had answered for this key before."""
    slice_number: int = 0
    """Of the hub's window, for `sliding-slices`."""


class Charged(NamedTuple):
    """What was charged to one quota for something that will be settled."""

    table: Table
    mark: Mark
    unit: int
    """What was charged for each unit of the estimate: the cost of its kind."""


class Table(SlowPath):
    """What callers ask of one limit."""

    def __init__(self, kernel: Node, name: str, limit: Limit, policy: Policy, now_ns: Callable[[], int]) -> None:
        super().__init__(kernel, name, limit, policy, now_ns)
        self.choose_path()

    def leave(self, pool: Limit) -> None:
        """See `Cells.leave`."""
        super().leave(pool)
        self.choose_path()

    def share_lock(self, lock: Lock) -> None:
        """Hold that lock from now on, as other tables do."""
        self.lock = lock
        self.choose_path()

    def start_over(self) -> None:
        """See `Cells.start_over`."""
        super().start_over()
        self.choose_path()

    def choose_path(self) -> None:
        """Have the fastest code that knows this limit decide about it; to be called again when the limit has changed.

        This is the one place where `allow` and `hit` of an instance are replaced: by those of the compiled kernel, or
        by those of Python without the lock.
        """
        self.evicted.fade_ns = max(self.evicted.fade_ns, 2 * self.meter.idle_ns)
        if COMPILED:
            serve(self)
        elif STRAIGHT_ON and self.unit == 1:
            charge_at_once(self)

    # ------------------------------------------------------------ what callers ask

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether `cost` may be used by `key`; if so it is charged. Never waits."""
        if cost is not _ONE or kind is not None:
            cost = self.cost_of(cost, kind)
        return self.allow_at(key, cost, self.now_ns())

    def allow_at(self, key: str, cost: int, now_ns: int) -> bool:
        """The same at a given moment, with the lock."""
        if type(key) is not str:  # what a key of another type makes of itself runs before the lock is taken
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._allow, key, cost, now_ns)
        except Reentry:
            return self.refuse_reentry().allowed

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """As `allow`, with the grounds. Never waits."""
        return self.hit_in_epoch(key, cost if kind is None else self.cost_of(cost, kind))[0]

    def hit_in_epoch(self, key: str, cost: int) -> tuple[Decision, int]:
        """As `hit`, with the number of the window that was charged."""
        self.check_cost(cost)
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._hit, key, cost, self.now_ns())
        except Reentry:
            return self.refuse_reentry(), -1

    def hit_at(self, key: str, cost: int, now_ns: int) -> Decision:
        """As `hit` at a given moment, for a cost that has been checked."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._hit, key, cost, now_ns)[0]
        except Reentry:
            return self.refuse_reentry()

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """As `hit`, for a charge that will be corrected later."""
        unit = self.cost_of(1, kind)
        cost = self.cost_of(cost, kind)
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._hit_and_mark, key, cost, unit, self.now_ns())
        except Reentry:
            return self.refuse_reentry(), ()

    def _hit_and_mark(self, key: str, cost: int, unit: int, now_ns: int) -> tuple[Decision, tuple[Charged, ...]]:
        cell, allowed = self._decide(key, cost, now_ns)
        mark = self.mark(cell)
        return self.explain(cell, cost, allowed, now_ns), (Charged(self, mark, unit),)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """What `hit` would answer, without charging anything."""
        cost = self.cost_of(cost, kind)
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            return self.lock.run(self._test, key, cost, self.now_ns())
        except Reentry:
            return self.refuse_reentry()

    def _test(self, key: str, cost: int, now_ns: int) -> Decision:
        cell = self._look_up(key, cost, now_ns)
        return self.explain(cell, cost, self.foresee(cell, cost, now_ns), now_ns, charged=False)

    def usage(self, key: str) -> Usage:
        """How much of the limit `key` has used, and how far this node may go."""
        return self.usages(key)[self.name]

    def usages(self, key: str) -> dict[str, Usage]:
        """The same, by the name of the quota."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        now_ns = self.now_ns()
        try:
            return {self.name: self.lock.run(self.usage_at, key, now_ns)}
        except Reentry:
            return {self.name: self.usage_as_it_stands(key)}

    def reset(self, key: str) -> None:
        """Forget what `key` has used, here at once and on the other nodes with their next exchange."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(self.reset_at, key, self.now_ns())
        except Reentry:
            self.put_off(self._reset_now, key)

    def _reset_now(self, key: str) -> None:
        self.reset(key)
        self.tell(key)  # it was told too early

    def warm(self, keys: Iterable[str]) -> None:
        """Have the hub asked about `keys`, as far as it never was, and for a line on each."""
        now_ns = self.now_ns()
        for each in keys:
            key = each if type(each) is str else plain_key(each, self.kernel.key_bytes_max)
            try:
                self.lock.run(self._warm, key, now_ns)
            except Reentry:
                self.put_off(self.warm, (key,))

    def _warm(self, key: str, now_ns: int) -> None:
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        if not cell.heard:
            # A node that expects nothing is granted nothing: expect a request in every window, and forget it as such.
            cell.asked = max(cell.asked, self.unit)
            cell.demand = max(cell.demand, self.unit / self.window_s)
        self.take_interest(cell, now_ns)

    def correct(self, key: str, epoch: int, difference: int, *, mark: Mark | None = None) -> None:
        """Charge `difference` more for a request admitted in `epoch`, or give some back when it is negative.

        Nothing is asked and nothing refused: the request has happened. What is given back never takes the meter
        below zero, and is lost if what it was charged to has passed. Without a `mark` only a window's end counts as
        that, and not that a bucket has drained or the key was reset.
        """
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(self.correct_at, key, epoch, difference, mark, self.now_ns())
        except Reentry:
            self.put_off(partial(Table.correct, self, key, epoch, difference, mark=mark))

    def refund(self, key: str, cost: int, kind: str | None = None) -> None:
        """Give back what was charged on this node, whenever that was, as far as it still counts."""
        cost = self.check_correction(self.cost_of(cost, kind))
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        try:
            self.lock.run(self.refund_at, key, cost * self.unit, self.now_ns())
        except Reentry:
            self.put_off(self._refund_now, key, cost)

    def _refund_now(self, key: str, cost: int) -> None:
        self.refund(key, cost)
        self.tell(key)

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict:
        """As `allow` at a given moment, with what an observer needs to check the answer."""
        self.check_cost(cost)
        return self.lock.run(self._verdict, key, cost, now_ns)

    def _verdict(self, key: str, cost: int, now_ns: int) -> Verdict:
        cell, allowed = self._charged(key, cost, now_ns), True
        if cell is None:
            cell, allowed = self._decide(key, cost, now_ns)
        return self.verdict(cell, allowed, now_ns)

    def observe(self, key: str, now_ns: int) -> Verdict:
        """The place in time of a refusal that no request has asked for; changes nothing."""
        return self.lock.run(self._observe, key, now_ns)

    def _observe(self, key: str, now_ns: int) -> Verdict:
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        return self.verdict(cell, False, now_ns)

    @staticmethod
    def verdict(cell: Cell, allowed: bool, now_ns: int) -> Verdict:
        """The decision that was made about a cell, for an observer."""
        slice_number = 0 if cell.history is None else cell.history.date + cell.history.shift
        return Verdict(allowed, cell.epoch, now_ns + cell.shard.offset_ns, cell.heard or cell.shard.alone, slice_number)

    def cost_of(self, cost: object, kind: str | None) -> int:
        """The cost of so many requests of `kind`. Raises InvalidCost or UnknownKind."""
        checked = self.check_cost(cost)
        return checked if kind is None else checked * cost_of(self.name, self.costs, kind)

    @staticmethod
    def check_cost(cost: object) -> int:
        """Raise InvalidCost unless `cost` is a whole number of zero or more."""
        if type(cost) is not int:
            raise InvalidCost(cost, f"is of type {type(cost).__name__}")
        if cost < 0:
            raise InvalidCost(cost, "is negative")
        return cost

    @classmethod
    def check_correction(cls, cost: object) -> int:
        """Raise InvalidCost unless so much can be charged afterwards or given back."""
        checked = cls.check_cost(cost)
        if checked > COST_MAX:
            raise InvalidCost(cost, f"is more than {COST_MAX}, the most that is charged or given back at once")
        return checked

    def tell(self, key: str) -> None:
        """Tell the waiters for `key` that they have better prospects now; to be called without the lock."""
        if type(key) is not str:
            key = plain_key(key, self.kernel.key_bytes_max)
        for listener in list(self.listeners.values()):
            listener.tell(key)

    # ------------------------------------------------- in the middle of another decision; see `kernel/lock.py`

    def refuse_reentry(self) -> Decision:
        """The answer to what asks for admission on a thread that is in the middle of a decision."""
        self.note_reentry()
        return Reentered(False, self.nominal // self.unit, 0, REENTRY_RETRY_S, 0.0, inf, self.name)

    def note_reentry(self) -> None:
        """Count it, and have it said once."""
        self.reentered += 1
        self.kernel.note_reentry(self.name)

    def put_off(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Have something that must not be lost done when no lock is held any more."""
        self.note_reentry()
        self.kernel.put_off(partial(work, *args))

    def usage_as_it_stands(self, key: str) -> Usage:
        """What can be read of a cell that another call is at work on; changes nothing."""
        self.note_reentry()
        cell = self.cells.get(key)
        limit = self.nominal // self.unit
        if cell is None:
            return Usage(0, 0, limit, 0, inf)
        used = cell.used + (-(-cell.level // self.window_ns) if self.meter.bucket else cell.previous)
        own = max(0, -(-used // self.unit))
        return Usage(own, max(own, ceil(cell.fleet_used / self.unit)), limit, cell.line // self.unit, inf)
