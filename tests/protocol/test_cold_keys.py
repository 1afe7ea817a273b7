"""Goal: keys that are not asked about any more cost next to nothing, and what they hold comes back when it is needed.

Method: the production kernel and client on a real Redis, in virtual time; the Redis counts the bytes. Nothing is timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from bench.capacity.fleet import Fleet, Shape, Spent
from reconverge.clock import ManualClock
from reconverge.kernel.reporting.cell_reports import ALONE_INTERVALS_MAX, TIGHT_SHARE
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_SLICES, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried
from tests.support.servers import RedisServer

KEYS = tried(80, long=200)
INTERVALS = 60
"""In a window of a minute: one a second."""
WINDOWS = 2
"""After so many, what was used does not count any more, and the key is forgotten."""
SHARE_MAX = 0.1
"""Of the traffic for as many hot keys."""
LIMITS = [
    Limit(1_000_000, 60),
    Limit(100, 60),
    *(
        Limit(quota, 60, algorithm=algorithm)
        for algorithm in (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_SLICES, SLIDING_LOG)
        for quota in (2, 5)
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One of its own, as it is emptied again and again."""
    with RedisServer() as own:
        yield own


def spent_by(server: RedisServer, shape: Shape) -> Spent:
    with Fleet(server.port, shape) as fleet:
        return asyncio.run(fleet.run())


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_cold_keys_cause_at_most_a_tenth_of_the_traffic_of_hot_ones(server: RedisServer, limit: Limit) -> None:
    """Asked about once, over two windows, at the same sync interval; the hot ones are asked about in each."""
    rounds = WINDOWS * INTERVALS
    hot = spent_by(server, Shape(1, KEYS, intervals=INTERVALS, rounds=rounds, limit=limit))
    cold = spent_by(server, Shape(1, 0, cold=KEYS, intervals=INTERVALS, rounds=rounds, once=True, limit=limit))

    assert hot.cells >= 0.8 * KEYS * rounds  # they really are hot
    assert cold.cells >= KEYS  # and these were reported
    assert cold.in_bytes + cold.out_bytes <= SHARE_MAX * (hot.in_bytes + hot.out_bytes)


def test_keys_that_have_been_forgotten_cost_nothing(server: RedisServer) -> None:
    """Some time after two windows, nothing is said of them any more."""
    shape = Shape(1, 0, cold=KEYS, intervals=INTERVALS, rounds=3 * INTERVALS, once=True)
    longer = Shape(1, 0, cold=KEYS, intervals=INTERVALS, rounds=6 * INTERVALS, once=True)

    assert spent_by(server, shape).cells == spent_by(server, longer).cells


def test_a_quiet_key_that_holds_nearly_all_is_spoken_of_again_and_again() -> None:
    """However long the window is, whoever needs a part of it waits for a bounded number of intervals; but not each."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock)
    node = SmallNode(clock)
    table = node.limit(Limit(3, 86_400), BALANCED)
    reported: list[int] = []
    for number in range(INTERVALS + 20 * ALONE_INTERVALS_MAX):
        if number in (10, 20):
            table.allow("key")
        while node.syncer.due_ns(clock.monotonic_ns()) <= clock.monotonic_ns():
            batch = node.sends()
            node.reaches(hub)
            node.hears()
            if batch is not None and batch.cells:
                reported.append(number)
        clock.advance_ns(INTERVAL_NS)
    gaps = [after - before for before, after in pairwise(reported) if before > INTERVALS]
    (cell,) = table.cells.values()

    assert cell.free < TIGHT_SHARE * cell.capacity
    assert 0 < cell.used < cell.allowance
    assert len(gaps) >= 10
    assert max(gaps) <= ALONE_INTERVALS_MAX + 1
    assert min(gaps) >= ALONE_INTERVALS_MAX // 2
