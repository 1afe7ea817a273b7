"""The cell, one node's record of one key, and protocols for the limit and the shard that a cell belongs to.

A cell is a passive record: functions that decide, correct, report and evict read and write its fields, under the lock
of its limit. The protocols here define which fields of the limit and of the shard these functions may use. They stand
in this module because they and `Cell` refer to each other; `table/` and `shard.py`, which implement them, import this
module.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple, Protocol

from reconverge.clock import NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.history import History, Lows
from reconverge.kernel.lock import Lock
from reconverge.limit.calendar import CalendarWindows
from reconverge.limit.limit import Limit
from reconverge.policies import Policy

DEMAND_MAX = 8 * 10**12
"""The largest demand on a key that is counted; it is above every quota. A demand in thousandths then always fits into a
report, however many requests are refused."""

LOW_WATER = 0.6
"""A node asks the hub for a larger allowance when its headroom, the unused part of its allowance on a key, falls below
this fraction of its headroom after the last answer. Simulations showed no difference between .3 and .6."""


class Lane(Protocol):
    """A queue of cells that wait for a report."""

    def append(self, cell: Cell, /) -> None:
        """Appends a cell behind the others."""
        ...

    def __len__(self) -> int: ...


class Promises(Protocol):
    """A schedule of the moments at which cells without recent requests are checked again for something to report."""

    def promise(self, cell: Cell, due_ns: int, /) -> None:
        """Schedules the next check of `cell`, one key's counts, for the moment `due_ns`; cancels an earlier one."""
        ...

    def forget(self, cell: Cell, /) -> None:
        """Removes the scheduled check of a cell, the counts of one key, if there is one."""
        ...


class Shard(Protocol):
    """The fields of a shard that cells need. `ShardState` implements it."""

    index: int
    alone: bool
    early_ns: int
    offset_ns: int
    lag_ns: int
    late_ns: int
    round_trip_ns: int
    lease_until_ns: int
    leased_ns: int
    lost_ns: int
    away: int
    met_ns: int
    attended_until_ns: int
    looks_ns: int
    regular_ns: int
    begins_ns: int
    under_way_ns: int
    keeps_until_ns: int
    not_taken: int
    nodes: int
    opens_us: int
    unconfirmed: int
    leaving: int
    refreshed_ns: int
    acked_ns: int
    asking_ns: int

    @property
    def in_vain(self) -> bool: ...
    @property
    def dirty(self) -> Lane: ...
    @property
    def urgent(self) -> Lane: ...
    @property
    def agenda(self) -> Promises: ...


class ReportedMeter(Protocol):
    """The methods of a limit's meter (its arithmetic) that reports need; a part of `algorithms.meter.CellMeter`."""

    aligned: bool
    bucket: bool
    slots: bool
    fades: bool
    idle_ns: int

    def used(self, cell: Cell, now_ns: int, /) -> int:
        """Returns the cost charged to the key by this node that still counts, rounded up."""
        ...

    def fleet_used(self, cell: Cell, now_ns: int, /) -> int:
        """Returns the cost charged to the key by all nodes that still counts, as far as this node knows."""
        ...

    def fleet_shown(self, cell: Cell, now_ns: int, /) -> int:
        """Returns the use of all nodes, to be shown to people.

        It is above the capacity only if the fleet has exceeded the capacity.
        """
        ...

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int, /) -> int:
        """Returns the nanoseconds until `cost` more fits into `allowance`, if nothing else is charged until then."""
        ...

    def peak(self, cell: Cell, now_ns: int, /) -> int:
        """Returns the recent peak of slots in use, which fades over about a second. Call it once for each report."""
        ...

    def bound(self, cell: Cell, now_ns: int, /) -> int: ...
    def headroom(self, cell: Cell, now_ns: int, /) -> int: ...
    def owed(self, cell: Cell, /) -> float: ...
    def report(self, cell: Cell, now_ns: int, /) -> tuple[int, int]: ...
    def reported_base(self, cell: Cell, now_ns: int, /) -> int: ...
    def confirm(self, cell: Cell, /) -> None: ...
    def hear_of_others(
        self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int, /
    ) -> None: ...
    def leave_hub(self, cell: Cell, /) -> None: ...
    def disown(self, cell: Cell, now_ns: int, /) -> None: ...


