"""Goal: calls keep inside the quota of a server that counts when they arrive, by the advice in docs/guide/outgoing.md.

Method: calls in virtual time, as many as the limit admits, each of which takes a while to arrive. The server counts
arrivals in every window of its length.
"""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from reconverge import Agent, Limit
from reconverge.clock import ManualClock

QUOTA = 50
WINDOW_S = 5.0
ARRIVES_WITHIN_S = 0.5
STEP_S = 0.01
CALLS = 2000


def refused_by_the_server(limit: Limit, seed: int) -> int:
    """How many of the calls that the limit admits come too early for the server."""
    clock, random = ManualClock(1_750_000_000.0), Random(seed)
    limiter = Agent("memory://", clock=clock).limit("pay", limit, policy="strict")
    arrivals: list[float] = []
    now_s = 0.0
    while len(arrivals) < CALLS:
        if limiter.allow("server"):
            arrivals.append(now_s + random.uniform(0, ARRIVES_WITHIN_S))
        else:
            clock.advance(STEP_S)
            now_s += STEP_S
    counted: deque[float] = deque()
    refused = 0
    for arrival_s in sorted(arrivals):
        while counted and counted[0] <= arrival_s - WINDOW_S:
            counted.popleft()
        if len(counted) < QUOTA:
            counted.append(arrival_s)
        else:
            refused += 1
    return refused


@pytest.mark.parametrize("seed", range(5))
def test_a_window_that_is_longer_by_what_a_call_takes_to_arrive_is_never_exceeded(seed: int) -> None:
    """The calls that arrive in any window of the server were sent within a window of the limit."""
    limit = Limit(QUOTA, WINDOW_S + ARRIVES_WITHIN_S, algorithm="sliding-log")

    assert 0 == refused_by_the_server(limit, seed)


@pytest.mark.parametrize("left", [0, 2])
def test_a_smaller_quota_is_no_margin_for_calls_that_take_a_while(left: int) -> None:
    """A few per cent less are refused all the same: calls from before a pause arrive together with those after it."""
    limit = Limit(QUOTA - left, WINDOW_S, algorithm="sliding-log")

    assert refused_by_the_server(limit, 0) > 0
