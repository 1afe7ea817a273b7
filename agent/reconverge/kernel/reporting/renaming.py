"""Changes of a cell when its node gets another name or stops, the hub loses its data, or a key is forgotten."""

# Theory of operation.
#
# In each case the two sides remember different things: what a node has reported under an old name, or in a last report,
# the hub goes on counting, and the node must not count it again. What the hub has lost the node must say again.

from __future__ import annotations

from reconverge.kernel.cell import Cell, measure
from reconverge.kernel.reporting.requests import let_stay, mark_dirty


def say_again(cell: Cell) -> None:
    """Prepare a cell to be reported anew, because the hub has lost its data."""
    cell.room = -1
    measure(cell)
    cell.table.meter.leave_hub(cell)
    cell.confirmed = (-1, 0, 0)
    if not cell.heard:
        return  # it holds no allowance, and is to be reported anyway
    if not cell.unconfirmed:
        cell.unconfirmed = True
        cell.shard.unconfirmed += 1
    mark_dirty(cell)


def begin_under_new_name(cell: Cell, hub_remembers: bool, now_ns: int) -> None:
    """The node has lost its allowances, and reports what it uses from now on under another name."""
    table = cell.table
    cell.room = -1
    table.edges.advance(cell, now_ns)
    measure(cell)
    table.meter.leave_hub(cell)
    cell.allowance = cell.base = cell.overdraft = 0
    cell.held = cell.unconfirmed = False
    if hub_remembers:
        forget_confirmed(cell, now_ns)
    cell.confirmed = (-1, 0, 0)
    cell.room = -1
    cell.charged = 0
    mark_dirty(cell)


def give_up_lapsed_allowance(cell: Cell) -> None:
    """Drop an allowance whose lease was over, as the hub may have granted it to other nodes."""
    if cell.allowance or cell.base or cell.overdraft:
        cell.room = -1
        cell.allowance = cell.base = cell.overdraft = 0
        mark_dirty(cell)


def give_up_allowance(cell: Cell, now_ns: int) -> None:
    """Drop the allowance of a cell, because the node stops."""
    let_stay(cell)
    cell.table.edges.advance(cell, now_ns)
    measure(cell)
    if cell.dirty or cell.held or cell.allowance or cell.base:
        cell.allowance = cell.base = cell.overdraft = 0
        cell.asked = cell.ask = cell.arrived = 0
        cell.demand = 0.0
        mark_dirty(cell)


def forget_confirmed(cell: Cell, now_ns: int) -> None:
    """Take out of the meter what the hub goes on counting under a name or a report that this node is done with.

    From here on it is what others have used, until the hub says so itself. A bucket is left as it is: what it
    counts twice has drained before long.
    """
    cell.table.meter.disown(cell, now_ns)
