"""Regions under virtual time: a hub for each region, a wide hub for all, and the real bridges between them.

Bridges are cut off from either hub, killed, or stopped; messages come late, twice or never, and hubs lose their data,
all as drawn from a seed. When a node's batch arrives, all events since the batch before it are run first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from reconverge.clock import Clock
from reconverge.exchange.regions.bridge import Bridge
from reconverge.hub.merge_rule import RegionRule, open_merge_rule
from reconverge.hub.report import Answer, Batch, Totals, add_totals
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival

CUT, DEAF, KILL, END, LOSE = "cut", "deaf", "kill", "end", "lose"
"""Faults of a bridge: it cannot reach the wide hub, or its own hub; it is killed; it is stopped; or the wide hub
loses its data."""
FAULTS: Final = (CUT, DEAF, KILL, END, LOSE)
LATE_SHARE: Final = 0.03
PATIENCE: Final = 3
"""The timeout of a bridge's call, as a multiple of the longest time that a call takes."""
LAST_ROUNDS: Final = 4

Call = tuple[str, Callable[[], Any]]
Rounds = Generator[Call, Any, None]


def wandering(
    fleet: Fleet, windows: int, *, random: Random, demand: float, hottest: int | None = None, steady: bool = False
) -> tuple[SimulatedArrival, ...]:
    """Returns requests for one key that come in some regions, drawn at random, and after a while in others.

    If `steady`, they come in all regions all the time; else in at most `hottest` at a time (None for no maximum). In
    each region that has requests, their cost in a window is `demand` times the quota.
    """
    window_ns, moment_ns, arrivals = fleet.limit.window_ns, 0, list[SimulatedArrival]()
    per_region = demand * fleet.limit.quota
    while moment_ns < windows * window_ns:
        length_ns = int(window_ns * random.uniform(0.5, 3.0))
        hot = random.sample(
            range(fleet.regions), fleet.regions if steady else random.randint(1, hottest or fleet.regions)
        )
        count = round(per_region * len(hot) * length_ns / window_ns)
        for _ in range(count):
            node = random.choice(range(random.choice(hot), fleet.nodes, fleet.regions))
            arrivals.append(SimulatedArrival(moment_ns + random.randrange(length_ns), node, "key-0", 1))
        moment_ns += length_ns
    return tuple(sorted(each for each in arrivals if each.moment_ns < windows * window_ns))


class AheadClock(Clock):
    """The clock of another machine: the simulation's clock plus a fixed difference, which may be negative."""

    def __init__(self, clock: Clock, ahead_ns: int) -> None:
        self._clock = clock
        self._ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def wall_ns(self) -> int:
        return self._clock.wall_ns() + self._ahead_ns


class BridgeSpan:
    """The bridge of one region, during the life of one process."""

    def __init__(self, bridge: Bridge, region: int) -> None:
        self.bridge = bridge
        self.region = region
        self.alive = True
        self.ending = False


