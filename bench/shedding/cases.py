"""The cases of `make bench-shedding`: the traffic, and how the service's capacity changes meanwhile."""

# Theory of operation.
#
# Python services run out of capacity in two ways. An event loop whose handlers compute has one queue, the loop's own,
# in front of the decision. A pool (connections to a database, a service downstream) has a queue behind it. The worker
# shedder sees the former, and adaptive concurrency the latter; so each kind of trouble comes in both.
#
# The spike is the one that Netflix has published: twelve times the usual prefetch, while users send what they always
# do. In the drop the traffic stays, and each request takes twice as long (in the loop 2.4 times) until the capacity
# returns.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from random import Random
from typing import Final

USER: Final = "user"
PREFETCH: Final = "prefetch"
STREAMS: Final = (USER, PREFETCH)
TIMEOUT_S: Final = 1.0
"""The time, in seconds, for which a client waits: later answers are of no use to it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lengths of the three phases of a case, in seconds: calm, in trouble, and calm again."""

    calm_s: float
    trouble_s: float
    after_s: float

    @property
    def trouble_ends_s(self) -> float:
        """Returns the end of the trouble, in seconds since the beginning."""
        return self.calm_s + self.trouble_s

    @property
    def ends_s(self) -> float:
        """Returns the end of the case, in seconds since the beginning."""
        return self.trouble_ends_s + self.after_s

    def troubled(self, moment_s: float) -> bool:
        """Returns whether there is trouble at this moment."""
        return self.calm_s <= moment_s < self.trouble_ends_s


FULL: Final = Timeline(10.0, 40.0, 40.0)
QUICK: Final = Timeline(1.0, 3.0, 2.0)


@dataclass(frozen=True, slots=True)
class Case:
    """A service and its traffic. The first value of a pair is for calm times, the second for trouble.

    Args:
        title: the title of the chart.
        workers: the number of the pool's workers; 0 for an event loop that computes.
        rates: the requests per second, by stream.
        service_s: the time for which one request occupies a worker, or the loop.
    """

    title: str
    workers: int
    rates: Mapping[str, tuple[float, float]]
    service_s: tuple[float, float]

    def due(self, timeline: Timeline, seed: int) -> Iterator[tuple[float, str]]:
        """Yields the moments of the requests, in seconds since the beginning, each with its stream; always the same."""
        return merge(*(self._stream(name, timeline, Random(f"{seed}/{name}")) for name in STREAMS))

    def _stream(self, name: str, timeline: Timeline, random: Random) -> Iterator[tuple[float, str]]:
        moment_s = 0.0
        while moment_s < timeline.ends_s:
            spacing_s = 1.0 / self.rates[name][timeline.troubled(moment_s)]
            yield moment_s + random.random() * spacing_s, name
            moment_s += spacing_s


USUAL: Final = {USER: (60.0, 60.0), PREFETCH: (30.0, 360.0)}
CASES: Final[Mapping[str, Case]] = {
    "loop-spike": Case("event loop, 12 times the prefetch", 0, USUAL, (0.0065, 0.0065)),
    "loop-drop": Case("event loop, capacity drops", 0, {USER: (50.0, 50.0), PREFETCH: (80.0, 80.0)}, (0.005, 0.012)),
    "pool-spike": Case("pool, 12 times the prefetch", 10, USUAL, (0.05, 0.05)),
    "pool-drop": Case("pool, capacity drops", 10, {USER: (50.0, 50.0), PREFETCH: (80.0, 80.0)}, (0.05, 0.1)),
}
