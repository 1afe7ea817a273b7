"""The interface of meters, the arithmetic of algorithms: the methods in which these differ, with common defaults."""

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
# All numbers are whole, and exact. A bucket's level is stored in cost times nanoseconds of the window, of which
# `quota * allowance / capacity` drain in a nanosecond: so each computation rounds off less than drains in a nanosecond,
# and the same calls give the same answer on every machine, also in the compiled kernel. Use is rounded up; spare room
# and drain are rounded down.
#
# Two clocks. Use that fades by the hub's windows is computed as of `lag_ns` ago, which is twice the possible error of
# the node's estimate of the hub's clock: once because the hub grants by its own clock, once because another node's
# error may be the opposite. A bucket depends on time passed and not on moments, so it goes by its node's own clock and
# has no lag. (With a lag, a bucket of capacity 1 never admitted anything once a hub had answered.) A bucket that
# refills at edges depends on moments again (`StepBucket`). A node that takes an edge too early admits too much, and so
# does one that takes it too late, because charges after the true edge would drain with it. Random tests
# (`simulation/fuzz.py`) found 35 above a strict limit of 339 that way, with a round trip of 76 ms.

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil
from typing import Protocol

from reconverge.clock import NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.cell import Cell, Mark


class Memory(Protocol):
    """A memory of the use of evicted keys. `kernel/evicted.py` implements it."""

    def keep_window(self, key: str, epoch: int, current: int, previous: int, now_ns: int, /) -> bool:
        """Stores a key's use in window `epoch` and in the previous one; returns False if either use is too large."""
        ...

    def window_of(self, key: str, now_ns: int, /) -> tuple[int, int, int] | None:
        """Returns the number of the stored window, and the most that `key` may have used in it and in the previous one.

        Returns None while nothing is stored.
        """
        ...

    def keep_level(self, key: str, level: int, window_ns: int, now_ns: int, /) -> bool:
        """Stores the level of a key's bucket, in cost times nanoseconds; returns False if it is too large to store."""
        ...

    def level_of(self, key: str, window_ns: int, now_ns: int, /) -> int:
        """Returns the highest level that the bucket of `key` may have at `now_ns`, in cost times nanoseconds."""
        ...


