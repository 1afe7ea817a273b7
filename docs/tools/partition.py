"""The picture of a partition: what a fleet admits while half of it is cut off, beside a limiter that trusts totals.

The fleet is simulated with the production kernel, syncer and merge rule under virtual time, so the figures are the same
on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from docs.tools.drawing import INK, NAIVE, OTHERS, OURS, SHADE, bare, save
from reconverge.clock import SECOND_NS
from reconverge.limit.limit import Limit
from reconverge.simulation import COMPARED, Experiment, Fleet, Traffic, run

NODES: Final = 8
LIMIT: Final = "200/10s"
DEMAND: Final = 3.0
"""What is asked for, as a multiple of the limit."""
WINDOWS: Final = 14
CUT: Final = "cut:half@4w+5w"
SEED: Final = 0
TITLE: Final = "Requests admitted in each window while half of the fleet is cut off"


@dataclass(frozen=True, slots=True)
class Figures:
    """One key of one fleet, by window."""

    limit: int
    bound: float
    """The most that `balanced` declares for a window."""
    window_s: float
    cut_s: tuple[float, float]
    asked: list[int]
    ours: list[int]
    """Admitted with the policy `balanced`."""
    naive: list[int]
    """Admitted by a limiter that trusts the last merged total."""

    def over_pct(self, admitted: list[int]) -> float:
        """How far the worst window is above the limit, in per cent of it."""
        return 100 * max(0, max(admitted) - self.limit) / self.limit


def figures() -> Figures:
    """Simulate both limiters with the same requests and the same fault; takes a second or two."""
    limit = Limit.parse(LIMIT, algorithm="fixed-window")
    fleet = Fleet(nodes=NODES, limit=limit, sync_interval_ns=SECOND_NS, round_trip_ns=2_000_000)
    experiment = Experiment(fleet, Traffic("uniform", DEMAND), WINDOWS, warmup=2, faults=(CUT,))
    _, runs = run(experiment, [COMPARED["balanced"], COMPARED["naive"]], range(SEED, SEED + 1), processes=1)
    ours, naive = runs["balanced"][0], runs["naive"][0]
    asked: Counter[int] = Counter()
    for arrival in experiment.arrivals(SEED):
        asked[arrival.moment_ns // limit.window_ns] += arrival.cost
    (fault,) = experiment.faults_of(SEED)
    return Figures(
        limit=limit.quota,
        bound=round(limit.quota * (1 + ours.bound_pct / 100), 1),
        window_s=limit.window,
        cut_s=(fault.start_ns / SECOND_NS, fault.end_ns / SECOND_NS),
        asked=[asked[number] for number in range(WINDOWS)],
        ours=list(ours.busiest_by_window),
        naive=list(naive.busiest_by_window),
    )


def draw(found: Figures, path: Path) -> None:
    """Write the picture. Raises OSError."""
    save(path, asdict(found), title=TITLE, size=(8.6, 3.6), draw=lambda figure: _draw(found, figure))


def _draw(found: Figures, figure: Any) -> None:
    axes = figure.add_subplot()
    axes.axvspan(*found.cut_s, color=SHADE, zorder=0)
    middle_s = sum(found.cut_s) / 2
    _steps(axes, found, found.asked, color=OTHERS, linewidth=1.0)
    _steps(axes, found, found.naive, color=NAIVE, linewidth=2.2)
    _steps(axes, found, found.ours, color=OURS, linewidth=2.6)
    axes.axhline(found.limit, color=INK, linestyle="--", linewidth=1.0, zorder=1)
    axes.axhline(found.bound, color=OURS, linestyle=":", linewidth=1.6)
    top = 1.16 * max(found.asked)
    axes.set_ylim(0, top)
    axes.set_xlim(0, WINDOWS * found.window_s)
    cut = f"{NODES // 2} of {NODES} nodes cut off"
    axes.text(middle_s, 0.985 * top, cut, ha="center", va="top", fontweight="bold")
    labels = (
        (found.asked[-1], "asked for", OTHERS),
        (0.85 * max(found.naive), "trusts merged totals", NAIVE),
        (found.bound, f"declared bound: {found.bound:g}", OURS),
        (found.limit, f"limit: {found.limit}", INK),
        (0.78 * found.limit, "reconverge", OURS),
    )
    for height, text, colour in labels:
        axes.annotate(
            text,
            (1.0, height),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, 3 if colour == OURS and height == found.bound else 0),
            textcoords="offset points",
            va="center",
            color=colour if colour != OTHERS else "#64748b",
            fontweight="bold" if text == "reconverge" else "normal",
            annotation_clip=False,
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel(f"requests in a window of {found.window_s:g} s")
    bare(axes)


def _steps(axes: Any, found: Figures, values: list[int], **style: Any) -> None:
    """A level for each window, the last one included."""
    moments = [number * found.window_s for number in range(len(values) + 1)]
    axes.step(moments, [*values, values[-1]], where="post", **style)
