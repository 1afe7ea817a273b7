"""Functions by which decisions request a report of a key: in the next regular exchange, or in an early one."""

# Theory of operation.
#
#     function        called when                                what it sets            when the cell is reported
#     mark_dirty      something has changed                      dirty, in a lane        with the next regular exchange
#     report_soon     a decision has charged or refused          dirty; wakes the loop   likewise
#     take_interest   a key was looked at, and not charged       as report_soon          likewise; if new, at once
#     ask_early       headroom is below the low-water mark       urgent, unless in vain  ahead of time
#     request_early   a report must not wait                     urgent, early_ns        at that moment
#     ask_at_once     a request waits for the answer             urgent; shard asks      as soon as none is under way
#
# Each answer sets the low-water mark (`cell_reports.apply_answer`); `table/slow_path.py`, and `table/waiter.py` for
# requests that wait, compare the headroom with it. Asking early is in vain while the fleet has nothing left.
#
# A key that the hub has never answered for is `fresh`: it waits in a queue of its limit (`kernel/newcomers.py`), from
# which each exchange takes a few. A decision never exchanges, nor does it wake the exchange loop under the lock: it
# notes that the loop must be woken (`kernel/node.py`).
#
# Waking the loop is expensive: it took four fifths of the time of the first charge after a report. So the loop
# publishes when it will next wake by itself (`Syncer.looks_ns`), and before which moments it begins no exchange,
# regular or ahead of time. A decision that needs no exchange before that does not wake the loop. Other decisions do:
# those that cannot wait for the regular exchange, those that ask, and the first charge after the loop had nothing to do
# for an interval.

from __future__ import annotations

from collections.abc import Sequence

from reconverge.clock import MILLISECOND_NS, NEVER_NS
from reconverge.kernel.cell import Cell, Shard

GRANTED_NS = 250 * MILLISECOND_NS
"""For how many nanoseconds an allowance is kept for the waiting request for which the hub granted it. The thread of the
request may not run at once: on two cores with nine busy processes it ran up to a fifth of a second later."""
GRANTED_AGAIN_NS = MILLISECOND_NS
GRANTED_LOOKS = 8
"""A report is postponed for `GRANTED_AGAIN_NS` at first, and later for this fraction of the time since the grant."""


def mark_dirty(cell: Cell) -> None:
    """Queues a key for the next regular exchange of its shard; a new key joins the queue of new keys."""
    if not cell.dirty and not _is_refused(cell):
        cell.comfortable = False
        # Queued before it is marked: a cell that is queued twice does no harm, a missing one is never reported.
        cell.fresh = not cell.heard and cell.place >= 0
        if cell.fresh:
            cell.table.tallies[cell.shard.index].fresh.append(cell)
            cell.dirty = 1
        else:
            cell.shard.dirty.append(cell)


def report_soon(cell: Cell, now_ns: int) -> None:
    """Queues a key for the next regular exchange, and wakes the exchange loop if it may not wake by itself."""
    shard = cell.shard
    # Read before, because a decision of another table may come in between.
    first = not (shard.dirty if cell.heard else cell.table.tallies[shard.index].fresh)
    mark_dirty(cell)
    if now_ns >= shard.attended_until_ns or (first and not _looks_by_itself(shard, shard.regular_ns)):
        _want_wake(cell)


def stay_silent(cell: Cell, now_ns: int) -> None:
    """Called after a charge that is not reported: wakes the exchange loop, unless the loop will check the key later."""
    if now_ns >= cell.shard.attended_until_ns:
        _want_wake(cell)


def ask_early(cell: Cell, spare: int, now_ns: int) -> None:
    """Requests an early exchange about a key if the hub may grant more; `spare` is the cost that still fits here."""
    table = cell.table
    if table.smooth and cell.allowance > 0:
        return  # its allowance is a part of the rate, which is never used up: only a node without one is in a hurry
    if cell.at_hub and not table.meter.slots and (cell.ask == 0 or cell.waiters or cell.asking_ns >= cell.reported_ns):
        return  # a request that asks gets its own grant; one that was refused without asking gets an early one
    if cell.free >= 1:
        request_early(cell, cell.reported_ns + table.interval_min_ns)
    elif spare < 1 and not (
        table.meter.aligned and not table.meter.slots and table.meter.fleet_used(cell, now_ns) >= cell.capacity
    ):
        request_early(cell, cell.reported_ns + max(table.interval_min_ns, cell.back_off_ns))


