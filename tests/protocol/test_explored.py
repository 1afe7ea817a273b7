"""Goal: no limit that has a bound is exceeded, and none stays shut, in whichever order things happen to two nodes.

Method: all short sequences of coarse actions and faults, and long ones at random, on the production code, each judged
against one that knows all; and single stories that were once wrong.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.limit import (
    FIRST_HIT,
    FIXED_WINDOW,
    GCRA,
    INTERVAL,
    LEAKY_BUCKET,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Limit,
)
from reconverge.limit.limit import CONCURRENCY
from reconverge.policies import STRICT, Policy, choose
from tests.support.effort import tried
from tests.support.explored import FAULTS, SmallWorld, actions_of

KINDS = (
    "fixed",
    "first hit",
    "sliding",
    "slices",
    "log",
    "tokens",
    "burst",
    "initial",
    "interval",
    "gcra",
    "leaky",
    "slots",
)


def limit_of(kind: str, quota: int, window_s: float) -> Limit:
    """A limit of that kind."""
    if kind == "slots":
        return Limit(quota, algorithm=CONCURRENCY, lease=window_s)
    if kind == "first hit":
        return Limit(quota, window_s, algorithm=FIXED_WINDOW, align=FIRST_HIT)
    if kind == "slices":
        return Limit(quota, window_s, algorithm=SLIDING_SLICES, slices=3)
    if kind == "burst":
        return Limit(max(1, quota // 2), window_s, algorithm=TOKEN_BUCKET, burst=quota)
    if kind == "initial":
        return Limit(quota, window_s, algorithm=TOKEN_BUCKET, initial=quota // 2)
    if kind == "interval":
        return Limit(quota, window_s, algorithm=TOKEN_BUCKET, refill=INTERVAL)
    algorithm = {
        "fixed": FIXED_WINDOW,
        "sliding": SLIDING_WINDOW,
        "log": SLIDING_LOG,
        "tokens": TOKEN_BUCKET,
        "gcra": GCRA,
        "leaky": LEAKY_BUCKET,
    }[kind]
    return Limit(quota, window_s, algorithm=algorithm)


def lived(limit: Limit, policy: Policy, story: tuple[str, ...], *, asking: int | None = None) -> list[str]:
    """Returns the problems when all of this has happened, and node `asking` has asked for all long afterwards."""
    actions = actions_of(limit)
    world = SmallWorld(limit, policy)
    for name in story:
        actions[name](world)
        if world.problems:
            return world.problems
    if asking is not None:
        least, got = world.expected, world.recovers(asking)
        if got < least - 1 and any(name.startswith("lowers") for name in story):
            # What drains is reckoned by the smallest burst of all, which a dead node's allowance may be larger than. So
            # a bucket may begin to drain with the first report after that.
            got = world.recovers(asking)
        if got < least - 1:
            world.problems.append(f"node {asking} gets {got} of {least}")
    return world.problems


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_short_sequence_of_actions_exceeds_a_limit(kind: str) -> None:
    """Any two or three things happen one after the other once both nodes have used the key."""
    limit = limit_of(kind, 4, 2.0)
    depth = tried(1, long=3)
    names = tuple(actions_of(limit))
    before = tuple(name for name in ("hits 0", "asks 1") if name in names)
    after = tuple(name for name in ("hits 0", "asks all 1", "hits 1") if name in names)
    stories = [(*before, *each, *after) for each in product(names, repeat=depth)]
    stories += [(*before, *each, *after) for each in product(FAULTS, repeat=tried(2, long=3))]

    assert {} == {story: problems for story in stories if (problems := lived(limit, STRICT, story))}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(25, long=4000))
def test_no_long_story_exceeds_a_limit_or_leaves_it_shut(kind: str, data: st.DataObject) -> None:
    """Also not by more than `balanced` may; and when all has been idle, one node that asks gets all there is."""
    limit = limit_of(kind, data.draw(st.sampled_from([2, 3, 5, 6, 16])), data.draw(st.sampled_from([2.0, 10.0])))
    policy = choose(max_overshoot=data.draw(st.sampled_from([0.0, 0.0, 0.5])), cold_allowance=0.0)
    story = data.draw(st.lists(st.sampled_from(tuple(actions_of(limit))), max_size=14))
    asking = data.draw(st.sampled_from([0, 1]))

    assert [] == lived(limit, policy, tuple(story), asking=asking)


STORIES = {
    "a cell that was followed into the next window before that began is begun anew in the one before": (
        ("fixed", 2, 10.0),
        ("asks 1", "edge", "leaves 1", "loses answer 0", "asks all 0"),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_no_story_that_was_once_wrong_is_wrong_again(name: str) -> None:
    """Each was found by exploring, and cut down."""
    limit, story = STORIES[name]

    assert [] == lived(limit_of(*limit), STRICT, story)


@pytest.mark.parametrize("kind", ["fixed", "first hit", "sliding"])
def test_what_a_dead_node_held_counts_in_no_window_after_its_lease(kind: str) -> None:
    """However late the hub looks: the first request after a long rest finds the whole quota."""
    for story in (
        ("loses answer 0", "exchanges 0", "dies 0", "asks all 0", "edge"),
        ("asks 0", "dear hits 1", "dies 1", "edge", "exchanges 0"),
        ("asks 1", "evicts 1", "dear hits 1", "hits 1", "loses request 0", "asks all 0", "dies 1"),
    ):
        for asking in (0, 1):
            assert [] == lived(limit_of(kind, 3, 2.0), STRICT, story, asking=asking)


@pytest.mark.parametrize("kind", ["tokens", "gcra", "interval"])
def test_what_a_dead_node_was_granted_for_asks_drains_though_nobody_reports(kind: str) -> None:
    """From the end of its lease on, as nothing else drains it."""
    for asking in (0, 1):
        assert [] == lived(limit_of(kind, 2, 2.0), STRICT, ("asks 0", "asks 1", "dies 0", "evicts 0"), asking=asking)