class TimeOfCells(Protocol):
    """The methods of `algorithms.edges.Edges` that reports need: they move a key's counts into the present window."""

    by_charge: bool

    def advance(self, cell: Cell, now_ns: int, /) -> None: ...
    def set_until(self, cell: Cell, now_ns: int, /) -> None: ...
    def set_room(self, cell: Cell, spare: int, /) -> None: ...
    def anchor(self, cell: Cell, now_ns: int, /) -> None: ...
    def rebase(self, cell: Cell, now_ns: int, /) -> bool: ...
    def forget(self, cell: Cell, reset_us: int, now_ns: int, /) -> None: ...
    def follow(
        self, cell: Cell, report: CellReport, answer: CellAnswer, now_ns: int, /
    ) -> tuple[CellReport, CellAnswer]: ...


class CellTally(Protocol):
    """The sums of a limit's charges and refunds at one shard, and the limit's new keys that were not reported yet."""

    charged: int
    refunded: int
    fresh_from_ns: int

    @property
    def fresh(self) -> Lane: ...


class Budget(Protocol):
    """The budget of exchanges that a node may begin for requests that ask; `reporting.asks.AskBudget` implements it."""

    def take(self, now_ns: int, /) -> bool: ...


class AfterUnlock(Protocol):
    """The part of a node that cells need: flags for work to do when no lock is held, and the budget for asking the hub.

    `node.Node` implements it.
    """

    after_unlock: bool
    wake_wanted: bool

    @property
    def asks(self) -> Budget: ...


class Limited(Protocol):
    """The limit that cells belong to, as a cell sees it. `table.state.LimitState` defines each field.

    It holds data, and two objects whose classes depend on the algorithm: `meter` and `edges`. The work on a cell is
    done by functions that receive the cell, so that no cell calls back into the limit.
    """

    name: str
    limit: Limit
    lock: Lock
    policy: Policy
    unit: int
    quota: int
    nominal: int
    capacity: int
    window_ns: int
    window_s: float
    calendar: CalendarWindows | None
    interval_ns: int
    interval_min_ns: int
    lease_ns: int
    born_ns: int
    need_max: int
    phase: int
    give_back_min: float
    lowered_ns: int
    lowered_from: int
    stepwise: bool
    smooth: bool
    paced: bool
    additive: bool
    keeps_spare: bool
    asks: bool

    @property
    def meter(self) -> ReportedMeter: ...
    @property
    def edges(self) -> TimeOfCells: ...
    @property
    def dated(self) -> object | None: ...
    @property
    def silence_ns(self) -> int: ...
    @property
    def small_allowances(self) -> bool: ...
    @property
    def region_ppm(self) -> int: ...
    @property
    def kernel(self) -> AfterUnlock: ...
    @property
    def tallies(self) -> Sequence[CellTally]: ...


class Headroom:
    """The fields of a cell that the fast path of a decision reads.

    They come first in the object, so each read is one memory access.
    """

    __slots__ = ("room", "until_ns", "used")