class CellMeter(ABC):
    """The arithmetic of one limit. `now_ns` is monotonic; callers have moved the cell into its window already.

    A cell has the counts of one key. An exception may come out of a signal handler wherever a function is called. So
    values that change together are computed first and then assigned without a call in between. Their order is such that
    even if an exception separates them, the limit never admits more than its bound.
    """

    aligned = False
    """Whether every window begins with a count of zero and with the allowance `cell.base`."""
    bucket = False
    """Whether use drains steadily, or in steps, as in a bucket."""
    slots = False
    """Whether charges are slots, which count until they are given back."""
    fades = False
    """Whether the use of the previous window fades over the current window."""
    leaves_in_use = False
    """Whether a node without a hub may evict a key whose use still counts; `keep` and `recall` then store that use."""
    idle_ns: int
    """Half of the nanoseconds after which a key without new charges certainly has no use left."""

    @abstractmethod
    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Moves the key's counts into the window `epoch`, which is `steps` windows after its last window."""

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Brings the key's use up to `now_ns`; nothing if time does not change the stored use within a window.

        The caller has counted all charges by `measure`.
        """

    def until_ns(self, cell: Cell) -> int:
        """Returns the monotonic moment until which the fast path may add charges to `cell.used`."""
        return NEVER_NS

    def used(self, cell: Cell, now_ns: int) -> int:
        """Returns the cost charged by this node that still counts, rounded up."""
        return cell.used

    def own(self, cell: Cell, now_ns: int) -> int:
        """Returns this node's use as `used` does, plus its charges to a bucket whose free part the hub keeps."""
        return self.used(cell, now_ns)

    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        """Returns how much more cost fits into `allowance`; negative if this node has used more than the allowance."""
        return allowance - cell.used

    @abstractmethod
    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds until `cost` more fits into `allowance`, if nothing else is charged until then."""

    def others(self, cell: Cell, now_ns: int) -> float:
        """Returns the other nodes' use at the hub's last answer, less the part that has faded since."""
        return cell.others_current

    @abstractmethod
    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds until the use of all nodes leaves room for `cost` in the capacity."""

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns for how many nanoseconds the use of all nodes certainly leaves no room for `cost`.

        There may be room later than that, never earlier. `fleet_wait_ns` is longer by the possible error of the clocks
        (`cell.lag_ns`). The result may be rounded by a microsecond, which callers ignore.
        """
        return self.fleet_wait_ns(cell, cost, now_ns) - cell.lag_ns

    @abstractmethod
    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns the nanoseconds until no use of any node counts any more, if nothing else is charged."""

    def fleet_used(self, cell: Cell, now_ns: int) -> int:
        """Returns the cost charged by all nodes that still counts, as far as this node knows."""
        return self.used(cell, now_ns) + ceil(self.others(cell, now_ns))

    def fleet_shown(self, cell: Cell, now_ns: int) -> int:
        """Returns the use of all nodes to show to people: above the capacity only if the fleet really exceeded it."""
        return self.fleet_used(cell, now_ns)

    def begin(self, cell: Cell, now_ns: int) -> None:
        """Prepares the counts of a new key."""
        cell.marked_ns = 0

    def keep(self, cell: Cell, memory: Memory, now_ns: int) -> bool:
        """Stores a key's use in `memory`, because the key is evicted; returns False if the key must not be evicted."""
        return False

    def recall(self, cell: Cell, memory: Memory, now_ns: int) -> None:
        """Adds to a new key's counts the use that `memory` has if the key was evicted before."""

    def clear(self, cell: Cell) -> None:
        """Forgets all charges to the key."""
        cell.used = cell.counted = cell.previous = cell.level = 0
        cell.credit = 0
        if cell.at_hub:
            cell.stored = cell.late = 0

    def rebase(self, cell: Cell, now_ns: int) -> None:
        """Adapts the key's counts to a corrected estimate of the hub's clock; most meters do nothing."""

    def bound(self, cell: Cell, now_ns: int) -> int:
        """Returns the part of this node's allowance that is in use and cannot be given back, rounded up."""
        return self.used(cell, now_ns)

    def peak(self, cell: Cell, now_ns: int) -> int:
        """Returns the recent peak of slots in use, which fades over about a second. Call it once for each report."""
        return self.used(cell, now_ns)

    def headroom(self, cell: Cell, now_ns: int) -> int:
        """Returns the part of the key's allowance that is not in use, as cost."""
        return self.spare(cell, cell.allowance, now_ns)

    def owed(self, cell: Cell) -> float:
        """Returns the key's debt, which only an allowance can pay off, as cost; 0 if its limit has no debts."""
        return 0.0

    def look(self, cell: Cell) -> int:
        """Returns the number by which a later correction finds a charge that is made now; see `Mark.look`."""
        return 0

    def owe(self, cell: Cell, amount: int, now_ns: int) -> None:
        """Called after `amount` was charged without a decision, for example because more was used than reserved."""

    def returnable(self, cell: Cell, cost: int) -> int:
        """Returns the part of `cost` to give back to the current window; the rest was charged in the previous one."""
        return min(cost, cell.used)

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Gives back `amount` of a charge that was made in window `epoch`, as far as the charge still counts.

        `mark` has the number by which the algorithm finds the charge.
        """
        if epoch == cell.epoch:
            returned = min(amount, cell.used)
            cell.used -= returned
            cell.counted -= returned
        elif epoch == cell.epoch - 1:
            cell.previous -= min(amount, cell.previous)

    def report(self, cell: Cell, now_ns: int) -> tuple[int, int]:
        """Returns the numbers for a report's fields `current` and `previous`; see `CellReport`."""
        return cell.used, cell.previous

    def reported_base(self, cell: Cell, now_ns: int) -> int:
        """Returns the number for a report's field `base`; see `CellReport`."""
        return cell.base

    def confirm(self, cell: Cell) -> None:
        """Called when the hub has answered the last report: the reported use is confirmed."""

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """Stores the other nodes' use: the total in the hub's answer, less the use that this node has reported."""
        if answer.epoch == cell.epoch:
            counted = report.reset_us >= answer.reset_us and report.epoch == answer.epoch
            cell.others_current = max(0, answer.current - (report.current if counted else 0))
            cell.fleet_used = float(answer.current + answer.silent)
            cell.silent = answer.silent

    def leave_hub(self, cell: Cell) -> None:
        """Called when the hub no longer keeps the free part of the limit: the node then reports its use in full."""

    def disown(self, cell: Cell, now_ns: int) -> None:
        """Moves the confirmed part of this node's use to the other nodes' use.

        The hub goes on counting the confirmed part, but no longer as use of this node, so the node must not report it
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
