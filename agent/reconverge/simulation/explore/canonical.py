"""Computes a digest of a small world; it is equal for worlds that differ only in times, names and order of nodes."""

# Theory of operation.
#
# Two worlds are equal if the same events lead to the same results in both. The digest abstracts from all else:
#
# - *Moments* count from now, by the nodes' clock or the hub's, and so do offsets between the two clocks. A number is
#   taken for a moment by its size: the clocks of a small world begin so late (`EPOCH_NS`) that all else is smaller, and
#   the units (nanoseconds of either clock, microseconds, numbers of windows and of slices) lie far from each other.
# - *Names*, and generations of the hub's data, are numbered in the order in which the walk meets them; names of nodes
#   that have gone, in the order of the hub's records of them.
# - *Nodes* are walked in the order of their own parts, so that it does not matter which of them is the first.
# - *Numbers of batches* count from the latest of their node.
# - *What nothing reads* is left out: LEFT_OUT lists it, with the reason (`reading.py`).
#
# A digest that left out too much would make the search skip states. So the search tests the digest: for some states
# that it meets again, it compares the state after each event with the state after that event the first time
# (`search.py`). A digest that differs for equal worlds only costs time.

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import permutations
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple

from reconverge.clock import MICROSECOND_NS, NEVER_NS, SECOND_NS
from reconverge.hub.report import WHOLE_MAX, Batch
from reconverge.limit import Limit
from reconverge.policies import Policy
from reconverge.simulation.explore.node import MARK, SmallNode
from reconverge.simulation.explore.reading import ReadingPlan, plan_of
from reconverge.simulation.explore.world import GENERATION, SmallWorld
from reconverge.simulation.judging.first_hits import OpenedWindow

EPOCH_NS: Final = 500_000_000 * SECOND_NS
"""The monotonic clock of an explored world at its beginning, in nanoseconds."""
_NEAR_NS: Final = 10_000 * SECOND_NS
"""A number of at least `_NANOSECONDS` that is this close to the present time is a moment."""
_SMALL: Final = 10**9
"""Numbers below this are counts or short durations."""
_NANOSECONDS: Final = 10**17
_MICROSECONDS: Final = 10**15
"""Numbers of at least `_NANOSECONDS`, or of at least this, are moments in nanoseconds, or in microseconds, unless they
are far from the present time."""
_WINDOWS: Final = 10**4
"""A number that differs by at most this from the number of the present window, or slice, is the number of a window, or
slice."""
_NAMES: Final = (MARK, GENERATION)
_UNORDERED: Final = (str, OpenedWindow, tuple)
"""The types of those mapping keys and set members whose order nothing reads: names of nodes, and the keys of the hub's
counts."""


