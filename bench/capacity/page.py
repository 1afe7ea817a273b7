"""The cost of a fleet for its hub, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bench.report.machine import in_a_sentence

BEGIN: Final = "<!-- Written by `python -m bench.capacity --adopt`. -->\n"
END: Final = "<!-- So far. -->\n"


def with_tables(document: str, found: dict[str, Any]) -> str:
    """Returns the document with these tables in place of its former ones."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_joined(found, [])}\n{END}{after}"


def tables(found: dict[str, Any]) -> str:
    """Returns the tables: the model, the points to which it was fitted, and cold keys beside hot ones."""
    return _joined(found, [*_points(found["points"]), ""])


def _joined(found: dict[str, Any], points: list[str]) -> str:
    about = found["about"] | {"packages": {}}
    where = in_a_sentence(about).replace("; no peers", "")
    return "\n".join([where, "", *_model(found["model"]), "", *points, *_cold(found["cold"])]) + "\n"


def _model(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "| | for each batch | for each report in it | off: median | off: at worst |"
    yield "|---|---|---|---|---|"
    for line in lines:
        first, second = line["coefficients"].values()
        unit = "µs" if line["figure"].endswith("_us") else "bytes"
        if line["figure"] == "memory_bytes":
            yield from ("", "| | for each key | for each node that reports it | off: median | off: at worst |")
            yield "|---|---|---|---|---|"
        off = f"{line['off_pct']:.0f} % | {line['off_max_pct']:.0f} %"
        yield f"| {line['name']} | {first:.3g} {unit} | {second:.3g} {unit} | {off} |"


def _points(points: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "| nodes | hot keys | cold keys of each | intervals in a window | reports in a batch | hub, µs for a report "
        "| node, µs for a report | bytes in | bytes out | hub memory, bytes for a key and node |"
    )
    yield "|---" * 10 + "|"
    for point in points:
        shape, spent = point["shape"], point["spent"]
        cells, entries = spent["cells"], shape["nodes"] * (shape["hot"] + shape["cold"])
        memory = f"{spent['memory_bytes'] / entries:.0f}" if entries >= 2000 else ""
        yield (
            f"| {shape['nodes']} | {shape['hot']} | {shape['cold']} | {shape['intervals']} "
            f"| {cells / spent['batches']:.0f} | {spent['server_us'] / cells:.1f} | {spent['node_us'] / cells:.1f} "
            f"| {spent['in_bytes'] / cells:.0f} | {spent['out_bytes'] / cells:.0f} | {memory} |"
        )


def _cold(cold: dict[str, Any]) -> Iterator[str]:
    hot = cold["hot"]
    hot_bytes, hot_us = _bytes_per_s(hot), hot["server_us"] / hot["seconds"]
    yield f"| {cold['keys']:,} keys of one node, every second | reports/s | bytes/s | of hot | hub CPU | of hot |"
    yield "|---|---|---|---|---|---|"
    yield f"| hot: asked in every interval {_row(hot)} | | {hot_us / 1e4:.1f} % | |"
    for name, one in cold["rows"].items():
        spent_us = one["server_us"] / one["seconds"]
        yield (
            f"| cold: asked {name} {_row(one)} "
            f"| {100 * _bytes_per_s(one) / hot_bytes:.1f} % | {spent_us / 1e4:.1f} % "
            f"| {100 * spent_us / hot_us:.1f} % |"
        )


def _row(spent: dict[str, Any]) -> str:
    return f"| {spent['cells'] / spent['seconds']:,.0f} | {_bytes_per_s(spent):,.0f}"


def _bytes_per_s(spent: dict[str, Any]) -> float:
    return float((spent["in_bytes"] + spent["out_bytes"]) / spent["seconds"])
