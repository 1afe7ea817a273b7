"""Makes the report of a key, and stores the hub's answer: the node's half of the allowance protocol.

The hub's half is the merge rule (`reconverge_sync.merge`).
"""

# Theory of operation.
#
# The problem. A node decides without asking. It may admit as much as its allowance by itself, and the allowances of all
# nodes sum to the capacity at most. So allowances must be where the traffic is: a node whose allowance is too small
# refuses requests that the fleet has room for; if it is too large, the other nodes do. Traffic moves, and nodes learn
# of each other once in an interval.
#
# Why the naive ways fail.
#
# - Report the cost admitted since the last report: if an answer is lost, the hub may have applied the report or not,
#   and the cost is counted twice or never. Every number here is absolute.
# - Ask for as much as was used: the allowance is an interval late, and a node that had no allowance has used nothing.
# - Ask for all that is free: the first node gets it, and the next one refuses until it is given back.
# - Keep an allowance until another node needs it: no node can ask for it, as the hub only answers, and an idle node
#   sends nothing. In simulations, fleets that gave nothing back refused two thirds of what a central limiter admits.
#
# How it works. Use, allowance and capacity of a cell, on one node:
#
#     0            use    reported     allowance                             capacity
#     |############|======|------------|................................|
#          used      kept   given back   allowances of other nodes, and free
#
# A report (`report_cell`) is made in this order, which must not change:
#
# 1. `room = -1` sends every charge to the slow path from here on: nothing may be charged to an allowance that is about
#    to be lowered.
# 2. Demand is measured: the mean cost per second of all requests, refused ones included, over about DEMAND_ARRIVALS
#    requests. Use alone would never show the requests that a small allowance kept out.
# 3. The need is computed: the cost that is likely to be asked for until the next answer, with a margin; at least the
#    cost that had to be refused. A key with less than DEMAND_FAINT requests in a window needs nothing.
# 4. The allowance is lowered: the node keeps its need and its fair part of the capacity that no node needs, and gives
#    back the rest; but only while the hub answers: a node that is cut off keeps its allowance until its lease is over.
# 5. Counts, allowances and need are reported as they stand now.
#
# The hub replaces its record of this node by the report, raises the allowances, and answers with its totals and the new
# allowances. The node stores them (`apply_answer`); for a fixed window, it stores the allowance only if the answer is
# about the window that the node is in. The use of the other nodes is the total in the answer less the use that this
# node had *reported*: no total contains this node's charges since then.
#
# When the next report is made:
#
# - with the next regular exchange if anything was charged or asked (`requests.mark_dirty`);
# - ahead of time if the headroom falls below the low-water mark (`cell.low_water`), so that the next allowance arrives
#   before this one is used up; if by the last answer nothing is free, only once nothing is left, after a pause that
#   doubles up to an interval;
# - for a quiet key at doubling distances, until it is forgotten; sooner while other nodes may lack the allowance that
#   it holds (`_promise_follow_up`). If no other node has a need, none lacks it: with a quota of five a minute, a key
#   with a single request is so reported 8 times until it is forgotten, and was 74 times without that rule.
#
# The bound rests on three facts, for all sizes: allowances are lowered before they are reported; only one batch of a
# node is under way, so an answer never restores an allowance from before the last lowering; and an allowance is not
# used after its lease, which this node counts from the moment when it *sent* the answered batch. NEED_MARGIN,
# SLACK_FADING and the other constants come from simulations: they decide how much is refused too early, and never how
# much is admitted.
#
# If a window outlasts the lease, a process that is killed would take a large allowance out of use for hours; so a node
# then holds little unused allowance (`small_allowances`).

from __future__ import annotations

from math import ceil, exp, floor

