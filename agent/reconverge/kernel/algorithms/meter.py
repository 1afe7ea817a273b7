"""The interface of meters: the methods in which algorithms differ, with defaults that most of them share."""

# Theory of operation.
#
# Every algorithm computes a number, the use, that grows with each charge and shrinks with time; a request is admitted
# while the use stays within the node's allowance. For allowances to be added up, the use must be a sum over the nodes:
#
#     fixed window      charged in this window
#     sliding window    charged in this window + charged in the last one * part of the last one that still counts
#     bucket            fill, which drains at the rate * allowance / capacity
#     slices, log       charges whose date is not over
#     slots             charges that have not been given back
#
# All are linear, so the use of all nodes sums to the use of the fleet, and allowances that sum to the capacity keep the
# fleet below it. A bucket drains on each node by the part of the rate that goes with its allowance: a full rate on each
# of N nodes would drain N times as fast.
#
# All numbers are whole, and exact. A bucket's level is kept in cost times nanoseconds of the window, of which a
# nanosecond drains `quota * allowance / capacity`: so a look at it rounds off less than a nanosecond's worth, and the
# same calls give the same answer on every machine, in the compiled twin as well. Use is rounded up; spare room and
# drain are rounded down.
#
# Two clocks. Use that fades by the hub's windows is computed as of `lag_ns` ago, which is twice the possible error of
# the node's estimate of the hub's clock: once because the hub grants by its own clock, once because another node's
# error may be the opposite. A bucket depends on time passed and not on moments, so it goes by its node's own clock and
# has no lag. With a lag, a bucket of capacity 1 never admitted anything once a hub had answered. A bucket that refills
# at edges depends on moments again (`StepBucket`): to see an edge too early admits too much, and so does to see it too
# late, because charges after the true edge would drain with it. Random tests (`simulation/fuzz.py`) found 35 above a
# strict limit of 339 that way, with a round trip of 76 ms.

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil
from typing import Protocol

from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.cell import Cell, Mark


class Memory(Protocol):
    """A memory of the use of evicted keys. `kernel/evicted.py` implements it."""

    def keep_window(self, key: str, epoch: int, current: int, previous: int, now_ns: int, /) -> bool:
        """Stores the use of a key in window `epoch` and the one before; returns False if it is too large to store."""
        ...

    def window_of(self, key: str, now_ns: int, /) -> tuple[int, int, int] | None:
        """Returns the number of the stored window, and the most that a key may have used in it and in the one before.

        Returns None while nothing is stored.
        """
        ...

    def keep_level(self, key: str, level: int, window_ns: int, now_ns: int, /) -> bool:
        """Stores the level of a key's bucket, in cost times nanoseconds; returns False if it is too large to store."""
        ...

    def level_of(self, key: str, window_ns: int, now_ns: int, /) -> int:
        """Returns the highest level that the bucket of a key may have now, in cost times nanoseconds."""
        ...


