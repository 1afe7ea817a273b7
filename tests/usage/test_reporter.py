"""Goal: usage is reported beside an application until it ends. Method: threads and processes, a real Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from reconverge.clock import SystemClock
from reconverge.errors import InvalidSetting
from reconverge.hub.registry import HubSettings
from reconverge.hub.usage import Counts, UsageKey
from reconverge.usage import Meter, UsageReporter, fleet_load, period_at, top, totals
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.metered import NOVEMBER, MeteredNode, batch_of, clock_in_november, on, row_of
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "metered.py"


def counted(server: RedisServer) -> int:
    hub = RedisHub(server.url, HubSettings("shop", 30.0))
    month = period_at("month", SystemClock.wall_ns() / 1e9)
    return sum(counts.cost for counts in on(hub, lambda: totals(hub.usage, month)).values())


def reaches(server: RedisServer, expected: int) -> bool:
    """Whether that much was charged by now."""
    return counted(server) == expected


def end(server: RedisServer, how: str) -> int:
    """The status of a process that charged 50 and ended so."""
    command = [sys.executable, str(PROGRAM), server.url, "shop", "50", how]
    return subprocess.run(command, check=False, timeout=120).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status", "expected"),
    [("exit", 0, 50), ("sigterm", 143, 50), ("fork", 0, 100 + 5000), ("kill", -9, 0)],
)
def test_a_process_tells_all_when_it_ends(how: str, status: int, expected: int, redis_server: RedisServer) -> None:
    """At its end, at SIGTERM, and in a fork of its own account; one that is killed loses what it had not reported."""
    assert status == end(redis_server, how)
    assert expected == counted(redis_server)


def test_it_reports_each_interval(redis_server: RedisServer) -> None:
    """While it runs, and goes on under another account after it was stopped."""
    meter = Meter()
    reporter = UsageReporter(meter, redis_server.url, namespace="shop", interval=0.1, timeout=30)
    running: list[bool] = []
    for round_ in range(1, 3):
        with reporter:
            running.append(reporter.running)
            meter.add("acme", "api", 5)
            eventually(lambda: reporter.stats().answered > 0 and reporter.stats().unreported == 0, "the first report")
            expected = 10 * round_ - 5
            eventually(partial(reaches, redis_server, expected), "the total")
            meter.add("acme", "api", 5)
        running.append(reporter.running)
        assert 10 * round_ == counted(redis_server)
    assert [True, False] * 2 == running


def test_what_was_counted_before_a_fork_is_the_parents() -> None:
    """Also if no report has begun by then: both processes would tell it."""
    meter = Meter(clock_in_november())
    reporter = UsageReporter(meter, MemoryHub())
    meter.add("acme", "api")
    child = os.fork()
    if not child:
        os._exit(len(meter.take()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert 0 == status
    assert 1 == len(meter.take())
    assert not reporter.running


def test_it_runs_beside_an_event_loop(redis_server: RedisServer) -> None:
    """The end of the block waits for the last word, and the loop goes on meanwhile."""
    meter = Meter()

    async def serve() -> None:
        async with UsageReporter(meter, redis_server.url, namespace="shop", timeout=30):
            meter.add("acme", "api", 5)

    asyncio.run(serve())
    assert 5 == counted(redis_server)


def test_a_hub_that_does_not_answer_is_told_later(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """The outage is logged once, and so is its end; nothing is lost."""
    meter = Meter()
    own_redis.kill()
    with (
        caplog.at_level(logging.WARNING),
        UsageReporter(meter, own_redis.url, namespace="shop", interval=0.1, timeout=30) as reporter,
    ):
        meter.add("acme", "api", 5)
        eventually(lambda: reporter.stats().failures.get("refused", 0) >= 3, "three failures")
        own_redis.start()
        eventually(lambda: reporter.stats().answered > 0, "an answer")

    assert 5 == counted(own_redis)
    said = [record.message for record in caplog.records]
    assert 1 == sum("usage cannot be reported to the hub" in each for each in said)
    assert 1 == sum("usage is reported to the hub" in each for each in said)


def test_what_was_not_told_before_the_end_is_told_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    """If the hub does not answer at the end either."""
    meter = Meter()
    with caplog.at_level(logging.ERROR), UsageReporter(meter, f"redis://127.0.0.1:{free_port()}/0", interval=0.1):
        meter.add("acme", "api", 5)

    assert ["usage of 1 keys was not reported" in record.message for record in caplog.records] == [True]


def test_without_a_hub_that_counts_usage_it_is_counted_here(caplog: pytest.LogCaptureFixture) -> None:
    """That is said loudly, once, and the node's own totals can be read."""
    meter = Meter()
    reporter = UsageReporter(meter, "memory://", interval=0.1)
    month = period_at("month", SystemClock.wall_ns() / 1e9)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with reporter:
                meter.add("acme", "api", 5)
                eventually(lambda: bool(reporter.totals(month)), "the first report")

    assert not reporter.stats().at_hub
    assert {UsageKey("acme", "api", ""): Counts(10, 2, 0)} == reporter.totals(month)
    assert ["on this node only" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("wrong", [{"interval": 0.01}, {"interval": 4000}, {"timeout": 0}])
def test_a_wrong_setting_is_refused(wrong: dict[str, float]) -> None:
    """The error names it."""
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        UsageReporter(Meter(), MemoryHub(), **wrong)  # type: ignore[arg-type]


def test_the_largest_consumers_come_first() -> None:
    """By cost, by requests or by what was refused; of one limit or of all."""
    ledger = MemoryHub(clock=clock_in_november(), shards=3).usage
    rows = [row_of(cost, identity=f"customer {cost}", route=route) for cost in range(20) for route in ("/a", "/b")]
    for shard in range(3):
        mine = [row for row in rows if int(row.key.identity.split()[1]) % 3 == shard]
        asyncio.run(ledger.record(batch_of(mine, shard=shard)))
    hour = rows[0].period

    found = asyncio.run(top(ledger, hour, most=3))
    assert [("customer 19", 38), ("customer 18", 36), ("customer 17", 34)] == [(name, c.cost) for name, c in found]
    assert [] == asyncio.run(top(ledger, hour, limit="other"))
    with pytest.raises(InvalidSetting, match="by"):
        asyncio.run(top(ledger, hour, by="price"))


def test_totals_are_added_up_by_what_is_asked_for() -> None:
    """By any of identity, limit and route; of one customer its shard alone is asked."""
    ledger = MemoryHub(clock=clock_in_november()).usage
    rows = [row_of(cost, identity=name, route=route) for cost, name, route in
            ((1, "acme", "/a"), (2, "acme", "/b"), (4, "zeta", "/a"))]  # fmt: skip
    asyncio.run(ledger.record(batch_of(rows)))
    hour = rows[0].period

    async def costs(**options: object) -> dict[str, int]:
        found = await totals(ledger, hour, **options)  # type: ignore[arg-type]
        return {"".join(key): counts.cost for key, counts in found.items()}

    assert {"": 7} == asyncio.run(costs(by=()))
    assert {"/a": 5, "/b": 2} == asyncio.run(costs(by=["route"]))
    assert {"acmeapi": 3} == asyncio.run(costs(by=["identity", "limit"], identity="acme"))
    assert {} == asyncio.run(costs(limit="other"))
    with pytest.raises(InvalidSetting, match="price"):
        asyncio.run(costs(by=["price"]))


def test_each_node_tells_how_busy_it_is() -> None:
    """Requests and cost per second since its last report; a request of several limits is one."""
    clock = clock_in_november()
    ledger = MemoryHub(clock=clock).usage
    idle, busy = (MeteredNode(ledger, clock, name) for name in ("idle", "busy"))
    clock.advance(10)
    for _ in range(30):
        busy.meter.add_request("acme", [("api", 1), ("tokens", 9)])
    busy.meter.add("acme", "api", refused=True)
    for node in (idle, busy):
        asyncio.run(node.driver.report())

    found = asyncio.run(fleet_load(ledger))
    assert [("busy", 3.1, 30.0), ("idle", 0.0, 0.0)] == [load[:3] for load in found]


def test_addresses_are_counted_by_the_hour() -> None:
    """An identity that has come from many addresses is shown until the hour is over."""
    clock = clock_in_november()
    node = MeteredNode(MemoryHub(clock=clock).usage, clock, "node")
    for number in range(200):
        node.meter.add_request("acme", [("api", 1)], address=f"192.0.2.{number}")
        node.meter.add_request("zeta", [("api", 1)], address=f"192.0.2.{number % 50}")
    assert ["acme"] == list(node.meter.addresses.unusual())
    asyncio.run(node.driver.report())
    assert ["acme"] == list(node.meter.addresses.unusual())
    clock.advance(3600)
    asyncio.run(node.driver.report())

    assert [] == list(node.meter.addresses.unusual())
    assert NOVEMBER + 3600 == clock.wall_ns() / 1e9
