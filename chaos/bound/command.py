"""Runs scenarios and follows each step of them by the model: `python -m chaos bind`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chaos.bound.following import Followed
from chaos.bound.scenarios import bound, why_unbound
from chaos.names import OURS
from chaos.requirements import missing
from chaos.scenarios.scenario import Scenario
from chaos.stage import ChaosFailed
from chaos.supervisor import run

HEAD = (
    "| scenario | limit, policy | names | merges | without answer | steps | followed | end |",
    "|---|---|---|---|---|---|---|---|",
)


class BoundTask(NamedTuple):
    """A scenario that is run with one kind of limit under one policy."""

    scenario: Scenario
    kind: str
    policy: str


@dataclass
class BoundRuns:
    """The outcomes of all runs."""

    rows: list[str] = field(default_factory=list)
    unbound: dict[str, str] = field(default_factory=dict)
    """For each scenario that was not run, why not."""
    rejected: int = 0
    outside: int = 0
    answers: int = 0
    """How many answers of servers were compared with the definition."""
    steps: Counter[str] = field(default_factory=Counter)

    def add(self, task: BoundTask, followed: Followed) -> str:
        """Adds the outcome of a run, and returns its row of the table."""
        of_run = followed.run
        end = "rejected" if of_run.rejected else of_run.outside or "whole"
        self.rejected += bool(of_run.rejected)
        self.outside += bool(of_run.outside)
        self.answers += followed.compared
        self.steps += of_run.accepted
        row = (
            f"| {task.scenario.name} | {task.kind}, {task.policy} | {followed.names} | {followed.merges:,} "
            f"| {followed.lost_answers} | {of_run.accepted.total():,} "
            f"| {followed.seconds:.1f} of {followed.of_seconds:.1f} s | {end} |"
        )
        self.rows.append(row)
        return row

    def __str__(self) -> str:
        return (
            f"{len(self.rows)} runs, {self.steps.total():,} steps; {self.rejected} were rejected, and {self.outside} "
            f"followed until an assumption of the proof failed. {self.answers:,} answers of servers were those of the "
            "definition in Python"
        )

    def lines(self) -> Iterator[str]:
        """Yields the tables."""
        yield f"{self}."
        yield ""
        yield from HEAD
        yield from self.rows
        yield ""
        yield "| step | accepted |"
        yield "|---|---|"
        for action, times in self.steps.most_common():
            yield f"| {action} | {times:,} |"
        if self.unbound:
            yield ""
            yield "Not followed:"
            yield ""
            for name, reason in self.unbound.items():
                yield f"- {name}: {reason}."


def bind(
    scenarios: Sequence[Scenario], seed: int, *, kinds: Sequence[str], policies: Sequence[str], page: Path | None
) -> int:
    """Runs each scenario with each kind of limit and policy, and prints a row for each run. Returns the exit status."""
    runs = BoundRuns()
    print(*HEAD, sep="\n", flush=True)
    failed = 0
    for task in _tasks(scenarios, runs, kinds, policies):
        try:
            followed = run(bound(*task), seed, (OURS,)).followed
        except ChaosFailed as failure:
            print(f"{task.scenario.name} could not be carried out: {failure}", flush=True)
            failed += 1
            continue
        assert followed is not None
        print(runs.add(task, followed), flush=True)
        if followed.run.rejected:
            print(f"REJECTED: {followed.run.rejected}", flush=True)
        if page is not None:
            command = f"python -m chaos bind {' '.join(f'--limit {kind}' for kind in kinds)}"
            command += f" {' '.join(f'--policy {policy}' for policy in policies)} --seed {seed}"
            lines = ["# Steps of chaos runs bound to the model", "", f"    $ {command}", "", *runs.lines(), ""]
            page.write_text("\n".join(lines))
    print("", *runs.lines(), sep="\n")
    return 1 if runs.rejected or failed else 0


def _tasks(
    scenarios: Sequence[Scenario], runs: BoundRuns, kinds: Sequence[str], policies: Sequence[str]
) -> Iterator[BoundTask]:
    for scenario in scenarios:
        reason = why_unbound(scenario) or missing(scenario)
        if reason:
            runs.unbound[scenario.name] = reason
            continue
        for kind in kinds:
            for policy in policies:
                yield BoundTask(scenario, kind, policy)
