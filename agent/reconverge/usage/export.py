"""Exports the usage of past periods as events for billing; a receiver must bill each event once."""

# Theory of operation.
#
# The hub stores an event with its number and its counts before the event is delivered, and keeps it until the exporter
# confirms the delivery. If an exporter dies in between, the next one delivers the same event again; two exporters at
# once deliver the same events. The id of an event follows from its contents (`events.py`), so a receiver that
# identifies events by their ids counts each event once. A lease lets one exporter work at a time, but only to save
# work.
#
#     close the period  ->  issue events  ->  deliver  ->  confirm  ->  ...  ->  finish the period
#
# A period is closed `grace` seconds after its end, when running nodes have reported it. The end is measured by the
# hub's clock, which the hub's answer about the lease contains: an exporter whose own clock is ahead would close periods
# that still go on. If a node that was cut off reports usage of a closed period, the hub marks the period as late, and
# the next run issues further events with the differences.
#
# `finish` marks a period as exported. The hub's next answer to each node says so, and the node drops the rows that it
# has reported of the period. A hub that has lost its data numbers events from the beginning again: usage that was
# exported before gets the same ids again, and receivers drop it (decision record 0121).

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, TypeAlias

from reconverge.clock import Seconds
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.port import UsageLedger
from reconverge.hub.usage import HOUR, PAGES, ExportLease, ExportMarks, Period, Retention, UsageEvent
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.settings import checked_seconds
from reconverge.usage.periods import checked_kept, checked_kind, period_at
from reconverge.usage.reading import checked_ledger

logger = logging.getLogger("reconverge")

GRACE_S: Final = 60.0
"""The seconds between the end of a period and its export: time for several reports of each node."""
GRACE_MAX_S: Final = 31 * 86_400.0
LEASE_S: Final = 60.0
"""The lease of an exporter in seconds, from its last renewal; at the end of a run the exporter gives it back."""
HOST_MAX: Final = 64
"""The most characters of the host's name in an exporter's name."""

Deliver: TypeAlias = Callable[[Sequence[UsageEvent]], Awaitable[None] | None]
"""A function that delivers events. They count as delivered when it returns; if it raises, it gets them again."""


@dataclass(slots=True)
class ExportRun:
    """The result of one call of `Exporter.run`: how much was exported, and which exporter has the lease."""

    leads: bool = True
    """Whether this exporter has got the lease, the right to export. If False, it has done nothing."""
    events: int = 0
    """The number of events that were delivered, including repeated ones."""
    late: int = 0
    """The number of delivered events about periods that had been exported before."""
    periods: int = 0
    """The number of periods whose export was finished, in all shards together."""
    expired: int = 0
    """The number of periods, in all shards, that may not have been exported because the hub keeps them no longer."""
    lease: ExportLease | None = None
    """The name of the exporter that had the lease when the run began, and the end of that lease, by the hub's clock."""


class Exporter:
    """Exports the usage of a namespace in periods of one kind; each call of `run` exports the periods that are due.

    Args:
        ledger: the usage ledger of a hub: `hub.usage`.
        deliver: a function or coroutine function that takes the events, in order. It may get an event repeatedly.
        period: minute, hour, day or month.
        grace: seconds after the end of a period before it is exported.
        kept: how many periods the hub keeps, as configured on the nodes.

    Raises:
        InvalidSetting: there is no such kind of period, the grace is negative, or the ledger or `deliver` is none.
    """

    def __init__(
        self,
        ledger: UsageLedger,
        deliver: Deliver,
        *,
        period: str = HOUR,
        grace: Seconds = GRACE_S,
        kept: Retention | None = None,
    ) -> None:
        grace_s = checked_seconds("grace", grace, 0.0, GRACE_MAX_S)
        given: object = deliver
        if not callable(given):
            problem = "is no function; write one that takes the events and delivers them, such as a coroutine function"
            raise InvalidSetting("deliver", given, problem)
        self._ledger = checked_ledger(ledger, "Exporter")
        self._deliver = deliver
        self._kind = checked_kind(period)
        self._grace_s = grace_s
        self._kept = int(getattr(checked_kept(kept), self._kind))
        self._name = f"{socket.gethostname()[:HOST_MAX]}:{os.getpid()}:{token_hex(4)}"
        self._logged = LoggedOnce()

    async def run(self) -> ExportRun:
        """Exports the usage of all periods that are due. Does nothing while another exporter has the lease.

        Raises HubUnavailable, and the errors of `deliver`; the next run of any exporter then delivers the same events
        again.
        """
        lease = await self._lead()
        run = ExportRun(leads=lease.leads, lease=lease)
        if run.leads:
            try:
                await self._export_due(run, lease.hub_us / 1_000_000)
            finally:
                with contextlib.suppress(HubUnavailable):  # then the next exporter waits for the lease's end
                    await self._ledger.lead_export(self._kind, self._name, 0)
        return run

    async def _export_due(self, run: ExportRun, hub_s: float) -> None:
        last = period_at(self._kind, hub_s - self._grace_s).number - 1
        for shard in range(self._ledger.shards):
            marks = await self._ledger.marks(self._kind, shard)
            for period in self._due(marks, last, run):
                await self._export(period, shard, marks, run)

    async def _lead(self) -> ExportLease:
        return await self._ledger.lead_export(self._kind, self._name, LEASE_S)

    def _due(self, marks: ExportMarks, last: int, run: ExportRun) -> Iterator[Period]:
        """Yields the periods to be exported, the oldest first, up to the period with the number `last`.

        Periods whose usage has changed after their export come before all others.
        """
        if marks.first is None:
            return
        first = marks.first if marks.done is None else marks.done + 1
        oldest = max(first, last - self._kept + 1)
        if oldest > first:
            run.expired += oldest - first
            if self._logged.is_new("expired"):
                logger.error(
                    "reconverge: the usage of %d periods (%s) was not exported before the hub ceased to keep it, and is"
                    " not billed; run the exporter more often",
                    oldest - first,
                    self._kind,
                )
        late = (number for number in sorted(marks.late) if marks.done is not None and number <= marks.done)
        for number in (*late, *range(oldest, last + 1)):
            yield Period(self._kind, number)

    async def _export(self, period: Period, shard: int, marks: ExportMarks, run: ExportRun) -> None:
        ledger = self._ledger
        was_done = marks.done is not None and period.number <= marks.done
        if (marks.closed is None or period.number > marks.closed) and not await ledger.close_period(period, shard):
            return  # the hub has another leader by now, whose clock is behind
        for page in range(PAGES):
            while events := await ledger.issue(period, shard, page):
                events = sorted(events)
                delivered = self._deliver(events)
                if inspect.isawaitable(delivered):
                    await delivered
                await ledger.confirm(events, shard, page)
                run.events += len(events)
                run.late += len(events) if was_done else 0
                await self._lead()
        await ledger.finish(period, shard, marks.late.get(period.number))
        run.periods += 1
