"""Makes requests wait until there is room, in the event loops and threads of one process."""

# Theory of operation.
#
# The problem. Requests that wait for one key are in several event loops and threads, may be cancelled at any moment,
# and must be admitted in order. The obvious way is a dispatcher: a thread, or the request that has just been admitted,
# charges for the next request and wakes it. If that request is cancelled between the two, its charge has to be given
# back, and a bucket cannot always give back exactly, nor a fixed window across its end.
#
# How it works. The queue only determines which request is first. The first request sleeps until the moment that its
# limit names, or until there may be room (an answer raised the allowance, a key was reset, a reservation settled for
# less). Then it tries to charge, in the very step that returns the answer: a cancelled request has not been charged,
# and one that was charged has not been cancelled. A request that leaves, for any reason, wakes the next one.
#
# The steps of a waiting request are a generator (`steps`) that yields how long to sleep and ends with the decision. Two
# runners, a coroutine and a function (`running.py`), only sleep.
#
#       steps                      runner
#       try, not yet: yield ns --> sleep, at most that long, or until the waker wakes it
#       try, admitted: return  --> return the decision; nothing can come in between
#
# Demand is counted when a request arrives and not with every try. While any request waits, the key is reported every
# interval, and the waiting cost is part of the reported need. A failed try wakes no other request: there are about two
# tries for each request in a queue.
#
# A limit with a parent has a queue of its own, whose first request tries the limit's own share and then the parent's
# pool. With one queue for parent and shares, requests for the parent could keep a limit from its own share.
#
# A signal handler or a finalizer may call this code while its own thread is in the midst of changing a queue. The
# second change is then put off until the first one is done: a wake-up happens a moment later. A request made by the
# handler cannot be queued, and is refused if it would have to wait.

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from math import ceil
from operator import sub
from typing import TypeAlias

from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.decision import Decision
from reconverge.errors import InvalidSetting, WrongMoment
from reconverge.kernel import NEVER_NS, Costs, Decider, Table, gate_of
from reconverge.limiter.waiting.queue import QueuePlace, WaitQueue, Waker
from reconverge.limiter.waiting.running import run, run_blocking
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.threads import Section, WakeEvent, green_threads, thread_id

Steps: TypeAlias = Generator[int, None, Decision]
"""The steps of a waiting request: yields the nanoseconds to sleep, unless its waker wakes it; returns the decision."""
WayOut: TypeAlias = Callable[[str, Costs], Decision]
"""A function that decides about a request which waited until the limit was switched off or into shadow."""

SLEEP_MAX_NS = 3600 * SECOND_NS
"""The longest single sleep, in nanoseconds: a longer one may not fit into the operating system's numbers."""


