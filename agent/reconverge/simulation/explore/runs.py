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
"""How many new objects cause a garbage collection: each collection walks the whole world, in which only ended nodes are
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
    """A table of searches that have ended, kept in a file if one is given: a search that it has is not made again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows = [] if path is None or not path.exists() else path.read_text().splitlines()

    def has(self, task: Task) -> bool:
        """Whether the table has a row of the task's case, with equally many faults and at least the task's depth."""
        return any(
            row.startswith(f"| {task.case} | {task.faults} |") and int(row.split("|")[3]) >= task.depth
            for row in self._rows
        )

    def add(self, done: Done) -> str:
        """Adds a row for a search, and the program of each counterexample. Returns the added text."""
        lines = [] if self._rows else HEADER.splitlines()
        lines += [row_of(done), *(f"\n```\n{program}```" for program in done.programs)]
        self._rows += lines
        added = "\n".join(lines)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(added + "\n")
        return added

    def totals(self) -> RunTotals:
        """Returns the sums over all rows."""
        rows = [[each.strip().replace(",", "") for each in row.split("|")] for row in self._rows if row.count("|") > 5]
        numbers = [row for row in rows if row[4].isdigit()]
        return RunTotals(
            len(numbers),
            sum(int(row[4]) for row in numbers),
            sum(float(row[6]) for row in numbers),
            sum(row[9] != "0" for row in numbers),
        )


HEADER: Final = """\
| case | faults | depth | states | events | seconds | recoveries | met again | counterexamples |
|---|---|---|---|---|---|---|---|---|"""


def row_of(done: Done) -> str:
    """Returns the table's row, in Markdown, for a search."""
    found = done.found
    return (
        f"| {found.case} | {found.faults_max} | {found.depth} | {found.states:,} | {found.events:,} |"
        f" {done.seconds:.0f} | {found.recoveries:,} | {found.equalities:,} | {len(done.programs)} |"
    )