class CellMeter(ABC):
    """The arithmetic of one limit. `now_ns` is monotonic; the cell has already been brought into its window.

    An exception may come out of a signal handler wherever a function is called. So values that change together are
    computed first and then assigned without a call in between. They are assigned in an order in which even a part of
    the assignments never lets a limit admit more than its bound.
    """

    aligned = False
    """Whether the count starts at zero with every window, from the base allowance."""
    bucket = False
    """Whether charges drain."""
    slots = False
    """Whether charges count until they are given back, as slots do."""
    fades = False
    """Whether the count of the last window fades over this one."""
    leaves_in_use = False
    """Whether a key may leave a node without a hub before its use has faded; then `keep` and `recall` work."""
    idle_ns: int
    """Half of the time after which a key without charges certainly has no use left, in nanoseconds."""

    @abstractmethod
    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Moves the cell into window number `epoch`, `steps` windows after its last one (1 for the next window)."""

    @abstractmethod
    def settle(self, cell: Cell, now_ns: int) -> None:
        """Brings the cell's own meter up to `now_ns`. All charges have been counted by `measure`."""

    @abstractmethod
    def until_ns(self, cell: Cell) -> int:
        """Returns the moment until which the fast path may add charges to `used`."""

    @abstractmethod
    def used(self, cell: Cell, now_ns: int) -> int:
        """Returns this node's own use, rounded up."""

    def own(self, cell: Cell, now_ns: int) -> int:
        """Returns `used`, and what this node has charged to a bucket that is kept at the hub."""
        return self.used(cell, now_ns)

    @abstractmethod
    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        """Returns the cost that fits below `allowance`; negative when more is used."""

    @abstractmethod
    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        """Returns how long until `cost` fits below `allowance` if nothing is charged meanwhile."""

    @abstractmethod
    def others(self, cell: Cell, now_ns: int) -> float:
        """Returns the other nodes' use at the hub's last answer, less the part that has faded since."""

    @abstractmethod
    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns how long until `cost` fits below the capacity, with the use of all nodes."""

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns for how long `cost` certainly does not fit below the capacity, with the use of all nodes.

        `cost` may fit later than that, never earlier. `fleet_wait_ns` is later by the possible error of the clocks
        (`lag_ns`), and its rounding is within the microsecond that callers ignore.
        """
        return self.fleet_wait_ns(cell, cost, now_ns) - cell.lag_ns

    @abstractmethod
    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns how long until no use counts any more, on any node."""

    def fleet_used(self, cell: Cell, now_ns: int) -> int:
        """Returns the use of all nodes, as far as this one knows."""
        return self.used(cell, now_ns) + ceil(self.others(cell, now_ns))

    def fleet_shown(self, cell: Cell, now_ns: int) -> int:
        """Returns the use of all nodes as people read it: above the capacity only where the fleet exceeded that."""
        return self.fleet_used(cell, now_ns)

    def begin(self, cell: Cell, now_ns: int) -> None:
        """Prepares a new cell."""
        cell.marked_ns = 0

    def keep(self, cell: Cell, memory: Memory, now_ns: int) -> bool:
        """Stores the use of a cell in a memory, before the cell leaves; returns whether the cell may leave now."""
        return False

    def recall(self, cell: Cell, memory: Memory, now_ns: int) -> None:
        """Adds the use that a memory has stored for the key to a new cell."""

    def clear(self, cell: Cell) -> None:
        """Forgets all charges."""
        cell.used = cell.counted = cell.previous = cell.level = 0
        cell.credit = 0
        if cell.at_hub:
            cell.stored = 0

    def rebase(self, cell: Cell, now_ns: int) -> None:
        """Adapts the cell after this node's knowledge of the hub's clock was corrected; most meters need no change."""

    def bound(self, cell: Cell, now_ns: int) -> int:
        """Returns the part of this node's allowance that is in use and cannot be given away; rounded up."""
        return self.used(cell, now_ns)

    def peak(self, cell: Cell, now_ns: int) -> int:
        """Returns the largest number of slots in use lately. Must be called once for each report."""
        return self.used(cell, now_ns)

    def headroom(self, cell: Cell, now_ns: int) -> int:
        """Returns the part of the allowance that is not in use."""
        return self.spare(cell, cell.allowance, now_ns)

    def owed(self, cell: Cell) -> float:
        """Returns the debt that only an allowance can pay off."""
        return 0.0

    def look(self, cell: Cell) -> int:
        """Returns the number by which a later correction finds a charge that is made now; see `Mark.look`."""
        return 0

    def owe(self, cell: Cell, amount: int, now_ns: int) -> None:
        """Handles an amount that was just charged without a decision, such as the rest of a reservation."""

    def returnable(self, cell: Cell, cost: int) -> int:
        """Returns the part of `cost` that can be given back in the present window; the rest is of the one before."""
        return min(cost, cell.used)

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Takes back a charge in `epoch`, at the place of `mark`, as far as it still counts."""
        if epoch == cell.epoch:
            returned = min(amount, cell.used)
            cell.used -= returned
            cell.counted -= returned
        elif epoch == cell.epoch - 1:
            cell.previous -= min(amount, cell.previous)

    def report(self, cell: Cell, now_ns: int) -> tuple[int, int]:
        """Returns the numbers for a report's fields `current` and `previous`; see `CellReport`."""
        return cell.used, cell.previous

    def confirm(self, cell: Cell) -> None:
        """Notes that the last report was answered."""

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """Computes the use of other nodes: the hub's total, less this node's own reported part."""
        if answer.epoch == cell.epoch:
            counted = report.reset_us >= answer.reset_us and report.epoch == answer.epoch
            cell.others_current = max(0, answer.current - (report.current if counted else 0))
            cell.fleet_used = float(answer.current + answer.silent)
            cell.silent = answer.silent

    def leave_hub(self, cell: Cell) -> None:
        """Notes that the key is no longer kept at the hub; this node's use is reported in full from here on."""

    def disown(self, cell: Cell, now_ns: int) -> None:
        """Moves the confirmed part of this node's use to the other nodes' use.

        The hub goes on counting that part, but no longer as the use of this node, so this node must not report it
        again.
        """
        epoch, current, previous = cell.confirmed
        if epoch not in (cell.epoch, cell.epoch - 1):
            return
        if epoch == cell.epoch - 1:
            current, previous = 0, current
        if cell.at_hub:
            cell.allowance = 0  # the hub granted it beside the use that moves away
        current, previous = min(current, cell.used), min(previous, cell.previous)
        cell.used -= current
        cell.previous -= previous
        cell.others_current += current
        cell.others_previous += previous
        cell.counted = cell.used
