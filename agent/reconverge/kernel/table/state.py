"""The state of one limit on this node: its terms, its cells, and its counts. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reconverge.clock import NEVER_NS, seconds
from reconverge.hub.report import UNBOUNDED
from reconverge.kernel.algorithms.dated import Dated
from reconverge.kernel.algorithms.paced import LeakyBucket
from reconverge.kernel.algorithms.registry import edges_for, meter_for
from reconverge.kernel.engine import Cell, Evicted, Lock, Store
from reconverge.kernel.node import Node
from reconverge.kernel.reporting.deferred import LimitInterval
from reconverge.kernel.shard import ShardState, Tally
from reconverge.limit.limit import INTERVAL, PACED, Limit
from reconverge.policies import Policy
from reconverge.settings import MILLION

NODES_LEASE_NS = NEVER_NS // 2
"""The `lease_ns` of a limit without a lease of its own: its allowances last as long as the node's lease."""
OVERFLOW_KEY = "\x00overflow"
"""The key, at the hub, of the cell for all keys beyond `keys_max`; a caller's key never starts with NUL."""
NEED_SHARES_MAX = 100
NEED_MAX = 10**11
"""The largest need that a report of a paced limit may carry. It is above the capacity, so that allowances settle in
proportion to needs; in thousandths, the needs of many nodes must sum exactly in Lua's numbers."""
PACED_GIVE_BACK_MIN = 0.1
"""The smallest part of its allowance that a node of a paced limit gives back: no node can use it until the hub has
granted it again."""


class Listener(Protocol):
    """An object whose requests wait until there is room for keys of a limit."""

    def tell(self, key: str) -> None:
        """Notifies the listener that there may be room for `key` now. Must not wait, nor fail."""