from reconverge.clock import MICROSECOND_NS, NEVER_NS, SECOND_NS, seconds
from reconverge.hub.headroom import NEED_MARGIN, headroom_max, is_plenty, overdraft_max, slack_kept
from reconverge.hub.report import (
    ASKS,
    AT_HUB,
    FLOATS,
    FORGOTTEN,
    NOT_TAKEN,
    SEALED,
    WAITING_MAX,
    CellAnswer,
    CellReport,
)
from reconverge.kernel.cell import (
    DEMAND_MAX,
    Cell,
    begins_with_base,
    closes_ns,
    floats,
    has_share,
    keeps_no_allowance,
    lease_until_ns,
    low_water,
    measure,
)
from reconverge.kernel.reporting.requests import let_stay, mark_dirty, request_early
from reconverge.kernel.reporting.silence import is_comfortable, is_used_up, looks_ns

DEMAND_ARRIVALS = 8
"""The demand on a key is averaged over about this many requests."""
DEMAND_FAINT = 0.3
"""A key with fewer requests per window than this needs no allowance."""
BASE_SLACK = 0.8
"""A node lowers its base, the allowance with which it begins each window, if its fair share of the capacity is less
than this fraction of the base."""
BUCKET_MARGIN = 1.1
"""On a bucket, a node needs so much allowance that its part of the rate is this factor times its demand."""
ALONE_INTERVALS_MAX = 32
"""The most sync intervals between two checks of a key without requests while no other node needs this node's allowance.
A node that comes to need it may have to wait for as long."""
SURPLUS_SHARE = 0.03
"""An unused allowance of at least this fraction of the capacity is worth an early exchange if other nodes may lack
it."""
TIGHT_SHARE = 0.25
"""Other nodes may lack allowances when less than this fraction of the capacity is free."""
SURPLUS_CHECKS = 8
"""How often per sync interval a node looks for unused allowances that are worth an early exchange."""
SURPLUS_AFTER = 3
"""A node begins to look for unused allowances when 1/SURPLUS_AFTER of the sync interval is over."""
ROOM_INTERVALS_MAX = 16
"""A key for which the hub had no room is reported again after one sync interval, and then after a pause that doubles up
to this many intervals."""


def report_cell(cell: Cell, limit_index: int, now_ns: int, in_touch: bool) -> CellReport | None:
    """Lowers this node's allowances on a key to its need, and returns the key's report; None if nothing is to report.

    Allowances are lowered only while the node is in touch with the hub: a node that is cut off keeps its allowances
    until their lease ends.
    """
    table = cell.table
    cell.room = (
        -1
    )  # sends the next charge to the slow path: nothing may be charged to an allowance that is about to be lowered
    table.edges.advance(cell, now_ns)
    measure(cell)
    if not table.policy.keeps_allowances and now_ns >= lease_until_ns(cell):
        cell.allowance = cell.base = cell.overdraft = 0
    early = now_ns - cell.measured_ns < table.interval_ns
    leaves = _leaves(cell, in_touch)
    hits_only = cell.asking_ns < cell.reported_ns
    # Before `_asks` is first called, so that the whole report goes by the same moment of the last request.
    _measure_demand(cell, now_ns)
    if cell.waiters:
        cell.touched_ns = now_ns  # a request that waits goes on asking
    if cell.at_hub and (leaves or not _asks(cell) or now_ns - cell.heard_ns >= 2 * table.meter.idle_ns):
        table.meter.leave_hub(cell)
    used = table.meter.used(cell, now_ns)
    need = 0.0
    sealed = has_share(cell) and not in_touch  # a share outlasts pauses while the hub is away
    if used <= 0 and now_ns - cell.touched_ns >= 2 * table.meter.idle_ns and not sealed:
        cell.allowance = cell.base = cell.overdraft = 0
        if not cell.held and not cell.unconfirmed:
            return None
    elif leaves:
        cell.allowance = cell.base = cell.overdraft = 0
    else:
        bound = table.meter.bound(cell, now_ns)
        need = _need(cell, bound, early=early)
        if keeps_no_allowance(cell):
            # Also when cut off: for the hub, only the grants since the last report count.
            cell.allowance = min(cell.allowance, used if table.meter.bucket else cell.used)
        if in_touch:
            _lower_allowances(cell, bound, need)
    cell.need_milli = ceil(need * 1000)
    cell.held = cell.held or need > 0 or _said_allowance(cell) > 0 or cell.base > 0
    cell.dirty, cell.urgent, cell.comfortable = 0, False, False
    cell.early_ns = NEVER_NS
    cell.shard.agenda.forget(cell)
    cell.room = -1
    cell.reported_ns = now_ns
    cell.wanted = cell.charged + cell.waiting if cell.waiting else 0
    report = _said(cell, limit_index, now_ns, FORGOTTEN if leaves else _said_asked(cell, hits_only))
    cell.asked = cell.ask = 0
    return report


