"""Goal: what is exported is billed once, and all of it. Method: receivers by documented schemas, in any order."""

from __future__ import annotations

import asyncio
import csv
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.usage import EVENTS_MAX, Counts, ExportLease, Period, Retention, UsageEvent, UsageKey
from reconverge.usage.events import (
    COLUMNS,
    EVENT_NAME_MAX,
    TYPE,
    cloud_event,
    csv_lines,
    event_id,
    json_lines,
    stripe_meter_event,
)
from reconverge.usage.export import GRACE_S, LEASE_S, Exporter
from reconverge.usage.periods import period_at
from reconverge_sync.memory import MemoryHub, MemoryUsage
from tests.support.metered import (
    HOUR_S,
    NOVEMBER,
    MeteredNode,
    OpenMeter,
    StripeMeter,
    batch_of,
    costs_by_identity,
    row_of,
)

HOUR = period_at("hour", NOVEMBER)
EVENT = UsageEvent(HOUR, UsageKey("acme", "api", "/users/{id}"), 0, Counts(12, 10, 3))


class Crash(Exception):
    """Raised by a receiver that does not answer."""


@pytest.fixture
def ledger(clock: ManualClock) -> MemoryUsage:
    """A hub of three shards that knows of no usage."""
    return MemoryHub(clock=clock, shards=3).usage


def charge(ledger: MemoryUsage, clock: ManualClock, name: str, *costs: tuple[str, int]) -> MeteredNode:
    """A node that has charged and reported."""
    node = MeteredNode(ledger, clock, name)
    for identity, cost in costs:
        node.meter.add(identity, "api", cost)
    assert asyncio.run(node.driver.report())
    return node


def test_a_period_is_exported_once_when_it_is_over(ledger: MemoryUsage, clock: ManualClock) -> None:
    """Not before its grace is over, and not again."""
    delivered: list[UsageEvent] = []
    exporter = Exporter(ledger, delivered.extend)
    charge(ledger, clock, "node", ("acme", 5), ("zeta", 7))
    clock.advance(HOUR_S + GRACE_S - 0.001)
    assert 0 == asyncio.run(exporter.run()).events
    clock.advance(0.001)
    assert 2 == asyncio.run(exporter.run()).events
    assert 0 == asyncio.run(exporter.run()).events

    assert {"acme": 5, "zeta": 7} == costs_by_identity(delivered)
    assert {HOUR} == {event.period for event in delivered}


def test_what_comes_late_is_a_further_event(ledger: MemoryUsage, clock: ManualClock) -> None:
    """A node that was cut off tells the last hour's usage after it was exported: the difference is exported."""
    delivered: list[UsageEvent] = []
    exporter = Exporter(ledger, delivered.extend)
    charge(ledger, clock, "node", ("acme", 5))
    cut_off = MeteredNode(ledger, clock, "cut off")
    cut_off.meter.add("acme", "api", 20)
    clock.advance(2 * HOUR_S)
    asyncio.run(exporter.run())
    asyncio.run(cut_off.driver.report())
    found = asyncio.run(exporter.run())

    assert [(0, 5), (1, 20)] == [(event.number, event.counts.cost) for event in delivered]
    assert (1, 1) == (found.events, found.late)
    assert 0 == asyncio.run(exporter.run()).events


def test_a_second_exporter_does_nothing(ledger: MemoryUsage, clock: ManualClock) -> None:
    """It waits until the first ends; if that was killed, until it has been silent for as long as its lease lasts."""
    delivered: list[UsageEvent] = []
    exporter = Exporter(ledger, delivered.extend)

    async def deliver(_: Sequence[UsageEvent]) -> None:
        clock.advance(LEASE_S - 1)
        second = await exporter.run()
        assert (False, LEASE_S * 1e6) == (second.leads, second.lease.until_us - begun_us if second.lease else 0)
        ledger.lead_export = killed  # type: ignore[method-assign,assignment]
        raise Crash

    async def killed(*_: object) -> ExportLease:
        """It says no more."""
        raise HubUnavailable("connection", "cut by the test")

    charge(ledger, clock, "node", ("acme", 5))
    clock.advance(2 * HOUR_S)
    begun_us = clock.wall_ns() // 1000
    with pytest.raises(Crash):
        asyncio.run(Exporter(ledger, deliver).run())
    del ledger.lead_export
    assert not asyncio.run(exporter.run()).leads
    clock.advance(1)
    assert asyncio.run(exporter.run()).leads

    assert {"acme": 5} == costs_by_identity(delivered)


