"""The meters (the arithmetic) of windows by the hub's clock: use counts in full in fixed ones, fades in sliding ones.

`edges.py` defines when a window begins and ends.
"""

from __future__ import annotations

from math import ceil

from reconverge.clock import MICROSECOND_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.meter import CellMeter, Memory
from reconverge.kernel.cell import Cell, closes_ns, has_share
from reconverge.limit.limit import Limit


def _begin_where_it_was(cell: Cell, memory: Memory, now_ns: int) -> None:
    """Begins a new key in the window, and with the use, that `memory` has kept of it since it was evicted, if any."""
    kept = memory.window_of(cell.key, now_ns)
    if kept is not None:
        cell.epoch, cell.used, previous = kept
        cell.counted = cell.used  # restored use is no new charge
        cell.previous = previous if cell.table.meter.fades else 0


class FixedWindow(CellMeter):
    """The arithmetic of a fixed window: the count starts at zero with every window of the hub's clock."""

    aligned = True
    leaves_in_use = True

    def __init__(self, limit: Limit) -> None:
        self._window_ns = self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Sets the count to zero, and the allowance to `cell.base`, the allowance with which each window begins.

        A sealed share is the allowance only in a window that began long enough after the hub's last answer, so that the
        hub has set the share aside (`merge/sealing.py`).
        """
        opens = not cell.sealed or epoch * self._window_ns >= cell.shard.opens_us * MICROSECOND_NS
        cell.allowance = cell.base if opens else 0
        cell.counted = 0
        cell.used = 0
        cell.epoch = epoch
        cell.others_current = 0

    def keep(self, cell: Cell, memory: Memory, now_ns: int) -> bool:
        return memory.keep_window(cell.key, cell.epoch, cell.used, 0, now_ns)

    def recall(self, cell: Cell, memory: Memory, now_ns: int) -> None:
        _begin_where_it_was(cell, memory, now_ns)

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        return max(1, closes_ns(cell) - now_ns)

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        return max(1, closes_ns(cell) - now_ns)

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds until the window ends if the capacity has no room for `cost`; otherwise 0."""
        if cell.used + cell.others_current + cost <= cell.capacity:
            return 0
        return super().fleet_earliest_ns(cell, cost, now_ns)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        return self.fleet_wait_ns(cell, 0, now_ns) if cell.used + cell.others_current > 0 else 0


class SlidingWindow(CellMeter):
    """The arithmetic of a sliding window: the current window's count, plus a part of the previous window's count.

    It estimates use as Cloudflare's counters do: current + previous * (1 - fraction of the current window that has
    passed).
    """

    fades = True
    leaves_in_use = True

    def __init__(self, limit: Limit) -> None:
        self._window_ns = limit.window_ns
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Makes the current count the previous one, and starts the current count at zero."""
        if cell.at_hub:
            cell.allowance = 0  # a grant for the window before is void: it would count for longer here than at the hub
        if has_share(cell):
            # See `merge/sealing.py`. In the window before, the hub has set it aside already.
            opens = (epoch - 1) * self._window_ns >= cell.shard.opens_us * MICROSECOND_NS
            cell.at_hub = not opens
            cell.allowance = cell.base if opens else 0
        cell.previous = cell.used if steps == 1 else 0
        cell.epoch = epoch
        cell.counted = 0
        cell.used = 0
        cell.others_previous = cell.others_current if steps == 1 else 0
        cell.others_current = 0

    def keep(self, cell: Cell, memory: Memory, now_ns: int) -> bool:
        return memory.keep_window(cell.key, cell.epoch, cell.used, cell.previous, now_ns)

    def recall(self, cell: Cell, memory: Memory, now_ns: int) -> None:
        _begin_where_it_was(cell, memory, now_ns)

    def used(self, cell: Cell, now_ns: int) -> int:
        return cell.used + self._faded(cell.previous, cell, now_ns)

    def spare(self, cell: Cell, allowance: int, now_ns: int) -> int:
        """Returns how much more cost fits into `allowance`.

        If the hub keeps the free part of the limit, the allowance is only for charges of the current window.
        """
        if cell.at_hub:
            return allowance - cell.used
        return allowance - cell.used - self._faded(cell.previous, cell, now_ns)

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        return self._wait_ns(cell.used, cell.previous, allowance - cost, cell, now_ns)

    def others(self, cell: Cell, now_ns: int) -> float:
        left = float(self._left_ns(cell, now_ns)) / float(self._window_ns)
        return cell.others_current + cell.others_previous * left

    def fleet_shown(self, cell: Cell, now_ns: int) -> int:
        # The parts that fade are rounded up for each node, and do so late, as `lag_ns` has them: five granted by the
        # hub's clock came to six. So what exceeds the capacity is summed first, and read as late as it may be.
        safe = self.fleet_used(cell, now_ns)
        if safe <= cell.capacity:
            return safe
        left = float(self._left_ns(cell, now_ns + 2 * cell.lag_ns)) / float(self._window_ns)
        certain = cell.used + cell.others_current + (cell.previous + cell.others_previous) * left
        return min(safe, max(cell.capacity, ceil(certain)))

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        current, previous = cell.used + cell.others_current, cell.previous + cell.others_previous
        return self._wait_ns(current, previous, cell.capacity - cost, cell, now_ns)

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        if cell.used + cell.others_current > 0:
            return self._left_ns(cell, now_ns) + self._window_ns
        return self._left_ns(cell, now_ns) if cell.previous + cell.others_previous > 0 else 0

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """Computes the other nodes' use from an answer, including the part of the previous window that still counts."""
        super().hear_of_others(cell, report, answer, heard_ns, now_ns)
        counted = report.reset_us >= answer.reset_us
        if answer.epoch == cell.epoch:
            own_previous = report.previous if counted else 0
            if report.epoch != answer.epoch:
                own_previous = report.current if counted and report.epoch == answer.epoch - 1 else 0
            cell.others_previous = max(0, answer.previous - own_previous)
            left_ns = min(max(cell.opened_ns + self._window_ns - heard_ns, 0), self._window_ns)
            cell.fleet_used += answer.previous * (float(left_ns) / float(self._window_ns))
        elif answer.epoch == cell.epoch - 1:
            own_current = report.current if counted and report.epoch == answer.epoch else 0
            cell.others_previous = max(0, answer.current - own_current)

    def _left_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns the nanoseconds that the current window certainly still lasts."""
        passed_ns = now_ns - cell.opened_ns - cell.lag_ns
        return self._window_ns - min(max(passed_ns, 0), self._window_ns)

    def _faded(self, amount: int, cell: Cell, now_ns: int) -> int:
        """Returns the part of `amount`, the previous window's count, that still counts; rounded up."""
        return -(-amount * self._left_ns(cell, now_ns) // self._window_ns)

    def _wait_ns(self, current: int, previous: int, allowed: int, cell: Cell, now_ns: int) -> int:
        """Returns the nanoseconds until at most `allowed` of the counts `current` and `previous` still counts."""
        left_ns = self._left_ns(cell, now_ns)
        if current <= allowed:
            may_be_left_ns = (allowed - current) * self._window_ns // previous if previous > 0 else left_ns
            return max(1, left_ns - may_be_left_ns)
        may_be_left_ns = max(0, allowed) * self._window_ns // current if current > 0 else 0
        return max(1, left_ns + self._window_ns - may_be_left_ns)
