"""Goal: whoever waits is let through in turn, as early as the limit allows, and leaves nothing behind.

Method: on a clock that is moved by hand, so that every moment is exact: event loops, threads, and both at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from reconverge import Agent, CostExceedsQuota, Decision, InvalidCost, InvalidKey, InvalidSetting, Limit
from reconverge.clock import SECOND_NS
from reconverge.limiter.waiting.waiters import waiting_at
from tests.support.programs.process import Process
from tests.support.waiters import scene_of, settled
from tests.support.waiting import eventually, eventually_in_loop

pytestmark = pytest.mark.usefixtures("no_task_left")


async def test_a_nanosecond_before_his_time_nobody_goes() -> None:
    """And at that nanosecond he does."""
    scene = scene_of(Limit(3, 1, algorithm="leaky-bucket"))

    assert scene.limiter.wait_blocking("ada", timeout=0)
    scene.clock.advance_ns(333_333_334)
    task = asyncio.create_task(scene.waits("later"))
    await scene.waits("at once")
    await settled()
    scene.clock.advance_ns(333_333_333)
    await settled()
    assert not task.done()
    scene.clock.advance_ns(1)
    await settled()

    assert task.done()


async def test_a_leaky_bucket_spreads_a_burst_that_would_fit_into_it() -> None:
    """`allow` takes a hundred at once; who waits goes one after the other, and after all that was admitted so."""
    scene = scene_of(Limit(100, 10, algorithm="leaky-bucket"))

    assert 50 == sum(scene.limiter.allow("ada") for _ in range(50))
    tasks = [asyncio.create_task(scene.waits(f"{number}", cost=2)) for number in range(3)]
    await settled()
    for _ in range(60):
        await scene.passes(0.1)
    await asyncio.gather(*tasks)

    assert [("0", 5.0), ("1", 5.2), ("2", 5.4)] == scene.released


async def test_being_late_costs_a_leaky_bucket_no_rate_up_to_fifty_milliseconds() -> None:
    """Timers that are late let out what should have gone meanwhile; of a longer stall the rest is lost."""
    scene = scene_of(Limit(100, 1, algorithm="leaky-bucket"))

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(30)]
    await settled()
    await scene.passes(0.035)
    assert 4 == len(scene.released)
    await scene.passes(0.005)
    assert 5 == len(scene.released)
    await scene.passes(1.0)
    assert 5 + 6 == len(scene.released)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert scene.is_empty()


async def test_idleness_is_not_made_up_for() -> None:
    """A leaky bucket stores nothing while nobody waits, however long."""
    scene = scene_of(Limit(10, 1, algorithm="leaky-bucket"))

    await scene.waits("first")
    await scene.passes(100.0)
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(3)]
    await settled()
    for _ in range(4):
        await scene.passes(0.05)
    await asyncio.gather(*tasks)

    assert [("first", 0.0), ("0", 100.0), ("1", 100.1), ("2", 100.2)] == scene.released


async def test_without_time_nobody_waits() -> None:
    """A timeout of zero answers as `hit` does, and does not overtake those who wait."""
    scene = scene_of(Limit(1, 10, algorithm="token-bucket"))

    assert await scene.waits("now", timeout=0)
    refused = await scene.waits("too late", timeout=0)
    assert (False, 10.0) == (refused.allowed, refused.retry_after)
    task = asyncio.create_task(scene.waits("patient"))
    await settled()
    scene.clock.advance_ns(10 * SECOND_NS)
    overtaking = await scene.waits("impatient", timeout=0)
    assert not overtaking
    await task

    assert ["now", "patient"] == [name for name, _ in scene.released]
    assert scene.is_empty()


@pytest.mark.parametrize("timeout", [4.999_999_999, 5.0])
async def test_a_timeout_that_cannot_be_met_is_told_at_once(timeout: float) -> None:
    """The second of those who wait needs ten seconds, and does not queue for less; the first needs five."""
    scene = scene_of(Limit(2, 10, algorithm="leaky-bucket"))

    await scene.waits("now")
    first = asyncio.create_task(scene.waits("first", timeout=timeout))
    await settled()
    assert (timeout < 5.0) == first.done()
    await scene.passes(5.0)
    await first

    assert (["first"] if timeout < 5.0 else []) == scene.refused
    assert scene.is_empty()


async def test_who_comes_behind_others_is_told_how_long_they_take() -> None:
    """The refusal of a full queue, or of a timeout that they make impossible, names the time until they are gone."""
    scene = scene_of(Limit(2, 10, algorithm="leaky-bucket"))

    await scene.waits("now")
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(3)]
    await settled()
    full = await scene.waits("full", max_queue=3)
    hopeless = await scene.waits("hopeless", timeout=19.0)
    fine = asyncio.create_task(scene.waits("fine", timeout=20.0, max_queue=4))
    await settled()
    assert (False, 20.0, 20.0) == (full.allowed, full.retry_after, hopeless.retry_after)
    for _ in range(4):
        await scene.passes(5.0)
    await asyncio.gather(fine, *tasks)

    assert ["full", "hopeless"] == scene.refused
    assert ("fine", 20.0) == scene.released[-1]
    assert scene.is_empty()


async def test_in_a_queue_of_nobody_nobody_waits() -> None:
    """With `max_queue=0` one goes at once or not at all."""
    scene = scene_of(Limit(1, 10))

    assert await scene.waits("now", max_queue=0)
    assert not await scene.waits("full", max_queue=0)

    assert scene.is_empty()


MISTAKES: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "cost": ({"key": "ada", "cost": 3}, CostExceedsQuota),
    "no cost": ({"key": "ada", "cost": -1}, InvalidCost),
    "key": ({"key": ""}, InvalidKey),
    "no key": ({"key": ["ada"]}, InvalidKey),
    "timeout": ({"key": "ada", "timeout": -0.1}, InvalidSetting),
    "no timeout": ({"key": "ada", "timeout": float("nan")}, InvalidSetting),
    "timeout of words": ({"key": "ada", "timeout": "1"}, InvalidSetting),
    "queue": ({"key": "ada", "max_queue": -1}, InvalidSetting),
    "no queue": ({"key": "ada", "max_queue": 1.5}, InvalidSetting),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("blocking", [False, True])
def test_a_mistake_is_an_exception(mistake: str, blocking: bool) -> None:
    """At once, whoever else waits, and nothing is left behind."""
    arguments, error = MISTAKES[mistake]
    scene = scene_of(Limit(2, 10, algorithm="fixed-window"))

    def wait() -> Decision:
        limiter = scene.limiter
        return limiter.wait_blocking(**arguments) if blocking else asyncio.run(limiter.wait(**arguments))

    with pytest.raises(error):
        wait()

    assert scene.is_empty()


async def test_a_thread_with_a_loop_must_not_block() -> None:
    """It would hold up all who wait in that loop; without waiting it may ask."""
    scene = scene_of(Limit(1, 10))

    with pytest.raises(RuntimeError, match=r"await limiter\.wait\('ada'\)"):
        scene.limiter.wait_blocking("ada", timeout=1.0)

    assert scene.limiter.wait_blocking("ada", timeout=0)


async def test_who_is_cancelled_gives_his_place_back() -> None:
    """First, in the middle or last: the others go as if he had never come, and he is not charged."""
    scene = scene_of(Limit(1, 1, algorithm="leaky-bucket"))

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(6)]
    await settled()
    for number in (1, 3, 5):
        tasks[number].cancel()
    for _ in range(3):
        await scene.passes(1.0)
    await asyncio.gather(*tasks, return_exceptions=True)

    assert [("0", 0.0), ("2", 1.0), ("4", 2.0)] == scene.released
    assert 3 == scene.charged
    assert scene.is_empty()


async def test_who_is_cancelled_when_his_turn_has_come_is_not_charged() -> None:
    """He was woken, and cancelled before he could go; the next one goes in his place."""
    scene = scene_of(Limit(1, 1, algorithm="leaky-bucket"))

    await scene.waits("now")
    first, second = (asyncio.create_task(scene.waits(name)) for name in ("first", "second"))
    await settled()
    scene.clock.advance_ns(SECOND_NS)
    first.cancel()
    await settled()

    assert (True, True) == (first.cancelled(), second.done())

    assert [("now", 0.0), ("second", 1.0)] == scene.released
    assert 2 == scene.charged
    assert scene.is_empty()


@pytest.mark.parametrize("seed", range(5))
async def test_a_thousand_come_and_go_and_nothing_is_left_behind(seed: int) -> None:
    """Cancelled, timed out, refused or let through: who stays goes in order, and what was charged was let through."""
    random = Random(seed)
    scene = scene_of(Limit(100, 1, algorithm=random.choice(["leaky-bucket", "token-bucket", "sliding-window"])))
    threads = set(threading.enumerate())

    tasks: list[asyncio.Task[Decision]] = []
    for number in range(1000):
        timeout = random.choice([None, None, 0.5, 3.0, 20.0, 0])
        how = {"timeout": timeout, "max_queue": random.choice([None, None, 500])}
        tasks.append(asyncio.create_task(scene.waits(f"{number:04}", cost=random.randint(0, 2), **how)))
    await settled()
    while not all(task.done() for task in tasks):
        await scene.passes(random.uniform(0.001, 0.05))
        if random.random() < 0.3:
            random.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    names = [name for name, _ in scene.released]

    assert sorted(names) == names
    assert 100 < len(names) < 1000
    assert len(names) == scene.agent.stats().limits["queue"].admitted
    assert len(scene.refused) == scene.agent.stats().limits["queue"].refused
    assert threads >= set(threading.enumerate())
    assert scene.is_empty()


async def test_no_alarm_of_the_loop_outlives_a_wait() -> None:
    """On the machine's own clock waits set alarms, which are taken back by whoever leaves."""
    limiter = Agent("memory://").limit("queue", Limit(1, 3600, algorithm="leaky-bucket"))
    await limiter.wait("ada")
    tasks = [asyncio.create_task(limiter.wait("ada", timeout=timeout)) for timeout in (None, 7200.0, 10_000.0)]
    await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert [] == [alarm for alarm in asyncio.get_running_loop()._scheduled if not alarm.cancelled()]  # type: ignore[attr-defined]
    assert {} == waiting_at(limiter.control.table)._queues