def test_an_exporter_whose_delivery_has_failed_makes_room(ledger: MemoryUsage, clock: ManualClock) -> None:
    """Another one has the same events at once, and so has it itself; no run comes to nothing without a word."""
    delivered: list[UsageEvent] = []

    def fail(events: Sequence[UsageEvent]) -> None:
        failed.extend(events)
        raise Crash

    failed: list[UsageEvent] = []
    charge(ledger, clock, "node", ("acme", 5))
    clock.advance(2 * HOUR_S)
    with pytest.raises(Crash):
        asyncio.run(Exporter(ledger, fail).run())
    assert asyncio.run(Exporter(ledger, delivered.extend).run()).leads

    assert failed == delivered
    assert 1 == len(delivered)


def test_two_exporters_at_once_bill_once(ledger: MemoryUsage, clock: ManualClock) -> None:
    """Both lead, by accident; whatever they deliver twice has the same id and says the same."""

    class Careless(MemoryUsage):
        """A hub whose lease both have."""

        async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:  # see above
            """Everyone leads."""
            return (await super().lead_export(kind, exporter, keep_s))._replace(leads=True)

    careless = Careless(clock, shards=2)
    identities = [f"customer {number}" for number in range(50)]
    charge(careless, clock, "node", *((identity, 3) for identity in identities))
    clock.advance(2 * HOUR_S)
    meter = OpenMeter(TYPE, "cost")
    said: dict[str, UsageEvent] = {}

    async def deliver(events: Sequence[UsageEvent]) -> None:
        for event in events:
            await asyncio.sleep(0)
            assert event == said.setdefault(event_id("shop", event), event)
            meter.ingest(cloud_event("shop", event))

    async def both() -> None:
        await asyncio.gather(*(Exporter(careless, deliver).run() for _ in range(2)))

    asyncio.run(both())
    assert dict.fromkeys(identities, 3) == meter.sums
    assert meter.duplicates > 0


def test_a_crash_while_delivering_loses_and_doubles_nothing(ledger: MemoryUsage, clock: ManualClock) -> None:
    """An unconfirmed delivery comes again, with the same ids, though more was charged meanwhile."""
    meter = OpenMeter(TYPE, "cost")
    random = Random(7)
    node = charge(ledger, clock, "node", *((f"customer {number}", 2) for number in range(100)))
    clock.advance(2 * HOUR_S)

    def deliver(events: Sequence[UsageEvent]) -> None:
        for event in events:
            meter.ingest(cloud_event("shop", event))
            if random.random() < 0.1:
                clock.jump(-2 * HOUR_S)
                node.meter.add(event.key.identity, "api", 1)
                charged[event.key.identity] += 1
                clock.jump(2 * HOUR_S)
                raise Crash

    charged: Counter[str] = Counter({f"customer {number}": 2 for number in range(100)})
    for _ in range(500):
        try:
            if asyncio.run(Exporter(ledger, deliver).run()).leads:
                asyncio.run(node.driver.report())
        except Crash:
            asyncio.run(node.driver.report())
        clock.advance(GRACE_S)
        if len(meter.seen) > 400:
            random = Random(99)
    random.random = lambda: 1.0  # type: ignore[method-assign]  # no more crashes
    asyncio.run(node.driver.report())
    asyncio.run(Exporter(ledger, deliver).run())

    assert charged == meter.sums
    assert meter.duplicates > 0


def test_a_page_of_events_is_bounded(clock: ManualClock) -> None:
    """However many rows there are, so many events are issued at once, and all are in the end."""
    ledger = MemoryUsage(clock)
    count = 20 * EVENTS_MAX
    charge(ledger, clock, "node", *((f"{number}", 1) for number in range(9000)))
    charge(ledger, clock, "other", *((f"{number}", 1) for number in range(9000, count)))
    clock.advance(2 * HOUR_S)
    sizes: list[int] = []
    found = asyncio.run(Exporter(ledger, lambda events: sizes.append(len(events))).run())

    assert sum(sizes) == found.events
    assert max(sizes) <= EVENTS_MAX


