"""What is charged or given back after the request: settlements, refunds and resets."""

from __future__ import annotations

from reconverge.kernel.cell import Cell, Mark
from reconverge.kernel.table.cells import Cells
from reconverge.limit.limit import QUOTA_MAX

DEBT_MAX = QUOTA_MAX
"""The deepest debt of a key, in parts of a request, of a limit that names none: more could not be told to a hub."""


class Corrections(Cells):
    """The cells of one limit, and how their meters are put right. The caller holds the lock."""

    def mark(self, cell: Cell) -> Mark:
        """Where and when something was charged that may be corrected."""
        return Mark(cell, cell.epoch, cell.reset_us, self.meter.look(cell))

    def reset_at(self, key: str, now_ns: int) -> None:
        """See `reset`."""
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        hub_us = (now_ns + cell.shard.offset_ns) // 1000
        self.forget(cell, max(hub_us, cell.reset_us + 1), now_ns)
        cell.others_current = cell.others_previous = 0
        if not cell.shard.alone:
            self._call(cell, now_ns)
            self.request_early(cell, now_ns)

    def correct_at(self, key: str, epoch: int, difference: int, mark: Mark | None, now_ns: int) -> None:
        """See `correct`."""
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        self.measure(cell)
        tally = self.tallies[cell.shard.index]
        if difference > 0:
            # What is beyond has happened, too, but no request has to wait for it.
            debt = DEBT_MAX if self.limit.max_debt is None else min(self.limit.max_debt * self.unit, DEBT_MAX)
            counted = max(0, min(difference, cell.capacity + debt - self.fleet_used(cell, now_ns)))
            cell.used += counted  # and all that goes with it, without a call in between
            cell.counted += counted
            cell.charged += counted
            tally.charged += difference // self.unit
            self.meter.owe(cell, counted, now_ns)
            if self.dated is not None:
                self.set_until(cell, now_ns)
        else:
            tally.refunded += -difference // self.unit
            self._give_back(cell, epoch, -difference, mark, now_ns)
        cell.counted = cell.used
        self._set_room(cell, self.meter.spare(cell, self.usable_line(cell, now_ns), now_ns))
        if not cell.shard.alone:
            self._call(cell, now_ns)

    def refund_at(self, key: str, cost: int, now_ns: int) -> None:
        """See `refund`: from what was charged last, that is, as far as that goes, and the rest from before."""
        cell = self.look_up(key, now_ns)
        self.advance(cell, now_ns)
        current = self.meter.returnable(cell, cost)
        self.correct_at(key, cell.epoch, -current, None, now_ns)
        if current < cost:
            self.correct_at(key, cell.epoch - 1, current - cost, None, now_ns)

    def _give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        if mark is not None and (cell is not mark.cell or cell.reset_us != mark.reset_us):
            return
        self.meter.give_back(cell, epoch, amount, mark, now_ns)
        if self.meter.bucket:
            self.set_until(cell, now_ns)
