"""Goal: every hub adds usage up alike, and bills nothing twice. Method: claims that all hubs share; twins compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.port import AddressLedger, Hub, UsageHub, UsageLedger
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.hub.usage import (
    AHEAD_MS,
    KINDS,
    OTHERS,
    PAGES,
    REGISTERS,
    AddressReport,
    Counts,
    ExportLease,
    NodeLoad,
    Period,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
    field_of,
    page_of,
    shard_of,
)
from reconverge.testing.claims.scenes.trial import Trial
from reconverge.usage.periods import period_at
from reconverge_sync.memory import MemoryHub, MemoryUsage
from reconverge_sync.merge.addresses import AddressShard
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.redis.usage import RedisAddresses, RedisUsage
from tests.support.fixtures.servers import shop_url
from tests.support.hubs.fleet_on_mqtt import ShowingFleet
from tests.support.hubs.ways import AtABroker, OnCluster, OnRedis
from tests.support.metered import HOUR_S, NOVEMBER, batch_of, clock_in_november, on, row_of, rows_of
from tests.support.servers import RedisServer

HOUR = row_of(0).period
LATER = Period("hour", HOUR.number + 1)
PRESENT = int(NOVEMBER // HOUR_S)
"""The hour in which the clock of a test begins."""
HOUR_NS = 3600 * SECOND_NS
HOUR_US = 3600 * 10**6
PATIENT = HubSettings("usage", 30.0)


def last_hour() -> Period:
    """By the machine's clock, as servers have it that no test tells the time."""
    return Period("hour", int(SystemClock.wall_ns() // 10**9 // HOUR_S) - 1)


async def issued(ledger: UsageLedger, period: Period = HOUR, shard: int = 0) -> list[UsageEvent]:
    """All events of a period that are not confirmed."""
    return sorted([event for page in range(PAGES) for event in await ledger.issue(period, shard, page)])


async def confirm(ledger: UsageLedger, events: list[UsageEvent], shard: int = 0) -> None:
    """They were delivered."""
    for event in events:
        await ledger.confirm([event], shard, page_of(field_of(event.key)))


def addresses_of(ledger: UsageLedger) -> AddressLedger:
    """The ledger, as one that merges addresses."""
    found: object = ledger
    assert isinstance(found, AddressLedger)
    return found


def sketch_of(ranks: dict[int, int]) -> bytes:
    """The registers of an identity, all others being 0."""
    return bytes(ranks.get(number, 0) for number in range(REGISTERS))


class UsageClaims(Trial):
    """Promises of every ledger."""

    merges_addresses: ClassVar[bool] = True

    def need_addresses(self) -> None:
        """End the test, as skipped, if the ledger merges none and says so."""
        if not self.merges_addresses:
            pytest.skip("this ledger merges no addresses")

    @pytest.fixture
    async def ledger(self) -> AsyncIterator[UsageLedger]:
        """That of a hub which knows of no usage."""
        self.clock = clock_in_november()
        hub = self.make_hub(self.clock)
        assert isinstance(hub, UsageHub)
        yield hub.usage
        await hub.close()

    async def test_the_total_is_the_sum_of_what_accounts_said_last(self, ledger: UsageLedger) -> None:
        """An account's report replaces its former one, whether it is more or less."""
        await ledger.record(batch_of([row_of(5), row_of(7, identity="zeta", route="/ä")]))
        await ledger.record(batch_of([row_of(4)], account="b"))
        await ledger.record(batch_of([row_of(9)], sequence=2, answered=1))
        await ledger.record(batch_of([row_of(3)], account="b", sequence=2, answered=1))

        found = await rows_of(ledger, HOUR)

        assert 12 == found[UsageKey("acme", "api", "")].cost
        assert 7 == found[UsageKey("zeta", "api", "/ä")].cost
        assert {} == await rows_of(ledger, LATER)

    async def test_a_batch_that_is_repeated_or_late_changes_nothing(self, ledger: UsageLedger) -> None:
        """A sequence that has not risen is not merged, and the answer says so."""
        first, second = batch_of([row_of(5)]), batch_of([row_of(9)], sequence=2, answered=1)
        await ledger.record(first)
        assert (1, True) == (await ledger.record(second))[:2]
        for old in (first, second, first):
            assert (2, False) == (await ledger.record(old))[:2]

        assert 9 == (await rows_of(ledger, HOUR))[row_of(0).key].cost

    async def test_a_ledger_that_knows_less_than_it_has_answered_merges_nothing(self, ledger: UsageLedger) -> None:
        """However often the account says it, until it has heard of that."""
        await ledger.record(batch_of([row_of(5)], sequence=3))
        for sequence in (5, 6):
            answer = await ledger.record(batch_of([row_of(9)], sequence=sequence, answered=4))
            assert (3, False) == answer[:2]

        assert (await ledger.record(batch_of([row_of(9)], sequence=7, answered=3))).merged

        assert 9 == (await rows_of(ledger, HOUR))[row_of(0).key].cost

    async def test_what_an_account_has_used_stays_when_it_leaves(self, ledger: UsageLedger) -> None:
        """Its late batches change nothing any more."""
        await ledger.record(batch_of([row_of(5)]))
        await ledger.record(batch_of(sequence=2, answered=1, leaving=[HOUR]))
        assert not (await ledger.record(batch_of([row_of(6)], sequence=3, answered=2))).merged
        await ledger.record(batch_of([row_of(4)], account="a again"))

        assert 9 == (await rows_of(ledger, HOUR))[row_of(0).key].cost

    async def test_an_event_is_the_same_until_it_is_confirmed(self, ledger: UsageLedger) -> None:
        """Later usage is in further events, with further numbers, and all sum to the total."""
        await ledger.record(batch_of([row_of(5), row_of(1, identity="zeta")]))
        first = await issued(ledger)
        assert [("acme", 0, 5), ("zeta", 0, 1)] == [(e.key.identity, e.number, e.counts.cost) for e in first]
        assert first == await issued(ledger)
        await ledger.record(batch_of([row_of(8)], sequence=2, answered=1))
        both = await issued(ledger)
        late = UsageEvent(HOUR, row_of(0).key, 1, Counts(3, 3, 0))
        assert sorted([*first, late]) == both
        await confirm(ledger, first)
        assert [late] == await issued(ledger)
        await confirm(ledger, [late])
        await confirm(ledger, first)

        assert [] == await issued(ledger)

    async def test_what_is_given_back_late_is_an_event_of_less_than_nothing(self, ledger: UsageLedger) -> None:
        """So the events of a row sum to its total in any case."""
        await ledger.record(batch_of([row_of(5)]))
        await confirm(ledger, await issued(ledger))
        await ledger.record(batch_of([row_of(2)], sequence=2, answered=1))

        assert [(1, -3)] == [(event.number, event.counts.cost) for event in await issued(ledger)]

    async def test_what_is_recorded_in_a_closed_period_is_late(self, ledger: UsageLedger) -> None:
        """The mark goes when the period is finished, unless more has come since it was read."""
        await ledger.record(batch_of([row_of(5), row_of(1, hour=LATER.number)]))
        await ledger.close_period(HOUR, 0)
        assert {} == (await ledger.marks("hour", 0)).late
        await ledger.record(batch_of([row_of(6), row_of(2, hour=LATER.number)], sequence=2, answered=1))
        marks = await ledger.marks("hour", 0)
        assert (HOUR.number, HOUR.number, None, [HOUR.number]) == (*marks[:3], list(marks.late))
        await ledger.record(batch_of([row_of(7)], sequence=3, answered=2))
        await ledger.finish(HOUR, 0, marks.late[HOUR.number])
        marks = await ledger.marks("hour", 0)
        assert (HOUR.number, [HOUR.number]) == (marks.done, list(marks.late))
        await ledger.finish(HOUR, 0, marks.late[HOUR.number])

        assert {} == (await ledger.marks("hour", 0)).late
        assert (None, None, None, {}) == await ledger.marks("day", 0)

    async def test_nodes_hear_what_is_done(self, ledger: UsageLedger) -> None:
        """With the answer to any batch."""
        await ledger.finish(HOUR, 0, None)
        await ledger.finish(Period("hour", HOUR.number - 5), 0, None)

        assert {"hour": HOUR.number} == (await ledger.record(batch_of([row_of(1)]))).done

    async def test_one_exporter_leads_until_its_lease_is_over(self, ledger: UsageLedger) -> None:
        """It may prolong that; exporters of other periods are none of its business."""
        assert (await ledger.lead_export("hour", "one", 60)).leads
        assert not (await ledger.lead_export("hour", "two", 60)).leads
        assert (await ledger.lead_export("day", "two", 60)).leads
        self.clock.advance(59)
        assert (await ledger.lead_export("hour", "one", 60)).leads
        self.clock.advance(60)

        assert (await ledger.lead_export("hour", "two", 60)).leads

    async def test_the_load_of_a_node_is_what_it_said_last(self, ledger: UsageLedger) -> None:
        """Of one that has said nothing for two minutes there is none."""
        await ledger.record(batch_of()._replace(load=NodeLoad("one", 10.5, 100.25, 0)))
        self.clock.advance(119)
        await ledger.record(batch_of(account="b")._replace(load=NodeLoad("two", 1, 2, 0)))
        assert {("one", 10.5, 100.25), ("two", 1, 2)} == {load[:3] for load in await ledger.loads()}
        self.clock.advance(1)

        assert ["two"] == [load.node for load in await ledger.loads()]

    async def test_all_nodes_are_told_the_secret_that_was_proposed_first(self, ledger: UsageLedger) -> None:
        """A reader proposes none, and hears of none until then."""
        self.need_addresses()

        addresses = addresses_of(ledger)

        assert b"" == await addresses.address_secret()
        assert b"first \x00" == await addresses.address_secret(b"first \x00")
        assert b"first \x00" == await addresses.address_secret(b"second")
        assert b"first \x00" == await addresses.address_secret()

    async def test_a_sketch_keeps_the_highest_rank_of_all_nodes(self, ledger: UsageLedger) -> None:
        """A late or repeated report changes nothing; hours, shards and secrets are apart."""
        self.need_addresses()

        addresses, last = addresses_of(ledger), ledger.shards - 1
        for risen in (bytes([0, 3, 7, 2]), bytes([0, 5, 255, 57]), bytes([0, 3, 7, 2])):
            report = AddressReport(PRESENT - 1, last, b"secret", {"n": risen, "é\x00": bytes([1, 1])})
            assert 0 == await addresses.note_addresses(report)
        await addresses.note_addresses(AddressReport(PRESENT, last, b"secret", {"acme": bytes([4, 200])}))

        expected = {"n": sketch_of({0: 5, 7: 2, 255: 57}), "é\x00": sketch_of({1: 1})}

        assert expected == await addresses.address_sketches(PRESENT - 1, last, b"secret")
        assert {"acme": sketch_of({4: 57})} == await addresses.address_sketches(PRESENT, last, b"secret")
        assert {} == await addresses.address_sketches(PRESENT - 1, last, b"another")
        assert {} == await addresses.address_sketches(PRESENT - 1, 0, b"secret")

    async def test_what_begins_further_ahead_than_clocks_differ_is_refused(self, ledger: UsageLedger) -> None:
        """A period is counted from AHEAD_MS before its beginning by the hub's clock; the answer names what is not."""
        ahead, later = row_of(5, hour=PRESENT + 1), row_of(7, hour=PRESENT + 1, identity="zeta")
        self.clock.advance_ns(HOUR_NS - AHEAD_MS * MILLISECOND_NS - MICROSECOND_NS)
        answer = await ledger.record(batch_of([ahead, row_of(1, hour=PRESENT), later]))
        assert (True, (0, 2)) == (answer.merged, answer.refused)
        assert self.clock.wall_ns() // MICROSECOND_NS == answer.hub_us
        self.clock.advance_ns(MICROSECOND_NS)

        assert () == (await ledger.record(batch_of([ahead], sequence=2, answered=1))).refused

        assert [5] == [counts.cost for counts in (await rows_of(ledger, ahead.period)).values()]
        assert [1] == [counts.cost for counts in (await rows_of(ledger, Period("hour", PRESENT))).values()]

    async def test_what_is_older_than_is_kept_is_refused(self, ledger: UsageLedger) -> None:
        """From the end of the last period on that is kept after it, by the hub's clock; of each kind by its length."""
        kept = Retention(minute=2, hour=2, day=2, month=2)
        rows = [row_of(1)._replace(period=Period(kind, period_at(kind, NOVEMBER).number - 2)) for kind in KINDS]
        assert () == (await ledger.record(batch_of(rows)._replace(kept=kept))).refused
        older = [row._replace(period=Period(row.period.kind, row.period.number - 1)) for row in rows]
        answer = await ledger.record(batch_of([*older, rows[0]], account="b")._replace(kept=kept))

        assert (0, 1, 2, 3) == answer.refused

        assert [2, 1, 1, 1] == [(await rows_of(ledger, row.period))[row.key].cost for row in rows]
        assert [{}] * 4 == [await rows_of(ledger, row.period) for row in older]

    async def test_what_an_account_has_told_of_is_replaced_at_any_time(self, ledger: UsageLedger) -> None:
        """A refusal means that the hub has nothing of it: so a clock of the hub that goes back refuses none of this."""
        await ledger.record(batch_of([row_of(5, hour=PRESENT)]))
        self.clock.jump(-10 * HOUR_S)
        answer = await ledger.record(batch_of([row_of(8, hour=PRESENT)], sequence=2, answered=1))

        assert (True, ()) == (answer.merged, answer.refused)
        assert (0,) == (await ledger.record(batch_of([row_of(1, hour=PRESENT)], account="b"))).refused

        assert 8 == (await rows_of(ledger, Period("hour", PRESENT)))[row_of(0).key].cost

    async def test_a_node_whose_clock_is_wrong_has_nothing_of_others_forgotten(self, ledger: UsageLedger) -> None:
        """However far ahead it is, and though it wants next to nothing to be kept."""
        kinds = [row_of(5)._replace(period=period_at(kind, NOVEMBER)) for kind in KINDS]
        await ledger.record(batch_of(kinds))
        ahead = [row_of(1)._replace(period=period_at(kind, NOVEMBER + 5e7)) for kind in KINDS]
        least = batch_of(ahead, account="b")._replace(kept=Retention(0, 0, 0, 0))

        assert (0, 1, 2, 3) == (await ledger.record(least)).refused

        assert [5] * 4 == [(await rows_of(ledger, row.period))[row.key].cost for row in kinds]

    async def test_a_period_is_exported_when_it_is_over_by_the_hubs_clock(self, ledger: UsageLedger) -> None:
        """An exporter whose own clock is ahead neither closes nor finishes one that goes on."""
        period = Period("hour", PRESENT)
        await ledger.record(batch_of([row_of(5, hour=PRESENT)]))
        self.clock.advance_ns(HOUR_NS - MICROSECOND_NS)
        assert not await ledger.close_period(period, 0)
        await ledger.finish(period, 0, None)
        assert (PRESENT, None, None, {}) == await ledger.marks("hour", 0)
        self.clock.advance_ns(MICROSECOND_NS)
        assert await ledger.close_period(period, 0)
        await ledger.finish(period, 0, None)

        assert (PRESENT, PRESENT, PRESENT, {}) == await ledger.marks("hour", 0)

    async def test_an_exporter_hears_which_one_leads_and_until_when(self, ledger: UsageLedger) -> None:
        """By the hub's clock; one that makes room is followed at once."""
        now_us = int(NOVEMBER * 1e6)
        assert ExportLease(True, "one", now_us + 60_000_000, now_us) == await ledger.lead_export("hour", "one", 60)
        self.clock.advance(1)
        then_us, until_us = now_us + 1_000_000, now_us + 60_000_000
        assert ExportLease(False, "one", until_us, then_us) == await ledger.lead_export("hour", "two", 60)
        await ledger.lead_export("hour", "two", 0)
        assert not (await ledger.lead_export("hour", "two", 60)).leads
        await ledger.lead_export("hour", "one", 0)

        assert (await ledger.lead_export("hour", "two", 60)).leads

    async def test_sketches_are_of_the_hour_that_it_is_by_the_hubs_clock_and_of_the_one_before(
        self, ledger: UsageLedger
    ) -> None:
        """A node's report with another date is left out, and has nothing of others forgotten."""
        self.need_addresses()

        addresses, told = addresses_of(ledger), {"acme": bytes([4, 2])}
        found = [
            await addresses.note_addresses(AddressReport(PRESENT + hour, 0, b"secret", told))
            for hour in (-1, 0, -2, 1, 10_000)
        ]

        assert [0, 0, 1, 1, 1] == found

        assert told.keys() == (await addresses.address_sketches(PRESENT - 1, 0, b"secret")).keys()

    async def test_shards_know_nothing_of_each_other(self, ledger: UsageLedger) -> None:
        """Each has its own sequences, rows, marks and events."""
        last = ledger.shards - 1
        await ledger.record(batch_of([row_of(5)]))
        await ledger.record(batch_of([row_of(7)], shard=last))
        await ledger.close_period(HOUR, last)

        assert [5] == [event.counts.cost for event in await issued(ledger)]
        assert [7] == [event.counts.cost for event in await issued(ledger, shard=last)]
        assert None is (await ledger.marks("hour", 0)).closed


class TestMemoryUsage(UsageClaims):
    """The definition."""

    def make_hub(self, clock: ManualClock) -> Hub:
        return MemoryHub(clock=clock, shards=2)


class TestRedisUsage(OnRedis, UsageClaims):
    """Its twin in Lua."""

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        return RedisHub(url, settings, clock=self.clock, shards=2)


@pytest.mark.slow
class TestClusterUsage(OnCluster, UsageClaims):
    """Each shard on its server."""


class TestMqttUsage(AtABroker, UsageClaims):
    """Each shard at the member that was elected for it, to which the others send calls."""

    merges_addresses = False

    def make_hub(self, clock: ManualClock) -> Any:
        return ShowingFleet(f"{self.url}?shards=2", hub_clock=clock)


async def test_an_embedded_hub_counts_usage(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts its server for that."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    hub = open_hub("embedded://usage", PATIENT)
    assert isinstance(hub, UsageHub)
    await hub.usage.record(batch_of([row_of(5, hour=last_hour().number)]))
    found = await rows_of(hub.usage, last_hour())
    await hub.close()

    assert {row_of(0).key: Counts(5, 5, 0)} == found


async def test_the_rights_that_agents_have_are_enough_for_usage(acl_redis: RedisServer) -> None:
    """No command beyond those that the documents list is used, and no key beyond those of the namespace."""
    hub = RedisHub(shop_url(acl_redis), HubSettings("shop", 30.0))
    hour = last_hour()
    ledger = hub.usage
    await ledger.record(batch_of([row_of(5, hour=hour.number)])._replace(load=NodeLoad("one", 1, 1, 0)))
    await ledger.close_period(hour, 0)
    assert 1 == len(await ledger.loads())
    assert (await ledger.lead_export("hour", "one", 60)).leads
    await ledger.record(batch_of([row_of(6, hour=hour.number)], sequence=2, answered=1, leaving=[hour]))
    await confirm(ledger, await issued(ledger, hour))
    await ledger.finish(hour, 0, (await ledger.marks("hour", 0)).late[hour.number])
    await ledger.address_secret(b"secret")
    await ledger.note_addresses(AddressReport(hour.number, 0, b"secret", {"acme": bytes([1, 1])}))
    assert 1 == len(await ledger.address_sketches(hour.number, 0, b"secret"))
    await hub.close()


@pytest.fixture
async def hub(redis_server: RedisServer) -> AsyncIterator[RedisHub]:
    """At an empty Redis, by its own clock."""
    hub = RedisHub(redis_server.url, PATIENT)
    yield hub
    await hub.close()


async def test_every_key_of_usage_ends_by_itself(hub: RedisHub) -> None:
    """No operation leaves a key without a time to live."""
    hour = last_hour()
    ledger = hub.usage
    await ledger.record(batch_of([row_of(5, hour=hour.number)])._replace(load=NodeLoad("one", 1, 1, 0)))
    await ledger.close_period(hour, 0)
    await issued(ledger, hour)
    await ledger.lead_export("hour", "one", 60)
    await ledger.address_secret(b"secret")
    await ledger.note_addresses(AddressReport(hour.number, 0, b"secret", {"acme": bytes([1, 1])}))
    keys = await hub._call("KEYS", "*")
    assert isinstance(keys, list)
    assert 10 == len(keys), keys

    assert all(left > 0 for left in [int(str(await hub._call("PTTL", key))) for key in keys])


async def test_a_node_that_wants_less_to_be_kept_has_nothing_of_others_end_earlier(hub: RedisHub) -> None:
    """The total of a period lives as long as any of its nodes wants; a month's for more than a year, by default."""
    row = row_of(5)._replace(period=period_at("month", SystemClock.wall_ns() / SECOND_NS))
    for account, kept in (("a", Retention()), ("b", Retention(0, 0, 0, 0))):
        assert () == (await hub.usage.record(batch_of([row], account=account)._replace(kept=kept))).refused
    keys = await hub._call("KEYS", "*:t:*")
    assert isinstance(keys, list)
    assert 1 == len(keys)

    assert int(str(await hub._call("PTTL", keys[0]))) > 400 * 86_400_000


async def test_what_is_no_usage_is_a_failure_of_the_hub(hub: RedisHub, redis_server: RedisServer) -> None:
    """Values that another program has left there raise HubUnavailable, and nothing else."""
    redis_server.command("HSET", f"usage:{{0}}:u1:t:{HOUR}:0", "no key", "no counts")
    with pytest.raises(HubUnavailable, match="cannot be read"):
        await hub.usage.totals(HOUR, 0, 0)


async def test_a_hub_without_room_counts_under_others(redis_server: RedisServer) -> None:
    """Nothing is lost, no two rows of OTHERS have one key, and both twins do the same."""
    clock = clock_in_november()
    hub = RedisHub(redis_server.url, PATIENT, clock=clock)
    rows = [row_of(1, identity=f"customer {number}") for number in range(100)]
    small = RedisUsage(hub._call, lambda shard: f"usage:{{{shard}}}:", shards=1, clock=clock, rows_max=2)
    memory = MemoryUsage(clock, rows_max=2)
    for account, cost in (("a", 1), ("b", 2)):
        batch = batch_of([row._replace(counts=Counts(cost, 1, 0)) for row in rows], account=account)
        assert await memory.record(batch) == await small.record(batch)
    found = await rows_of(small, HOUR)
    assert await rows_of(memory, HOUR) == found
    assert 300 == sum(counts.cost for counts in found.values())
    assert 2 * PAGES == sum(key.identity != OTHERS for key in found)
    await hub.close()


async def test_a_hub_without_room_for_sketches_keeps_the_first(hub: RedisHub) -> None:
    """It says how many it has left out, and goes on with those that it has; both twins do the same."""
    now_us = HOUR.number * HOUR_US
    small = RedisAddresses(hub._call, hub.usage._run, hub.usage._name, given_time=lambda: str(now_us), sketches_max=2)
    memory = AddressShard(sketches_max=2)
    for names, left_out in (("a", 0), ("abc", 1), ("cd", 2), ("ab", 0)):
        risen = {name: bytes([ord(name), len(names)]) for name in names}
        report = AddressReport(HOUR.number, 0, b"secret", risen)
        assert (left_out, left_out) == (await small.note(report), memory.note(report, hub_us=now_us))
    kept = {name: sketch_of({ord(name): 3}) for name in "ab"}
    assert kept == await small.sketches(HOUR.number, 0, b"secret") == memory.sketches(HOUR.number, b"secret")


async def test_a_sketch_of_another_length_is_a_failure_of_the_hub(hub: RedisHub, redis_server: RedisServer) -> None:
    """A value of another program raises HubUnavailable, and nothing else."""
    await hub.usage.note_addresses(AddressReport(last_hour().number, 0, b"secret", {"acme": bytes([1, 1])}))
    key = redis_server.command("KEYS", "*:a:*").split()[-1]
    redis_server.command("HSET", key, "iacme", "short")
    with pytest.raises(HubUnavailable, match="cannot be read"):
        await hub.usage.address_sketches(last_hour().number, 0, b"secret")


def test_a_memory_hub_forgets_sketches_of_hours_that_are_over() -> None:
    """It keeps this hour and the one before."""
    shard = AddressShard()
    for hour in range(10):
        shard.note(AddressReport(hour, 0, b"secret", {"acme": bytes([1, 1])}), hub_us=hour * HOUR_US)

    assert [8, 9] == [hour for hour in range(10) if shard.sketches(hour, b"secret")]


NAMES = st.sampled_from(["acme", "zeta", "é"])
HOURS = st.sampled_from([0, 1, 2, *(PRESENT - HOUR.number + hour for hour in (0, 1, 2, -959, -960, -961))])
"""After HOUR; around the first and the last one that hubs count."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from("ab"), NAMES, st.integers(0, 9), HOURS),
        st.tuples(st.just("clock"), st.sampled_from([0, 3299.999999, 3300, 3600])),
        st.tuples(st.just("again"), st.integers(0, 5)),
        st.tuples(st.just("leave"), st.sampled_from("ab")),
        st.tuples(st.just("close"), st.integers(0, 2)),
        st.tuples(st.just("issue"), st.integers(0, 2)),
        st.tuples(st.just("confirm"), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
    ),
    max_size=25,
)


class TestTwins:
    """The script says what the definition says."""

    runs: ClassVar[int] = 0

    @given(steps=STEPS)
    @settings(max_examples=60)
    def test_both_twins_say_the_same(self, shared_redis: RedisServer, steps: list[tuple[object, ...]]) -> None:
        """After every step the same answer, and in the end the same totals, marks and events."""
        TestTwins.runs += 1
        clock = clock_in_november()
        hub = RedisHub(shared_redis.url, HubSettings(f"twins{self.runs}", 30.0), clock=clock)
        memory = MemoryUsage(clock)

        async def work() -> None:
            said: list[UsageBatch] = []
            for step in steps:
                if step[0] == "clock":
                    clock.jump(NOVEMBER + float(str(step[1])) - clock.wall_ns() / SECOND_NS)
                    continue
                answers = [await _take(ledger, step, said) for ledger in (memory, hub.usage)]
                assert answers[0] == answers[1], step
            for number in range(3):
                period = Period("hour", HOUR.number + number)
                assert await rows_of(memory, period) == await rows_of(hub.usage, period)
                assert await issued(memory, period) == await issued(hub.usage, period)
            assert await memory.marks("hour", 0) == await hub.usage.marks("hour", 0)

        on(hub, work)


async def _take(ledger: UsageLedger, step: tuple[object, ...], said: list[UsageBatch]) -> object:
    """Carry out one step; batches are numbered by how many were said, the same on both twins."""
    period = Period("hour", HOUR.number + int(str(step[1]))) if str(step[1]).isdigit() else HOUR
    match step:
        case ("say", account, identity, cost, hour):
            row = row_of(int(str(cost)), identity=str(identity), hour=HOUR.number + int(str(hour)))
            batch = batch_of([row], account=str(account), sequence=len(said) // 2 + 1)
            said.append(batch)
            return await ledger.record(batch)
        case ("again", number):
            place = int(str(number)) * 2
            return await ledger.record(said[place]) if place < len(said) else None
        case ("leave", account):
            batch = batch_of(account=str(account), sequence=len(said) // 2 + 1, leaving=[HOUR, LATER])
            said.append(batch)
            return await ledger.record(batch)
        case ("close", _):
            return await ledger.close_period(period, 0)
        case ("issue", _):
            return await issued(ledger, period)
        case ("confirm", _):
            await confirm(ledger, (await issued(ledger, period))[:1])
            return None
        case _:
            late = (await ledger.marks("hour", 0)).late.get(period.number)
            await ledger.finish(period, 0, late)
            return None


def test_all_nodes_put_an_identity_on_the_same_shard() -> None:
    """Its shard follows from its name alone, and all shards are used."""
    assert 2 == shard_of("acme", 4)
    assert set(range(4)) == {shard_of(f"customer {number}", 4) for number in range(100)}
    assert 0 == shard_of("acme", 1)


async def test_a_memory_hub_forgets_what_is_older_than_it_keeps() -> None:
    """By its own clock, and an hour later, so that its memory does not grow with time."""
    clock = clock_in_november()
    memory = MemoryUsage(clock)
    first = int(NOVEMBER // HOUR_S)
    kept = Retention(hour=3)

    for hour in range(10):
        row = UsageRow(Period("hour", first + hour), row_of(0).key, Counts(1, 1, 0))
        await memory.record(batch_of([row], sequence=hour + 1, answered=hour)._replace(kept=kept))
        clock.advance(HOUR_S)

    assert [5, 6, 7, 8, 9] == [hour for hour in range(10) if await rows_of(memory, Period("hour", first + hour))]
