"""Searches a small world breadth first: lets every possible event happen in each state, one depth after the other."""

# Theory of operation.
#
# A state is kept as the events that led to it, a byte each. To go on from it, the world is rewound to the beginning,
# these events happen again, and a snapshot is taken, to which the world is rewound after each event that is tried. The
# digest of the result shows whether the search has met that state before (`canonical.py`). A path has few faults, so
# that the search gets deeper among usual events. A state that is met again after fewer faults is expanded again.
#
# Of two nodes that have asked the hub since the same moment, it serves the one whose name sorts first, and the digest
# leaves names out. So of states in which only that differs, a search goes on from one; the same search with names that
# are reversed (REVERSED in `events.py`) goes on from the other.
#
# Recovery, and that equal digests mean equal worlds, are tested in a part of the states, drawn by their digests.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from reconverge.kernel import COMPILED
from reconverge.simulation.explore.canonical import EPOCH_NS, digest, parts_of
from reconverge.simulation.explore.events import Exploration, happen
from reconverge.simulation.explore.recovery import unrecovered
from reconverge.simulation.explore.rewind import Snapshot
from reconverge.simulation.explore.world import SmallWorld
from reconverge.simulation.reckless import count_so_far

RECOVERY_SHARE: Final = 100
"""One state in this many is tested for recovery: once all faults end, a node must get the whole quota, and the hub must
have counted all charges."""
EQUALITY_SHARE: Final = 200
"""One state in this many that the search meets again is tested: from it, each event must lead to the same state as the
first time."""

Path = bytes
"""A sequence of events, in the order in which they happen: each byte is an event's index in the list of all events."""


@dataclass
class Counterexample:
    """The events that lead to a broken promise, and a sentence for each promise that they break."""

    case: Exploration
    names: tuple[str, ...]
    problems: list[str]
    asking: int | None = None
    """The index of the node that asked for the whole quota after all faults; None if an event broke a promise."""


@dataclass
class Found:
    """The results of a search so far."""

    case: Exploration
    faults_max: int
    depth: int = 0
    """The number of events up to which all paths have been tried."""
    states: int = 1
    """The number of different states that the search has met."""
    events: int = 0
    """The number of events that the search has tried."""
    recoveries: int = 0
    """The number of states that were tested for recovery."""
    equalities: int = 0
    """The number of states that were met again and tested for equality."""
    whole: bool = False
    """Whether the search has ended because no event led to a new state."""
    silent: int = 0
    """The number of these states in which a node is silent about a key that it charges."""
    recalls: int = 0
    """The number of recalls that made a node report a key, over all events tried; 0 if silences are not reckless."""
    layers: list[int] = field(default_factory=list)
    """For each depth, the number of states that were first met there."""
    counterexamples: list[Counterexample] = field(default_factory=list)


