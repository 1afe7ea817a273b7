"""Corrections of earlier charges: settlements, refunds and resets. The caller holds the limit's lock."""

from __future__ import annotations

from typing import Protocol

from reconverge.clock import NEVER_NS
from reconverge.kernel.algorithms.dated import NEWEST
from reconverge.kernel.cell import Mark, measure, usable_allowance
from reconverge.kernel.engine import Cell
from reconverge.kernel.reporting.requests import report_soon, request_early, take_interest
from reconverge.kernel.table.lookup import look_up
from reconverge.kernel.table.state import LimitState
from reconverge.limit.limit import QUOTA_MAX

DEBT_MAX = QUOTA_MAX
"""The largest debt of a key under a limit without `max_debt`, in parts of a request: a report could not carry more."""


class HeldSlots(Protocol):
    """The slots of one key that one caller holds while its work goes on."""

    cell: Cell | None
    cost: int
    """The number of slots; 0 when they were given back."""


def mark(table: LimitState, cell: Cell) -> Mark:
    """Returns a reference to the charge that is made to a key now, by which a later correction finds it."""
    return Mark(cell, cell.epoch, cell.reset_us, table.meter.look(cell))


def reset_at(table: LimitState, key: str, now_ns: int) -> None:
    """Forgets the use of a key: on this node at once, on other nodes with their next exchange."""
    cell = look_up(table, key, now_ns)
    table.edges.advance(cell, now_ns)
    hub_us = (now_ns + cell.shard.offset_ns) // 1000
    table.edges.forget(cell, max(hub_us, cell.reset_us + 1), now_ns)
    cell.others_current = cell.others_previous = 0
    if not cell.shard.alone:
        report_soon(cell, now_ns)
        request_early(cell, now_ns)


def date_reset_at(table: LimitState, key: str, moment_ns: int, now_ns: int) -> bool:
    """Sets the moment of a key's last reset to `moment_ns`, for all nodes; the latest moment that any node sets counts.

    Returns False if this node cannot report the moment: before it knows the hub's clock, or if the key is counted
    together with others for want of room.
    """
    cell = look_up(table, key, now_ns)
    if cell is table.overflow or not (cell.shard.alone or cell.heard or cell.shard.acked_ns > -NEVER_NS):
        take_interest(cell, now_ns)
        return False
    reset_us = (moment_ns + cell.shard.offset_ns) // 1000
    if reset_us > cell.reset_us:
        table.edges.advance(cell, now_ns)
        table.edges.forget(cell, reset_us, now_ns)
        if not cell.shard.alone:
            cell.touched_ns = now_ns
            report_soon(cell, now_ns)
            request_early(cell, now_ns)
    return True


def last_reset_at(table: LimitState, key: str, now_ns: int) -> int:
    """Returns the monotonic moment at which a key was last reset; -NEVER_NS if this node knows of no reset.

    Queues the key for a report, so that the hub's answer brings later resets.
    """
    cell = look_up(table, key, now_ns)
    if cell is table.overflow:
        return -NEVER_NS
    cell.touched_ns = now_ns
    take_interest(cell, now_ns)
    return 1000 * cell.reset_us - cell.shard.offset_ns if cell.reset_us else -NEVER_NS


def correct_at(table: LimitState, key: str, epoch: int, difference: int, at: Mark | None, now_ns: int) -> None:
    """Charges `difference` more for a request that was admitted in window `epoch`; see `Table.correct`."""
    cell = look_up(table, key, now_ns)
    table.edges.advance(cell, now_ns)
    measure(cell)
    tally = table.tallies[cell.shard.index]
    if difference > 0:
        # Cost beyond the largest debt was used as well, but is not charged: no request has to wait for it.
        debt = DEBT_MAX if table.limit.max_debt is None else min(table.limit.max_debt * table.unit, DEBT_MAX)
        counted = max(0, min(difference, cell.capacity + debt - table.meter.fleet_used(cell, now_ns)))
        cell.used += counted  # with the fields below, without a call in between
        cell.counted += counted
        cell.charged += counted
        tally.charged += difference // table.unit
        table.meter.owe(cell, counted, now_ns)
        if table.dated is not None:
            table.edges.set_until(cell, now_ns)
    else:
        tally.refunded += -difference // table.unit
        _give_back(table, cell, epoch, -difference, at, now_ns)
    cell.counted = cell.used
    table.edges.set_room(cell, table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns))
    if not cell.shard.alone:
        report_soon(cell, now_ns)
    if difference > 0:
        table.edges.charge(cell, now_ns)


