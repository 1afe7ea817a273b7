"""Searches one case after the other, each as far as is asked for, and sums up what was found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.limit.limit import PACED
from reconverge.simulation.explore.events import Exploration
from reconverge.simulation.explore.minimal import cut_down, program_of
from reconverge.simulation.explore.search import Found, Search

ASKING: Final = {"yes": (True,), "no": (False,), "both": (True, False)}


class Task(NamedTuple):
    """A case, and how far its search goes."""

    case: Exploration
    depth: int
    states: int
    faults: int
    start: tuple[str, ...] = ()
    """The events with which every path begins."""


class Done(NamedTuple):
    """A search that has ended."""

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
) -> list[Exploration]:
    """Returns all cases of these; a paced limit has no requests that ask."""
    cases = [
        Exploration(kind, quota, policy, asks, grain, nodes, window_s)
        for kind, policy, asks, grain in product(kinds, policies, ASKING[asking], grains)
    ]
    return [case for case in cases if not (case.asking and case.limit().algorithm in PACED)]


def explored(task: Task) -> Done:
    """Searches a case: whole depths, until that depth or so many states are reached, or something is broken."""
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    search = Search(task.case, faults_max=task.faults, start=task.start)
    while search.found.depth < task.depth and search.found.states < task.states and search.deepen():
        pass
    programs = [program_of(cut_down(each)) for each in search.found.counterexamples]
    return Done(search.found, programs, (clock.monotonic_ns() - began_ns) / SECOND_NS)


def row_of(done: Done) -> str:
    """Returns a row of the table."""
    found = done.found
    bounded = "nothing new is left" if found.whole else f"depth {found.depth}, {found.faults_max} faults"
    if done.programs:
        bounded = "a counterexample"
    return (
        f"| {found.case} | {found.depth} | {found.states:,} | {found.events:,} | {found.states / done.seconds:,.0f} |"
        f" {found.recoveries:,} | {found.equalities:,} | {bounded} |"
    )
