"""The state of one limit on this node: its settings, the counts of its keys, and its counters. It decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reconverge.clock import NEVER_NS, SECOND_NS, seconds
from reconverge.hub.headroom import SEALED_WINDOW_MAX_S, UNRECALLED_SILENCE_S, longest_silence
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
"""The `lease_ns` of a limit without a lease of its own: its allowances last as long as the lease of the node's name."""
OVERFLOW_KEY = "\x00overflow"
"""The key, at the hub, of the cell that counts all keys beyond `keys_max`; no caller's key starts with NUL."""
NEED_SHARES_MAX = 100
NEED_MAX = 10**11
"""The largest need in a report about a paced limit. It is above the capacity, so that allowances become proportional to
needs; and it is so small that the needs of many nodes, in thousandths, sum exactly in Lua's numbers."""
PACED_GIVE_BACK_MIN = 0.1
"""The smallest fraction of its allowance on a paced limit that a node gives back at once. It is not smaller, because no
node can use that part until the hub has granted it again."""

SPEAK_UP_NS = SECOND_NS
"""The nanoseconds within which every node reports to a hub that has lost its data: SPEAK_UP_US of the merge rule."""


def all_reported_ns(interval_ns: int) -> int:
    """Returns how long after a loss of data a hub waits for all nodes' reports, for nodes of this sync interval."""
    return max(2 * interval_ns, interval_ns + SPEAK_UP_NS)


class Listener(Protocol):
    """An object whose requests wait for room, and which is notified when a key may have room."""

    def tell(self, key: str) -> None:
        """Called when there may be room for `key`. Must neither wait nor fail."""