@pytest.mark.parametrize("news", [False, True])
async def test_who_waited_in_a_loop_that_was_closed_holds_up_nobody(news: bool) -> None:
    """Those whom nobody can wake any more are passed over as soon as somebody comes, or there is news."""
    scene = scene_of(Limit(1, 1, algorithm="leaky-bucket"))
    scene.limiter.allow("ada")
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(scene.waits("abandoned"))
    await asyncio.to_thread(loop.run_until_complete, settled())

    if not news:
        loop.close()
        scene.clock.advance_ns(SECOND_NS)
    task = asyncio.create_task(scene.waits("next"))
    await settled()
    if news:
        loop.close()
        scene.clock.advance_ns(SECOND_NS)
        scene.limiter.control.table.tell("ada")
        await settled()
    assert task.done()

    assert [("next", 1.0)] == scene.released
    abandoned.get_coro().close()
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]

    assert scene.is_empty()


@pytest.fixture
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_loops_and_threads_share_one_queue(other_loop: asyncio.AbstractEventLoop) -> None:
    """Somebody here, on a thread, in another loop, and here again: each in turn, woken by the one before."""
    scene = scene_of(Limit(1, 1, algorithm="leaky-bucket"))
    scene.limiter.allow("ada")

    tasks = [asyncio.create_task(scene.waits("here"))]
    await settled()
    thread = scene.waits_blocking("thread")
    future = asyncio.run_coroutine_threadsafe(scene.waits("there"), other_loop)
    eventually(lambda: 3 == scene.queue, "the one in the other loop")
    tasks.append(asyncio.create_task(scene.waits("here again")))
    await settled()
    for gone in range(4):
        scene.clock.advance_ns(SECOND_NS)
        await eventually_in_loop(lambda count=gone + 1: count == len(scene.released), "the next one")  # type: ignore[misc]
    await asyncio.gather(*tasks)
    thread.join()
    future.result()

    assert [("here", 1.0), ("thread", 2.0), ("there", 3.0), ("here again", 4.0)] == scene.released
    assert scene.is_empty()


def test_threads_that_wait_go_in_turn() -> None:
    """Ten of them, without any event loop."""
    scene = scene_of(Limit(1, 1, algorithm="leaky-bucket"))
    scene.limiter.allow("ada")
    threads = [scene.waits_blocking(f"{number}") for number in range(10)]

    for gone in range(10):
        scene.clock.advance_ns(SECOND_NS)
        eventually(lambda count=gone + 1: count == len(scene.released), "the next thread")  # type: ignore[misc]
    for thread in threads:
        thread.join()

    assert [(f"{number}", number + 1.0) for number in range(10)] == scene.released
    assert scene.is_empty()


def test_a_forked_child_begins_with_empty_queues() -> None:
    """Those who wait are the parent's; in the child nobody is before the first who comes."""
    with Process("forks_while_others_wait", "memory://", module="forks") as process:
        status, said = process.ends()

    assert 0 == status
    assert ["child 0 True", "parent 3"] == said
    (line,) = process.stderr.splitlines()
    assert "was forked from one that has an agent of memory://" in line