class LimitState:
    """One limit on this node. Code that reads or changes a cell holds `lock`.

    `Table` adds the methods for callers. The functions of the modules beside this one work on its cells.
    """

    keeps_spare = True
    """Whether this node may hold allowances that its requests do not need yet; see `Table.leave_spare_at_hub`."""
    asks = False
    """Whether a request in doubt has asked the hub, and the policy lets the hub keep the last free requests of a key.
    Reports of keys with recent asks carry a mark (`hub.report.ASKS`), and the hub keeps only those keys."""
    own_pace: LimitInterval | None = None
    """The sync interval of this limit; None if it is the node's."""
    compiled = False
    """Whether the compiled kernel decides about this limit; see `native.serve`."""
    dropped = False
    """Whether the node has dropped this table until its next request; see `dropping.py`."""

    def __init__(
        self,
        kernel: Node,
        name: str,
        limit: Limit,
        policy: Policy,
        *,
        lease_ns: int,
        peers: Mapping[str, LimitState],
        reported_as: str | None = None,
        counts_with: LimitState | None = None,
    ) -> None:
        self.kernel = kernel
        self.peers = peers
        """All limits of the node, which share its room for keys, by name."""
        self.name = name
        self.reported_as = reported_as or name
        """The name by which the hub knows the limit."""
        self.tiers: list[LimitState] = [self] if counts_with is None else counts_with.tiers
        """This limit and those that share its keys at the hub; see `tiers.py`."""
        self.overflow_key = OVERFLOW_KEY if reported_as is None else f"{OVERFLOW_KEY}\x00{name}"
        self.limit = limit
        self.policy = policy
        self.unit = limit.unit
        """The number of parts into which this limit divides a request; 1000 for paced limits, 1 for others.

        If paced limits counted whole requests, four nodes would get 3, 3, 2 and 2 of `10/s` at best, also with other
        needs, and one node would have all of `10/s burst 1` for as long as it needs it.
        """
        self.clock = kernel.clock
        self.now_ns = kernel.clock.monotonic_ns
        self.born_ns = self.now_ns()
        self.window_ns, self.window_s = limit.window_ns, seconds(limit.window_ns)
        self.calendar = limit.calendar
        """The windows by the calendar, which differ in length; None if all windows have one length."""
        self.stepwise = limit.refill == INTERVAL
        """Whether a bucket gets its quota back at the edges of windows."""
        self.smooth = limit.smooth
        """Whether a request goes on credit, and the next one waits until the debt is paid off."""
        self.paced = limit.algorithm in PACED
        """Whether allowances are parts of a rate, and not amounts that may be used."""
        self.lowered_ns, self.lowered_from = -NEVER_NS, 0
        """When the capacity fell last, and the capacity before; see `note_lowering`."""
        self.count_by(limit)
        self.take_terms(limit)
        self.give_back_min = PACED_GIVE_BACK_MIN if self.paced else 0.0
        """The smallest part of its allowance that the node gives back; no node can use it until it is granted again."""
        self.interval_ns, self.interval_min_ns = kernel.interval_ns, kernel.interval_min_ns
        self.lease_ns = lease_ns
        """How long allowances may be used after the hub's last answer, or NODES_LEASE_NS."""
        self.lock: Lock = Lock(kernel) if counts_with is None else counts_with.lock
        """The lock of the cells, held for the arithmetic of one cell, and never during I/O or while other code runs."""
        self.cells = Store()
        if reported_as is not None:
            first = self.cells if counts_with is None else counts_with.cells
            self.cells.beside = [] if first.beside is None else first.beside
            self.cells.homes = {} if first.homes is None else first.homes
        self.edges = edges_for(limit)(self)
        """Computes when the windows of the cells begin and end."""
        self.begin_counting()
        self.evicted: Evicted = (
            Evicted(kernel.hash_key, name, kernel.keys_max, 2 * self.meter.idle_ns)
            if counts_with is None
            else counts_with.evicted
        )

    def shard_of(self, key: str) -> ShardState:
        """Returns the shard of the hub that keeps a key of this limit."""
        return self.kernel.shard_of(self.reported_as, key)

    def take_terms(self, limit: Limit) -> None:
        """Takes over the parts of a limit that may change while it is in use, except the quota; see `count_by`."""
        self.limit = limit
        self.soft = self.capacity > self.pool.counted.nominal * self.unit
        self.costs = None if limit.costs is None else dict(limit.costs)
        self.withheld = limit.counted.withheld
        """The part of the capacity that a new key does not have at its beginning."""

    def count_by(self, pool: Limit) -> None:
        """Counts by `pool` from now on: a whole limit, or the part of it that is outside the shares."""
        # What refuses everything is asked only by requests that something else refuses, as they cost more than its
        # `cost_max` of 0; see `Closed` in `limiter/enforcement/closed.py`.
        counted = pool.counted
        self.pool = pool
        """The limit less the shares that were set aside: the whole limit if there are none."""
        self.meter = meter_for(counted, merged_only=self.policy.merged_only)
        """The arithmetic of the limit's algorithm."""
        self.dated = self.meter if isinstance(self.meter, Dated) else None
        """`meter` if it gives every charge a date; else None."""
        self.pacer = self.meter if isinstance(self.meter, LeakyBucket) else None
        """`meter` if it lets requests out of a queue one by one; else None."""
        self.additive = self.dated is None or self.dated.additive
        """Whether the fast path may add charges; if not, `meter.settle` runs for each charge."""
        self.capacity = counted.capacity * self.unit
        self.nominal = pool.nominal * self.unit
        """The quota as it is shown; nothing is divided by it."""
        self.quota = counted.quota * self.unit
        self.cost_max = pool.cost_max * self.unit
        self.need_max = min(NEED_SHARES_MAX * self.capacity, NEED_MAX) if self.paced else 0
        """The largest need that a report may carry; 0 if that is the capacity."""

    def begin_counting(self) -> None:
        """Sets all counters to zero, with no waiting request."""
        self.listeners: dict[str, Listener] = {}
        """The objects that wait for room, by the name of their limit: this one, or one with several tables."""
        self.overflow = None
        self.cells.overflowed = 0
        self.reentered = 0
        """The number of calls that came in the middle of a decision, on its thread."""
        self.cells.left_early = 0
        self.deferred = 0
        """The number of new keys that were reported later than with the next exchange, because of the budget."""
        self.tallies = [Tally() for _ in self.kernel.shards]
        """The charges and refunds, by shard."""

    def start_over(self) -> None:
        """Drops all cells and counters, and replaces the lock, which a thread that is gone may hold."""
        first = self.tiers[0]
        self.lock = Lock(self.kernel) if first is self else first.lock
        self.born_ns = self.now_ns()
        self.cells.start_over()
        self.begin_counting()
        self.evicted.forget()

    def all_cells(self) -> list[Cell]:
        """Returns every cell that exists at this moment."""
        overflow = self.overflow
        return self.cells.in_order() if overflow is None else [*self.cells.in_order(), overflow]

    @property
    def overflow(self) -> Cell | None:
        """Returns the cell that counts all keys beyond `keys_max` together; None if there are none."""
        return self.cells.overflow

    @overflow.setter
    def overflow(self, cell: Cell | None) -> None:
        self.cells.overflow = cell

    @property
    def overflowed(self) -> int:
        """Returns the number of decisions about keys beyond `keys_max`."""
        return self.cells.overflowed

    @property
    def left_early(self) -> int:
        """Returns how many keys were evicted to make room before they were idle."""
        return self.cells.left_early

    @property
    def small_allowances(self) -> bool:
        """Returns whether allowances are kept small, because a window or the drain of a full bucket outlasts the lease.

        Use then counts for longer than a lease; see `hub/headroom.py`. Always False for a policy without a bound on
        over-admission, for a smooth limit, whose allowance is a part of the rate and cannot be held unused, and for
        slots, which come back with the lease.
        """
        if self.smooth or self.meter.slots:
            return False
        runs_out_ns = self.window_ns
        if self.meter.bucket:
            drains_ns = self.window_ns * self.capacity // self.quota
            runs_out_ns = max(runs_out_ns, drains_ns) if self.stepwise else drains_ns
        return self.policy.overshoot_milli != UNBOUNDED and runs_out_ns > min(self.lease_ns, self.kernel.lease_ns)

    @property
    def region_ppm(self) -> int:
        """Returns the part of every capacity that this node's region has by itself, in millionths."""
        return self.kernel.region_ppm

    @property
    def own_part(self) -> int:
        """Returns the capacity by which the hub of this node's region grants, once all nodes have reported it."""
        return self.capacity * self.kernel.region_ppm // MILLION

    @property
    def relearns_ns(self) -> int:
        """Returns for how many nanoseconds a hub that has lost its data grants no allowances on this limit.

        If the policy has no overshoot, that is until no earlier allowance can be in use any more. For other policies it
        is 0: the hub waits for the next exchanges at most. The hub's name for this time is `learning_us`.
        """
        if self.policy.overshoot_milli:
            return 0
        if self.meter.slots:
            return min(self.lease_ns, self.kernel.lease_ns)
        runs_out_ns = self.window_ns
        if self.meter.bucket:
            runs_out_ns = max(runs_out_ns, -(-self.window_ns * self.capacity // self.quota))
        return min(self.kernel.lease_ns + 2 * runs_out_ns, NEVER_NS // 2)

    @property
    def admitted(self) -> int:
        """Returns the number of admitted requests."""
        return self.cells.admitted

    @property
    def refused(self) -> int:
        """Returns the number of refused requests."""
        return self.cells.refused


def allowance_alone(table: LimitState, key: str) -> int:
    """Returns the allowance of a key on a node without a hub: the whole capacity.

    For the keys beyond `keys_max` it is 0 if the limit is strict: a key that is counted with other keys now, and by
    itself before or after, could exceed its limit.
    """
    return 0 if key.startswith(OVERFLOW_KEY) and table.policy.overshoot_milli == 0 else table.capacity
