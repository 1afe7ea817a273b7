"""A simulated fleet: its settings, its nodes, the limits on each node, and the policies that can be simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import floor
from random import Random
from typing import Final, Protocol

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.hub.headroom import SILENCE_MAX_S, longest_silence
from reconverge.hub.report import Batch
from reconverge.kernel import Kernel, LimitInterval, Table
from reconverge.kernel.reporting.silence import GRID_PARTS
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import quotas_of
from reconverge.policies import POLICIES, Policy, View
from reconverge.settings import MILLION
from reconverge.simulation.asked import LIMIT_NAME, Beside, Plans, SimulatedLimit
from reconverge.simulation.changing import QuotaChange
from reconverge.simulation.judging.accounts import AccountedKernel

LARGER: Final = "simulated@larger"
SMALLER: Final = "simulated@smaller"
"""The name of the quota that keys on the smaller plan have."""
BESIDE: Final = "beside"
"""The name of the second limit to which requests are charged as well."""
BEGIN_NS: Final = 1_750_000_000 * SECOND_NS
"""The hub's time at the start of a run, in nanoseconds, before it is rounded up to the beginning of a window."""
CALENDAR_BEGIN_NS: Final = 1_761_200_000 * SECOND_NS
"""The hub's time at the start of a run with calendar windows: a few days before clocks are set back in Europe, and then
in America."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """The settings of requests that ask the hub in doubt: which requests ask, and how long they wait for its answer."""

    within_ns: int
    nodes: int | None = None
    """The number of nodes on which requests ask; None for all."""
    share: float = 1.0
    """The fraction of the requests on these nodes that ask."""
    cancelled: float = 0.0
    """The fraction of the waiting requests that are cancelled before they are answered."""

    def includes(self, node: int, random: Random) -> bool:
        """Draws whether the next request on `node` asks the hub in doubt."""
        if self.nodes is not None and node >= self.nodes:
            return False
        return self.share == 1.0 or random.random() < self.share


@dataclass(frozen=True, slots=True)
class Fleet:
    """The settings of a simulated fleet: the settings of its agents, and the network's round trip."""

    nodes: int
    limit: Limit
    sync_interval_ns: int
    round_trip_ns: int = 2 * MILLISECOND_NS
    lease_ns: int | None = None
    limit_lease_ns: int | None = None
    """The lease on allowances of the limit's first quota; None if it is the lease on a node's name, which is longer."""
    timeout_ns: int = SECOND_NS
    """The time, in nanoseconds, for which a node waits for the hub's answer before it gives up the exchange."""
    further: tuple[Limit, ...] = ()
    """The limit's quotas after the first."""
    shares: tuple[Limit, ...] = ()
    """The guaranteed shares of the limit; a fleet has `shares` or `further`, never both."""
    own_interval_ns: int | None = None
    """The sync interval of the limit's first quota; None if it is the fleet's."""
    regions: int = 1
    """The number of regions, each with a hub of its own; node i belongs to region i modulo this number."""
    region_ppm: int = MILLION
    """The part of every capacity that each region has without borrowing, in millionths."""
    asks: AskSettings | None = None
    """The settings of requests that ask the hub in doubt; None if nodes decide all requests from memory."""
    plans: Plans | None = None
    """The two quotas between which keys change; None if all keys always have the limit's quota."""
    beside: Beside | None = None
    """A second limit, to which each request is charged at the same moment, by another key; None for no such limit. Only
    with a single quota."""
    changes: tuple[QuotaChange, ...] = ()
    """Changes of the limit's first quota, in order of time."""
    keys_max: int = 1_000_000
    """The number of keys for which a node has room; in a case with more keys, nodes evict some."""
    max_silence_ns: int = SILENCE_MAX_S * SECOND_NS
    """The agents' setting `max_silence`, in nanoseconds; 0 if nodes report each charge within an interval."""

    @property
    def shortest_interval_ns(self) -> int:
        """Returns the shortest time, in ns, after which a node may exchange ahead of its interval, as in an agent."""
        return _shortest_ns(self.sync_interval_ns)

    @property
    def longest_interval_ns(self) -> int:
        """Returns the time, in nanoseconds, within which a node that is not silent reports each of its counts."""
        return max(self.sync_interval_ns, self.own_interval_ns or 0)

    @property
    def longest_silence_ns(self) -> int:
        """Returns the longest time, in nanoseconds, for which nodes leave charges on a key unreported."""
        interval_ns = min(self.sync_interval_ns, self.own_interval_ns or self.sync_interval_ns)
        silence_ns = max(
            longest_silence(limit.window_ns, interval_ns, self.max_silence_ns) for limit in self.quotas.values()
        )
        return silence_ns + silence_ns // GRID_PARTS

    @property
    def heard_within_ns(self) -> int:
        """Returns the longest time, without faults, until a node has the hub's first answer about a new key."""
        return self.longest_interval_ns + self.timeout_ns + 5 * self.round_trip_ns

    @property
    def quotas(self) -> dict[str, Limit]:
        """Returns all quotas that each request must keep, by name, with that of the second limit if there is one."""
        beside = {} if self.beside is None else {BESIDE: self.beside.limit}
        return quotas_of(LIMIT_NAME, (self.limit, *self.further)) | beside

    @property
    def longest_window_ns(self) -> int:
        """Returns the length of the longest window among all quotas, in nanoseconds."""
        return max(limit.window_ns for limit in self.quotas.values())

    @property
    def begin_ns(self) -> int:
        """Returns the hub's time at the beginning of a run, in nanoseconds since the epoch.

        At this time a window of every quota begins, if the longer windows are multiples of the shorter ones.
        """
        calendar = self.limit.calendar
        if calendar is not None:
            return calendar.opens_ns(calendar.number(CALENDAR_BEGIN_NS) + 1)
        return -(-BEGIN_NS // self.longest_window_ns) * self.longest_window_ns

    def declare(self, kernel: Kernel, policy: Policy, index: int = 0) -> SimulatedLimit:
        """Declares the limit, with its further quotas, shares or plans, in the kernel of node `index`; returns it."""
        composites = kernel.composites
        if not self.shares:
            if self.plans is None:
                named = quotas_of(LIMIT_NAME, (self.limit, *self.further))
                asked = SimulatedLimit(composites.declare(LIMIT_NAME, named, policy))
            else:
                larger = kernel.tier(LARGER, self.limit, policy, reported_as=LIMIT_NAME)
                asked = SimulatedLimit(larger)
                smaller = kernel.tier(SMALLER, self.plans.smaller, policy, reported_as=LIMIT_NAME)
                asked.have_plans(smaller, self.plans, index / self.nodes)
            if self.beside is not None:
                asked.have_beside(kernel.declare(BESIDE, self.beside.limit, policy), self.beside)
            if self.limit_lease_ns is not None:
                asked.tables[0].take_lease(self.limit_lease_ns)
            if self.own_interval_ns is not None:
                pace = LimitInterval(self.own_interval_ns, _shortest_ns(self.own_interval_ns))
                kernel.change_own_pace(asked.tables[:1], pace)
            return asked
        parent = kernel.declare(LIMIT_NAME, self.limit, policy)
        named = {f"{LIMIT_NAME}-share-{number}": share for number, share in enumerate(self.shares)}
        return SimulatedLimit(
            parent, [composites.share(name, share, policy, parent=parent) for name, share in named.items()]
        )


def _shortest_ns(interval_ns: int) -> int:
    return min(max(interval_ns // 10, 5 * MILLISECOND_NS), interval_ns)


def predictive(view: View) -> int:
    """Returns the cost left to this node if the other nodes go on at the rate of use that the hub last reported.

    Token buckets that predict their peers decide like this. It over-admits when traffic changes faster than nodes
    exchange, and in a partition its prediction becomes outdated. For comparison only.
    """
    if view.aligned:
        seen_ns = view.passed_ns - view.staleness_ns
        pace = view.heard / seen_ns if seen_ns > 0 else 0.0
    else:
        pace = min(max(0.0, view.demand - view.own_demand) / SECOND_NS, view.quota / view.window_ns)
    return floor(view.capacity - view.heard - pace * (view.staleness_ns + view.interval_ns // 2))


PREDICTIVE: Final = Policy(
    "predictive", predictive, max_overshoot=math.inf, cold_allowance=1.0, keeps_allowances=True, merged_only=True
)

COMPARED: Final = {**POLICIES, PREDICTIVE.name: PREDICTIVE}
"""Every policy that a simulation can run: those of reconverge, and others for comparison."""


class Moment(Protocol):
    """A simulation's clock: nanoseconds since its beginning, and the hub's wall time at the beginning."""

    @property
    def now_ns(self) -> int:
        """Returns the nanoseconds since the simulation's beginning."""
        ...

    @property
    def begin_ns(self) -> int:
        """Returns the hub's wall time at the simulation's beginning, in nanoseconds since the epoch."""
        ...


class NodeClock:
    """One node's clocks: a monotonic clock that keeps the simulation's time, and a wall clock that may be wrong."""

    __slots__ = ("ahead_ns", "world")

    def __init__(self, world: Moment, ahead_ns: int) -> None:
        self.world = world
        self.ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return self.world.now_ns

    def wall_ns(self) -> int:
        return self.world.begin_ns + self.world.now_ns + self.ahead_ns


class FleetMember:
    """One node of a simulated fleet, with the exchange with the hub that it has under way, if any."""

    __slots__ = (
        "alive", "asked", "batch", "clock", "due_ns", "index", "kernel", "sent_ns", "stopping", "syncer", "woken",
    )  # fmt: skip

    kernel: AccountedKernel
    asked: SimulatedLimit
    syncer: Syncer

    def __init__(self, index: int, clock: NodeClock) -> None:
        self.index = index
        self.clock = clock
        self.alive = False
        self.stopping = False
        """Whether the node is sending its last report; the world gives it no more requests."""
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.woken = False

    @property
    def serves(self) -> bool:
        """Whether the node gets requests: it runs, and is not stopping."""
        return self.alive and not self.stopping

    @property
    def table(self) -> Table:
        """Returns the table of the limit's first quota on this node."""
        return self.asked.tables[0]
