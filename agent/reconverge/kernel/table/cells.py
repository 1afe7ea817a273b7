"""The cells of one limit, kept in step with the hub's clock and with what the hub has to hear of them."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Protocol

from reconverge.clock import NEVER_NS, Clock, seconds
from reconverge.errors import CostExceedsQuota
from reconverge.hub.report import UNBOUNDED, CellAnswer, CellReport
from reconverge.kernel.algorithms.dated import Dated
from reconverge.kernel.algorithms.meter import Meter
from reconverge.kernel.algorithms.registry import meter_for
from reconverge.kernel.cell import DEMAND_MAX, Shard
from reconverge.kernel.engine import Cell, Evicted, KernelFields, Lock, Store
from reconverge.kernel.keys import plain_key
from reconverge.kernel.shard import ShardState, Tally
from reconverge.limit.limit import INTERVAL, Limit
from reconverge.policies import Policy

NODES_LEASE_NS = NEVER_NS // 2
"""In place of a limit's own lease: as long as that of the node."""
LOW_WATER = 0.6
"""Headroom below this share of what it was after the last answer asks for more; the study found .3 to .6 alike."""
OVERFLOW_KEY = "\x00overflow"
"""What the hub calls the cell of the keys beyond the cap; a caller's key never starts with NUL."""


class Listener(Protocol):
    """Waits for keys of a limit."""

    def tell(self, key: str) -> None:
        """There may be room now. Must not wait, nor fail."""


class Node(KernelFields):
    """What the limits of a node need of it; `Kernel` is the one there is."""

    clock: Clock
    namespace: str
    alone: bool
    interval_ns: int
    interval_min_ns: int
    lease_ns: int
    key_bytes_max: int
    hash_key: bytes
    shards: list[ShardState]
    region_ppm: int
    told_of_reentry: Callable[[str], None]

    def lease_of(self, limit: Limit) -> int:
        """How long lines on such a limit may be used."""
        raise NotImplementedError

    def shard_of(self, limit_name: str, key: str) -> ShardState:
        """Which shard keeps a key."""
        raise NotImplementedError

    def refresh_offset_ns(self, now_ns: int) -> int:
        """The distance to the wall clock of a node that has no hub to ask."""
        raise NotImplementedError

    def admit_key(self, table: Cells, now_ns: int) -> bool:
        """Count one more key of a limit, whose lock the caller holds; unless the cap is reached."""
        raise NotImplementedError

    def let_stay(self, cell: Cell) -> None:
        """Have a key stay that was to leave."""
        raise NotImplementedError

    def left_early(self, name: str) -> int:
        """How many keys of a limit have left while they were not idle yet."""
        raise NotImplementedError

    def deferred(self, name: str) -> int:
        """How many new keys of a limit have waited for the hub to be told of them."""
        raise NotImplementedError

    def want_wake(self) -> None:
        """Have the loop woken when no lock is held."""
        raise NotImplementedError

    def put_off(self, work: Callable[[], None]) -> None:
        """Have something done when no lock is held any more."""
        raise NotImplementedError

    def note_reentry(self, name: str) -> None:
        """A decision about that limit was asked for in the middle of another one; have it said once."""
        raise NotImplementedError


