"""Checks that one node can use the whole quota of a small world once all faults and all use have ended."""

from __future__ import annotations

from reconverge.hub.report import Totals
from reconverge.limit.limit import PACED
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS
from reconverge.simulation.explore.observer import SlotTruth
from reconverge.simulation.explore.world import SmallWorld


def unrecovered(world: SmallWorld, asking: int) -> str:
    """Ends all faults and all use. Returns "" if node `asking` then gets the quota, or 1 less; else a sentence."""
    # With `initial`, a new key begins without a part of the capacity.
    least = world.limit.capacity // world.limit.unit - world.limit.withheld
    got = got_in_the_end(world, asking)
    if got < least - 1 and world.limit.bucket:
        # The hub's bucket has the smallest burst of all nodes, and a dead node's allowance may be larger. So after a
        # quota was lowered, the bucket may begin to drain only with the next report, and the node asks once more.
        got = got_in_the_end(world, asking)
    return "" if got >= least - 1 else f"node {asking} gets {got} of {least}"


def got_in_the_end(world: SmallWorld, index: int) -> int:
    """Ends all faults, and waits until no use counts. Returns the cost that node `index` gets if it asks for all."""
    for each in range(len(world.nodes)):
        world.gives_up(each)
        world.cancels_asks(each)
        world.raises(each)
        world.changes_policy(each, world.policy)
        while isinstance(world.truth, SlotTruth) and any(one.node is world.nodes[each] for one in world.truth.held):
            world.truth.ends(world.nodes[each], world.table(each))
    world.late = []
    step_ns = LEASE_NS // 3
    for _ in range(2 * (2 * world.idle_ns + LEASE_NS) // step_ns):
        world.passes(step_ns)
        for each in world.in_order(index):
            world.exchanges(each)
    _look_at_all_charges(world)
    got = 0
    capacity = world.limit.burst or world.limit.quota
    for _ in range(4):
        if world.limit.algorithm in PACED:
            got += world.hits(index, capacity)
            world.exchanges(index)
        else:
            got += world.asks_at_once(index, capacity + 1)
        world.passes(INTERVAL_NS)
    return got


def _look_at_all_charges(world: SmallWorld) -> None:
    """Notes a problem if the hub lacks charges after all reports, unless a killed process or lost data had some."""
    counted = world.hub.sums().get("limit", Totals(0, 0)).charged
    if not world.uncounted and counted != world.charged:
        world.problems.append(f"the hub counts {counted} of {world.charged} charges")
