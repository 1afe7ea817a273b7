"""Creates the meter and the edges for a limit's algorithm."""

# To add an algorithm:
#
# 1. Its name, its group and its checks: `ALGORITHMS` in `limit/limit.py`.
# 2. Its arithmetic: a meter in this folder (`meter.py` says what is asked of one), and its allowance in `meter_for`
# below.
#    Where its windows begin, if that is not by the hub's clock: `edges_for` below. How it is waited for, if not for
#    room: `table/waiter.py`.
# 3. Its number on the way to the hub: `CELL_KINDS` in `sync/reconverge_sync/codec.py`. JSON needs none.
# 4. If the hub counts it in a way of its own: `merge/ledger.py` and, alike, `redis/exchange.lua`.
# 5. For speed alone: `KINDS` in `table/native.py` with `native/meter.h`. Without them Python decides about it.
# 6. What it may admit, for those that judge: `simulation/truth.py` and `simulation/cases.py`, and a worked example in
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
    """Returns the arithmetic for `limit`.

    With `merged_only` a cell's level is that of all nodes, and drains at the full rate.
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
    """Returns the class that places the windows of `limit` in time."""
    if limit.slots:
        return SlotEdges
    return FirstHitEdges if limit.align == FIRST_HIT else Edges
