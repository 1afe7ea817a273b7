"""A linear model of the cost of exchanges, fitted to measurements, with its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench.capacity.fleet import KEY_BYTES, Shape, Spent

ENTRIES_MIN: Final = 2000
"""The fewest entries of a shape whose memory is fitted: with fewer, most memory is that of connections."""
Point = tuple[Shape, Spent]


@dataclass(frozen=True, slots=True)
class Line:
    """One measured figure as a sum of terms."""

    name: str
    figure: str
    """The name of the figure, which is a field of `Spent`."""
    coefficients: dict[str, float]
    off_pct: float
    """The median error of the model over the points, in percent."""
    off_max_pct: float
    """The largest error of the model over the points, in percent."""

    def as_json(self) -> dict[str, Any]:
        """Returns the model for a JSON file."""
        rounded = {name: float(f"{value:.3g}") for name, value in self.coefficients.items()}
        off = {"off_pct": round(self.off_pct, 1), "off_max_pct": round(self.off_max_pct, 1)}
        return {"name": self.name, "figure": self.figure, "coefficients": rounded, **off}


def fitted(points: Sequence[Point]) -> list[Line]:
    """Returns the models of all figures."""
    large = [point for point in points if _entries(point[0]) >= ENTRIES_MIN]
    exchanged = {"batch": lambda point: point[1].batches, "cell": lambda point: point[1].cells}
    kept = {"key": lambda point: _keys(point[0]), "entry": lambda point: _entries(point[0])}
    return [
        _line("hub CPU", "server_us", points, exchanged, {"batch": "hub_batch_us", "cell": "hub_cell_us"}),
        _line("node CPU", "node_us", points, exchanged, {"batch": "node_batch_us", "cell": "node_cell_us"}),
        _line("bytes to the hub", "in_bytes", points, exchanged, {"batch": "in_batch_bytes", "cell": "in_cell_bytes"}),
        _line(
            "bytes to the nodes", "out_bytes", points, exchanged, {"batch": "out_batch_bytes", "cell": "out_cell_bytes"}
        ),
        _line(
            "memory of the hub", "memory_bytes", large, kept, {"key": "memory_key_bytes", "entry": "memory_entry_bytes"}
        ),
    ]


def _keys(shape: Shape) -> float:
    return float(shape.hot + shape.nodes * shape.cold)


def _entries(shape: Shape) -> float:
    return float(shape.nodes * (shape.hot + shape.cold))


def _line(
    name: str,
    figure: str,
    points: Sequence[Point],
    terms: dict[str, Callable[[Point], float]],
    names: dict[str, str],
) -> Line:
    """Fits one figure by least squares of relative errors, as the points differ much in size."""
    rows = [[term(point) for term in terms.values()] for point in points]
    values = [float(getattr(spent, figure)) for _, spent in points]
    found = least_squares([[one / value for one in row] for row, value in zip(rows, values, strict=True)])
    off = sorted(
        abs(sum(one * factor for one, factor in zip(row, found, strict=True)) / value - 1) * 100
        for row, value in zip(rows, values, strict=True)
    )
    coefficients = dict(zip((names[term] for term in terms), found, strict=True))
    for beside_the_key in ("in_cell_bytes", "memory_key_bytes"):
        if beside_the_key in coefficients:
            coefficients[beside_the_key] -= KEY_BYTES
    return Line(name, figure, coefficients, median(off), off[-1])


def least_squares(rows: Sequence[Sequence[float]]) -> list[float]:
    """Returns the factors by which the sums of the terms of each row come closest to 1."""
    size = len(rows[0])
    # These are the normal equations; they are few, and their terms are of one kind.
    matrix = [
        [*(sum(row[i] * row[j] for row in rows) for j in range(size)), sum(row[i] for row in rows)] for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [one - factor * other for one, other in zip(matrix[row], matrix[column], strict=True)]
    return [matrix[row][size] / matrix[row][row] for row in range(size)]
