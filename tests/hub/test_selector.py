"""Goal: a node goes to the other hub when the primary fails, comes back when it answers, and does not flap.

Method: the choice alone, which is told what became of exchanges and questions, and at which moment.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.fallback.selector import (
    ANSWERS_MIN,
    FAILURES_MAX,
    JITTER,
    PROBE_MAX_NS,
    PROBE_NS,
    STEADY_SHARE,
    HubChoice,
)

SOON_NS = int(PROBE_NS * (1 - JITTER))
LATE_NS = int(PROBE_NS * (1 + JITTER)) + 1


def fails(choice: HubChoice, times: int = FAILURES_MAX, *, now_ns: int = 0) -> bool:
    """So many exchanges fail in a row; whether the last one makes the node move."""
    return [choice.exchanged(answered=False, now_ns=now_ns) for _ in range(times)][-1]


def comes_back(choice: HubChoice, now_ns: int) -> int:
    """The primary answers every question from that moment on; returns when the node is back."""
    while not choice.primary:
        now_ns += SECOND_NS // 10
        if choice.probe_due(now_ns):
            choice.probed(answered=True, now_ns=now_ns)
    return now_ns


@pytest.fixture
def choice() -> HubChoice:
    """One that has just begun."""
    return HubChoice(Random(1))


def test_a_node_begins_with_the_primary(choice: HubChoice) -> None:
    """And asks nothing beside its exchanges."""
    assert choice.primary
    assert not choice.probe_due(10**18)


def test_it_takes_several_failures_in_a_row_to_move(choice: HubChoice) -> None:
    """One answer in between, and they are counted anew."""
    assert not fails(choice, FAILURES_MAX - 1)
    assert not choice.exchanged(answered=True, now_ns=0)
    assert not fails(choice, FAILURES_MAX - 1)
    assert choice.primary

    assert fails(choice, 1)
    assert not choice.primary


def test_failures_of_the_fallback_move_nobody(choice: HubChoice) -> None:
    """Only the primary's answer brings a node back."""
    fails(choice)

    assert not fails(choice, 10 * FAILURES_MAX)
    assert not choice.primary


def test_the_primary_is_asked_at_a_bounded_pace(choice: HubChoice) -> None:
    """Not before the pause is over, give or take; and once for each."""
    fails(choice)

    assert not choice.probe_due(SOON_NS - 1)
    assert choice.probe_due(LATE_NS)
    assert not choice.probe_due(LATE_NS)


def test_nodes_ask_at_different_moments() -> None:
    """A fleet that has moved together does not ask together."""
    moments: set[int] = set()
    for seed in range(20):
        choice = HubChoice(Random(seed))
        fails(choice)
        moments.add(next(ms for ms in range(10**5) if choice.probe_due(ms * 10**6)))

    assert len(moments) > 10


def test_it_takes_several_answers_in_a_row_to_come_back(choice: HubChoice) -> None:
    """One failure in between, and they are counted anew."""
    fails(choice)
    heard = [choice.probed(answered=answered, now_ns=0) for answered in [*[True] * (ANSWERS_MIN - 1), False]]
    heard += [choice.probed(answered=True, now_ns=0) for _ in range(ANSWERS_MIN)]

    assert [False] * (2 * ANSWERS_MIN - 1) == heard[:-1]
    assert heard[-1]
    assert choice.primary
    assert 2 == choice.moves


def test_a_late_answer_to_a_question_moves_nobody_who_is_back(choice: HubChoice) -> None:
    """Nor does it count for the next time."""
    assert not choice.probed(answered=True, now_ns=0)
    fails(choice)

    assert not choice.probed(answered=True, now_ns=0)


def test_a_primary_that_comes_and_goes_is_asked_ever_less(choice: HubChoice) -> None:
    """Up to a pause that has a name: in an hour of a primary that fails at once each time, a node moves seldom."""
    now_ns = 0
    while now_ns < 3600 * SECOND_NS:
        fails(choice, now_ns=now_ns)
        now_ns = comes_back(choice, now_ns)

    least = ANSWERS_MIN * PROBE_MAX_NS * (1 - JITTER)
    assert choice.moves / 2 <= 3600 * SECOND_NS / least + 10


def test_a_primary_that_was_steady_for_long_is_asked_soon_again(choice: HubChoice) -> None:
    """Old failures are forgiven."""
    now_ns = 0
    for _ in range(5):
        fails(choice, now_ns=now_ns)
        now_ns = comes_back(choice, now_ns)
    now_ns += STEADY_SHARE * PROBE_MAX_NS + 1
    fails(choice, now_ns=now_ns)

    assert choice.probe_due(now_ns + LATE_NS)
