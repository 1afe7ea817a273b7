"""Goal: who waits for a share goes when it has room, or when there is something to borrow, and leaves nothing behind.

Method: on a clock that is moved by hand, so that every moment is exact.
"""

from __future__ import annotations

import asyncio

import pytest

from reconverge import Agent, CostExceedsQuota, Decision
from reconverge.clock import SECOND_NS, ManualClock
from tests.support.waiters import Scene, settled

pytestmark = pytest.mark.usefixtures("no_task_left")


def scene_of_a_share(share: str, parent: str, algorithm: str = "fixed-window") -> tuple[Scene, Scene]:
    """A scene with a limit that has a parent, and one for the parent; they share the record of who went when."""
    clock = ManualClock()
    agent = Agent("memory://", clock=clock)
    api = agent.limit("api", parent, algorithm=algorithm)
    search = agent.limit("queue", share, algorithm=algorithm, parent=api)
    ours, theirs = Scene(clock, agent, search), Scene(clock, agent, api)
    theirs.released = ours.released
    return ours, theirs


async def test_who_waits_for_a_share_borrows_when_there_is_something_to_borrow() -> None:
    """In turn, each out of whichever has room first; what is borrowed says so."""
    scene, _ = scene_of_a_share("2/10s", "5/10s")
    decisions: list[Decision] = []

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(7)]
    await settled()
    await scene.passes(20.0, steps=4)
    decisions.extend([await task for task in tasks])

    assert [(f"{number}", 0.0 if number < 5 else 10.0) for number in range(7)] == scene.released
    assert [False, False, True, True, True, False, False] == [each.borrowed for each in decisions]
    assert ["queue"] * 2 + ["api"] * 3 + ["queue"] * 2 == [each.binding for each in decisions]
    assert [4, 3] == scene.charges
    assert scene.is_empty()


@pytest.mark.parametrize("share_first", [True, False])
async def test_who_waits_for_a_share_goes_when_either_has_room(share_first: bool) -> None:
    """A nanosecond before he does not; a timeout that only one of the two can meet is met."""
    scene, parents = scene_of_a_share("2/10s", "5/10s", "sliding-log")
    uses = [(scene.limiter, 2), (parents.limiter, 3)]

    for limiter, cost in uses if share_first else reversed(uses):
        assert limiter.allow("ada", cost)
        await scene.passes(4.0)
    task = asyncio.create_task(scene.waits("waits", timeout=2.5))
    await settled()
    scene.clock.advance_ns(2 * SECOND_NS - 1)
    await settled()
    assert not task.done()
    scene.clock.advance_ns(1)

    assert share_first is not (await task).borrowed

    assert [("waits", 10.0)] == scene.released
    assert scene.is_empty()


async def test_a_share_is_there_for_who_waits_whoever_waits_for_the_parent() -> None:
    """However many that are, and although they came first."""
    scene, parents = scene_of_a_share("2/10s", "5/10s")

    theirs = [asyncio.create_task(parents.waits(f"parent {number}")) for number in range(100)]
    await settled()
    ours = [asyncio.create_task(scene.waits(f"{number}")) for number in range(4)]
    await settled()
    await scene.passes(10.0)
    assert all(task.done() for task in ours)
    for task in theirs:
        task.cancel()
    await asyncio.gather(*theirs, return_exceptions=True)

    assert [("0", 0.0), ("1", 0.0), ("2", 10.0), ("3", 10.0)] == [each for each in scene.released if len(each[0]) == 1]
    assert {6} == {len(parents.released) - 4}
    assert scene.is_empty()
    assert parents.is_empty()


async def test_what_is_made_free_for_all_wakes_who_waits_for_a_share() -> None:
    """A reset of the parent, and a reservation of it that is settled for less."""
    scene, parents = scene_of_a_share("2/10s", "5/10s")

    assert scene.limiter.allow("ada", 2)
    reservation = parents.limiter.reserve("ada", 3)
    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(2)]
    await settled()
    reservation.settle(2)
    await settled()
    assert [True, False] == [task.done() for task in tasks]
    parents.limiter.reset("ada")
    await settled()

    assert [True, True] == [task.done() for task in tasks]

    assert scene.is_empty()


@pytest.mark.parametrize("share", ["2/10s", "3/10s"])
async def test_a_cost_that_only_one_of_share_and_parent_could_admit_waits_for_that_one(share: str) -> None:
    """Whichever it is; and one that neither could admit is a mistake."""
    scene, _ = scene_of_a_share(share, "5/10s")
    await scene.waits("now", 3)
    task = asyncio.create_task(scene.waits("later", 3))
    await scene.passes(10.0)
    assert await task
    with pytest.raises(CostExceedsQuota):
        await scene.waits("never", 4)

    assert [("now", 0.0), ("later", 10.0)] == scene.released
    assert scene.is_empty()


async def test_a_refusal_of_a_share_names_whichever_may_admit_first() -> None:
    """At once if the timeout cannot be met by either, and otherwise when it is over."""
    scene, parents = scene_of_a_share("2/10s", "5/10s")

    assert scene.limiter.allow("ada", 2)
    assert parents.limiter.allow("ada", 3)
    hopeless = await scene.waits("hopeless", timeout=9.9)
    waits = asyncio.create_task(scene.waits("in time", timeout=10.0))
    await scene.passes(10.0)

    assert (False, 10.0, False) == (hopeless.allowed, hopeless.retry_after, hopeless.borrowed)
    assert await waits

    assert ["hopeless"] == scene.refused
    assert scene.is_empty()


def test_what_is_asked_of_share_and_parent_is_the_same_whether_one_hits_or_waits() -> None:
    """So allowances go where they are needed: what was borrowed was wanted of the share, and once."""
    asked: list[list[int]] = []
    for how in ("hit", "wait"):
        # Of slices, as a lone key whose windows are counted compiled does not remember what was asked of it.
        scene, _ = scene_of_a_share("2/10s", "5/10s", "sliding-slices")
        for _ in range(7):
            scene.limiter.hit("ada") if how == "hit" else scene.limiter.wait_blocking("ada", timeout=0)
        assert [2, 3] == scene.charges
        asked.append([cell.arrived for table in scene.limiter.control.tables for cell in table.all_cells()])

    assert [7, 5] == asked[0] == asked[1]


async def test_a_request_that_waited_was_asked_of_both_once() -> None:
    """However often it tried, and wherever it was charged in the end."""
    scene, _ = scene_of_a_share("2/10s", "5/10s")

    tasks = [asyncio.create_task(scene.waits(f"{number}")) for number in range(10)]
    await settled()
    for _ in range(5):
        scene.limiter.control.table.tell("ada")
        await settled()
    await scene.passes(10.0)
    await asyncio.gather(*tasks)

    assert [10, 8] == [cell.arrived for table in scene.limiter.control.tables for cell in table.all_cells()]
