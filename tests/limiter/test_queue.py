"""Goal: a queue is first come, first served, whoever leaves it and whenever.

Method: random comings and goings, compared with a plain list.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconverge.limiter.waiting.queue import QueuePlace, WaitQueue


class Silence:
    """A waker that nobody hears."""

    gone = False
    due_ns = 0

    def wake(self) -> None:
        """Does nothing."""


# How much somebody wants who comes; or, when negative, which of those who wait leaves.
MOVES = st.lists(st.integers(-8, 5), max_size=80)


@given(moves=MOVES)
def test_who_comes_first_is_first_among_those_who_stay(moves: list[int]) -> None:
    """Whoever leaves from whatever place, all others keep their order, and the sum of what they want is right."""
    turns = WaitQueue(2)
    expected: list[QueuePlace] = []

    for move in moves:
        if move >= 0:
            expected.append(turns.join(QueuePlace((move, 1), Silence())))
        elif expected:
            leaving = expected.pop(-move % len(expected))
            first_before = turns.first
            next_up = turns.leave(leaving)
            assert next_up is (turns.first if first_before is leaving else None)

        assert expected == list(turns)
        assert (sum(ticket.costs[0] for ticket in expected), len(expected)) == turns.costs
        assert len(expected) == len(turns)
        assert turns.first is (expected[0] if expected else None)


@given(moves=MOVES)
def test_exactly_one_is_woken_by_a_place_that_becomes_free(moves: list[int]) -> None:
    """Whoever leaves names a successor only from the first place, so that no turn is given twice, and none is lost."""
    turns = WaitQueue(2)
    waiting: list[QueuePlace] = []
    told: list[QueuePlace] = []

    for move in moves:
        if move >= 0:
            waiting.append(turns.join(QueuePlace((1, 1), Silence())))
            told += waiting if len(waiting) == 1 else []  # who finds nobody there is first without being told
        elif waiting:
            next_up = turns.leave(waiting.pop(-move % len(waiting)))
            told += [] if next_up is None else [next_up]

        assert not waiting or told[-1] is waiting[0]
        assert len(told) == len(set(told))


def test_those_who_are_due_are_told_whatever_their_place() -> None:
    """A deadline may come for somebody in the middle of the queue."""
    turns = WaitQueue(2)
    tickets = [turns.join(QueuePlace((1, 1), Silence())) for _ in range(3)]
    for ticket, due_ns in zip(tickets, (30, 10, 20), strict=True):
        ticket.waker.due_ns = due_ns

    assert [] == turns.due(9)
    assert [tickets[1]] == turns.due(10)
    assert tickets[1:] == turns.due(29)
    assert tickets == turns.due(30)