class Search:
    """The search of one case, on the kernel in Python, in a `with` block of the case's `constants()`.

    Raises RuntimeError if the compiled kernel is in use, or outside such a block.
    """

    def __init__(self, case: Exploration, *, faults_max: int = 2, start: tuple[str, ...] = ()) -> None:
        if COMPILED:
            raise RuntimeError(
                "the compiled kernel hides its fields, so a search would lose states; set RECONVERGE_NO_EXTENSIONS=1"
            )
        self.case = case
        self.events = case.events()
        self.found = Found(case, faults_max)
        self._faults_max = faults_max
        self._world = case.world(EPOCH_NS)
        by_name = {event.name: event for event in self.events}
        for name in start:
            happen(self._world, by_name[name])
        self._start = start
        self._mirrored: Search | None = None
        self._root = Snapshot(self._world)
        first = digest(self._world)
        self._seen: dict[bytes, int] = {first: 0}
        """The digests of all states, each with the fewest faults on any path to it."""
        self._first: dict[bytes, Path] = {}
        """The first path to a state, for those states that are tested for equality."""
        self.frontier: list[Path] = [b""]
        """The paths to the states from which the search goes on; a caller may remove some of them."""

    def deepen(self, until: Callable[[Found], bool] = lambda _: False) -> bool:
        """Tries every event in every state of the present depth. Returns whether there are new states to go on from.

        Calls `until` before each state, and stops early if that returns true; the depth then does not count as
        searched.
        """
        reached: list[Path] = []
        before = self.found.states
        for path in self.frontier:
            if until(self.found) or self.found.counterexamples:
                return False
            self._expand(path, reached)
        self.frontier = reached
        self.found.depth += 1
        self.found.layers.append(self.found.states - before)
        self.found.whole = not reached
        return bool(reached)

    def _expand(self, path: Path, reached: list[Path]) -> None:
        faults = self._go(path)
        state, parts = Snapshot(self._world), parts_of(self._world)
        now_ns = self._world.clock.monotonic_ns()
        for place, event in enumerate(self.events):
            spent = faults + event.fault
            if spent > self._faults_max or not event.can(self._world):
                continue
            recalls = count_so_far().recalls
            happen(self._world, event)
            self.found.recalls += count_so_far().recalls - recalls
            self.found.events += 1
            if self._world.problems:
                self._note(path + bytes([place]))
                return
            at_once = self._world.clock.monotonic_ns() == now_ns
            known = digest(self._world, parts_of(self._world, parts if at_once else None, event.node))
            fewest = self._seen.get(known)
            if fewest is None or spent < fewest:
                self._seen[known] = spent
                reached.append(path + bytes([place]))
            if fewest is None:
                self.found.states += 1
                self.found.silent += has_silent_node(self._world)
                if drawn(known, EQUALITY_SHARE):
                    self._first[known] = path + bytes([place])
                if drawn(known, RECOVERY_SHARE):
                    self._try_recovery(path + bytes([place]))
            elif known in self._first:
                self._compare(self._first.pop(known), path + bytes([place]))
            state.restore()

    def _compare(self, first: Path, again: Path) -> None:
        """Notes a problem if two paths to the same digest lead to different digests after one more event.

        The nodes may have changed places between the two paths. The hub serves nodes that ask at the same moment by
        their names, which then sort the other way; so the second path may lead to the same states only under names that
        are reversed.
        """
        self.found.equalities += 1
        there, here = self._follow(first), self._follow(again)
        if sorted(there.values()) == sorted(here.values()):
            return
        if sorted(there.values()) != sorted(self._mirror()._follow(again).values()):
            differ = [name for name, known in here.items() if known not in there.values()]
            self._world.problems = [
                f"the digest is blind: it is the same as after {self.named(first)}, but not after one more of {differ}"
            ]
            self._note(again)

    def _mirror(self) -> Search:
        """Returns a search of the same case in which the names of the nodes sort the other way."""
        if self._mirrored is None:
            self._mirrored = Search(self.case.mirrored(), start=self._start)
        return self._mirrored

    def _follow(self, path: Path) -> dict[str, bytes]:
        """Returns the digest of each state to which one more event after `path` leads, by the name of the event."""
        self._go(path)
        state, found = Snapshot(self._world), {}
        for event in self.events:
            if event.can(self._world):
                happen(self._world, event)
                found[event.name] = digest(self._world)
                state.restore()
        return found

    def named(self, path: Path) -> tuple[str, ...]:
        """Returns the names of the events of `path`."""
        return tuple(self.events[place].name for place in path)

    def _go(self, path: Path) -> int:
        """Lets the events of `path` happen in a world at its beginning. Returns the number of faults among them."""
        self._root.restore()
        faults = 0
        for place in path:
            self.events[place].happen(self._world)
            self._world.look()
            faults += self.events[place].fault
        return faults

    def _note(self, path: Path, asking: int | None = None) -> None:
        names = (*self._start, *self.named(path))
        self.found.counterexamples.append(Counterexample(self.case, names, list(self._world.problems), asking))

    def _try_recovery(self, path: Path) -> None:
        self.found.recoveries += 1
        asking = self.found.recoveries % len(self._world.nodes)
        problem = unrecovered(self._world, asking)
        if problem:
            self._world.problems.append(problem)
        if self._world.problems:  # the quota may be there although the hub lacks charges
            self._note(path, asking)


def has_silent_node(world: SmallWorld) -> bool:
    """Returns whether any node would leave its next charge on a key unreported."""
    return any(cell.comfortable for index in range(len(world.nodes)) for cell in world.table(index).cells.values())


def drawn(known: bytes, share: int) -> bool:
    """Whether the state with the digest `known` is drawn for a further test, as one state in `share` is."""
    return int.from_bytes(known[:4]) % share == 0