class LimitState:
    """One limit on this node. Code that reads or changes the counts of a key holds `lock`.

    `Table` adds the methods for callers. The functions of the other modules in this package work on its cells; a cell
    has the counts of one key.
    """

    keeps_spare = True
    """Whether this node may hold allowances that its requests do not need yet; see `Table.leave_spare_at_hub`."""
    asks = False
    """Whether a request of this limit has asked the hub in doubt, and the policy lets the hub keep a key's last free
    requests. The hub does so only for keys about which a request has asked lately; their reports contain
    `hub.report.ASKS`."""
    own_pace: LimitInterval | None = None
    """The sync interval of this limit; None if the limit has the node's."""
    compiled = False
    """Whether the compiled kernel decides about this limit; see `native.serve`."""
    dropped = False
    """Whether the node has dropped this table; the next request brings it back, see `dropping.py`."""

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
        """All limits of the node, by name; the node's `keys_max` holds for all their keys together."""
        self.name = name
        self.reported_as = reported_as or name
        """The name by which the hub knows the limit."""
        self.tiers: list[LimitState] = [self] if counts_with is None else counts_with.tiers
        """This table and the tables of other plans of the same limit, which share its keys; see `tiers.py`."""
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
        """The windows of a limit that follows a calendar, which differ in length; None for any other limit."""
        self.stepwise = limit.refill == INTERVAL
        """Whether the limit is a bucket that gets its quota back only at the edges of windows."""
        self.smooth = limit.smooth
        """Whether a request is admitted on credit, and the next request waits until the debt is paid off."""
        self.paced = limit.algorithm in PACED
        """Whether an allowance is a part of a rate, and not an amount of cost that may be charged."""
        self.lowered_ns, self.lowered_from = -NEVER_NS, 0
        """When the capacity last became smaller, and the capacity before; see `note_lowering`."""
        self.count_by(limit)
        self.take_terms(limit)
        self.give_back_min = PACED_GIVE_BACK_MIN if self.paced else 0.0
        """The smallest fraction of its allowance that the node gives back at once; see PACED_GIVE_BACK_MIN."""
        self.interval_ns, self.interval_min_ns = kernel.interval_ns, kernel.interval_min_ns
        self.lease_ns = lease_ns
        """For how many nanoseconds after the hub's last answer allowances may be used, or NODES_LEASE_NS."""
        self.phase = int.from_bytes(kernel.hash_key[:6], "little")
        """By how many nanoseconds the moments are shifted at which this process checks unreported keys; see
        `reporting/silence.py`."""
        self.lock: Lock = Lock(kernel) if counts_with is None else counts_with.lock
        """The lock held while the counts of a key are computed, and never during I/O or calls of foreign code."""
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
        """Returns the shard of the hub that counts `key` of this limit."""
        return self.kernel.shard_of(self.reported_as, key)

    def take_terms(self, limit: Limit) -> None:
        """Copies the fields of `limit` that may change while a limit is in use; `count_by` sets the quota."""
        self.limit = limit
        self.soft = self.capacity > self.pool.counted.nominal * self.unit
        self.costs = None if limit.costs is None else dict(limit.costs)
        self.withheld = limit.counted.withheld
        """The part of the capacity that a new key cannot use at once, because the limit's `initial` is smaller."""

    def count_by(self, pool: Limit) -> None:
        """Makes `pool` decide from now on: the limit with the part of its quota that no share has taken."""
        # What refuses everything is asked only by requests that something else refuses, as they cost more than its
        # `cost_max` of 0; see `Closed` in `limiter/enforcement/closed.py`.
        counted = pool.counted
        self.pool = pool
        """The limit less the shares that were taken out of it; without shares, the limit itself."""
        self.meter = meter_for(counted, merged_only=self.policy.merged_only)
        """The arithmetic of the limit's algorithm."""
        self.dated = self.meter if isinstance(self.meter, Dated) else None
        """`meter` if it gives every charge a date; otherwise None."""
        self.pacer = self.meter if isinstance(self.meter, LeakyBucket) else None
        """`meter` if the limit is paced, so that requests leave a queue one by one; otherwise None."""
        self.additive = self.dated is None or self.dated.additive
        """Whether the fast path may add charges; if not, `meter.settle` runs for each charge."""
        self.capacity = counted.capacity * self.unit
        self.nominal = pool.nominal * self.unit
        """The quota that decisions show, in parts of a request. No code may divide by it, as it is 0 for a limit that
        refuses everything."""
        self.quota = counted.quota * self.unit
        self.cost_max = pool.cost_max * self.unit
        self.need_max = min(NEED_SHARES_MAX * self.capacity, NEED_MAX) if self.paced else 0
        """The largest need that a report may carry; 0 if the capacity is the largest need."""

    def begin_counting(self) -> None:
        """Sets all counters to zero, and forgets all waiting requests."""
        self.listeners: dict[str, Listener] = {}
        """The objects whose requests wait for room, by the name of their limit: this limit, or a limit of several
        tables."""
        self.overflow = None
        self.cells.overflowed = 0
        self.reentered = 0
        """How often a thread has interrupted its own decision by a call about this limit, as in a signal handler."""
        self.cells.left_early = 0
        self.deferred = 0
        """The number of new keys that were reported later than in the next exchange, because the budget was used up."""
        self.tallies = [Tally() for _ in self.kernel.shards]
        """The sums of charges and refunds, by the shard's index."""

    def start_over(self) -> None:
        """Drops all cells and counters in a forked child, and replaces the lock, as a parent's thread may hold it."""
        first = self.tiers[0]
        self.lock = Lock(self.kernel) if first is self else first.lock
        self.born_ns = self.now_ns()
        self.cells.start_over()
        self.begin_counting()
        self.evicted.forget()

    def all_cells(self) -> list[Cell]:
        """Returns all cells of the limit, each the counts of one key, or of all keys beyond `keys_max` together."""
        overflow = self.overflow
        return self.cells.in_order() if overflow is None else [*self.cells.in_order(), overflow]

    @property
    def overflow(self) -> Cell | None:
        """Returns the cell that counts all keys beyond `keys_max` together; None if there is no such key."""
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
        """Returns how many keys were evicted to make room although they were not idle."""
        return self.cells.left_early

    @property
    def small_allowances(self) -> bool:
        """Returns whether nodes keep allowances small, because use counts for longer than a lease (`hub/headroom.py`).

        That is so if a window, or the time in which a full bucket drains, is longer. Always False for a policy without
        a bound on over-admission, for a smooth limit, whose allowance is a part of the rate and cannot be held unused,
        and for slots, which come back when the lease ends.
        """
        if self.smooth or self.meter.slots:
            return False
        runs_out_ns = self.window_ns
        if self.meter.bucket:
            drains_ns = self.window_ns * self.capacity // self.quota
            runs_out_ns = max(runs_out_ns, drains_ns) if self.stepwise else drains_ns
        return self.policy.overshoot_milli != UNBOUNDED and runs_out_ns > min(self.lease_ns, self.kernel.lease_ns)

    @property
    def silence_ns(self) -> int:
        """Returns for how many nanoseconds charges to a key may go unreported at most; 0 if all must be reported.

        See `reporting/silence.py`.
        """
        if self.dated is not None or self.meter.slots or self.paced or self.policy.merged_only:
            return 0
        if self.edges.by_charge:  # all nodes have to agree when the window began
            return 0
        if not self.keeps_spare or self.region_ppm != MILLION:  # what another region needs is not known here
            return 0
        at_most_ns = self.kernel.silence_max_ns
        if not self.kernel.hub_recalls:
            at_most_ns = min(at_most_ns, UNRECALLED_SILENCE_S * SECOND_NS)
        return longest_silence(self.window_ns, self.interval_ns, at_most_ns)

    @property
    def region_ppm(self) -> int:
        """Returns the part of every limit that belongs to this node's region, in millionths."""
        return self.kernel.region_ppm

    @property
    def own_part(self) -> int:
        """Returns the part of the capacity that belongs to this node's region, by which the region's hub grants."""
        return self.capacity * self.kernel.region_ppm // MILLION

    @property
    def relearns_ns(self) -> int:
        """Returns for how many nanoseconds after a loss of its data a hub grants no allowances on this limit.

        For a strict policy, the hub waits until no earlier allowance can be in use any more. For other policies the
        result is 0, because the hub waits at most for the next exchanges. The hub calls this time `learning_us`.
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
    def deals_shares_ns(self) -> int:
        """Returns for how many nanoseconds after a loss of its data a hub does not grant sealed shares of this limit.

        The hub waits until no use from before the loss counts any more. `relearns_ns` for limits without such shares.
        """
        if not self.meter.fades or self.window_ns > SEALED_WINDOW_MAX_S * SECOND_NS:
            return self.relearns_ns
        return min(self.relearns_ns, 2 * self.window_ns + all_reported_ns(self.kernel.interval_ns))

    @property
    def admitted(self) -> int:
        """Returns the number of requests that this node has admitted."""
        return self.cells.admitted

    @property
    def refused(self) -> int:
        """Returns the number of requests that this node has refused."""
        return self.cells.refused


def allowance_alone(table: LimitState, key: str) -> int:
    """Returns the allowance of a key on a node without a hub: the whole capacity.

    For the keys beyond `keys_max` it is 0 if the limit is strict: a key that is counted with other keys now, and by
    itself before or after, could exceed its limit.
    """
    return 0 if key.startswith(OVERFLOW_KEY) and table.policy.overshoot_milli == 0 else table.capacity
