"""Small worlds and cases of the fuzz, run with every step checked against the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import Verdict
from reconverge.limit import Limit
from reconverge.policies import SHARE, Policy
from reconverge.simulation.asked import LIMIT_NAME, Judged
from reconverge.simulation.cases import ARRIVALS_MAX, Case
from reconverge.simulation.explore.events import POLICIES, Event, Exploration
from reconverge.simulation.explore.node import SmallNode
from reconverge.simulation.explore.world import DEAR, KEY, SmallWorld
from reconverge.simulation.fleet import FleetMember
from reconverge.simulation.model.bound.snapshots import Looks
from reconverge.simulation.model.bound.states import BoundKey, OutsideAssumption, UnboundStep
from reconverge.simulation.model.bound.watching_hub import Watch, is_bound, terms_of
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.reckless import SilenceCount
from reconverge.simulation.world import World

SMALL_LIMIT: Final = "limit"
"""The name of the limit of a small world."""
KEYS_MAX: Final = 2
"""The number of keys of a fuzz case that are followed: those with the most requests."""


@dataclass
class BoundRun:
    """The outcome of a checked run: the accepted steps by action, and why the checks ended early, if they did."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: str = ""
    outside: str = ""
    covered: bool = True
    silences: SilenceCount = field(default_factory=SilenceCount)
    """The counts of silences, if the run was reckless."""


class Watching:
    """The watches of one run, one for each followed key; hooks in nodes and hub report events to them."""

    def __init__(self) -> None:
        self.run = BoundRun()
        self.watches: list[Watch] = []
        self._looks: dict[tuple[Watch, Syncer], Looks] = {}

    def note(self, happens: str, *arguments: Any) -> None:
        """Reports an event to all watches, by the name of their method for it.

        Does nothing once a step was rejected, or was one that the proof assumes not to happen.
        """
        if self.run.rejected or self.run.outside:
            return
        try:
            for watch in self.watches:
                getattr(watch, happens)(*arguments)
        except OutsideAssumption as outside:
            self.run.outside = str(outside)
        except UnboundStep as rejected:
            self.run.rejected = str(rejected)

    def note_node(self, happens: str, syncer: Syncer, *arguments: Any) -> None:
        """Reports an event of a node to all watches, with the node's present state."""
        for watch in self.watches:
            self.note_node_of(watch, happens, syncer, *arguments)

    def note_node_of(self, watch: Watch, happens: str, syncer: Syncer, *arguments: Any) -> None:
        """Reports an event of a node, with the node's present state, to `watch` alone."""
        looks = self._looks.setdefault((watch, syncer), Looks(syncer, watch.limit, watch.key))
        self.note_of(watch, happens, syncer, looks.look(), *arguments)

    def attach(self, syncer: Syncer) -> None:
        """Hooks into the syncer of a node, so that its exchanges are reported to the watches."""
        take, merged, failed, leave = syncer.take, syncer.merged, syncer.failed, syncer.leave

        def leaves(now_ns: int) -> None:
            self.note("passes", now_ns)
            leave(now_ns)
            self.note_node("catches_up", syncer)

        def takes(now_ns: int) -> Batch | None:
            self.note("passes", now_ns)
            batch = take(now_ns)
            self.note_node("took", syncer, batch)
            return batch

        def is_answered(batch: Batch, answer: Answer, *, sent_ns: int, now_ns: int) -> None:
            self.note("passes", now_ns)
            merged(batch, answer, sent_ns=sent_ns, now_ns=now_ns)
            self.note_node("heard", syncer, answer)

        def fails(kind: str, *, now_ns: int) -> None:
            self.note("passes", now_ns)
            failed(kind, now_ns=now_ns)
            self.note_node("gave_up", syncer)

        syncer.take, syncer.merged = takes, is_answered  # type: ignore[method-assign]
        syncer.failed, syncer.leave = fails, leaves  # type: ignore[method-assign]

    def attach_hub(self, hub: Any, rule: Any, now_ns: Any) -> None:
        """Hooks into a hub, so that its merges and losses of data are reported to the watches."""
        merge, lose_data = hub.merge, hub.lose_data

        def merges(batch: Batch) -> Answer:
            self.note("passes", now_ns())
            before = [watch.ledger(rule) for watch in self.watches]
            answer: Answer = merge(batch)
            for watch, ledger in zip(self.watches, before, strict=True):
                self.note_of(watch, "merged", batch, answer, ledger, watch.ledger(rule))
            return answer

        def loses() -> None:
            self.note("passes", now_ns())
            lose_data()
            self.note("loses_data")

        hub.merge, hub.lose_data = merges, loses

    def note_of(self, watch: Watch, happens: str, *arguments: Any) -> None:
        """Reports an event to `watch` alone."""
        watches, self.watches = self.watches, [watch]
        self.note(happens, *arguments)
        self.watches = watches


