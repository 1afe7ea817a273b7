"""Measures a Redis' CPU, bytes and memory by nodes, keys and interval, and fits a model to them.

Run as `python -m bench.capacity`. Time is virtual: only the cost is measured, and an interval takes no longer than its
exchanges. With `--adopt`, `reconverge tune` and docs/operate/tuning.md use the new findings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.capacity import chart as capacity_chart
from bench.capacity import page as capacity_page
from bench.capacity.fleet import Fleet, Shape, Spent
from bench.capacity.model import Point, fitted
from bench.child import ROOT
from bench.decisions.candidate import compiled_unless_asked
from bench.report.machine import circumstances
from bench.servers import redis_on_loopback

GRID: Final = (
    Shape(1, 1, rounds=300),
    Shape(1, 256, rounds=20),
    Shape(8, 1, rounds=100),
    Shape(8, 16, rounds=40),
    Shape(8, 256, rounds=8),
    Shape(8, 1024, rounds=4),
    Shape(40, 16, rounds=10),
    Shape(40, 256, rounds=4),
    Shape(200, 1, rounds=5),
    Shape(200, 16, rounds=4),
    Shape(200, 256, rounds=2),
    Shape(8, 0, cold=400, intervals=10, rounds=20),
    Shape(8, 0, cold=400, intervals=60, rounds=60),
    Shape(4, 0, cold=400, intervals=600, rounds=600),
    Shape(8, 40, cold=360, intervals=60, rounds=60),
)
"""The measured shapes: hot keys with fleets of all sizes, cold keys with windows of all lengths, and a mix with a tenth
of hot keys."""
REPEATS: Final = 3
MANY: Final = 100_000
HOT: Final = Shape(1, MANY, rounds=6)
"""A shape with hot keys only, whose cost is the same in every interval."""
COLD: Final = {
    "once a window": Shape(1, 0, cold=MANY, rounds=60),
    "once, the first window": Shape(1, 0, cold=MANY, rounds=60, once=True),
    "once, ten windows": Shape(1, 0, cold=MANY, rounds=600, once=True),
}
DATA: Final = ROOT / "agent" / "reconverge" / "simulation" / "capacity.json"
DOCUMENT: Final = ROOT / "docs" / "operate" / "tuning.md"


def measure(*, quick: bool) -> dict[str, Any]:
    """Measures all shapes. Returns the findings as a JSON file keeps them."""
    about = circumstances()
    shapes, repeats, many = (GRID, REPEATS, MANY) if not quick else (tuple(map(_small, GRID)), 1, MANY // 100)
    with redis_on_loopback() as port:
        points: list[Point] = []
        # Each shape is repeated after all others, so that other work on the machine slows all of them alike.
        runs = [[_run(port, shape) for shape in shapes] for _ in range(repeats)]
        points = [(shape, _median([run[number] for run in runs])) for number, shape in enumerate(shapes)]
        hot = _run(port, replace(HOT, hot=many))
        cold = {name: _run(port, replace(shape, cold=many)) for name, shape in COLD.items()}
    return {
        "about": about,
        "points": [{"shape": _described(shape), "spent": spent.as_json()} for shape, spent in points],
        "model": [line.as_json() for line in fitted(points)],
        "cold": {"keys": many, "hot": hot.as_json(), "rows": {name: one.as_json() for name, one in cold.items()}},
    }


def _small(shape: Shape) -> Shape:
    """Returns a shape of the same kind that takes little time."""
    few = replace(shape, nodes=min(shape.nodes, 8), hot=min(shape.hot, 300), cold=min(shape.cold, 300))
    return replace(few, intervals=min(shape.intervals, 60), rounds=min(shape.rounds, 10))


def _described(shape: Shape) -> dict[str, Any]:
    return {**asdict(shape), "limit": str(shape.limit)}


def _run(port: int, shape: Shape) -> Spent:
    with Fleet(port, shape) as fleet:
        spent = asyncio.run(fleet.run())
    per_cell = spent.server_us / max(1.0, spent.cells)
    what = f"{shape.nodes} nodes, {shape.hot} hot and {shape.cold} cold keys, {shape.intervals} intervals in a window"
    print(f"capacity: {what}: {per_cell:.1f} µs of the hub for a report", file=sys.stderr, flush=True)
    return spent


def _median(runs: Sequence[Spent]) -> Spent:
    return Spent(**{name: median(getattr(run, name) for run in runs) for name in asdict(runs[0])})


def adopt(found: dict[str, Any]) -> None:
    """Writes the model for `reconverge tune` and for the document."""
    coefficients = {name: value for line in found["model"] for name, value in line["coefficients"].items()}
    DATA.write_text(json.dumps(coefficients, indent=2) + "\n")
    DOCUMENT.write_text(capacity_page.with_tables(DOCUMENT.read_text(), found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all measurements, and prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run, which shows that it works")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where to keep JSON and chart")
    parser.add_argument("--adopt", action="store_true", help="have `reconverge tune` and its document go by it")
    parser.add_argument("--again", action="store_true", help="take what is in DIR instead of measuring")
    options = parser.parse_args(arguments)
    if options.again and options.results is None:
        parser.error("--again needs --results DIR")
    if options.quick and options.adopt:
        parser.error("a short run is too inexact to go by: leave out --quick or --adopt")
    compiled_unless_asked()
    if options.again:
        found = json.loads((options.results / "capacity.json").read_text())
    else:
        found = measure(quick=options.quick)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "capacity.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        capacity_chart.draw(found, options.results / "chart-of-capacity.png")
    if options.adopt:
        adopt(found)
    print(capacity_page.tables(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
