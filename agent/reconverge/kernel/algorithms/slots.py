"""The meter of slots: counts work in progress, which has no window and does not fade."""

# Theory of operation.
#
# A limit on what is in progress ("20 in flight") is a count of slots in use. To begin takes one, to end gives it back.
# As the counts of the nodes sum to that of the fleet, allowances of slots work as allowances of anything else do: each
# node fills its own alone, all allowances sum to the limit, and a slot in use is never given away, because an allowance
# is lowered to what is in use at most.
#
# What differs from all other limits:
#
#     a charge counts        until it is given back, and not until a time; so no moment is known at which there is room,
#                            no refusal is certain, and `epoch` is 0 for good
#     a node that vanishes   has nothing in progress as soon as its lease is over, and the hub grants its slots to
#                            others; so the lease is short (`Limit.lease`), and each such limit has one of its own
#     a node that is cut off starts nothing after its lease, which it counts from when it sent the batch that was
#                            answered. What it has in progress by then goes on, and is reported again when the hub
#                            answers, without an allowance: the hub then grants that much less until it ends
#     a reset                is impossible: what is in progress does not end by being forgotten
#     the need               is not the rate of requests. Short work takes and gives back one slot a hundred times in an
#                            interval. What a node needs is what it had in progress at most lately
#
#     in use  <=  allowance        on each node, while its lease lasts
#     allowances   <=  limit       of all nodes that the hub knows
#
# A slot that was given back is granted to another node only after the hub has heard of it, because the allowance comes
# down with a report and no other way.
#
# The peak is noted when slots are given back, because the fast path, which takes them, notes nothing: what is in use
# rises until something is given back. It is kept in `level`, and fades over PEAK_NS towards what is in use.
#
# C knows nothing of this algorithm. A decision about it takes the lock and a few microseconds in Python, which is
# little beside any work that is worth being counted.
#
# A farewell gives back what is not in use; what is in use counts until the lease is over. If it ended the lease, the
# limit would be exceeded in every rolling deployment, without a crash, since a process takes as long to stop as its
# requests do. The price: slots of work that ends after the farewell are taken for up to a lease.
#
# The hub saves slots up for the oldest ask, also where requests ask in doubt, because no end of a window brings any. A
# node that hears of an older ask lets go of what comes back to it, unless it has no more than its part of all slots.
# Without that a node under load takes each slot again, and others wait for ever. A request for more slots than a node's
# part may wait long while all nodes are busy.
#
# `allow` and `hit` are refused, as what they charge would never come back. Shares, several quotas and loans between
# regions have no slots. Plans have: a slot is given back where its key is by then; limits of one name with different
# leases count apart (`tests/contracts/test_in_progress.py`).
#
# The bound. In `strict` no more is in progress than the limit while leases hold. That is tried by
# `tests/limiter/test_slots_of_processes.py`, `python -m reconverge.simulation.fuzz --mode slots`, and all chaos
# scenarios. A jump of the hub's clock by more than a lease ends all leases there, and may grant each slot once more.

from __future__ import annotations

from typing import Final

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.kernel.algorithms.edges import Edges
from reconverge.kernel.algorithms.meter import CellMeter
from reconverge.kernel.cell import Cell, Mark, lease_until_ns
from reconverge.limit.limit import Limit

RETRY_NS: Final = SECOND_NS
"""After this time another attempt may be worth it, as it is not known how long work takes."""
PEAK_NS: Final = SECOND_NS
"""A peak of work in progress is remembered for about so long."""


class Slots(CellMeter):
    """The arithmetic of a limit on what is in flight: counts the slots in use."""

    aligned = True
    slots = True

    def __init__(self, limit: Limit) -> None:
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Stores the window's number. There is one window, which never ends."""
        cell.epoch = epoch

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Does nothing, as time does not change the number of slots in use."""

    def until_ns(self, cell: Cell) -> int:
        return NEVER_NS

    def used(self, cell: Cell, now_ns: int) -> int:
        return cell.used

    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        return allowance - cell.used

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        """Returns a fixed guess, as it is not known when work ends."""
        return RETRY_NS

    def others(self, cell: Cell, now_ns: int) -> float:
        return cell.others_current

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns a fixed guess, as it is not known when work ends."""
        return RETRY_NS

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns 0, as any work may end at any moment."""
        return 0

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns a fixed guess if any slot is in use, else 0."""
        return RETRY_NS if cell.used + cell.others_current > 0 else 0

    def clear(self, cell: Cell) -> None:
        """Does nothing: a reset does not end work in progress, so its slots stay in use."""

    def disown(self, cell: Cell, now_ns: int) -> None:
        """Does nothing: the hub does not count slots of a node that is gone, so this node reports its own again."""

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Gives slots back, and stores the number in use before as the peak if it is above the stored peak."""
        peak = max(cell.level, cell.used)
        returned = min(amount, cell.used)
        cell.level = peak
        cell.used -= returned
        cell.counted -= returned

    def peak(self, cell: Cell, now_ns: int) -> int:
        """Returns the largest number of slots in use lately, now included. Must be called once for each report."""
        above = max(0, cell.level - cell.used)
        passed_ns = max(0, now_ns - cell.marked_ns)
        peak = cell.used + above
        cell.marked_ns = now_ns
        cell.level = cell.used + above * PEAK_NS // (PEAK_NS + passed_ns)
        return peak


class SlotEdges(Edges):
    """The one window of a limit on what is in flight. It ends only with the lease."""

    def set_until(self, cell: Cell, now_ns: int) -> None:
        """Lets the fast path decide until the lease ends."""
        leased_until_ns = lease_until_ns(cell)
        bounded = not self._table.policy.keeps_allowances and now_ns < leased_until_ns
        cell.until_ns = leased_until_ns if bounded else NEVER_NS

    def rebase(self, cell: Cell, now_ns: int) -> bool:
        """Places the cell in its window again; returns whether it has slots to report.

        The hub's time plays no part here.
        """
        self.anchor(cell, now_ns)
        return cell.used > 0

    def forget(self, cell: Cell, reset_us: int, now_ns: int) -> None:
        """Does nothing: a reset does not end work in progress."""

    def _enter(self, cell: Cell, now_ns: int) -> None:
        """Places the cell in its window, as if that were open for long: no further demand is expected in the window."""
        cell.epoch = 0
        cell.lag_ns = 0
        cell.opened_ns = now_ns - self._table.window_ns


def lease_left_ns(cell: Cell, now_ns: int) -> int:
    """Returns for how long the lease covers work in progress if no answer prolongs it; negative after its end.

    A key that the hub has never answered for has no lease: returns NEVER_NS.
    """
    if not cell.heard or cell.table.policy.keeps_allowances:
        return NEVER_NS
    return lease_until_ns(cell) - now_ns


def lease_is_over(cell: Cell, now_ns: int) -> bool:
    """Returns whether the slots that this node uses of a key are on a lease that has ended."""
    return lease_left_ns(cell, now_ns) <= 0