class BoundSmallWorld(SmallWorld):
    """A small world whose every step is checked against the model."""

    def __init__(self, limit: Limit, policy: Policy, *, nodes: int = 2, start_ns: int = 0) -> None:
        self.watching = Watching()
        super().__init__(limit, policy, nodes=nodes, start_ns=start_ns)
        table = self.table(0)
        request = min(DEAR, limit.cost_max) * table.unit
        terms = terms_of(limit, policy, self.nodes[0].kernel.lease_ns, table.capacity, request)
        base_ns = self.clock.wall_ns() - self.clock.monotonic_ns()
        binding = BoundKey(terms, self.clock.wall_ns(), self.watching.run.accepted)
        self.watching.watches.append(Watch(binding, SMALL_LIMIT, KEY, base_ns))
        for node in self.nodes:
            self.watching.note_node("starts", node.syncer)
        self.watching.attach_hub(self.hub, self.hub.rule, self.clock.monotonic_ns)

    def _start(self) -> SmallNode:
        node = super()._start()
        self.watching.attach(node.syncer)
        self.watching.note_node("starts", node.syncer)
        return node

    def _admit(self, node: SmallNode, cost: int, verdict: Verdict, key: str) -> None:
        super()._admit(node, cost, verdict, key)
        self.watching.note("passes", self.clock.monotonic_ns())
        self.watching.note_node("admits", node.syncer, cost * node.kernel.tables[SMALL_LIMIT].unit)

    def leaves_in_vain(self, index: int) -> None:
        """Stops a node whose last report is not answered, and may come late; the node then goes on under its name.

        So does an agent whose event loop ends while the hub is away, when the application opens another loop.
        """
        self.gives_up(index)
        syncer = self.nodes[index].syncer
        syncer.leave(self.clock.monotonic_ns())
        self.loses_request(index)
        syncer.abandon(now_ns=self.clock.monotonic_ns())

    def lowers(self, index: int) -> None:
        super().lowers(index)
        self.watching.note_node("catches_up", self.nodes[index].syncer)

    def raises(self, index: int) -> None:
        super().raises(index)
        self.watching.note_node("catches_up", self.nodes[index].syncer)

    def changes_policy(self, index: int, policy: Policy) -> None:
        super().changes_policy(index, policy)
        self.watching.note_node("catches_up", self.nodes[index].syncer)

    def _replace(self, index: int) -> None:
        self.watching.note("ends", self.nodes[index].syncer)
        super()._replace(index)


