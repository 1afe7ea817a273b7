"""Goal: who waits for one quota or several goes when all of them have room, in turn, and leaves nothing behind.

Method: on a clock that is moved by hand, so that every moment is exact; and two agents on one Redis.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from reconverge import CostExceedsQuota, Limit, RateLimiter, UnknownKind
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel.cell import measure
from reconverge.limiter.control import LimitControl
from reconverge.limiter.waiting.waiters import waiting_at
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.kernel.composite.test_several import said_by
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiters import counted_tries, scene_of, settled
from tests.support.waiting import eventually_in_loop

pytestmark = pytest.mark.usefixtures("no_task_left")

FIXED = Limit(3, 10, algorithm="fixed-window")


QUOTAS: dict[str, tuple[list[Limit], list[float]]] = {
    "fixed-window": ([Limit(2, 10, algorithm="fixed-window")], [0, 0, 10, 10, 20, 20, 30]),
    "sliding-window": ([Limit(2, 10, algorithm="sliding-window")], [0, 0, 15, 20, 30, 40, 50]),
    "token-bucket": ([Limit(2, 10, algorithm="token-bucket")], [0, 0, 5, 10, 15, 20, 25]),
    "gcra": ([Limit(2, 10, algorithm="gcra", burst=1)], [0, 5, 10, 15, 20, 25, 30]),
    "leaky-bucket": ([Limit(2, 10, algorithm="leaky-bucket")], [0, 5, 10, 15, 20, 25, 30]),
    "smooth-bursty": ([Limit(2, 10, algorithm="smooth-bursty")], [0, 5, 10, 15, 20, 25, 30]),
    "smooth-warming-up": (
        [Limit(2, 10, algorithm="smooth-warming-up", warmup=20)],
        [0, 12.5, 20, 25, 30, 35, 40],
    ),
    "windows": ([FIXED, Limit(5, 60, algorithm="fixed-window")], [0, 0, 0, 10, 10, 60, 60]),
    "a bucket and a window": ([Limit(1, 4, algorithm="token-bucket"), FIXED], [0, 4, 8, 12, 16, 20, 24]),
    "a log and a window": ([Limit(2, 7, algorithm="sliding-log"), FIXED], [0, 0, 7, 10, 14, 17, 21]),
    "a pace and a window": ([Limit(1, 2, algorithm="leaky-bucket"), FIXED], [0, 2, 4, 10, 12, 14, 20]),
    "a pace that catches up": ([Limit(100, 1, algorithm="leaky-bucket"), FIXED], [0, 0.01, 0.02, 10, 10, 10, 20]),
    "stored permits and a window": ([Limit(2, 10, algorithm="smooth-bursty"), FIXED], [0, 5, 10, 15, 20, 25, 30]),
    "a warm-up": ([Limit(2, 10, algorithm="smooth-warming-up", warmup=20), FIXED], [0, 12.5, 20, 25, 30, 35, 40]),
    "first hits": ([Limit(2, 9, algorithm="fixed-window", align="first-hit"), FIXED], [0, 0, 9, 10, 18, 18, 27]),
    "three": ([FIXED, Limit(2, 4, algorithm="fixed-window"), Limit(6, 30)], [0, 0, 4, 10, 10, 12, 35]),
}


@pytest.mark.parametrize("name", QUOTAS)
async def test_who_waits_goes_in_the_first_moment_in_which_all_quotas_would_admit_him(
    name: str,
) -> None:
    """Seven who come at once go in the order in which they came, and each is charged to every quota."""
    quotas, moments = QUOTAS[name]
    scene = scene_of(*quotas)

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(7)]
    await settled()
    while not all(task.done() for task in tasks):
        await scene.passes(0.5 if moments[1] in (0, 2, 4, 5, 12.5) else 0.01)

    assert [(f"{number}", moment) for number, moment in enumerate(moments)] == scene.released
    assert {7} == set(scene.charges)
    assert scene.is_empty()


@pytest.mark.parametrize("quotas", [[Limit(1, 3), FIXED], [FIXED, Limit(1, 3)]], ids=["first", "last"])
async def test_a_nanosecond_before_the_last_quota_has_room_nobody_goes(quotas: list[Limit]) -> None:
    """Whichever it is: nothing is charged to the others until then."""
    scene = scene_of(*(Limit(each.quota, each.window, algorithm="sliding-log") for each in quotas))
    await scene.waits("now")
    task = asyncio.create_task(scene.waits("later"))
    await settled()
    scene.clock.advance_ns(3 * SECOND_NS - 1)
    await settled()
    assert (False, [1, 1]) == (task.done(), scene.charges)
    scene.clock.advance_ns(1)
    await settled()

    assert (True, [2, 2]) == (task.done(), scene.charges)


async def test_any_schedule_of_waiters_keeps_every_quota_and_their_order() -> None:
    """Also with costs by kind, which differ from quota to quota."""
    random = Random(7)
    by_kind = Limit(9, 5, algorithm="sliding-log", costs={"big": 4, "small": 1})
    scene = scene_of(by_kind, Limit(4, 3, algorithm="sliding-log"))
    kinds = [random.choice(["big", "small"]) for _ in range(40)]

    tasks = []
    for number, kind in enumerate(kinds):
        tasks.append(asyncio.create_task(scene.waits(f"{number:02}", kind=kind)))
        await scene.passes(random.uniform(0, 0.3))
    while not all(task.done() for task in tasks):
        await scene.passes(random.uniform(0, 0.3))

    assert [f"{number:02}" for number in range(40)] == [name for name, _ in scene.released]
    went = [(moment, 4 if kinds[int(name)] == "big" else 1) for name, moment in scene.released]
    for _, end in scene.released:
        assert sum(cost for moment, cost in went if end - 5 < moment <= end) <= 9
        assert sum(1 for moment, _ in went if end - 3 < moment <= end) <= 4

    assert scene.is_empty()


def test_a_kind_that_no_quota_knows_is_a_mistake() -> None:
    """`hit` raises for it, too; so does a cost that one of the quotas could never admit, which is named."""
    scene = scene_of(FIXED, Limit(9, 60))

    with pytest.raises(UnknownKind):
        scene.limiter.wait_blocking("ada", kind="big")
    with pytest.raises(CostExceedsQuota, match="'queue' admits at most 3"):
        scene.limiter.wait_blocking("ada", 4)

    assert scene.is_empty()


async def test_a_refusal_names_the_quota_to_wait_for_longest() -> None:
    """With the time that those ahead take by that one; nothing is charged, and the others count no refusal."""
    scene = scene_of(Limit(2, 1, algorithm="leaky-bucket"), Limit(4, 60, algorithm="fixed-window"))

    await scene.waits("now")
    pace = await scene.waits("pace", timeout=0)
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(3)]
    await settled()
    window = await scene.waits("window", timeout=59.0)
    full = await scene.waits("full", max_queue=3)
    assert ("queue", 0.5) == (pace.binding, pace.retry_after)
    assert [("queue#2", 60.0)] * 2 == [(each.binding, each.retry_after) for each in (window, full)]
    await scene.passes(1.5, steps=3)
    await asyncio.gather(*tasks)

    limits = scene.agent.stats().limits

    assert ["pace", "window", "full"] == scene.refused
    assert [4, 4] == scene.charges
    assert (3, 2) == (limits["queue"].refused, limits["queue#2"].refused)
    assert scene.is_empty()


WINDOW = Limit(1, 10, algorithm="fixed-window")


@pytest.mark.parametrize("quotas", [[WINDOW], [WINDOW, Limit(9, 3600, algorithm="fixed-window")]], ids=["one", "two"])
async def test_whose_time_is_up_is_told_which_quota_it_was_and_the_others_move_up(quotas: list[Limit]) -> None:
    """A timeout that could have been met, but for a request that overtook, gives the place back; nothing is charged."""
    scene = scene_of(*quotas)
    await scene.waits("now")
    first = asyncio.create_task(scene.waits("first", timeout=10.5))
    second = asyncio.create_task(scene.waits("second"))
    await settled()

    scene.clock.advance_ns(10 * SECOND_NS)
    assert scene.limiter.allow("ada")
    await settled()
    assert not first.done()
    await scene.passes(0.5)
    assert (False, "queue", 9.5) == ((await first).allowed, (await first).binding, (await first).retry_after)
    assert not second.done()
    await scene.passes(9.5)
    assert await second

    assert ["first"] == scene.refused
    assert [("now", 0.0), ("second", 20.0)] == scene.released
    assert {3} == set(scene.charges)
    assert scene.is_empty()


ROOM = Limit(2, 3600, algorithm="fixed-window")


@pytest.mark.parametrize("quotas", [[ROOM], [ROOM, Limit(3, 3600, algorithm="sliding-log")]], ids=["one", "two"])
async def test_what_makes_room_in_any_quota_is_told_to_the_first(quotas: list[Limit]) -> None:
    """A reset, a refund, and a reservation that is settled for less."""
    scene = scene_of(*quotas)

    reservation = scene.limiter.reserve("ada", 2)
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(4)]
    await settled()
    reservation.settle(1)
    await settled()
    assert 1 == sum(task.done() for task in tasks)
    scene.limiter.refund("ada")
    await settled()
    assert 2 == sum(task.done() for task in tasks)
    scene.limiter.reset("ada")
    await settled()

    assert 4 == sum(task.done() for task in tasks)

    assert scene.is_empty()


@pytest.mark.parametrize(
    ("quotas", "seconds", "steps"),
    [
        ([Limit(10, 1, algorithm="leaky-bucket")], 1.0, 1000),
        ([Limit(1, seconds, algorithm="sliding-log") for seconds in (2, 9, 3)], 90.0, 900),
    ],
    ids=["one", "three"],
)
async def test_nobody_looks_more_often_than_needed(
    quotas: list[Limit], seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten who go one by one try twice each: they sleep until the last of the quotas that lack room may have it."""
    scene = scene_of(*quotas)
    tries = counted_tries(scene, monkeypatch)
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(10)]
    await scene.passes(seconds, steps=steps)
    await asyncio.gather(*tasks)

    assert len(tries) <= 2 * 10


