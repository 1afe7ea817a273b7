"""Searches one case after the other, each to a given depth, and sums up what was found."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from reconverge.limit.limit import PACED
from reconverge.simulation.explore.events import Exploration
from reconverge.simulation.explore.minimal import cut_down, program_of
from reconverge.simulation.explore.search import Found, Search

COLLECTED_AFTER: Final = 50_000
"""How many new objects cause a garbage collection. A collection walks the whole world, in which only ended nodes are
cycles."""
ASKING: Final = {"yes": (True,), "no": (False,), "both": (True, False)}


class Task(NamedTuple):
    """A case to search, on paths of at most `faults` faults, until `depth` events or `states` states are reached."""

    case: Exploration
    depth: int
    states: int
    faults: int
    start: tuple[str, ...] = ()
    """The names of the events with which every path begins."""


class Done(NamedTuple):
    """A finished search, with the task that it had."""

    found: Found
    programs: list[str]
    seconds: float


def cases_of(
    kinds: Sequence[str],
    policies: Sequence[str],
    asking: str,
    grains: Sequence[str],
    quota: int,
    nodes: int,
    window_s: float = 2.0,
    more: Sequence[str] = (),
) -> list[Exploration]:
    """Returns a case for every combination of the arguments; for paced limits only cases without requests that ask."""
    cases = [
        Exploration(kind, quota, policy, asks, grain, nodes, window_s, tuple(more))
        for kind, policy, asks, grain in product(kinds, policies, ASKING[asking], grains)
    ]
    cases = [case._replace(asking=case.asking and case.limit().algorithm not in PACED) for case in cases]
    return list(dict.fromkeys(cases))


def explored(task: Task) -> Done:
    """Searches a case depth by depth, until the task's depth or states are reached, or a promise is broken.

    Returns the results of the search, with a program for each counterexample.
    """
    began = os.times()
    gc.freeze()  # so that the collector does not walk all modules again and again
    gc.set_threshold(COLLECTED_AFTER)
    with task.case.constants():
        search = Search(task.case, faults_max=task.faults, start=task.start)
        while search.found.depth < task.depth and search.found.states < task.states and search.deepen():
            pass
        programs = [program_of(cut_down(each)) for each in search.found.counterexamples]
    return Done(search.found, programs, _seconds(os.times()) - _seconds(began))


def _seconds(times: os.times_result) -> float:
    return times.user + times.system


class RunTotals(NamedTuple):
    """The sums over all rows of a table of searches."""

    cases: int = 0
    states: int = 0
    seconds: float = 0.0
    broken: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.states:,} states in {self.seconds / 3600:.1f} hours of one processor,"
            f" {self.broken} with a counterexample"
        )


class RunTable:
    """A table of the searches that have ended, kept in a file if one is given, so that they need not be repeated.

    The file has a row for each search, and the fields of a row are separated by tabs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = "" if path is None or not path.exists() else path.read_text(encoding="utf-8")
        self._rows = [line.split("\t") for line in text.splitlines()[1:]]

    def has(self, task: Task) -> bool:
        """Whether the table has a row of the task's case, for a search with as many faults and no smaller depth."""
        return any(
            row[:2] == [str(task.case), str(task.faults)] and int(row[FIELDS.index("depth")]) >= task.depth
            for row in self._rows
        )

    def add(self, done: Done) -> str:
        """Adds a row for a search. Returns the row, and the program of each counterexample."""
        row = row_of(done)
        self._rows.append(row)
        if self._path is not None:
            begins = not self._path.exists()
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines("\t".join(each) + "\n" for each in ([list(FIELDS)] * begins + [row]))
        return "\n".join(("\t".join(row), *done.programs))

    def totals(self) -> RunTotals:
        """Returns the sums over all rows."""
        of_field = [dict(zip(FIELDS, row, strict=True)) for row in self._rows]
        return RunTotals(
            len(of_field),
            sum(int(row["states"]) for row in of_field),
            sum(float(row["seconds"]) for row in of_field),
            sum(row["counterexamples"] != "0" for row in of_field),
        )


FIELDS: Final = (
    "case",
    "faults",
    "depth",
    "states",
    "events",
    "seconds",
    "recoveries",
    "met again",
    "counterexamples",
)
"""The names of the fields of a row: the case, the most faults of a path, the depth that was searched, how many states
and events that took, the processor's seconds, and how many states were tested for recovery and for equal digests."""


def row_of(done: Done) -> list[str]:
    """Returns the fields of the table's row for a search."""
    found = done.found
    numbers = (found.faults_max, found.depth, found.states, found.events, round(done.seconds), found.recoveries)
    return [str(found.case), *map(str, (*numbers, found.equalities, len(done.programs)))]


class SilenceTotals(NamedTuple):
    """Sums over searches of cases with reckless silences: their states, states with a silent node, and recalls."""

    states: int = 0
    silent: int = 0
    recalls: int = 0

    def plus(self, found: Found) -> SilenceTotals:
        """Returns the sums with those of another search."""
        return SilenceTotals(self.states + found.states, self.silent + found.silent, self.recalls + found.recalls)

    def __str__(self) -> str:
        return f"{self.silent:,} of {self.states:,} states have a silent node, and {self.recalls:,} recalls were heard"