class Waiting:
    """The queues of one limit on this node, one for each key for which requests wait."""

    def __init__(self, limit: Decider) -> None:
        self._gate = gate_of(limit)
        self._table = limit.tables[0]
        """The table of counts of the limit's first quota, for facts that are the same for all its quotas."""
        self._section = Section()
        """The section that guards the queues. A thread leaves it before it tries to charge a request."""
        self._queues: dict[str, WaitQueue] = {}
        self._tickets: dict[Waker, QueuePlace] = {}
        """The queue places of all waiting requests, and of those that are about to wait, by waker."""
        self._put_off: deque[tuple[str, QueuePlace | None]] = deque()
        """Work to do once no thread changes the queues: for each key, a place to remove, or None to wake its first
        request."""
        clock = self._table.kernel.clock
        self.manual = clock if isinstance(clock, ManualClock) else None
        """The node's clock if a test sets its time by hand; else None. Such a clock wakes waiting requests itself."""
        self._way_out: WayOut | None = None
        self.barred: Callable[[str], Decision | None] | None = None
        """A function that returns the refusal of a banned key, and None for any other key. None if the limit has no
        bans."""

    async def wait(
        self, key: str, costs: Costs, timeout: float | None, max_queue: int | None, *, lifo: bool = False
    ) -> Decision:
        """Makes a request wait in the running event loop until there is room. Returns the decision.

        Refuses after `timeout` seconds, or if `max_queue` requests wait already; None means no bound. With `lifo`, the
        request that came last goes first.
        """
        waker = LoopWaker()
        steps = self.steps(key, costs, timeout, max_queue, waker, lifo=lifo)
        try:
            return await run(steps, waker.sleep if self.manual is None else lambda _: waker.sleep(None))
        finally:
            self._step_out(key, waker)

    def wait_blocking(
        self, key: str, costs: Costs, timeout: float | None, max_queue: int | None, *, lifo: bool = False
    ) -> Decision:
        """Makes a request wait on the calling thread, as `wait`. Returns the decision.

        Raises WrongMoment if an event loop runs on this thread.
        """
        if timeout != 0 and has_a_loop():
            raise WrongMoment(f"waiting here would hold up the event loop; use `await limiter.wait({key!r})`")
        waker = thread_waker()
        steps = self.steps(key, costs, timeout, max_queue, waker, lifo=lifo)
        try:
            return run_blocking(steps, waker.sleep if self.manual is None else lambda _: waker.sleep(None))
        finally:
            self._step_out(key, waker)

    def waiters(self, key: str) -> int:
        """Returns the number of requests that wait for a key."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue)

    @property
    def queued(self) -> int:
        """Returns the number of requests that wait for all keys together."""
        return sum(map(len, list(self._queues.values())))

    def tell(self, key: str) -> None:
        """Wakes the first request that waits for `key`, because there may be room now."""
        if key in self._queues:  # without a lock, as mostly no request waits
            self._wake_first(key)

    def let_out(self, way_out: WayOut | None) -> None:
        """Makes each request that waits, now or later, return the answer of `way_out`. With None, requests may wait."""

        def note() -> list[QueuePlace]:
            self._way_out = way_out
            return [] if way_out is None else [ticket for queue in list(self._queues.values()) for ticket in queue]

        for ticket in self._section.run(note):
            ticket.waker.wake()

    def time_has_passed(self, now_ns: int) -> None:
        """Wakes the requests that are due, after a test has advanced its manual clock."""
        for each in self._section.run(lambda: self._due(now_ns)):
            each.waker.wake()

    def _due(self, now_ns: int) -> list[QueuePlace]:
        return [ticket for queue in list(self._queues.values()) for ticket in queue.due(now_ns)]

    def steps(
        self, key: str, costs: Costs, timeout: float | None, max_queue: int | None, waker: Waker, *, lifo: bool = False
    ) -> Steps:
        """Charges a request if there is room; else queues it, and tries again when it is first and there may be room.

        With `lifo` it joins the queue at its head. A generator: yields nanoseconds to sleep, and returns the decision.
        """
        gate, key = self._gate, self._table.check_key(key)
        timeout_ns, room = checked_timeout_ns(timeout), checked_room(max_queue)
        began_ns = self._table.now_ns()
        deadline_ns = min(began_ns + timeout_ns, NEVER_NS)
        ahead, tried, again_ns = self._costs_ahead(key, costs), False, began_ns
        none = (0,) * len(costs)
        # With nothing ahead, a request that fits never enters the queue.
        if not self.waiters(key):
            turn = gate.try_turn(key, costs, again=False)
            if turn.decision is not None:
                return turn.decision
            tried, again_ns = True, began_ns + turn.again_ns
        hopeless = timeout_ns == 0 or gate.at_least_ns(key, costs, ahead=ahead) > timeout_ns
        ticket = self._tickets[waker] = QueuePlace(costs, waker)
        try:
            if hopeless or not self._join(key, ticket, room, lifo=lifo):
                return gate.turn_away(key, costs, ahead=ahead, waited=False)
            gate.queue_up(key, costs, ticket.cells)
            while True:
                if (way_out := self._way_out) is not None:
                    return way_out(key, costs)
                if self.barred is not None and (refusal := self.barred(key)) is not None:
                    return refusal
                now_ns, first = self._table.now_ns(), self._is_first(key, ticket)
                if first and not tried:
                    turn = gate.try_turn(key, costs, again=True)
                    if turn.decision is not None:
                        return turn.decision
                    again_ns = now_ns + turn.again_ns
                    if not self._table.kernel.alone:  # the hub may have answered that nothing is free
                        hopeless = gate.at_least_ns(key, costs, ahead=none) > deadline_ns - now_ns
                if now_ns >= deadline_ns or hopeless:
                    others = tuple(map(sub, self._costs_ahead(key, costs), costs))
                    return gate.turn_away(key, costs, ahead=others, waited=True)
                waker.due_ns = min(deadline_ns, again_ns) if first else deadline_ns
                yield waker.due_ns - now_ns
                tried = False
        finally:
            self._step_out(key, waker)

    def _costs_ahead(self, key: str, costs: Costs) -> Costs:
        queue = self._queues.get(key)
        return (0,) * len(costs) if queue is None else queue.costs

    def _is_first(self, key: str, ticket: QueuePlace) -> bool:
        def first() -> bool:
            queue = self._queues.get(key)
            return queue is None or queue.first is ticket

        return self._section.run(first)

    def _join(self, key: str, ticket: QueuePlace, room: int | None, *, lifo: bool) -> bool:
        """Adds a place at the queue's end, or with `lifo` at its head, and returns True.

        Returns False if the queue has `room` places already, or if this call comes from a signal handler that has
        interrupted its own thread in a change of a queue.
        """
        if self._section.entered():
            return False
        self._wake_first(key, only_if_lost=True)
        try:
            return self._section.run(partial(self._enqueue, key, ticket, room, lifo=lifo))
        finally:
            self._see_to_what_was_put_off()

    def _enqueue(self, key: str, ticket: QueuePlace, room: int | None, *, lifo: bool) -> bool:
        queue = self._queues.get(key)
        if room is not None and room <= (0 if queue is None else len(queue)):
            return False
        if not self._queues and self.manual is not None:
            self.manual.watch(self.time_has_passed)
        if queue is None:
            queue = self._queues[key] = WaitQueue(len(ticket.costs))
        queue.join(ticket, lifo=lifo)
        return True

    def _step_out(self, key: str, waker: Waker) -> None:
        """Removes a waiting request from the queue and all other records. A second call does nothing."""
        ticket = self._tickets.get(waker)
        if ticket is None:
            return
        self._leave(key, ticket)
        self._gate.step_out(ticket.cells, ticket.costs)
        self._tickets.pop(waker, None)

    def _leave(self, key: str, ticket: QueuePlace) -> None:
        """Removes a place from its queue. If another place becomes the first, wakes its request."""
        if self._section.entered():
            self._put_off.append((key, ticket))
            return
        try:
            if self._section.run(partial(self._remove, key, ticket)):
                self._wake_first(key)
        finally:
            self._see_to_what_was_put_off()

    def _remove(self, key: str, ticket: QueuePlace) -> bool:
        """Removes a place from its queue. Returns whether another place has become the first."""
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
        """Wakes the first request of `key` that can be woken, and removes those before it.

        Requests of closed event loops cannot be woken. With `only_if_lost`, wakes a request only if it removed any.
        """
        if self._section.entered():
            self._put_off.append((key, None))
            return
        try:
            while True:
                first, lost = self._section.run(partial(self._first, key))
                only_if_lost = only_if_lost and not lost
                if first is None or only_if_lost:
                    return
                # The waker of a closed event loop wakes nothing. Its request is removed; otherwise all requests behind
                # it would wait for ever.
                first.waker.wake()
                if not first.waker.gone:
                    return
        finally:
            self._see_to_what_was_put_off()

    def _first(self, key: str) -> tuple[QueuePlace | None, bool]:
        """Returns the first place that can be woken, or None; and True if places of closed event loops were removed."""
        lost = False
        while True:
            queue = self._queues.get(key)
            first = None if queue is None else queue.first
            if first is None or not first.waker.gone:
                return first, lost
            self._remove(key, first)
            lost = True

    def _see_to_what_was_put_off(self) -> None:
        """Does the work that signal handlers and finalizers have left in `_put_off`."""
        while self._put_off and not self._section.entered():
            try:
                key, ticket = self._put_off.popleft()
            except IndexError:  # another thread has done the last of it
                return
            if ticket is None:
                self._wake_first(key)
            else:
                self._leave(key, ticket)


class LoopWaker:
    """Wakes a waiting coroutine, from any thread. It must be created in the coroutine's event loop."""

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._loop = asyncio.get_running_loop()
        self._thread_id = thread_id()
        self._rung = asyncio.Event()

    @property
    def gone(self) -> bool:
        return self._loop.is_closed()

    def wake(self) -> None:
        # The loop may be closed or closing, or its self-pipe broken; then there is no waiter to wake.
        with contextlib.suppress(RuntimeError, OSError):
            # A signal handler may have interrupted the loop while it waits for the operating system.
            if thread_id() == self._thread_id and asyncio.current_task(self._loop) is not None:
                self._rung.set()
            else:
                self._loop.call_soon_threadsafe(self._rung.set)

    async def sleep(self, at_most_ns: int | None) -> None:
        """Sleeps until woken, or for `at_most_ns` nanoseconds (None: no bound), rounded up to the millisecond."""
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


