"""Answers how much all nodes have used of a key, for a reader that is no node itself."""

# Theory of operation.
#
# What a cell stores is as old as its last merge: nodes have left since, windows have ended, buckets have drained. The
# merge rule brings it up to date whenever a node reports. A reader does the same to a copy: it brings the cell into the
# hub's window and counts all entries anew, as a merge does, and throws the copy away. So a reading is what the next
# node would be answered, and there is no second rule of what counts.
#
# A hub that stores cells elsewhere makes a `LedgerShard` of what it has read and reads that, so this needs no twin in
# Lua.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Final

from reconverge.errors import HubUnavailable
from reconverge.hub.reading import READ_MAX, KeyQuestion, KeyReading, KeyReadings
from reconverge.hub.report import Batch, CellReport, LimitReport, cells_of
from reconverge_sync.merge.ledger import DEPARTED, Entry, LedgerCell, LimitRule
from reconverge_sync.merge.loans import Identity
from reconverge_sync.merge.rule import LedgerShard, learning_us
from reconverge_sync.merge.windows import place_epoch

READER: Final = "?"
"""The name that stands for the reader in place of a node's name; names of nodes are longer."""


def identity_of(limit: LimitReport, key: str) -> Identity:
    """Returns the identity (limit, algorithm, window and key) under which a shard keeps the counts of a key."""
    name, counted, window_us, variant = cells_of(limit)
    return name, counted + variant, window_us, key


def check_questions(questions: Sequence[KeyQuestion]) -> None:
    """Raises HubUnavailable if one call has more `questions` than a hub answers at once."""
    if len(questions) > READ_MAX:
        problem = f"{len(questions)} keys are too many to read at a time; ask for at most {READ_MAX}"
        raise HubUnavailable("protocol", problem, applied=False)


def read_keys(shard: LedgerShard, questions: Sequence[KeyQuestion], hub_us: int) -> KeyReadings:
    """Returns a shard's readings of the keys in `questions`, in the same order, as of `hub_us`."""
    check_questions(questions)
    readings = tuple(_read_key(shard, limit, key, hub_us) for limit, key in questions)
    return KeyReadings(hub_us, shard.generation, readings)


def _read_key(shard: LedgerShard, limit: LimitReport, key: str, hub_us: int) -> KeyReading:
    rule, identity = LimitRule.of(limit), identity_of(limit, key)
    known = shard.cells.get(identity)
    known = None if known is None or hub_us > known.expires_us else known
    epoch = place_epoch(limit, rule, _nothing_said(limit, key), None if known is None else known.epoch, hub_us)
    if known is None:
        cell = LedgerCell(epoch=epoch, capacity=rule.own, filled_us=hub_us)
        if rule.withheld > 0:
            cell.withhold(rule.withheld, hub_us)
    else:
        cell = replace(known, entries={name: replace(entry) for name, entry in known.entries.items()})
    batch = _batch_of_reader(shard, limit, hub_us)
    cell.go_to(rule, epoch)
    if rule.bucket:
        cell.drain_pool(rule, hub_us)
    # The rule brings its own records of nodes up to date when it scans, and a reader leaves them as they are.
    replace(shard, nodes=dict(shard.nodes)).scan(cell, batch, rule, hub_us)
    return _reading(cell, rule, limit, hub_us, lent=shard.lending.lent(identity, hub_us))._replace(
        learns_until_us=_learns_until_us(shard, cell, batch, rule, hub_us)
    )


def _nothing_said(limit: LimitReport, key: str) -> CellReport:
    """Returns the report of a node that has never counted this key, for the merge rule to work on."""
    nothing = CellReport(0, key, *(0 for _ in CellReport._fields[2:]))
    return nothing._replace(epoch=-1 if LimitRule.of(limit).first_hit else 0)


def _batch_of_reader(shard: LedgerShard, limit: LimitReport, hub_us: int) -> Batch:
    """Returns a batch without cells for `scan`, with the longest interval and the longest lease of all live nodes."""
    live = [each for each in shard.nodes.values() if not each.gone and hub_us - each.seen_us <= each.lease_us]
    return Batch(
        node=READER,
        account=READER,
        shard=0,
        sequence=1,
        generation=shard.generation,
        interval_us=max((each.interval_us for each in live), default=0),
        lease_us=max((each.lease_us for each in live), default=0),
        leaving=False,
        limits=(limit,),
        cells=(),
    )