class Cell(Headroom):
    """One node's record of one key of one limit: the key's use, its allowances, and the hub's last answer.

    Moments are monotonic nanoseconds, rates are cost per second. The fast path of a decision only tests `used + cost <=
    room` and `now < until_ns`. This test fails at every event that the slow path must handle: the end of a window, an
    empty bucket, a nearly used-up allowance, the first charge since the last report.
    """

    __slots__ = (
        "allowance",
        "arrived",
        "ask",
        "asked",
        "asking_ns",
        "at_hub",
        "back_off_ns",
        "base",
        "before_ns",
        "capacity",
        "charged",
        "comfortable",
        "confirmed",
        "counted",
        "credit",
        "demand",
        "denied",
        "dirty",
        "doubted",
        "due_ns",
        "early_ns",
        "epoch",
        "fleet_demand",
        "fleet_needs",
        "fleet_used",
        "fleet_window",
        "free",
        "free_us",
        "fresh",
        "head_cost",
        "heard_ns",
        "held",
        "history",
        "key",
        "lag_ns",
        "last_demand",
        "late",
        "leaving",
        "level",
        "low_water",
        "lows",
        "marked_ns",
        "measured_ns",
        "need_milli",
        "nodes",
        "opened_ns",
        "others_current",
        "others_previous",
        "overdraft",
        "place",
        "previous",
        "reported_ns",
        "reserved",
        "reset_us",
        "sealed",
        "shard",
        "share",
        "silent",
        "stored",
        "table",
        "touched_ns",
        "unconfirmed",
        "urgent",
        "waiters",
        "waiting",
        "wanted",
        "window_demand",
    )

    def __init__(  # noqa: PLR0915  # a list of all fields
        self, key: str, table: Limited, shard: Shard, now_ns: int
    ) -> None:
        self.key = key
        self.table = table
        self.shard = shard
        self.place = -1
        """The index of the cell in the store of its limit; -1 while the store does not contain the cell."""

        self.used = 0
        """The cost charged by this node in the current window; for a bucket, since `marked_ns`; for a sliding log or
        slices, all cost that still counts."""
        self.room = -1
        """The value up to which the fast path may raise `used`; -1 makes every decision take the slow path."""
        self.until_ns = 0
        """The moment from which on every decision takes the slow path."""

        # The meter.
        self.epoch = -1
        """The number of the window, by the hub's clock."""
        self.opened_ns = 0
        """The moment at which the window `epoch` began."""
        self.lag_ns = 0
        """Twice the possible error, in nanoseconds, of the node's estimate of the hub's clock. Use that fades is
        computed for a moment this much earlier, so that a difference between two nodes' clocks never admits a
        request."""
        self.previous = 0
        """The cost charged by this node in the previous window; only for sliding windows."""
        self.level = 0
        """How full the bucket was at `marked_ns`, in cost times nanoseconds of the window, so that the bucket drains by
        whole numbers; only for buckets."""
        self.marked_ns = now_ns
        self.lows: Lows | None = None
        """The lowest levels of the bucket, kept since the first charge that may be corrected later; None before it."""
        self.history: History | None = None
        """The charges by date, if the limit's charges have dates; otherwise None."""
        self.before_ns = -NEVER_NS
        """When the previous window began, by this node's clock; only if windows begin with the first charge."""
        self.free_us = 0
        """When the previous window ended, in microseconds of the hub's clock; the next window begins no earlier."""
        self.charged = 0
        """The sum of all costs charged since the cell was made."""
        self.reset_us = 0

        # The allowances.
        self.allowance = 0
        self.base = 0
        self.sealed = False
        """Whether `base`, of a fixed window, is a sealed share: what the node may use while the hub is silent."""
        self.overdraft = 0
        self.capacity = table.capacity

        self.at_hub = False
        """Whether, by its last answer, the hub keeps the free part of the limit, and grants this node only what it has
        asked for. Then `allowance` is, for a sliding window, the most that `used` may be in the current window; for a
        bucket, the cost that may be charged in addition to the last answered report."""

        # The hub's last answer.
        self.heard_ns = -NEVER_NS
        self.others_current = 0
        """The cost charged by the other nodes in the current window; for a bucket, the sum of their levels at
        `heard_ns`, in thousandths."""
        self.others_previous = 0
        """The cost charged by the other nodes in the previous window; for a bucket, the level at `heard_ns` of one
        bucket that all reported charges of all nodes had filled."""
        self.silent = 0
        self.free = 0
        self.reserved = 0
        self.nodes = 1
        self.fleet_used = 0.0
        """The cost charged by all nodes that counted at `heard_ns`, plus the unused allowances of nodes that have
        stopped reporting."""
        self.fleet_needs = 0.0
        self.fleet_demand = 0.0
        self.fleet_window = 0
        """The cost of all requests at all nodes in the current window, admitted or not."""
        self.last_demand = 0
        """The cost of all requests at all nodes in the previous window, admitted or not."""

        # The pace, in cost times nanoseconds of the window; paced limits only, but for buckets kept at the hub.
        self.stored = 0
        """The stored permits of a paced limit; for a bucket whose free part the hub keeps, the most that this node can
        give back."""
        self.share = 0
        """The allowance for which `stored` was last computed; for a bucket whose free part the hub keeps, the part of
        `late` in the last report, in thousandths."""
        self.credit = 0
        """For a paced limit, the part of `level` that was charged by requests which had waited in a queue. For any
        other bucket, this node's part of the hub's bucket, as if it drained at the full rate."""
        self.late = 0
        """The capacity that has drained unused because the timers of waiting requests fired late. These requests may
        still use it. For a bucket whose free part the hub keeps, what was given back since the last answered report."""

        # Waiters.
        self.waiters = 0
        self.waiting = 0
        """The cost of all waiting requests together."""
        self.head_cost = 0
        """The cost of the first request that waits, if an allowance for less than its cost would be of no use;
        otherwise 0."""
        self.wanted = 0
        """The value that `charged` will have when all requests have been charged that waited at the last report; 0 if
        none waited then."""
        self.denied = False
        """Whether the hub's last answer granted too little for `wanted`."""

        # The demand on this node.
        self.counted = 0
        """The part of `used` that `measure` has added to the demand already."""
        self.arrived = 0
        """The cost of all requests since `measured_ns`, admitted or not."""
        self.asked = 0
        """The cost of all requests since the last report, admitted or not."""
        self.ask = 0
        """The largest cost of a request that was refused since the last report; 0 if none was refused."""
        self.asking_ns = -NEVER_NS
        """When the last request came that asks the hub if this node is in doubt; see `LimitState.asks`."""
        self.window_demand = 0
        self.demand = 0.0
        self.measured_ns = now_ns
        self.touched_ns = now_ns

        # Reports to the hub, and when the next one is due.
        self.reported_ns = -NEVER_NS
        self.need_milli = 0
        self.held = False
        """Whether the hub may have an allowance or a need of this node for this key in its ledger."""
        self.confirmed: tuple[int, int, int] = (-1, 0, 0)
        """The fields `epoch`, `current` and `previous` of the last report about this cell that the hub has answered."""
        self.unconfirmed = False
        self.fresh = False
        """Whether the cell waits for its first report, see `kernel/newcomers.py`."""
        self.leaving = False
        """Whether the cell will be evicted after its last report is answered, see `kernel/eviction.py`."""
        self.doubted = False
        """Whether the key may have been evicted before (`evicted.py`). If so, the node admits nothing for it before the
        hub's first answer about it."""
        self.dirty = 0
        """The number of the queue in which the cell waits for a report, see `lanes.py`; 0 if it waits in none."""
        self.comfortable = False
        """Whether charges are not reported for a while, see `reporting/silence.py`."""
        self.urgent = False
        self.low_water = 0
        """The headroom, as cost, below which the node asks the hub for a larger allowance."""
        self.early_ns = NEVER_NS
        self.back_off_ns = 0
        self.due_ns = NEVER_NS

    @property
    def heard(self) -> bool:
        """Returns whether the hub has ever answered for this key."""
        return self.heard_ns > -NEVER_NS


