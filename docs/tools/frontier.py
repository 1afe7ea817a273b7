"""The picture of what cannot be had: what limiters lose, beside the least that is lost without messages.

It is drawn from the table of docs/internals/what-cannot-be-had.md, which a test compares with the simulation.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from docs.tools.drawing import INK, NAIVE, OTHERS, OURS, bare, save

NODES: Final = 8
LEAST_PCT: Final = 100 * (NODES - 1)
MOST_PCT: Final = 2.3 * LEAST_PCT
SHOWN: Final = ("cut off, busy", "cut off, new", "steady")
OWN: Final = ("strict", "balanced", "available")
CELL: Final = re.compile(r"(\d+)/(\d+)")
TITLE: Final = "What limiters lose with eight nodes that are cut off, and with messages"


@dataclass(frozen=True, slots=True)
class Loss:
    """One limiter in one situation, in % of the limit."""

    limiter: str
    situation: str
    over: int
    unused: int


def losses(page: str) -> list[Loss]:
    """Returns what the table of the page has about the situations of the picture."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    heads, _, *limiters = rows
    return [
        Loss(name, situation, int(cell[1]), int(cell[2]))
        for name, *cells in limiters
        for situation, text in zip(heads[1:], cells, strict=True)
        if situation in SHOWN and (cell := CELL.fullmatch(text))
    ]


def draw(found: list[Loss], path: Path) -> None:
    """Writes the picture. Raises OSError."""
    figures = [asdict(loss) for loss in found]
    save(path, figures, title=TITLE, size=(8.6, 5.2), draw=lambda figure: _draw(found, figure))


def _draw(found: list[Loss], figure: Any) -> None:
    axes = figure.add_subplot()
    limiters = list(dict.fromkeys(loss.limiter for loss in found))
    for loss in found:
        number = SHOWN.index(loss.situation)
        height = limiters.index(loss.limiter) + (number - 1) * 0.27
        strength = 0.45 if number == len(SHOWN) - 1 else 1.0
        axes.barh(height, loss.over, 0.22, color=NAIVE, alpha=strength)
        axes.barh(height, NODES * loss.unused, 0.22, left=loss.over, color=OTHERS, alpha=strength)
        if loss.limiter == limiters[0]:
            end = loss.over + NODES * loss.unused
            axes.text(end + 12, height, loss.situation, va="center", fontsize=8)
    axes.axvline(LEAST_PCT, color=INK, linewidth=1.4)
    axes.set_yticks(range(len(limiters)), limiters)
    for label in axes.get_yticklabels():
        label.set_color(OURS if label.get_text().partition(",")[0] in OWN else INK)
    axes.invert_yaxis()
    axes.set_xlim(0, MOST_PCT)
    axes.text(LEAST_PCT, -0.75, f"(N - 1) · L, where N = {NODES}", ha="center", va="bottom")
    axes.text(0.99, 0.47, "over", color=NAIVE, transform=axes.transAxes, ha="right", fontweight="bold")
    axes.text(0.99, 0.42, "N · unused", color="#64748b", transform=axes.transAxes, ha="right", fontweight="bold")
    axes.set_xlabel("% of the limit")
    bare(axes)
