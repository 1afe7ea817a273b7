"""Goal: signals tell how loaded a worker is, in real event loops and under a clock of the test."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import ManualClock
from reconverge.errors import InvalidSetting
from reconverge.shedding import LoopLag, Occupancy, ShedRefusal, WorkerShedder
from reconverge.shedding.layers import Arrival
from reconverge.shedding.worker.shedder import Busy
from reconverge.shedding.worker.signals import FULL_PRESSURE, pressure_of
from tests.support.shed import TWO
from tests.support.waiting import eventually

SECOND = 10**9


@given(target=st.floats(0.1, 0.99), busy=st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_the_pressure_rises_with_the_busy_fraction(target: float, busy: list[float]) -> None:
    """More busy workers never mean less pressure; the target is 1, and all busy is the most."""
    assert 1.0 == pressure_of(target, target)
    assert FULL_PRESSURE == pytest.approx(pressure_of(1.0, target))
    assert all(pressure_of(one, target) <= pressure_of(other, target) + 1e-9 for one, other in pairwise(sorted(busy)))


def test_occupancy_is_a_mean_over_time() -> None:
    """Two of four workers that are busy for half a second are a quarter busy in a second."""
    signal = Occupancy(4, target=0.5)
    signal.pressure(0)
    for now_ns in (0, 0):
        signal.began(now_ns)
    for now_ns in (SECOND // 2, SECOND // 2):
        signal.ended(now_ns)

    assert 0.5 == signal.pressure(SECOND)


def test_a_pending_callback_has_an_age() -> None:
    """A loop that does not come to its callback has a lag as long as it has been waiting, before it answers."""
    loop = asyncio.new_event_loop()
    signal = LoopLag(target=0.1)
    signal.probe(loop, 0, lambda: 0)
    signal.probe(loop, 2 * SECOND, lambda: 0)

    assert 20.0 == signal.pressure(2 * SECOND)
    loop.close()


def test_a_lag_that_stands_counts_more() -> None:
    """With no short reading in four steps the lag counts nine times; with one of them it counts once.

    So connections are seen that a loop has not accepted yet: its rounds are short, and there is no pause between them.
    """
    standing, passing = LoopLag(target=0.1), LoopLag(target=0.1)
    pressures: dict[LoopLag, list[float]] = {standing: [], passing: []}
    for step in range(8):
        for signal, seen in pressures.items():
            signal.heard(SECOND // 10)
            if signal is passing and step % 3 == 0:
                signal.heard(0)
            seen.append(signal.pressure(step * SECOND))

    assert [1.0] * 3 + [9.0] * 5 == pressures[standing]
    assert [1.0] * 8 == pressures[passing]


def test_connections_that_wait_in_the_kernel_count_by_how_long_they_wait() -> None:
    """Ten of them at a hundred requests a second wait for 0.1 s, which is twice the target; a burst of them is none."""
    queue, burst = LoopLag(target=0.05), LoopLag(target=0.05)
    for signal, readings in ((queue, [10, 12, 30, 11]), (burst, [10, 12, 0, 30])):
        signal.arrived(100, 100.0)
        signal.arrived(10_000, 100.0)
        for reading in readings:
            signal.waits(reading)

    assert 2.0 == pytest.approx(queue.pressure(0))
    assert 0.0 == burst.pressure(0)


def test_a_short_backlog_of_a_loop_that_serves_nothing_is_no_flood() -> None:
    """Where no requests arrive, a connection that waits counts as a second: the lag says the rest."""
    signal = LoopLag(target=0.5)
    for _ in range(4):
        signal.waits(1)

    assert 2.0 == signal.pressure(0)


def test_a_closed_loop_is_noticed() -> None:
    """A loop that has been closed is no longer measured, and does not raise."""
    loop = asyncio.new_event_loop()
    loop.close()

    assert not LoopLag().probe(loop, 0, lambda: 0)


async def test_a_blocked_loop_is_seen_while_it_is_blocked() -> None:
    """The fraction rises while a handler blocks the loop, and not only after it: the thread does not need the loop."""
    shedder = WorkerShedder(classes=TWO)
    seen = threading.Event()

    for _ in range(100):
        shedder.enter(Arrival("ada", 1, 0))
    shedder.watch(asyncio.get_running_loop())
    await asyncio.sleep(0)
    eventually(lambda: shedder.rejected > 0, "the fraction to rise")  # waits on this thread, as bad handlers do
    seen.set()

    assert seen.is_set()


def test_the_measuring_thread_ends_with_its_loop() -> None:
    """After the loop is closed nothing measures it, and another loop can be watched."""
    shedder = WorkerShedder(classes=TWO)

    async def watch() -> None:
        shedder.watch(asyncio.get_running_loop())

    asyncio.run(watch())
    eventually(lambda: shedder._loop is None, "the end of the measurement")
    asyncio.run(watch())
    eventually(lambda: shedder._loop is None, "the end of the second measurement")


def test_busy_threads_have_it_shed() -> None:
    """With all of four workers busy for a second, the less important class is shed and the other is not."""
    clock = ManualClock()
    shedder = WorkerShedder(Occupancy(4), classes=TWO, clock=clock)
    held = [shedder.enter(Arrival("ada", 0, 0)) for _ in range(4)]
    refused = {0: 0, 1: 0}
    for step in range(100):
        clock.advance(0.01)
        answer = shedder.enter(Arrival("ada", step % 2, clock.monotonic_ns()))
        if isinstance(answer, ShedRefusal):
            refused[step % 2] += 1
        elif isinstance(answer, Busy):
            answer.finish(clock.monotonic_ns(), "served")

    assert refused[1] > 25
    assert 0 == refused[0]
    assert all(isinstance(each, Busy) for each in held)


def test_what_has_ended_twice_is_free_once() -> None:
    """A ticket that is finished and given back leaves the other one's worker busy."""
    signal = Occupancy(4)
    shedder = WorkerShedder(signal, classes=TWO, clock=ManualClock())
    tickets = [shedder.enter(Arrival("ada", 0, 0)) for _ in range(2)]
    first = tickets[0]
    assert isinstance(first, Busy)
    first.finish(1, "served")
    first.give_back(1)

    assert 1 == signal.busy


@pytest.mark.parametrize(
    "make", [lambda: LoopLag(0), lambda: LoopLag(1e9), lambda: Occupancy(0), lambda: Occupancy(2, 1)]
)
def test_targets_that_make_no_sense_are_told(make: object) -> None:
    """A target out of range, and no workers, are errors that name the value."""
    with pytest.raises(InvalidSetting, match=r"target|workers"):
        make()  # type: ignore[operator]  # what is tested


def test_a_signal_that_is_none_is_told() -> None:
    """A string in place of a signal is an error that says what there is."""
    with pytest.raises(InvalidSetting, match="a LoopLag or an Occupancy"):
        WorkerShedder("lag")  # type: ignore[arg-type]  # what is tested
