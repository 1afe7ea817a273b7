"""Judges a replay: by how much the limit was exceeded, and what a central limiter would have admitted.

Each node has recorded the window of each of its charges, and the time by the hub's clock. A charge counts in that
window and at that time, so a run is judged by the windows that the nodes knew. Excess is rounded down to whole units of
cost.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from reconverge.cli.replay.fleet import ReplayOutcome
from reconverge.cli.replay.worker import NOT_ASKED, NodeHistory
from reconverge.clock import SECOND_NS
from reconverge.policies import POLICIES, Policy
from reconverge.simulation.studies.figures import falsely_refused_pct, waits_ms
from reconverge.simulation.truth import (
    Bounds,
    DecidedRequest,
    Place,
    TrueCharge,
    charge_of,
    excess_by_place,
    first_asked,
    ideal_admissions,
    placed,
)

PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The results of one policy in a replay, in numbers. Percentages are of the limit, unless a name says otherwise."""

    policy: str
    requests: int
    admitted: int
    refused: int
    ideal_admitted: int
    """The number of the same requests that a central limiter would have admitted."""
    over_admission_max_pct: float
    over_admission_mean_pct: float
    """The mean over-admission over all windows in which a key had any request."""
    under_admission_pct: float
    """The cost that a central limiter would admit and the fleet did not, window by window, in percent of the cost
    that the central limiter would admit."""
    falsely_refused_pct: float
    """The cost that was refused falsely over the whole run. It leaves out what a later window made up for; cost
    admitted above the limit makes up for nothing."""
    bound_pct: float
    """The declared bound that applies to the worst window."""
    known_over_admission_max_pct: float
    """The highest over-admission of a window in which no node met the key for the first time."""
    known_bound_pct: float
    """The declared bound of such windows."""
    bound_violations: int
    """The number of windows that exceeded the bound that applied to them."""
    hub_total: int
    admitted_cost: int
    """The admitted cost, and the cost that settling added."""
    debt_max_pct: float
    """The largest use of a window beyond the limit that settling caused."""
    decision_p50_ns: int
    """The median time of a call of `RateLimiter.allow`, timed by itself, with a look at the clock before and after."""
    decision_p99_ns: int
    floor_p50_ns: int
    """The median time of an increment in a dictionary, timed in the same way beside these calls."""
    floor_p99_ns: int
    decisions_per_s_per_node: float
    """The number of decisions per second that were made in the run; a node could make more."""
    sync_messages: int
    failures: dict[str, int]
    """The number of failed exchanges, by class of failure."""
    asked_pct: float = 0.0
    """The requests that waited for the hub's answer, in percent of all requests."""
    waited_median_ms: float = 0.0
    """The median wait of the requests that waited for the hub's answer."""
    waited_p99_ms: float = 0.0
    waited_max_ms: float = 0.0

    @property
    def hub_total_equals_admitted(self) -> bool:
        """Whether the hub's total equals the admitted cost: nothing was lost and nothing counted twice."""
        return self.hub_total == self.admitted_cost

    @property
    def kept(self) -> bool:
        """Whether all promises were kept: the bound in every window, and the hub's total at the end."""
        return self.bound_violations == 0 and self.hub_total_equals_admitted

    def as_json(self) -> dict[str, object]:
        """Returns all results by name."""
        figures: dict[str, object] = asdict(self)
        return figures | {"hub_total_equals_admitted": self.hub_total_equals_admitted}


def judge(outcome: ReplayOutcome) -> list[Judgement]:
    """Judges a replay. Returns a `Judgement` for each policy, in the policies' order."""
    return [
        _with_waits(_judge_policy(outcome, number, POLICIES[name]), [of_node[number] for of_node in outcome.histories])
        for number, name in enumerate(outcome.setup.policies)
    ]


def arrivals_of(outcome: ReplayOutcome, policy_number: int) -> list[DecidedRequest]:
    """Returns all requests in the order in which they were decided under one policy."""
    arrivals = []
    for node, hand in enumerate(outcome.hands):
        history = outcome.histories[node][policy_number]
        for index, number in enumerate(hand):
            request = outcome.setup.requests[number]
            arrivals.append(
                DecidedRequest(
                    hub_ns=history.hub_ns[index],
                    number=number,
                    key=request.key,
                    epoch=history.epoch[index],
                    cost=request.cost,
                    settle=request.settle,
                    node=node,
                    allowed=bool(history.allowed[index]),
                    known=bool(history.known[index]),
                    slice_number=history.slice_number[index],
                    asked=history.waited_ns[index] != NOT_ASKED,
                    waited_ns=max(0, history.waited_ns[index]),
                )
            )
    return sorted(arrivals)