async def test_the_hub_is_asked_for_every_quota_while_somebody_waits() -> None:
    """For what all who wait need, every interval; an ask is only for what is lacking."""
    clock = ManualClock(START_S)
    hub, node = MemoryHub(clock=clock), SmallNode(clock)
    quotas = {"api": Limit(100, 60), "api#2": Limit(4, 60)}
    limiter = RateLimiter(LimitControl(node.kernel.composites.all_of("api", quotas, STRICT)))
    for _ in range(4):
        limiter.allow("ada")
        node.exchanges_with(hub)
        clock.advance_ns(SECOND_NS // 10)

    tasks = [asyncio.create_task(limiter.wait("ada", 3)) for _ in range(5)]
    await settled()
    for _ in range(3):
        reports = said_by(node)
        assert {"api", "api#2"} == set(reports)
        assert {"api#2": 3} == {name: report.ask for name, report in reports.items() if report.ask}
        assert reports["api"].need_milli >= 15_000
        assert reports["api#2"].need_milli >= 4_000
        node.reaches(hub)
        node.hears()
        clock.advance_ns(SECOND_NS // 5)
        await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("others", [[], [Limit(10, 2, algorithm="leaky-bucket")]], ids=["one", "two"])
async def test_waiting_does_not_count_as_demand_over_and_over(others: list[Limit]) -> None:
    """By no quota: what was asked for is what arrived, however often those who wait have tried."""
    scene = scene_of(Limit(10, 1, algorithm="token-bucket"), *others)

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(25)]
    await settled()
    for _ in range(600):
        scene.limiter.control.tables[-1].tell("ada")
        await scene.passes(0.01)
    await asyncio.gather(*tasks)

    cells = [cell for table in scene.limiter.control.tables for cell in table.all_cells()]

    for cell in cells:
        measure(cell)
    assert {25} == set(scene.charges)
    assert [25 * table.unit for table in scene.limiter.control.tables] == [cell.arrived for cell in cells]


@pytest.mark.parametrize("several", [True, False], ids=["several quotas", "a share"])
async def test_two_agents_on_one_redis_let_out_the_whole_quota_and_no_more(
    several: bool, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """In strict, to threads that wait on both: each is let through once, and the others are refused in the end."""
    limiters: list[RateLimiter] = []
    for agent in (make_agent(redis_server.url, policy="strict") for _ in range(2)):
        if several:
            limiters.append(agent.limit("queue", "100/year; 40/year as scarce; 60/year"))
        else:
            limiters.append(agent.limit("queue", "15/year", parent=agent.limit("api", "40/year")))
    admitted = 0

    async def wait(limiter: RateLimiter) -> None:
        nonlocal admitted
        while await limiter.wait("ada"):
            admitted += 1

    tasks = [asyncio.create_task(wait(limiter)) for limiter in limiters for _ in range(30)]
    await eventually_in_loop(lambda: admitted >= 40, "the whole quota")
    assert 60 == sum(waiting_at(limiter._table).waiters("ada") for limiter in limiters)
    refused = await limiters[0].wait("ada", timeout=0.1)
    assert (False, not several) == (refused.allowed, refused.binding in ("api", "queue"))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert 40 == admitted
    assert {(0, 0)} == {
        (cell.waiters, cell.waiting)
        for limiter in limiters
        for table in limiter.control.tables
        for cell in table.all_cells()
    }
