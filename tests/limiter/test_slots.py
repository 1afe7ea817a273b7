"""Goal: a slot is taken for as long as its block lasts, and given back exactly once, whatever becomes of the work.

Method: blocks that end in every way, on threads and in event loops, in races that are drawn at random; and a node that
is cut off from a real Redis while its work goes on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from random import Random
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, LeaseEnded, Slot, SlotLimiter
from reconverge.kernel.composite.asking import AskGate, DecidingRule
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer
from tests.support.waiting import eventually, eventually_in_loop, exit_code_of

RACES: int = 10_000


@pytest.fixture
def render() -> SlotLimiter:
    """Two slots for each key."""
    return Agent("memory://").concurrency("render", 2)


def _in_use(limiter: SlotLimiter) -> int:
    return limiter.control.table.slots_in_use()[0]


def _fails_in(slot: Slot) -> None:
    """A block that is left by an error."""
    with slot:
        raise ZeroDivisionError


def test_a_slot_is_in_use_for_as_long_as_its_block_lasts(render: SlotLimiter) -> None:
    """It is true and counted inside of the block, and neither after it."""
    with render.slot("ada") as slot:
        inside = bool(slot), _in_use(render)

    assert (True, 1) == inside
    assert (False, 0) == (bool(slot), _in_use(render))


def test_a_block_beyond_the_limit_has_no_slot(render: SlotLimiter) -> None:
    """The third of two is refused and gives nothing back; another key has slots of its own."""
    with render.slot("ada"), render.slot("ada"), render.slot("ada") as third, render.slot("bob") as other:
        inside = bool(third), bool(other), _in_use(render)

    assert (False, True, 3) == inside
    assert 0 == _in_use(render)


def test_an_error_in_the_block_gives_the_slot_back(render: SlotLimiter) -> None:
    """The error passes through, and both slots of the key can be taken again."""
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            _fails_in(render.slot("ada"))

    assert 0 == _in_use(render)


def test_a_slot_is_given_back_once_however_often_it_is_released(render: SlotLimiter) -> None:
    """Eight threads release one slot at once while another one is in use, which stays so."""
    kept, slot = render.slot("ada").acquire(), render.slot("ada").acquire()
    threads = [threading.Thread(target=slot.release) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == _in_use(render)
    assert kept.held


def test_a_slot_that_is_dropped_is_given_back_and_counted(render: SlotLimiter) -> None:
    """Its last reference goes while it is held."""
    slot = render.slot("ada").acquire()
    del slot

    assert 0 == _in_use(render)
    assert 1 == render.control.enforcement.slots_dropped


def test_a_forked_child_gives_back_none_of_its_parents_slots(render: SlotLimiter) -> None:
    """The child releases what it inherited and takes two of its own; the parent's slot is in use as before."""
    slot = render.slot("ada").acquire()
    child = os.fork()
    if child == 0:
        held = _in_use(render)
        slot.release()
        own = [bool(render.slot("bob").acquire()) for _ in range(2)]
        os._exit(0 if (held, own) == (0, [True, True]) else 1)

    assert 0 == exit_code_of(child)
    assert (True, 1) == (slot.held, _in_use(render))


def test_a_slot_that_is_awaited_tells_of_the_block(render: SlotLimiter) -> None:
    """Python would only say that it cannot be awaited."""
    slot: Any = render.slot("ada")

    with pytest.raises(TypeError, match=r"is not awaited; write: async with limiter\.slot\(key\) as slot"):
        slot.__await__()


def test_neither_kind_of_limiter_has_methods_of_the_other(render: SlotLimiter) -> None:
    """A limit on work in progress has no method that charges without a slot, and a rate has no slots."""
    login = Agent("memory://").limit("login", "5/minute")
    faces = [{name for name in dir(each) if name[0] != "_"} for each in (login, render)]

    assert {"slot"} == faces[1] - faces[0]
    assert {"allow", "hit", "ask", "wait", "reserve", "refund", "reset"} <= faces[0] - faces[1]
    assert {22, 12} == {len(face) for face in faces}


def test_the_number_of_slots_can_change_while_some_are_in_use(render: SlotLimiter) -> None:
    """A third fits beside two that are held, and of one slot none; the lease is as it was."""
    kept = [render.slot("ada").acquire() for _ in range(2)]
    lease = render.limit.lease
    render.change(3)
    third = bool(render.slot("ada").acquire())
    render.change("1 in flight")

    assert third
    assert (1, lease) == (render.limit.quota, render.limit.lease)
    assert not render.slot("ada").acquire()
    assert all(slot.held for slot in kept)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_queue": 3}, "add timeout="),
        ({"order": "lifo"}, "add timeout="),
        ({"on_lease_end": "stop"}, "must be 'cancel'"),
        ({"timeout": 1.0, "order": "random"}, "order"),
    ],
)
def test_a_setting_of_a_slot_that_has_no_effect_is_refused(
    settings: dict[str, Any], problem: str, render: SlotLimiter
) -> None:
    """Before anything is charged."""
    with pytest.raises(InvalidSetting, match=problem):
        render.slot("ada", **settings)