def test_periods_that_were_never_exported_are_told_of(
    ledger: MemoryUsage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Their usage is not billed; an operator reads that in the log."""
    charge(ledger, clock, "node", ("acme", 5))
    clock.advance(10 * HOUR_S)
    with caplog.at_level(logging.ERROR):
        found = asyncio.run(Exporter(ledger, lambda _: None, kept=Retention(hour=4)).run())

    assert 5 == found.expired
    assert ["not exported" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize(("name", "wrong"), [("period", {"period": "week"}), ("grace", {"grace": -1})])
def test_a_wrong_setting_is_refused(name: str, wrong: dict[str, object], ledger: MemoryUsage) -> None:
    """The error names it."""
    with pytest.raises(InvalidSetting, match=name):
        Exporter(ledger, lambda _: None, **wrong)  # type: ignore[arg-type]


class TestReceivers:
    """Every event twice and in any order comes to what was charged."""

    @pytest.fixture
    def events(self, ledger: MemoryUsage, clock: ManualClock) -> list[UsageEvent]:
        """Three hours of two nodes, one of which reports late."""
        delivered: list[UsageEvent] = []
        exporter = Exporter(ledger, delivered.extend)
        random = Random(3)
        self.charged: Counter[str] = Counter()
        nodes = [MeteredNode(ledger, clock, name) for name in ("one", "two")]
        for _ in range(6):
            for node in nodes:
                for _ in range(200):
                    identity = f"customer {random.randrange(20)}"
                    cost = random.randrange(5)
                    node.meter.add(identity, "api", cost, random.choice(("", "/a", "/b")))
                    self.charged[identity] += cost
            asyncio.run(nodes[0].driver.report())
            clock.advance(HOUR_S / 2)
            asyncio.run(exporter.run())
        asyncio.run(nodes[1].driver.report())
        clock.advance(2 * HOUR_S)
        asyncio.run(exporter.run())
        assert {0, 1} == {event.number for event in delivered}
        return delivered

    def in_any_order(self, events: list[UsageEvent], take: Callable[[UsageEvent], None]) -> None:
        """Lets each be taken twice."""
        twice = events * 2
        Random(11).shuffle(twice)
        for event in twice:
            take(event)

    def test_openmeter_sums_to_what_was_charged(self, events: list[UsageEvent]) -> None:
        """A meter that sums `$.cost` of events of our type by subject, and drops known pairs of source and id."""
        meter = OpenMeter(TYPE, "cost")
        self.in_any_order(events, lambda event: meter.ingest(json.loads(json.dumps(cloud_event("shop", event)))))

        assert self.charged == meter.sums
        assert len(events) == meter.duplicates

    def test_stripe_sums_to_what_was_charged(self, events: list[UsageEvent], clock: ManualClock) -> None:
        """A meter that sums `value` by customer, and whose identifiers are unique."""
        meter = StripeMeter("api_requests")
        now_s = clock.wall_ns() / 1e9

        def take(event: UsageEvent) -> None:
            said = stripe_meter_event("shop", event, event_name="api_requests", customer=lambda name: f"cus_{name}")
            meter.create(said, now_s=now_s)

        self.in_any_order(events, take)
        assert {f"cus_{name}": cost for name, cost in self.charged.items()} == meter.sums
        assert len(events) == meter.duplicates

    def test_files_sum_to_what_was_charged(self, events: list[UsageEvent]) -> None:
        """JSON lines and CSV, after those with an id that has been there are left out."""
        lines = [json.loads(line) for line in json_lines("shop", events * 2).splitlines()]
        table = list(csv.DictReader(csv_lines("shop", events * 2, header=True).splitlines()))
        for rows in (lines, table):
            sums: Counter[str] = Counter()
            for row in {row["id"]: row for row in rows}.values():
                sums[row["identity"]] += int(row["cost"])
            assert self.charged == sums
            assert COLUMNS == tuple(rows[0])


class TestEvents:
    """The id and the content of an event."""

    def test_an_id_follows_from_what_is_counted(self) -> None:
        """Each part of it makes another id; what was counted does not."""
        key = EVENT.key
        others = [
            EVENT._replace(number=1),
            EVENT._replace(period=Period("hour", HOUR.number + 1)),
            EVENT._replace(period=Period("day", HOUR.number)),
            EVENT._replace(key=key._replace(identity="api", limit="acme")),
            EVENT._replace(key=key._replace(route="")),
            EVENT._replace(key=UsageKey("acme", "ap", "i/users/{id}")),
        ]
        ids = {event_id("shop", each) for each in (EVENT, *others)} | {event_id("shop2", EVENT)}

        assert 8 == len(ids)
        assert event_id("shop", EVENT) == event_id("shop", EVENT._replace(counts=Counts(1, 1, 1)))

    def test_an_id_stays_the_same_in_all_versions(self) -> None:
        """A receiver remembers it; with another one, a fleet that is updated in between would be billed twice."""
        assert "8cf2f10c8252c609ea28ed36e465cffb42c03358" == event_id("shop", EVENT)

    def test_a_cloud_event_says_all(self) -> None:
        """CloudEvents 1.0 defines it; the time is that of the period."""
        said = cloud_event("my shop", EVENT)
        assert {
            "specversion": "1.0",
            "type": "reconverge.usage",
            "source": "reconverge/my%20shop",
            "id": event_id("my shop", EVENT),
            "time": "2026-11-01T00:00:00Z",
            "subject": "acme",
            "datacontenttype": "application/json",
            "data": {
                "identity": "acme",
                "limit": "api",
                "route": "/users/{id}",
                "period": "hour",
                "start": "2026-11-01T00:00:00Z",
                "end": "2026-11-01T01:00:00Z",
                "number": 0,
                "cost": 12,
                "requests": 10,
                "refused": 3,
            },
        } == said
        assert "subject" not in cloud_event("shop", EVENT._replace(key=UsageKey("", "api", "")))

    def test_a_spreadsheet_takes_no_name_for_a_formula(self) -> None:
        """Identities come from outside."""
        key = UsageKey('=HYPERLINK("http://example.org")', "api", "")
        row = next(csv.reader([csv_lines("shop", [EVENT._replace(key=key)])]))

        assert '\'=HYPERLINK("http://example.org")' == row[COLUMNS.index("identity")]

    def test_what_stripe_would_refuse_is_refused_here(self) -> None:
        """A name of an event that is too long, and a value that there is not."""
        stripe_meter_event("shop", EVENT, event_name="x" * EVENT_NAME_MAX, value="requests")
        for wrong in ("x" * (EVENT_NAME_MAX + 1), ""):
            with pytest.raises(InvalidSetting, match="event_name"):
                stripe_meter_event("shop", EVENT, event_name=wrong)
        with pytest.raises(InvalidSetting, match="value"):
            stripe_meter_event("shop", EVENT, event_name="x", value="price")


def test_usage_before_the_first_export_is_exported(ledger: MemoryUsage, clock: ManualClock) -> None:
    """The export begins with the first period in which there was any usage, not with the day on which it begins."""
    clock.advance(100 * HOUR_S)
    rows = [row_of(1, hour=HOUR.number + hour) for hour in range(100)]
    asyncio.run(ledger.record(batch_of(rows)))
    found = asyncio.run(Exporter(ledger, lambda _: None, grace=0).run())

    assert 100 == found.events


def test_a_name_that_no_file_can_hold_does_not_hold_up_an_export(ledger: MemoryUsage, clock: ManualClock) -> None:
    """Identities come from outside, with any letters; each format can be written down."""
    delivered: list[UsageEvent] = []
    charge(ledger, clock, "node", ("\udc80", 5), ("\ud800\n", 7))
    clock.advance(2 * HOUR_S)
    asyncio.run(Exporter(ledger, delivered.extend).run())

    assert 12 == costs_by_identity(delivered).total()
    for text in (
        csv_lines("shop", delivered),
        json_lines("shop", delivered),
        json.dumps(cloud_event("", delivered[0])),
    ):
        assert text.encode()
