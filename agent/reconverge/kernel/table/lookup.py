"""Finds, creates and drops cells, each the counts of one key of a limit. The caller holds the limit's lock."""

# Theory of operation.
#
# A node counts at most `keys_max` keys, of all limits together. All keys that find no room are counted in one cell, the
# overflow cell; a strict limit refuses them. Before that, the node makes room: a decision about a new key looks at two
# keys of the limit, and at two of another limit if that one's lock is free, and drops those about which there is
# nothing to remember. `eviction.py` makes further room ahead of need, with the exchanges.
#
# On a node without a hub, no other place counts the use of a key. If such a node is full, and finds no idle key, it
# looks at two more keys, and drops the one with less use, if that use is its capacity divided by LEAVES_UP_TO at most.
# The use is remembered (`evicted.py`), so that the key has no second quota when it comes back. The overflow cell does
# not ask this memory, as it counts its many keys together. So a key that comes back while no key may be evicted can use
# half of its quota once more, unless the limit is strict.
#
# A node gets full when an attacker makes up keys, so such a decision may not take longer than one about a new key that
# finds room. Most keys of a full node have an allowance or a recent request, so they stay: `may_be_idle` finds that out
# without bringing the cell up to date. `native/full.c` does the same, and leaves cells that may be dropped to Python.

from __future__ import annotations

from typing import Any, cast

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.errors import CostExceedsQuota
from reconverge.kernel.cell import measure
from reconverge.kernel.engine import Cell
from reconverge.kernel.keys import is_of_object, plain_key
from reconverge.kernel.table.state import LimitState, allowance_alone
from reconverge.kernel.table.tiers import fetch

UNTOUCHED_NS = SECOND_NS
"""A key with a request within this time is not evicted, however little it has used."""
LEAVES_UP_TO = 2
"""A node without a hub evicts a key whose use still counts only if that use is at most the capacity divided by this. So
a new key that is mistaken for the evicted key still has half of its quota."""
OTHERS_PASSED = 8
"""How many other limits a full node looks at to find one that has keys."""