def take_interest(cell: Cell, now_ns: int) -> None:
    """Queues a key for a report because it was read but not charged, unless the hub's last answer about it is recent.

    Requests an early exchange if the hub has never answered about the key.
    """
    if cell.shard.alone or now_ns - cell.heard_ns <= cell.table.interval_ns:
        return
    report_soon(cell, now_ns)
    if not cell.heard:
        request_early(cell, now_ns)


def request_early(cell: Cell, when_ns: int) -> None:
    """Queues a key for an early exchange, at the moment `when_ns` or soon after."""
    if cell.urgent or cell.shard.alone or cell.table.policy.merged_only or _is_refused(cell):
        return
    cell.early_ns = when_ns
    if cell.fresh:
        when_ns = max(when_ns, cell.table.tallies[cell.shard.index].fresh_from_ns)
    else:
        cell.shard.urgent.append(cell)
    cell.urgent = True
    if when_ns < cell.shard.early_ns:
        cell.shard.early_ns = when_ns
        if not _looks_by_itself(cell.shard, max(when_ns, cell.shard.begins_ns)):
            _want_wake(cell)


def report_recalled(cell: Cell, needs_milli: int, now_ns: int) -> None:
    """Requests an early report of a key on which this node holds an allowance, because another node lacks capacity.

    `needs_milli` is what all nodes together need, in thousandths of cost.
    """
    table = cell.table
    if not table.silence_ns or cell.allowance + cell.base <= 0 or now_ns - cell.reported_ns < table.interval_ns:
        return
    cell.comfortable = False
    cell.room = -1
    cell.fleet_needs = max(cell.fleet_needs, float(needs_milli) / 1000)
    cell.free = 0
    mark_dirty(cell)
    request_early(cell, now_ns)


def ask_at_once(cell: Cell, now_ns: int) -> bool:
    """Queues a key for the next batch, because a request waits for the hub's answer about the key.

    The batch leaves as soon as no other is under way. Returns False if no answer will come for this request: the key
    shares a count with other keys, too many new keys have asked already, or the budget for asks is used up.
    """
    shard, table = cell.shard, cell.table
    if table.policy.merged_only or _is_refused(cell):
        return False
    mark_dirty(cell)
    if cell.fresh and now_ns < table.tallies[shard.index].fresh_from_ns:
        return False
    if shard.asking_ns >= NEVER_NS and not table.kernel.asks.take(now_ns):
        return False
    shard.asking_ns = min(shard.asking_ns, now_ns)
    cell.early_ns = now_ns
    if not cell.urgent:
        if not cell.fresh:
            shard.urgent.append(cell)
        cell.urgent = True
    shard.early_ns = min(shard.early_ns, now_ns)
    _want_wake(cell)
    return True


def without_granted(shard: Shard, cells: Sequence[Cell], now_ns: int) -> list[Cell]:
    """Returns those of `cells` to report now; postpones each cell whose allowance a woken request is about to use.

    The thread of that request has not run yet, so a report now would give the unused allowance back to the hub. The
    postponed cells are reported a moment later. If the request has not run for `GRANTED_NS`, the allowance goes back;
    then the answer that granted it refuses no request, and the report asks for all of them again.
    """
    reported = []
    for cell in cells:
        granted = cell.waiters and cell.at_hub and cell.table.meter.headroom(cell, now_ns) > 0
        kept_ns = now_ns - cell.heard_ns
        if granted and kept_ns < GRANTED_NS:
            (shard.urgent if cell.urgent else shard.dirty).append(cell)
            if cell.urgent:
                cell.early_ns = shard.asking_ns = now_ns + max(GRANTED_AGAIN_NS, kept_ns // GRANTED_LOOKS)
                shard.early_ns = min(shard.early_ns, cell.early_ns)
        else:
            cell.denied = cell.denied and not granted
            reported.append(cell)
    return reported


def let_stay(cell: Cell) -> None:
    """Cancels the eviction of a key that was to be dropped after its next report."""
    if cell.leaving:
        cell.leaving = False
        cell.shard.leaving -= 1


def _looks_by_itself(shard: Shard, when_ns: int) -> bool:
    """Returns whether the exchange loop wakes by itself at `when_ns` or before, so that no decision need wake it."""
    return shard.looks_ns <= when_ns


def _want_wake(cell: Cell) -> None:
    """Notes that the exchange loop must be woken as soon as no lock is held."""
    node = cell.table.kernel
    node.wake_wanted = node.after_unlock = True


def _is_refused(cell: Cell) -> bool:
    """Returns whether the cell counts all keys beyond `keys_max` together and refuses them, as its limit is strict.

    A key that is counted with other keys now, and by itself before or after, could exceed its limit.
    """
    return cell.place < 0 and cell.table.policy.overshoot_milli == 0 and not cell.held