class ThreadWaker:
    """Wakes a waiting thread, from any thread."""

    gone = False

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._waker = WakeEvent()

    def wake(self) -> None:
        self._waker.wake()

    def sleep(self, at_most_ns: int | None) -> None:
        """Sleeps until woken, or for `at_most_ns` nanoseconds, at most SLEEP_MAX_NS; None means SLEEP_MAX_NS."""
        self._waker.wait(min(NEVER_NS if at_most_ns is None else at_most_ns, SLEEP_MAX_NS) / SECOND_NS)


class GreenWaker:
    """Wakes a green thread. While a green thread sleeps, the others of the same system thread run."""

    gone = False

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._rung = threading.Event()  # fork: patched, and green threads go on in the child

    def wake(self) -> None:
        self._rung.set()

    def sleep(self, at_most_ns: int | None) -> None:
        """Sleeps until woken, or for `at_most_ns` nanoseconds, at most SLEEP_MAX_NS; None means SLEEP_MAX_NS."""
        self._rung.wait(min(NEVER_NS if at_most_ns is None else at_most_ns, SLEEP_MAX_NS) / SECOND_NS)
        self._rung.clear()


def thread_waker() -> ThreadWaker | GreenWaker:
    """Returns a waker for the calling thread, or green thread."""
    return GreenWaker() if green_threads() else ThreadWaker()


