"""Slots of a limit on work in progress: a block of code holds a slot while it runs, and gives it back exactly once."""

# Theory of operation.
#
# The problem. A slot that was taken has to be given back once, however the work ends: with an exception, a cancelled
# task, a generator that is closed in the middle, a signal handler that raises. A slot that is never given back is lost
# to the whole fleet for as long as its process lives; one that is given back twice lets one request too many in.
#
# How it works. A `Slot` is made before anything is charged, and its fields `cell` and `cost` show what it holds. To
# give it back is one step under the lock of the limit: `cost` becomes 0 and the cell's use falls, with no call in
# between (`kernel/table/corrections.py`). So it happens once, however often and from however many threads it is
# requested. A request in the middle of a decision of the same thread, as in a finalizer, is put off until the decision
# is made.
#
#     with / async with      gives the slot back at the end of the block, however the block ends
#     release()              gives it back earlier; a second call changes nothing
#     the last reference     goes: the slot is given back and counted (`dropped`), as no code is left that could do it
#     a copy                 cannot be made: `copy`, `deepcopy` and `pickle` raise TypeError (`runtime/unique.py`)
#     a fork                 leaves the slots to the parent: the child gives nothing back
#
# One gap is left: a signal handler that raises between the charge and the fields of the slot. Python cannot close it,
# and the slot comes back when its process ends.
#
# A slot waits like a request of any limit (`waiters.py`): the first in the queue tries, and charges in the step that
# returns. So work that is cancelled while it waits has taken nothing.
#
# A lease that ends. A node that is cut off starts no work after its lease, when the hub may grant its slots to other
# nodes. Work that still runs can read `Slot.lease_is_over`; with `on_lease_end` a timer of the event loop cancels it,
# or calls a function, at the moment at which the lease ends if no answer prolongs it.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self, TypeAlias

from reconverge.clock import SECOND_NS, Seconds, in_seconds
from reconverge.errors import InvalidSetting, LeaseEnded, WrongMoment
from reconverge.kernel import Reentry, Unlimited, WouldRefuse, lease_is_over, lease_left_ns
from reconverge.limiter.asking import WITHIN_S, checked_within_ns
from reconverge.limiter.awaiting import undecided
from reconverge.limiter.reservation import log_unseen
from reconverge.limiter.waiting.waiters import Waiting, checked_room, checked_timeout_ns, waiting_at
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.truth import no_number
from reconverge.runtime.unique import Unique

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Cell, Costs, Settled, Table
    from reconverge.limiter.asking import AskedCost
    from reconverge.limiter.enforcement.modes import Enforcement

Taken: TypeAlias = "tuple[Cell | None, Decision]"
"""The counts that a slot was charged to (a cell), or None if no slot was taken; and the decision."""
Order: TypeAlias = Literal["fifo", "lifo"]
FIFO: Final = "fifo"
LIFO: Final = "lifo"
CANCEL: Final = "cancel"
LEASE_LOOK_MIN_S: Final = 0.001
"""The shortest time, in seconds, between two checks whether a lease has ended."""
REMEDY: Final = "limiter.slot(key) as slot: if slot: ..."
OnLeaseEnd: TypeAlias = "Literal['cancel'] | Callable[[Slot], object] | None"