class Walk:
    """One walk through a part of a world: appends the values of all objects it meets to `found`, for the digest."""

    def __init__(self, world: SmallWorld, names: dict[str, int], seen: dict[int, int], latest: dict[str, int]) -> None:
        self.found: list[Any] = []
        self.made: list[object] = []
        """Objects that the walk has made, kept alive so that no other object gets the same `id()`."""
        self.names = names
        self.seen = seen
        self._latest = latest
        wall_ns, window_ns = world.hub_clock.wall_ns(), world.limit.window_ns
        self._now_ns = world.clock.monotonic_ns()
        self._apart_ns = wall_ns - self._now_ns
        self._wall_ns = wall_ns
        self._wall_us = wall_ns // MICROSECOND_NS
        self._window = wall_ns // window_ns
        self._slice = wall_ns * (world.limit.slices or 1) // window_ns

    def large(self, one: float) -> None:
        """Appends a large number; for a moment (a point in time), or minus a moment, its distance from the present."""
        if one in (NEVER_NS, -NEVER_NS, WHOLE_MAX):  # the commonest values, and no moments
            self.found.append(one)
            return
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
            if -_NEAR_NS < one - self._apart_ns < _NEAR_NS:
                self.found += ("o", one - self._apart_ns)
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
        """Appends a string; in place of a node's name, the number of that name."""
        if one[:1] in _NAMES:
            self.found.append(self.names.setdefault(one, len(self.names)))
        else:
            self.found.append(one)

    def batch(self, one: Batch) -> None:
        """Appends a batch without its sums of charges; counts its sequence number from the latest one of its node."""
        self.name(one.node)
        self.found.append(one.sequence - self._latest.get(one.node, 0))
        self.name(one.generation)
        self.found.append(one.leaving)
        self.meet((one.heard_us,))
        for limit in one.limits:
            self.meet(limit._replace(charged=0, refunded=0))
        for report in one.cells:
            self.meet(report)

    def limit(self, one: Limit) -> None:
        """Appends the settings of a limit that an event of the exploration may change: its quota and its burst."""
        self.found += (one.quota, one.burst)

    def policy(self, one: Policy) -> None:
        """Appends the values of a policy that distinguish it from the other policies of the world."""
        self.found += (one.name, one.scarce)

    def opened(self, one: OpenedWindow) -> None:
        """Appends the node that opened a window, and when the window began."""
        self.meet((f"{MARK}{one.node}", one.began_us))

    def sample(self, one: tuple[Any, ...]) -> None:
        """Appends a sample of a clock, but not its rank, which is computed from the other values."""
        self.meet(one[1:])

    def meet(self, values: Iterable[Any]) -> None:  # noqa: PLR0912 - in one place, as calls would double the time
        """Appends `values`, and the values in all objects among them."""
        write, seen, least, most = self.found.append, self.seen, -_SMALL, _SMALL
        for one in values:
            kind = type(one)
            if kind is int or kind is float:
                if least < one < most:
                    write(one)
                else:
                    self.large(one)
            elif kind is bool or one is None:
                write(one)
            elif kind is str:
                self.name(one)
            else:
                plan = plan_of(kind)
                if plan.only_items and not one:
                    write(plan.name)
                elif plan.skipped:
                    continue
                elif plan.constant:
                    write(str(one))
                elif id(one) in seen:
                    self.found += ("@", seen[id(one)])
                else:
                    seen[id(one)] = len(seen)
                    write(plan.name)
                    if plan.only_slots:
                        self.meet(plan.values(one))
                    elif plan.only_attributes:
                        self.meet(plan.attributes_of(one))
                    else:
                        self._meet_object(one, plan)

    def _meet_object(self, one: Any, plan: ReadingPlan) -> None:
        if plan.special:
            _SPECIAL[plan.name](self, one)
            return
        if plan.sequence:
            self.found.append(len(one))
            self.meet(one)
        elif plan.mapping:
            self.found.append(len(one))
            self._meet_mapping(one)
        elif plan.set:
            self.found.append(len(one))
            self.meet(sorted(one, key=self._rank))
        if plan.slots:
            self.meet(plan.values(one))
        if plan.attributes:
            self.meet(plan.attributes_of(one))

    def _meet_mapping(self, one: dict[Any, Any]) -> None:
        if len(one) > 1 and any(isinstance(key, _UNORDERED) for key in one):
            one = {key: one[key] for key in sorted(one, key=self._rank)}
            self.made.append(one)
        self.meet(one)
        self.meet(one.values())

    def _rank(self, one: object) -> tuple[int, int, str]:
        """Returns a sort key for a member of a set or mapping, by the numbers given to names and objects so far."""
        if isinstance(one, OpenedWindow):
            return self.names.get(f"{MARK}{one.node}", -1), one.began_us, ""
        if isinstance(one, str):
            place = self.names.get(one, -1)
            return place, 0, one if place < 0 else ""
        if isinstance(one, tuple):
            return -1, 0, str(one)
        return self.seen.get(id(one), -1), one if isinstance(one, int) else 0, ""


_SPECIAL: Final[dict[str, Callable[[Walk, Any], None]]] = {
    "Batch": Walk.batch,
    "Limit": Walk.limit,
    "Policy": Walk.policy,
    "OpenedWindow": Walk.opened,
    "_ClockSample": Walk.sample,
}
"""For each class of which only some fields matter, by its name: the method that appends these fields."""


class NodePart(NamedTuple):
    """The part of a world that belongs to one node: its digest, and the numbers of the names and objects in it."""

    written: bytes
    """A digest of the values in this part."""
    names: dict[str, int]
    seen: dict[int, int]


