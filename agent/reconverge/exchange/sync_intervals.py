"""At which pace an agent and its limits are exchanged: what it says itself, and what is published over that."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.kernel import Kernel, Pace, WaitTable
from reconverge.settings import check_lease, checked_pace


class Pacing:
    """The paces of one agent, which is `None` where a limit is its name.

    `tables_of` knows a limit's tables, `told` is called when a pace has changed.
    """

    def __init__(
        self,
        kernel: Kernel,
        own: Pace,
        *,
        timeout_s: float,
        tables_of: Callable[[str], Iterable[WaitTable]],
        told: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._timeout_s = timeout_s
        self._tables_of = tables_of
        self._told = told
        self._own: dict[str | None, Pace | None] = {None: own}
        self._published: dict[str | None, float] = {}

    def plan(
        self, sync_interval: float | None, min_sync_interval: float | None, *, limit: str | None
    ) -> Callable[[], None]:
        """See `Agent.plan_pace`."""
        pace = None
        if sync_interval is None and limit is None:
            raise InvalidSetting("sync_interval", None, "is the agent's, which has one; name a limit, or say how long")
        if sync_interval is not None:
            pace = pace_of(sync_interval, min_sync_interval)
            self._check_lease(sync_interval)

        def change() -> None:
            self._own[limit] = pace
            if limit not in self._published:
                self._take(limit, pace)

        return change

    def publish(self, limit: str | None, sync_interval: float | None) -> None:
        """Exchange at the interval that is published, or at the node's own. Raises InvalidSetting, at its own."""
        before = self._published.pop(limit, None)
        try:
            if sync_interval is not None:
                self._check_lease(sync_interval)
                self._published[limit] = sync_interval
        finally:
            published = self._published.get(limit)
            if published != before:
                self._take(limit, self._own.get(limit) if published is None else pace_of(published))

    def forget_published(self) -> None:
        """Whatever was published is to be taken anew."""
        self._published.clear()

    def shortest_ns(self) -> int:
        """The agent's own interval, or the published one: whichever is shorter."""
        own = self._own[None]
        return self._kernel.interval_ns if own is None else min(self._kernel.interval_ns, own.interval_ns)

    def _take(self, limit: str | None, pace: Pace | None) -> None:
        if limit is not None:
            self._kernel.change_own_pace(self._tables_of(limit), pace)
        elif pace is not None:
            self._kernel.change_pace(pace)
        self._told()

    def _check_lease(self, sync_interval: float) -> None:
        check_lease(sync_interval, self._timeout_s, self._kernel.lease_ns / SECOND_NS)


def pace_of(sync_interval: float, min_sync_interval: float | None = None) -> Pace:
    """Both in nanoseconds. Raises InvalidSetting."""
    shortest = checked_pace(sync_interval, min_sync_interval)
    return Pace(round(sync_interval * SECOND_NS), round(shortest * SECOND_NS))
