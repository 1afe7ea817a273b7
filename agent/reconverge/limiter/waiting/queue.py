"""The queue of requests that wait for one key, in the order in which they came. Does no I/O and reads no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from operator import add, sub
from typing import Any, Protocol


class Waker(Protocol):
    """An object that wakes one waiting coroutine or thread."""

    due_ns: int
    """The latest time at which to wake, by the monotonic clock in nanoseconds."""

    @property
    def gone(self) -> bool:
        """Whether the waiting coroutine cannot be woken any more, as its event loop was closed."""
        ...

    def wake(self) -> None:
        """Wakes the waiting coroutine or thread. Never waits, and never fails."""
        ...


class QueuePlace:
    """The place of one waiting request in a queue."""

    __slots__ = ("cells", "costs", "counted", "waker")

    def __init__(self, costs: tuple[int, ...], waker: Waker) -> None:
        self.costs = costs
        self.waker = waker
        self.counted = False
        """Whether the cost of this request is part of `WaitQueue.costs`."""
        self.cells: list[Any] = []
        """For each quota, the counts of the key (a cell) that include this request as waiting."""


class WaitQueue:
    """The queue of one key: places in the order of arrival, except for those that joined at the head.

    To join, to leave and to find the first place take the same time, however many requests wait.
    """

    def __init__(self, quotas: int) -> None:
        self._tickets: OrderedDict[QueuePlace, None] = OrderedDict()
        self.costs: tuple[int, ...] = (0,) * quotas
        """For each quota, the sum of the costs of all waiting requests."""

    @property
    def first(self) -> QueuePlace | None:
        """Returns the first place of the queue; None if the queue is empty."""
        while True:
            try:
                return next(iter(self._tickets), None)
            except RuntimeError:  # a signal handler has changed the queue meanwhile
                continue

    def join(self, ticket: QueuePlace, *, lifo: bool = False) -> QueuePlace:
        """Adds a place at the end, or with `lifo` at the head, and returns it."""
        self._tickets[ticket] = None
        if lifo:
            self._tickets.move_to_end(ticket, last=False)
        self.costs = tuple(map(add, self.costs, ticket.costs))
        ticket.counted = True
        return ticket

    def leave(self, ticket: QueuePlace) -> QueuePlace | None:
        """Removes a place. Returns the new first place if the first place was removed and others remain; else None."""
        was_first = self.first is ticket
        del self._tickets[ticket]
        if ticket.counted:
            self.costs = tuple(map(sub, self.costs, ticket.costs))
        else:  # a signal handler raised while it joined, before or after its costs were added
            self.costs = tuple(map(sum, zip((0,) * len(self.costs), *(other.costs for other in self), strict=True)))
        return self.first if was_first else None

    def due(self, now_ns: int) -> list[QueuePlace]:
        """Returns the places of the requests whose time to wake up has come by `now_ns`."""
        return [ticket for ticket in self._tickets if ticket.waker.due_ns <= now_ns]

    def __iter__(self) -> Iterator[QueuePlace]:
        return iter(self._tickets)

    def __contains__(self, ticket: QueuePlace) -> bool:
        return ticket in self._tickets

    def __len__(self) -> int:
        return len(self._tickets)
