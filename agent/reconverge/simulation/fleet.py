"""A simulated fleet: its settings, its nodes, what each is asked about, and the policies that it can be run with."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import floor
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Batch
from reconverge.kernel import Decider, Kernel, Pace, ShareLimit, Table, Verdict
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import quotas_of
from reconverge.limiter.asking import Asking
from reconverge.policies import POLICIES, Policy, View
from reconverge.settings import MILLION
from reconverge.simulation.changing import QuotaChange

if TYPE_CHECKING:
    from reconverge.limiter.queue import Waker

Judged: TypeAlias = tuple[str, Sequence[Verdict]]
"""The key that a request counts for, and a verdict for each quota that is judged."""

LIMIT_NAME: Final = "simulated"
LARGER: Final = "simulated@larger"
SMALLER: Final = "simulated@smaller"
"""The same limit with the quotas of two plans."""
SHARED_KEY: Final = "shared"
"""The one key of all shares; a request's own key says of which share it is, by the number in it."""
BEGIN_NS: Final = 1_750_000_000 * SECOND_NS
"""About the hub's time at the start; the first window begins at the next multiple of its length."""
CALENDAR_BEGIN_NS: Final = 1_761_200_000 * SECOND_NS
"""The same for windows of a calendar: a few days before clocks are set back in Europe, and then in America."""


@dataclass(frozen=True, slots=True)
class Asks:
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
class Plans:
    """A smaller quota, which each key has at times; nodes hear of the changes one after the other."""

    smaller: Limit
    period_ns: int
    """A key may change plans so often."""
    spread_ns: int
    """So much later than the first node the last one knows."""

    def on_smaller(self, key: str, lag: float, now_ns: int) -> bool:
        """Whether a node takes the key to have the smaller quota; `lag` is how late the node is, up to 1."""
        number = (now_ns - int(lag * self.spread_ns)) // self.period_ns
        return bool(Random(f"{key} {number}").getrandbits(1))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The settings of a simulated fleet. The same as an agent's, and the network's round trip."""

    nodes: int
    limit: Limit
    sync_interval_ns: int
    round_trip_ns: int = 2 * MILLISECOND_NS
    lease_ns: int | None = None
    limit_lease_ns: int | None = None
    """On lines of the limit's first quota, if that is shorter than the lease on a node's name."""
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
    asks: Asks | None = None
    """None where memory decides in doubt."""
    plans: Plans | None = None
    """None where all keys have the limit's quota all the time."""
    changes: tuple[QuotaChange, ...] = ()
    """Of the limit's first quota, in their order."""

    @property
    def shortest_interval_ns(self) -> int:
        """How long at least between an exchange and one ahead of time: an agent's default."""
        return _shortest_ns(self.sync_interval_ns)

    @property
    def longest_interval_ns(self) -> int:
        """After which whatever was counted has been said, if all goes well."""
        return max(self.sync_interval_ns, self.own_interval_ns or 0)

    @property
    def quotas(self) -> dict[str, Limit]:
        """All quotas of the limit, by name."""
        return quotas_of(LIMIT_NAME, (self.limit, *self.further))

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

    def declare(self, kernel: Kernel, policy: Policy, index: int = 0) -> Asked:
        """Declare the limit on the node of that number."""
        composites = kernel.composites
        if not self.shares:
            if self.plans is None:
                asked = Asked(composites.declare(LIMIT_NAME, self.quotas, policy), ())
            else:
                larger = kernel.tier(LARGER, self.limit, policy, reported_as=LIMIT_NAME)
                asked = Asked(larger, ())
                smaller = kernel.tier(SMALLER, self.plans.smaller, policy, reported_as=LIMIT_NAME)
                asked.have_plans(smaller, self.plans, index / self.nodes)
            if self.limit_lease_ns is not None:
                asked.tables[0].take_lease(self.limit_lease_ns)
            if self.own_interval_ns is not None:
                pace = Pace(self.own_interval_ns, _shortest_ns(self.own_interval_ns))
                kernel.change_own_pace(asked.tables[:1], pace)
            return asked
        parent = kernel.declare(LIMIT_NAME, self.limit, policy)
        named = {f"{LIMIT_NAME}-share-{number}": share for number, share in enumerate(self.shares)}
        return Asked(parent, [composites.share(name, share, policy, parent=parent) for name, share in named.items()])


