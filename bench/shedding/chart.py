"""Draws the pictures of `make bench-shedding`: the closed loop by case, the damping, the responses of the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.report.chart import saved, without_windows
from bench.shedding import responses
from bench.shedding.cases import CASES, Timeline
from bench.shedding.judge import Shares, goodputs, rejected_shares
from bench.shedding.load import Answer
from bench.shedding.service import FIXED, NONE, OURS

COLOURS: Final = {NONE: "#c2410c", FIXED: "#94a3b8", OURS: "#0f766e"}
LOOP: Final = "chart-of-shedding.png"
DAMPING: Final = "chart-of-damping.png"
RESPONSES: Final = "chart-of-adaptive-limits.png"

Runs = Mapping[tuple[str, str], Sequence[Answer]]
"""The answers of each run, by case and gate."""


def draw_runs(runs: Runs, timeline: Timeline, path: Path) -> bool:
    """Draws the goodput of both streams and the rejected share, case by case. Returns whether it did."""
    pyplot = without_windows()
    cases = [case for case in CASES if any(key[0] == case for key in runs)]
    if pyplot is None or not cases:
        return False
    figure, axes = pyplot.subplots(
        3, len(cases), figsize=(3.6 * len(cases), 7.2), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    titles = ("users: served in time", "prefetch: served in time", "rejected, of all")
    for column, case in enumerate(cases):
        for gate, colour in COLOURS.items():
            answers = runs.get((case, gate))
            if answers is None:
                continue
            rows = (
                goodputs(answers, timeline.ends_s, user=True),
                goodputs(answers, timeline.ends_s, user=False),
                rejected_shares(answers, timeline.ends_s),
            )
            for row, line in enumerate(rows):
                _line(axes[row][column], line, gate, colour)
        axes[0][column].set_title(CASES[case].title, fontsize=10)
        axes[-1][column].set_xlabel("seconds")
        for row in range(3):
            _frame(axes[row][column], timeline)
    for row, title in enumerate(titles):
        axes[row][0].set_ylabel(title)
    axes[0][0].legend(fontsize=8, frameon=False, loc="lower left")
    return saved(pyplot, figure, path)


def _line(axis: Any, line: Shares, label: str, colour: str) -> None:
    axis.plot([at for at, _ in line], [value for _, value in line], color=colour, linewidth=1.6, label=label)


def _frame(axis: Any, timeline: Timeline) -> None:
    axis.axvspan(timeline.calm_s, timeline.trouble_ends_s, color="#fde68a", alpha=0.35, linewidth=0)
    axis.set_ylim(-0.03, 1.03)
    axis.spines[["top", "right"]].set_visible(False)


def draw_damping(path: Path) -> bool:
    """Draws the rejected fraction after a step of the load: with default gains, with gains that swing, with AIMD."""
    pyplot = without_windows()
    if pyplot is None:
        return False
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    kinds: tuple[tuple[str, Callable[[float], responses.Line]], ...] = (
        ("the default gains, damping ratio 1.1", responses.controlled),
        ("gains with a damping ratio of 0.015", lambda load: responses.controlled(load, responses.UNDAMPED)),
        ("AIMD: a tenth less, a point more", responses.additive),
    )
    for axis, (title, make) in zip(axes, kinds, strict=True):
        for load, colour in zip(responses.LOADS, ("#94a3b8", "#0f766e", "#c2410c"), strict=True):
            line = make(load)
            axis.plot([at for at, _ in line], [each for _, each in line], color=colour, label=f"{load:g} times")
            axis.axhline(1.0 - 1.0 / load, color=colour, linewidth=0.7, linestyle=":")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("seconds after the step")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rejected fraction")
    axes[0].legend(title="load", fontsize=8, frameon=False)
    return saved(pyplot, figure, path)


def draw_responses(path: Path) -> bool:
    """Draws the adaptive limits over time for a step, a ramp and noise; ten workers need a limit of ten."""
    pyplot = without_windows()
    if pyplot is None:
        return False
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
    for axis, pattern in zip(axes, responses.PATTERNS, strict=True):
        for algorithm, colour in zip(responses.ALGORITHMS, ("#0f766e", "#7c3aed", "#c2410c"), strict=True):
            line = responses.limits_of(algorithm, pattern)
            axis.plot([at for at, _ in line], [each for _, each in line], color=colour, linewidth=1, label=algorithm)
        axis.axhline(10, color="#64748b", linewidth=0.8, linestyle=":")
        axis.set_title(pattern, fontsize=9)
        axis.set_xlabel("seconds")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("limit")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(fontsize=8, frameon=False)
    return saved(pyplot, figure, path)
