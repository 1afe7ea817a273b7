"""Lists all events that can happen next in a small world, and the limits and policies that are explored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.exchange import syncer
from reconverge.hub import headroom
from reconverge.hub.clock import DRIFT
from reconverge.limit import (
    FIRST_HIT,
    FIXED_WINDOW,
    GCRA,
    INTERVAL,
    LEAKY_BUCKET,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Limit,
)
from reconverge.limit.limit import CONCURRENCY, PACED
from reconverge.policies import NODES, STRICT, Policy, choose
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS
from reconverge.simulation.explore.world import DEAR, KEY, LATE_MAX, SECOND, SmallWorld
from reconverge.simulation.reckless import SilenceCount, bound, is_reckless, reckless_if

LATE: Final = "late"
SECOND_KEY: Final = "second key"
DRIFTING: Final = "drifting clocks"
REVERSED: Final = "names reversed"
RECKLESS: Final = "reckless silences"
EARLY: Final = "early openings"
"""Nodes may open their sealed shares in the second window that begins after the hub's last answer, without a longer
wait."""
MORE: Final = (SECOND_KEY, DRIFTING, REVERSED, RECKLESS, EARLY)
"""The extras that a case may have. A second key, and clocks that drift apart, each multiply the number of states.
Reversed names sort the other way: the hub serves nodes that ask at the same moment in the order of their names. With
reckless silences, nodes leave far more charges unreported than in production (`simulation/reckless.py`)."""


class Event(NamedTuple):
    """One event that can happen in a small world."""

    name: str
    happen: Callable[[SmallWorld], object]
    can: Callable[[SmallWorld], bool]
    """Whether the event would change anything in the given world."""
    fault: bool = False
    """Whether the event is a fault, or a rare change; an exploration allows only a few of these."""
    asking: bool = False
    """Whether the event concerns requests that ask the hub."""

    @property
    def node(self) -> int | None:
        """Returns the index of the node that the event concerns, from the end of its name; None for other events."""
        what, _, number = self.name.rpartition(" ")
        return int(number) if number.isdigit() and what != LATE else None


def _always(_: SmallWorld) -> bool:
    return True


def _requests(i: int, limit: Limit) -> Iterator[Event]:
    many = limit.capacity // limit.unit + 1
    yield Event(f"hits {i}", lambda world: world.hits(i), _always)
    yield Event(f"hits all {i}", lambda world: world.hits(i, many), _always)
    if limit.cost_max >= DEAR:
        yield Event(f"dear hit {i}", lambda world: world.hits(i, 1, DEAR), _always)
    yield Event(f"settles {i}", lambda world: world.settles(i), _always)
    if limit.algorithm in PACED:
        return

    def some(world: SmallWorld) -> bool:
        return bool(world.nodes[i].asked)

    def few(world: SmallWorld) -> bool:
        return len(world.nodes[i].asked) <= many

    yield Event(f"asks {i}", lambda world: world.asks(i, 1), few, asking=True)
    yield Event(f"asks all {i}", lambda world: world.asks(i, many), lambda world: not some(world), asking=True)
    yield Event(f"turns {i}", lambda world: world.stops_asking(i), some, asking=True)
    yield Event(f"cancels {i}", lambda world: world.cancels_asks(i), some, asking=True)


def _messages(i: int) -> Iterator[Event]:
    def idle(world: SmallWorld) -> bool:
        return world.nodes[i].flight is None and world.may_speak(i)

    def sent(world: SmallWorld) -> bool:
        flight = world.nodes[i].flight
        return flight is not None and flight.answer is None and world.may_speak(i)

    def answered(world: SmallWorld) -> bool:
        flight = world.nodes[i].flight
        return flight is not None and flight.answer is not None

    yield Event(f"exchanges {i}", lambda world: world.exchanges(i), idle)
    yield Event(f"sends {i}", lambda world: world.sends(i), idle)
    yield Event(f"arrives {i}", lambda world: world.arrives(i), sent)
    yield Event(f"hears {i}", lambda world: world.hears(i), answered)
    yield Event(
        f"gives up {i}", lambda world: world.gives_up(i), lambda world: world.nodes[i].flight is not None, fault=True
    )


def _rests(i: int, step: int, back: str) -> Iterator[Event]:
    yield Event(f"rests {back}{i}", lambda world: world.rests(0.5, i, step), _always)
    yield Event(f"rests long {back}{i}", lambda world: world.rests(2.1, i, step), _always)


def _data_loss(i: int, step: int, back: str) -> Event:
    return Event(f"loses data {back}{i}", lambda world: world.hub_loses_data(i, step), _always, fault=True)


def _nodes(i: int, policy: Policy, nodes: int) -> Iterator[Event]:
    """Yields the events of node `i` that are neither requests nor messages, such as restarts and new settings.

    Yields also the pauses and the losses of the hub's data after which all nodes exchange one after the other, from
    node `i` on. Each direction is an event of its own: else worlds with swapped nodes would not have equal events.
    """
    turns = ((1, ""), (-1, "back "))[: 2 if nodes > 2 else 1]

    def lowered(world: SmallWorld) -> bool:
        return world.table(i).limit != world.limit

    def knows(world: SmallWorld) -> bool:
        return world.table(i).cells.get(KEY) is not None

    for step, back in turns:
        yield from _rests(i, step, back)
    yield Event(f"leaves {i}", lambda world: world.leaves(i), lambda world: world.may_speak(i), fault=True)
    yield Event(f"dies {i}", lambda world: world.dies(i), _always, fault=True)
    yield Event(f"is restored {i}", lambda world: world.is_restored(i), _always, fault=True)
    yield Event(f"lowers {i}", lambda world: world.lowers(i), lambda world: not lowered(world), fault=True)
    yield Event(f"raises {i}", lambda world: world.raises(i), lowered)
    for step, back in turns:
        yield _data_loss(i, step, back)
    yield Event(f"evicts {i}", lambda world: world.evicts(i), knows, fault=True)
    if policy.max_overshoot > 0:
        yield Event(
            f"tightens {i}",
            lambda world: world.changes_policy(i, STRICT),
            lambda world: world.table(i).policy is not STRICT,
            fault=True,
        )
        yield Event(
            f"loosens {i}",
            lambda world: world.changes_policy(i, world.policy),
            lambda world: world.table(i).policy is STRICT,
        )


def _late(place: int) -> Event:
    return Event(
        f"{LATE} {place}",
        lambda world: world.late_one_arrives(place),
        lambda world: place < len(world.late),
        fault=True,
    )


def _times(limit: Limit) -> Iterator[Event]:
    yield Event("interval", lambda world: world.passes(INTERVAL_NS), _always)
    yield Event("silence", lambda world: world.passes(SECOND_NS), _always)
    yield Event("lease", lambda world: world.passes(LEASE_NS + 1), _always, fault=True)
    if limit.algorithm != CONCURRENCY:
        yield Event("edge", SmallWorld.comes_to_the_edge, _always)
        yield Event("after the edge", lambda world: world.passes(2), _always)


def _second_key(i: int, limit: Limit) -> Iterator[Event]:
    many = limit.capacity // limit.unit + 1
    yield Event(f"hits second {i}", lambda world: world.hits(i, key=SECOND), _always)
    yield Event(f"hits all second {i}", lambda world: world.hits(i, many, key=SECOND), _always)
    if limit.algorithm not in PACED:
        yield Event(
            f"asks second {i}",
            lambda world: world.asks(i, 1, key=SECOND),
            lambda world: len(world.nodes[i].asked) <= many,
            asking=True,
        )


def further_events(limit: Limit, nodes: int, more: tuple[str, ...]) -> Iterator[Event]:
    """Yields the events that the extras in `more` add to a case; extras about names and constants add none."""
    if SECOND_KEY in more:
        for i in range(nodes):
            yield from _second_key(i, limit)
    if DRIFTING in more:
        yield Event("drifts ahead", lambda world: world.drifts(DRIFT), _always, fault=True)
        yield Event("drifts behind", lambda world: world.drifts(-DRIFT), _always, fault=True)


def fine_events(limit: Limit, policy: Policy, nodes: int) -> list[Event]:
    """Returns all events of the fine grain, in which each step of a message (sent, arrived, answered) is an event."""
    return [
        *(event for i in range(nodes) for event in _requests(i, limit)),
        *(event for i in range(nodes) for event in _messages(i)),
        *_times(limit),
        *(event for i in range(nodes) for event in _nodes(i, policy, nodes)),
        *(_late(place) for place in range(LATE_MAX)),
    ]


def _whole_exchanges(i: int, limit: Limit) -> Iterator[Event]:
    many = limit.capacity // limit.unit + 1

    def then_waits(happen: Callable[[SmallWorld], object]) -> Callable[[SmallWorld], None]:
        def happens(world: SmallWorld) -> None:
            happen(world)
            world.passes(INTERVAL_NS)

        return happens

    def can(world: SmallWorld) -> bool:
        return world.may_speak(i)

    def hits(world: SmallWorld) -> None:
        world.hits(i, many)
        world.exchanges(i)

    yield Event(f"hits {i}", lambda world: world.hits(i), _always)
    yield Event(f"hits all and exchanges {i}", then_waits(hits), can)
    yield Event(f"exchanges {i}", then_waits(lambda world: world.exchanges(i)), can)
    yield Event(f"loses request {i}", lambda world: world.loses_request(i), can, fault=True)
    yield Event(f"loses answer {i}", lambda world: world.loses_answer(i), can, fault=True)
    if limit.algorithm in PACED:
        return
    yield Event(f"asks for two {i}", then_waits(lambda world: world.asks_at_once(i, 2)), can, asking=True)
    yield Event(f"asks for all {i}", then_waits(lambda world: world.asks_at_once(i, many)), can, asking=True)


def coarse_events(limit: Limit, policy: Policy, nodes: int) -> list[Event]:
    """Returns the events of the coarse grain: whole exchanges, each followed by an interval, and rarer events."""
    return [
        *(event for i in range(nodes) for event in _whole_exchanges(i, limit)),
        *(event for event in _times(limit) if event.name not in ("interval", "silence")),
        *(event for i in range(nodes) for event in _nodes(i, policy, nodes)),
        _late(0),
    ]


KINDS: Final = (
    "fixed",
    "first hit",
    "sliding",
    "slices",
    "log",
    "tokens",
    "burst",
    "initial",
    "interval",
    "gcra",
    "leaky",
    "slots",
)
"""The kinds of limits that are explored: each algorithm, and each variant that the merge rule treats differently."""


def limit_of(kind: str, quota: int, window_s: float) -> Limit:
    """Returns a limit of the given kind, one of KINDS."""
    of_kind: dict[str, Callable[[], Limit]] = {
        "fixed": lambda: Limit(quota, window_s, algorithm=FIXED_WINDOW),
        "first hit": lambda: Limit(quota, window_s, algorithm=FIXED_WINDOW, align=FIRST_HIT),
        "sliding": lambda: Limit(quota, window_s, algorithm=SLIDING_WINDOW),
        "slices": lambda: Limit(quota, window_s, algorithm=SLIDING_SLICES, slices=3),
        "log": lambda: Limit(quota, window_s, algorithm=SLIDING_LOG),
        "tokens": lambda: Limit(quota, window_s, algorithm=TOKEN_BUCKET),
        "burst": lambda: Limit(max(1, quota // 2), window_s, algorithm=TOKEN_BUCKET, burst=quota),
        "initial": lambda: Limit(quota, window_s, algorithm=TOKEN_BUCKET, initial=quota // 2),
        "interval": lambda: Limit(quota, window_s, algorithm=TOKEN_BUCKET, refill=INTERVAL),
        "gcra": lambda: Limit(quota, window_s, algorithm=GCRA),
        "leaky": lambda: Limit(quota, window_s, algorithm=LEAKY_BUCKET),
        "slots": lambda: Limit(quota, algorithm=CONCURRENCY, lease=window_s),
    }
    return of_kind[kind]()


POLICIES: Final = {
    "strict": STRICT,
    "strict at nodes": replace(STRICT, scarce=NODES),
    "balanced": choose(max_overshoot=0.5, cold_allowance=0.0),
    "balanced at nodes": choose(max_overshoot=0.5, cold_allowance=0.0, scarce=NODES),
}
"""The policies that are explored: each policy that has a bound, with scarce quotas kept at the hub, and kept at the
nodes."""


FINE: Final = "fine"
COARSE: Final = "coarse"
GRAINS: Final = (FINE, COARSE)
"""The grains of events: in the fine grain each step of a message is an event, in the coarse grain each whole
exchange."""


OPENED_AT_ONCE: Final[Mapping[tuple[str, str], int]] = {
    (headroom.__name__, "SEALED_AFTER_S"): 0,
    (headroom.__name__, "SEALED_INTERVALS"): 0,
    (syncer.__name__, "CELLS_MAX"): 1,
}
"""Constants with which a node opens its sealed shares as early as the windows permit. Its batches have room for one
key, so that a node that comes back reports its keys one after the other."""


class Exploration(NamedTuple):
    """A case to explore: a limit, a policy, whether requests ask the hub, and the grain of its events."""

    kind: str
    quota: int
    policy: str
    asking: bool
    grain: str = FINE
    nodes: int = 2
    window_s: float = 2.0
    more: tuple[str, ...] = ()
    """The extras of the case, some of MORE."""

    def limit(self) -> Limit:
        """Returns the limit that all nodes of the case have."""
        return limit_of(self.kind, self.quota, self.window_s)

    def events(self) -> list[Event]:
        """Returns all events that can happen in this case."""
        list_all = fine_events if self.grain == FINE else coarse_events
        found = list_all(self.limit(), POLICIES[self.policy], self.nodes)
        found += further_events(self.limit(), self.nodes, self.more)
        return [event for event in found if self.asking or not event.asking]

    def world(self, start_ns: int = 0) -> SmallWorld:
        """Returns the case's world before any event. To be called in a `with` block of `constants()`.

        Raises RuntimeError if the case has reckless silences, and the call is not in such a block.
        """
        if RECKLESS in self.more and not is_reckless():
            raise RuntimeError(f"{self!r} needs reckless silences; call it in a `with` block of its `constants()`")
        keys = (KEY, SECOND) if SECOND_KEY in self.more else (KEY,)
        return SmallWorld(
            self.limit(),
            POLICIES[self.policy],
            nodes=self.nodes,
            start_ns=start_ns,
            keys=keys,
            names_reversed=REVERSED in self.more,
        )

    def mirrored(self) -> Exploration:
        """Returns the case with names of nodes that sort the other way."""
        more = [each for each in self.more if each != REVERSED]
        return self._replace(more=(*more, *((REVERSED,) if len(more) == len(self.more) else ())))

    @contextmanager
    def constants(self) -> Iterator[SilenceCount]:
        """Returns a context in which silence and sealed shares have the constants of the case, or of production."""
        with reckless_if(wanted=RECKLESS in self.more) as count, bound(OPENED_AT_ONCE if EARLY in self.more else {}):
            yield count

    def __str__(self) -> str:
        asking = "asking" if self.asking else "not asking"
        name = f"{self.kind} of {self.quota}, {self.policy}, {asking}, {self.grain}, {self.nodes} nodes"
        return ", ".join((name, *self.more))


def happen(world: SmallWorld, event: Event) -> None:
    """Lets `event` happen in `world`, then notes each promise that is broken in `world.problems`."""
    event.happen(world)
    world.look()


def named(events: list[Event]) -> dict[str, Event]:
    """Returns `events` by their names."""
    return {event.name: event for event in events}
