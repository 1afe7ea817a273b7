"""The command line: `python -m bench.shedding [CASE ...]`, which ends with status 1 if a claim does not hold."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.report.machine import circumstances
from bench.shedding import admission, chart
from bench.shedding.cases import CASES, FULL, QUICK, Timeline
from bench.shedding.judge import Verdict, verdict_of
from bench.shedding.load import Answer, drive
from bench.shedding.service import GATES, OURS, served

SEED: Final = 1
LATE_S_MAX: Final = 0.25
"""A request sent later than this, in seconds, shows that the machine had no time for the generator."""
TRIES: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the cases that the command line names. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.shedding", description="Load shedding, in a closed loop.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="a short run of ours, which shows that it works")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where to keep tables, JSON and charts")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}")
    about = circumstances() | {"server": _server()}
    timeline = QUICK if options.quick else FULL
    runs: dict[tuple[str, str], list[Answer]] = {}
    disturbed: list[str] = []
    for case in options.cases or CASES:
        for gate in (OURS,) if options.quick else GATES:
            answers, calm = _undisturbed(case, gate, timeline)
            runs[case, gate] = answers
            if not calm:
                disturbed.append(f"{case}, {gate}")
    verdicts = {key: verdict_of(answers, timeline) for key, answers in runs.items()}
    costs = admission.measure(quick=options.quick)
    page = "\n\n".join([_table(verdicts), _admissions(costs)]) + "\n"
    print(page, end="")
    if options.results is not None:
        _keep(options.results, page, {"about": about, "cases": _cases(verdicts), "admission": _costs(costs)})
        chart.draw_runs(runs, timeline, options.results / chart.LOOP)
        chart.draw_damping(options.results / chart.DAMPING)
        chart.draw_responses(options.results / chart.RESPONSES)
    if disturbed:
        print(f"The machine disturbed {'; '.join(disturbed)}: run it again with nothing beside.", file=sys.stderr)
    return 0 if options.quick else _status(verdicts, costs)


def _undisturbed(case: str, gate: str, timeline: Timeline) -> tuple[list[Answer], bool]:
    """Runs a case again if the machine had no time for the generator.

    Returns the answers, and whether it had at last.
    """
    left = TRIES
    while True:
        left -= 1
        with served(case, gate, timeline) as port:
            heard = drive(case, port, timeline, SEED)
        calm = heard.late_s <= LATE_S_MAX
        load = os.getloadavg()[0]
        note = "" if calm else f"; disturbed, the generator was {heard.late_s:.2f} s late" + ("; again" if left else "")
        print(f"{case}: {gate}: {len(heard.answers)} requests, load {load:.1f}{note}", file=sys.stderr, flush=True)
        if calm or not left:
            return heard.answers, calm


def _table(verdicts: Mapping[tuple[str, str], Verdict]) -> str:
    heads = ["case", "", "users in time", "users in trouble", "prefetch in trouble"]
    heads += ["rejected in trouble: final, points off after 10 s, crossings", "after it"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (case, gate), found in verdicts.items():
        settled = [f"{each.final:.0%}, {100 * each.off:.1f}, {each.crossings}" for each in (found.trouble, found.after)]
        lines.append(
            f"| {CASES[case].title} | {gate} | {found.users:.2%} | {found.users_in_trouble:.2%} "
            f"| {found.prefetch_in_trouble:.1%} | {settled[0]} | {settled[1]} |"
        )
    return "\n".join(lines)


def _admissions(costs: Mapping[str, admission.Cost]) -> str:
    lines = ["| an admission through | adds, µs | of the bare application's, µs | ratio |", "|---|---|---|---|"]
    for name, cost in costs.items():
        added = f"{cost.added_us.median:.2f} ({cost.added_us.low:.2f} to {cost.added_us.high:.2f})"
        lines.append(f"| {name} | {added} | {cost.bare_us.median:.2f} | {cost.ratio:.1f} |")
    return "\n".join(lines)


def _server() -> dict[str, str]:
    """Runs the server and its event loop, which has its own way to accept connections."""
    found = {}
    for name in ("uvicorn", "uvloop", "httptools"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _keep(directory: Path, page: str, found: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "shedding.md").write_text(page)
    (directory / "shedding.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _cases(verdicts: Mapping[tuple[str, str], Verdict]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (case, gate), verdict in verdicts.items():
        found.setdefault(case, {})[gate] = _json_of(verdict)
    return found


def _costs(costs: Mapping[str, admission.Cost]) -> dict[str, dict[str, float]]:
    return {
        name: {"added_us": cost.added_us.median, "bare_us": cost.bare_us.median, "ratio": cost.ratio}
        for name, cost in costs.items()
    }


def _json_of(verdict: Verdict) -> dict[str, Any]:
    return {
        "users": verdict.users,
        "users_in_trouble": verdict.users_in_trouble,
        "prefetch_in_trouble": verdict.prefetch_in_trouble,
        "trouble": [verdict.trouble.final, verdict.trouble.off, verdict.trouble.crossings],
        "after": [verdict.after.final, verdict.after.off, verdict.after.crossings],
    }


def _status(verdicts: Mapping[tuple[str, str], Verdict], costs: Mapping[str, admission.Cost]) -> int:
    failings = [
        f"{case}: {failing}"
        for (case, gate), verdict in verdicts.items()
        if gate == OURS
        for failing in verdict.failings
    ]
    whole = costs[admission.WHOLE].added_us.median
    if whole > admission.ADMISSION_US_MAX:
        failings.append(f"an admission costs {whole:.1f} µs, more than {admission.ADMISSION_US_MAX:.0f}")
    for failing in failings:
        print(f"CLAIM BROKEN: {failing}", file=sys.stderr)
    return 1 if failings else 0


if __name__ == "__main__":
    sys.exit(main())
