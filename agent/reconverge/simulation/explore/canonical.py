"""Computes a digest of a world that equal worlds share, whenever and under whichever names they came to be."""

# Theory of operation.
#
# Two worlds are equal if the same follows from the same events. What differs without a difference is taken out:
#
# - *Moments* count from now. A number is taken for a moment by its size: the clocks of a small world begin so late
#   (`EPOCH_NS`) that nothing else is as large, and the units (nanoseconds of either clock, microseconds, numbers of
#   windows and of slices) lie far from each other.
# - *Names*, and generations of the hub's data, are numbered in the order in which the walk meets them; those of nodes
#   that have gone by what the hub knows of them.
# - *Nodes* are walked in the order of their own parts, so that it does not matter which of them is the first.
# - *Numbers of batches* count from the latest of their node.
# - *What nothing reads* is left out: LEFT_OUT lists it, with the reason.
#
# A digest that forgot something would have the search pass by a part of what can happen. So the search tries it: of
# some states that it meets again, it compares all that follows within an event with what followed the first time
# (`search.py`). A digest that takes equal worlds for different ones costs time, and nothing else.

from __future__ import annotations

import marshal
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import cache
from hashlib import blake2b
from itertools import permutations
from math import inf
from operator import attrgetter
from random import Random
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

from reconverge.clock import MICROSECOND_NS, SECOND_NS, ManualClock
from reconverge.hub.report import Batch
from reconverge.kernel.lock import Lock
from reconverge.limit import Limit
from reconverge.policies import Policy
from reconverge.simulation.explore.node import MARK, SmallNode
from reconverge.simulation.explore.rewind import slots_of
from reconverge.simulation.explore.world import GENERATION, SmallWorld
from reconverge.simulation.judging.first_hits import OpenedWindow

EPOCH_NS: Final = 500_000_000 * SECOND_NS
"""When the monotonic clock of an explored world begins."""
_NEAR_NS: Final = 10_000 * SECOND_NS
"""Within so much of now a number is a moment."""
_SMALL: Final = 10**9
"""Numbers below this are counts or short durations."""
_NANOSECONDS: Final = 10**17
_MICROSECONDS: Final = 10**15
"""Numbers from here on are moments in nanoseconds, or microseconds, unless they are far from now."""
_WINDOWS: Final = 10**4
"""Within so many windows or slices of now a number of that size is one of theirs."""
_NAMES: Final = (MARK, GENERATION)
LEFT_OUT: Final[dict[str, str]] = {
    # Statistics, which only people read.
    "Syncer": "_exchanges _early _cells _rebirths _lapses _failures _random _sequence _kernel",
    "Store": "admitted refused overflowed left_early",
    "ShardState": "not_taken",
    # Sums over a life, which only the comparison with the books reads, after each event.
    "Tally": "charged refunded _confirmed _reported",
    "Account": "limits",
    "LedgerShard": "_totals lending",
    # The numbers of which names are made.
    "SmallNode": "number name _names charged refunded clock syncers",
    # Parts of a kernel or a hub that a world of one limit does not use, and what follows from the limit and the policy.
    "Kernel": (
        "clock composites dropped _reported namespace hash_key after_answers room intervals_ns soonest_ns key_bytes_max"
        " alone region_ppm interval_ns interval_min_ns lease_ns slot_lease_ns"
    ),
    "Table": (
        "clock kernel peers name reported_as tiers overflow_key waiter held pool listeners evicted window_s calendar"
        " meter dated pacer lock unit window_ns stepwise smooth paced additive costs need_max soft interval_ns"
        " interval_min_ns lease_ns"
    ),
    "NodeRecord": "sequence",
}
"""The attributes that the walk leaves out, by the class that they belong to."""
_SKIPPED: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    Random,
    Lock,
    ManualClock,
    WeakValueDictionary,
)


class ReadingPlan:
    """How the walk reads the objects of one class."""

    def __init__(self, kind: type) -> None:
        self.name = kind.__name__
        self.left_out = frozenset(LEFT_OUT.get(self.name, "").split())
        slots = [slot.__name__ for slot in slots_of(kind) if slot.__name__ not in self.left_out]
        self.slots = tuple(slots)
        self.read = attrgetter(*slots) if len(slots) > 1 else None
        self.attributes = kind.__dictoffset__ != 0
        self.skipped = issubclass(kind, _SKIPPED)
        self.constant = issubclass(kind, Limit | Policy | bytes | Enum)
        self.sequence = issubclass(kind, list | tuple | deque)
        self.mapping = issubclass(kind, dict)
        self.set = issubclass(kind, set | frozenset)
        self.special = _SPECIAL.get(self.name)

    def values(self, one: object) -> tuple[object, ...] | list[object]:
        """Returns the values of the slots of an object, None where one is not set."""
        if self.read is not None:
            with suppress(AttributeError):
                return cast("tuple[object, ...]", self.read(one))
        return [getattr(one, name, None) for name in self.slots]


_plans: dict[type, ReadingPlan] = {}


