"""Goal: every answer of a lone node is exact, wherever windows begin, and however buckets begin and refill.

Method: random schedules, compared with a brute-force reference that keeps the whole history and counts in fractions; no
tolerance anywhere.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Limit
from reconverge.limit import FILLED
from tests.kernel.algorithms.test_against_references import LIMITS, SCHEDULES, Run, Step
from tests.support.effort import tried
from tests.support.kernel.lone import Lone
from tests.support.kernel.reference_places import DAY_S, Calendar, FirstHit, PlacedReference, Tokens

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham", "Africa/Cairo"])


class PlacedRun(Run):
    """One schedule, whose edges are those of the reference."""

    def __init__(self, limit: Limit, reference: PlacedReference, *, keys_max: int = 10) -> None:
        super().__init__(limit, reference)
        self.node = Lone(limit, keys_max=keys_max)
        self.placed = reference

    def pause_ns(self, step: Step) -> int:
        if step.pause == "dry":
            self.placed.asked(self.now_ns)
        if step.pause in ("before edge", "edge"):
            return self.placed.edge_ns(self.now_ns) - self.now_ns - (step.pause == "before edge")
        return super().pause_ns(step)

    def ask(self, way: str, cost: int) -> None:
        if way != "stranger":
            self.placed.asked(self.now_ns)
        super().ask(way, cost)


@settings(max_examples=tried(40, long=100))
@given(
    quota=st.sampled_from([1, 3, 10]),
    days=st.sampled_from([1, 1, 7, 30]),
    zone=ZONES,
    begins_on=st.integers(0, 400),
    steps=SCHEDULES,
)
def test_a_calendar_limit_counts_what_was_charged_on_the_same_page(
    quota: int, days: int, zone: str, begins_on: int, steps: list[Step]
) -> None:
    """A day is what the zone's calendar calls one, and so are a week and a month."""
    limit = Limit(quota, days * DAY_S, algorithm="fixed-window", align="calendar", timezone=zone)
    run = PlacedRun(limit, Calendar(limit))
    run.node.clock.advance(begins_on * DAY_S)

    run.check(steps)


@settings(max_examples=tried(50, long=200))
@given(limit=LIMITS, steps=SCHEDULES)
def test_a_window_begins_with_the_first_hit_and_lasts_as_long_as_it_says(limit: Limit, steps: list[Step]) -> None:
    """To the nanosecond, and so does the next: with the first hit after its end."""
    limit = Limit(limit.quota, limit.window, algorithm="fixed-window", align="first-hit")

    PlacedRun(limit, FirstHit(limit)).check(steps)


@pytest.mark.parametrize("algorithm", FILLED)
@pytest.mark.parametrize("refill", ["greedy", "interval"])
@settings(max_examples=tried(30, long=80))
@given(
    limit=LIMITS,
    burst=st.sampled_from([None, 1, 2, 5, 50]),
    initial=st.sampled_from([None, 0, 1, 2, 7]),
    steps=SCHEDULES,
)
def test_a_bucket_begins_with_what_it_says_and_refills_as_it_says(
    algorithm: str, refill: str, limit: Limit, burst: int | None, initial: int | None, steps: list[Step]
) -> None:
    """Steadily or at the edges of windows, from what a new key has; a key that was known is never new again."""
    limit = Limit(limit.quota, limit.window, algorithm=algorithm, burst=burst, refill=refill)
    limit = replace(limit, initial=None if initial is None else min(initial, limit.capacity))

    PlacedRun(limit, Tokens(limit), keys_max=100).check(steps)
