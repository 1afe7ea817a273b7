"""The meter of limits on work in progress: it counts slots, which have no window and do not fade."""

# Theory of operation.
#
# A limit on what is in progress ("20 in flight") counts slots in use. Work takes a slot when it begins, and gives it
# back when it ends. As the counts of the nodes sum to that of the fleet, allowances of slots work as those of all other
# limits: each node fills its own alone, all allowances sum to the limit, and a slot in use is never given away, because
# an allowance is never lowered below the slots in use.
#
# What differs from all other limits:
#
#     a charge counts        until it is given back, and not until a time; so no moment is known at which there is room,
#                            no refusal is certain, and `epoch` is 0 for good
#     a node that vanishes   has nothing in progress as soon as its lease is over, and the hub grants its slots to
#                            others; so the lease is short (`Limit.lease`), and each such limit has one of its own
#     a node that is cut off starts nothing after its lease, which it counts from the moment when it sent the last
#                            answered batch. Its work in progress goes on, and is reported again when the hub answers,
#                            without an allowance: the hub then grants so many slots fewer until the work ends
#     a reset                is impossible: what is in progress does not end by being forgotten
#     the need               is not the rate of requests. Short work takes and gives back one slot a hundred times in an
#                            interval. A node needs as many slots as its recent peak of work in progress
#
#     in use  <=  allowance        on each node, while its lease lasts
#     allowances   <=  limit       of all nodes that the hub knows
#
# The hub grants a slot that was given back to another node only after a report, because only a report lowers an
# allowance.
#
# The peak is stored when slots are given back, because the fast path, which takes slots, stores no peak: the number in
# use only rises until a slot is given back. The peak is kept in `level`, and fades over PEAK_NS towards the slots in
# use.
#
# The compiled kernel does not have this algorithm. A decision about it takes the lock and a few microseconds in Python,
# which is little beside any work that is worth being counted.
#
# The last report of a node that stops gives back the slots that are not in use; slots in use count until the lease is
# over. If the report ended the lease, the limit would be exceeded in every rolling deployment, without a crash, since a
# process takes as long to stop as its requests do. The price: slots of work that ends after the last report stay taken
# for up to a lease.
#
# The hub saves slots up for the oldest ask, also where requests ask in doubt, because no window ends and frees any. A
# node whose answer reports an older ask gives returned slots back, unless it has no more than its part of all slots.
# Otherwise a node under load would take each slot again, and others would wait for ever. A request for more slots than
# a node's part may wait long while all nodes are busy.
#
# `allow` and `hit` are refused, as nothing would give back their charge. Shares, several quotas and loans between
# regions do not work with slots. Contract plans do: a slot is given back in the table in which its key is by then;
# limits of one name with different leases count apart (`tests/contracts/test_in_progress.py`).
#
# The bound. In `strict` no more is in progress than the limit while leases hold. It is tested by
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
"""The `retry_after` of a refusal, in nanoseconds: a fixed guess, because no node knows how long work takes."""
PEAK_NS: Final = SECOND_NS
"""The nanoseconds over which a stored peak fades to half its distance from the number of slots in use."""


class Slots(CellMeter):
    """The arithmetic of a limit on work in progress: counts the slots in use."""

    aligned = True
    slots = True

    def __init__(self, limit: Limit) -> None:
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Stores `epoch`, the window's number. Slots have one window, which never ends."""
        cell.epoch = epoch

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        """Returns RETRY_NS, a fixed guess: no node knows when work in progress will end."""
        return RETRY_NS

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns RETRY_NS, a fixed guess: no node knows when work in progress will end."""
        return RETRY_NS

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns 0, as any work may end at any moment."""
        return 0

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns RETRY_NS, a fixed guess, if any slot of any node is in use; otherwise 0."""
        return RETRY_NS if cell.used + cell.others_current > 0 else 0

    def clear(self, cell: Cell) -> None:
        """Does nothing, because a reset does not end work in progress: its slots stay in use."""

    def disown(self, cell: Cell, now_ns: int) -> None:
        """Does nothing: under its new name the node reports its slots again, as the hub drops those of the old name."""

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Gives `amount` slots back; first raises the stored peak to the number of slots in use."""
        peak = max(cell.level, cell.used)
        returned = min(amount, cell.used)
        cell.level = peak
        cell.used -= returned
        cell.counted -= returned

    def peak(self, cell: Cell, now_ns: int) -> int:
        above = max(0, cell.level - cell.used)
        passed_ns = max(0, now_ns - cell.marked_ns)
        peak = cell.used + above
        cell.marked_ns = now_ns
        cell.level = cell.used + above * PEAK_NS // (PEAK_NS + passed_ns)
        return peak


class SlotEdges(Edges):
    """The one window of a limit on work in progress, which ends only with the lease."""

    def set_until(self, cell: Cell, now_ns: int) -> None:
        """Lets the fast path decide until the lease ends."""
        leased_until_ns = lease_until_ns(cell)
        bounded = not self._table.policy.keeps_allowances and now_ns < leased_until_ns
        cell.until_ns = leased_until_ns if bounded else NEVER_NS

    def rebase(self, cell: Cell, now_ns: int) -> bool:
        """Called when the estimate of the hub's clock was corrected; returns whether the key has slots to report.

        The hub's time makes no difference to slots.
        """
        self.anchor(cell, now_ns)
        return cell.used > 0

    def forget(self, cell: Cell, reset_us: int, now_ns: int) -> None:
        """Does nothing: a reset does not end work in progress."""

    def _enter(self, cell: Cell, now_ns: int) -> None:
        """Puts the key into the one window of slots. It counts as nearly over, so that no more demand is expected."""
        cell.epoch = 0
        cell.lag_ns = 0
        cell.opened_ns = now_ns - self._table.window_ns


def lease_left_ns(cell: Cell, now_ns: int) -> int:
    """Returns the nanoseconds until the lease of a key's slots ends if the hub does not answer; negative afterwards.

    Returns NEVER_NS if the hub has never answered about the key, which then has no lease.
    """
    if not cell.heard or cell.table.policy.keeps_allowances:
        return NEVER_NS
    return lease_until_ns(cell) - now_ns


def lease_is_over(cell: Cell, now_ns: int) -> bool:
    """Returns whether the lease has ended under which this node uses slots of the key."""
    return lease_left_ns(cell, now_ns) <= 0
