"""The command line: `python -m bench [PART ...]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import blocks, chart, decisions, memory, sync, threads, web
from bench.found import Row
from bench.machine import circumstances
from bench.page import cell, page

PARTS: Final[dict[str, Callable[..., Iterator[Row]]]] = {
    "decisions": decisions.measure,
    "memory": memory.measure,
    "threads": threads.measure,
    "blocks": blocks.measure,
    "sync": sync.measure,
    "web": web.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says. Returns the status to end with."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What things cost, side by side.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="a short run of ours, which shows that it works")
    parser.add_argument("--only", default="", metavar="TEXT", help="only whatever has this in its name")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where to keep table, JSON and chart")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    about = circumstances()
    rows: list[Row] = []
    for part in options.parts or PARTS:
        for row in PARTS[part](quick=options.quick, only=options.only):
            rows.append(row)
            # So that one sees that it goes on; the tables come at the end.
            print(f"{row.part}: {row.what}: {row.case}: {cell(row)}", file=sys.stderr, flush=True)
        if options.results is not None:
            keep(rows, about, options.results)
    print(page(rows, about))
    return 0


def keep(rows: list[Row], about: dict[str, object], directory: Path) -> None:
    """Write what is there of the three."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row.as_json(), ensure_ascii=False) for row in rows)
    head = json.dumps(about, ensure_ascii=False)
    (directory / "results.json").write_text(f'{{"about": {head},\n"rows": [\n{lines}\n]}}\n')
    (directory / "results.md").write_text(page(rows, about))
    chart.draw(rows, directory / "results.png")


if __name__ == "__main__":
    sys.exit(main())
