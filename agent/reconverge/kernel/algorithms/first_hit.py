"""Windows that begin with the first charge: a node opens its own window, or takes over that of the hub's answer."""

# Theory of operation.
#
# A node without a hub begins a window with the first charge after the last window. A fleet has to agree on that moment,
# and nodes that are cut off open windows by themselves. If the hub fixed the beginnings of all windows of a key with
# the first hit, the bounds would hold; but a busy key would have windows that begin with no hit, the end of a series of
# windows would need its own rules, and a fleet of one node would behave otherwise than a single process.
#
# A cell's `epoch` is the microsecond of the hub's clock at which its window began, or NONE between two windows. Between
# windows the count is zero and the allowance is the base, as at the beginning of any fixed window, and the next charge
# opens a window. Nodes that open windows before they know of each other's do so from their bases, which sum to the
# capacity at most. The hub takes the first window that is reported, and the other nodes adopt it; use in their own
# windows still counts if the two overlap. A request that does not fit into a base asks the hub to open its window;
# otherwise nodes that need more than a base would wait for each other.

from __future__ import annotations

from typing import Final

from reconverge.clock import MICROSECOND_NS, NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.edges import Edges
from reconverge.kernel.cell import Cell, closes_ns, measure

NONE: Final = -1
"""The number of no window: the epoch of a key while no window is open."""
ANOTHER: Final = 2
"""A difference between two epochs that stands for two windows which neither overlap nor follow each other."""


class FirstHitEdges(Edges):
    """The windows of a limit with `align="first-hit"`: each begins with the first charge after the end of the last."""

    by_charge = True

    def set_until(self, cell: Cell, now_ns: int) -> None:
        """Lets the fast path decide about a key while a window is open.

        Between two windows a charge must take the slow path, which opens the next window.
        """
        super().set_until(cell, now_ns)
        if cell.epoch == NONE:
            cell.until_ns = 0

    def charge(self, cell: Cell, now_ns: int) -> None:
        """Called after a charge: opens a window if none is open."""
        if cell.epoch != NONE:
            return
        hub_us = self._hub_us(cell, now_ns)
        cell.opened_ns = now_ns
        cell.epoch = hub_us if cell.shard.alone else max(hub_us, cell.free_us)
        if now_ns - cell.before_ns >= 2 * self._table.window_ns:
            cell.last_demand = 0  # the last window with demand was long ago, not just before this one
        self.set_until(cell, now_ns)

    def epoch_of(self, cell: Cell, epoch: int) -> int:
        """Returns the number of the key's present window if it overlaps the window `epoch`, in which a charge was made.

        Overlapping windows count as one. If they do not overlap, returns a number of no window of the key.
        """
        here = cell.epoch != NONE and self._same(epoch, cell.epoch)
        return cell.epoch if here else cell.epoch - ANOTHER

    def forget(self, cell: Cell, reset_us: int, now_ns: int) -> None:
        """Forgets the key's charges. On a node without a hub its window ends, too, as no other node counts in it."""
        if cell.shard.alone:
            # An exception out of a signal handler may leave the cell between two windows: the next charge opens one.
            cell.room = -1
            measure(cell)
            cell.epoch = NONE
        super().forget(cell, reset_us, now_ns)

    def rebase(self, cell: Cell, now_ns: int) -> bool:
        """Renumbers the key's window by a corrected estimate of the hub's clock; returns whether the key has any use.

        By this node's clock, the window does not move.
        """
        measure(cell)
        cell.free_us = 0
        if cell.heard:  # the window before has no place in the hub's new time
            cell.previous, cell.before_ns = 0, -NEVER_NS
        if cell.epoch != NONE:
            cell.epoch = self._hub_us(cell, cell.opened_ns)
        self.anchor(cell, now_ns)
        return bool(cell.used)

    def anchor(self, cell: Cell, now_ns: int) -> None:
        if cell.epoch != NONE:
            cell.opened_ns = self._local_ns(cell, cell.epoch)
        super().anchor(cell, now_ns)

    def follow(self, cell: Cell, report: CellReport, answer: CellAnswer, now_ns: int) -> tuple[CellReport, CellAnswer]:
        """Moves the key into the window of the hub's answer if that window is still open.

        Returns the report and the answer, with this node's numbers for their windows.
        """
        window_ns, opened_ns = self._table.window_ns, self._local_ns(cell, answer.epoch)
        if answer.epoch >= 0 and opened_ns <= now_ns + window_ns and now_ns < opened_ns + window_ns:
            self._adopt(cell, answer.epoch, now_ns)
            epoch = cell.epoch
        elif answer.epoch < 0 and cell.epoch == NONE:
            epoch = NONE
            answer = answer._replace(allowance=answer.base)
        else:
            epoch = cell.epoch - ANOTHER
        counted = self._same(report.epoch, answer.epoch)
        return report._replace(epoch=epoch if counted else epoch - ANOTHER), answer._replace(epoch=epoch)

    def _adopt(self, cell: Cell, epoch: int, now_ns: int) -> None:
        """Replaces the key's window by the hub's window `epoch`; use in the old window counts on if the two overlap."""
        if cell.epoch == epoch:
            return
        used = cell.used if cell.epoch != NONE and self._same(cell.epoch, epoch) else 0
        if self._local_ns(cell, epoch) - cell.before_ns < self._table.window_ns:
            used += cell.previous
        cell.used = cell.counted = used
        cell.previous, cell.before_ns = 0, -NEVER_NS
        cell.epoch = epoch
        self.anchor(cell, now_ns)

    def _same(self, one: int, other: int) -> bool:
        """Returns whether two epochs stand for overlapping windows, or both mean that no window is open."""
        if one < 0 or other < 0:
            return one < 0 and other < 0
        return abs(one - other) * MICROSECOND_NS < self._table.window_ns

    def _enter(self, cell: Cell, now_ns: int) -> None:
        """Closes the key's window if it has ended at `now_ns`."""
        table = self._table
        if cell.epoch != NONE and now_ns >= closes_ns(cell):
            measure(cell)
            cell.previous, cell.before_ns = cell.used, cell.opened_ns
            cell.free_us = cell.epoch + table.window_ns // MICROSECOND_NS
            self._forget_window(cell, 1)
            table.meter.open_window(cell, 1, NONE)
        if cell.epoch == NONE:
            cell.opened_ns = now_ns
            if cell.used:  # an exception came after the charge and before its window
                self.charge(cell, now_ns)
        cell.lag_ns = cell.shard.lag_ns

    def _hub_us(self, cell: Cell, moment_ns: int) -> int:
        return (moment_ns + cell.shard.offset_ns) // MICROSECOND_NS

    @staticmethod
    def _local_ns(cell: Cell, hub_us: int) -> int:
        return hub_us * MICROSECOND_NS - cell.shard.offset_ns
