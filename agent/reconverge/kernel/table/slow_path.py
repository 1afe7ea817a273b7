"""The slow path, which decides about a key of one limit in all cases: it computes how much cost fits, and charges it.

The caller holds the lock. An exception may come out of a signal handler wherever a function is called; so the fields
that a charge changes are assigned one after the other, without a call in between.
"""

from __future__ import annotations

from reconverge.clock import SECOND_NS
from reconverge.kernel.cell import DEMAND_MAX, closes_ns, measure, usable_allowance
from reconverge.kernel.engine import Cell
from reconverge.kernel.reporting.requests import ask_early, report_soon, request_early, stay_silent, take_interest
from reconverge.kernel.reporting.silence import speaks_below
from reconverge.kernel.table.explain import waits_in_vain
from reconverge.kernel.table.lookup import check_size, look_up
from reconverge.kernel.table.state import LimitState
from reconverge.policies import ADMIT, FRESH_INTERVALS, SHARE, View, naive


def decide(table: LimitState, key: str, cost: int, now_ns: int) -> tuple[Cell, bool]:
    """Charges `cost` to a key if it is admitted; returns the key's cell (its counts), and whether it was admitted.

    Raises InvalidKey or CostExceedsQuota.
    """
    cell = table.cells.get(key)
    if cell is not None and cell.used + cost <= cell.room and now_ns < cell.until_ns:
        cell.used += cost
        table.cells.admitted += 1
        return cell, True
    return decide_slowly(table, key, cost, now_ns, cell)


def decide_slowly(table: LimitState, key: str, cost: int, now_ns: int, cell: Cell | None = None) -> tuple[Cell, bool]:
    """Decides as `decide` does, but never by the fast path, which is a single comparison.

    `cell` has the counts of the key if the caller has looked them up already, otherwise None. Returns the cell, and
    whether `cost` was admitted.
    """
    check_size(table, cost)
    if cell is None:
        cell = look_up(table, key, now_ns)
    spare, allowed = evaluate(table, cell, cost, now_ns)
    commit(table, cell, cost, spare, allowed, now_ns)
    return cell, allowed


def evaluate(table: LimitState, cell: Cell, cost: int, now_ns: int) -> tuple[int, bool]:
    """Returns how much cost fits into the key's allowance, and whether `cost` may be admitted. Charges nothing."""
    table.edges.advance(cell, now_ns)
    spare = table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns)
    allowed = cost <= spare
    if not allowed and not cell.shard.alone:
        allowed = cost <= spare_of(table, cell, cost, now_ns)
    return spare, allowed


def commit(table: LimitState, cell: Cell, cost: int, spare: int, allowed: bool, now_ns: int) -> None:
    """Charges `cost` if `allowed`; otherwise counts the request as refused.

    `evaluate` has returned `spare`, the cost that fits into the allowance, and `allowed` for this request.
    """
    meter = table.meter
    if allowed:
        cell.used += cost
        spare -= cost
        table.cells.admitted += 1
        if meter.bucket or not table.additive:
            measure(cell)
            meter.settle(cell, now_ns)
            table.edges.set_until(cell, now_ns)
    else:
        # Refused requests are demand as well: by its admitted requests alone, a node with a small allowance would
        # never be granted a larger one.
        cell.arrived = min(cell.arrived + cost, DEMAND_MAX)
        cell.ask = max(cell.ask, cost)
        table.cells.refused += 1
        if table.limit.count_refused and is_used_up(table, cell, cost, now_ns):
            _count_refused(table, cell, cost, now_ns)
            spare -= cost
    if cell.shard.alone:
        table.edges.set_room(cell, spare)
    elif not allowed and waits_in_vain(table, cell, cost, now_ns):
        cell.touched_ns = now_ns
        table.edges.set_room(cell, spare)
    elif allowed and cell.comfortable and spare >= speaks_below(cell):
        cell.touched_ns = now_ns
        stay_silent(cell, now_ns)
        table.edges.set_room(cell, spare - speaks_below(cell))
    else:
        _put_forward(table, cell, spare, now_ns)
    if table.edges.by_charge and allowed and cost > 0:
        table.edges.charge(cell, now_ns)


def _put_forward(table: LimitState, cell: Cell, spare: int, now_ns: int) -> None:
    """Queues a key for a report, early enough that the hub can raise the allowance before it is used up."""
    cell.touched_ns = now_ns  # also for a mere look: a report keeps the other nodes' use fresh
    report_soon(cell, now_ns)
    if spare < cell.low_water:
        ask_early(cell, spare, now_ns)
    if not cell.heard:
        request_early(cell, max(now_ns, cell.reported_ns + cell.back_off_ns))
        table.edges.set_room(cell, table.meter.spare(cell, cold_reach(table, cell, 0, now_ns), now_ns))
    elif cell.urgent or spare < cell.low_water:
        table.edges.set_room(cell, spare)
    else:
        table.edges.set_room(cell, spare - cell.low_water)


def foresee(table: LimitState, cell: Cell, cost: int, now_ns: int) -> bool:
    """Returns whether `cost` would be admitted now. Charges nothing."""
    table.edges.advance(cell, now_ns)
    allowed = cost <= spare_of(table, cell, cost, now_ns)
    take_interest(cell, now_ns)
    return allowed


