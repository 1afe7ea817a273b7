"""The findings of a measurement: medians with their spread, as ratios to a measurement beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

WIDE: Final = 0.1
"""The spread, in parts of the median, from which on it is shown."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the spread of several measurements of one value."""

    median: float
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    @property
    def varies(self) -> bool:
        """Returns whether the spread is to be shown: a single count has none, and a narrow one means little."""
        return self.high - self.low > WIDE * abs(self.median)


@dataclass(frozen=True, slots=True)
class Row:
    """The finding on one thing in one case."""

    part: str
    case: str
    what: str
    beside: str = ""
    """The name of the thing to which the ratio compares."""
    ratio: Spread | None = None
    measured: Spread | None = None
    unit: str = ""
    missing: str = ""
    """The reason why there are no numbers; else empty."""

    def as_json(self) -> dict[str, Any]:
        """Returns the fields for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Row:
        """Returns the row of a JSON file."""
        spreads: dict[str, Any] = {
            name: Spread(**fields[name]) for name in ("ratio", "measured") if fields[name] is not None
        }
        return cls(**{**fields, **spreads})


@dataclass(frozen=True, slots=True)
class Part:
    """All rows of one part, and the date, the place and the machine of the measurement."""

    name: str
    about: dict[str, Any]
    rows: list[Row]


def find(rows: Iterable[Row], part: str, case: str, what: str) -> Row | None:
    """Returns the row of that part, case and name, if it has numbers; else None."""
    for row in rows:
        if (row.part, row.case, row.what) == (part, case, what) and not row.missing:
            return row
    return None
