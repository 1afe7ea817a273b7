"""Judges a run with full knowledge: how far it exceeded the limit, and how much a central limiter would have admitted.

Every charge counts in the window in which its own node charged it, so a run is judged by the rule that the nodes had to
keep. Excess is rounded down to whole units of cost.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconverge.agent.agent import Agent
from reconverge.clock import MICROSECOND_NS, ManualClock
from reconverge.errors import CostExceedsQuota
from reconverge.kernel import Table
from reconverge.limit.limit import (
    FIRST_HIT,
    FIXED_WINDOW,
    INTERVAL,
    PACED,
    SLIDING_LOG,
    SLIDING_SLICES,
    SMOOTH_WARMING_UP,
    Limit,
)
from reconverge.policies import Policy
from reconverge.simulation.judging.first_hits import OpenedWindow, fleet_windows

Place = tuple[str, int]
"""A key, and the number of one of its windows."""


class DecidedRequest(NamedTuple):
    """A request, and the decision of a node about it under one quota."""

    hub_ns: int
    """The time of the decision by the hub's clock, in nanoseconds."""
    number: int
    key: str
    epoch: int
    cost: int
    settle: int
    """The part of the cost that is charged only when the request ends."""
    node: int
    allowed: bool
    known: bool
    """Whether the hub had answered the node about this key before the decision."""
    slice_number: int = 0
    """The number of the slice to which the node charged the request, under `sliding-slices`."""
    asked: bool = False
    """Whether the request waited for the hub's answer."""
    waited_ns: int = 0
    """The nanoseconds from the request's arrival to its decision, which is at `hub_ns`."""
    nodes: int = 0
    """The number of nodes in the hub's last answer to this node; 0 if it had none, or if the number is not known."""

    @property
    def arrived_ns(self) -> int:
        """Returns when the request arrived, by the hub's clock, in nanoseconds."""
        return self.hub_ns - self.waited_ns


class CalledFree(NamedTuple):
    """The cost that an answer of the hub reported as free for a key; `decided` requests had been decided before it."""

    decided: int
    hub_ns: int
    key: str
    epoch: int
    free: int


@dataclass(slots=True)
class RunHistory:
    """The history of a run: its requests, its messages and the hub's answers."""

    by_quota: list[list[DecidedRequest]]
    """For each quota of the limit, the decisions about every request."""
    messages: list[int]
    """The number of batches sent in each window of the first quota."""
    hub_windows: dict[str, set[int]]
    """By key, the windows of the first quota in the hub's answers; used for windows that begin with the first hit."""
    waited_for_ns: dict[str, int]
    """By key, when a request first began to wait for the hub, by the hub's clock; the request may have been cancelled
    since."""
    called_free: list[CalledFree]
    """The cost of the first quota that each answer of the hub reported as free."""

    @property
    def decided(self) -> list[DecidedRequest]:
        """Returns the decisions of the limit's first quota about all requests."""
        return self.by_quota[0]


class TrueCharge(NamedTuple):
    """One charge to a key, as the judge counts it."""

    key: str
    epoch: int
    hub_ns: int
    cost: int
    settling: bool
    """Whether settling added this charge: an admitted request cost more than was estimated."""
    slice_number: int = 0


def charge_of(one: DecidedRequest) -> TrueCharge:
    """Returns the charge that the admitted request `one` made."""
    return TrueCharge(one.key, one.epoch, one.hub_ns, one.cost, settling=False, slice_number=one.slice_number)


def number_of(limit: Limit, hub_ns: int) -> int:
    """Returns the number of the window that contains `hub_ns`, for windows that begin by the hub's clock."""
    calendar = limit.calendar
    return hub_ns // limit.window_ns if calendar is None else calendar.number(hub_ns)