def waiting_at(limit: Decider) -> Waiting:
    """Returns the queues of a limit. All limiters of the limit share them."""
    first = limit.tables[0].listeners
    waiting = first.get(limit.name)
    if waiting is None:
        waiting = first.setdefault(limit.name, Waiting(limit))  # in one step, so that two threads get the same object
    assert isinstance(waiting, Waiting)
    for table in limit.tables:
        if table.listeners.get(limit.name) is not waiting:
            table.listeners[limit.name] = waiting
    return waiting


def queued_at(table: Table) -> int:
    """Returns the number of requests on this node that wait for the quota of `table`, in all limits that have it."""
    return sum(each.queued for each in list(table.listeners.values()) if isinstance(each, Waiting))


def checked_timeout_ns(timeout: object) -> int:
    """Returns the longest wait in nanoseconds for a `timeout` in seconds; NEVER_NS for None. Raises InvalidSetting."""
    if timeout is None:
        return NEVER_NS
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidSetting("timeout", timeout, "must be a number of seconds of 0 or more, or None to wait for ever")
    return NEVER_NS if timeout * SECOND_NS >= NEVER_NS else round(timeout * SECOND_NS)


def checked_room(max_queue: object) -> int | None:
    """Returns the largest number of requests that may wait; None for no bound. Raises InvalidSetting."""
    if max_queue is None:
        return None
    if isinstance(max_queue, bool) or not isinstance(max_queue, int) or max_queue < 0:
        raise InvalidSetting("max_queue", max_queue, "must be a whole number of 0 or more, or None for any number")
    return max_queue
