"""Goal: no limiter without messages is both exact and generous, and the page about it shows what is measured.

Method: each limiter is asked for too much on all nodes, and on each node alone. The page's table is made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reconverge.simulation.studies import frontier
from reconverge.simulation.studies.frontier import (
    ACROSS,
    LIMITERS,
    QUOTA,
    SITUATIONS,
    FrontierTask,
    RuleLimiter,
    SimulatedLimiter,
    Situation,
    admitted,
    page,
    point_of,
    tasks,
)

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "what-cannot-be-had.md"
STEADY = SITUATIONS[-1]
SIMULATED = [name for name, limiter in LIMITERS.items() if isinstance(limiter, SimulatedLimiter)]


@pytest.mark.parametrize("limiter", SIMULATED)
def test_a_node_that_hears_nothing_admits_the_same_beside_busy_nodes_and_idle_ones(limiter: str) -> None:
    """The argument of the page rests on this alone."""
    for situation in SITUATIONS:
        task = FrontierTask(limiter, situation, 2)
        if not task.hears:
            alone = [admitted(task, busy=(node,))[node] for node in range(2)]

            assert alone == admitted(task, busy=range(2)), situation


@pytest.mark.parametrize("limiter", LIMITERS)
def test_no_limiter_that_hears_nothing_lies_below_the_line(limiter: str) -> None:
    """Over-admission plus N times what is left unused is at least (N - 1) times the limit."""
    chosen = [FrontierTask(limiter, situation, 2) for situation in SITUATIONS]
    points = {task: point_of(task) for task in chosen if not task.hears}

    assert points
    assert [] == [task for task, point in points.items() if point.together < point.least]


def test_a_limiter_that_hears_of_others_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that knows all demand in a partition lies below the line, so the check can fail."""

    def all_knowing(situation: Situation, asked: Sequence[int]) -> int:
        return min(sum(asked), QUOTA)

    monkeypatch.setitem(LIMITERS, "all-knowing", RuleLimiter(all_knowing))
    point = point_of(FrontierTask("all-knowing", ACROSS, 2))

    assert (0, 0) == (point.over, point.unused)
    assert point.together < point.least


@pytest.mark.parametrize("limiter", ["strict", "balanced", "available"])
def test_messages_bring_a_limiter_far_below_the_line(limiter: str) -> None:
    """While demand is steady, the sum is less than a tenth of what it is without messages."""
    task = FrontierTask(limiter, STEADY, 2)
    point = point_of(task)

    assert task.hears
    assert point.together < point.least / 10


def test_a_point_is_the_excess_of_all_and_the_rest_of_the_one_that_leaves_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters for each of two nodes are half too much together, and leave a quarter alone."""

    def three_quarters(situation: Situation, asked: Sequence[int]) -> int:
        return sum(min(each, QUOTA * 3 // 4) for each in asked)

    monkeypatch.setitem(LIMITERS, "three quarters", RuleLimiter(three_quarters))
    point = point_of(FrontierTask("three quarters", ACROSS, 2))

    assert "50/25" == str(point)
    assert point.together == point.least == QUOTA


def test_a_node_is_asked_for_the_same_whichever_others_are_busy() -> None:
    """So that it cannot tell, and all requests before the window are the same, too."""
    task = FrontierTask("strict", ACROSS, 4)
    alone, everywhere = (frontier.arrivals(task, frozenset(busy)) for busy in ((1,), range(4)))
    begin_ns = frontier.BEFORE * frontier.LIMIT.window_ns

    assert alone == [one for one in everywhere if one.moment_ns < begin_ns or one.node == 1]


@pytest.mark.slow
def test_the_page_has_the_table_that_the_study_prints() -> None:
    """For eight nodes in all situations, and for two and four in a partition; none lies below the line."""
    points = {task: point_of(task) for task in tasks()}

    assert page(points) in PAGE.read_text(), "run python -m reconverge.simulation.studies.frontier"
    assert [] == [task for task, point in points.items() if not task.hears and point.together < point.least]
