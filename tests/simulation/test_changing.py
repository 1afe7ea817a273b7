"""Goal: a run in which a limit changes is judged by every quota in force, and a node keeps to the one it was told.

Method: the stretches by hand, and small fleets in which a quota falls.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.limit import FIXED_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT
from reconverge.simulation.changing import QuotaChange, Stretch, draw_changes, largest_of, limit_at, stretches
from reconverge.simulation.fault import Fault
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.world import World

DECLARED = Limit(100, 10, algorithm=TOKEN_BUCKET, burst=20)
LOWER = replace(DECLARED, quota=10, burst=40)
HIGHER = replace(DECLARED, quota=300, burst=5)
CHANGES = (QuotaChange(LOWER, 5 * SECOND_NS, 2 * SECOND_NS), QuotaChange(HIGHER, 20 * SECOND_NS, 0))


def test_a_run_without_changes_is_judged_as_a_whole() -> None:
    """By the limit that was declared."""
    assert [Stretch(DECLARED, -1, NEVER_NS)] == stretches(DECLARED, ())


def test_every_stretch_has_the_limit_that_all_nodes_went_by() -> None:
    """And all of the run the largest quota with the largest burst, which need not be of one limit."""
    assert [
        Stretch(replace(DECLARED, quota=300, burst=40), -1, NEVER_NS),
        Stretch(DECLARED, -1, 5 * SECOND_NS),
        Stretch(LOWER, 7 * SECOND_NS, 20 * SECOND_NS),
        Stretch(HIGHER, 20 * SECOND_NS, NEVER_NS),
    ] == stretches(DECLARED, CHANGES)


def test_what_happens_in_the_moment_of_a_change_belongs_to_none() -> None:
    """A node may have been asked just before it, or just after it; all of the run has it."""
    _, _, lower, higher = stretches(DECLARED, CHANGES)
    moments = [7 * SECOND_NS, 7 * SECOND_NS + 1, 20 * SECOND_NS - 1, 20 * SECOND_NS, 20 * SECOND_NS + 1]

    assert [False, True, True, False, False] == [lower.includes(moment) for moment in moments]
    assert [False, False, False, False, True] == [higher.includes(moment) for moment in moments]


def test_a_node_is_told_within_the_spread_and_goes_by_the_last_that_it_was_told() -> None:
    """One that starts later begins with that."""
    for node in range(20):
        told_ns = CHANGES[0].reaches_ns(node)

        assert 5 * SECOND_NS <= told_ns <= 7 * SECOND_NS
        assert [None, LOWER] == [limit_at(CHANGES, node, moment) for moment in (told_ns - 1, told_ns)]
    assert HIGHER == limit_at(CHANGES, 0, 20 * SECOND_NS)


@pytest.mark.parametrize("faults", [(), ("crash:all@1s+2s",)], ids=["alive", "restarted"])
def test_nodes_keep_to_what_they_were_told(faults: tuple[str, ...]) -> None:
    """Of a hundred in a minute none had been used when the quota fell to ten; a node that was down meanwhile knows."""
    limit = Limit(100, 60, algorithm=FIXED_WINDOW)
    fleet = Fleet(
        2,
        limit,
        SECOND_NS,
        lease_ns=600 * SECOND_NS,
        changes=(QuotaChange(Limit(10, 60, FIXED_WINDOW), SECOND_NS * 2, 0),),
    )
    drawn = [Fault.parse(text, nodes=2, window_ns=limit.window_ns, random=Random(0)) for text in faults]
    world = World(fleet, STRICT, drawn, seed=1)
    arrivals = [
        SimulatedArrival(5 * SECOND_NS + number * SECOND_NS // 10, number % 2, "ada", 1) for number in range(300)
    ]
    history = world.run(arrivals, until_ns=50 * SECOND_NS)

    assert 10 == sum(one.allowed for one in history.decided)


def test_changes_are_over_before_the_next_and_leave_room_for_every_cost() -> None:
    """Each stretch of any case has a limit, and no request is a mistake."""
    for seed in range(200):
        changes = draw_changes(Random(seed), DECLARED, 6, cost_max=5)
        ends = [change.moment_ns + change.spread_ns for change in changes]

        assert all(end <= later.moment_ns + 1 for end, later in zip(ends, changes[1:], strict=False))
        assert all(change.limit.quota >= 5 <= change.limit.capacity for change in changes)
    assert DECLARED == largest_of([DECLARED])
