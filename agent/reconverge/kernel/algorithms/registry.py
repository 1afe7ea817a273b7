"""Selects the meter, which counts use, and the edges, which compute windows, for a limit's algorithm."""

# To add an algorithm:
#
# 1. Its name, its group and its checks: `ALGORITHMS` in `limit/limit.py`.
# 2. Its arithmetic: a meter in this folder (`meter.py` defines the interface), and a case in `meter_for` below. If its
#    windows do not follow the hub's clock: `edges_for` below. If its requests wait for something other than room:
#    `table/waiter.py`.
# 3. Its number in binary messages to the hub: `CELL_KINDS` in `sync/reconverge_sync/codec.py`. JSON needs none.
# 4. If the hub counts it in a way of its own: `merge/ledger.py` and, alike, `redis/lua/exchange.lua`.
# 5. For speed alone: `KINDS` in `table/native.py` with `native/meter.h`. Without them Python decides about it.
# 6. Its bound, for tests and simulations: `simulation/truth.py` and `simulation/cases.py`, and a worked example in
#    `tests/kernel/algorithms`.

from __future__ import annotations

from reconverge.kernel.algorithms.bucket import Bucket, StepBucket
from reconverge.kernel.algorithms.dated import Dated
from reconverge.kernel.algorithms.dates import Moments, Slices
from reconverge.kernel.algorithms.edges import Edges
from reconverge.kernel.algorithms.first_hit import FirstHitEdges
from reconverge.kernel.algorithms.meter import CellMeter
from reconverge.kernel.algorithms.paced import pacer_for
from reconverge.kernel.algorithms.slots import SlotEdges, Slots
from reconverge.kernel.algorithms.windows import FixedWindow, SlidingWindow
from reconverge.limit.limit import BUCKETS, FIRST_HIT, FIXED_WINDOW, INTERVAL, PACED, SLIDING_SLICES, Limit


def meter_for(limit: Limit, *, merged_only: bool = False) -> CellMeter:
    """Returns the meter, the arithmetic of the algorithm, for `limit`.

    `merged_only` is for a policy that decides by merged totals: a bucket's level is then that of all nodes together,
    and drains at the full rate.
    """
    if limit.slots:
        return Slots(limit)
    if limit.algorithm in PACED:
        return pacer_for(limit, merged_only=merged_only)
    if limit.algorithm in BUCKETS:
        bucket = StepBucket if limit.refill == INTERVAL else Bucket
        return bucket(limit, merged_only=merged_only)
    if limit.dated:
        return Dated(limit, Slices(limit) if limit.algorithm == SLIDING_SLICES else Moments(limit))
    return FixedWindow(limit) if limit.counts_as == FIXED_WINDOW else SlidingWindow(limit)


def edges_for(limit: Limit) -> type[Edges]:
    """Returns the class that computes when the windows of `limit` begin and end."""
    if limit.slots:
        return SlotEdges
    return FirstHitEdges if limit.align == FIRST_HIT else Edges
