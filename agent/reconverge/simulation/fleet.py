"""A simulated fleet: its settings, its nodes, the limits on each node, and the policies that can be simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import floor
from random import Random
from typing import Final, Protocol

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Batch
from reconverge.kernel import Kernel, LimitInterval, Table
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import quotas_of
from reconverge.policies import POLICIES, Policy, View
from reconverge.settings import MILLION
from reconverge.simulation.asked import LIMIT_NAME, Beside, Plans, SimulatedLimit
from reconverge.simulation.changing import QuotaChange
from reconverge.simulation.judging.accounts import AccountedKernel

LARGER: Final = "simulated@larger"
SMALLER: Final = "simulated@smaller"
"""The name of the quota of the second plan."""
BESIDE: Final = "beside"
"""The name of a second limit that requests charge as well."""
BEGIN_NS: Final = 1_750_000_000 * SECOND_NS
"""The hub's time at the start, about: the first window begins at the next multiple of its length."""
CALENDAR_BEGIN_NS: Final = 1_761_200_000 * SECOND_NS
"""The hub's time at the start for calendar windows: a few days before clocks are set back in Europe, and then in
America."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """Which requests ask the hub in doubt, and for how long they wait for its answer."""

    within_ns: int
    nodes: int | None = None
    """The number of nodes on which requests ask; None for all."""
    share: float = 1.0
    """The fraction of these nodes' requests that ask."""
    cancelled: float = 0.0
    """The fraction of the waiting requests that are cancelled before they are answered."""

    def includes(self, node: int, random: Random) -> bool:
        """Draws whether the next request of a node asks in doubt."""
        if self.nodes is not None and node >= self.nodes:
            return False
        return self.share == 1.0 or random.random() < self.share


@dataclass(frozen=True, slots=True)
class Fleet:
    """The settings of a simulated fleet: those of an agent, and the network's round trip."""

    nodes: int
    limit: Limit
    sync_interval_ns: int
    round_trip_ns: int = 2 * MILLISECOND_NS
    lease_ns: int | None = None
    limit_lease_ns: int | None = None
    """The lease on allowances of the limit's first quota, if that is shorter than the lease on a node's name."""
    timeout_ns: int = SECOND_NS
    """After how long a node gives up an exchange."""
    further: tuple[Limit, ...] = ()
    """More quotas of the same limit."""
    shares: tuple[Limit, ...] = ()
    """Guaranteed shares of the limit; a fleet has either these or `further`."""
    own_interval_ns: int | None = None
    """The sync interval of the limit's first quota, if it has one of its own."""
    regions: int = 1
    """The number of regions, each with a hub of its own; the nodes belong to the regions in turn."""
    region_ppm: int = MILLION
    """The part of every capacity that each region has by itself, in millionths."""
    asks: AskSettings | None = None
    """The settings of requests that ask; None if memory decides in doubt."""
    plans: Plans | None = None
    """The plans between which keys change; None if all keys always have the limit's quota."""
    beside: Beside | None = None
    """Another limit that each request is charged to at the same moment, by another key. Only with a single quota."""
    changes: tuple[QuotaChange, ...] = ()
    """Changes of the limit's first quota, in order of time."""
    keys_max: int = 1_000_000
    """So many keys are counted on a node; a case in which there are more than that evicts some."""

    @property
    def shortest_interval_ns(self) -> int:
        """Returns the shortest time between an exchange and one ahead of time: an agent's default."""
        return _shortest_ns(self.sync_interval_ns)

    @property
    def longest_interval_ns(self) -> int:
        """Returns the time after which all counts have been reported, if there are no faults."""
        return max(self.sync_interval_ns, self.own_interval_ns or 0)

    @property
    def heard_within_ns(self) -> int:
        """Returns how long it takes, without faults, until the hub has answered a node about a new key."""
        return self.longest_interval_ns + self.timeout_ns + 5 * self.round_trip_ns

    @property
    def quotas(self) -> dict[str, Limit]:
        """Returns all quotas that a request has to keep to, by name."""
        beside = {} if self.beside is None else {BESIDE: self.beside.limit}
        return quotas_of(LIMIT_NAME, (self.limit, *self.further)) | beside

    @property
    def longest_window_ns(self) -> int:
        """Returns the longest window of all quotas, in nanoseconds."""
        return max(limit.window_ns for limit in self.quotas.values())

    @property
    def begin_ns(self) -> int:
        """Returns the hub's time at the beginning of a run.

        A window of every quota begins then, if longer ones are multiples.
        """
        calendar = self.limit.calendar
        if calendar is not None:
            return calendar.opens_ns(calendar.number(CALENDAR_BEGIN_NS) + 1)
        return -(-BEGIN_NS // self.longest_window_ns) * self.longest_window_ns

    def declare(self, kernel: Kernel, policy: Policy, index: int = 0) -> SimulatedLimit:
        """Declares the limit on the node of that number. Returns it."""
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
    """Returns the rest that the other nodes are expected to leave, at the rate at which they were last seen to use it.

    As in token buckets that predict their peers. Over-admits when traffic changes faster than exchanges; in a partition
    the expectation becomes outdated. For comparison only.
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
    """The time of the simulation: nanoseconds since its beginning, and the wall time of the beginning."""

    @property
    def now_ns(self) -> int:
        """Returns the nanoseconds since the beginning."""
        ...

    @property
    def begin_ns(self) -> int:
        """Returns the wall time of the beginning."""
        ...


class NodeClock:
    """One node's clocks: the simulation's time, and a wall clock of its own that may be wrong."""

    __slots__ = ("ahead_ns", "world")

    def __init__(self, world: Moment, ahead_ns: int) -> None:
        self.world = world
        self.ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return self.world.now_ns

    def wall_ns(self) -> int:
        return self.world.begin_ns + self.world.now_ns + self.ahead_ns


class FleetMember:
    """One node, and its exchange that is under way."""

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
        """Whether the node is sending its last report; requests do not come to it any more."""
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.woken = False

    @property
    def serves(self) -> bool:
        """Whether requests come to this node."""
        return self.alive and not self.stopping

    @property
    def table(self) -> Table:
        """Returns the table of the first quota."""
        return self.asked.tables[0]