def check_size(table: LimitState, cost: int) -> None:
    """Raises CostExceedsQuota if the limit could never admit `cost`, which is counted in parts of a request."""
    if cost > table.cost_max:
        raise CostExceedsQuota(table.name, cost // table.unit, table.cost_max // table.unit)


def look_up(table: LimitState, key: str, now_ns: int) -> Cell:
    """Returns the cell of a key, which has its counts; makes it if there is none.

    If the node has no room for the key, returns the overflow cell, which counts all such keys together. Raises
    InvalidKey if `key` is not a valid key.
    """
    cell = table.cells.get(key) if type(key) is str else None
    if cell is not None:
        return cell
    plain = plain_key(key, table.kernel.key_bytes_max)
    if plain is not key:
        key = plain
        cell = table.cells.get(key)
        if cell is not None:
            return cell
    if is_of_object(key):
        table.kernel.note_of_object(table.name, key)
    if len(table.tiers) > 1 or table.dropped:
        cell = fetch(table, key, now_ns)
        if cell is not None:
            return cell
    if _make_room(table, now_ns):
        table.kernel.keys += 1
        cell = new_cell(table, key, now_ns)
        if cell.shard.alone and leaves_in_use(table):
            table.meter.recall(cell, table.evicted, now_ns)
        table.cells.put(cell)
        return cell
    table.cells.overflowed += 1
    table.overflow = table.overflow or new_cell(table, table.overflow_key, now_ns)
    return table.overflow


def new_cell(table: LimitState, key: str, now_ns: int) -> Cell:
    """Returns a new cell, with counts of zero, for a key; the caller puts the cell into a store."""
    cell = Cell(key, table, table.shard_of(key), now_ns)
    table.meter.begin(cell, now_ns)
    if cell.shard.alone:
        cell.allowance = cell.base = allowance_alone(table, key)
        cell.level = table.withheld * table.window_ns
    else:
        cell.doubted = table.evicted.recall(key, now_ns)
    return cell


def drop(table: LimitState, cell: Cell) -> bool:
    """Removes a cell, the counts of one key, from the table; returns whether that leaves room for another key."""
    if table.overflow is cell:
        table.overflow = None
        return False
    return table.cells.drop(cell)


def _make_room(table: LimitState, now_ns: int) -> bool:
    """Drops a few keys that are not needed, if any; returns whether the node then has room for one more key.

    With a hub, keys are looked at only when the node is full. Without a hub they are looked at with every new key,
    because nothing else drops idle keys.
    """
    node = table.kernel
    if node.alone:
        node.refresh_offset_ns(now_ns)
    if node.alone or node.keys >= node.keys_max:
        _drop_two(table, now_ns)
    if node.keys >= node.keys_max:
        other = _another(table)
        if other is not None:
            other.lock.run_if_free(_drop_two, other, now_ns)
        if node.alone and node.keys >= node.keys_max:
            _drop_one_in_use(table, now_ns)
            if other is not None and node.keys >= node.keys_max:
                other.lock.run_if_free(_drop_one_in_use, other, now_ns)
    return node.keys < node.keys_max


def _another(table: LimitState) -> LimitState | None:
    """Returns another limit that has keys, each call the next one; None if the next OTHERS_PASSED limits have none."""
    node, peers = table.kernel, list(table.peers.values())
    node.turn += 1
    for number in range(min(len(peers), OTHERS_PASSED)):
        other = peers[(node.turn + number) % len(peers)]
        if other is not table and other.cells:
            return other
    return None


def _drop_two(table: LimitState, now_ns: int) -> None:
    node = table.kernel
    if node.alone:
        # A new key of this limit begins without a part of its capacity, so an old key stays while there is room.
        keep = table.withheld > 0 and node.keys < node.keys_max
        node.keys -= drop_unused(table, now_ns, 2, keep=keep)
        return
    for cell in table.cells.pass_by(2):
        if may_be_idle(cell, now_ns) and is_idle(table, cell, used_now(cell, now_ns), now_ns):
            let_go(table, cell, now_ns)


def _drop_one_in_use(table: LimitState, now_ns: int) -> None:
    table.kernel.keys -= drop_unused(table, now_ns, 2, keep=False, full=True)


def drop_unused(table: LimitState, now_ns: int, count: int, *, keep: bool, full: bool = False) -> int:
    """Drops the keys without use among the next `count` keys of a limit; returns how many keys it dropped.

    If `keep`, drops none, and only brings their counts up to `now_ns`. If `full`, and all of them have use, evicts the
    key that has used least, if it may be evicted, and remembers its use.
    """
    if table.compiled:
        gone: int = cast("Any", table.cells).evict(now_ns, count, keep, full)
        return gone
    passed = table.cells.pass_by(count)
    dropped = sum(drop(table, cell) for cell in passed if is_unused(cell, now_ns, keep))
    if dropped or not full or not leaves_in_use(table):
        return dropped
    least = min(passed, key=lambda cell: used_if_may_leave(cell, now_ns), default=None)
    return 0 if least is None else leave_in_use(table, least, now_ns)


def leaves_in_use(table: LimitState) -> bool:
    """Returns whether a node without a hub may evict keys of this limit whose use still counts.

    False for some algorithms, and if windows begin with the first charge, as each key then has windows of its own.
    """
    return table.meter.leaves_in_use and not table.edges.by_charge


def used_if_may_leave(cell: Cell, now_ns: int) -> int:
    """Returns the use of a key, or NEVER_NS if it must not be evicted. Its counts must be brought up to `now_ns`."""
    table = cell.table
    used = table.meter.used(cell, now_ns)
    corrected = cell.lows is not None  # a charge to this bucket may yet be given back
    stays = cell.waiters or corrected or used > cell.capacity // LEAVES_UP_TO or is_reset_lately(cell, now_ns)
    return NEVER_NS if stays else used


def leave_in_use(table: LimitState, cell: Cell, now_ns: int) -> int:
    """Evicts a key and remembers its use; returns the number of evicted keys: 1, or 0 if the key must stay."""
    if used_if_may_leave(cell, now_ns) == NEVER_NS:
        return 0
    cell.room = -1  # before it is read: another thread may have found the cell, and charge it without the lock
    measure(cell)
    if not table.meter.keep(cell, table.evicted, now_ns):
        return 0
    table.cells.let_go_ns = now_ns
    table.cells.left_early += 1
    return int(drop(table, cell))


def use_if_left(cell: Cell, now_ns: int, keep: bool) -> int:
    """Returns the use that a node without a hub has to remember if it evicts the key.

    Returns -1 if there is nothing to remember, and NEVER_NS if the key must stay. The compiled kernel calls this.
    """
    return -1 if is_unused(cell, now_ns, keep) else used_if_may_leave(cell, now_ns)


def is_unused(cell: Cell, now_ns: int, keep: bool) -> bool:
    """Returns whether a key of a node without a hub has nothing to remember, so that it can be dropped.

    Brings the key's counts up to `now_ns`. Always returns False if `keep`.
    """
    used = used_now(cell, now_ns)
    return not keep and not cell.waiters and used == 0 and not is_reset_lately(cell, now_ns)


def is_reset_lately(cell: Cell, now_ns: int) -> bool:
    """Returns whether a key was reset so recently that `Evicted` may still remember its use from before the reset."""
    fade_ns = cast("LimitState", cell.table).evicted.fade_ns
    return cell.reset_us > 0 and now_ns + cell.shard.offset_ns - 1000 * cell.reset_us < 2 * fade_ns


def used_now(cell: Cell, now_ns: int) -> int:
    """Brings the counts of a key up to `now_ns`, and returns this node's use of the key, rounded up."""
    table = cell.table
    table.edges.advance(cell, now_ns)
    measure(cell)
    return table.meter.used(cell, now_ns)


def may_be_idle(cell: Cell, now_ns: int) -> bool:
    """Returns whether a key seems to have no allowance and nothing to report; a quick check that changes nothing."""
    if cell.waiters or cell.held or cell.unconfirmed or now_ns - cell.touched_ns < UNTOUCHED_NS:
        return False
    return not cell.dirty if cell.heard else cell.reset_us == 0


def is_idle(table: LimitState, cell: Cell, used: int, now_ns: int) -> bool:
    """Returns whether a key's use, `used`, is 0, and the key holds no allowance and has nothing left to report."""
    if used > 0 or cell.allowance or cell.base or cell.overdraft or table.kernel.is_under_way(cell):
        return False
    return may_be_idle(cell, now_ns)


def let_go(table: LimitState, cell: Cell, now_ns: int) -> None:
    """Drops a key, and remembers that it was evicted if use of the key may still count at the hub."""
    if cell.heard and now_ns - cell.touched_ns < 2 * table.meter.idle_ns:
        table.evicted.remember(cell.key, now_ns)
        table.cells.let_go_ns = now_ns
    if cell.leaving:
        cell.shard.leaving -= 1
    cell.leaving = cell.fresh = cell.urgent = False
    cell.dirty = 0
    cell.shard.agenda.forget(cell)
    if drop(table, cell):
        table.kernel.keys -= 1
        table.cells.left_early += 1
