"""When whoever was refused should come again, in a fleet where he may meet any node.

A decision's `retry_after` is the earliest moment that may be worth a try: the fleet has room for the request then, on
one node. With several, that is seldom the node that he meets, and what is left has to be on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.decision import Decision
from reconverge.kernel import Reentry, Table

ROOM_FOR: Final = 2
"""So many such requests should fit on each node: lines are whole numbers, and others come meanwhile."""
SHARE_MAX: Final = 4
"""Nobody waits for more than this part of the capacity to come back, however many nodes there are: a quarter."""
INTERVALS_MAX: Final = 3
"""By then what is left is on the nodes that were asked for it: it is reported, given back, and granted."""


def for_any_node(tables: Sequence[Table], key: str, cost: int, decision: Decision) -> Decision:
    """The decision, with a `retry_after` after which any node is likely to admit the request. It is never earlier.

    `tables` decided. A node that is alone is exact already, and so is a policy that goes by the total instead of lines;
    a limit that is paced has more to wait for than room. Before the hub's first answer nothing better is known.
    """
    if decision.allowed or not isfinite(decision.retry_after):
        return decision
    for table in tables:
        if table.name == decision.binding and table.unit == 1 and not table.policy.keeps_lines:
            after_s = _after_ns(table, key, cost) / SECOND_NS
            return replace(decision, retry_after=after_s) if after_s > decision.retry_after else decision
    return decision


def _after_ns(table: Table, key: str, cost: int) -> int:
    """How long until there is room on every node; zero where that is not known, or if there is."""
    try:
        return table.lock.run(_after_ns_at, table, key, cost, table.now_ns())
    except Reentry:
        return 0


def _after_ns_at(table: Table, key: str, cost: int, now_ns: int) -> int:
    cell = table.cells.get(key)
    if cell is None or cell.shard.alone or not cell.heard:
        return 0
    room = max(cost, min(ROOM_FOR * cost * cell.nodes, cell.capacity // SHARE_MAX))
    left = cell.capacity - table.fleet_used(cell, now_ns)
    if room <= left:
        return 0
    after_ns = table.meter.fleet_wait_ns(cell, room, now_ns)
    return after_ns if left < cost else min(after_ns, INTERVALS_MAX * table.kernel.interval_ns)
