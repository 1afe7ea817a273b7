"""The command line: `python -m chaos list | run NAME | all | bind [NAME ...]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product, starmap
from pathlib import Path

from chaos.bound.command import BoundTask, bind
from chaos.bound.scenarios import KINDS, POLICIES
from chaos.deployments.deployment import DEPLOYMENTS
from chaos.judge.verdict import Verdict
from chaos.names import OURS
from chaos.report import results
from chaos.requirements import missing
from chaos.scenarios.catalogue import DEFAULT_SEED, NAMES, scenario_of
from chaos.scenarios.hostile import STORM_S
from chaos.scenarios.mixed import MIX_S
from chaos.scenarios.other_topologies import AGAIN, named_on
from chaos.scenarios.scenario import Scenario
from chaos.stage import ChaosFailed
from chaos.supervisor import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Carries out the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Real faults, real processes, and a judge.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="say which scenarios there are")
    one = commands.add_parser("run", help="live through one of them")
    one.add_argument("name", choices=NAMES, metavar="NAME")
    one.add_argument(
        "--on", choices=DEPLOYMENTS, help="where else to live through it, with TLS and users of few rights"
    )
    everything = commands.add_parser("all", help="live through all of them")
    for command in (one, everything):
        command.add_argument("--seed", type=int, default=DEFAULT_SEED, help="what to draw from (default: %(default)s)")
        command.add_argument(
            "--seconds",
            type=float,
            help=f"how long a mix and a storm of signals last (default: {MIX_S:g} and {STORM_S:g})",
        )
        command.add_argument("--alone", action="store_true", help="without the rivals")
        command.add_argument("--json", type=Path, metavar="DIR", help="where to keep the results")
    steps = commands.add_parser("bind", help="compare each step of our nodes and their hub with the model")
    steps.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    steps.add_argument("--limit", choices=KINDS, action="append", help="of what kind (default: fixed)")
    steps.add_argument("--policy", choices=POLICIES, action="append", help="both by default")
    steps.add_argument("--short-leases", action="store_true", help="with leases that end within faults")
    steps.add_argument("--seed", type=int, default=DEFAULT_SEED, help="what to draw from (default: %(default)s)")
    steps.add_argument("--results", type=Path, metavar="DIR", help="where to keep outcomes and page; others' stay")
    options = parser.parse_args(arguments)
    if options.command == "list":
        return _list()
    if options.command == "bind":
        return _bind(options)
    names = [options.name] if options.command == "run" else NAMES
    if options.command == "run" and options.on is not None:
        names = [named_on(options.name, options.on)]
        if names[0] not in NAMES:
            others = ", ".join(f"{name} --on {deployment}" for name, deployment in AGAIN)
            parser.error(f"{options.name} is not lived through on {options.on}; others are: {others}")
    scenarios = [scenario_of(name, options.seed, length_s=options.seconds) for name in names]
    if options.alone:
        scenarios = [replace(scenario, rivals=()) for scenario in scenarios]
    return _run(scenarios, options.seed, options.json)


def _bind(options: argparse.Namespace) -> int:
    tasks = product(
        [scenario_of(name, options.seed) for name in options.names or NAMES],
        options.limit or ["fixed"],
        options.policy or POLICIES,
        [options.short_leases],
    )
    return bind(starmap(BoundTask, tasks), options.seed, options.results)


def _list() -> int:
    for name in NAMES:
        scenario = scenario_of(name, DEFAULT_SEED)
        rivals = ", ".join(f"{rival.name} ({rival.caught_at})" for rival in scenario.rivals)
        print(f"{scenario.number:2}  {name:20} {scenario.claim}\n{'':24} catches {rivals}")
    return 0


def _run(scenarios: Sequence[Scenario], seed: int, directory: Path | None) -> int:
    about = results.circumstances()
    failed = []
    for scenario in scenarios:
        name = scenario.name
        lacking = missing(scenario)
        if lacking and not os.environ.get("CI"):
            print(f"{name:20} skipped: {lacking}", flush=True)
            continue
        try:
            if lacking:
                raise ChaosFailed(lacking)
            verdict = live_through(scenario, seed)
        except ChaosFailed as failure:
            print(f"{name:20} could not be carried out: {failure}", flush=True)
            failed.append(name)
            continue
        _tell(verdict)
        if not verdict.passed:
            failed.append(name)
        if directory is not None:
            results.keep(verdict, directory, about)
    if directory is not None:
        results.write_overview(directory, NAMES)
        print(f"results: {directory / results.PAGE}, {directory / results.TABLE}")
    for name in failed:
        print(f"failed: python -m chaos run {name} --seed {seed}")
    return 1 if failed else 0


def live_through(scenario: Scenario, seed: int) -> Verdict:
    """Runs a scenario with our contestants and the rivals, and judges them. Raises ChaosFailed."""
    verdict = Verdict(scenario, seed)
    verdict.add(run(scenario, seed, (OURS, *scenario.contestants)))
    for rival in scenario.loners:
        verdict.add(run(scenario, seed, (rival,)))
    return verdict


def _tell(verdict: Verdict) -> None:
    ours = verdict.figures[OURS]
    state = "kept" if verdict.kept else "BROKEN"
    caught = len(verdict.scenario.rivals) - len(verdict.missed)
    print(
        f"{verdict.scenario.name:20} {state}: {ours['over_admission_known']} above the limit "
        f"({verdict.scenario.over_admission_max} promised), {ours['hub_total']} known of {ours['admitted']} admitted; "
        f"{caught} of {len(verdict.scenario.rivals)} rivals caught",
        flush=True,
    )
    for violation in verdict.found[OURS]:
        print(f"{'':20} {violation.kind}: {violation.words}", flush=True)
    for words in verdict.missed:
        print(f"{'':20} {words}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
