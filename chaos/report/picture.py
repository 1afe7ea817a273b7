"""Draws one scenario: the admissions of its windows, with the promises, the faults and the nodes' knowledge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

WIDTH, LEFT, RIGHT = 760, 52, 118
TOP, PLOT, GAP, BELOW, FOOT = 14, 190, 16, 54, 20
HEIGHT: Final = TOP + PLOT + GAP + BELOW + FOOT
COLOURS: Final = ("#c2410c", "#7c3aed", "#0f766e", "#be185d", "#4d7c0f")
"""The colours of the rivals, in their order."""
HEADROOM: Final = 1.06
LABEL_GAP: Final = 13.0


@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts the values of a picture to its points."""

    begin_s: float
    end_s: float
    most: float
    stalest_s: float

    def x(self, moment_s: float) -> float:
        share = (moment_s - self.begin_s) / (self.end_s - self.begin_s)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, cost: float) -> float:
        return TOP + PLOT * (1 - cost / self.most)

    def below(self, age_s: float) -> float:
        return TOP + PLOT + GAP + BELOW * (1 - min(age_s / self.stalest_s, 1.0))


def picture(result: dict[str, Any]) -> str:
    """Returns the picture of a scenario as SVG."""
    series = result["series"]
    shown = {who: windows for who in series if (windows := series[who]["windows"])}
    scale = _scale(result, shown)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(result["claim"])}">',
        *_faults(result, scale),
        *_axes(scale),
        *_bars(shown.get("ours", ()), scale, result["window_s"]),
        *_rivals(result, shown, scale),
        *_lines(result, shown, scale),
        *_staleness(series["ours"]["staleness"], scale),
        "</svg>",
    ]
    return "\n".join(parts)


def _scale(result: dict[str, Any], shown: dict[str, Sequence[dict[str, Any]]]) -> _Scale:
    admitted = [window["admitted"] for windows in shown.values() for window in windows]
    most = max([*admitted, _promised(result), 1])
    ages = [age_s for _, age_s in result["series"]["ours"]["staleness"]]
    ends = [result["load_end_s"], *(end for _, end in result["spells"])]
    return _Scale(0.0, max(ends), most * HEADROOM, max([*ages, 0.2]) * HEADROOM)


def _promised(result: dict[str, Any]) -> float:
    """Returns the most that a window may admit, as the picture counts: a bucket admits its level and its refill."""
    capacity = result["capacity"] + (result["quota"] if result["bucket"] else 0)
    return float(capacity + result["over_admission_max"])


def _faults(result: dict[str, Any], scale: _Scale) -> Iterator[str]:
    for begin_s, end_s in result["spells"]:
        x, width = scale.x(begin_s), max(1.5, scale.x(end_s) - scale.x(begin_s))
        yield f'<rect class="fault" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{PLOT + GAP + BELOW}"/>'


def _axes(scale: _Scale) -> Iterator[str]:
    for cost in _ticks(scale.most, 4):
        y = scale.y(cost)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{cost:g}</text>'
    bottom = TOP + PLOT + GAP + BELOW
    for moment_s in _ticks(scale.end_s, 8):
        x = scale.x(moment_s)
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{moment_s:g} s</text>'
    for y in (TOP + PLOT, bottom):
        yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
    oldest = f"{scale.stalest_s:.1f} s"
    yield f'<text class="tick" x="{LEFT - 6}" y="{TOP + PLOT + GAP + 9}" text-anchor="end">{oldest}</text>'


def _bars(windows: Sequence[dict[str, Any]], scale: _Scale, window_s: float) -> Iterator[str]:
    for window in windows:
        x, end = scale.x(window["t_s"]), scale.x(window["t_s"] + window_s)
        width, y = max(1.0, end - x - 1.5), scale.y(window["admitted"])
        if end > x:
            yield f'<rect class="ours" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{TOP + PLOT - y:.1f}"/>'


def _rivals(result: dict[str, Any], shown: dict[str, Sequence[dict[str, Any]]], scale: _Scale) -> Iterator[str]:
    for who, colour in colours(result).items():
        points = []
        for window in shown.get(who, ()):
            y = scale.y(window["admitted"])
            points += [(scale.x(window["t_s"]), y), (scale.x(window["t_s"] + result["window_s"]), y)]
        if points:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            yield f'<polyline class="rival" style="stroke:{colour}" points="{path}"/>'


def colours(result: dict[str, Any]) -> dict[str, str]:
    """Returns the colour of each rival."""
    return {rival["name"]: COLOURS[number % len(COLOURS)] for number, rival in enumerate(result["rivals"])}


def _lines(result: dict[str, Any], shown: dict[str, Sequence[dict[str, Any]]], scale: _Scale) -> Iterator[str]:
    limit = float(result["quota"] if result["bucket"] else result["capacity"])
    labels = [(scale.y(limit), "limit", "refill" if result["bucket"] else f"limit {limit:g}")]
    if _promised(result) > limit:
        labels.append((scale.y(_promised(result)), "bound", f"promised {_promised(result):g}"))
    for y, name, _ in labels:
        yield f'<line class="{name}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    labels += [
        (scale.y(windows[-1]["admitted"]), f"colour:{colours(result)[who]}", who)
        for who, windows in shown.items()
        if who != "ours" and who in colours(result)
    ]
    for y, style, words in _apart(labels):
        look = f'style="fill:{style.partition(":")[2]}"' if style.startswith("colour:") else f'class="label {style}"'
        yield f'<text x="{WIDTH - RIGHT + 6}" y="{y + 3.5:.1f}" {look}>{escape(words)}</text>'


def _apart(labels: Sequence[tuple[float, str, str]]) -> Iterator[tuple[float, str, str]]:
    """Returns the same labels, far enough from each other to be legible."""
    lowest = -math.inf
    for y, style, words in sorted(labels):
        lowest = max(y, lowest + LABEL_GAP)
        yield lowest, style, words


def _staleness(ages: Sequence[Sequence[float]], scale: _Scale) -> Iterator[str]:
    points = [(scale.x(moment_s), scale.below(age_s)) for moment_s, age_s in ages if moment_s <= scale.end_s]
    if points:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline class="age" points="{path}"/>'
    y = TOP + PLOT + GAP + BELOW / 2
    yield f'<text class="label age" x="{WIDTH - RIGHT + 6}" y="{y:.1f}">age of what</text>'
    yield f'<text class="label age" x="{WIDTH - RIGHT + 6}" y="{y + LABEL_GAP:.1f}">ours knows</text>'


def _ticks(most: float, about: int) -> Iterator[float]:
    """Returns round numbers from zero on."""
    rough = most / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    for number in range(int(most / step) + 1):
        yield number * step
