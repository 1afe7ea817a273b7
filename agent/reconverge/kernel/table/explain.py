"""Computes the grounds of a decision (`limit`, `remaining`, `retry_after`, ...) and the use of a key.

No function charges anything. The caller holds the lock, except for `usage_as_it_stands`.
"""

from __future__ import annotations

from math import ceil, inf

from reconverge.clock import MICROSECOND_NS, NEVER_NS, seconds
from reconverge.kernel.cell import begins_with_base, has_share, usable_allowance
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Cell, Decision
from reconverge.kernel.reporting.requests import take_interest
from reconverge.kernel.reporting.silence import is_used_up
from reconverge.kernel.table.state import LimitState

VAIN_INTERVALS = 10
"""After this many sync intervals a node reports a used-up key again, if it still gets requests for the key."""


def explain(table: LimitState, cell: Cell, cost: int, allowed: bool, now_ns: int, *, charged: bool = True) -> Decision:
    """Returns the decision about `cost` with its grounds; `charged` means that an admitted cost is charged already."""
    used = table.meter.fleet_used(cell, now_ns)
    nominal = min(table.nominal, cell.capacity)
    remaining = max(0, nominal - used)
    left = max(0, cell.capacity - used)
    return Decision(
        allowed,
        nominal // table.unit,
        (remaining if allowed else max(0, min(remaining, cost - 1))) // table.unit,
        0.0 if allowed else seconds(retry_after_ns(table, cell, cost, left, now_ns)),
        seconds(table.meter.fleet_reset_ns(cell, now_ns)),
        _staleness_s(cell, now_ns),
        table.name,
        allowed and table.soft and (used if charged else used + cost) > nominal,
        False,
        is_certain(table, cell, 0 if charged and allowed else cost, allowed, now_ns),
    )


def is_certain(table: LimitState, cell: Cell, cost: int, allowed: bool, now_ns: int) -> bool:
    """Returns whether no answer of the hub would change the decision about `cost`, which has not been charged yet.

    No decision is certain about a key for which the hub has never answered: not even the end of its window is known. A
    refusal by a smooth limit is not certain either: with a larger allowance the node would pay off its debt faster.
    """
    if cell.shard.alone:
        return True
    if not cell.heard:
        return False
    if not allowed:
        return not table.smooth and nothing_free_ns(table, cell, cost, now_ns) > 0
    allowance = usable_allowance(cell, now_ns)
    return allowance > 0 if table.smooth else cost <= table.meter.spare(cell, allowance, now_ns)


def nothing_free_ns(table: LimitState, cell: Cell, cost: int, now_ns: int) -> int:
    """Returns for how many nanoseconds certainly no node has room for `cost`, by all nodes' reports; 0 if one may have.

    Also returns 0 while a hub that has lost its data may not have received all reports again, and if the hub's answer
    was based on a smaller capacity than this node's, as the hub may have learned of the larger one by now.
    """
    if now_ns < _relearned_ns(table, cell) or cell.capacity < table.own_part:
        return 0
    free_ns = table.meter.fleet_earliest_ns(cell, cost, now_ns)
    return free_ns if free_ns > MICROSECOND_NS else 0


def _relearned_ns(table: LimitState, cell: Cell) -> int:
    """Returns until when a hub that has lost its data grants nothing of this key to this node."""
    return cell.shard.lost_ns + (table.deals_shares_ns if has_share(cell) else table.relearns_ns)


def waits_in_vain(table: LimitState, cell: Cell, cost: int, now_ns: int) -> bool:
    """Returns whether an exchange about a refused cost would be useless, as nothing is free.

    That is so for a fixed window that is used up (`reporting/silence.py`), and if the hub keeps the free part of the
    key and that part is 0. False for a key with a base allowance, because the next window's allowance depends on the
    refused requests. Also False if the hub's last answer is VAIN_INTERVALS sync intervals old: another node may have
    given back its use, or have reset the key.
    """
    if now_ns - cell.heard_ns < table.silence_ns and is_used_up(cell):
        return nothing_free_ns(table, cell, cost, now_ns) > 0
    if not cell.at_hub or begins_with_base(cell) or now_ns - cell.heard_ns >= VAIN_INTERVALS * table.interval_ns:
        return False
    return nothing_free_ns(table, cell, cost, now_ns) > 0