def _judge_policy(outcome: ReplayOutcome, policy_number: int, policy: Policy) -> Judgement:
    limit = outcome.setup.limit
    arrivals = placed(limit, arrivals_of(outcome, policy_number))
    charges = _charges(outcome, policy_number, arrivals)
    places = {(arrival.key, arrival.epoch) for arrival in arrivals}
    born_ns = first_asked(arrivals)
    excess = excess_by_place(limit, charges, settling=False, born_ns=born_ns)
    with_settling = excess_by_place(limit, charges, settling=True, born_ns=born_ns)
    bounds = Bounds(limit, policy, outcome.setup.nodes, arrivals)
    broken = bounds.broken(excess)
    worst = max(broken or excess, key=lambda place: excess[place], default=None)
    known_excess = max((over for place, over in excess.items() if not bounds.cold(place)), default=0)
    histories = [histories[policy_number] for histories in outcome.histories]
    decision_ns = sorted(_joined(history.decision_ns for history in histories))
    floor_ns = sorted(_joined(history.floor_ns for history in histories))
    settle_ns = round(outcome.setup.settle_after_s / outcome.setup.speed * SECOND_NS)
    ideal, ideal_count = ideal_admissions(limit, arrivals, settle_after_ns=settle_ns)
    admitted_count = sum(arrival.allowed for arrival in arrivals)
    failures: Counter[str] = Counter()
    for history in histories:
        failures.update(history.failures)
    return Judgement(
        policy=policy.name,
        requests=len(arrivals),
        admitted=admitted_count,
        refused=len(arrivals) - admitted_count,
        ideal_admitted=ideal_count,
        over_admission_max_pct=_percent(max(excess.values(), default=0), limit.capacity),
        over_admission_mean_pct=_percent(sum(excess.values()) / len(places), limit.capacity),
        under_admission_pct=_percent(_missed(arrivals, ideal), max(1, sum(ideal.values()))),
        falsely_refused_pct=falsely_refused_pct(
            sum(ideal.values()), sum(one.cost for one in arrivals if one.allowed), sum(excess.values())
        ),
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
        floor_p50_ns=floor_ns[len(floor_ns) // 2],
        floor_p99_ns=floor_ns[len(floor_ns) * 99 // 100],
        decisions_per_s_per_node=round(len(arrivals) / outcome.setup.nodes / max(1e-9, _span_s(arrivals)), 1),
        sync_messages=sum(history.exchanges for history in histories),
        failures=dict(failures),
    )


def _with_waits(judgement: Judgement, histories: list[NodeHistory]) -> Judgement:
    waited_ns = [each for each in _joined(history.waited_ns for history in histories) if each != NOT_ASKED]
    median_ms, p99_ms, max_ms = waits_ms(waited_ns)
    return replace(
        judgement,
        asked_pct=_percent(len(waited_ns), judgement.requests),
        waited_median_ms=median_ms,
        waited_p99_ms=p99_ms,
        waited_max_ms=max_ms,
    )


def _missed(arrivals: list[DecidedRequest], ideal: Mapping[Place, int]) -> int:
    """Returns the cost that a central limiter would admit and the fleet did not, summed over all keys and windows.

    `ideal` has what a central limiter would admit of each key in each window. Too much in one window does not make up
    for too little in another.
    """
    admitted: defaultdict[Place, int] = defaultdict(int)
    for arrival in arrivals:
        admitted[arrival.key, arrival.epoch] += arrival.cost if arrival.allowed else 0
    return sum(max(0, cost - admitted[place]) for place, cost in ideal.items())


def _charges(outcome: ReplayOutcome, policy_number: int, arrivals: list[DecidedRequest]) -> list[TrueCharge]:
    """Returns the charges of admitted requests, and the costs that were charged when requests had ended."""
    charges = [charge_of(one) for one in arrivals if one.allowed]
    for node, hand in enumerate(outcome.hands):
        for index, hub_ns, epoch, slice_number in outcome.histories[node][policy_number].settled:
            request = outcome.setup.requests[hand[index]]
            charges.append(
                TrueCharge(request.key, epoch, hub_ns, request.settle, settling=True, slice_number=slice_number)
            )
    return charges


def _joined(parts: Iterable[array[int]]) -> list[int]:
    return [item for part in parts for item in part]


def _span_s(arrivals: list[DecidedRequest]) -> float:
    return (arrivals[-1].hub_ns - arrivals[0].hub_ns) / SECOND_NS


def _percent(amount: float, whole: float) -> float:
    return round(PERCENT * amount / whole, 3)