@pytest.mark.parametrize(("order", "expected"), [("fifo", [1, 2, 3]), ("lifo", [3, 2, 1])])
async def test_the_queue_is_served_from_the_end_that_was_asked_for(order: Any, expected: list[int]) -> None:
    """Three wait for the one slot, and a fourth finds the queue full."""
    render = Agent("memory://").concurrency("render", 1)
    served: list[int] = []

    async def wait(number: int) -> bool:
        async with render.slot("ada", timeout=30.0, max_queue=3, order=order) as slot:
            if slot:
                served.append(number)
            return bool(slot)

    first = await render.slot("ada").acquire_async()
    tasks = []
    for number in (1, 2, 3):
        tasks.append(asyncio.create_task(wait(number)))
        await asyncio.sleep(0)
    fourth = await wait(4)
    first.release()
    await asyncio.gather(*tasks)

    assert fourth is False
    assert expected == served
    assert 0 == _in_use(render)


@pytest.mark.slow
async def test_ten_thousand_races_leave_no_slot_in_use() -> None:
    """Tasks take, wait, end, fail and are cancelled at moments that are drawn; no more than the limit ever run."""
    render, random = Agent("memory://").concurrency("render", 8), Random(20)
    running = peak = 0

    async def work() -> None:
        nonlocal running, peak
        timeout = random.choice([None, 0.001, 5.0])
        async with render.slot("ada", timeout=timeout) as slot:
            if not slot:
                return
            running += 1
            peak = max(peak, running)
            try:
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)
                if random.random() < 0.1:
                    raise ZeroDivisionError
            finally:
                running -= 1

    for _ in range(RACES // 100):
        tasks = [asyncio.create_task(work()) for _ in range(100)]
        for _ in range(20):
            await asyncio.sleep(0)
            random.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert 8 == peak
    assert (0, 0) == (_in_use(render), running)
    assert 0 == render.control.enforcement.slots_dropped


def test_room_that_comes_in_the_middle_of_a_refusal_is_held() -> None:
    """Another thread gives a slot back between the look that finds none and the refusal, which then admits."""
    render = Agent("memory://").concurrency("render", 1)
    first = render.slot("ada").acquire()
    gate, table = AskGate(render.control.table), render.control.table
    lock, calls = table.lock, []

    class LetsOneBack:
        def run(self, step: Any, *arguments: Any) -> Any:
            calls.append(step)
            if len(calls) == 2:
                table.lock = lock
                first.release()
            return lock.run(step, *arguments)

    table.lock = LetsOneBack()  # type: ignore[assignment]
    settled = gate.settle("ada", (1,), DecidingRule.MEMORY, refuse=True, counted=False, units=(1,))

    assert settled is not None
    assert (True, 1) == (settled.decision.allowed, len(settled.charges))


def test_a_node_that_is_cut_off_starts_nothing_after_its_lease(
    make_agent: MakeAgent, redis_server: RedisServer
) -> None:
    """One of two slots is in use, and the other one, which was the node's own, cannot be taken any more."""
    with Relay(redis_server.port) as relay:
        agent = make_agent(relay.url, exchange_timeout=0.1)
        render = agent.concurrency("render", 2, lease=0.4, policy="strict")
        slot = render.slot("ada")
        eventually(slot.acquire, "a first slot, once the hub has learned what there is")
        eventually(lambda: _takes_and_returns(render, "ada"), "an allowance for both slots")
        relay.lose_requests = 1.0
        eventually(lambda: slot.lease_is_over, "the end of the lease")

        assert not _takes_and_returns(render, "ada")
        assert slot.held


def test_work_is_cancelled_when_its_lease_ends_if_that_was_asked_for(
    make_agent: MakeAgent, redis_server: RedisServer
) -> None:
    """The node is cut off from Redis while its work goes on; LeaseEnded leaves the block, and the slot is back."""
    with Relay(redis_server.port) as relay:
        agent = make_agent(relay.url, exchange_timeout=0.1)
        render = agent.concurrency("render", 2, lease=0.4)

        async def story() -> None:
            await eventually_in_loop(lambda: _takes_and_returns(render, "ada"), "an allowance for a slot")
            async with render.slot("ada", on_lease_end="cancel") as slot:
                assert slot.held
                relay.lose_requests = 1.0
                await asyncio.Event().wait()

        with pytest.raises(LeaseEnded, match="the hub has not answered for longer than the lease of 'render' lasts"):
            asyncio.run(asyncio.wait_for(story(), 30.0))

    assert 0 == _in_use(render)


def _takes_and_returns(limiter: SlotLimiter, key: str) -> bool:
    with limiter.slot(key, within=0.0) as slot:
        return bool(slot)
