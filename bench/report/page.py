"""Writes findings as Markdown: a table for each part, and one of targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bench.report.found import Part, Row, Spread
from bench.report.machine import moment, place
from bench.report.targets import TARGETS, judged

COLUMNS_MAX: Final = 4
"""The most cases of a table: with more, the table is turned or divided."""
CELLS: Final = (
    "Each cell: the median **ratio** to something measured beside it, in brackets its middle half where that is wider\n"
    "than a tenth of it, and the median measured. The JSON beside this page has all spreads."
)
WHAT_IS_FELT: Final = "[Speed where it is felt](speed.md) has aims of requests, exchanges and calls between other work."


def page(parts: Sequence[Part]) -> str:
    """Returns the page of all parts; a machine that all parts were measured on is named once, at the top."""
    rows = [row for part in parts for row in part.rows]
    lines = ["# Results", "", CELLS]
    places = {place(part.about) for part in parts}
    if len(places) == 1:
        lines += ["", *places]
    for part in parts:
        where = "" if len(places) == 1 else f" {place(part.about)}"
        lines += ["", f"## {part.name}", "", f"{moment(part.about)}{where}", *table(part.rows)]
    lines += ["", "## what was aimed at", "", WHAT_IS_FELT, "", *aims(rows), ""]
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Returns the table of one part: measured things are rows, cases are columns."""
    cases = list(dict.fromkeys(row.case for row in rows))
    names = list(dict.fromkeys(row.what for row in rows))
    cells = {(row.what, row.case): cell(row) for row in rows}
    beside = next((row.beside for row in rows if row.beside), "nothing")
    units = ", ".join(dict.fromkeys(row.unit for row in rows if row.unit))
    yield f"Ratios to {beside}, measured in {units}."
    yield ""
    if len(cases) <= COLUMNS_MAX:
        yield from _grid(rows[0].part, names, cases, cells)
    elif len(names) <= COLUMNS_MAX:
        turned = {(case, name): text for (name, case), text in cells.items()}
        yield from _grid(rows[0].part, cases, names, turned)
    else:
        for group in dict.fromkeys(case.partition(", ")[0] for case in cases):
            yield from _grid(group, names, [case for case in cases if case.partition(", ")[0] == group], cells)
            yield ""


def _grid(corner: str, down: Sequence[str], across: Sequence[str], cells: dict[tuple[str, str], str]) -> Iterator[str]:
    """Returns a table without empty lines; a sentence below it stands for a column of zeros."""
    down = [name for name in down if any((name, other) in cells for other in across)]
    zeros = [other for other in across if {cells.get((name, other)) for name in down} == {"0"}]
    across = [other for other in across if other not in zeros]
    yield f"| {corner} | {' | '.join(name.removeprefix(f'{corner}, ') for name in across)} |"
    yield "|---" * (len(across) + 1) + "|"
    for name in down:
        yield f"| {name} | {' | '.join(cells.get((name, other), '') for other in across)} |"
    if zeros:
        yield from ("", f"Zero in all rows: {'; '.join(name.removeprefix(f'{corner}, ') for name in zeros)}.")


def cell(row: Row) -> str:
    """Returns the text of a cell: the ratio, the spread, and the time itself."""
    if row.missing:
        return f"missing: {row.missing}"
    parts = []
    if row.ratio is not None:
        parts.append(f"**{number(row.ratio.median)}**{_spread(row.ratio)}")
    if row.measured is not None:
        parts.append(number(row.measured.median))
    return ", ".join(parts)


def aims(rows: Iterable[Row]) -> Iterator[str]:
    """Yields the lines of the table of targets."""
    yield "| what | aim | measured | verdict |"
    yield "|---|---|---|---|"
    for target, value, _ in judged(rows, TARGETS):
        aim = f"{'≥' if target.at_least else '≤'} {target.bound:g} {target.unit}"
        if value is None:
            yield f"| {target.what} | {aim} | | not measured |"
        else:
            verdict = "met" if target.met(value) else "**missed**"
            yield f"| {target.what} | {aim} | {number(value)} | {verdict} |"


def number(value: float) -> str:
    """Returns a number with about three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _spread(spread: Spread) -> str:
    return f" ({number(spread.low)}–{number(spread.high)})" if spread.varies else ""  # noqa: RUF001  # a range