def _said(cell: Cell, limit_index: int, now_ns: int, asked: int) -> CellReport:
    """Returns the report of a key with its present counts; `asked` is the value of the report's field `asked`."""
    table = cell.table
    current, previous = table.meter.report(cell, now_ns)
    base = cell.base if asked == FORGOTTEN else table.meter.reported_base(cell, now_ns)
    return CellReport(
        limit=limit_index,
        key=cell.key,
        epoch=cell.epoch,
        current=current,
        previous=previous,
        allowance=_said_allowance(cell),
        base=base,
        overdraft=cell.overdraft,
        need_milli=cell.need_milli,
        ask=max(cell.ask, cell.head_cost),
        asked=asked,
        demand_milli=0 if asked == FORGOTTEN else int(cell.demand * 1000),
        window_demand=cell.window_demand,
        reset_us=cell.reset_us,
    )


def _said_allowance(cell: Cell) -> int:
    """Returns the allowance to report for a key; 0 if this node keeps no allowance beyond its use."""
    return 0 if keeps_no_allowance(cell) else cell.allowance


def _said_asked(cell: Cell, hits_only: bool) -> int:
    """Returns the `asked` field of a report: the cost of all requests on this node since the last report.

    For a key about which requests ask the hub, the field encodes the cost that waits for the hub's answer. If no
    request has asked since the last report (`hits_only`), a refused request counts as waiting, because it may come
    again.
    """
    if _asks(cell) or (cell.sealed and cell.base > 0):
        waiting = cell.ask if hits_only and not cell.waiting else cell.waiting
        return ASKS + (FLOATS if _floats(cell) else 0) + min(waiting, WAITING_MAX)
    return min(cell.asked, FORGOTTEN - 1)


def _floats(cell: Cell) -> bool:
    """Returns whether a report that asks has FLOATS: about a bucket at the hub, or fixed windows without a base."""
    table = cell.table
    if not table.meter.aligned:
        return cell.at_hub and table.meter.bucket
    by_the_clock = not (table.meter.slots or table.edges.by_charge or table.calendar)
    return by_the_clock and (cell.sealed or cell.base == 0)


def _asks(cell: Cell) -> bool:
    """Returns whether requests about this key ask the hub if in doubt: the last request did, or one shortly before.

    Always False for a paced limit, whose nodes need allowances.
    """
    return cell.touched_ns - cell.asking_ns < 2 * cell.table.meter.idle_ns and not cell.table.paced


def _leaves(cell: Cell, in_touch: bool) -> bool:
    """Returns whether this is the last report of a key, which was marked for eviction and has had no request since."""
    leaves = cell.leaving and in_touch and not (cell.waiters or cell.arrived or cell.asked or cell.ask)
    if not leaves:
        let_stay(cell)
    return leaves


def unreport_cell(cell: Cell, report: CellReport) -> None:
    """Takes back a report that got no answer: queues the key for another report, and cancels an eviction of the key."""
    if report.forgotten:
        let_stay(cell)
    else:
        cell.asked = min(cell.asked + (report.waiting if report.asks else report.asked), DEMAND_MAX)
        cell.ask = max(cell.ask, report.ask)
    mark_dirty(cell)


