"""A histogram of durations, such as those of exchanges."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import inf
from operator import add
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, inf)
"""The upper bounds, in seconds, of the buckets into which durations are sorted."""


@dataclass(slots=True)
class Durations:
    """A histogram of the durations of exchanges, or of requests that asked the hub."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BOUNDS_S))
    """For each bucket, the number of durations that were at most its bound, and longer than the bound before."""
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration in its bucket."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum += seconds

    def copy(self) -> Durations:
        """Returns a copy of the histogram as it is now."""
        return Durations(list(self.counts), self.sum)

    def __add__(self, other: Durations) -> Durations:
        return Durations(list(map(add, self.counts, other.counts)), self.sum + other.sum)