class BoundWorld(World):
    """A simulated fleet whose every step is checked against the model."""

    def __init__(self, case: Case, arrivals: Sequence[SimulatedArrival]) -> None:
        self.watching = Watching()
        self._case = case
        self._asked_about = Counter(arrival.key for arrival in arrivals)
        self._dearest = max((arrival.cost for arrival in arrivals), default=1)
        faults = case.experiment.faults_of(case.seed)
        super().__init__(case.experiment.fleet, case.policy, faults, seed=case.seed, make_rule=case.make_rule)
        self.watching.attach_hub(self.hub, self.hub, lambda: self.now_ns)

    def _begin_watches(self, node: FleetMember) -> None:
        fleet, table = self.fleet, node.table
        largest = max([fleet.limit, *(change.limit for change in fleet.changes)], key=lambda limit: limit.capacity)
        capacity = max(table.capacity, largest.capacity)
        terms = terms_of(fleet.limit, self.policy, node.kernel.lease_ns, capacity, self._dearest * table.unit)
        for key, _ in self._asked_about.most_common(KEYS_MAX):
            binding = BoundKey(terms, self.begin_ns + self.now_ns, self.watching.run.accepted)
            self.watching.watches.append(Watch(binding, LIMIT_NAME, key, self.begin_ns))

    def _start(self, node: FleetMember) -> None:
        super()._start(node)
        if not self.watching.watches:
            self._begin_watches(node)
        self.watching.attach(node.syncer)
        self.watching.note("passes", self.now_ns)
        self.watching.note_node("starts", node.syncer)
        change = node.asked.change

        def changes(limit: Limit) -> None:
            self.watching.note("passes", self.now_ns)
            change(limit)
            self.watching.note_node("catches_up", node.syncer)

        node.asked.change = changes  # type: ignore[method-assign]

    def _end(self, node: FleetMember) -> None:
        if node.alive:
            self.watching.note("passes", self.now_ns)
            self.watching.note("ends", node.syncer)
        super()._end(node)

    def note(self, number: int, arrival: SimulatedArrival, judged: Judged, *, asked: bool = False) -> None:
        super().note(number, arrival, judged, asked=asked)
        node = self.nodes[arrival.node]
        key, verdict = judged[0]
        if verdict.allowed and node.alive:
            self.watching.note("passes", self.now_ns)
            for watch in self.watching.watches:
                if watch.key == key:
                    self.watching.note_node_of(watch, "admits", node.syncer, arrival.cost * node.table.unit)


def bound_case(case: Case) -> BoundRun:
    """Runs a case of the fuzz, with every step checked against the model, and returns the outcome."""
    fleet, policy = case.experiment.fleet, replace(case.policy, cold_allowance=0.0, when_hub_is_away=SHARE)
    plain = not (fleet.further or fleet.shares or fleet.plans or fleet.beside or fleet.limit.count_refused)
    alone = fleet.regions == 1 and case.make_rule is None
    own = fleet.limit_lease_ns is not None or fleet.own_interval_ns is not None
    if own or not (plain and alone and is_bound(fleet.limit, policy)):
        return BoundRun(covered=False)
    experiment = case.experiment
    drawn = experiment.arrivals(case.seed)[:ARRIVALS_MAX]
    until_ns = experiment.windows * fleet.limit.window_ns
    arrivals = [arrival for arrival in drawn if arrival.moment_ns < until_ns]
    world = BoundWorld(replace(case, policy=policy), arrivals)
    world.run(arrivals, until_ns=arrivals[-1].moment_ns if arrivals else 0)
    world.pass_until(max(world.now_ns, world.faults_end_ns()))
    return world.watching.run


def bound_events(case: Exploration) -> list[Event]:
    """Returns the events that can happen in this case, and further ones that are not explored."""
    return [*case.events(), *map(_leaves_in_vain, range(case.nodes))]


def _leaves_in_vain(index: int) -> Event:
    def happens(world: SmallWorld) -> None:
        assert isinstance(world, BoundSmallWorld)
        world.leaves_in_vain(index)

    return Event(f"leaves in vain {index}", happens, lambda world: world.may_speak(index), fault=True)


def bound_walk(case: Exploration, seed: int, steps: int, faults_max: int = 3) -> tuple[list[str], BoundRun]:
    """Lets up to `steps` events happen in a random order, and checks each step against the model.

    Returns the names of the events, and the outcome.
    """
    random, events = Random(f"walk {seed}"), bound_events(case)
    world = BoundSmallWorld(case.limit(), POLICIES[case.policy], nodes=case.nodes)
    names: list[str] = []
    for _ in range(steps):
        can = [event for event in events if event.can(world) and (faults_max > 0 or not event.fault)]
        event = random.choice(can)
        faults_max -= event.fault
        names.append(event.name)
        event.happen(world)
        if world.watching.run.rejected or world.watching.run.outside:
            break
    return names, world.watching.run


def bound_path(case: Exploration, names: Sequence[str]) -> BoundRun:
    """Lets the events `names` happen in this order, and checks each step against the model. Returns the outcome."""
    events = {event.name: event for event in bound_events(case)}
    world = BoundSmallWorld(case.limit(), POLICIES[case.policy], nodes=case.nodes)
    for name in names:
        events[name].happen(world)
    return world.watching.run
