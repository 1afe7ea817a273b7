"""The chart of what a decision and a request cost, drawn from what `make bench` has written into bench/results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.decisions.decisions import case_of
from bench.report.found import Row
from docs.tools.drawing import INK, OTHERS, OURS, bare, save

DECISION: Final = case_of(10_000, "fresh strings", admitted=True)
REQUEST: Final = "FastAPI under uvicorn, CPU of the application for a request"
FLOOR: Final = "floor: `d[key] += 1`"
OURS_ASKED: Final = (
    "reconverge, `allow`",
    "reconverge, `allow`, with a hub",
    "reconverge, `hit`",
    "reconverge in pure Python, `allow`",
)
"""The ways to ask about one key; `allow_many` is about hundreds, and other algorithms cost about as much."""
TITLE: Final = "What a decision and a request cost"
US_FROM_NS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that was measured, in µs."""

    name: str
    median_us: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Both panels of the chart, and when and where they were measured."""

    decision: list[Bar]
    request: list[Bar]
    measured: list[str]


def costs(results: Path) -> Costs:
    """What stands in the files of results.

    Of ours, each way to ask about one key is listed; another library has the cheapest way that was measured.

    Raises:
        FileNotFoundError: `make bench` has left no results there.
        ValueError: a case of the chart is not among them; they were measured with another version of the benchmark.
    """
    decisions, web = _read(results / "decisions.json"), _read(results / "web.json")
    cheapest: dict[str, float] = {}
    for name, value in _of(decisions, DECISION, "ns"):
        if name in OURS_ASKED or not name.startswith("reconverge"):
            library = _library(name)
            cheapest[library] = min(value / US_FROM_NS, cheapest.get(library, float("inf")))
    return Costs(
        decision=sorted((Bar(name, value) for name, value in cheapest.items()), key=lambda bar: bar.median_us),
        request=[Bar(name.replace("`", ""), value) for name, value in _of(web, REQUEST, "µs")],
        measured=[f"{each['about']['date']} at {each['about']['commit'][:7]}" for each in (decisions, web)],
    )


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _of(part: dict[str, Any], case: str, unit: str) -> list[tuple[str, float]]:
    """Name and median of all rows of one case, in the order in which they were measured."""
    rows = [Row.from_json(fields) for fields in part["rows"]]
    found = [(row.what, row.measured.median) for row in rows if row.case == case and row.measured and row.unit == unit]
    if not found:
        raise ValueError(f"no row of {case!r} in {unit} was measured; run make bench, or name another case in cost.py")
    return found


def _library(name: str) -> str:
    """What a row is called in the chart: another library without the way in which it was asked."""
    if name == FLOOR:
        return "a dictionary: d[key] += 1"
    return name.replace("`", "") if name in OURS_ASKED else name.partition(",")[0]


def draw(found: Costs, path: Path) -> None:
    """Write the chart. Raises OSError."""
    save(path, asdict(found), title=TITLE, size=(8.6, 4.2), draw=lambda figure: _draw(found, figure))


def _draw(found: Costs, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    _bars(left, found.decision[::-1], "one decision, in µs (logarithmic)", logarithmic=True)
    _bars(right, found.request[::-1], "one FastAPI request: CPU, in µs", logarithmic=False)
    figure.supxlabel(f"measured {' and '.join(dict.fromkeys(found.measured))}", fontsize=7, color="#64748b")


def _bars(axes: Any, bars: list[Bar], title: str, *, logarithmic: bool) -> None:
    """Bars from the bottom up."""
    values = [bar.median_us for bar in bars]
    colours = [OURS if bar.name.startswith("reconverge") else OTHERS for bar in bars]
    least = 0.4 * min(values) if logarithmic else 0
    axes.barh(range(len(bars)), [value - least for value in values], left=least, color=colours, log=logarithmic)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlim(least, max(values) * (6 if logarithmic else 1.2))
    for at, value in enumerate(values):
        axes.annotate(
            f"{value:.2g}" if value < 10 else f"{value:.0f}",
            (value, at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.set_title(title, fontsize=9, loc="left")
    bare(axes)
