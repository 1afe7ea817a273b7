"""Keeps results: one JSON file for each scenario, a table of all, and a page with pictures."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from chaos.judge.verdict import Verdict
from chaos.report.page import page
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.kernel import IMPLEMENTATION
from tests.support.brokers import mosquitto_binary
from tests.support.servers import redis_binary

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = "table.md"
PAGE: Final = "index.html"
COMMAND_S: Final = 10.0


def circumstances() -> dict[str, Any]:
    """Returns the date, the machine and the versions of a run."""
    now = datetime.fromtimestamp(SystemClock.wall_ns() // SECOND_NS, UTC)
    return {
        "date": now.isoformat(),
        "commit": _said_by("git", "rev-parse", "--short=12", "HEAD") or "unknown",
        "changed": bool(_said_by("git", "status", "--porcelain", "--", "agent", "sync", "chaos", ":!chaos/results")),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": IMPLEMENTATION,
        "redis": _said_by(redis_binary(), "--version").partition(" v=")[2].partition(" ")[0],
        "mosquitto": _mosquitto_version(),
    }


def keep(verdict: Verdict, directory: Path, about: dict[str, Any]) -> None:
    """Writes the file of one scenario."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = {**verdict.as_json(), **about}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    (directory / f"{verdict.scenario.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_overview(directory: Path, names: Sequence[str]) -> None:
    """Writes the table and the page of all scenarios that have a file, in this order."""
    paths = [directory / f"{name}.json" for name in names]
    results = [json.loads(path.read_text()) for path in paths if path.exists()]
    (directory / TABLE).write_text(table(results))
    (directory / PAGE).write_text(page(results))


def table(results: Sequence[dict[str, Any]]) -> str:
    """Returns the table of results, with one line for each scenario."""
    rows = [
        "# Results",
        "",
        *_preamble(results),
        "",
        (
            "| no. | scenario | over-admission: most/promised | hub's total: known/admitted "
            "| heard again after/promised, s | rivals, and what each was caught at |"
        ),
        "|---|---|---|---|---|---|",
        *(_row(result) for result in results),
        "",
        *_others(results),
    ]
    return "\n".join(rows)


def _others(results: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Yields tables on the ages of knowledge of healthy shards, and on the times of requests that may ask."""
    for result in results:
        ages = result["figures"]["ours"].get("other_shards")
        if ages:
            yield f"Age of what nodes knew of the other shards in `{result['scenario']}`, in intervals:"
            yield ""
            yield "| while | half of the looks below | 99 % below | oldest | looks |"
            yield "|---|---|---|---|---|"
            for name, one in ages.items():
                yield f"| {name} | {one['p50']} | {one['p99']} | {one['max']} | {one['looks']} |"
            yield ""
    asked = [result for result in results if result["figures"]["ours"].get("asks")]
    if asked:
        yield "How long requests that may ask took, and how late an application without a limiter was that waited for"
        yield "as long as an ask may at most, in ms:"
        yield ""
        yield "| scenario | | p50 | p99 | longest | requests |"
        yield "|---|---|---|---|---|---|"
        for result in asked:
            for name, one in result["figures"]["ours"]["asks"].items():
                figures = f"{one['p50']} | {one['p99']} | {one['max']} | {one['requests']}"
                yield f"| {result['scenario']} | {name} | {figures} |"
        yield ""


def _preamble(results: Sequence[dict[str, Any]]) -> Iterable[str]:
    kept = sum(not result["ours"] for result in results)
    caught = sum(rival["to_be_caught_at"] in rival["caught_at"] for result in results for rival in result["rivals"])
    rivals = sum(len(result["rivals"]) for result in results)
    yield f"{kept} of {len(results)} scenarios kept every promise; {caught} of {rivals} rivals were caught."
    yield ""
    places = sorted({_place(result) for result in results})
    for place in places:
        moments = sorted({_moment(result) for result in results if _place(result) == place})
        yield f"{place}: {', '.join(moments)}."


def _place(result: dict[str, Any]) -> str:
    return (
        f"{result['processors']} processors, shared; Python {result['python']}, Redis {result['redis']}, "
        f"kernel {result['kernel']}"
    )


def _moment(result: dict[str, Any]) -> str:
    return f"commit `{result['commit']}`{' with changes' if result['changed'] else ''} on {result['date'][:10]}"


def _row(result: dict[str, Any]) -> str:
    ours = result["figures"]["ours"]
    heard = "never" if ours["heard_again_s"] is None else f"{ours['heard_again_s']:.2f}"
    broken = "".join(f" **{one['kind']}: {one['words']}**" for one in result["ours"])
    return (
        f"| {result['number']} | {result['scenario']}{broken} "
        f"| {ours['over_admission_known']}/{result['over_admission_max']}{_star(result)} "
        f"| {ours['hub_total']}/{_range(ours)} | {heard}/{result['reconverges_in_s']:.1f} "
        f"| {', '.join(_rival(rival) for rival in result['rivals'])} |"
    )


def _star(result: dict[str, Any]) -> str:
    return f" ({result['beyond_why']})" if result["beyond_why"] else ""


def _range(ours: dict[str, Any]) -> str:
    least, most = ours["hub_total_least"], ours["hub_total_most"]
    return str(most) if least == most else f"{least}–{most}"  # noqa: RUF001  # a range


def _rival(rival: dict[str, Any]) -> str:
    if rival["to_be_caught_at"] in rival["caught_at"]:
        return f"{rival['name']}: {rival['to_be_caught_at']}"
    return f"**{rival['name']}: not caught at {rival['to_be_caught_at']}**"


def _mosquitto_version() -> str:
    """Returns the version of mosquitto; empty if it is not installed."""
    try:
        command = [mosquitto_binary(), "-h"]  # prints the version, and ends with a status of its own
        said = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.partition("mosquitto version ")[2].partition("\n")[0]


def _said_by(*command: str) -> str:
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
