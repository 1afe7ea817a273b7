"""Draws findings: decisions beside the floor, memory beside a dictionary, and threads beside one thread."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.decisions import decisions, memory, threads
from bench.report.found import Row, find

OURS_COLOUR: Final = "#0f766e"
OTHERS_COLOUR: Final = "#94a3b8"
FLOOR_COLOUR: Final = "#c2410c"
CASES: Final = (
    decisions.case_of(10_000, "same strings", admitted=True),
    decisions.case_of(1_000_000, "fresh strings", admitted=True),
)


def without_windows() -> Any:
    """Returns matplotlib's pyplot, set to draw into files alone; None if it is not installed."""
    try:
        matplotlib: Any = import_module("matplotlib")
    except ImportError:
        return None
    matplotlib.use("Agg")
    return import_module("matplotlib.pyplot")


def saved(pyplot: Any, figure: Any, path: Path) -> bool:
    """Writes a figure of `pyplot` into a file. Returns True, as the picture is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Draws the picture if there are enough rows for a chart. Returns whether it did."""
    panels = [
        *((f"a decision: {case}, in floors", _of(rows, decisions.PART, case)) for case in CASES),
        ("1 M keys: bytes for each, in those of a dictionary", _of(rows, memory.PART, memory.WHOLE)),
    ]
    panels = [(title, bars) for title, bars in panels if len(bars) > 1]
    pyplot = without_windows()
    if pyplot is None or not panels:
        return False
    heights = [len(bars) for _, bars in panels]
    scaling = _threads(rows)
    figure, axes = pyplot.subplots(
        len(panels) + bool(scaling),
        1,
        figsize=(9, 0.26 * sum(heights) + 1.1 * len(panels) + 3.2 * bool(scaling)),
        gridspec_kw={"height_ratios": [*heights, *([10] if scaling else [])]},
        layout="constrained",
        squeeze=False,
    )
    for (axis,), (title, bars) in zip(axes, panels, strict=False):
        _bars(axis, title, bars)
    if scaling:
        _lines(axes[-1][0], scaling)
    return saved(pyplot, figure, path)


def _of(rows: Sequence[Row], part: str, case: str) -> list[tuple[str, float]]:
    found = [row for row in rows if (row.part, row.case) == (part, case) and row.ratio is not None]
    return [(row.what.replace("`", ""), row.ratio.median) for row in found if row.ratio is not None]


def _bars(axis: Any, title: str, bars: list[tuple[str, float]]) -> None:
    names, values = zip(*reversed(bars), strict=True)
    colours = [
        FLOOR_COLOUR if name.startswith("floor") else OURS_COLOUR if name.startswith("reconverge") else OTHERS_COLOUR
        for name in names
    ]
    # Bars begin at 1 and go to either side: on a scale of ratios there is no zero.
    axis.barh(range(len(names)), [value - 1 for value in values], left=1, color=colours, log=True)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.axvline(1.0, color=FLOOR_COLOUR, linewidth=0.8)
    axis.set_xlim(min(0.5, *values) / 2, 3 * max(values))
    axis.margins(y=0.01)
    for at, value in enumerate(values):
        text = f"{value:.2g}" if value < 100 else f"{value:.0f}"
        axis.annotate(
            text,
            (value, at),
            xytext=(4 if value >= 1 else -4, 0),
            textcoords="offset points",
            ha="left" if value >= 1 else "right",
            va="center",
            fontsize=7,
        )
    axis.set_title(title, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)


def _threads(rows: Sequence[Row]) -> dict[str, list[tuple[int, float]]]:
    names = dict.fromkeys(row.what for row in rows if row.part == threads.PART and row.beside)
    lines: dict[str, list[tuple[int, float]]] = {}
    for name in names:
        for number in threads.THREADS:
            row = find(rows, threads.PART, threads.case_of(number), name)
            if row is not None and row.ratio is not None:
                lines.setdefault(name, []).append((number, row.ratio.median))
    return lines


def _lines(axis: Any, lines: dict[str, list[tuple[int, float]]]) -> None:
    for name, points in lines.items():
        numbers, shares = zip(*points, strict=True)
        ours = name.startswith("reconverge")
        axis.plot(numbers, shares, marker="o", label=name.replace("`", ""), color=OURS_COLOUR if ours else None)
    axis.set_xticks(threads.THREADS)
    axis.set_ylim(bottom=0)
    axis.axhline(1.0, color=FLOOR_COLOUR, linewidth=0.8)
    axis.set_title("decisions per second of so many threads, in those of one", fontsize=10, loc="left")
    axis.legend(fontsize=8, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
