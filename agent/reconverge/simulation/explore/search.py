"""Searches a small world breadth first: from each state everything that can happen, until all of a depth is known."""

# Theory of operation.
#
# A state is kept as the events that led to it, a byte each. To go on from it, the world is rewound to the beginning,
# these events happen again, and a snapshot is taken, to which the world is rewound after each event that is tried. The
# digest of the result shows whether the search has met that state before (`canonical.py`). A path has few faults, so
# that the search gets deeper among usual events. A state that is met again after fewer faults is expanded again.
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

RECOVERY_SHARE: Final = 500
"""One in this many states is tested for recovery: once all faults end, a node gets the whole quota."""
EQUALITY_SHARE: Final = 200
"""One in this many states that are met again is tested: the same must follow as the first time."""

Path = bytes
"""Events by their places in the list of all, in the order in which they happen."""


@dataclass
class Counterexample:
    """Events that lead to a broken promise, and what is broken."""

    case: Exploration
    names: tuple[str, ...]
    problems: list[str]
    asking: int | None = None
    """The node that did not get what it should in the end, if that is the problem."""


@dataclass
class Found:
    """How far a search has come."""

    case: Exploration
    faults_max: int
    depth: int = 0
    """The length up to which all paths have been tried, in events."""
    states: int = 1
    """How many different states were met."""
    events: int = 0
    """How many events were tried."""
    recoveries: int = 0
    """How many states were tested for recovery."""
    equalities: int = 0
    """How many states that were met again were tested for the equality of what follows."""
    whole: bool = False
    """Whether the search ended because nothing new was left."""
    layers: list[int] = field(default_factory=list)
    """How many new states each depth had."""
    counterexamples: list[Counterexample] = field(default_factory=list)


class Search:
    """The search of one case, on the kernel in Python. Raises RuntimeError if the compiled kernel is in use."""

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
        self._root = Snapshot(self._world)
        first = digest(self._world)
        self._seen: dict[bytes, int] = {first: 0}
        """The digests of all states, each with the fewest faults on the way to it."""
        self._first: dict[bytes, Path] = {}
        """The first path to some of the states, which are drawn by their digests."""
        self.frontier: list[Path] = [b""]
        """The paths to the states from which the search goes on; a caller may take some out."""

    def deepen(self, until: Callable[[Found], bool] = lambda _: False) -> bool:
        """Tries every event in every state of the present depth. Returns whether there is anything left to do.

        `until` is asked before each state whether to stop early; the depth then does not count.
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
            happen(self._world, event)
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
                if drawn(known, EQUALITY_SHARE):
                    self._first[known] = path + bytes([place])
                if drawn(known, RECOVERY_SHARE):
                    self._try_recovery(path + bytes([place]))
            elif known in self._first:
                self._compare(self._first.pop(known), path + bytes([place]))
            state.restore()

    def _compare(self, first: Path, again: Path) -> None:
        """Compares what follows from two paths to one digest; the nodes may have changed their places."""
        self.found.equalities += 1
        there, here = self._follow(first), self._follow(again)
        if sorted(there.values()) != sorted(here.values()):
            differ = [name for name, known in here.items() if known not in there.values()]
            self._world.problems = [
                f"the digest is blind: it is the same as after {self.named(first)}, but not after one more of {differ}"
            ]
            self._note(again)

    def _follow(self, path: Path) -> dict[str, bytes]:
        """Returns the digest after each event that can follow a path."""
        self._go(path)
        state, found = Snapshot(self._world), {}
        for event in self.events:
            if event.can(self._world):
                happen(self._world, event)
                found[event.name] = digest(self._world)
                state.restore()
        return found

    def named(self, path: Path) -> tuple[str, ...]:
        """Returns the names of the events of a path."""
        return tuple(self.events[place].name for place in path)

    def _go(self, path: Path) -> int:
        """Lets the events of a path happen, from the beginning. Returns the number of faults among them."""
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
        problem = unrecovered(self._world, self.found.recoveries % len(self._world.nodes))
        if problem:
            self._world.problems.append(problem)
            self._note(path, self.found.recoveries % len(self._world.nodes))


def drawn(known: bytes, share: int) -> bool:
    """Whether a digest is among those that are drawn for a test, one in `share`."""
    return int.from_bytes(known[:4]) % share == 0
