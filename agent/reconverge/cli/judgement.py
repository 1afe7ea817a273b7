"""Judges a run by what every node did: by how much the limit was exceeded, and what a central limiter would have done.

Every charge counts in the window and at the time of the hub's clock that its own node put it in, so a run is judged by
the rule that the nodes had to keep. Excess is floored to whole units of cost.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from reconverge.agent import Agent
from reconverge.cli.fleet import Outcome
from reconverge.cli.worker import LIMIT_NAME
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.errors import CostExceedsQuota
from reconverge.kernel import Table
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import POLICIES, Policy

PERCENT: Final = 100.0

Place = tuple[str, int]
"""A key and one of its windows."""


class Charge(NamedTuple):
    """Something that was charged."""

    key: str
    epoch: int
    hub_ns: int
    cost: int
    settling: bool
    """Not admitted, but what an admitted request turned out to cost on top."""


class Arrival(NamedTuple):
    """A request as it reached some node."""

    hub_ns: int
    number: int
    key: str
    epoch: int
    cost: int
    settle: int
    node: int
    allowed: bool
    known: bool
    """The node had heard of the key before."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The figures of one policy in one run. Percentages are of the limit, unless the name says otherwise."""

    policy: str
    requests: int
    admitted: int
    refused: int
    ideal_admitted: int
    """What a central limiter would have admitted of the same arrivals."""
    over_admission_max_pct: float
    over_admission_mean_pct: float
    """Over all windows of all keys in which anything was asked for."""
    under_admission_pct: float
    """Cost that the central limiter admits and the fleet did not, window by window, as a share of the former."""
    bound_pct: float
    """The declared bound that applies to the worst window."""
    known_over_admission_max_pct: float
    """The same for keys that no node had met for the first time just then."""
    known_bound_pct: float
    """The declared bound of such keys."""
    bound_violations: int
    """Windows that exceeded the bound that applied to them."""
    hub_total: int
    admitted_cost: int
    """Cost admitted, and what settling added."""
    debt_max_pct: float
    """By how much settling raised the use of a window beyond the limit."""
    decision_p50_ns: int
    decision_p99_ns: int
    decisions_per_s_per_node: float
    """Decisions made in the run, not the most that could be made."""
    sync_messages: int
    failures: dict[str, int]
    """Exchanges that failed, by class."""

    @property
    def hub_total_equals_admitted(self) -> bool:
        """Whether nothing was lost and nothing doubled."""
        return self.hub_total == self.admitted_cost

    @property
    def kept(self) -> bool:
        """Whether all promises were kept: the bound in every window, and the total in the end."""
        return self.bound_violations == 0 and self.hub_total_equals_admitted

    def as_json(self) -> dict[str, object]:
        """All figures by name."""
        figures: dict[str, object] = asdict(self)
        return figures | {"hub_total_equals_admitted": self.hub_total_equals_admitted}


def judge(outcome: Outcome) -> list[Judgement]:
    """The figures of every policy of a run."""
    return [_judge_policy(outcome, number, POLICIES[name]) for number, name in enumerate(outcome.setup.policies)]


def arrivals_of(outcome: Outcome, policy_number: int) -> list[Arrival]:
    """All requests in the order in which they were decided under one policy."""
    arrivals = []
    for node, hand in enumerate(outcome.hands):
        history = outcome.histories[node][policy_number]
        for index, number in enumerate(hand):
            request = outcome.setup.requests[number]
            arrivals.append(
                Arrival(
                    hub_ns=history.hub_ns[index],
                    number=number,
                    key=request.key,
                    epoch=history.epoch[index],
                    cost=request.cost,
                    settle=request.settle,
                    node=node,
                    allowed=bool(history.allowed[index]),
                    known=bool(history.known[index]),
                )
            )
    return sorted(arrivals)