def usage_as_it_stands(table: LimitState, key: str) -> Usage:
    """Returns the usage of a key while another call may be changing its counts; changes nothing, and needs no lock."""
    cell = table.cells.get(key)
    limit = table.nominal // table.unit
    if cell is None:
        return Usage(0, 0, limit, 0, inf)
    level = cell.level + (0 if table.paced else cell.credit)
    used = cell.used + (-(-level // table.window_ns) if table.meter.bucket else cell.previous)
    own = max(0, -(-used // table.unit))
    return Usage(own, max(own, ceil(cell.fleet_used / table.unit)), limit, cell.allowance // table.unit, inf)


def usage_at(table: LimitState, cell: Cell, now_ns: int) -> Usage:
    """Returns a key's use and this node's allowance, as cost: the use rounded up, the allowance rounded down.

    Queues the key for a report, unless the hub's last answer about the key is recent.
    """
    table.edges.advance(cell, now_ns)
    take_interest(cell, now_ns)
    return _usage_of(table, cell, now_ns)


def peek_at(table: LimitState, key: str, now_ns: int) -> Usage | None:
    """Returns the usage of a key, without queuing a report; None if the node has no counts of the key."""
    cell = table.cells.get(key)
    if cell is None:
        return None
    table.edges.advance(cell, now_ns)
    return _usage_of(table, cell, now_ns)


def _usage_of(table: LimitState, cell: Cell, now_ns: int) -> Usage:
    total = table.meter.fleet_shown(cell, now_ns)
    own = min(table.meter.own(cell, now_ns), total)  # the hub's bucket drains for all nodes together
    return Usage(
        own=-(-own // table.unit),
        total=-(-total // table.unit),
        limit=min(table.nominal, cell.capacity) // table.unit,
        allowance=usable_allowance(cell, now_ns) // table.unit,
        staleness=_staleness_s(cell, now_ns),
    )


def retry_after_ns(table: LimitState, cell: Cell, cost: int, left: int, now_ns: int) -> int:
    """Returns the nanoseconds until the allowance has room for `cost`, or until the next exchange may raise it.

    `left` is the part of the capacity that no node has used, as far as this node knows.
    """
    if table.smooth:
        return next_turn_ns(table, cell, now_ns)
    allowance = usable_allowance(cell, now_ns)
    if cell.shard.alone:
        return table.meter.wait_ns(cell, allowance, cost, now_ns)
    if cost <= left:
        wait_ns = table.interval_ns
    else:
        wait_ns = table.meter.fleet_wait_ns(cell, cost, now_ns)
        if not cell.heard:
            # The fleet has used at least what this node has; a bucket drains by its allowance, which it has yet to be
            # granted.
            wait_ns = wait_ns + table.interval_ns if table.meter.bucket else max(wait_ns, table.interval_ns)
    if cost <= allowance and not cell.at_hub:
        return min(wait_ns, table.meter.wait_ns(cell, allowance, cost, now_ns))
    return max(wait_ns, _relearned_ns(table, cell) - now_ns)


def next_turn_ns(table: LimitState, cell: Cell, now_ns: int) -> int:
    """Returns the nanoseconds until a paced limit may admit the next request."""
    assert table.pacer is not None
    again_ns = table.pacer.turn_ns(cell, 0, now_ns)
    if cell.shard.alone or 0 < again_ns < NEVER_NS:
        return max(1, again_ns)
    return table.interval_ns  # by then an exchange may have brought an allowance


def _staleness_s(cell: Cell, now_ns: int) -> float:
    if cell.shard.alone:
        return 0.0
    return seconds(max(0, now_ns - cell.heard_ns)) if cell.heard else inf