def refund_at(table: LimitState, key: str, cost: int, now_ns: int, *, newest: bool = False) -> None:
    """Gives `cost` back to a key: as much as it has used in its current window there, the rest in the window before.

    Of dated charges it takes the oldest, or the newest if the cost was charged just now.
    """
    cell = look_up(table, key, now_ns)
    table.edges.advance(cell, now_ns)
    current = table.meter.returnable(cell, cost)
    at = Mark(cell, cell.epoch, cell.reset_us, NEWEST) if newest and table.dated is not None else None
    correct_at(table, key, cell.epoch, -current, at, now_ns)
    if current < cost:
        correct_at(table, key, cell.epoch - 1, current - cost, None, now_ns)


def take_at_once(table: LimitState, key: str, cost: int, held: HeldSlots, now_ns: int) -> bool:
    """Takes `cost` slots for `held` if the fast path has room for them; returns whether they were taken."""
    cell = table.cells.get(key)
    if cell is None or not (cell.heard or cell.shard.alone):
        return False
    if cell.used + cost > cell.room or now_ns >= cell.until_ns:
        return False
    cell.used += cost
    held.cell = cell
    held.cost = cost
    table.cells.admitted += 1
    return True


def release_at(table: LimitState, held: HeldSlots, now_ns: int) -> bool:
    """Gives back the slots in `held`; returns whether this call gave them back. A second call does nothing.

    If the table does not have the cell any more, as in a forked child, the slots belong to the parent process.
    """
    cell, cost = held.cell, held.cost
    if cell is None or cost == 0:
        return False
    if table.cells.get(cell.key) is not cell and table.overflow is not cell:
        held.cost = 0
        return False
    table.edges.advance(cell, now_ns)
    measure(cell)
    cell.room = -1
    tally = table.tallies[cell.shard.index]
    peak, returned = max(cell.level, cell.used), min(cost, cell.used)
    # No function is called in between, so that an exception out of a signal handler neither loses the slots nor gives
    # them back twice.
    held.cost = 0
    cell.level = peak
    cell.used -= returned
    cell.counted = cell.used
    tally.refunded += cost
    yielded = _yielded(cell, returned)
    cell.allowance -= yielded
    cell.reserved -= yielded
    table.edges.set_room(cell, table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns))
    if not cell.shard.alone:
        report_soon(cell, now_ns)
        # The hub has no slot left for other nodes, or they need more than this one: it should learn of the returned
        # slots before the next regular exchange.
        scarce = (cell.at_hub and cell.free < 1) or cell.fleet_needs > cell.need_milli / 1000
        if yielded or (scarce and not cell.waiters):
            request_early(cell, max(now_ns, cell.reported_ns + table.interval_min_ns))
    return True


def _yielded(cell: Cell, returned: int) -> int:
    """Returns how many of the `returned` slots this node gives up, for the node that has asked the hub for the longest.

    Otherwise a busy node would take each slot again, and the other node would wait for ever, as no window ends. A node
    with no more than its fair part of all slots gives up none, unless the other node asks for several slots at once,
    for which one node's part may never be enough.
    """
    if cell.reserved == 0 or cell.shard.alone:
        return 0
    if cell.reserved == 1 and (cell.used + returned) * cell.nodes <= cell.capacity:
        return 0
    return min(returned, cell.reserved, max(0, cell.allowance - cell.used))


def _give_back(table: LimitState, cell: Cell, epoch: int, amount: int, at: Mark | None, now_ns: int) -> None:
    if at is not None and (cell is not at.cell or cell.reset_us != at.reset_us):
        return
    table.meter.give_back(cell, table.edges.epoch_of(cell, epoch), amount, at, now_ns)
    if table.meter.bucket:
        table.edges.set_until(cell, now_ns)