class Mark(NamedTuple):
    """A reference to a charge that may be corrected later: its cell, its window, and the number that finds it there."""

    cell: Cell
    epoch: int
    reset_us: int
    look: int
    """For a bucket, how many of its levels `Lows` had stored when the charge was made; for a sliding log or slices, the
    charge's date."""


def measure(cell: Cell) -> None:
    """Adds the cost charged to a key since the last call to the key's demand, and to the sums of its limit."""
    charged = cell.used - cell.counted
    if charged:
        table = cell.table
        tally, requests = table.tallies[cell.shard.index], charged // table.unit
        arrived = min(cell.arrived + charged, DEMAND_MAX)
        # No function is called between these assignments, so that no exception out of a signal handler separates them.
        cell.counted = cell.used
        cell.charged += charged
        tally.charged += requests
        cell.arrived = arrived


def closes_ns(cell: Cell) -> int:
    """Returns the moment at which the key's current window ends, in monotonic nanoseconds."""
    calendar = cell.table.calendar
    if calendar is None:
        return cell.opened_ns + cell.table.window_ns
    return cell.opened_ns + calendar.opens_ns(cell.epoch + 1) - calendar.opens_ns(cell.epoch)


def refilled_ns(cell: Cell, since_ns: int, until_ns: int) -> int:
    """Returns for how many nanoseconds between `since_ns` and `until_ns` the key's bucket has drained.

    A bucket that drains in steps drains for a whole window at each edge of a window between the two moments.
    """
    table = cell.table
    if not table.stepwise:
        return until_ns - since_ns
    edges = (until_ns - cell.opened_ns) // table.window_ns - (since_ns - cell.opened_ns) // table.window_ns
    return max(0, edges) * table.window_ns


