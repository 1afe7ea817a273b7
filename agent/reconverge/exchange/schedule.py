"""The schedule of exchanges: the sync intervals in use, when each is next due, and the interval of each limit."""

# Theory of operation.
#
# The problem. Limits of one agent may have different sync intervals: one limit has to know of other nodes within 100
# ms, for a thousand others ten seconds are enough, and published settings may change any interval while it is in use.
#
# Why the naive way fails. A stream of exchanges for each interval would be simple. But to the hub a stream is a node,
# with a name, a lease and allowances of its own. A limit that changes its interval would have to give up its allowances
# in one stream and begin anew in another, and every interval would cost a message of its own.
#
# How it works. A node has one stream. `Intervals` knows when each interval that is in use is next due. An exchange
# takes place at the first of these moments, and carries the cells of all limits that are due by then:
#
#     limits at 1 s    x     x     x     x     x     x     x
#     limits at 3 s    x                 x                 x
#     exchanges        x     x     x     x     x     x     x        the 1st, 4th and 7th carry both
#
# Back-off after failures (`syncer.py`), reports of a node without charges, and learning after a loss of data follow the
# agent's own interval, because they concern the node and not a limit.
#
# `Pacing` applies the interval that is in force: the one that fleet settings publish, else the limit's own, else the
# agent's (`published/layered.py`).

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.kernel import Kernel, LimitInterval, Table
from reconverge.published.layered import Layered
from reconverge.settings import check_lease, check_slot_lease, checked_pace

_NONE: Final = frozenset[int]()


class Intervals:
    """The sync intervals in use on a node, each with the moment of its next exchange. Most nodes have one interval."""

    def __init__(self, intervals_ns: tuple[int, ...], due_ns: int) -> None:
        self._known = intervals_ns
        self._due_ns = dict.fromkeys(intervals_ns, due_ns)
        self.due_ns = due_ns
        """The earliest moment at which an exchange of any interval is due, in nanoseconds."""

    def __len__(self) -> int:
        return len(self._due_ns)

    @property
    def shortest(self) -> frozenset[int]:
        """Returns a set that contains only the shortest interval."""
        return frozenset(self._known[:1])

    def follow(self, intervals_ns: tuple[int, ...], now_ns: int) -> None:
        """Replaces the intervals in use by `intervals_ns`, shortest first. A new one is first due after its length."""
        if intervals_ns is not self._known:
            self._known = intervals_ns
            self._due_ns = {each: self._due_ns.get(each, now_ns + each) for each in intervals_ns}
            self.due_ns = min(self._due_ns.values())

    def due(self, now_ns: int) -> frozenset[int]:
        """Returns the intervals, in nanoseconds, whose exchange is due at `now_ns`."""
        if now_ns < self.due_ns:
            return _NONE
        return frozenset([each for each, due_ns in self._due_ns.items() if due_ns <= now_ns])

    def first_of(self, intervals_ns: Iterable[int]) -> int:
        """Returns the earliest moment at which an exchange of `intervals_ns` is due.

        An interval that is not in use counts as due at the same moment as the first interval in use.
        """
        return min(self._due_ns.get(each, self.due_ns) for each in intervals_ns)

    def begin(self, intervals_ns: Iterable[int] | None, length_ns: Callable[[int], int], now_ns: int) -> None:
        """Makes the next exchange of each of `intervals_ns` due `length_ns(interval)` from now; None means all."""
        for each in self._due_ns if intervals_ns is None else self._due_ns.keys() & intervals_ns:
            self._due_ns[each] = now_ns + length_ns(each)
        self.due_ns = min(self._due_ns.values())

    def all_at(self, due_ns: int) -> None:
        """Makes the next exchange of every interval due at `due_ns`."""
        self._due_ns = dict.fromkeys(self._due_ns, due_ns)
        self.due_ns = due_ns

    def no_longer(self, now_ns: int) -> None:
        """Brings exchanges forward: each becomes due within one full interval of its own from now."""
        self._due_ns = {each: min(due_ns, now_ns + each) for each, due_ns in self._due_ns.items()}
        self.due_ns = min(self._due_ns.values())


class Pacing:
    """Applies sync intervals (the times between two exchanges), set here or published, to an agent and its limits.

    Its methods take the name of a limit, or None for the agent. `tables_of(limit)` returns the tables of a limit;
    `changed` is called after each change of an interval.
    """

    def __init__(
        self,
        kernel: Kernel,
        own: LimitInterval,
        *,
        timeout_s: float,
        tables_of: Callable[[str], Iterable[Table]],
        changed: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._timeout_s = timeout_s
        self._tables_of = tables_of
        self._changed = changed
        self._paces: dict[str | None, Layered[LimitInterval | None]] = {None: Layered(own)}

    def plan(
        self, sync_interval: float | None, min_sync_interval: float | None, *, limit: str | None
    ) -> Callable[[], None]:
        pace = None
        if sync_interval is None and limit is None:
            raise InvalidSetting(
                "sync_interval", None, "cannot be unset for the agent; name a limit, or give an interval"
            )
        if sync_interval is not None:
            pace = pace_of(sync_interval, min_sync_interval)
            self._check_lease(sync_interval, limit)

        def change() -> None:
            layered = self._layered(limit)
            layered.own = pace
            if layered.published is None:
                self._take(limit, pace)

        return change

    def publish(self, limit: str | None, sync_interval: float | None) -> None:
        """Applies a `sync_interval` in seconds that an operator has published, to a limit or (None) to the agent.

        If `sync_interval` is None, the interval that the application has set holds again. Raises InvalidSetting.
        """
        layered = self._layered(limit)
        before, layered.published = layered.published, None
        try:
            if sync_interval is not None:
                self._check_lease(sync_interval, limit)
                layered.published = pace_of(sync_interval)
        finally:
            if layered.published != before:
                self._take(limit, layered.in_force)

    def forget_published(self) -> None:
        """Forgets all published intervals. The caller applies the newest published ones afterwards."""
        for layered in self._paces.values():
            layered.published = None

    def shortest_ns(self) -> int:
        """Returns the agent's own or published sync interval, whichever is shorter, in nanoseconds."""
        own = self._layered(None).own
        return self._kernel.interval_ns if own is None else min(self._kernel.interval_ns, own.interval_ns)

    def _layered(self, limit: str | None) -> Layered[LimitInterval | None]:
        """Returns the two intervals of a limit, or of the agent if `limit` is None: one set here, one published.

        Each is None if there is none. A limit with neither of them uses the agent's interval.
        """
        return self._paces.setdefault(limit, Layered(None))

    def _take(self, limit: str | None, pace: LimitInterval | None) -> None:
        if limit is not None:
            self._kernel.change_own_pace(self._tables_of(limit), pace)
        elif pace is not None:
            self._kernel.change_pace(pace)
        self._changed()

    def _check_lease(self, sync_interval: float, limit: str | None) -> None:
        check_lease(sync_interval, self._timeout_s, self._kernel.lease_ns / SECOND_NS)
        for table in list(self._kernel.tables.values()):
            if table.limit.slots and limit in (None, table.name):
                check_slot_lease(sync_interval, self._timeout_s, table.limit.window)


def pace_of(sync_interval: float, min_sync_interval: float | None = None) -> LimitInterval:
    """Returns the sync interval and the shortest time between two exchanges in nanoseconds, both given in seconds.

    By default the shortest time is a tenth of the interval, but at least MIN_SYNC_INTERVAL. Raises InvalidSetting.
    """
    shortest = checked_pace(sync_interval, min_sync_interval)
    return LimitInterval(round(sync_interval * SECOND_NS), round(shortest * SECOND_NS))
