"""Changes a key's counts when the node gets another name or stops, the hub loses its data, or a key is forgotten."""

# Theory of operation.
#
# In each case hub and node remember different use. The hub goes on counting use that a node has reported under an old
# name, or in a last report, so the node must not count it again. Use that the hub has lost the node must report again.

from __future__ import annotations

from reconverge.kernel.cell import Cell, measure
from reconverge.kernel.reporting.requests import let_stay, mark_dirty


def say_again(cell: Cell) -> None:
    """Queues a key to be reported in full, because the hub has lost its data about the key."""
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
    """Drops a key's allowances, because the node gets a new name, under which it reports later use.

    If `hub_remembers`, also subtracts the use that the hub has confirmed: the hub goes on counting that use under the
    old name.
    """
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
    """Drops a key's allowances, because their lease has ended and the hub may have granted them to other nodes."""
    if cell.allowance or cell.base or cell.overdraft:
        cell.room = -1
        cell.allowance = cell.base = cell.overdraft = 0
        mark_dirty(cell)


def give_up_allowance(cell: Cell, now_ns: int) -> None:
    """Drops a key's allowances, because the node stops, and queues the key for a last report."""
    let_stay(cell)
    cell.table.edges.advance(cell, now_ns)
    measure(cell)
    if cell.dirty or cell.held or cell.allowance or cell.base:
        cell.allowance = cell.base = cell.overdraft = 0
        cell.asked = cell.ask = cell.arrived = 0
        cell.demand = 0.0
        mark_dirty(cell)


def forget_confirmed(cell: Cell, now_ns: int) -> None:
    """Subtracts from a key's counts the use that the hub goes on counting under an old name or after a last report.

    Until the hub's next answer, that use counts as use of other nodes. From a bucket nothing is subtracted: there the
    use counts twice until it has drained.
    """
    cell.table.meter.disown(cell, now_ns)
