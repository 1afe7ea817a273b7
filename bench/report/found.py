"""The findings of a measurement: medians with their spread, as ratios to something measured beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

WIDE: Final = 0.1
"""A spread that is narrower, in parts of the median, is not shown."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    """A quarter of them are below."""
    high: float
    """A quarter of them are above."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    @property
    def varies(self) -> bool:
        """Whether there is a spread to show: what was counted once has none, a narrow one means little."""
        return self.high - self.low > WIDE * abs(self.median)


@dataclass(frozen=True, slots=True)
class Row:
    """One thing in one case."""

    part: str
    case: str
    what: str
    beside: str = ""
    """The other side of the ratio."""
    ratio: Spread | None = None
    measured: Spread | None = None
    unit: str = ""
    missing: str = ""
    """Why there are no numbers."""

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Row:
        """From a file."""
        spreads: dict[str, Any] = {
            name: Spread(**fields[name]) for name in ("ratio", "measured") if fields[name] is not None
        }
        return cls(**{**fields, **spreads})


@dataclass(frozen=True, slots=True)
class Part:
    """All of one part, and when, where and on what it was measured."""

    name: str
    about: dict[str, Any]
    rows: list[Row]


def find(rows: Iterable[Row], part: str, case: str, what: str) -> Row | None:
    """The row of that name, if it has numbers."""
    for row in rows:
        if (row.part, row.case, row.what) == (part, case, what) and not row.missing:
            return row
    return None
