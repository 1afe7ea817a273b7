"""Detects that a new hub withholds the free quota of a strict limit, and asks the hub again until it grants it."""

# Theory of operation.
#
# A new hub cannot know whether it has lost data, so it grants no allowances on strict limits until all nodes have had
# the time to report. Meanwhile its answers show that the cost is free and was not granted. About a second after its
# first answer to this node it grants; until then the request asks again, unless long intervals would make it wait for
# longer. A hub that certainly has lost data (`learns`) knows less than its nodes in that time, so its answers settle no
# request.

from __future__ import annotations

from reconverge.kernel.cell import Cell, Shard
from reconverge.kernel.reporting.requests import request_early
from reconverge.kernel.table.state import SPEAK_UP_NS, all_reported_ns
from reconverge.kernel.table.table import Table


def _grants_ns(cell: Cell) -> int:
    """Returns the moment from which the hub grants allowances on strict limits, if it was new at its first answer."""
    return cell.shard.met_ns + _node_interval_ns(cell) + SPEAK_UP_NS


def _node_interval_ns(cell: Cell) -> int:
    """Returns the node's sync interval in nanoseconds, which the hub assumes even if the limit has another one."""
    assert isinstance(cell.table, Table)
    return cell.table.kernel.interval_ns


def withholds(cell: Cell, cost: int) -> bool:
    """Returns whether the hub's last answer refused `cost` although it is free, because the hub was new."""
    table = cell.table
    if table.policy.overshoot_milli or _node_interval_ns(cell) > SPEAK_UP_NS:
        return False
    return cell.reported_ns < _grants_ns(cell) and cell.free - cell.reserved >= cost


def wait_out(cell: Cell) -> int:
    """Requests an early report that asks the hub once more; returns the moment from which the hub grants free quota."""
    grants_ns = _grants_ns(cell)
    if cell.denied:
        request_early(cell, min(cell.reported_ns + cell.table.interval_ns, grants_ns))
    return grants_ns


def learns(shard: Shard, table: Table, now_ns: int) -> bool:
    """Returns whether the hub has lost its data and may not have received the reports of all nodes since."""
    return now_ns < shard.lost_ns + max(table.deals_shares_ns, all_reported_ns(table.interval_ns))