@no_number("a slot", "write: if slot, if not slot")
class Slot(Unique):
    """One or several slots of one key, for as long as a block lasts. True while they are held.

        render = agent.concurrency("render", 20)
        with render.slot("ada") as slot:
            if slot: ...

    In an event loop the block is an `async with`. With a timeout it waits until a slot is free:

        async with render.slot("ada", timeout=2.0, max_queue=100) as slot:
            if slot: ...

    While the limit is off or in shadow, each block is admitted: its slot is true, and takes none of the limit's slots.
    """

    __slots__ = (
        "__weakref__", "_cancels", "_costs", "_decision", "_door", "_key", "_seen", "_terms", "_timer", "cell", "cost"
    )  # fmt: skip

    def __init__(self, door: SlotDoor, key: str, terms: SlotTerms) -> None:
        self._door = door
        self._key = key
        self._terms = terms
        self._timer: asyncio.TimerHandle | None = None
        self._cancels: int | None = None
        """How many cancel requests the task had when this slot cancelled it, as its lease had ended; None if this slot
        did not cancel the task."""
        self.cell: Cell | None = None
        """The counts (a cell) in which the slot is charged; None while no slot is held."""
        self.cost = 0
        """The number of the limit's slots that this object holds now."""
        self._decision: Decision | None = None
        self._seen = False
        """Whether the caller has looked whether the slot was granted."""
        self._costs = door.checked(key, terms)

    @property
    def decision(self) -> Decision | None:
        """Returns the decision about the slot; None before the slot was requested."""
        self._seen = True
        cell = self.cell
        if self._decision is None and cell is not None:
            self._decision = self._door.table.explain_held(cell, self._costs[0])
        return self._decision

    @property
    def held(self) -> bool:
        """Whether this object holds slots now."""
        self._seen = True
        return self.cost > 0

    @property
    def lease_is_over(self) -> bool:
        """Whether the lease of the slot has ended, so that another node may use the same slot."""
        return self.cost > 0 and self.cell is not None and lease_is_over(self.cell, self._door.table.now_ns())

    def __bool__(self) -> bool:
        decision = self._decision
        if decision is None and self.cell is None:  # a caller that forgot the block would be refused for ever
            raise TypeError(
                f"this slot of {self._door.name!r} is requested when its `with` block begins, which has not happened; "
                f"write: with {REMEDY}"
            )
        self._seen = True
        return self.cost > 0 or (decision is not None and decision.allowed and _lets_all_in(decision))

    if not TYPE_CHECKING:  # a type checker reports the missing method

        def __await__(self) -> NoReturn:
            """Raises TypeError: a slot is held for a block."""
            raise TypeError(f"a slot of {self._door.name!r} is not awaited; write: async with {REMEDY}")

    def acquire(self) -> Self:
        """Requests the slot on the calling thread. Then `bool(slot)` and `decision` show the result.

        If `SlotLimiter.slot` got a `timeout`, the call waits in the queue of the key until a slot is free. Otherwise it
        waits for no other work to end, but may ask the hub in doubt, as `RateLimiter.ask_blocking` does.

        Raises:
            WrongMoment: the slot is held already; or the call would wait on a thread that runs an event loop.
        """
        self._check_free()
        if self._terms.on_lease_end is not None:
            problem = "acts on a task, so it needs `async with`; on a thread, check `slot.lease_is_over` instead"
            raise InvalidSetting("on_lease_end", self._terms.on_lease_end, problem)
        if not self._door.takes_at_once(self, self._key, self._costs):
            settled = self._door.take_blocking(self._key, self._costs, self._terms)
            self._hold(settled)
        return self

    @undecided
    async def acquire_async(self) -> Self:
        """Requests the slot as `acquire`, in an event loop."""
        self._check_free()
        if not self._door.takes_at_once(self, self._key, self._costs):
            settled = await self._door.take(self._key, self._costs, self._terms)
            self._hold(settled)
        if self.cost > 0 and self._terms.on_lease_end is not None:
            self._watch_lease(asyncio.current_task())
        return self

    def _end(self) -> None:
        """Ends the block: gives the slot back. Logs a warning if it was refused, and the block ran without a check."""
        if not (self._seen or self._decision is None or self._decision.allowed):
            log_unseen(self._door.name, REMEDY)
        self.release()

    def release(self) -> None:
        """Gives the slot back. Only the first call counts, from any thread; never waits, and never fails."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self.cost > 0:
            self._door.table.release(self)

    def _hold(self, settled: tuple[Cell | None, Decision]) -> None:
        cell, decision = settled
        if cell is not None:
            self.cell, self.cost = cell, self._costs[0]
        self._decision = decision

    def _check_free(self) -> None:
        if self.cost > 0:
            raise WrongMoment(f"this slot of {self._key!r} is held already; make another slot for each block")

    def _watch_lease(self, task: asyncio.Task[object] | None) -> None:
        """Starts a timer for the end of the slot's lease; at that time cancels `task`, or calls `on_lease_end`."""
        cell, loop = self.cell, asyncio.get_running_loop()
        if cell is None or self.cost == 0:
            return
        left_ns = lease_left_ns(cell, self._door.table.now_ns())
        if left_ns > 0:
            left_s = max(LEASE_LOOK_MIN_S, min(left_ns / SECOND_NS, self._door.table.window_s))
            self._timer = loop.call_later(left_s, self._watch_lease, task)
            return
        self._timer = None
        on_lease_end = self._terms.on_lease_end
        if callable(on_lease_end):
            on_lease_end(self)
        elif task is not None:
            self._cancels = task.cancelling()
            task.cancel()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        return await self.acquire_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        if self._cancels is None:
            return
        cancels, self._cancels = self._cancels, None
        task = asyncio.current_task()
        if task is None:
            return
        # As `asyncio.timeout` does: the cancellation was this slot's own, and no other one came with it.
        if task.uncancel() <= cancels and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise LeaseEnded(self._door.name, self._key) from error

    def __del__(self) -> None:
        if getattr(self, "cost", 0) > 0:  # `__init__` may have failed
            self._door.note_dropped()
            self.release()

    def __repr__(self) -> str:
        state = "held" if self.cost > 0 else "not held" if self._decision is None else f"{bool(self)}, not held"
        return f"Slot({self._door.name!r}, {self._key!r}, {state})"


