"""Waiting for one's turn, in any number of event loops and threads at once.

What a waiter does is a generator that yields for how long to sleep and ends with the decision; the two shells, a
coroutine and a function, do nothing but sleep. Everybody tries for himself, in the step that also returns the answer:
so whoever is cancelled has not been charged, and whoever was charged has not been cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from math import ceil
from operator import sub
from typing import TypeAlias

from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.decision import Decision
from reconverge.errors import InvalidSetting
from reconverge.kernel import NEVER_NS, Cell, Costs, Elastic, Joint, WaitTable, gate_of
from reconverge.turns import Bell, Ticket, Turns

Steps: TypeAlias = Generator[int, None, Decision]
"""Yields the nanoseconds to sleep, at most NEVER_NS; woken earlier by the bell."""
WayOut: TypeAlias = Callable[[str, Costs], Decision]
"""What those who wait for a key are told when nobody has to wait any more."""

SLEEP_MAX_NS = 3600 * SECOND_NS
"""The longest sleep at a time: what the operating system is asked to measure has to fit into its own numbers."""


class Waiting:
    """The queues of one limit on this node, one for each key that somebody waits for."""

    def __init__(self, limit: WaitTable | Joint | Elastic) -> None:
        self._gate = gate_of(limit)
        self._table = limit.tables[0]
        """For what is the same for all quotas of a limit."""
        self._lock = threading.Lock()
        """Held for the arithmetic of one queue at a time, and never while the gate is asked."""
        self._queues: dict[str, Turns] = {}
        clock = self._table.kernel.clock
        self.manual = clock if isinstance(clock, ManualClock) else None
        """A clock that wakes whoever waits by itself, when it is advanced."""
        self._way_out: WayOut | None = None

    # ------------------------------------------------------------ what callers ask

    async def wait(self, key: str, costs: Costs, timeout: float | None, max_queue: int | None) -> Decision:
        """Wait in the running event loop."""
        bell = LoopBell()
        steps = self.steps(key, costs, timeout, max_queue, bell)
        with contextlib.closing(steps):
            while True:
                try:
                    sleep_ns = next(steps)
                except StopIteration as end:
                    return _answer(end)
                await bell.sleep(None if self.manual is not None else sleep_ns)

    def wait_blocking(self, key: str, costs: Costs, timeout: float | None, max_queue: int | None) -> Decision:
        """Wait on the calling thread."""
        if timeout != 0 and _in_a_loop():
            raise RuntimeError(f"waiting here would hold up the event loop; use `await limiter.wait({key!r})`")
        bell = ThreadBell()
        steps = self.steps(key, costs, timeout, max_queue, bell)
        with contextlib.closing(steps):
            while True:
                try:
                    sleep_ns = next(steps)
                except StopIteration as end:
                    return _answer(end)
                bell.sleep(None if self.manual is not None else sleep_ns)

    def waiters(self, key: str) -> int:
        """How many wait for a key."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue)

    def tell(self, key: str) -> None:
        """See `reconverge.kernel.Listener`: there may be room now."""
        if key in self._queues:  # without a lock, as there mostly is none
            self._wake_first(key)

    def let_out(self, way_out: WayOut | None) -> None:
        """Have all who wait leave with that answer, and whoever waits from now on; with None, have them wait again."""
        with self._lock:
            self._way_out = way_out
            tickets = [] if way_out is None else [ticket for queue in self._queues.values() for ticket in queue]
        for ticket in tickets:
            ticket.bell.ring()

    def time_has_passed(self, now_ns: int) -> None:
        """A clock was advanced by hand."""
        with self._lock:
            due = [ticket for queue in self._queues.values() for ticket in queue.due(now_ns)]
        for ticket in due:
            ticket.bell.ring()

    # ------------------------------------------------------------ what a waiter does

    def steps(self, key: str, costs: Costs, timeout: float | None, max_queue: int | None, bell: Bell) -> Steps:
        """Try; if that does not do, come last, and try again whenever it is one's turn and there may be room."""
        gate, key = self._gate, self._table.check_key(key)
        timeout_ns, room = checked_timeout_ns(timeout), checked_room(max_queue)
        began_ns = self._table.now_ns()
        deadline_ns = min(began_ns + timeout_ns, NEVER_NS)
        ahead, tried, again_ns = self._costs_ahead(key, costs), False, began_ns
        if not self.waiters(key):
            turn = gate.try_turn(key, costs, again=False)
            if turn.decision is not None:
                return turn.decision
            tried, again_ns = True, began_ns + turn.again_ns
        hopeless = timeout_ns == 0 or gate.at_least_ns(key, costs, ahead=ahead) > timeout_ns
        ticket = None if hopeless else self._join(key, costs, bell, room)
        if ticket is None:
            return gate.turn_away(key, costs, ahead=ahead, waited=False)
        cells: list[Cell] = []
        try:
            gate.queue_up(key, costs, cells)
            while True:
                if (way_out := self._way_out) is not None:
                    return way_out(key, costs)
                now_ns, first = self._table.now_ns(), self._is_first(key, ticket)
                if first and not tried:
                    turn = gate.try_turn(key, costs, again=True)
                    if turn.decision is not None:
                        return turn.decision
                    again_ns = now_ns + turn.again_ns
                if now_ns >= deadline_ns:
                    others = tuple(map(sub, self._costs_ahead(key, costs), costs))
                    return gate.turn_away(key, costs, ahead=others, waited=True)
                bell.due_ns = min(deadline_ns, again_ns) if first else deadline_ns
                yield bell.due_ns - now_ns
                tried = False
        finally:
            self._leave(key, ticket)
            gate.step_out(cells, costs)

    # ------------------------------------------------------------ inside

    def _costs_ahead(self, key: str, costs: Costs) -> Costs:
        queue = self._queues.get(key)
        return (0,) * len(costs) if queue is None else queue.costs

    def _is_first(self, key: str, ticket: Ticket) -> bool:
        with self._lock:
            queue = self._queues.get(key)
            return queue is None or queue.first is ticket

    def _join(self, key: str, costs: Costs, bell: Bell, room: int | None) -> Ticket | None:
        """A place at the end of the queue, unless it is full."""
        self._wake_first(key, only_if_lost=True)
        with self._lock:
            queue = self._queues.get(key)
            if room is not None and room <= (0 if queue is None else len(queue)):
                return None
            if not self._queues and self.manual is not None:
                self.manual.watch(self.time_has_passed)
            if queue is None:
                queue = self._queues[key] = Turns(len(costs))
            return queue.join(costs, bell)

    def _leave(self, key: str, ticket: Ticket) -> None:
        """Give a place back; whoever is first because of that is woken."""
        with self._lock:
            becomes_first = self._remove(key, ticket)
        if becomes_first:
            self._wake_first(key)

    def _remove(self, key: str, ticket: Ticket) -> bool:
        """Take a ticket out of its queue; returns whether somebody else is first because of that."""
        queue = self._queues.get(key)
        if queue is None or ticket not in queue:
            return False
        becomes_first = queue.leave(ticket) is not None
        if not queue:
            del self._queues[key]
            if not self._queues and self.manual is not None:
                self.manual.unwatch(self.time_has_passed)
        return becomes_first

    def _wake_first(self, key: str, *, only_if_lost: bool = False) -> None:
        """Wake whoever is first, and can be woken; who waited in a loop that was closed since waits no more."""
        while True:
            with self._lock:
                queue = self._queues.get(key)
                first = None if queue is None else queue.first
                if first is not None and first.bell.gone:
                    self._remove(key, first)
                    only_if_lost = False
                    continue
            if first is None or only_if_lost:
                return
            first.bell.ring()
            if not first.bell.gone:
                return


