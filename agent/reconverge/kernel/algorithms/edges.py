"""Computes when a key's window begins and ends, and until when the fast path may decide about the key.

`first_hit.py` does this for windows that begin with the first charge.
"""

# Theory of operation.
#
# The problem. All nodes must agree on the window that a charge belongs to, and each has a clock of its own. Windows go
# by the hub's clock; a node estimates it by an offset to its own clock, which every answer corrects.
#
# How it works. A cell carries the number of its window (`epoch`) and its beginning by this node's clock (`opened_ns`).
# No code runs when a window ends: the fast path compares the time with `until_ns` alone, and a decision after that
# moment takes the slow path, which first calls `advance`. That computes the number of the window anew:
#
#     hub's clock   |  window 7            |  window 8            |
#     a cell         opened_ns ............. until_ns
#                                              first call after it: advance -> window 8, the count begins anew
#
# `until_ns` is the earliest of the window's end, the lease's end and the meter's own moment (`CellMeter.until_ns`).
#
# The clock may move in two ways. If an answer shows that the estimate of the hub's clock was wrong, cells are moved to
# the corrected time with their counts (`rebase`), as no time has passed. If the clock goes back to the window before
# the cell's, the cell stays in its window until the clock is there again; if the clock goes back further, the cell
# follows it, at the price of one extra window. On a node with a hub, the cell of a bucket that refills at edges always
# stays: if it passed an edge twice, it would be refilled twice.

from __future__ import annotations

from typing import Protocol

from reconverge.clock import MICROSECOND_NS, Clock
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.dated import Dated
from reconverge.kernel.algorithms.meter import CellMeter
from reconverge.kernel.cell import (
    DEMAND_MAX,
    Cell,
    Limited,
    Shard,
    closes_ns,
    floats,
    has_share,
    lease_until_ns,
    low_water,
    measure,
    usable_allowance,
)

SOLO_REFRESH_NS = 1_000_000_000
"""How often a node without a hub compares its two clocks, in nanoseconds, so that windows follow the wall clock."""


class Placed(Limited, Protocol):
    """The fields of a limit that `Edges` reads, such as its clock and its meter. `Table` implements it."""

    clock: Clock

    @property
    def meter(self) -> CellMeter:
        """Returns the arithmetic of the limit."""
        ...

    @property
    def dated(self) -> Dated | None:
        """Returns the arithmetic of the limit if charges have dates, as in a sliding log or slices; else None."""
        ...


def solo_offset_ns(shard: Shard, clock: Clock, now_ns: int) -> int:
    """Returns the nanoseconds to add to monotonic time to get wall time, for a node without a hub.

    Measures them again if the last measurement is older than SOLO_REFRESH_NS.
    """
    if now_ns - shard.refreshed_ns >= SOLO_REFRESH_NS:
        shard.refreshed_ns = now_ns
        shard.offset_ns = clock.wall_ns() - now_ns
    return shard.offset_ns


