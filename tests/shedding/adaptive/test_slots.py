"""The requests in progress: never more than the limit, and none left behind."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.errors import InvalidSetting
from reconverge.shedding import AdaptiveConcurrency, Fixed, ShedRefusal
from reconverge.shedding.adaptive.concurrency import SlotInUse
from reconverge.shedding.adaptive.slots import RunningCount
from reconverge.shedding.layers import Arrival
from tests.support.shed import TWO

SECOND = 10**9


def taken(slots: RunningCount, rank: int, times: int, now_ns: int = 0) -> int:
    return sum(slots.take(rank, now_ns) > 0 for _ in range(times))


def freed(slots: RunningCount, rank: int, times: int = 1) -> None:
    with slots.lock:
        for _ in range(times):
            slots.free(rank)


def in_threads(work: Callable[[int], None], numbers: Iterable[int]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@given(
    limit=st.integers(min_value=1, max_value=20),
    guarantees=st.none() | st.just((0.5, 0.3, 0.0)),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, SECOND)), max_size=200),
)
def test_no_more_run_than_the_limit(
    limit: int, guarantees: tuple[float, ...] | None, steps: list[tuple[bool, int, int]]
) -> None:
    """The sum of running requests, of all classes, is the count, and within the limit."""
    slots = RunningCount(limit, 3, guarantees)
    now_ns = 0
    for start, rank, passed in steps:
        now_ns += passed
        if start:
            slots.take(rank, now_ns)
        elif slots.running[rank]:
            freed(slots, rank)

        assert slots.in_flight == sum(slots.running)
        assert limit >= slots.in_flight


def test_the_last_slot_and_no_more() -> None:
    """Ten start of ten, and the eleventh does not."""
    slots = RunningCount(10, 2)

    assert 10 == taken(slots, 0, 11)


def test_less_important_classes_leave_room_for_what_others_want() -> None:
    """Where the first class lately ran three, the second leaves it that and one more."""
    slots = RunningCount(10, 2)
    taken(slots, 0, 3)
    freed(slots, 0, 3)

    assert 6 == taken(slots, 1, 10)
    assert 4 == taken(slots, 0, 10)


def test_a_class_that_sends_nothing_wastes_no_slot() -> None:
    """All slots go to the least important class, where there is no other."""
    assert 10 == taken(RunningCount(10, 2), 1, 20)


def test_a_class_that_begins_gets_what_is_freed() -> None:
    """The slots that the first class was refused are left free for it when requests of the second end."""
    slots = RunningCount(10, 2)
    taken(slots, 1, 10)
    taken(slots, 0, 1)
    freed(slots, 1)

    assert 0 == taken(slots, 1, 1)
    assert 1 == taken(slots, 0, 1)


def test_a_demand_is_forgotten() -> None:
    """Six seconds after the first class has ended nothing is left free for it."""
    slots = RunningCount(10, 2)
    taken(slots, 0, 5)
    freed(slots, 0, 5)

    assert 3 == taken(slots, 1, 10)
    assert 10 == 3 + taken(slots, 1, 10, 7 * SECOND)


def test_what_ran_when_a_request_was_refused_is_known() -> None:
    """Of ten slots, of which some are left free for users, it is what ran at the refusal; and nothing before one."""
    slots = RunningCount(10, 2)
    taken(slots, 0, 3)
    freed(slots, 0, 3)
    assert 0 == slots.full_at

    room = taken(slots, 1, 20)
    assert 0 < room < 10
    assert room == slots.full_at


def test_a_demand_shrinks_with_what_runs() -> None:
    """While what is in progress is lowered to a half, a half of what users want is left free, and the same margin."""
    slots = RunningCount(20, 2)
    taken(slots, 0, 8)
    freed(slots, 0, 8)
    slots.scale = 0.5

    assert 20 - (8 // 2 + 1 + 8 // 4) == taken(slots, 1, 30)


def test_a_guarantee_is_kept_by_leaving_slots_free() -> None:
    """With half for each, a class that floods leaves the other what it lately wanted, and both keep the limit."""
    slots = RunningCount(10, 2, (0.5, 0.5))
    taken(slots, 0, 5)
    freed(slots, 0, 5)

    assert 5 == taken(slots, 1, 20)
    assert 5 == taken(slots, 0, 20)


def test_a_guarantee_is_never_beyond_the_limit() -> None:
    """A class that has begun late and is below its guarantee waits for what the others have to end."""
    slots = RunningCount(10, 2, (0.5, 0.5))

    assert 9 == taken(slots, 1, 20)
    assert 1 == taken(slots, 0, 20)
    freed(slots, 1, 4)
    assert 4 == taken(slots, 0, 20)


def test_admission_is_one_step() -> None:
    """Of sixteen threads that enter at once exactly ten run, five hundred times (concurrency-limits #234)."""
    layer = AdaptiveConcurrency(Fixed(10), classes=TWO)
    rounds, before_s = 500, sys.getswitchinterval()
    meet = threading.Barrier(16)
    running = [[0] * 16 for _ in range(rounds)]

    def work(number: int) -> None:
        for turn in range(rounds):
            meet.wait()
            answer = layer.enter(Arrival("ada", 0, turn))
            running[turn][number] = isinstance(answer, SlotInUse)
            meet.wait()
            if isinstance(answer, SlotInUse):
                answer.finish(turn + 1)

    sys.setswitchinterval(1e-6)
    try:
        in_threads(work, range(16))
    finally:
        sys.setswitchinterval(before_s)

    assert 0 == layer.in_flight
    assert {10} == {sum(each) for each in running}


def test_ten_thousand_races_leave_nothing_behind() -> None:
    """Slots that are finished and given back by two threads at once are freed once: zero remain of 10,000."""
    layer = AdaptiveConcurrency(Fixed(1000), classes=TWO)
    slots: list[SlotInUse] = []
    gate = threading.Barrier(4)

    def race(seed: int) -> None:
        order = random.Random(seed)
        gate.wait()
        for slot in slots:
            (slot.give_back if order.random() < 0.5 else slot.finish)(10)

    for _ in range(10):
        slots.clear()
        while len(slots) < 1000:
            answer = layer.enter(Arrival("ada", 0, 5))
            assert isinstance(answer, SlotInUse)
            slots.append(answer)
        in_threads(race, range(4))

        assert 0 == layer.in_flight
        assert [0, 0] == layer.slots.running


def test_a_forked_child_owns_no_slot() -> None:
    """After a fork nothing runs, and the end of what the parent began changes nothing."""
    layer = AdaptiveConcurrency(Fixed(2), classes=TWO)
    slot = layer.enter(Arrival("ada", 0, 0))
    layer.start_over_after_fork()
    assert isinstance(slot, SlotInUse)
    slot.finish(1)

    assert 0 == layer.in_flight


def test_a_refusal_says_what_runs() -> None:
    """The eleventh of ten is refused with 503, a time to wait, and a sentence with both numbers."""
    layer = AdaptiveConcurrency(Fixed(1), classes=TWO)
    layer.enter(Arrival("ada", 0, 0))
    refusal = layer.enter(Arrival("ada", 0, 0))

    assert isinstance(refusal, ShedRefusal)
    assert (503, 1.0, "concurrency") == (refusal.status, refusal.retry_after, refusal.layer)
    assert "1 requests are in progress here, and at most 1 are allowed." == refusal.reason


@pytest.mark.parametrize(
    ("partitions", "told"),
    [({"users": 0.5}, "users"), ({"user": 2}, "fraction"), ({"user": 0.9, "prefetch": 0.2}, "1.1"), ("user", "map")],
)
def test_partitions_that_make_no_sense_are_told(partitions: dict[str, float], told: str) -> None:
    """An unknown class, a fraction that is none, and more than the whole are errors that say so."""
    with pytest.raises(InvalidSetting, match=told):
        AdaptiveConcurrency(classes=TWO, partitions=partitions)


def test_an_unknown_algorithm_is_told() -> None:
    """A misspelt name is an error that has the right one."""
    with pytest.raises(InvalidSetting, match="did you mean 'vegas'"):
        AdaptiveConcurrency("vegass")
