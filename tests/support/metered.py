"""Nodes that count usage, and receivers of their events, for tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from reconverge.clock import Clock, ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub.port import UsageHub, UsageLedger
from reconverge.hub.usage import PAGES, Counts, Period, Recorded, Retention, UsageBatch, UsageEvent, UsageKey, UsageRow
from reconverge.usage.driver import UsageDriver
from reconverge.usage.erasing import UsageErasing
from reconverge.usage.meter import Meter

T = TypeVar("T")
NOVEMBER = 1_793_491_200.0
"""2026-11-01T00:00:00Z, a Sunday."""
HOUR_S = 3600.0


class MeteredNode:
    """One process that charges and reports, on a test's clock."""

    def __init__(
        self,
        ledger: UsageLedger,
        clock: Clock,
        name: str,
        *,
        kept: Retention | None = None,
        orders: UsageErasing | None = None,
    ) -> None:
        self.meter = Meter(clock)
        self.name = name
        self.starts = 0
        self.driver = UsageDriver(
            self.meter,
            ledger,
            clock=clock,
            timeout_s=30.0,
            hub_name="test",
            kept=kept or Retention(),
            node=name,
            orders=orders,
            new_name=self._new_name,
        )

    def _new_name(self) -> str:
        self.starts += 1
        return f"{self.name}.{self.starts}"


def on(hub: UsageHub, work: Callable[[], Awaitable[T]]) -> T:
    """Runs `work` in a loop of its own, and releases the hub's connections afterwards."""

    async def run() -> T:
        try:
            return await work()
        finally:
            await hub.close()

    return asyncio.run(run())


async def rows_of(ledger: UsageLedger, period: Period) -> dict[UsageKey, Counts]:
    """Returns all rows of a period, of all shards and pages."""
    found: dict[UsageKey, Counts] = {}
    for shard in range(ledger.shards):
        for page in range(PAGES):
            for row in await ledger.totals(period, shard, page):
                assert row.key not in found, row
                found[row.key] = row.counts
    return found


class LosingLedger:
    """A ledger to which messages are lost, repeated or late, on order."""

    def __init__(self, ledger: UsageLedger) -> None:
        self._ledger = ledger
        self.faults: list[str] = []
        """The faults of the next batches: "lost", "unanswered", "twice", "late"; then none."""
        self._late: list[UsageBatch] = []

    @property
    def ledger(self) -> UsageLedger:
        """Returns this ledger, which passes all other calls on to the real one."""
        found: Any = self
        return cast("UsageLedger", found)

    async def record(self, batch: UsageBatch) -> Recorded:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "lost":
            raise HubUnavailable("connection", "lost by the test")
        if fault == "late":
            self._late.append(batch)
            raise HubUnavailable("timeout", "late by the test")
        answer = await self._ledger.record(batch)
        if fault == "twice":
            await self._ledger.record(batch)
        if fault == "unanswered":
            raise HubUnavailable("timeout", "unanswered by the test")
        return answer

    async def deliver_late(self) -> None:
        late, self._late = self._late, []
        for batch in late:
            await self._ledger.record(batch)

    def forget_late(self) -> None:
        self._late = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@dataclass
class OpenMeter:
    """A meter of OpenMeter: sums `valueProperty` by subject; drops events whose source and id it has seen."""

    event_type: str
    value: str
    seen: set[tuple[str, str]] = field(default_factory=set)
    sums: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0

    def ingest(self, event: Mapping[str, Any]) -> None:
        """Takes a CloudEvent in JSON, with all that the specification and OpenMeter require."""
        assert event["specversion"] == "1.0"
        for name in ("id", "source", "type", "subject", "time"):
            assert isinstance(event[name], str), name
            assert event[name], name
        assert event["type"] == self.event_type
        if (event["source"], event["id"]) in self.seen:
            self.duplicates += 1
            return
        self.seen.add((event["source"], event["id"]))
        self.sums[event["subject"]] += int(event["data"][self.value])


@dataclass
class StripeMeter:
    """A meter of Stripe that sums by customer; an `identifier` is unique within a rolling day."""

    event_name: str
    seen: set[str] = field(default_factory=set)
    sums: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0

    def create(self, event: Mapping[str, Any], *, now_s: float) -> None:
        """Takes the parameters of a meter event, with all that the API requires."""
        assert set(event) == {"event_name", "identifier", "timestamp", "payload"}
        assert event["event_name"] == self.event_name
        assert 0 < len(event["identifier"]) <= 100
        assert now_s - 35 * 86_400 <= event["timestamp"] <= now_s + 300
        assert all(isinstance(value, str) for value in event["payload"].values())
        if event["identifier"] in self.seen:
            self.duplicates += 1
            return
        self.seen.add(event["identifier"])
        self.sums[event["payload"]["stripe_customer_id"]] += int(event["payload"]["value"])


def batch_of(
    rows: Iterable[UsageRow] = (),
    *,
    account: str = "a",
    shard: int = 0,
    sequence: int = 1,
    answered: int = 0,
    leaving: Sequence[Period] | None = None,
) -> UsageBatch:
    return UsageBatch(account, shard, sequence, answered, tuple(rows), Retention(), leaving)


def row_of(cost: int, *, identity: str = "acme", limit: str = "api", route: str = "", hour: int = 498_000) -> UsageRow:
    """Returns a row of an hour, with as many requests as cost."""
    return UsageRow(Period("hour", hour), UsageKey(identity, limit, route), Counts(cost, cost, 0))


def costs_by_identity(events: Iterable[UsageEvent]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for event in events:
        sums[event.key.identity] += event.counts.cost
    return sums


def clock_in_november() -> ManualClock:
    return ManualClock(NOVEMBER)
