"""Goal: a node that comes back under a new name does not count what it used as unused.

Method: the naive policy, which believes the merged total alone, so that nothing else can hide the gap.
"""

from __future__ import annotations

import pytest

from reconverge.clock import ManualClock
from reconverge.limit import Limit
from reconverge.policies import NAIVE
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

WINDOW_S = 3600.0
QUOTA = 100
HOUR_BEGINS_S = START_S - START_S % WINDOW_S


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window", "sliding-slices", "sliding-log"])
def test_what_was_used_under_the_old_name_counts_before_the_hub_says_so(algorithm: str) -> None:
    """Between its first word under a new name and the first answer to a count, a node admits no more than is left."""
    clock = ManualClock(HOUR_BEGINS_S)
    hub = MemoryHub(clock=clock)
    node = SmallNode(clock)
    table = node.limit(Limit(QUOTA, WINDOW_S, algorithm=algorithm), NAIVE)
    node.exchanges_with(hub)
    before = sum(table.allow("ada") for _ in range(60))
    clock.advance_ns(2 * INTERVAL_NS)
    node.exchanges_with(hub)
    name = node.syncer.node

    clock.advance_ns(2 * LEASE_NS)
    node.exchanges_with(hub)
    after = sum(table.allow("ada") for _ in range(2 * QUOTA))

    assert node.syncer.node != name
    assert QUOTA == before + after
