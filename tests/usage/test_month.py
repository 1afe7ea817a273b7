"""Goal: over a month, what is exported and what a hub has is what was charged. Method: real Redis, time made up."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from reconverge.hub.registry import HubSettings
from reconverge.hub.usage import HOUR, MONTH, UsageEvent
from reconverge.usage.events import TYPE, cloud_event
from reconverge.usage.export import Exporter
from reconverge.usage.periods import period_at
from reconverge.usage.reading import totals
from reconverge_sync.redis.hub import RedisHub
from tests.support.effort import tried
from tests.support.metered import HOUR_S, NOVEMBER, MeteredNode, OpenMeter, clock_in_november
from tests.support.servers import RedisServer, wait_until

HOURS = 30 * 24
WITHOUT_FAULTS = 20 * 24
"""So many hours where nothing happens to the hub, unless all is tried; there are faults in all parts of one month."""
AFTERWARDS = 2 * 24
"""So many after the last fault, likewise."""
NODES = 3
IDENTITIES = [f"customer {number}" for number in range(12)]
DURABLE = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
"""Redis writes before it answers, so that a crash of its process loses nothing; one of the machine may.

With "everysec" it answers first while the disk is slow to sync, and writes up to two seconds later.
"""

pytestmark = pytest.mark.slow

Fault = Callable[["Month"], None]


@pytest.fixture
def own_redis_on_disk() -> Iterator[RedisServer]:
    """A Redis that has written down whatever it has answered to."""
    with RedisServer(*DURABLE) as server:
        yield server


class Month:
    """A fleet in November 2026: each node charges and reports once an hour, and every third hour is exported."""

    def __init__(self, server: RedisServer, *, seed: int) -> None:
        self.server = server
        self.random = Random(seed)
        self.clock = clock_in_november()
        self.hub = RedisHub(server.url, HubSettings("shop", 30.0), clock=self.clock)
        self.started = 0
        self.nodes = [self._node() for _ in range(NODES)]
        self.charged: Counter[str] = Counter()
        """By identity."""
        self.unreported: list[Counter[str]] = [Counter() for _ in range(NODES)]
        """The charges that each node has not reported."""
        self.killed = 0
        """The charges that killed nodes had not reported."""
        self.meter = OpenMeter(TYPE, "cost")

    def _node(self) -> MeteredNode:
        self.started += 1
        return MeteredNode(self.hub.usage, self.clock, f"node{self.started}")

    async def run(self, faults: dict[int, Fault], *, restarts: float = 0.0, kills: float = 0.0, hours: int) -> None:
        """Let the month pass; `faults` happen before the hour of their number, in which nothing is unreported."""
        try:
            for hour in range(hours):
                if fault := faults.get(hour):
                    await self.hub.close()
                    fault(self)
                for place in range(NODES):
                    await self._live(place, restarts=restarts, kills=kills)
                self.clock.advance(HOUR_S)
                if hour % 3 == 2:
                    await self.export()
            for node in self.nodes:
                assert await node.driver.leave()
            self.clock.advance(HOUR_S)
            await self.export()
            self.of_month = Counter(
                {
                    key.identity: counts.cost
                    for key, counts in (await totals(self.hub.usage, period_at(MONTH, NOVEMBER))).items()
                }
            )
        finally:
            await self.hub.close()

    async def _live(self, place: int, *, restarts: float, kills: float) -> None:
        node = self.nodes[place]
        for _ in range(self.random.randrange(6)):
            identity, cost = self.random.choice(IDENTITIES), self.random.randrange(1, 9)
            node.meter.add(identity, "api", cost)
            self.charged[identity] += cost
            self.unreported[place][identity] += cost
        if self.random.random() < kills:
            self.killed += self.unreported[place].total()
            self.charged.subtract(self.unreported[place])
            self.nodes[place] = self._node()
        elif self.random.random() < restarts:
            assert await node.driver.leave()
            self.nodes[place] = self._node()
        else:
            await node.driver.report()
            assert await node.driver.report()  # the first may only bring to light that the hub has lost data
        self.unreported[place].clear()

    async def export(self) -> None:
        """Export what is due; each event is delivered twice, and now and then out of turn."""

        def deliver(events: Sequence[UsageEvent]) -> None:
            twice = [*events, *events]
            self.random.shuffle(twice)
            for event in twice:
                self.meter.ingest(cloud_event("shop", event))

        await Exporter(self.hub.usage, deliver, grace=0).run()


def live(month: Month, faults: dict[int, Fault] | None = None, *, restarts: float = 0.0, kills: float = 0.0) -> None:
    """Let that month pass."""
    few = min(HOURS, max(faults) + AFTERWARDS) if faults else WITHOUT_FAULTS
    asyncio.run(month.run(faults or {}, restarts=restarts, kills=kills, hours=tried(few, long=HOURS)))


def test_orderly_restarts_lose_nothing(redis_server: RedisServer) -> None:
    """Every node is restarted many times; what is exported, and the month at the hub, is what was charged."""
    month = Month(redis_server, seed=1)
    live(month, restarts=0.05)

    assert month.started > 50
    assert +month.charged == +month.meter.sums == +month.of_month


def test_a_killed_process_loses_what_it_had_not_reported_and_no_more(redis_server: RedisServer) -> None:
    """Every other unit that was charged is exported, and nothing twice."""
    month = Month(redis_server, seed=2)
    live(month, restarts=0.02, kills=0.03)

    assert month.killed > 0
    assert +month.charged == +month.meter.sums == +month.of_month


def restart(month: Month) -> None:
    """The server ends as in a crash, and comes back with what it has on disk."""
    month.server.kill()
    begin(month.server)


def begin(server: RedisServer) -> None:
    """Start a server, and wait until it has read what it has on disk."""
    server.start()
    wait_until(lambda: server.command("PING") == "+PONG", "the data")


def test_a_redis_that_persists_may_crash(own_redis_on_disk: RedisServer) -> None:
    """With an append-only file, a crash loses nothing, though nodes come and go."""
    month = Month(own_redis_on_disk, seed=3)
    live(month, {100: restart, 101: restart, 400: restart}, restarts=0.03)

    assert +month.charged == +month.meter.sums == +month.of_month


def test_a_redis_without_persistence_is_told_again(own_redis: RedisServer) -> None:
    """Its nodes have what was not exported yet, and their own part of the month: nothing is lost or doubled."""
    month = Month(own_redis, seed=4)
    live(month, {100: restart, 101: restart, 400: restart})

    assert +month.charged == +month.meter.sums == +month.of_month


def test_what_departed_nodes_had_told_is_lost_with_the_data_unless_it_was_exported(own_redis: RedisServer) -> None:
    """Just that, and nothing is billed twice: nodes restart, and the hub is emptied right after an export."""
    month = Month(own_redis, seed=5)
    live(month, dict.fromkeys((99, 300, 501), restart), restarts=0.03)

    lost_of_month = month.charged.total() - month.of_month.total()
    assert +month.charged == +month.meter.sums  # all of it had been exported
    assert lost_of_month > 0  # the hub's own total of the month lacks what departed nodes had told it


def test_what_departed_nodes_had_told_since_the_last_export_is_lost(own_redis: RedisServer) -> None:
    """A node leaves, and the hub is emptied before its last hour is exported: that hour is all that is missing."""
    month = Month(own_redis, seed=6)
    lost: Counter[str] = Counter()

    def leave_and_restart(month: Month) -> None:
        node = month.nodes[0]
        for hour in (100, 99):  # since the export after hour 98
            for key, counts in node.driver.reports.totals(period_at(HOUR, NOVEMBER + hour * HOUR_S)).items():
                lost[key.identity] += counts.cost
        month.nodes[0] = month._node()  # all is reported, so that it makes no difference how it ends
        restart(month)

    live(month, {101: leave_and_restart})
    assert lost.total() > 0
    assert +(month.charged - lost) == +month.meter.sums


def test_a_redis_that_comes_back_with_older_data_is_told_again(own_redis_on_disk: RedisServer, tmp_path: Path) -> None:
    """A crash of the machine, or a replica that was behind, does that: nodes report the missing part, and no more."""
    kept = tmp_path / "kept"
    month = Month(own_redis_on_disk, seed=7)

    def keep(month: Month) -> None:
        kept.mkdir()
        for file in month.server.directory.rglob("appendonly.aof*"):  # in a folder from Redis 7 on
            shutil.copy(file, kept)

    def go_back(month: Month) -> None:
        month.server.kill()
        for file in list(month.server.directory.rglob("appendonly.aof*")):
            shutil.copy(kept / file.name, file)
        begin(month.server)

    live(month, {97: keep, 98: go_back, 200: restart})
    assert [1] * NODES == [node.driver.reports.losses for node in month.nodes]
    assert +month.charged == +month.meter.sums == +month.of_month


@pytest.mark.parametrize("seed", [8])
def test_a_month_with_all_of_it(own_redis_on_disk: RedisServer, seed: int) -> None:
    """Restarts, kills and crashes of a Redis that persists."""
    month = Month(own_redis_on_disk, seed=seed)
    live(month, dict.fromkeys((50, 350, 690), restart), restarts=0.03, kills=0.02)

    assert +month.charged == +month.meter.sums == +month.of_month