def plan_of(kind: type) -> ReadingPlan:
    """Returns how the walk reads the objects of a class."""
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = ReadingPlan(kind)
    return plan


class Walk:
    """One walk through a part of a world, which writes down the values that it meets."""

    def __init__(self, world: SmallWorld, names: dict[str, int], seen: dict[int, int], latest: dict[str, int]) -> None:
        self.found: list[Any] = []
        self.made: list[object] = []
        """Objects that the walk has made, and keeps so that nothing else gets their identity."""
        self.names = names
        self.seen = seen
        self._latest = latest
        wall_ns, window_ns = world.clock.wall_ns(), world.limit.window_ns
        self._now_ns = world.clock.monotonic_ns()
        self._wall_ns = wall_ns
        self._wall_us = wall_ns // MICROSECOND_NS
        self._window = wall_ns // window_ns
        self._slice = wall_ns * (world.limit.slices or 1) // window_ns

    def large(self, one: float) -> None:
        """Writes down a large number; a moment as its distance from now, also if its sign has a meaning of its own."""
        if one < 0:
            self.found.append("-")
            one = -one
        if one >= _NANOSECONDS:
            if -_NEAR_NS < one - self._now_ns < _NEAR_NS:
                self.found += ("m", one - self._now_ns)
                return
            if -_NEAR_NS < one - self._wall_ns < _NEAR_NS:
                self.found += ("w", one - self._wall_ns)
                return
        elif one >= _MICROSECONDS:
            self.found += ("u", one - self._wall_us)
            return
        elif -_WINDOWS < one - self._window < _WINDOWS:
            self.found += ("e", one - self._window)
            return
        elif -_WINDOWS < one - self._slice < _WINDOWS:
            self.found += ("s", one - self._slice)
            return
        self.found.append(one)

    def name(self, one: str) -> None:
        """Writes down a string; a name as its number."""
        if one[:1] in _NAMES:
            self.found.append(self.names.setdefault(one, len(self.names)))
        else:
            self.found.append(one)

    def batch(self, one: Batch) -> None:
        """Writes down a batch without its sums over a life, and its number as the distance from its node's latest."""
        self.name(one.node)
        self.found.append(one.sequence - self._latest.get(one.node, 0))
        self.name(one.generation)
        self.found += (one.leaving, repr([limit._replace(charged=0, refunded=0) for limit in one.limits]))
        for report in one.cells:
            self.meet(report)

    def opened(self, one: OpenedWindow) -> None:
        """Writes down when a node's window began."""
        self.meet((f"{MARK}{one.node}", one.began_us))

    def sample(self, one: tuple[Any, ...]) -> None:
        """Writes down a sample of a clock; its rank follows from the rest, and holds a part of a moment."""
        self.meet(one[1:])

    def meet(self, values: Iterable[Any]) -> None:
        """Writes down values and all that they hold."""
        write = self.found.append
        for one in values:
            kind = type(one)
            if kind is int or kind is float:
                if -_SMALL < one < _SMALL:
                    write(one)
                else:
                    self.large(one)
            elif kind is bool or one is None:
                write(one)
            elif kind is str:
                self.name(one)
            else:
                plan = _plans.get(kind) or plan_of(kind)
                if plan.skipped:
                    continue
                if plan.constant:
                    write(_written(one))
                elif id(one) in self.seen:
                    self.found += ("@", self.seen[id(one)])
                else:
                    self.seen[id(one)] = len(self.seen)
                    write(plan.name)
                    self._meet_object(one, plan)

    def _meet_object(self, one: Any, plan: ReadingPlan) -> None:
        if plan.special is not None:
            plan.special(self, one)
            return
        if plan.sequence:
            self.found.append(len(one))
            if one:
                self.meet(one)
        elif plan.mapping:
            self.found.append(len(one))
            if one:
                self._meet_mapping(one)
        elif plan.set:
            self.found.append(len(one))
            self.meet(sorted(one, key=self._rank))
        if plan.slots:
            self.meet(plan.values(one))
        if plan.attributes:
            attributes = one.__dict__
            left_out = plan.left_out
            self.meet(
                [value for name, value in attributes.items() if name not in left_out]
                if left_out
                else attributes.values()
            )

    def _meet_mapping(self, one: dict[Any, Any]) -> None:
        if len(one) > 1 and any(isinstance(key, str | OpenedWindow) for key in one):
            one = {key: one[key] for key in sorted(one, key=self._rank)}
            self.made.append(one)
        self.meet(one)
        self.meet(one.values())

    def _rank(self, one: object) -> tuple[int, int, str]:
        """Returns where a value stands among others of a set or a mapping, by what is known of it so far."""
        if isinstance(one, OpenedWindow):
            return self.names.get(f"{MARK}{one.node}", -1), one.began_us, ""
        if isinstance(one, str):
            place = self.names.get(one, -1)
            return place, 0, one if place < 0 else ""
        return self.seen.get(id(one), -1), one if isinstance(one, int) else 0, ""


