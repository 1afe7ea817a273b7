"""Has a key leave a node for good, whatever it has used; see `hub/erasing.py`. The lock is held."""

# Theory of operation.
#
# The way out is that of a key that leaves for want of room (`kernel/eviction.py`): a last report that holds nothing,
# and the key goes when the hub has confirmed it. It takes a few exchanges: what is under way has to be answered first,
# and what is not told yet has to be told. So `let_leave` is called again until the key is gone. Unlike there, neither
# how much was used nor how lately it was asked about keeps a key. What keeps it are requests: a call that waits for
# room under it, or one that comes before the hub has confirmed; then the key is in use, and stays.
#
# A key of which the hub was never told, or of a node without a hub, goes at once.

from __future__ import annotations

from reconverge.kernel.reporting.requests import mark_dirty
from reconverge.kernel.table.lookup import drop, let_go
from reconverge.kernel.table.state import LimitState
from reconverge.kernel.table.tiers import home_of


def let_leave(table: LimitState, key: str, now_ns: int) -> bool:
    """Have a key go, or begin to; returns whether the node does not have it any more."""
    home = home_of(table, key)
    cell = home.cells.get(key)
    if cell is None:
        return True
    if cell.waiters or (not cell.shard.alone and home.kernel.is_under_way(cell)):
        return False
    if cell.shard.alone:
        if drop(home, cell):
            home.kernel.keys -= 1
        return True
    if not cell.heard:
        let_go(home, cell, now_ns)
        return True
    shard = cell.shard
    if not (cell.dirty or cell.leaving or cell.unconfirmed or now_ns >= shard.lease_until_ns):
        cell.leaving = True
        shard.leaving += 1
        mark_dirty(cell)
    return False
