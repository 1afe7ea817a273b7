"""The command line: `python -m bench [PART ...]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.capacity import asks, pieces, sync
from bench.decisions import blocks, decisions, felt, memory, threads
from bench.report import chart
from bench.report.found import Part, Row
from bench.report.machine import circumstances
from bench.report.page import cell, page
from bench.web import fleet_cost, middleware
from bench.web import in_an_outage as web_in_an_outage
from bench.web import served as web

PARTS: Final[dict[str, Callable[..., Iterator[Row]]]] = {
    "decisions": decisions.measure,
    "felt": felt.measure,
    "memory": memory.measure,
    "threads": threads.measure,
    "blocks": blocks.measure,
    "sync": sync.measure,
    "exchange": pieces.measure,
    "asks": asks.measure,
    "web": web.measure,
    "middleware": middleware.measure,
    "fleet-cost": fleet_cost.measure,
    "outage": web_in_an_outage.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the parts that the command line names, and prints the tables. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What things cost, side by side.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="a short run of ours, which shows that it works")
    parser.add_argument("--only", default="", metavar="TEXT", help="only whatever has this in its name")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="where to keep table, JSON and chart; of parts that are left out now, what is there stays",
    )
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    parts: list[Part] = []
    for name in options.parts or PARTS:
        part = Part(name, circumstances(), [])
        parts.append(part)
        for row in PARTS[name](quick=options.quick, only=options.only):
            part.rows.append(row)
            # Shows that the run goes on; the tables come at the end.
            print(f"{name}: {row.what}: {row.case}: {cell(row)}", file=sys.stderr, flush=True)
            if options.results is not None:
                keep(part, options.results)
        if not part.rows:
            parts.remove(part)  # no row of the part has that text in its name
        if options.results is not None:
            show(kept(options.results), options.results)
    print(page(parts if options.results is None else kept(options.results)))
    return 0


def kept(directory: Path) -> list[Part]:
    """Returns the kept findings of all parts, from this run or an earlier one, in the order of `PARTS`."""
    found: list[Part] = []
    for name in PARTS:
        path = directory / f"{name}.json"
        if path.exists():
            fields = json.loads(path.read_text())
            found.append(Part(name, fields["about"], [Row.from_json(row) for row in fields["rows"]]))
    return found


def keep(part: Part, directory: Path) -> None:
    """Writes the findings of a part to a JSON file, as far as they have been measured."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row.as_json(), ensure_ascii=False) for row in part.rows)
    about = json.dumps(part.about, ensure_ascii=False)
    (directory / f"{part.name}.json").write_text(f'{{"about": {about},\n"rows": [\n{lines}\n]}}\n')


def show(parts: list[Part], directory: Path) -> None:
    """Writes the table and the chart of the findings."""
    (directory / "table.md").write_text(page(parts))
    chart.draw([row for part in parts for row in part.rows], directory / "chart.png")


if __name__ == "__main__":
    sys.exit(main())
