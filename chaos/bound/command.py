"""Runs scenarios and follows each step of them by the model: `python -m chaos bind`. Keeps the outcomes, and a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

from chaos.bound.following import Followed
from chaos.bound.scenarios import bound
from chaos.names import OURS
from chaos.requirements import missing
from chaos.scenarios.catalogue import NAMES
from chaos.scenarios.scenario import Scenario
from chaos.stage import ChaosFailed
from chaos.supervisor import run

RESULTS: Final = "bound-chaos.json"
PAGE: Final = "bound-chaos.md"
HEAD: Final = (
    "| scenario | limit, policy | names | merges | unheard | steps | followed | end |",
    "|---|---|---|---|---|---|---|---|",
)
REJECTED: Final = "rejected"
WHOLE: Final = "whole"


class BoundTask(NamedTuple):
    """A scenario that is run with one kind of limit under one policy."""

    scenario: Scenario
    kind: str
    policy: str
    short: bool
    """Whether leases are as short as may be, so that they end within faults."""

    def __str__(self) -> str:
        return f"{self.scenario.name} | {self.kind}, {self.policy}{', short leases' * self.short}"


class BoundOutcome(TypedDict):
    """The outcome of one run, as the file has it."""

    names: int
    merges: int
    unheard: int
    compared: int
    seconds: float
    of_seconds: float
    end: str
    """The reason why the run was not followed to its end; WHOLE if it was."""
    steps: dict[str, int]


Outcomes = dict[str, BoundOutcome]
"""The outcome of each run, by its task."""


def outcome_of(followed: Followed) -> BoundOutcome:
    """Returns the outcome of a run as it is kept."""
    its = followed.run
    return BoundOutcome(
        names=followed.names,
        merges=followed.merges,
        unheard=followed.unheard,
        compared=followed.compared,
        seconds=round(followed.seconds, 1),
        of_seconds=round(followed.of_seconds, 1),
        end=REJECTED if its.rejected else its.outside or WHOLE,
        steps=dict(its.accepted.most_common()),
    )


def row(task: str, outcome: BoundOutcome) -> str:
    """Returns the row of a run in the table."""
    numbers = f"{outcome['names']} | {outcome['merges']:,} | {outcome['unheard']} | {sum(outcome['steps'].values()):,}"
    return f"| {task} | {numbers} | {outcome['seconds']} of {outcome['of_seconds']} s | {outcome['end']} |"


def summary(outcomes: Outcomes) -> str:
    """Returns the sums over all runs, in a sentence."""
    ends = Counter(outcome["end"] for outcome in outcomes.values())
    steps = sum(sum(outcome["steps"].values()) for outcome in outcomes.values())
    answers = sum(outcome["compared"] for outcome in outcomes.values())
    outside = ends.total() - ends[WHOLE] - ends[REJECTED]
    return (
        f"{ends.total()} runs, {steps:,} steps: {ends[WHOLE]} were followed to their ends, {outside} until an "
        f"assumption of the proof failed, {ends[REJECTED]} to a rejected step. {answers:,} answers of servers were "
        "compared with the definition of the merge rule in Python."
    )


def page(outcomes: Outcomes) -> str:
    """Returns the page of the outcomes, in Markdown."""
    return "\n".join(_lines(outcomes)) + "\n"


def _lines(outcomes: Outcomes) -> Iterator[str]:
    yield "# Steps of chaos runs bound to the model"
    yield ""
    yield "    $ python -m chaos bind [NAME ...] [--limit KIND] [--policy POLICY] [--short-leases] --results DIR"
    yield ""
    yield summary(outcomes)
    yield ""
    yield "| scenario | runs | steps | why not to its end |"
    yield "|---|---|---|---|"
    for name, runs in groupby(outcomes.items(), lambda each: _scenario(each[0])):
        of = [outcome for _, outcome in runs]
        ends = ", ".join(dict.fromkeys(outcome["end"] for outcome in of if outcome["end"] != WHOLE))
        yield f"| {name} | {len(of)} | {sum(sum(outcome['steps'].values()) for outcome in of):,} | {ends} |"
    yield ""
    yield "| step | accepted |"
    yield "|---|---|"
    steps = sum((Counter(outcome["steps"]) for outcome in outcomes.values()), Counter[str]())
    yield from (f"| {action} | {times:,} |" for action, times in steps.most_common())


def _scenario(task: str) -> str:
    return task.split(" | ", maxsplit=1)[0]


def bind(tasks: Iterable[BoundTask], seed: int, results: Path | None) -> int:
    """Runs the scenarios of all tasks, and prints a row for each run. Returns the exit status.

    In the directory `results`, outcomes of earlier runs are replaced by those of the same task, and others kept.
    """
    print(*HEAD, sep="\n", flush=True)
    made: Outcomes = {}
    failed = 0
    for task in tasks:
        reason = missing(task.scenario)
        if reason:
            print(f"{task} is not followed: {reason}", flush=True)
            continue
        try:
            record = run(bound(*task), seed, (OURS,))
            if record.hangs:
                raise ChaosFailed(f"a process stands still in {record.hangs[0]}")
        except ChaosFailed as failure:
            print(f"{task} could not be carried out: {failure}", flush=True)
            failed += 1
            continue
        followed = record.followed
        assert followed is not None
        made[str(task)] = outcome_of(followed)
        print(row(str(task), made[str(task)]), flush=True)
        if followed.run.rejected:
            print(f"REJECTED: {followed.run.rejected}", flush=True)
        if results is not None:
            _keep(made, results)
    print("", summary(made), sep="\n")
    return 1 if failed or any(outcome["end"] == REJECTED for outcome in made.values()) else 0


def _keep(made: Outcomes, directory: Path) -> None:
    path = directory / RESULTS
    kept: Outcomes = json.loads(path.read_text()) if path.exists() else {}
    kept |= made
    order = {name: number for number, name in enumerate(NAMES)}
    ordered = dict(sorted(kept.items(), key=lambda each: (order.get(_scenario(each[0]), -1), each[0])))
    path.write_text(json.dumps(ordered, indent=1) + "\n")
    (directory / PAGE).write_text(page(ordered))