class Cells:
    """All keys of one limit on this node: found, made, brought up to the moment, and put forward to be reported.

    Decides nothing; `Table` does. The caller of what touches a cell holds `lock`.
    """

    particular = False
    """Whether it decides in a way of its own, that only Python knows."""
    compiled = False
    """Whether the compiled kernel decides about it; see `serve`."""
    keeps_spare = True
    """Whether rights that no caller has asked this node for yet may lie on it; see `Changes.leave_spare_at_hub`."""
    reentered = 0
    """Calls that came in the middle of a decision, on its thread."""

    def __init__(self, kernel: Node, name: str, limit: Limit, policy: Policy, now_ns: Callable[[], int]) -> None:
        self.kernel = kernel
        self.name = name
        self.limit = limit
        self.policy = policy
        self.unit = limit.unit
        """Into how many parts a request is divided in all that is counted here."""
        self._count_by(limit)
        self.soft = self.capacity > self.nominal
        self.costs = None if limit.costs is None else dict(limit.costs)
        self.need_max = 0
        """The largest need that may be reported, if that is more than the capacity."""
        self.give_back_min = 0.0
        """A smaller part of a line than this is not given back, as it would be without use on the way."""
        self.window_ns, self.window_s = limit.window_ns, seconds(limit.window_ns)
        self.calendar = limit.calendar
        """Where windows begin that are not all of one length."""
        self.stepwise = limit.refill == INTERVAL
        """Whether a bucket gets its quota back at the edges of windows."""
        self.withheld = limit.withheld
        """How much of the capacity a new key begins without."""
        self.interval_ns, self.interval_min_ns = kernel.interval_ns, kernel.interval_min_ns
        self.lease_ns = kernel.lease_of(limit)
        """How long lines on it may be used after the hub was last heard, if that is shorter than the node's lease."""
        self.now_ns = now_ns
        self.born_ns = now_ns()
        self.listeners: dict[str, Listener] = {}
        """The listeners for better news, by the name of the limit that they wait for: this one, or one made of it."""
        self.lock = Lock(kernel)
        """Held for the arithmetic of one cell at a time, and never across I/O or while anything but the kernel runs."""
        self.cells = Store()
        self.overflow: Cell | None = None
        """In which the keys beyond the cap are counted together."""
        self._room = self._until_ns = 0  # worked out last; one number that cells share is in the cache, one each is not
        self.overflowed = 0
        """Decisions about keys beyond the cap."""
        self.tallies = [Tally() for _ in kernel.shards]
        """What was charged and given back, by shard."""
        self.evicted = Evicted(kernel.hash_key, name, kernel.keys_max, 2 * self.meter.idle_ns)

    def leave(self, pool: Limit) -> None:
        """Count by what is left when a share was set aside; nothing has been asked yet."""
        assert not self.cells, "lines may have been granted"
        self._count_by(pool)

    def _count_by(self, pool: Limit) -> None:
        self.pool = pool
        """What of the limit is for all: all of it, unless shares of it were set aside."""
        self.meter = self._make_meter()
        self.dated = self.meter if isinstance(self.meter, Dated) else None
        """The same meter, if every charge has a date for it."""
        self.additive = self.dated is None or self.dated.additive
        """Whether charges may simply be added while nothing changes; else each has to be settled in its turn."""
        self.capacity = pool.capacity * self.unit
        self.nominal = pool.nominal * self.unit
        self.quota = pool.quota * self.unit
        self.cost_max = pool.cost_max * self.unit

    def _make_meter(self) -> Meter:
        return meter_for(self.pool, merged_only=self.policy.merged_only)

    @property
    def staked(self) -> bool:
        """Whether a window, or the time in which a bucket drains, outlasts the lease; never so without a bound.

        What is used counts for longer than a lease then, so that lines are kept small; see `hub/headroom.py`.
        """
        runs_out_ns = self.window_ns
        if self.meter.bucket:
            drains_ns = self.window_ns * self.capacity // self.quota
            runs_out_ns = max(runs_out_ns, drains_ns) if self.stepwise else drains_ns
        return self.policy.overshoot_milli != UNBOUNDED and runs_out_ns > min(self.lease_ns, self.kernel.lease_ns)

    @property
    def region_ppm(self) -> int:
        """The part of every capacity that this node's region has by itself, in millionths."""
        return self.kernel.region_ppm

    @property
    def relearns_ns(self) -> int:
        """For how long a hub that has lost its data grants no lines on this limit; the hub has it as `learning_us`.

        Until all that may still be used of lines from before is over, where the policy has no overshoot. Elsewhere it
        is no longer than until the next exchanges.
        """
        if self.policy.overshoot_milli:
            return 0
        runs_out_ns = self.window_ns
        if self.meter.bucket:
            runs_out_ns = max(runs_out_ns, -(-self.window_ns * self.capacity // self.quota))
        return min(self.kernel.lease_ns + 2 * runs_out_ns, NEVER_NS // 2)

    @property
    def admitted(self) -> int:
        """Decisions in favour."""
        return self.cells.admitted

    @property
    def refused(self) -> int:
        """Decisions against."""
        return self.cells.refused

    # ------------------------------------------------------------ keeping cells

    def _look_up(self, key: str, cost: int, now_ns: int) -> Cell:
        """The cell of a key, made if there is none. Raises InvalidKey or CostExceedsQuota."""
        self.check_size(cost)
        return self.look_up(key, now_ns)

    def check_size(self, cost: int) -> None:
        """Raise CostExceedsQuota for a cost, in parts of a request, that could never be admitted."""
        if cost > self.cost_max:
            raise CostExceedsQuota(self.name, cost // self.unit, self.cost_max // self.unit)

    def look_up(self, key: str, now_ns: int) -> Cell:
        """The cell of a key, made if there is none. Raises InvalidKey."""
        if type(key) is not str or key not in self.cells:
            key = plain_key(key, self.kernel.key_bytes_max)
        cell = self.cells.get(key)
        if cell is not None:
            return cell
        if self.kernel.admit_key(self, now_ns):
            cell = self._new_cell(key, now_ns)
            self.cells.put(cell)
            return cell
        self.overflowed += 1
        self.overflow = self.overflow or self._new_cell(OVERFLOW_KEY, now_ns)
        return self.overflow

    def _new_cell(self, key: str, now_ns: int) -> Cell:
        cell = Cell(key, self, self.kernel.shard_of(self.name, key), now_ns)
        self.meter.begin(cell, now_ns)
        if cell.shard.alone:
            cell.line = cell.base = 0 if key == OVERFLOW_KEY and self.policy.overshoot_milli == 0 else self.capacity
            cell.level = self.withheld * self.window_ns
        else:
            cell.doubted = self.evicted.recall(key, now_ns)
        return cell

    def all_cells(self) -> list[Cell]:
        """Every cell there is at this moment."""
        overflow = self.overflow
        return self.cells.in_order() if overflow is None else [*self.cells.in_order(), overflow]

    def let_stay(self, cell: Cell) -> None:
        """Have a key stay that was to leave."""
        self.kernel.let_stay(cell)

    def remember_evicted(self, cell: Cell, now_ns: int) -> None:
        """Remember that a key was here, as it leaves while what was used of it still counts."""
        self.evicted.remember(cell.key, now_ns)

    def drop(self, cell: Cell) -> bool:
        """Forget a cell; returns whether that leaves room for another key."""
        if self.overflow is cell:
            self.overflow = None
            return False
        return self.cells.drop(cell)

    def advance(self, cell: Cell, now_ns: int) -> None:
        """Bring a cell to `now_ns`: into its window, with its meter settled."""
        meter = self.meter
        if meter.bucket:
            cell.room = -1  # first of all: it was worked out for a meter that moves now, and an exception may come out
            self.measure(cell)
            meter.settle(cell, now_ns)
        elif now_ns < cell.until_ns:
            return
        else:
            cell.room = -1
        self._enter_window(cell, now_ns)
        self.set_until(cell, now_ns)

    def set_until(self, cell: Cell, now_ns: int) -> None:
        """The fast path holds until the window ends, or the lease, or the bucket runs dry."""
        until_ns = min(self.closes_ns(cell), self.meter.until_ns(cell))
        lease_until_ns = self.lease_until_ns(cell.shard)
        if not self.policy.keeps_lines and now_ns < lease_until_ns:
            until_ns = min(until_ns, lease_until_ns)
        if until_ns != self._until_ns:
            self._until_ns = until_ns
        cell.until_ns = self._until_ns

    def closes_ns(self, cell: Cell) -> int:
        """When the cell's window ends."""
        if self.calendar is None:
            return cell.opened_ns + self.window_ns
        return cell.opened_ns + self.calendar.opens_ns(cell.epoch + 1) - self.calendar.opens_ns(cell.epoch)

    def refilled_ns(self, cell: Cell, since_ns: int, until_ns: int) -> int:
        """For how long a bucket has drained meanwhile: all the time, or a window's worth at each edge of one."""
        if not self.stepwise:
            return until_ns - since_ns
        edges = (until_ns - cell.opened_ns) // self.window_ns - (since_ns - cell.opened_ns) // self.window_ns
        return max(0, edges) * self.window_ns

    def _hub_ns(self, cell: Cell, now_ns: int) -> int:
        """The hub's time, as far as this node knows it; for what comes back at an edge, what it is at least."""
        if cell.shard.alone:
            return now_ns + self.kernel.refresh_offset_ns(now_ns)
        return now_ns + cell.shard.offset_ns - (cell.shard.lag_ns if self.stepwise else 0)

    def _number(self, hub_ns: int) -> int:
        """The number of the window that a moment of the hub's clock belongs to."""
        return hub_ns // self.window_ns if self.calendar is None else self.calendar.number(hub_ns)

    def _enter_window(self, cell: Cell, now_ns: int) -> None:
        """Follow the hub's clock into its window.

        A clock that has gone back by less than a window lets the cell wait for it; one that has gone back further is
        followed, at the price of one extra window.
        """
        hub_ns = self._hub_ns(cell, now_ns)
        epoch = self._number(hub_ns)
        if epoch == cell.epoch - 1 or (self.stepwise and epoch < cell.epoch and not cell.shard.alone):
            epoch = cell.epoch
        self._step_to(cell, epoch)
        opens_ns = epoch * self.window_ns if self.calendar is None else self.calendar.opens_ns(epoch)
        cell.opened_ns = now_ns - (hub_ns - opens_ns)
        cell.lag_ns = cell.shard.lag_ns
        if self.dated is not None:
            self.measure(cell)
            self.dated.settle(cell, now_ns)

    def _step_to(self, cell: Cell, epoch: int) -> None:
        steps = epoch - cell.epoch
        if steps != 0:
            self.measure(cell)
            if cell.epoch >= 0:
                self._forget_window(cell, steps)
                self.meter.open_window(cell, steps, epoch)
            else:
                cell.epoch = epoch

    def follow(self, cell: Cell, report: CellReport, answer: CellAnswer, now_ns: int) -> tuple[CellReport, CellAnswer]:
        """Follow the hub's word on where in time it is, before its lines are installed; returns what was said.

        What comes back at an edge that the hub has passed comes back to the lines from before: the hub may have taken
        what it grants now from a node that has had its part.
        """
        if self.stepwise and answer.epoch > cell.epoch:
            self._step_to(cell, answer.epoch)
            self.anchor(cell, now_ns)
        return report, answer

    def rebase(self, cell: Cell, now_ns: int) -> None:
        """Carry the counts over to where the hub's clock is now known to be: it is the clock that moved, not time."""
        self.measure(cell)
        self.meter.rebase(cell, now_ns)
        cell.epoch = self._number(self._hub_ns(cell, now_ns))
        self.anchor(cell, now_ns)
        if cell.used or cell.previous:
            self.mark_dirty(cell)

    def anchor(self, cell: Cell, now_ns: int) -> None:
        """Place the window by what is known of the hub's clock by now."""
        self._enter_window(cell, now_ns)
        self.set_until(cell, now_ns)
        cell.room = -1

    def _forget_window(self, cell: Cell, steps: int) -> None:
        """What was known of the fleet in the window before becomes what it was asked for then."""
        unheard_ns = self.closes_ns(cell) - cell.heard_ns
        share = min(max(float(unheard_ns) / float(self.window_ns), 0.0), 1.0) if steps == 1 else 1.0
        heard_demand = cell.fleet_window if steps == 1 else 0
        cell.last_demand = int(min(heard_demand + cell.fleet_demand * self.window_s * share, float(DEMAND_MAX)))
        cell.fleet_window = cell.window_demand = cell.silent = 0
        cell.fleet_used = 0.0
        cell.back_off_ns = 0
        cell.low_water = self.low_water(cell.base if self.meter.aligned else cell.line)

    def measure(self, cell: Cell) -> None:
        """Take what was charged since the last look into account."""
        charged = cell.used - cell.counted
        if charged:
            tally, requests = self.tallies[cell.shard.index], charged // self.unit
            arrived = min(cell.arrived + charged, DEMAND_MAX)
            # Nothing is called in between, so that no exception out of a signal handler comes in between.
            cell.counted = cell.used
            cell.charged += charged
            tally.charged += requests
            cell.arrived = arrived

    def forget(self, cell: Cell, reset_us: int, now_ns: int) -> None:
        """Set the cell's own meter to zero; charges before `reset_us` do not count any more."""
        cell.room = -1
        self.measure(cell)
        cell.reset_us = reset_us
        self.meter.clear(cell)
        cell.confirmed = (-1, 0, 0)
        self.set_until(cell, now_ns)
        self._set_room(cell, self.meter.spare(cell, self.usable_line(cell, now_ns), now_ns))

    def start_over(self) -> None:
        """Drop all cells and numbers, and whatever lock another thread may have held."""
        self.lock = Lock(self.kernel)
        self.reentered = 0
        self.born_ns = self.now_ns()
        self.listeners = {}
        self.cells.start_over()
        self.overflow = None
        self.overflowed = 0
        self.evicted.forget()
        self.tallies = [Tally() for _ in self.kernel.shards]

    def usable_line(self, cell: Cell, now_ns: int) -> int:
        """The line, unless the lease on it is over."""
        shard = cell.shard  # as in `lease_until_ns`, without calls: every refusal comes along here
        if now_ns < shard.lease_until_ns and now_ns < shard.leased_ns + self.lease_ns:
            return cell.line
        return cell.line if self.policy.keeps_lines else 0

    def lease_until_ns(self, shard: Shard) -> int:
        """Until when lines on this limit may be used, if no batch is answered before."""
        return min(shard.lease_until_ns, shard.leased_ns + self.lease_ns)

    def fleet_used(self, cell: Cell, now_ns: int) -> int:
        """What all nodes have used, as far as this one knows."""
        return self.meter.used(cell, now_ns) + ceil(self.meter.others(cell, now_ns))

    # ------------------------------------------------------------ asking to exchange

    def low_water(self, headroom: int) -> int:
        """Below how much headroom to ask for more, when it was `headroom` after the last answer."""
        return max(1, ceil(LOW_WATER * headroom))

    def mark_dirty(self, cell: Cell) -> None:
        """Have the cell reported with the next exchange of its shard; a new one in its turn."""
        if not cell.dirty and not self._is_refused(cell):
            # Queued first: what is there twice does no harm, what is missing is never said.
            cell.fresh = not cell.heard and cell.place >= 0
            (self.tallies[cell.shard.index].fresh if cell.fresh else cell.shard.dirty).append(cell)
            cell.dirty = True

    def _call(self, cell: Cell, now_ns: int) -> None:
        """Have the cell reported with the next exchange, and start a runner if there may be none."""
        shard = cell.shard
        # Asked before, because another table's decision may come in between.
        first = not (shard.dirty if cell.heard else self.tallies[shard.index].fresh)
        self.mark_dirty(cell)
        if first or now_ns >= shard.attended_until_ns:
            self.kernel.want_wake()

    def _ask_early(self, cell: Cell, spare: int, now_ns: int) -> None:
        """Ask for an exchange ahead of time if there is something to be had."""
        if cell.free >= 1:
            self.request_early(cell, cell.reported_ns + self.interval_min_ns)
        elif spare < 1 and not (self.meter.aligned and self.fleet_used(cell, now_ns) >= cell.capacity):
            self.request_early(cell, cell.reported_ns + max(self.interval_min_ns, cell.back_off_ns))

    def take_interest(self, cell: Cell, now_ns: int) -> None:
        """A key that is asked about is worth an exchange: at once if the hub was never asked, else in its turn."""
        if cell.shard.alone or now_ns - cell.heard_ns <= self.interval_ns:
            return
        self._call(cell, now_ns)
        if not cell.heard:
            self.request_early(cell, now_ns)

    def request_early(self, cell: Cell, when_ns: int) -> None:
        """Have the cell reported at `when_ns`, ahead of the next regular exchange."""
        if cell.urgent or cell.shard.alone or self.policy.merged_only or self._is_refused(cell):
            return
        cell.early_ns = when_ns
        if cell.fresh:
            when_ns = max(when_ns, self.tallies[cell.shard.index].fresh_from_ns)
        else:
            cell.shard.urgent.append(cell)
        cell.urgent = True
        if when_ns < cell.shard.early_ns:
            cell.shard.early_ns = when_ns
            self.kernel.want_wake()

    def _is_refused(self, cell: Cell) -> bool:
        """Whether it stands for the keys beyond the cap, which a strict limit refuses.

        A key that shares one count with others, and has one of its own before or after, could exceed its limit.
        """
        return cell.place < 0 and self.policy.overshoot_milli == 0 and not cell.held

    def _set_room(self, cell: Cell, spare: int) -> None:
        """Let the fast path admit up to `spare` more, once the cell is known to have something to report."""
        room = cell.used + spare if (cell.dirty or cell.shard.alone) and self.additive else -1
        if room != self._room:
            self._room = room
        cell.room = self._room