class Regions:
    """The hubs of `regions` regions and the wide hub, with a bridge from each region's hub to the wide hub.

    A batch's `shard` selects the region. On average one of the `faults` begins every `calm_ns`, lasts up to
    `longest_ns`, and none begins after `until_ns`. Without `bridged` there are no bridges. `ahead_ns` holds, for each
    region's hub, how far its clock is ahead of the simulation's.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        new_name: Callable[[], str],
        random: Random,
        regions: int,
        movable_ppm: int,
        interval_ns: int,
        loan_ns: int,
        latency_ns: int,
        hold_min_s: int = 1,
        bridged: bool = True,
        calm_ns: int = 0,
        longest_ns: int = 0,
        until_ns: int = 0,
        faults: Sequence[str] = FAULTS,
        ahead_ns: Sequence[int] = (),
    ) -> None:
        self._clock = clock
        self._new_name = new_name
        self._random = random
        self._movable_ppm, self._interval_ns, self._loan_ns = movable_ppm, interval_ns, loan_ns
        self._latency_ns, self._hold_min_s = latency_ns, hold_min_s
        self._calm_ns, self._longest_ns, self._until_ns, self._faults = calm_ns, longest_ns, until_ns, tuple(faults)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self.now_ns = clock.monotonic_ns()
        offsets = [*ahead_ns, *[0] * regions]
        self.homes = [self._open(AheadClock(clock, offsets[number])) for number in range(regions)]
        self.wide = self._open(clock)
        self._silent_until_ns: dict[tuple[str, int], int] = {}
        self.spans: list[BridgeSpan | None] = [None] * regions
        for region in range(regions):
            if bridged:
                self._start(region)
        self._plan_fault()

    def merge(self, batch: Batch) -> Answer:
        """Merges a batch at the hub of its region, and returns that hub's answer."""
        self.pass_until(self._clock.monotonic_ns())
        return self.homes[batch.shard].merge(batch._replace(shard=0))

    def sums(self) -> dict[str, Totals]:
        self.pass_until(self._clock.monotonic_ns())
        sums: dict[str, Totals] = {}
        for home in self.homes:
            add_totals(sums, home.sums())
        return sums

    def lose_data(self) -> None:
        """Deletes all data of the wide hub, and of one region's hub."""
        self.pass_until(self._clock.monotonic_ns())
        self._random.choice(self.homes).lose_data()
        self.wide.lose_data()

    def pass_until(self, moment_ns: int) -> None:
        """Runs all events of the bridges that are due up to the simulated time `moment_ns`."""
        while self._events and self._events[0][0] <= moment_ns:
            self.now_ns, _, action = heapq.heappop(self._events)
            action()
        self.now_ns = moment_ns

    def _at(self, moment_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (moment_ns, self._order, action))

    def _open(self, clock: Clock) -> RegionRule:
        rule = open_merge_rule(clock=clock, new_name=self._new_name)
        assert isinstance(rule, RegionRule)
        return rule

    def _start(self, region: int) -> None:
        bridge = Bridge(
            f"r{region}",
            self._new_name(),
            movable_ppm=self._movable_ppm,
            interval_ns=self._interval_ns,
            loan_ns=self._loan_ns,
            hold_min_s=self._hold_min_s,
        )
        span = self.spans[region] = BridgeSpan(bridge, region)
        self._at(
            self.now_ns + int(self._interval_ns * self._random.random()), lambda: self._go_on(span, self._rounds(span))
        )

    def _rounds(self, span: BridgeSpan) -> Rounds:
        """Yields the calls of a bridge to its two hubs, for one round; then plans the next round as an event.

        If the bridge is being stopped, no further round is planned: yields the calls that give back all it has
        borrowed.
        """
        yield from self._round(span)
        if not span.ending:
            self._at(self.now_ns + self._interval_ns, lambda: self._go_on(span, self._rounds(span)))
            return
        span.bridge.leave()
        for _ in range(LAST_ROUNDS):
            yield from self._round(span)
            if span.bridge.free:
                break
        for batch in span.bridge.last_words(self.now_ns):
            yield "wide", partial(self.wide.merge, batch)
        span.alive = False

    def _round(self, span: BridgeSpan) -> Rounds:
        bridge, home = span.bridge, self.homes[span.region]
        sent_ns = self.now_ns
        wishes = yield "home", partial(home.tell_wishes, 0)
        if wishes is not None:
            bridge.hear_wishes(0, wishes, sent_ns=sent_ns, now_ns=self.now_ns)
        for batch in bridge.batches(self.now_ns):
            sent_ns = self.now_ns
            answer = yield "wide", partial(self.wide.merge, batch)
            if answer is None:
                bridge.failed(batch)
            else:
                bridge.merged(batch, answer, sent_ns=sent_ns)
        for lending in bridge.lendings(0, self.now_ns):
            sent_ns = self.now_ns
            what = lending.lender.name, lending.sequence, lending.loans
            lent = yield "home", partial(home.take_loans, 0, *what)
            if lent is not None:
                bridge.hear_lent(0, lending, lent, sent_ns=sent_ns, now_ns=self.now_ns)

    def _go_on(self, span: BridgeSpan, rounds: Rounds, result: object = None) -> None:
        """Gives a bridge `result`, the answer to its last call or None, and plans its next call."""
        if not span.alive:
            return
        try:
            side, call = rounds.send(result)
        except StopIteration:
            return
        answered = False

        def arrive(*, heard: bool) -> None:
            answer = call()
            if heard:
                self._at(self.now_ns + self._delay_ns(), lambda: hear(answer))

        def hear(answer: object) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._go_on(span, rounds, answer)

        lost = self.now_ns < self._silent_until_ns.get((side, span.region), 0)
        if lost:  # the call, or only its answer
            if self._random.random() < 0.5:
                self._at(self.now_ns + self._late_ns(), lambda: arrive(heard=False))
        elif self._random.random() < LATE_SHARE:
            self._at(self.now_ns + self._late_ns(), lambda: arrive(heard=True))
        else:
            self._at(self.now_ns + self._delay_ns(), lambda: arrive(heard=True))
            if self._random.random() < LATE_SHARE:
                self._at(self.now_ns + self._late_ns(), lambda: arrive(heard=False))
        self._at(self.now_ns + PATIENCE * 3 * self._latency_ns, lambda: hear(None))

    def _delay_ns(self) -> int:
        return int(self._latency_ns * self._random.uniform(0.5, 1.5))

    def _late_ns(self) -> int:
        return int(self._random.random() ** 2 * 6 * self._interval_ns) + self._delay_ns()

    def _plan_fault(self) -> None:
        if self._calm_ns > 0 and self._faults:
            self._at(self.now_ns + int(self._random.expovariate(1.0) * self._calm_ns), self._strike)

    def _strike(self) -> None:
        if self.now_ns >= self._until_ns:
            return
        what, region = self._random.choice(self._faults), self._random.randrange(len(self.homes))
        length_ns = int(self._random.random() ** 2 * self._longest_ns)
        span = self.spans[region]
        if what in (CUT, DEAF):
            self._silent_until_ns["wide" if what == CUT else "home", region] = self.now_ns + length_ns
        elif what == LOSE:
            self.wide.lose_data()
        elif span is not None:
            self.spans[region] = None
            span.alive, span.ending = what == END, True
            self._at(self.now_ns + length_ns, lambda: self._start(region))
        self._plan_fault()
