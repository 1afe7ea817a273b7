"""Goal: a hub on Redis and one that merges in Python agree on which reports of one key are about one cell.

Method: two nodes report a key of two limits that differ in one or two of the things that may tell cells apart; the
names of the hashes in Redis on one side, and the cells of a `MemoryHub` on the other.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from reconverge.clock import ManualClock
from reconverge.hub.report import Batch, CellReport, LimitReport, cells_of
from reconverge.limit import ALGORITHMS
from reconverge.simulation.explore.node import START_S
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import _cells_of

LIMITS: Final = [
    LimitReport(
        name, algorithm, window_us, quota=10, capacity=10, overshoot_milli=0, charged=0, refunded=0, variant=told
    )
    for name, algorithm, window_us, told in product(
        ("api", "login"), ALGORITHMS, (60_000_000, 3_600_000_000), ("", "interval")
    )
]
REPORT: Final = CellReport(0, "ada", 0, 1, 0, 0, 0, 0, 1000, 0, 1, 1000, 1, 0)


def cells_at(hub: MemoryHub, limit: LimitReport, sequence: int) -> int:
    """How many cells a hub has, once it has heard of the key of that limit, too."""
    batch = Batch("node", "account", 0, sequence, hub._shards[0].generation, 10**6, 10**8, False, (limit,), (REPORT,))
    hub.merge(batch)
    return len(hub._shards[0].cells)


def test_redis_and_the_merge_rule_tell_the_same_cells_apart() -> None:
    """There are as many hashes as cells, after each of the limits."""
    hub = MemoryHub(clock=ManualClock(START_S))
    in_python = [cells_at(hub, limit, sequence) for sequence, limit in enumerate(LIMITS, start=1)]
    in_redis = [len({_cells_of(each) for each in LIMITS[: place + 1]}) for place in range(len(LIMITS))]

    assert in_redis == in_python


def test_cells_are_told_apart_by_what_is_said_of_them_in_one_place() -> None:
    """And some algorithms are counted in the cells of another one."""
    said = {cells_of(limit) for limit in LIMITS}

    assert len({_cells_of(limit) for limit in LIMITS}) == len(said) < len(LIMITS)