_SPECIAL: Final[dict[str, Callable[[Walk, Any], None]]] = {
    "Batch": Walk.batch,
    "OpenedWindow": Walk.opened,
    "_ClockSample": Walk.sample,
}
"""How objects are written down of which not all counts, by class."""


@cache
def _written(one: object) -> str:
    return str(one)


class NodePart(NamedTuple):
    """One node's part of a world."""

    written: bytes
    """The values in it."""
    names: dict[str, int]
    seen: dict[int, int]


def parts_of(world: SmallWorld, known: list[NodePart] | None = None, touched: int | None = None) -> list[NodePart]:
    """Returns each node's part, in the order of the nodes.

    `known` are the parts before an event that changed no node but `touched`, and during which no time passed.
    """
    latest = _latest(world)
    return [
        known[index] if known is not None and index != touched else _part(world, node, latest)
        for index, node in enumerate(world.nodes)
    ]


def digest(world: SmallWorld, parts: list[NodePart] | None = None) -> bytes:
    """Returns the digest of a world, of 12 bytes; `parts` are those of its nodes, if they are known."""
    parts = sorted(parts or parts_of(world), key=lambda part: part.written)
    # Equal nodes may stand in either order; what the hub knows of them may differ.
    orders = [
        list(order)
        for order in permutations(parts)
        if all(one.written == other.written for one, other in zip(order, parts, strict=True))
    ]
    whole = min(_written_whole(world, order) for order in orders)
    return blake2b(whole, digest_size=12).digest()


def _shard(world: SmallWorld) -> Any:
    return world.hub.rule._shards[0]  # type: ignore[attr-defined]


def _latest(world: SmallWorld) -> dict[str, int]:
    """Returns the number of the latest batch of each name."""
    latest = {name: record.sequence for name, record in _shard(world).nodes.items()}
    return latest | {node.syncer.node: node.syncer._sequence for node in world.nodes}


def _part(world: SmallWorld, node: SmallNode, latest: dict[str, int]) -> NodePart:
    walk = Walk(world, {}, {}, latest)
    walk.meet((node.syncer.node, node.name, node))
    return NodePart(marshal.dumps(walk.found, 2), walk.names, walk.seen)


def _written_whole(world: SmallWorld, parts: list[NodePart]) -> bytes:
    shard, latest = _shard(world), _latest(world)
    names: dict[str, int] = {}
    seen: dict[int, int] = {}
    for part in parts:
        for name in part.names:
            names.setdefault(name, len(names))
        first = len(seen)
        for one, place in part.seen.items():
            seen.setdefault(one, first + place)
    _number_departed(world, shard, names, latest)
    walk = Walk(world, names, seen, latest)
    walk.found += [shard.nodes[name].sequence - latest[name] for name in sorted(shard.nodes, key=names.__getitem__)]
    walk.meet((shard,))
    for batch in world.late:
        walk.batch(batch)
    walk.meet((world.truth,))
    walk.found += (
        world.clock.wall_ns() % world.limit.window_ns,
        max(0, world.remembered_until_ns - world.clock.monotonic_ns()),
        world.witness_needed,
        world.uncounted,
        world.overcounted,
        world.started if world.policy.max_overshoot > 0 else 0,
    )
    return marshal.dumps([[part.written for part in parts], walk.found], 2)


def _number_departed(world: SmallWorld, shard: Any, names: dict[str, int], latest: dict[str, int]) -> None:
    """Numbers the names that only the hub knows, by what it knows of them and by whose processes they were.

    Of names of which the hub knows the same, one comes first whose process has a number already, by that number.
    """
    departed = [name for name in shard.nodes if name not in names]
    several = len(departed) > 1
    known = {name: _written_record(world, shard, name, latest) for name in departed} if several else {}
    processes = Counter(map(_process_of, departed))

    def rank(name: str) -> tuple[bytes, float, int]:
        process = _process_of(name)
        return known[name], names.get(process, inf), -processes[process]

    while departed:
        name = min(departed, key=rank) if len(departed) > 1 else departed[0]
        departed.remove(name)
        names[name] = len(names)
        names.setdefault(name.rpartition(".")[0], len(names))
        names.setdefault(_process_of(name), len(names))


def _process_of(name: str) -> str:
    return name.partition("-")[0]


def _written_record(world: SmallWorld, shard: Any, name: str, latest: dict[str, int]) -> bytes:
    """Returns all that the hub knows of a node that has gone; its account ends at the last dot of its name."""
    walk = Walk(world, {}, {}, latest)
    walk.meet((shard.nodes[name], shard.accounts.get(name.rpartition(".")[0])))
    walk.meet(cell.entries.get(name) for cell in shard.cells.values())
    walk.meet(cell.first == name for cell in shard.cells.values())
    walk.meet(batch.node == name for batch in world.late)
    opened = getattr(world.truth, "by_window", {})
    walk.meet(sorted(one.began_us for one in opened if f"{MARK}{one.node}" == _process_of(name)))
    return marshal.dumps(walk.found, 2)