def parts_of(world: SmallWorld, known: list[NodePart] | None = None, touched: int | None = None) -> list[NodePart]:
    """Returns each node's part of the world, in the order of the nodes.

    `known`, if given, are the parts before an event that changed no node but the one of index `touched`, and during
    which no time passed: only that node's part is computed anew.
    """
    latest = _latest(world)
    return [
        known[index] if known is not None and index != touched else _part(world, node, latest)
        for index, node in enumerate(world.nodes)
    ]


def digest(world: SmallWorld, parts: list[NodePart] | None = None) -> bytes:
    """Returns the digest of a world, of 12 bytes; `parts` are the parts of its nodes, if the caller has them."""
    parts = sorted(parts or parts_of(world), key=attrgetter("written"))
    if len({part.written for part in parts}) == len(parts):
        return _digest_of_all(world, parts)
    # Equal nodes may stand in either order; what the hub knows of them may differ.
    return min(
        _digest_of_all(world, list(order))
        for order in permutations(parts)
        if all(one.written == other.written for one, other in zip(order, parts, strict=True))
    )


def _digest_of(values: list[Any]) -> bytes:
    return blake2b(marshal.dumps(values, 2), digest_size=12).digest()


def _shard(world: SmallWorld) -> Any:
    return world.hub.rule._shards[0]  # type: ignore[attr-defined]


def _latest(world: SmallWorld) -> dict[str, int]:
    """Returns, for each node's name, the sequence number of the latest batch sent under that name."""
    latest = {name: record.sequence for name, record in _shard(world).nodes.items()}
    return latest | {node.syncer.node: node.syncer._sequence for node in world.nodes}


def _part(world: SmallWorld, node: SmallNode, latest: dict[str, int]) -> NodePart:
    walk = Walk(world, {}, {}, latest)
    walk.meet((node.syncer.node, node.name, node))
    return NodePart(_digest_of(walk.found), walk.names, walk.seen)


def _digest_of_all(world: SmallWorld, parts: list[NodePart]) -> bytes:
    shard, latest = _shard(world), _latest(world)
    names: dict[str, int] = {}
    seen: dict[int, int] = {}
    for part in parts:
        for name in part.names:
            names.setdefault(name, len(names))
        first = len(seen)
        seen.update({one: first + place for one, place in part.seen.items()})
    _number_departed(world, shard, names, latest)
    walk = Walk(world, names, seen, latest)
    walk.found += [shard.nodes[name].sequence - latest[name] for name in sorted(shard.nodes, key=names.__getitem__)]
    walk.meet((shard,))
    for batch in world.late:
        walk.batch(batch)
    walk.meet(world.truths.values())
    walk.found += (
        world.hub_clock.wall_ns() % world.limit.window_ns,
        max(0, world.remembered_until_ns - world.clock.monotonic_ns()),
        world.witness_needed,
        world.uncounted,
        world.overcounted,
        world.started if world.policy.max_overshoot > 0 else 0,
    )
    return _digest_of([*(part.written for part in parts), *walk.found])


def _number_departed(world: SmallWorld, shard: Any, names: dict[str, int], latest: dict[str, int]) -> None:
    """Adds to `names` a number for each name that only the hub has, in the order of the hub's records of these names.

    Names with equal records are ordered by the number of their process, if it has one; names of other processes follow.
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
        # A number is used up even if the owner has one already. Otherwise later numbers would show which names are of
        # one process, which nothing reads.
        for owner in (name.rpartition(".")[0], _process_of(name)):
            names[owner if owner not in names else f"{owner} of {name}"] = len(names)


def _process_of(name: str) -> str:
    return name.partition("-")[0]


def _written_record(world: SmallWorld, shard: Any, name: str, latest: dict[str, int]) -> bytes:
    """Returns all that the hub has recorded about the departed node `name`, as bytes.

    Its account is stored under `name` without the last dot and what follows it.
    """
    walk = Walk(world, {}, {}, latest)
    walk.meet((shard.nodes[name], shard.accounts.get(name.rpartition(".")[0])))
    walk.meet(cell.entries.get(name) for cell in shard.cells.values())
    walk.meet(cell.first == name for cell in shard.cells.values())
    walk.meet(batch.node == name for batch in world.late)
    walk.meet(kept.node == name for kept in shard.recalls.kept.values())
    opened = getattr(world.truth, "by_window", {})
    walk.meet(sorted(one.began_us for one in opened if f"{MARK}{one.node}" == _process_of(name)))
    return marshal.dumps(walk.found, 2)
