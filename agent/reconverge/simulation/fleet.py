"""A simulated fleet: its settings, its nodes, what each is asked about, and the policies that it can be run with."""

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
"""The same limit with the quotas of two plans."""
BESIDE: Final = "beside"
"""Another limit, which requests have to keep to as well."""
BEGIN_NS: Final = 1_750_000_000 * SECOND_NS
"""About the hub's time at the start; the first window begins at the next multiple of its length."""
CALENDAR_BEGIN_NS: Final = 1_761_200_000 * SECOND_NS
"""The same for windows of a calendar: a few days before clocks are set back in Europe, and then in America."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """Which requests ask the hub in doubt, and for how long they wait for its answer."""

    within_ns: int
    nodes: int | None = None
    """So many nodes know asking, the first of them; None for all."""
    share: float = 1.0
    """So many requests of those nodes may wait; the others never do."""
    cancelled: float = 0.0
    """So many of those that wait are cancelled meanwhile."""

    def includes(self, node: int, random: Random) -> bool:
        """Whether the next request of a node asks in doubt."""
        if self.nodes is not None and node >= self.nodes:
            return False
        return self.share == 1.0 or random.random() < self.share


@dataclass(frozen=True, slots=True)
class Fleet:
    """The settings of a simulated fleet. The same as an agent's, and the network's round trip."""

    nodes: int
    limit: Limit
    sync_interval_ns: int
    round_trip_ns: int = 2 * MILLISECOND_NS
    lease_ns: int | None = None
    limit_lease_ns: int | None = None
    """On allowances of the limit's first quota, if that is shorter than the lease on a node's name."""
    timeout_ns: int = SECOND_NS
    """After how long a node gives up an exchange."""
    further: tuple[Limit, ...] = ()
    """More quotas of the same limit."""
    shares: tuple[Limit, ...] = ()
    """Guaranteed shares of the limit; it has one or the other."""
    own_interval_ns: int | None = None
    """At which the limit's first quota is exchanged, if not as all else."""
    regions: int = 1
    """Each with a hub of its own; the nodes belong to one after the other in turn."""
    region_ppm: int = MILLION
    """The part of every capacity that each region has by itself, in millionths."""
    asks: AskSettings | None = None
    """None where memory decides in doubt."""
    plans: Plans | None = None
    """None where all keys have the limit's quota all the time."""
    beside: Beside | None = None
    """Another limit that each request has to keep to in the same moment, by another key. Only with a single quota."""
    changes: tuple[QuotaChange, ...] = ()
    """Of the limit's first quota, in their order."""

    @property
    def shortest_interval_ns(self) -> int:
        """How long at least between an exchange and one ahead of time: an agent's default."""
        return _shortest_ns(self.sync_interval_ns)

    @property
    def longest_interval_ns(self) -> int:
        """After which all counts have been reported, if all goes well."""
        return max(self.sync_interval_ns, self.own_interval_ns or 0)

    @property
    def heard_within_ns(self) -> int:
        """After which a node has heard of a key that it was asked about, if all goes well."""
        return self.longest_interval_ns + self.timeout_ns + 5 * self.round_trip_ns

    @property
    def quotas(self) -> dict[str, Limit]:
        """All quotas that a request has to keep to, by name."""
        beside = {} if self.beside is None else {BESIDE: self.beside.limit}
        return quotas_of(LIMIT_NAME, (self.limit, *self.further)) | beside

    @property
    def longest_window_ns(self) -> int:
        """Of all quotas."""
        return max(limit.window_ns for limit in self.quotas.values())

    @property
    def begin_ns(self) -> int:
        """When a run begins by the hub's clock: with a window of every quota, if the longer ones are multiples."""
        calendar = self.limit.calendar
        if calendar is not None:
            return calendar.opens_ns(calendar.number(CALENDAR_BEGIN_NS) + 1)
        return -(-BEGIN_NS // self.longest_window_ns) * self.longest_window_ns

    def declare(self, kernel: Kernel, policy: Policy, index: int = 0) -> SimulatedLimit:
        """Declare the limit on the node of that number."""
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
    """Spends the others' expected rest, at the pace at which they were last seen to use theirs.

    As token buckets do it that predict their peers. Over-admits when traffic changes faster than exchanges; in a
    partition the expectation grows old. For comparison only.
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
"""Every policy that a simulation can run, ours and others'."""


class Moment(Protocol):
    """The time of a node's clock: the simulated time since the beginning, and when that was."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the beginning."""
        ...

    @property
    def begin_ns(self) -> int:
        """The beginning, as wall clocks had it."""
        ...


class NodeClock:
    """One node's clocks: the world's time, and a wall clock of its own."""

    __slots__ = ("ahead_ns", "world")

    def __init__(self, world: Moment, ahead_ns: int) -> None:
        self.world = world
        self.ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return self.world.now_ns

    def wall_ns(self) -> int:
        return self.world.begin_ns + self.world.now_ns + self.ahead_ns


class FleetMember:
    """One node, and what it has under way."""

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
        """It sends its last words; no request comes to it any more."""
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.woken = False

    @property
    def serves(self) -> bool:
        """Whether requests come to it."""
        return self.alive and not self.stopping

    @property
    def table(self) -> Table:
        """Of the first quota."""
        return self.asked.tables[0]