def placed(
    limit: Limit, decided: list[DecidedRequest], hub_windows: Mapping[str, Collection[int]] | None = None
) -> list[DecidedRequest]:
    """Returns the decisions; if windows begin with a hit, with the fleet's window in place of the node's own.

    A charge to a bucket, which has no windows, gets the number of the hub's window at its time. Under any other limit,
    the decisions are returned as they are.

    A fleet's window has the number of the clock's window in which it began, or the next number if that one is taken.
    """
    if limit.bucket:
        return [one._replace(epoch=one.hub_ns // limit.window_ns) for one in decided]
    if limit.align != FIRST_HIT:
        return decided
    opened: defaultdict[str, set[OpenedWindow]] = defaultdict(set)
    for one in decided:
        if one.allowed and one.epoch >= 0:
            opened[one.key].add(OpenedWindow(one.node, one.epoch))
    window_us = limit.window_ns // MICROSECOND_NS
    began: dict[tuple[str, OpenedWindow], int] = {}
    numbers: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for key, of_key in opened.items():
        found = fleet_windows(of_key, window_us, of_hub=None if hub_windows is None else hub_windows.get(key, ()))
        began |= {(key, each): began_us for each, began_us in found.items()}
        number = 0
        for began_us in sorted(set(found.values())):
            number = numbers[key][began_us] = max(number + 1, began_us // window_us)

    def number_of_one(one: DecidedRequest) -> int:
        began_us = began.get((one.key, OpenedWindow(one.node, one.epoch)))
        if began_us is None:  # refused: it counts in the window open then, or in one that never began
            moment_us = one.hub_ns // MICROSECOND_NS
            starts = list(numbers[one.key])
            before_us = starts[place - 1] if (place := bisect_right(starts, moment_us)) > 0 else -window_us
            if moment_us >= before_us + window_us:
                return moment_us // window_us
            began_us = before_us
        return numbers[one.key][began_us]

    return [one._replace(epoch=number_of_one(one)) for one in decided]


def first_asked(decided: Iterable[DecidedRequest], waited_for_ns: Mapping[str, int] | None = None) -> dict[str, int]:
    """Returns, for each key, the time of the first request for it, by the hub's clock; the key's bucket began then.

    `waited_for_ns` adds requests that waited for the hub and were cancelled before a decision.
    """
    first = dict(waited_for_ns or {})
    for one in decided:
        first[one.key] = min(one.hub_ns, first.get(one.key, one.hub_ns))
    return first


def excess_by_place(
    limit: Limit, charges: Iterable[TrueCharge], *, settling: bool, born_ns: Mapping[str, int] | None = None
) -> dict[Place, int]:
    """Returns, for each key and window in which the limit was exceeded, the highest excess in whole units of cost.

    `settling` is whether costs that were added when requests ended count as use. `born_ns` is when each key was first
    asked about; a key that is not in it is older than the run.
    """
    born_ns = born_ns or {}
    by_key: defaultdict[str, list[TrueCharge]] = defaultdict(list)
    for charge in charges:
        if settling or not charge.settling:
            by_key[charge.key].append(charge)
    peaks: defaultdict[Place, int] = defaultdict(int)
    use_of = _use_of(limit)
    for key, of_key in by_key.items():
        of_key.sort(key=lambda charge: (_counted_at(limit, charge), charge.hub_ns))
        use = _bucket_use(limit, of_key, born_ns.get(key, 0)) if limit.bucket else use_of(limit, of_key)
        for charge, used in zip(of_key, use, strict=True):
            excess = math.floor(used) - at_once(limit)
            if excess > 0:
                place = key, epoch_of(limit, charge)
                peaks[place] = max(peaks[place], excess)
    return dict(peaks)


def epoch_of(limit: Limit, one: TrueCharge | DecidedRequest) -> int:
    """Returns the number of a charge's window; under sliding logs and slices, of the clock's window around it."""
    if limit.counts_as == SLIDING_LOG:
        return one.hub_ns // limit.window_ns
    if limit.counts_as == SLIDING_SLICES:
        return one.slice_number // (limit.slices or 1)
    return one.epoch


def _counted_at(limit: Limit, charge: TrueCharge) -> int:
    """Returns the time of a charge in the unit in which the limit's algorithm counts: ns, slices or windows."""
    if limit.bucket or limit.counts_as == SLIDING_LOG:
        return charge.hub_ns
    return charge.slice_number if limit.counts_as == SLIDING_SLICES else charge.epoch


def _use_of(limit: Limit) -> Callable[[Limit, list[TrueCharge]], Iterable[float]]:
    return _trailing_use if limit.counts_as in (SLIDING_LOG, SLIDING_SLICES) else _window_use


def _trailing_use(limit: Limit, charges: list[TrueCharge]) -> Iterable[float]:
    """Yields, after each charge, the use in the window that ends with the charge, or with its slice."""
    length = limit.window_ns if limit.counts_as == SLIDING_LOG else limit.slices or 1
    moments = [_counted_at(limit, charge) for charge in charges]
    used = oldest = 0
    for charge, moment in zip(charges, moments, strict=True):
        used += charge.cost
        while moments[oldest] <= moment - length:
            used -= charges[oldest].cost
            oldest += 1
        yield used


def _window_use(limit: Limit, charges: list[TrueCharge]) -> Iterable[float]:
    """Yields, after each charge, the use of its window; a sliding one adds the weighted use of the window before."""
    totals: defaultdict[int, int] = defaultdict(int)
    for charge in charges:
        totals[charge.epoch] += charge.cost
    so_far: defaultdict[int, int] = defaultdict(int)
    for charge in charges:
        so_far[charge.epoch] += charge.cost
        before = 0 if limit.counts_as == FIXED_WINDOW else totals[charge.epoch - 1]
        passed_ns = min(max(charge.hub_ns - charge.epoch * limit.window_ns, 0), limit.window_ns)
        # Whole numbers, as a float could round a fraction of a unit up to the next.
        yield so_far[charge.epoch] + before * (limit.window_ns - passed_ns) // limit.window_ns


def _bucket_use(limit: Limit, charges: list[TrueCharge], born_ns: int) -> Iterable[float]:
    """Yields the level of the bucket after each charge, in units of cost; the bucket began at `born_ns`."""
    level, marked_ns = limit.withheld * limit.window_ns, born_ns
    for charge in charges:
        passed_ns = charge.hub_ns - marked_ns
        if limit.refill == INTERVAL:
            passed_ns = (charge.hub_ns // limit.window_ns - marked_ns // limit.window_ns) * limit.window_ns
        level = max(0, level - passed_ns * limit.quota) + charge.cost * limit.window_ns
        marked_ns = charge.hub_ns
        yield level // limit.window_ns


def at_once(limit: Limit) -> int:
    """Returns the highest cost that a limit admits at one moment, not counting requests on credit."""
    return 0 if limit.algorithm == SMOOTH_WARMING_UP else limit.capacity


def declared_bound(limit: Limit, policy: Policy, nodes: int, cost_max: int, *, waits: bool = False) -> float:
    """Returns the highest cost above `at_once(limit)` that the policy allows, for a key that all nodes know.

    If requests go on credit (under smooth limits, and with `waits` under a leaky bucket), any policy with allowances
    may exceed the limit by one request on each node: a node's next request waits until that cost is paid for.
    """
    if limit.smooth and not policy.merged_only:
        return float(nodes * cost_max)
    bound = policy.bound(limit.capacity, nodes, cost_max)
    return bound + nodes * cost_max if waits and limit.algorithm in PACED else bound


class Bounds:
    """The declared bound of each window: larger if nodes admitted requests for a key that was new to them."""

    def __init__(self, limit: Limit, policy: Policy, nodes: int, decided: list[DecidedRequest]) -> None:
        cost_max = max((one.cost for one in decided if one.allowed), default=1)
        self._declared = not policy.merged_only
        """Whether the policy declares a bound; one that only compares totals of the hub with the limit does not."""
        self._warm = declared_bound(limit, policy, nodes, cost_max)
        self._cold: defaultdict[Place, dict[int, float]] = defaultdict(dict)
        """By window: the most that each node may have admitted in it while the key was new to that node."""
        room = 0 if limit.smooth else limit.capacity - limit.withheld
        lasting = 0 if limit.counts_as == FIXED_WINDOW else 1
        if limit.bucket:
            lasting += math.ceil(limit.capacity * (nodes + 1) / limit.quota)  # until cold admissions have drained
        for one in decided:
            if one.allowed and not one.known:
                first = epoch_of(limit, one)
                share = policy.cold(room, one.nodes, cost_max)
                for epoch in range(first, first + lasting + 1):
                    shares = self._cold[one.key, epoch]
                    shares[one.node] = max(share, shares.get(one.node, 0.0))

    def cold(self, place: Place) -> int:
        """Returns how many nodes admitted requests that count in window `place` while the key was new to them."""
        return len(self._cold.get(place, ()))

    def of(self, place: Place | None) -> float:
        """Returns a window's declared bound, as cost above the capacity; for None, of a key that all nodes know."""
        return self._warm + (0 if place is None else sum(self._cold.get(place, {}).values()))

    def broken(self, excess: dict[Place, int]) -> dict[Place, int]:
        """Returns the windows in `excess` that exceed their declared bound, each with its cost above the capacity."""
        if not self._declared:
            return {}
        return {place: over for place, over in excess.items() if over > self.of(place)}


def broken_windows(
    limit: Limit,
    policy: Policy,
    decided: list[DecidedRequest],
    *,
    nodes: int,
    hub_windows: Mapping[str, Collection[int]] | None = None,
    waited_for_ns: Mapping[str, int] | None = None,
) -> dict[Place, int]:
    """Returns, for each window that exceeded its declared bound, the cost by which it exceeded the limit.

    For `hub_windows` and `waited_for_ns` see `RunHistory`.
    """
    decided = placed(limit, decided, hub_windows)
    charges = [charge_of(one) for one in decided if one.allowed]
    excess = excess_by_place(limit, charges, settling=False, born_ns=first_asked(decided, waited_for_ns))
    return Bounds(limit, policy, nodes, decided).broken(excess)


def ideal_admissions(
    limit: Limit, decided: list[DecidedRequest], *, settle_after_ns: int, others: Sequence[Limit] = ()
) -> tuple[dict[Place, int], int]:
    """Returns the cost that a central limiter admits of the same requests, by window, and the number of these requests.

    The central limiter decides each request when it arrives, even if the fleet decided it later, after asking the hub.
    `others` are the other quotas of the same limit; if there are any, no cost is corrected when a request ends.
    """
    clock = ManualClock()
    keys = len({one.key for one in decided})
    agent = Agent("memory://", clock=clock, max_keys=(keys + 1) * (1 + len(others)))
    limiter = agent.limit("central", [limit, *others])
    central = limiter.control.table
    admitted: defaultdict[Place, int] = defaultdict(int)
    count = 0
    over: list[tuple[int, int, DecidedRequest]] = []
    for one in sorted(decided, key=lambda each: each.arrived_ns):
        while over and over[0][0] <= one.arrived_ns:
            _settle(clock, central, heapq.heappop(over))
        clock.advance_ns(max(0, one.arrived_ns - clock.monotonic_ns()))
        try:
            # With one quota the table decides, which is quicker than the limiter.
            allowed = (
                limiter.allow(one.key, one.cost)
                if others
                else central.decide(one.key, one.cost, clock.monotonic_ns()).allowed
            )
        except CostExceedsQuota:
            continue
        if allowed:
            count += 1
            admitted[one.key, one.epoch] += one.cost
            if one.settle:
                heapq.heappush(over, (one.arrived_ns + settle_after_ns, one.number, one))
    return dict(admitted), count


def _settle(clock: ManualClock, central: Table, what: tuple[int, int, DecidedRequest]) -> None:
    over_ns, _, one = what
    clock.advance_ns(max(0, over_ns - clock.monotonic_ns()))
    central.correct(one.key, one.epoch, one.settle)