class Edges:
    """Moves the counts of one limit's keys from window to window, by the hub's clock. The caller holds the lock."""

    by_charge = False
    """Whether a window begins with the first charge after the previous window; see `charge`."""

    def __init__(self, table: Placed) -> None:
        self._table = table
        # The number computed last. Cells with the same number share one object, which stays in the processor's cache.
        self._room = self._until_ns = 0

    def advance(self, cell: Cell, now_ns: int) -> None:
        """Brings a key's counts up to `now_ns`: moves them into the window of that moment, and drains or fades them."""
        meter = self._table.meter
        if meter.bucket:
            cell.room = -1  # first: it was computed for the old meter, and an exception may follow
            measure(cell)
            meter.settle(cell, now_ns)
        elif now_ns < cell.until_ns:
            return
        else:
            cell.room = -1
        self._enter(cell, now_ns)
        self.set_until(cell, now_ns)

    def set_until(self, cell: Cell, now_ns: int) -> None:
        """Lets the fast path decide about a key until the window or the lease ends, or the bucket is empty."""
        table = self._table
        until_ns = min(closes_ns(cell), table.meter.until_ns(cell))
        leased_until_ns = lease_until_ns(cell)
        if not table.policy.keeps_allowances and now_ns < leased_until_ns:
            until_ns = min(until_ns, leased_until_ns)
        if until_ns != self._until_ns:
            self._until_ns = until_ns
        cell.until_ns = self._until_ns

    def set_room(self, cell: Cell, spare: int) -> None:
        """Lets the fast path admit `spare` more cost to a key, if it need not queue a report for these charges.

        If it must, or if the limit needs the slow path for each charge, lets the fast path admit nothing.
        """
        unmarked = not (cell.dirty or cell.comfortable or cell.shard.alone)
        room = -1 if unmarked or not self._table.additive else cell.used + spare
        if room != self._room:
            self._room = room
        cell.room = self._room

    def follow(self, cell: Cell, report: CellReport, answer: CellAnswer, now_ns: int) -> tuple[CellReport, CellAnswer]:
        """Moves a key into the window of the hub's answer, before the caller stores the answer's allowances.

        Returns the report and the answer, with this node's numbers for their windows. At an edge that the hub has
        passed, a bucket that refills at edges drains by its old allowance: the added allowance was another node's,
        which may have drained by it at that edge already.
        """
        if self._table.stepwise and answer.epoch > cell.epoch:
            self._step_to(cell, answer.epoch)
            self.anchor(cell, now_ns)
        return report, answer

    def rebase(self, cell: Cell, now_ns: int) -> bool:
        """Renumbers the key's window by a corrected estimate of the hub's clock; returns whether the key has use."""
        measure(cell)
        if has_share(cell):
            cell.at_hub = True  # it closes with the window in which it was opened
        if floats(cell) or (has_share(cell) and self._table.meter.aligned):
            cell.allowance = 0  # it was granted, or opened, for a window that has another number now
        self._table.meter.rebase(cell, now_ns)
        cell.epoch = self._number(self._hub_ns(cell, now_ns))
        self.anchor(cell, now_ns)
        return bool(cell.used or cell.previous)

    def anchor(self, cell: Cell, now_ns: int) -> None:
        """Computes the key's window again by the node's present estimate of the hub's clock."""
        self._enter(cell, now_ns)
        self.set_until(cell, now_ns)
        cell.room = -1

    def charge(self, cell: Cell, now_ns: int) -> None:
        """Called after a charge. Does nothing; a subclass overrides it where windows begin with the first charge."""

    def epoch_of(self, cell: Cell, epoch: int) -> int:  # noqa: ARG002  # of the cell's own window, elsewhere
        """Returns this node's number for the window `epoch`, in which an earlier charge was made: here `epoch`."""
        return epoch

    def forget(self, cell: Cell, reset_us: int, now_ns: int) -> None:
        """Sets this node's use of the key to zero; charges before `reset_us` of the hub's clock no longer count."""
        meter = self._table.meter
        cell.room = -1
        measure(cell)
        if floats(cell):
            cell.allowance = 0  # the hub granted it beside the use that is forgotten now
        cell.reset_us = reset_us
        current, previous = self._since_reset(cell, reset_us)
        meter.clear(cell)
        cell.used = cell.counted = current
        cell.previous = previous
        cell.confirmed = (-1, cell.charged if meter.bucket else 0, 0)
        self.set_until(cell, now_ns)
        self.set_room(cell, meter.spare(cell, usable_allowance(cell, now_ns), now_ns))

    def _since_reset(self, cell: Cell, reset_us: int) -> tuple[int, int]:
        """Returns the use in the current and the previous window that a reset leaves: only if the window began later.

        This node may hear of a reset windows later, and may have used its sealed share since (what it may use while the
        hub is silent). Without a share, only a sliding window keeps such use.
        """
        table = self._table
        if cell.shard.alone or not (table.meter.fades or has_share(cell)):
            return 0, 0
        reset_ns, begins_ns = reset_us * MICROSECOND_NS, cell.epoch * table.window_ns
        current = cell.used if reset_ns <= begins_ns else 0
        return current, cell.previous if reset_ns <= begins_ns - table.window_ns else 0

    def _hub_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns the hub's time, as far as this node knows it.

        For buckets that drain in steps, it is the earliest time that the hub's clock may show.
        """
        shard, table = cell.shard, self._table
        if shard.alone:
            return now_ns + solo_offset_ns(shard, table.clock, now_ns)
        return now_ns + shard.offset_ns - (shard.lag_ns if table.stepwise else 0)

    def _number(self, hub_ns: int) -> int:
        """Returns the number of the window that contains the moment `hub_ns` of the hub's clock."""
        calendar = self._table.calendar
        return hub_ns // self._table.window_ns if calendar is None else calendar.number(hub_ns)

    def _enter(self, cell: Cell, now_ns: int) -> None:
        """Moves a key into the window in which the hub's clock is now."""
        table = self._table
        hub_ns = self._hub_ns(cell, now_ns)
        epoch = self._number(hub_ns)
        if epoch == cell.epoch - 1 or (table.stepwise and epoch < cell.epoch and not cell.shard.alone):
            epoch = cell.epoch
        self._step_to(cell, epoch)
        opens_ns = epoch * table.window_ns if table.calendar is None else table.calendar.opens_ns(epoch)
        cell.opened_ns = now_ns - (hub_ns - opens_ns)
        cell.lag_ns = cell.shard.lag_ns
        if table.dated is not None:
            measure(cell)
            table.dated.settle(cell, now_ns)

    def _step_to(self, cell: Cell, epoch: int) -> None:
        steps = epoch - cell.epoch
        if steps != 0:
            measure(cell)
            if cell.epoch >= 0:
                self._forget_window(cell, steps)
                self._table.meter.open_window(cell, steps, epoch)
            else:
                cell.epoch = epoch

    def _forget_window(self, cell: Cell, steps: int) -> None:
        """Clears what is known of a key's window, as a new one begins, `steps` later; keeps the demand on all nodes."""
        table = self._table
        unheard_ns = closes_ns(cell) - cell.heard_ns
        share = min(max(float(unheard_ns) / float(table.window_ns), 0.0), 1.0) if steps == 1 else 1.0
        heard_demand = cell.fleet_window if steps == 1 else 0
        cell.last_demand = int(min(heard_demand + cell.fleet_demand * table.window_s * share, float(DEMAND_MAX)))
        cell.fleet_window = cell.window_demand = cell.silent = 0
        cell.fleet_used = 0.0
        cell.comfortable = False
        cell.back_off_ns = 0
        begins = cell.base * (not cell.sealed) if table.meter.aligned else 0 if floats(cell) else cell.allowance
        cell.low_water = low_water(table, begins)
