"""Computes a `retry_after` that holds on any node: the time until the fleet has room for a refused request.

A decision's `retry_after` (`kernel/table/explain.py`) is the earliest moment that may be worth a try: the fleet has
room for the request then, but maybe on one node only. A client that comes again seldom meets that very node. So guards
and storages, which answer clients of any node, ask `certainty.for_any_node`.
"""

# Theory of operation.
#
# Behind four workers, with a limit of 40 in 20 s, 6 of 199 clients were admitted when they came again at the moment
# that the refusal named. The fleet has room for one request then, but each worker has a quarter of it, and allowances
# are whole numbers. Or the fleet has a few left, and these lie on other workers. And a worker that has not heard of the
# key for a while knows what it knew then.
#
# So the answer waits until there is room for ROOM_FOR such requests on every node that uses the key, but for no more
# than a quarter of the capacity, however many nodes there are; and if there is enough now, for INTERVALS_MAX exchanges
# at most. 176 of 199 clients were admitted then, for 11 % more time spent waiting. It is no promise: what another
# worker knows is as old as its last exchange.
#
# Fixed windows that are used up end for all nodes at once, so nothing is added there.

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.engine import Cell, Decision, Reentry
from reconverge.kernel.table.table import Table

ROOM_FOR: Final = 2
"""So many such requests should fit on each node: allowances are whole numbers, and others come meanwhile."""
SHARE_MAX: Final = 4
"""No client waits for more than this part of the capacity to come back, however many nodes there are: a quarter."""
SETTLING_INTERVALS: Final = 2
"""After so many intervals a node has reported to the hub what has come free on it."""
INTERVALS_MAX: Final = 3
"""By then what is left is on the nodes that were asked for it: it is reported, given back, and granted."""


def for_any_node(limit: Decider, decision: Decision, key: str, cost: int, kind: str | None = None) -> Decision:
    """Returns the decision with a `retry_after` after which any node, not only this one, probably admits the request.

    The new `retry_after` is never earlier. `limit` has made the decision about this cost. The decision stays as it is
    where it is exact already: on a node that is alone, and for a policy that goes by the total instead of allowances.
    It also stays for a paced limit, where room alone does not let a request go, and before the hub's first answer.
    """
    if decision.allowed or not isfinite(decision.retry_after) or limit.tables[0].kernel.alone:
        return decision
    for place, table in enumerate(limit.tables):
        if table.name == decision.binding and table.unit == 1 and not table.policy.keeps_allowances:
            costs = limit.costs_of(cost, kind)  # one for each quota; a share and its parent's pool charge the same
            after_s = _after_ns(table, key, costs[0] if limit.is_share else costs[place]) / SECOND_NS
            return replace(decision, retry_after=after_s) if after_s > decision.retry_after else decision
    return decision


def _after_ns(table: Table, key: str, cost: int) -> int:
    """Returns how long until there is room on every node; 0 if there is room, or if the time is not known."""
    try:
        return table.lock.run(_after_ns_at, table, key, cost, table.now_ns())
    except Reentry:
        return 0


def _after_ns_at(table: Table, key: str, cost: int, now_ns: int) -> int:
    cell = table.cells.get(key)
    if cell is None or cell.shard.alone or not cell.heard:
        return 0
    if not table.keeps_spare:
        return _settled_ns(table, cell, cost, now_ns)
    # On every node, because the client may meet any; but a quarter at most, or a client of a small quota would
    # wait for nearly all of it to fade.
    room = max(cost, min(ROOM_FOR * cost * cell.nodes, cell.capacity // SHARE_MAX))
    left = cell.capacity - table.meter.fleet_used(cell, now_ns)
    if room <= left:
        return 0
    after_ns = table.meter.fleet_wait_ns(cell, room, now_ns)
    return after_ns if left < cost else min(after_ns, INTERVALS_MAX * table.kernel.interval_ns)


def _settled_ns(table: Table, cell: Cell, cost: int, now_ns: int) -> int:
    """Returns how long until the hub has room, for a log or slices whose free part lies at the hub.

    If the last answer leaves room, the hub may have granted that room to other nodes since, and they may use it now:
    then the wait is a whole window.
    """
    known_ns = table.meter.fleet_wait_ns(cell, min(cell.capacity, cost), now_ns)
    if known_ns <= MICROSECOND_NS:
        known_ns = table.window_ns
    return known_ns + SETTLING_INTERVALS * table.kernel.interval_ns