def lease_until_ns(cell: Cell) -> int:
    """Returns the moment at which the lease of the key's allowances ends, if the hub answers no batch until then."""
    shard = cell.shard
    return min(shard.lease_until_ns, shard.leased_ns + cell.table.lease_ns)


def usable_allowance(cell: Cell, now_ns: int) -> int:
    """Returns the key's allowance; 0 if its lease has ended, unless the limit's policy goes on using allowances."""
    shard, table = cell.shard, cell.table  # as `lease_until_ns`, but without calls: each refusal runs this
    if now_ns < shard.lease_until_ns and now_ns < shard.leased_ns + table.lease_ns:
        return cell.allowance
    return cell.allowance if table.policy.keeps_allowances else 0


def note_ask(cell: Cell, now_ns: int) -> None:
    """Stores the time of a request that asks the hub if the node is in doubt, but not of a key's first such request."""
    if cell.asking_ns > -NEVER_NS:
        cell.asking_ns = now_ns


def floats(cell: Cell) -> bool:
    """Returns whether the key's allowance bounds only the charges of the current window, not those of the previous one.

    That is so if the hub keeps the free part of the key, and the limit is a sliding window.
    """
    return cell.at_hub and cell.table.meter.fades


def keeps_no_allowance(cell: Cell) -> bool:
    """Returns whether this node keeps no allowance on the key, because the hub keeps the free part of the limit.

    Always False for fixed windows, sliding logs and slices: there the node keeps an allowance for its use, until the
    window ends, or until it reports that the charges have expired.
    """
    return cell.at_hub and (cell.table.meter.fades or cell.table.meter.bucket)


def begins_with_base(cell: Cell) -> bool:
    """Returns whether the node begins the key's next window with an allowance (`base`) of more than 0."""
    return cell.base > 0 and cell.table.meter.aligned and not cell.sealed


def has_share(cell: Cell) -> bool:
    """Returns whether the key's `base` is a sealed share: what the node may use while the hub is silent, not before."""
    return cell.base > 0 and (cell.table.meter.fades or cell.sealed) and not cell.shard.alone


def low_water(table: Limited, headroom: int) -> int:
    """Returns the headroom below which to ask the hub for more: LOW_WATER times `headroom`, at least one request."""
    return max(table.unit, ceil(LOW_WATER * headroom))