class SlotTerms:
    """The settings of a request for a slot. Raises InvalidSetting for invalid ones."""

    __slots__ = ("cost", "kind", "lifo", "max_queue", "on_lease_end", "timeout", "within_ns")

    def __init__(
        self,
        *,
        cost: int = 1,
        kind: str | None = None,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        order: Order = FIFO,
        within: Seconds = WITHIN_S,
        on_lease_end: OnLeaseEnd = None,
    ) -> None:
        self.cost = cost
        self.kind = kind
        self.timeout = in_seconds(timeout)
        self.max_queue = max_queue
        self.within_ns = checked_within_ns(in_seconds(within))
        if order not in (FIFO, LIFO):
            raise InvalidSetting("order", order, f"must be {FIFO!r}, first come first served, or {LIFO!r}")
        if self.timeout is None and (max_queue is not None or order != FIFO):
            name, value = ("max_queue", max_queue) if max_queue is not None else ("order", order)
            raise InvalidSetting(name, value, "has an effect only on work that waits in the queue; add timeout=")
        if on_lease_end is not None and on_lease_end != CANCEL and not callable(on_lease_end):
            raise InvalidSetting("on_lease_end", on_lease_end, f"must be {CANCEL!r}, a function of the slot, or None")
        checked_timeout_ns(self.timeout)
        checked_room(max_queue)
        self.lifo = order == LIFO
        self.on_lease_end = on_lease_end


