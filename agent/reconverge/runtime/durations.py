"""How long things took, in buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import inf
from operator import add
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, inf)
"""Of the buckets into which durations are sorted."""


@dataclass(slots=True)
class Durations:
    """How long exchanges, or requests that asked, took, in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BOUNDS_S))
    """How many took up to the bound of the same place, and longer than the one before."""
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """One more took so long."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum += seconds

    def copy(self) -> Durations:
        """Copies the durations as they are now."""
        return Durations(list(self.counts), self.sum)

    def __add__(self, other: Durations) -> Durations:
        return Durations(list(map(add, self.counts, other.counts)), self.sum + other.sum)