def excess_by_place(limit: Limit, charges: Iterable[Charge], *, settling: bool) -> dict[Place, int]:
    """By how much the limit was exceeded at worst in each window of each key, in whole cost; only where it was.

    `settling` says whether what settling added counts as use.
    """
    by_key: defaultdict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        if settling or not charge.settling:
            by_key[charge.key].append(charge)
    peaks: defaultdict[Place, int] = defaultdict(int)
    for key, of_key in by_key.items():
        of_key.sort(key=lambda charge: (charge.hub_ns if limit.bucket else charge.epoch, charge.hub_ns))
        use = _bucket_use(limit, of_key) if limit.bucket else _window_use(limit, of_key)
        for charge, used in zip(of_key, use, strict=True):
            excess = math.floor(used) - limit.capacity
            if excess > 0:
                peaks[key, charge.epoch] = max(peaks[key, charge.epoch], excess)
    return dict(peaks)


def _window_use(limit: Limit, charges: list[Charge]) -> Iterable[float]:
    """What counts after each charge, in windows; of sliding ones the part of the last that is still covered, too."""
    totals: defaultdict[int, int] = defaultdict(int)
    for charge in charges:
        totals[charge.epoch] += charge.cost
    so_far: defaultdict[int, int] = defaultdict(int)
    for charge in charges:
        so_far[charge.epoch] += charge.cost
        before = 0 if limit.algorithm == FIXED_WINDOW else totals[charge.epoch - 1]
        passed_ns = min(max(charge.hub_ns - charge.epoch * limit.window_ns, 0), limit.window_ns)
        # Whole numbers, as a float could round a fraction of a unit up to the next.
        yield so_far[charge.epoch] + before * (limit.window_ns - passed_ns) // limit.window_ns


def _bucket_use(limit: Limit, charges: list[Charge]) -> Iterable[float]:
    """How full the bucket is after each charge."""
    level = marked_ns = 0
    for charge in charges:
        level = max(0, level - (charge.hub_ns - marked_ns) * limit.quota) + charge.cost * limit.window_ns
        marked_ns = charge.hub_ns
        yield level // limit.window_ns