class SlotDoor:
    """Takes slots of one limit for `Slot` objects, and counts the slots that their holders have not released."""

    def __init__(self, enforcement: Enforcement) -> None:
        self.plain = SlotTerms()
        """The settings of a slot for which the caller has given none."""
        self._enforcement = enforcement
        self.table: Table = enforcement.tables[0]
        self.name = self.table.name

    def note_dropped(self) -> None:
        """Counts a slot that was given back only because the interpreter deleted its object."""
        self._enforcement.slots_dropped += 1

    def checked(self, key: str, terms: SlotTerms) -> Costs:
        """Checks a request for a slot, and returns its cost for each quota.

        Raises InvalidKey, InvalidCost, UnknownKind; CostExceedsQuota if the cost is above the number of slots.
        """
        self.table.check_key(key)
        costs = self.table.costs_of(terms.cost, terms.kind)
        if self._enforcement.answers is self._enforcement.on:
            self.table.able(costs)
        return costs

    def takes_at_once(self, slot: Slot, key: str, costs: Costs) -> bool:
        """Takes the slot if this node surely has room and no request waits for the key. Returns whether it did."""
        if self._enforcement.answers is not self._enforcement.on or self._waiting(key):
            return False
        return self.table.take_at_once(key, costs[0], slot)

    def take_blocking(self, key: str, costs: Costs, terms: SlotTerms) -> Taken:
        """Takes the slot on this thread; with a timeout in `terms`, waits for room.

        Returns the counts that were charged (a cell), or None if none were, and the decision.
        """
        if self._enforcement.answers is not self._enforcement.on:
            return self._take_at_once(key, terms)
        if not terms.timeout:
            return _taken(self._enforcement.on.asking.ask_blocking(self._request(key, terms)))
        if has_a_loop():
            raise WrongMoment(f"waiting here would hold up the event loop; use `async with` for {self.name!r}")
        if self._is_new(key):
            taken = _taken(self._enforcement.on.asking.ask_blocking(self._request(key, terms)))
            if taken[1].allowed:
                return taken
        try:
            waiting = waiting_at(self.table)
            decision = waiting.wait_blocking(key, costs, terms.timeout, terms.max_queue, lifo=terms.lifo)
            return self._charged(key, decision), decision
        except Reentry:
            return None, self.table.refuse_reentry()

    async def take(self, key: str, costs: Costs, terms: SlotTerms) -> Taken:
        """Takes the slot as `take_blocking`, in the running event loop."""
        if self._enforcement.answers is not self._enforcement.on:
            return self._take_at_once(key, terms)
        if not terms.timeout:
            return _taken(await self._enforcement.on.asking.ask(self._request(key, terms)))
        if self._is_new(key):
            taken = _taken(await self._enforcement.on.asking.ask(self._request(key, terms)))
            if taken[1].allowed:
                return taken
        try:
            waiting = waiting_at(self.table)
            decision = await waiting.wait(key, costs, terms.timeout, terms.max_queue, lifo=terms.lifo)
            return self._charged(key, decision), decision
        except Reentry:
            return None, self.table.refuse_reentry()

    def _request(self, key: str, terms: SlotTerms) -> AskedCost:
        return self._enforcement.on.asking.request(key, terms.cost, terms.kind, terms.within_ns, marks=True)

    def _waiting(self, key: str) -> int:
        waiting = self.table.listeners.get(self.name)
        return waiting.waiters(key) if isinstance(waiting, Waiting) else 0

    def _is_new(self, key: str) -> bool:
        """Returns whether the hub has never answered about `key`; a request then asks the hub before it waits.

        As a side effect, from now on the hub keeps the last free slots of keys, as waiting requests will ask for them.
        """
        self.table.asks = self.table.policy.keeps_at_hub
        cell = self.table.cells.get(key)
        return not self.table.kernel.alone and (cell is None or not cell.heard)

    def _take_at_once(self, key: str, terms: SlotTerms) -> Taken:
        """Takes the slot of a limit that is off or in shadow, where no request waits."""
        decision, charges = self._enforcement.answers.hit_and_mark(key, terms.cost, terms.kind)
        return (charges[0].mark.cell if charges else None), decision

    def _charged(self, key: str, decision: Decision) -> Cell | None:
        """Returns the counts of `key` (its cell) if the request was granted and charged; None if it charged nothing."""
        if not decision.allowed or _lets_all_in(decision):
            return None
        return self.table.cell_in_use(key)


def _taken(settled: Settled) -> Taken:
    return (settled[1][0].mark.cell if settled[1] else None), settled[0]


def _lets_all_in(decision: Decision) -> bool:
    return isinstance(decision, Unlimited | WouldRefuse)