def is_used_up(table: LimitState, cell: Cell, cost: int, now_ns: int) -> bool:
    """Returns whether the quota has no room for `cost` because it is used up, as far as this node knows.

    False if there is no room only because other nodes hold allowances: a client is not to blame for that.
    """
    return cell.shard.alone or (cell.heard and table.meter.fleet_used(cell, now_ns) + cost > cell.capacity)


def count_refused_elsewhere(table: LimitState, cell: Cell, cost: int, spare: int, now_ns: int) -> bool:
    """Counts `cost`, which another quota of the same limit has refused, as use of this quota.

    Returns whether this quota then still has room for `cost`.
    """
    _count_refused(table, cell, cost, now_ns)
    spare -= cost
    if not cell.shard.alone:
        cell.touched_ns = now_ns
        report_soon(cell, now_ns)
        if spare < cell.low_water:
            ask_early(cell, spare, now_ns)
    table.edges.set_room(cell, spare)
    return cost <= spare or (not cell.shard.alone and cost <= spare_of(table, cell, cost, now_ns))


def _count_refused(table: LimitState, cell: Cell, cost: int, now_ns: int) -> None:
    """Counts a refused request as use of its key. The limit's sums of charges do not include it."""
    measure(cell)
    cell.used += cost
    cell.counted = cell.used  # it was not charged
    table.meter.settle(cell, now_ns)
    table.edges.set_until(cell, now_ns)


def spare_of(table: LimitState, cell: Cell, cost: int, now_ns: int) -> int:
    """Returns the cost that this node may still admit: within its allowance, and beyond that as the policy allows."""
    allowance = usable_allowance(cell, now_ns)
    if cell.shard.alone:
        reach = allowance
    else:
        unheard = unheard_reach(table, cell, cost, now_ns)
        reach = max(allowance, reach_of(table, cell, allowance, cost, now_ns) if unheard is None else unheard)
    return table.meter.spare(cell, reach, now_ns)


def reach_of(table: LimitState, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
    """Returns the use up to which the policy lets this node charge the key, counting its earlier charges."""
    if cell.at_hub or not table.keeps_spare:
        return allowance  # a request that needs more can ask the hub
    return table.policy.reach(view_of(table, cell, allowance, cost, now_ns))


def unheard_reach(table: LimitState, cell: Cell, cost: int, now_ns: int) -> int | None:
    """Returns the cost up to which this node may charge a key in all without the hub; None if the hub's answers decide.

    While the hub is away, a limit that admits meanwhile goes up to its quota, less the known use of the other nodes.
    Before the hub's first answer about the key, see `cold_reach`.
    """
    if cell.shard.away and table.policy.when_hub_is_away == ADMIT:
        return naive(view_of(table, cell, 0, cost, now_ns)) - table.withheld
    return None if cell.heard else cold_reach(table, cell, cost, now_ns)


def cold_reach(table: LimitState, cell: Cell, cost: int, now_ns: int) -> int:
    """Returns the use up to which this node may charge a key before the hub's first answer about the key.

    It is 0 for a key that may have been evicted before; for other keys the policy decides (`Policy.cold`).
    """
    if cell.doubted:
        cell.doubted = table.evicted.recall(cell.key, now_ns)
        if cell.doubted:
            return 0
    policy, capacity = table.policy, cell.capacity
    if policy.cold_allowance == SHARE:
        capacity = min(capacity, table.own_part)
    return int(policy.cold(max(0, capacity - table.withheld), cell.shard.nodes, cost))


def view_of(table: LimitState, cell: Cell, allowance: int, cost: int, now_ns: int) -> View:
    """Returns the facts about a cell and a request of `cost` by which the policy decides."""
    window_ns = closes_ns(cell) - cell.opened_ns
    passed_ns = min(max(now_ns - cell.opened_ns, 0), window_ns)
    staleness_ns = max(0, now_ns - cell.heard_ns)
    heard = table.meter.others(cell, now_ns)
    interval_ns = table.interval_ns
    horizon_ns = interval_ns + cell.shard.round_trip_ns
    unheard_ns = staleness_ns + horizon_ns
    if staleness_ns <= FRESH_INTERVALS * interval_ns:
        unheard_ns = min(unheard_ns, FRESH_INTERVALS * horizon_ns)
    if table.meter.aligned:
        unheard_ns = min(unheard_ns, passed_ns)
        heard += cell.silent
    meanwhile = max(0.0, cell.fleet_demand - cell.demand) * unheard_ns / SECOND_NS
    return View(
        capacity=cell.capacity,
        quota=table.quota,
        window_ns=window_ns,
        aligned=table.meter.aligned,
        cost=cost,
        own=table.meter.used(cell, now_ns),
        allowance=allowance,
        overdraft=cell.overdraft,
        heard=heard,
        others=heard + meanwhile,
        demand=cell.fleet_demand,
        own_demand=cell.demand,
        last_demand=cell.last_demand,
        nodes=cell.nodes,
        passed_ns=passed_ns,
        staleness_ns=staleness_ns,
        interval_ns=interval_ns,
    )