def apply_answer(cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
    """Stores the hub's answer to `report` in the cell; `heard_ns` is when the hub answered, by this node's clock."""
    table = cell.table
    cell.room = -1
    table.edges.advance(cell, now_ns)
    measure(cell)
    if answer.nodes == NOT_TAKEN:
        _wait_for_room(cell, now_ns)
        return
    table.edges.anchor(cell, now_ns)
    if answer.reset_us > cell.reset_us:
        table.edges.forget(cell, answer.reset_us, now_ns)
    report, answer = table.edges.follow(cell, report, answer, now_ns)
    answer = as_lowered(cell, answer)
    same_epoch = answer.epoch == cell.epoch
    answer, sealed = _take_marks(cell, report, answer)
    raised = answer.allowance - (report.current if floats(cell) else report.allowance)
    if same_epoch or not (table.meter.aligned or floats(cell)):
        cell.allowance = answer.allowance
    elif floats(cell):
        cell.allowance = 0
        if raised > 0:  # a grant for a window that is over goes back, and waiting requests ask again
            request_early(cell, now_ns)
    cell.base = min(cell.base, answer.base)  # first: an exception may follow, and no share may be without its seal
    cell.sealed = sealed
    cell.base = answer.base
    # For a later window, other nodes may have given back allowances that they have used in this one.
    ahead = table.meter.aligned and answer.epoch > cell.epoch
    cell.overdraft = min(cell.overdraft, answer.overdraft) if ahead else answer.overdraft
    cell.capacity = min(table.capacity, answer.capacity)
    if table.stepwise and same_epoch:
        # The hub was in this window already, even if this node does not know when the window began.
        heard_ns = max(heard_ns, cell.opened_ns)
    cell.heard_ns = heard_ns
    cell.doubted = False
    if report.reset_us == cell.reset_us:
        cell.confirmed = (report.epoch, report.current, report.previous)
        table.meter.confirm(cell)
    cell.held = _holds(cell, report, answer, raised)
    table.meter.hear_of_others(cell, report, answer, heard_ns, now_ns)
    _hear_of_demand(cell, answer)
    _back_off(cell, answer, raised)
    table.edges.set_until(cell, now_ns)
    if not table.policy.keeps_allowances and now_ns >= lease_until_ns(cell):
        # The lease that begins with this answer is stored later; until then the fast path must not outlast the old one.
        cell.until_ns = now_ns
    headroom = table.meter.headroom(cell, now_ns)
    # Computed now, and not when a request checks its answer: by then a report may have given the grant back, and other
    # requests may wait. Headroom plus the charges since the report is what the hub has granted.
    cell.denied = cell.charged + headroom < cell.wanted
    cell.low_water = low_water(table, max(0, headroom))
    cell.room = -1
    if not _falls_silent(cell, report, headroom, now_ns, same_epoch=same_epoch):
        _promise_follow_up(cell, report, headroom, now_ns)


def _take_marks(cell: Cell, report: CellReport, answer: CellAnswer) -> tuple[CellAnswer, bool]:
    """Stores whether the hub keeps the key. Returns the answer without the marks, and whether its base is a share."""
    cell.at_hub = report.asks and answer.nodes >= AT_HUB
    if not cell.at_hub:
        return answer, False
    nodes = answer.nodes - AT_HUB
    sealed = nodes >= SEALED
    return answer._replace(nodes=nodes - SEALED if sealed else nodes), sealed


def _back_off(cell: Cell, answer: CellAnswer, raised: int) -> None:
    """Doubles the pause before the next early exchange while the hub has nothing to grant; a grant ends the pause."""
    if raised > 0:
        cell.back_off_ns = 0
    elif answer.free < 1:
        cell.back_off_ns = min(cell.table.interval_ns, max(cell.table.interval_min_ns, 2 * cell.back_off_ns))


def _falls_silent(cell: Cell, report: CellReport, headroom: int, now_ns: int, *, same_epoch: bool) -> bool:
    """Stops reports of charges to a key for a while if no node needs them; returns whether they have stopped."""
    asks = _asks(cell)
    if not same_epoch or cell.fresh or cell.urgent or cell.leaving or cell.unconfirmed:
        return False
    if cell.reset_us != report.reset_us or _goes_back(cell, report):
        return False
    if is_comfortable(cell, headroom, _expected(cell)):
        # A key that has had no request for longer is looked at later, so it reports its next charge.
        cell.comfortable = now_ns - cell.touched_ns <= cell.table.silence_ns
        if cell.comfortable:
            cell.dirty = 0  # also if it was charged while the batch was under way
    elif not is_used_up(cell):
        return False
    cell.shard.agenda.promise(cell, looks_ns(cell, now_ns, asks=asks))
    return True


def as_lowered(cell: Cell, answer: CellAnswer) -> CellAnswer:
    """Returns `answer`, with its allowances scaled down if the capacity has fallen since the answered report.

    The allowances fall in the same proportion as the capacity. That may have fallen because the limit was changed, or
    because the key has moved to another plan; see `table/changes.py`.
    """
    table = cell.table
    capacity, before = table.capacity, answer.capacity
    if cell.reported_ns <= table.lowered_ns:
        before = max(before, table.lowered_from)
    if capacity >= before:
        return answer
    allowance, base, overdraft = (
        granted * capacity // before for granted in (answer.allowance, answer.base, answer.overdraft)
    )
    return answer._replace(allowance=allowance, base=base, overdraft=overdraft)


def _holds(cell: Cell, report: CellReport, answer: CellAnswer, raised: int) -> bool:
    """Returns whether the hub's ledger contains an allowance or a need of this node for this key after `answer`."""
    held = raised > 0 if floats(cell) else answer.allowance > 0
    return bool(held or _goes_back(cell, report) or answer.base or answer.overdraft or report.need_milli)


def _goes_back(cell: Cell, report: CellReport) -> bool:
    """Returns whether the hub's ledger still contains an allowance that this node has given up since `report`."""
    return keeps_no_allowance(cell) and report.allowance > 0


def _wait_for_room(cell: Cell, now_ns: int) -> None:
    """Handles the hub's answer that it cannot store this key: drops the allowances, and schedules a later report.

    If the hub has never given another answer about the key, the key keeps its policy's cold allowance, for new keys.
    """
    table = cell.table
    cell.shard.not_taken += 1
    table.meter.leave_hub(cell)
    cell.allowance = cell.base = cell.overdraft = 0
    cell.held = False
    cell.confirmed = (-1, 0, 0)
    cell.room = -1
    interval_ns = table.interval_ns
    cell.back_off_ns = min(max(2 * cell.back_off_ns, interval_ns), ROOM_INTERVALS_MAX * interval_ns)
    table.edges.set_until(cell, now_ns)
    cell.shard.agenda.promise(cell, -(-(now_ns + cell.back_off_ns) // interval_ns) * interval_ns)


def look_again(cell: Cell, now_ns: int) -> bool:
    """Returns whether a key without requests has something to report now; if not, schedules its next check."""
    interval_ns = cell.table.interval_ns
    kept_at_hub = cell.at_hub or not cell.table.keeps_spare
    if now_ns >= cell.reported_ns + interval_ns or kept_at_hub or _has_surplus(cell, now_ns):
        return True
    cell.shard.agenda.promise(cell, min(now_ns + interval_ns // SURPLUS_CHECKS, cell.reported_ns + interval_ns))
    return False


def _promise_follow_up(cell: Cell, report: CellReport, headroom: int, now_ns: int) -> None:
    """Schedules the next check of a key, in case no request for the key comes before.

    The check comes soon while other nodes may lack the allowance that this node holds, by the hub's last answer.
    Otherwise it comes after as much time as the key has had no requests, until the key can be dropped.
    """
    table = cell.table
    interval_ns = table.interval_ns
    if _goes_back(cell, report):
        cell.shard.agenda.promise(cell, now_ns)
        return
    if not table.keeps_spare and cell.held:
        cell.shard.agenda.promise(cell, max(now_ns, _settles_ns(cell, headroom, now_ns)))
        return
    if cell.at_hub and headroom > 0:
        # A grant for a request that did not wait is kept until the next exchange, for a request like it.
        kept_ns = table.interval_min_ns if cell.waiters else interval_ns
        cell.shard.agenda.promise(cell, max(now_ns, cell.reported_ns + kept_ns))
        return
    leaves_ns = cell.touched_ns + 2 * table.meter.idle_ns
    tight = headroom > 0 and cell.free < TIGHT_SHARE * cell.capacity
    alone = cell.fleet_needs <= float(cell.need_milli) / 1000
    if tight and not alone and headroom >= _surplus_min(cell):
        cell.shard.agenda.promise(cell, max(now_ns, cell.reported_ns + interval_ns // SURPLUS_AFTER))
        return
    if not cell.held:
        due_ns = max(leaves_ns, now_ns)
    elif (tight or (table.dated is not None and headroom > 0 and cell.reserved > 0)) and not alone:
        due_ns = cell.reported_ns + interval_ns
    else:
        quiet_ns = now_ns - cell.touched_ns
        if cell.at_hub and not begins_with_base(cell):
            quiet_ns = max(quiet_ns, table.meter.idle_ns)  # it holds no allowance, and its use fades at the hub as well
        elif tight:
            quiet_ns = min(quiet_ns, ALONE_INTERVALS_MAX * interval_ns)
        due_ns = now_ns + max(interval_ns, min(quiet_ns, leaves_ns - now_ns))
        if table.dated is not None and cell.used > 0:
            # Use that expires all at once should not stay reported for as long again, nor an allowance that others
            # lack.
            returned = min(cell.used, 1 if cell.at_hub else ceil(_surplus_min(cell)))
            due_ns = min(due_ns, now_ns + max(interval_ns, table.meter.wait_ns(cell, cell.used, returned, now_ns)))
    if table.meter.slots and cell.used > 0 and not (tight and not alone):
        # Use that lasts has to be reported before the hub forgets it, but at most once in a lease.
        due_ns = now_ns + max(interval_ns, min(now_ns - cell.touched_ns, table.meter.idle_ns))
    if begins_with_base(cell) and _asks(cell):
        # The base allowance of the next window goes back if no request has come, as other nodes ask for it.
        due_ns = min(due_ns, max(closes_ns(cell), now_ns) + interval_ns)
    # The moments are on a grid, so that cells share their exchanges.
    cell.shard.agenda.promise(cell, -(-due_ns // interval_ns) * interval_ns)


def _settles_ns(cell: Cell, headroom: int, now_ns: int) -> int:
    """Returns when to report a key on which this node may hold no unused allowance (`keeps_spare` is False).

    An allowance that no request has asked for goes back at once; an allowance that a request has asked for counts as
    used as soon as it is granted. Use that has expired is reported when it amounts to a whole request.
    """
    table = cell.table
    if headroom > 0 or cell.base > 0 or cell.overdraft > 0 or cell.need_milli > 0:
        return cell.reported_ns + table.interval_min_ns
    bound = table.meter.bound(cell, now_ns)
    if bound <= 0:
        return cell.touched_ns + 2 * table.meter.idle_ns
    return now_ns + table.meter.wait_ns(cell, bound, 1, now_ns) + MICROSECOND_NS


def _hear_of_demand(cell: Cell, answer: CellAnswer) -> None:
    """Stores the demand on all nodes from `answer`; the policy uses it to judge whether the key is calm."""
    cell.nodes = max(1, answer.nodes)
    cell.fleet_demand = float(answer.demand_milli) / 1000
    if answer.epoch == cell.epoch:
        cell.free = answer.free
        cell.reserved = answer.reserved
        cell.fleet_needs = float(answer.needs_milli) / 1000
        cell.fleet_window = answer.window_demand
        cell.last_demand = answer.last_demand
    elif answer.epoch == cell.epoch - 1:
        cell.last_demand = max(cell.last_demand, answer.window_demand)


def _measure_demand(cell: Cell, now_ns: int) -> None:
    """Updates a key's demand: the mean cost per second of all requests, over about DEMAND_ARRIVALS requests.

    The weight of a request in the mean falls exponentially with its age.
    """
    table = cell.table
    elapsed_s = seconds(now_ns - cell.measured_ns)
    arrived, cell.arrived = cell.arrived, 0
    cell.measured_ns = now_ns
    if arrived:
        cell.asked = min(cell.asked + arrived, DEMAND_MAX)
        cell.window_demand = min(cell.window_demand + arrived, DEMAND_MAX)
        cell.touched_ns = now_ns
    interval_s = seconds(table.interval_ns)
    if cell.demand == 0.0:
        cell.demand = arrived / max(elapsed_s, interval_s)
    elif elapsed_s > 0:
        # The rarer the requests, the longer the memory, so that one request is no surge. No longer than a
        # window: what was asked for before says little about this one.
        shortest_s = min(interval_s, 0.1 * table.window_s)
        memory_s = min(max(DEMAND_ARRIVALS * table.unit / cell.demand, shortest_s), table.window_s)
        cell.demand += (1.0 - exp(-elapsed_s / memory_s)) * (arrived / elapsed_s - cell.demand)
    cell.demand = min(cell.demand, float(DEMAND_MAX))


def _need(cell: Cell, used: int, *, early: bool) -> float:
    """Returns the allowance beyond `used` that this node is likely to need until the hub answers the next exchange."""
    table = cell.table
    if table.policy.merged_only:
        return 0.0
    if not table.keeps_spare:
        return float(min(max(cell.ask, cell.head_cost, cell.waiting), max(cell.capacity, table.need_max)))
    if table.meter.slots:
        return _need_of_slots(cell, used)
    if cell.demand * table.window_s <= DEMAND_FAINT * table.unit and cell.asked == 0 and not cell.waiters:
        return table.meter.owed(cell)
    calm = cell.fleet_demand * table.window_s <= table.quota and cell.last_demand <= table.quota
    need = _expected(cell) + cell.waiting + (table.unit if calm else 0.0)
    if early:
        # An exchange ahead of time means a surge, and the mean lags behind it. With twice the cost since the last
        # report, an allowance can double with each exchange.
        need = max(need, 2.0 * cell.asked)
    if table.meter.bucket and not table.small_allowances:
        # To drain this demand the node needs the same part of the capacity. Where allowances are kept small, the
        # allowance for use that has not drained yet drains as much.
        waiting = float(cell.waiting) * SECOND_NS / float(table.interval_ns + cell.shard.round_trip_ns)
        demand = cell.demand + waiting
        carrying = demand * table.window_s * cell.capacity / table.quota
        need = max(need, BUCKET_MARGIN * carrying - used)
    return min(max(need, float(cell.ask), float(cell.head_cost)), float(max(cell.capacity, table.need_max)))


def _need_of_slots(cell: Cell, used: int) -> float:
    """Returns how many more slots this node is likely to need: its recent peak less `used`, plus a margin.

    The rate of requests does not show the need, as a request may last for a millisecond or for an hour.
    """
    peak = cell.table.meter.peak(cell, cell.measured_ns)
    need = float(peak - used)
    if cell.asked > 0 or cell.waiters:  # something has come since the last report
        need = max(NEED_MARGIN * peak - used, 1.0) + cell.waiting
    return min(max(need, float(cell.ask), float(cell.head_cost)), float(cell.capacity))


def _expected(cell: Cell) -> float:
    """Returns the cost likely to be asked for on this node until the hub answers the next exchange, with a margin."""
    horizon_ns = cell.table.interval_ns + cell.shard.round_trip_ns
    return NEED_MARGIN * cell.demand * horizon_ns / SECOND_NS


def _lower_allowances(cell: Cell, used: int, need: float) -> None:
    """Lowers a key's allowance to its use, its `need`, and a fair part of the capacity that no node needs.

    The hub's last answer shows how much no node needs. If the hub keeps the free part of the limit (`at_hub`), all
    allowance that is not in use goes back. Also lowers the base allowance and the overdraft.
    """
    table = cell.table
    if not table.keeps_spare:
        cell.allowance, cell.base = min(cell.allowance, used), 0
        keep_overdraft_within(cell, 0, used)
        return
    needs = max(cell.fleet_needs, need)
    share = need / needs if needs > 0 else 0.0
    headroom = cell.allowance - used
    if cell.at_hub:
        cell.allowance = min(cell.allowance, used)
    else:
        surplus = floor(headroom - _kept(cell, need, needs))
        if 0 < surplus < table.give_back_min * cell.allowance:
            surplus = 0
        if cell.reserved > 0 and 0 < headroom < cell.ask:
            # Another node's ask is older, and this node holds too few slots for its own.
            surplus = max(surplus, min(headroom, cell.reserved))
        if table.dated is not None and not (cell.waiters or cell.asked or cell.ask):
            # A request waits on another node and none here: the last unit would be kept for as long as demand fades.
            surplus = max(surplus, min(headroom, cell.reserved))
        cell.allowance -= max(0, surplus)
    start = cell.capacity * share
    if table.small_allowances:
        start = min(start, headroom_max(need, cell.capacity, table.unit))
    if cell.sealed:
        cell.base = cell.base if _asks(cell) else 0
    elif table.meter.aligned and needs > 0 and start < BASE_SLACK * cell.base:
        cell.base = ceil(start)
    if cell.overdraft > 0:
        part = cell.capacity * table.policy.overshoot_milli // 1000 // cell.nodes
        if table.small_allowances:
            part = min(part, overdraft_max(cell.capacity, table.unit))
        keep_overdraft_within(cell, part, used)


def keep_overdraft_within(cell: Cell, part: int, used: int) -> None:
    """Lowers a key's overdraft, what it may use beyond its allowance, to `part`, but not below the overdraft in use.

    If overdraft in use were given back, the hub could grant it to another node as well.
    """
    cell.overdraft = min(cell.overdraft, max(part, used - cell.allowance))


def _kept(cell: Cell, need: float, needs: float) -> float:
    """Returns how much unused allowance to keep on a key: its `need`, and a part of the free capacity beyond all needs.

    `needs` is the need of all nodes. Free is the capacity that no node had used at the hub's last answer.
    """
    left = max(0.0, cell.capacity - cell.fleet_used)
    # A node that is the only one keeps its part also when it needs nothing: a request after a pause finds it.
    share = 1.0 if cell.shard.nodes == 1 else need / needs if needs > 0 else 0.0
    if left < needs:
        return left * share
    asks = _asks(cell) and not (cell.table.silence_ns and is_plenty(left, needs, cell.capacity))
    slack = slack_kept(fixed=cell.table.meter.aligned, dated=cell.table.dated is not None, asks=asks)
    kept = need + slack * (left - needs) * share
    return min(kept, headroom_max(need, left, cell.table.unit)) if cell.table.small_allowances else kept


def _has_surplus(cell: Cell, now_ns: int) -> bool:
    """Returns whether this node's unused allowance on a key is large enough to give it back by an early exchange."""
    table = cell.table
    table.edges.advance(cell, now_ns)
    measure(cell)
    if cell.waiters or cell.fleet_needs <= 0 or cell.free >= TIGHT_SHARE * cell.capacity:
        return False
    elapsed_s = seconds(now_ns - cell.measured_ns)
    # Demand is a mean over requests, and stays high when they stop. The cost since the last report shows the stop.
    recent = cell.arrived / elapsed_s if elapsed_s > 0 else cell.demand
    need = _expected(cell) * min(1.0, recent / cell.demand) if cell.demand > 0 else 0.0
    kept = _kept(cell, need, max(cell.fleet_needs, need))
    return cell.allowance - table.meter.bound(cell, now_ns) - kept >= _surplus_min(cell)


def _surplus_min(cell: Cell) -> float:
    return max(2.0, SURPLUS_SHARE * cell.capacity)