class LoopBell:
    """Wakes a coroutine, from whatever thread. Made in the loop that it sleeps in."""

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._rung = asyncio.Event()

    @property
    def gone(self) -> bool:
        """See `Bell.gone`."""
        return self._loop.is_closed()

    def ring(self) -> None:
        """See `Bell.ring`."""
        # The loop may be closed or closing, or its self-pipe broken; then there is nobody to wake.
        with contextlib.suppress(RuntimeError, OSError):
            if threading.get_ident() == self._thread_id:
                self._rung.set()
            else:
                self._loop.call_soon_threadsafe(self._rung.set)

    async def sleep(self, at_most_ns: int | None) -> None:
        """Sleep until it rings; for so long at most, rounded up to the millisecond, which is what loops can tell."""
        alarm = None
        if at_most_ns is not None and at_most_ns < NEVER_NS:
            milliseconds = ceil(min(at_most_ns, SLEEP_MAX_NS) / MILLISECOND_NS)
            alarm = self._loop.call_later(milliseconds / 1000, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        self._rung.clear()


class ThreadBell:
    """Wakes a thread."""

    gone = False

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._rung = threading.Event()

    def ring(self) -> None:
        """See `Bell.ring`."""
        self._rung.set()

    def sleep(self, at_most_ns: int | None) -> None:
        """Sleep until it rings; for so long at most."""
        if at_most_ns is None or at_most_ns >= NEVER_NS:
            self._rung.wait()
        else:
            self._rung.wait(min(at_most_ns, SLEEP_MAX_NS) / SECOND_NS)
        self._rung.clear()


def waiting_at(limit: WaitTable | Joint | Elastic) -> Waiting:
    """The queues of a limit: one set for all who decide about it, which is told of news of any of its quotas.

    There is another one in a forked child. Raises Reentry.
    """
    waiting = limit.tables[0].listeners.get(limit.name)
    return waiting if isinstance(waiting, Waiting) else limit.tables[0].lock.run(_wait_at, limit)


def _wait_at(limit: WaitTable | Joint | Elastic) -> Waiting:
    waiting = limit.tables[0].listeners.get(limit.name)
    if not isinstance(waiting, Waiting):
        waiting = Waiting(limit)
        for table in limit.tables:
            table.listeners[limit.name] = waiting
    return waiting


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def checked_timeout_ns(timeout: object) -> int:
    """How long to wait at most. Raises InvalidSetting."""
    if timeout is None:
        return NEVER_NS
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidSetting("timeout", timeout, "must be a number of seconds of 0 or more, or None to wait for ever")
    return NEVER_NS if timeout * SECOND_NS >= NEVER_NS else round(timeout * SECOND_NS)


def checked_room(max_queue: object) -> int | None:
    """How many may wait at most. Raises InvalidSetting."""
    if max_queue is None:
        return None
    if isinstance(max_queue, bool) or not isinstance(max_queue, int) or max_queue < 0:
        raise InvalidSetting("max_queue", max_queue, "must be a whole number of 0 or more, or None for any number")
    return max_queue


def _answer(end: StopIteration) -> Decision:
    decision = end.value
    assert isinstance(decision, Decision)
    return decision