def _reading(cell: LedgerCell, rule: LimitRule, limit: LimitReport, hub_us: int, *, lent: int) -> KeyReading:
    """Returns the reading of a key, whose entries the caller has brought up to the moment `hub_us`."""
    capacity = cell.capacity + lent
    nodes = {name: entry for name, entry in cell.entries.items() if name != DEPARTED}
    used = _used(cell, rule, hub_us)
    return KeyReading(
        used=ceil(used),
        allowances=sum(_unused(entry, cell, rule, hub_us) for entry in nodes.values()),
        free=max(0, capacity - cell.allowances - cell.debts),
        capacity=capacity,
        nodes=len(nodes),
        free_us=hub_us if ceil(used) < capacity else _free_us(cell, rule, limit, hub_us, room=capacity - 1, used=used),
        learns_until_us=0,
    )


def _used(cell: LedgerCell, rule: LimitRule, hub_us: int) -> float:
    """Returns the use of a key that counts; for a bucket, the level that all nodes' charges together have now.

    The levels in nodes' reports cannot be added up, because they are of different moments.
    """
    if not rule.bucket:
        return cell.used(rule, hub_us)
    passed_us = float(max(0, rule.refilled_us(cell.filled_us, hub_us)))
    return max(0.0, cell.fill_milli - passed_us * rule.quota * 1000 / rule.window_us) / 1000


def _unused(entry: Entry, cell: LedgerCell, rule: LimitRule, hub_us: int) -> int:
    """Returns the unused part of a node's allowance."""
    used = entry.used(rule, cell, hub_us)
    if rule.bucket:
        passed_us = rule.refilled_us(entry.seen_us, hub_us)
        used = max(0.0, entry.previous - rule.drained_milli(passed_us, entry.allowance, entry.capacity)) / 1000
    return max(0, entry.allowance - floor(used))


def _free_us(cell: LedgerCell, rule: LimitRule, limit: LimitReport, hub_us: int, *, room: int, used: float) -> int:
    """Returns the moment at which the use has fallen to `room` if nothing more is charged; see `KeyReading.free_us`."""
    if rule.slots:
        return hub_us  # slots: free at any moment at which one is given back
    if rule.fixed:
        if limit.closes_us > 0:
            return max(hub_us, limit.closes_us)
        return cell.epoch + rule.window_us if rule.first_hit else (cell.epoch + 1) * rule.window_us
    if rule.bucket:
        drains_us = ceil((used - room) * rule.window_us / rule.quota)
        if not rule.stepwise:
            return hub_us + drains_us
        return (hub_us // rule.window_us + max(1, ceil(drains_us / rule.window_us))) * rule.window_us
    return _expired_us(cell, hub_us, room) if rule.dated else _faded_us(cell, rule, room)


def _expired_us(cell: LedgerCell, hub_us: int, room: int) -> int:
    """Returns the moment by which enough dated charges have expired, at the latest, for the use to fit into `room`."""
    ends = [(entry.current_until_us, entry.current) for entry in cell.entries.values()]
    ends += [(entry.previous_until_us, entry.previous) for entry in cell.entries.values() if entry.previous]
    left = sum(amount for _, amount in ends)
    for until_us, amount in sorted(ends):
        left -= amount
        if left <= room:
            return max(hub_us, until_us)
    return hub_us


def _faded_us(cell: LedgerCell, rule: LimitRule, room: int) -> int:
    """Returns the moment at which the use of a sliding window has faded so far that it fits into `room`.

    It lies in the present window, or in the next window, in which the present window's use (`current`) fades.
    """
    opens_us = cell.begins_us(rule)
    if cell.current <= room and cell.previous > 0:
        return opens_us - (-rule.window_us * (cell.previous - room + cell.current) // cell.previous)
    fading_us = -(-rule.window_us * (cell.current - room) // cell.current) if cell.current > room else 0
    return opens_us + rule.window_us + fading_us


def _learns_until_us(shard: LedgerShard, cell: LedgerCell, batch: Batch, rule: LimitRule, hub_us: int) -> int:
    """Returns until when a hub that has lost data grants nothing on the key, by its clock; 0 if it grants now."""
    until_us = cell.learn_until_us
    if shard.lost or (shard.born_us > 0 and rule.strict):
        until_us = max(until_us, shard.born_us + learning_us(batch, rule, lost=shard.lost) + shard.grace_us)
    return until_us if hub_us < until_us else 0
