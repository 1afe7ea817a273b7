"""Goal: a request waits for the hub for as long as it says, and for its own process beside that, up to a longest.

Method: the real kernel, syncer and hub, whose every message the test carries, with a clock that stands still or leaps.
"""

from __future__ import annotations

import pytest

from reconverge.clock import MILLISECOND_NS
from reconverge.limiter.patience import LOST_MAX_NS, TURN_NS
from reconverge.policies import BALANCED
from reconverge.simulation.asked import Asked, Beside
from tests.limiter.test_asking import FIVE, WITHIN_NS, Ask, Ring, Scene


def asked_of_a_hub_without_room() -> tuple[Scene, Ask]:
    """All five are used on another node, so only memory would admit the request, on what it believes of a new key."""
    scene = Scene(FIVE, policy=BALANCED)
    for _ in range(5):
        assert scene.settles(1)
    return scene, scene.asks(0)


@pytest.mark.parametrize("stands_still_ns", [WITHIN_NS, LOST_MAX_NS])
def test_what_passes_while_the_loop_stands_still_is_not_the_hubs_time(stands_still_ns: int) -> None:
    """A handler computes for so long; then the answer is read, and it refuses what memory would have admitted."""
    scene, ask = asked_of_a_hub_without_room()
    node = scene.nodes[0]
    node.sends()
    scene.clock.advance_ns(stands_still_ns)
    ask.goes_on()
    assert ask.waits

    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert not ask.allowed
    assert {"refused": 1} == scene.results(0)


def test_a_loop_that_stands_still_for_longer_has_memory_decide() -> None:
    """By a nanosecond more than what a request waits for its process and for the hub."""
    scene, ask = asked_of_a_hub_without_room()
    scene.nodes[0].sends()
    scene.clock.advance_ns(LOST_MAX_NS + WITHIN_NS - 1)
    ask.goes_on()
    assert ask.waits

    scene.clock.advance_ns(TURN_NS + 1)
    ask.goes_on()
    assert ask.allowed
    assert {"timeout": 1} == scene.results(0)


def test_a_batch_that_no_runner_takes_is_waited_for_up_to_the_longest() -> None:
    """The runner of the exchanges has not had its turn, though the request has had all of its own."""
    scene, ask = asked_of_a_hub_without_room()

    assert LOST_MAX_NS + WITHIN_NS == ask.sleeps(scene.clock)


def test_a_runner_that_is_late_is_waited_for() -> None:
    """It has noted a turn and should have noted more; what it is late by does not count."""
    scene, ask = asked_of_a_hub_without_room()
    node = scene.nodes[0]
    (shard,) = node.kernel.shards
    node.sends()
    node.syncer.note_turn(scene.clock.monotonic_ns())

    assert LOST_MAX_NS + WITHIN_NS + TURN_NS >= ask.sleeps(scene.clock) > LOST_MAX_NS

    assert shard.in_vain


def test_a_runner_that_has_its_turns_is_not_waited_for_beyond_the_hubs_time() -> None:
    """It is the hub that does not answer."""
    scene, ask = asked_of_a_hub_without_room()
    node, clock = scene.nodes[0], scene.clock
    node.sends()
    began_ns = clock.monotonic_ns()
    while ask.waits:
        node.syncer.note_turn(clock.monotonic_ns())
        clock.advance_ns(min(ask.sleep_ns, MILLISECOND_NS))
        if clock.monotonic_ns() - began_ns >= WITHIN_NS or (clock.monotonic_ns() - began_ns) % TURN_NS == 0:
            ask.goes_on()

    assert WITHIN_NS == clock.monotonic_ns() - began_ns


def test_limits_that_are_charged_together_wait_for_their_process_alike() -> None:
    """As contracts and guards ask: the answer comes while the loop stands still."""
    scene, beside = Scene(FIVE, nodes=1, policy=BALANCED), Beside(FIVE, 1)
    asked = Asked(scene.limits[0])
    asked.have_beside(scene.nodes[0].limit(FIVE, BALANCED, "beside"), beside)
    for asking in (*asked._asking, asked._beside_asking):
        asking.manual = False  # the test sees to it that messages are carried
    steps = asked.ask("ada", 1, WITHIN_NS, Ring())
    next(steps)
    scene.nodes[0].sends()
    scene.clock.advance_ns(2 * WITHIN_NS)
    next(steps)  # it goes on waiting
    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()

    with pytest.raises(StopIteration):
        next(steps)
    assert [{"admitted": 1}] * 2 == [
        {result: count for result, count in asking.stats.results.items() if count}
        for asking in (*asked._asking, asked._beside_asking)
    ]
