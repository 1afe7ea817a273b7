"""The cost of a fleet for its hub, as a picture: measured points, and the model through them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.report.chart import FLOOR_COLOUR, OTHERS_COLOUR, OURS_COLOUR, saved, without_windows
from reconverge.clock import SECOND_NS
from reconverge.simulation.studies.capacity import HUB_CPU_PCT_MAX, Coefficients, load, regular_pace

FLEETS: Final = (10, 50, 200, 1000)
SHADES: Final = ("#99d5cf", "#4fa79f", OURS_COLOUR, "#083f3b")
KEYS: Final = tuple(round(10 ** (step / 8)) for step in range(41))
WINDOW_NS: Final = 60 * SECOND_NS
MARKERS: Final = {1: "v", 4: "d", 8: "o", 40: "s", 200: "^"}


def draw(found: dict[str, Any], path: Path) -> bool:
    """Draws the picture into a file. Returns whether it did: without matplotlib there is no picture."""
    pyplot = without_windows()
    if pyplot is None:
        return False
    of = Coefficients(**{name: value for line in found["model"] for name, value in line["coefficients"].items()})
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8.5), layout="constrained")
    _batches(axes[0][0], found["points"], of)
    _fleets(axes[0][1], of)
    _memory(axes[1][0], found["points"], of)
    _cold(axes[1][1], found["cold"])
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.15)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e2e8f0", linewidth=0.6)
        axis.set_axisbelow(True)
    for axis in axes[0]:
        for along in (axis.xaxis, axis.yaxis):
            along.set_major_formatter("{x:,g}")
            along.set_minor_formatter("")
    return saved(pyplot, figure, path)


def _batches(axis: Any, points: Sequence[dict[str, Any]], of: Coefficients) -> None:
    cells = [10 ** (step / 20) for step in range(50)]
    for what, colour, batch_us, cell_us in (
        ("hub", FLOOR_COLOUR, of.hub_batch_us, of.hub_cell_us),
        ("node", OURS_COLOUR, of.node_batch_us, of.node_cell_us),
    ):
        axis.plot(
            cells, [batch_us + cell_us * one for one in cells], color=colour, linewidth=1.2, label=f"{what}: model"
        )
        for nodes, marker in MARKERS.items():
            of_fleet = [point["spent"] for point in points if point["shape"]["nodes"] == nodes]
            field = "server_us" if what == "hub" else "node_us"
            axis.plot(
                [spent["cells"] / spent["batches"] for spent in of_fleet],
                [spent[field] / spent["batches"] for spent in of_fleet],
                linestyle="",
                marker=marker,
                markersize=5,
                markerfacecolor="none",
                color=colour,
                label=f"{nodes} node{'s' if nodes > 1 else ''}" if what == "hub" else None,
            )
    axis.set(xscale="log", yscale="log", ylim=(60, 4000), yticks=(100, 200, 500, 1000, 2000))
    axis.set(xlabel="reports in a batch", ylabel="µs of CPU for a batch")
    _titled(axis, "An exchange: so much for the batch, so much for each report")


def _fleets(axis: Any, of: Coefficients) -> None:
    for nodes, colour in zip(FLEETS, SHADES, strict=True):
        shares = []
        for keys in KEYS:
            pace = regular_pace(nodes, hot_keys=keys, cold_keys=0, window_ns=WINDOW_NS, interval_ns=SECOND_NS)
            shares.append(load(pace, nodes=nodes, hot_keys=keys, cold_keys=0, of=of).hub_cpu_pct)
        axis.plot(KEYS, shares, color=colour, label=f"{nodes} nodes")
    axis.axhline(HUB_CPU_PCT_MAX, color=FLOOR_COLOUR, linewidth=0.8, linestyle="--")
    axis.annotate("one Redis is not enough", (1.2, HUB_CPU_PCT_MAX * 1.15), fontsize=8, color=FLOOR_COLOUR)
    axis.set(xscale="log", yscale="log", ylim=(0.05, 200))
    axis.set(xlabel="hot keys that all nodes share", ylabel="% of a core of the hub, by the model")
    _titled(axis, "A fleet that exchanges every second; at T seconds, a T-th of it")


def _memory(axis: Any, points: Sequence[dict[str, Any]], of: Coefficients) -> None:
    nodes = list(range(1, 221))
    each = of.memory_key_bytes + 16
    axis.plot(nodes, [(each + of.memory_entry_bytes * one) / 1024 for one in nodes], color=OURS_COLOUR, label="model")
    sharing = [
        (
            1 if shape["cold"] else shape["nodes"],
            spent["memory_bytes"] / (shape["hot"] + shape["nodes"] * shape["cold"]),
        )
        for shape, spent in ((point["shape"], point["spent"]) for point in points)
        if shape["nodes"] * (shape["hot"] + shape["cold"]) >= 2000 and not (shape["hot"] and shape["cold"])
    ]
    at, size = zip(*sharing, strict=True)
    axis.plot(at, [one / 1024 for one in size], "o", markerfacecolor="none", color=FLOOR_COLOUR, label="measured")
    axis.set(
        xlabel="nodes that report a key", ylabel="kB of the hub's memory for a key", ylim=(0, None), xlim=(0, None)
    )
    _titled(axis, "Memory: so much for the key, so much for each node")


def _cold(axis: Any, cold: dict[str, Any]) -> None:
    rows = {"hot: asked every second": cold["hot"]}
    rows |= {f"cold: asked {name}": one for name, one in cold["rows"].items()}
    sizes = [(one["in_bytes"] + one["out_bytes"]) / one["seconds"] / 1e6 for one in rows.values()]
    places = range(len(sizes))
    axis.barh(places, sizes, color=[OTHERS_COLOUR, *([OURS_COLOUR] * (len(sizes) - 1))])
    axis.set_yticks(places, [name.replace(", ", ",\n") for name in rows], fontsize=8)
    axis.invert_yaxis()
    for place, size in zip(places, sizes, strict=True):
        share = "" if place == 0 else f" ({100 * size / sizes[0]:.1f} %)"
        axis.annotate(
            f"{size:.2f}{share}", (size, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set(xlabel="MB/s of sync traffic, both ways", xlim=(0, sizes[0] * 1.15))
    _titled(axis, f"{cold['keys']:,} keys of one node, windows of 60 s", legend=False)


def _titled(axis: Any, title: str, *, legend: bool = True) -> None:
    axis.set_title(title, fontsize=10, loc="left")
    if legend:
        axis.legend(fontsize=8, frameon=False)
