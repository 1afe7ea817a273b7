"""Follows paths of an exploration on both kernels.

As a program it is the kernel in Python, which can be explored: `python -m tests.support.explored` reads a case from
each line, and answers with some of the paths of its exploration, each with the trace of all that happens along it.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from reconverge.hub.report import Answer, Batch, Totals
from reconverge.simulation.explore.canonical import EPOCH_NS
from reconverge.simulation.explore.events import Exploration, happen, named
from reconverge.simulation.explore.search import Search
from reconverge.simulation.explore.world import KEY, SmallWorld
from tests.support.twin import ATTRIBUTES, OtherTwin, serve, told


class Heard(NamedTuple):
    """A batch that has reached the hub of a small world."""

    wall_ns: int
    batch: Batch
    answer: Answer
    lost: bool
    """Whether the hub has lost its data since the batch before."""


class Course(NamedTuple):
    """All that happens along a path."""

    trace: list[str]
    """For each event, the messages and admissions, and each node's knowledge of the key afterwards."""
    heard: list[Heard]


class Sample(NamedTuple):
    """The exploration and the number of paths to return."""

    case: Exploration
    depth: int
    width: int
    """The number of states, drawn at random, from which the exploration goes deeper; it returns as many paths."""
    seed: int

    def paths(self) -> list[tuple[str, ...]]:
        """Explores. Returns the names of the events of each path."""
        random = Random(self.seed)
        search = Search(self.case, faults_max=self.depth)
        for _ in range(self.depth):
            search.deepen()
            assert not search.found.counterexamples
            search.frontier = random.sample(search.frontier, min(self.width, len(search.frontier)))
        return [search.named(path) for path in search.frontier]


class _Recorded:
    """A merge rule that records its batches and answers."""

    def __init__(self, world: SmallWorld) -> None:
        self._rule = world.hub.rule
        self._clock = world.clock
        self._lost = False
        self.heard: list[Heard] = []

    def merge(self, batch: Batch) -> Answer:
        answer = self._rule.merge(batch)
        self.heard.append(Heard(self._clock.wall_ns(), batch, answer, self._lost))
        self._lost = False
        return answer

    def lose_data(self) -> None:
        self._rule.lose_data()
        self._lost = True

    def sums(self) -> dict[str, Totals]:
        return self._rule.sums()


def course_of(case: Exploration, names: tuple[str, ...]) -> Course:
    """Lets the events happen in a new world."""
    world, events = case.world(EPOCH_NS), named(case.events())
    recorded = world.hub.rule = _Recorded(world)
    trace = []
    for name in names:
        known = len(recorded.heard)
        happen(world, events[name])
        cells = [world.table(index).cells.get(KEY) for index in range(len(world.nodes))]
        knows = [[told(getattr(cell, each)) for each in ATTRIBUTES] for cell in cells if cell is not None]
        trace.append(
            f"{name}: {world.truth.charged} {world.truth.refunded} {world.problems} {recorded.heard[known:]} {knows}"
        )
    return Course(trace, recorded.heard)


class Explorer(OtherTwin):
    """A process with the kernel in Python, which explores."""

    def __init__(self) -> None:
        super().__init__("tests.support.explored")

    def explores(self, sample: Sample) -> list[tuple[tuple[str, ...], list[str]]]:
        """Returns paths, each with the trace of what happens along it."""
        self.begins(*sample)
        return [(tuple(names), trace) for names, trace in self.answers()]


def _explored(case: list[Any], *rest: Any) -> list[Any]:
    sample = Sample(Exploration(*case), *rest)
    return [(names, course_of(sample.case, names).trace) for names in sample.paths()]


if __name__ == "__main__":
    serve(_explored)
