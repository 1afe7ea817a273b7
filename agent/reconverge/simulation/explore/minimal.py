"""Cuts a counterexample down to the events that it needs to break a promise, and prints it as a program."""

from __future__ import annotations

from collections.abc import Sequence

from reconverge.simulation.explore.canonical import EPOCH_NS
from reconverge.simulation.explore.events import Exploration, happen
from reconverge.simulation.explore.recovery import unrecovered
from reconverge.simulation.explore.rewind import Snapshot
from reconverge.simulation.explore.search import Counterexample
from reconverge.simulation.explore.world import SmallWorld


def problems_of(world: SmallWorld, case: Exploration, names: Sequence[str], asking: int | None = None) -> list[str]:
    """Lets the events `names` happen in a fresh world, skipping those that cannot.

    Returns a sentence for each broken promise.

    If `asking` is the index of a node, all faults then end, and it is a problem if this node cannot use the whole
    quota.
    """
    events = {event.name: event for event in case.events()}
    for name in names:
        if events[name].can(world):
            happen(world, events[name])
        if world.problems:
            return world.problems
    if asking is not None:
        problem = unrecovered(world, asking)
        return world.problems + [problem] * bool(problem)
    return []


def replay(case: Exploration, *names: str, asking: int | None = None) -> list[str]:
    """Returns a sentence for each promise that the events `names` break; `asking` is explained at `problems_of`."""
    with case.constants():
        return problems_of(case.world(EPOCH_NS), case, names, asking)


def cut_down(found: Counterexample) -> Counterexample:
    """Returns the counterexample without the events that it does not need to break a promise.

    To be called in a `with` block of the case's `constants()`, like the search that has found it. If a replay breaks no
    promise, because two paths with different states had the same digest, returns it unchanged.
    """
    world = found.case.world(EPOCH_NS)
    begin = Snapshot(world)
    if not problems_of(world, found.case, found.names, found.asking):
        return found
    names = list(found.names)
    place = 0
    while place < len(names):
        begin.restore()
        fewer = names[:place] + names[place + 1 :]
        if problems_of(world, found.case, fewer, found.asking):
            names, place = fewer, 0
        else:
            place += 1
    begin.restore()
    # A last replay, which describes what the shorter path breaks.
    problems = problems_of(world, found.case, names, found.asking) or found.problems
    return Counterexample(found.case, tuple(names), list(problems), found.asking)


def program_of(found: Counterexample) -> str:
    """Returns a short Python program that replays the counterexample."""
    case = found.case
    events = "".join(f"    {name!r},\n" for name in found.names)
    asking = "" if found.asking is None else f"    asking={found.asking},\n"
    return (
        "from reconverge.simulation.explore.events import Exploration\n"
        "from reconverge.simulation.explore.minimal import replay\n\n"
        f"print(replay(\n    {case!r},\n{events}{asking}))\n"
        f"# {'; '.join(found.problems)}\n"
    )