class Asked:
    """A limit on one simulated node: with one quota, with several, or dealt out in shares."""

    def __init__(self, limit: Decider, shares: Sequence[ShareLimit]) -> None:
        self._limit = limit
        self._shares = shares
        self._asking = [Asking(each) for each in shares or (limit,)]
        self._plans: Plans | None = None
        self.tables: tuple[Table, ...] = (*limit.tables, *(share.tables[0] for share in shares))

    def have_plans(self, smaller: Table, plans: Plans, lag: float) -> None:
        """Have keys change between the limit's quota and a smaller one; `lag` is how late this node is, up to 1."""
        self._plans, self._lag = plans, lag
        self._smaller, self._smaller_asking = smaller, Asking(smaller)
        self.tables = (*self.tables, smaller)

    def change(self, limit: Limit) -> None:
        """Have the first quota be another one."""
        self.tables[0].change(limit)
        self._limit.take_note()

    def decide(self, key: str, cost: int, now_ns: int) -> Judged:
        """The key that is asked about, and a verdict for each quota that is judged."""
        limit, key, _ = self._of(key)
        verdicts = limit.decide(key, cost, now_ns)
        if isinstance(verdicts, Verdict):
            return key, (verdicts,)
        return key, verdicts[-1:] if limit.is_share else verdicts

    def ask(self, key: str, cost: int, within_ns: int, waker: Waker) -> Generator[int, None, Judged]:
        """The same about a request that asks in doubt, as `Limiter.ask` does; yields for how long to sleep."""
        limit, key, asking = self._of(key)
        request = asking.request(key, cost, None, within_ns)
        settled = asking.at_once(request)
        if settled is None:
            settled = yield from asking.steps(request, waker)
        # No time passes between the charge and this look at where it was put.
        now_ns, decision = self.tables[0].now_ns(), settled.decision
        places = limit.tables
        if limit.is_share:
            places = places[:1] if decision.allowed and not decision.borrowed else places[-1:]
        return key, [table.observe(key, now_ns)._replace(allowed=decision.allowed) for table in places]

    def _of(self, key: str) -> tuple[Decider, str, Asking]:
        """The limit that is asked, about which key, and how requests ask there."""
        if self._plans is not None and self._plans.on_smaller(key, self._lag, self.tables[0].now_ns()):
            return self._smaller, key, self._smaller_asking
        if not self._shares:
            return self._limit, key, self._asking[0]
        number = int("".join(filter(str.isdigit, key)) or 0) % len(self._shares)
        return self._shares[number], SHARED_KEY, self._asking[number]


def _shortest_ns(interval_ns: int) -> int:
    return min(max(interval_ns // 10, 5 * MILLISECOND_NS), interval_ns)


def predictive(view: View) -> int:
    """Whatever the others are not expected to have used by now, at the pace at which they were last seen to use it.

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
    "predictive", predictive, max_overshoot=math.inf, cold_allowance=1.0, keeps_lines=True, merged_only=True
)

COMPARED: Final = {**POLICIES, PREDICTIVE.name: PREDICTIVE}
"""Every policy that a simulation can run, ours and others'."""


class Moment(Protocol):
    """What a node's clock is told by: the simulated time since the beginning, and when that was."""

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
        """See `Clock.monotonic_ns`."""
        return self.world.now_ns

    def wall_ns(self) -> int:
        """See `Clock.wall_ns`."""
        return self.world.begin_ns + self.world.now_ns + self.ahead_ns


class Member:
    """One node, and what it has under way."""

    __slots__ = ("alive", "asked", "batch", "clock", "due_ns", "index", "kernel", "sent_ns", "syncer", "woken")

    kernel: Kernel
    asked: Asked
    syncer: Syncer

    def __init__(self, index: int, clock: NodeClock) -> None:
        self.index = index
        self.clock = clock
        self.alive = False
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.woken = False

    @property
    def table(self) -> Table:
        """Of the first quota."""
        return self.asked.tables[0]