def _judge_policy(outcome: Outcome, policy_number: int, policy: Policy) -> Judgement:
    limit = outcome.setup.limit
    arrivals = arrivals_of(outcome, policy_number)
    charges = _charges(outcome, policy_number, arrivals)
    places = {(arrival.key, arrival.epoch) for arrival in arrivals}
    excess = excess_by_place(limit, charges, settling=False)
    with_settling = excess_by_place(limit, charges, settling=True)
    bounds = Bounds(limit, policy, outcome.setup.nodes, arrivals)
    broken = [place for place, over in excess.items() if over > bounds.of(place)]
    worst = max(broken or excess, key=lambda place: excess[place], default=None)
    known_excess = max((over for place, over in excess.items() if not bounds.cold(place)), default=0)
    histories = [histories[policy_number] for histories in outcome.histories]
    decision_ns = sorted(_joined(history.decision_ns for history in histories))
    settle_ns = round(outcome.setup.settle_after_s / outcome.setup.speed * SECOND_NS)
    ideal, ideal_count = ideal_admissions(limit, arrivals, settle_after_ns=settle_ns)
    admitted: defaultdict[Place, int] = defaultdict(int)
    for arrival in arrivals:
        admitted[arrival.key, arrival.epoch] += arrival.cost if arrival.allowed else 0
    missed = sum(max(0, cost - admitted[place]) for place, cost in ideal.items())
    admitted_count = sum(arrival.allowed for arrival in arrivals)
    failures: defaultdict[str, int] = defaultdict(int)
    for history in histories:
        for kind, count in history.failures.items():
            failures[kind] += count
    return Judgement(
        policy=policy.name,
        requests=len(arrivals),
        admitted=admitted_count,
        refused=len(arrivals) - admitted_count,
        ideal_admitted=ideal_count,
        over_admission_max_pct=_percent(max(excess.values(), default=0), limit.capacity),
        over_admission_mean_pct=_percent(sum(excess.values()) / len(places), limit.capacity),
        under_admission_pct=_percent(missed, max(1, sum(ideal.values()))),
        bound_pct=_percent(bounds.of(worst), limit.capacity),
        known_over_admission_max_pct=_percent(known_excess, limit.capacity),
        known_bound_pct=_percent(bounds.of(None), limit.capacity),
        bound_violations=len(broken),
        hub_total=outcome.hub_totals[policy_number],
        admitted_cost=sum(charge.cost for charge in charges),
        debt_max_pct=_percent(
            max((over - excess.get(place, 0) for place, over in with_settling.items()), default=0), limit.capacity
        ),
        decision_p50_ns=decision_ns[len(decision_ns) // 2],
        decision_p99_ns=decision_ns[len(decision_ns) * 99 // 100],
        decisions_per_s_per_node=round(len(arrivals) / outcome.setup.nodes / max(1e-9, _span_s(arrivals)), 1),
        sync_messages=sum(history.exchanges for history in histories),
        failures=dict(failures),
    )


class Bounds:
    """The declared bound of each window: larger where nodes met a key that was new to them."""

    def __init__(self, limit: Limit, policy: Policy, nodes: int, arrivals: list[Arrival]) -> None:
        cost_max = max((arrival.cost for arrival in arrivals if arrival.allowed), default=1)
        self._warm = policy.bound(limit.capacity, nodes, cost_max)
        self._cold_share = policy.cold_allowance * limit.capacity
        self._cold: defaultdict[Place, set[int]] = defaultdict(set)
        lasting = 0 if limit.algorithm == FIXED_WINDOW else 1
        if limit.bucket:
            lasting += math.ceil(limit.capacity * (nodes + 1) / limit.quota)  # until such a fill has drained
        for arrival in arrivals:
            if arrival.allowed and not arrival.known:
                for epoch in range(arrival.epoch, arrival.epoch + lasting + 1):
                    self._cold[arrival.key, epoch].add(arrival.node)

    def cold(self, place: Place) -> int:
        """How many nodes admitted something before they had heard of the key, as far as it still counts."""
        return len(self._cold.get(place, ()))

    def of(self, place: Place | None) -> float:
        """The bound, in cost above the capacity; without a place, that of a key known on all nodes."""
        return self._warm + (0 if place is None else self.cold(place) * self._cold_share)


def ideal_admissions(limit: Limit, arrivals: list[Arrival], *, settle_after_ns: int) -> tuple[dict[Place, int], int]:
    """The cost that a central limiter admits of the same arrivals, by window, and the number of requests."""
    clock = ManualClock()
    keys = len({arrival.key for arrival in arrivals})
    central = Agent("memory://", clock=clock, max_keys=keys + 1).limit(LIMIT_NAME, limit).table
    admitted: defaultdict[Place, int] = defaultdict(int)
    count = 0
    over: list[tuple[int, int, Arrival]] = []
    for arrival in arrivals:
        while over and over[0][0] <= arrival.hub_ns:
            _settle(clock, central, heapq.heappop(over))
        clock.advance_ns(max(0, arrival.hub_ns - clock.monotonic_ns()))
        try:
            verdict = central.decide(arrival.key, arrival.cost, clock.monotonic_ns())
        except CostExceedsQuota:
            continue
        if verdict.allowed:
            count += 1
            admitted[arrival.key, arrival.epoch] += arrival.cost
            if arrival.settle:
                heapq.heappush(over, (arrival.hub_ns + settle_after_ns, arrival.number, arrival))
    return dict(admitted), count


def _settle(clock: ManualClock, central: Table, what: tuple[int, int, Arrival]) -> None:
    over_ns, _, arrival = what
    clock.advance_ns(max(0, over_ns - clock.monotonic_ns()))
    central.correct(arrival.key, arrival.epoch, arrival.settle)


def _charges(outcome: Outcome, policy_number: int, arrivals: list[Arrival]) -> list[Charge]:
    """What was admitted, and what settling added to it."""
    charges = [Charge(one.key, one.epoch, one.hub_ns, one.cost, False) for one in arrivals if one.allowed]
    for node, hand in enumerate(outcome.hands):
        for index, hub_ns, epoch in outcome.histories[node][policy_number].settled:
            request = outcome.setup.requests[hand[index]]
            charges.append(Charge(request.key, epoch, hub_ns, request.settle, True))
    return charges


def _joined(parts: Iterable[array[int]]) -> list[int]:
    return [item for part in parts for item in part]


def _span_s(arrivals: list[Arrival]) -> float:
    return (arrivals[-1].hub_ns - arrivals[0].hub_ns) / SECOND_NS


def _percent(amount: float, whole: float) -> float:
    return round(PERCENT * amount / whole, 3)
