"""The traffic of simulated runs: patterns of requests that are drawn from a seed.

`demand` is the requested cost as a multiple of the limit. All times are nanoseconds after the start of the run, unless
they are in windows.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from reconverge.errors import InvalidSetting

ROTATION_WINDOWS: Final = 1.3
"""The time for which the pattern `rotating` stays on one node, in windows."""
ROTATION_SHARE: Final = 0.9
ON_WINDOWS: Final = 0.15
OFF_WINDOWS: Final = 0.45
FLASH_SHARE: Final = 0.8
FLASH_WINDOWS: Final = 0.05
SURGE_FACTOR: Final = 10.0
INSTANT_WINDOWS: Final = 0.002
"""The length of an instant, in windows: shorter than most round trips, so that no report can arrive during it."""
BATCH_REQUESTS: Final = 20
KEYS_MAX: Final = 100_000


class SimulatedArrival(NamedTuple):
    """The arrival of one request at a node, `moment_ns` nanoseconds after the start of the run."""

    moment_ns: int
    node: int
    key: str
    cost: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """A pattern of traffic: the demand, and how it is spread over time, nodes and keys."""

    pattern: str
    demand: float
    """The cost requested in a window for all keys together, as a multiple of the quota."""
    keys: int = 1
    """The number of keys among which the requests are spread by Zipf's law, the first key most often."""
    cost_max: int = 1
    """The highest cost of a request; each cost from 1 to this is equally likely."""

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise InvalidSetting("pattern", self.pattern, f"is no pattern; known: {', '.join(PATTERNS)}")
        if not 0 < self.demand <= 10_000:
            raise InvalidSetting("demand", self.demand, "must be above 0 and at most 10000 times the limit")
        if not 1 <= self.keys <= KEYS_MAX:
            raise InvalidSetting("keys", self.keys, f"must be 1 to {KEYS_MAX}")
        if self.cost_max < 1:
            raise InvalidSetting("cost_max", self.cost_max, "must be at least 1")

    def arrivals(self, *, nodes: int, quota: int, window_ns: int, windows: int, seed: int) -> list[SimulatedArrival]:
        """Returns all requests of a run of `windows` windows, in order of time."""
        # A generator of its own, so that other draws do not change the requests.
        random = Random(f"traffic {seed}")
        shape = _PatternShape(random, nodes, 2 * self.demand * quota / (self.cost_max + 1), windows)
        choose_key = _chooser(random, _zipf_weights(self.keys))
        names = [f"key-{number}" for number in range(self.keys)]
        drawn = [
            SimulatedArrival(
                int(moment * window_ns),
                node,
                names[choose_key()] if self.keys > 1 else names[0],
                random.randint(1, self.cost_max) if self.cost_max > 1 else 1,
            )
            for moment, node in PATTERNS[self.pattern](shape)
            if 0 <= moment < windows
        ]
        drawn.sort()
        return drawn


@dataclass(frozen=True, slots=True)
class _PatternShape:
    """The random generator and the numbers from which a pattern is drawn; times are in windows."""

    random: Random
    nodes: int
    per_window: float
    """The mean number of requests in a window."""
    windows: int

    def any_node(self) -> int:
        return self.random.randrange(self.nodes)

    def count(self, mean: float) -> int:
        """Draws a number from the Poisson distribution of this mean; above 500 from the normal one, which is close."""
        if mean > 500:
            return max(0, round(self.random.gauss(mean, mean**0.5)))
        return sum(1 for _ in self.moments(1.0, mean))

    def moments(self, end: float, rate: float, begin: float = 0.0) -> Iterator[float]:
        """Yields random times from `begin` to `end`, in windows: a Poisson process, on average `rate` in a window."""
        moment = begin
        while rate > 0 and (moment := moment + self.random.expovariate(rate)) < end:
            yield moment


_Drawn = Iterator[tuple[float, int]]


def _spread(weights: Callable[[int], list[float]]) -> Callable[[_PatternShape], _Drawn]:
    """Returns a pattern of steady traffic in which each node has requests in proportion to its weight.

    `weights(n)` returns the weights of n nodes.
    """

    def pattern(shape: _PatternShape) -> _Drawn:
        choose = _chooser(shape.random, weights(shape.nodes))
        return ((moment, choose()) for moment in shape.moments(shape.windows, shape.per_window))

    return pattern


def _rotating(shape: _PatternShape) -> _Drawn:
    """Draws traffic of which one node gets nearly all; after every ROTATION_WINDOWS another node is drawn for that."""
    hot = [shape.any_node() for _ in range(int(shape.windows / ROTATION_WINDOWS) + 2)]
    for moment in shape.moments(shape.windows, shape.per_window):
        is_hot = shape.random.random() < ROTATION_SHARE
        yield moment, hot[int(moment / ROTATION_WINDOWS)] if is_hot else shape.any_node()


def _onoff(shape: _PatternShape) -> _Drawn:
    """Draws traffic in which each node has requests for a while and none for longer, independently of other nodes."""
    rate = shape.per_window / shape.nodes * (ON_WINDOWS + OFF_WINDOWS) / ON_WINDOWS
    for node in range(shape.nodes):
        moment = -shape.random.expovariate(1 / OFF_WINDOWS)
        while moment < shape.windows:
            end = moment + shape.random.expovariate(1 / ON_WINDOWS)
            for each in shape.moments(min(end, shape.windows), rate, max(moment, 0.0)):
                yield each, node
            moment = end + shape.random.expovariate(1 / OFF_WINDOWS)


def _flash(shape: _PatternShape) -> _Drawn:
    """Draws traffic of which a share comes as a crowd at the beginning of each window, and the other part anytime."""
    for window in range(shape.windows):
        for _ in range(shape.count(shape.per_window)):
            crowd = shape.random.random() < FLASH_SHARE
            yield window + shape.random.random() * (FLASH_WINDOWS if crowd else 1.0), shape.any_node()


def _surge(shape: _PatternShape) -> _Drawn:
    """Draws traffic that is calm at first and grows tenfold in the middle of the run."""
    begin = shape.windows // 2
    for moment in shape.moments(begin, shape.per_window / SURGE_FACTOR):
        yield moment, shape.any_node()
    for moment in shape.moments(shape.windows, shape.per_window, float(begin)):
        yield moment, shape.any_node()


def _instant(shape: _PatternShape, per_window: float, node_of: Callable[[], Callable[[], int]]) -> _Drawn:
    for window in range(shape.windows):
        begin = window + INSTANT_WINDOWS + shape.random.random() * (1 - 3 * INSTANT_WINDOWS)
        choose = node_of()
        for _ in range(shape.count(per_window)):
            yield begin + shape.random.random() * INSTANT_WINDOWS, choose()


def _spray(shape: _PatternShape) -> _Drawn:
    """Draws traffic in which all requests of a window come at one time, on all nodes.

    An adversary that knows the round trip would send such traffic.
    """
    return _instant(shape, shape.per_window, lambda: shape.any_node)


def _spike(shape: _PatternShape) -> _Drawn:
    """Draws traffic in which all requests of a window come at one time, on one node, as from an honest batch job."""

    def node_of() -> Callable[[], int]:
        node = shape.any_node()
        return lambda: node

    return _instant(shape, shape.per_window, node_of)


def _burst(shape: _PatternShape) -> _Drawn:
    """Draws traffic of which half is steady, and half comes within a twentieth of each window, about its middle.

    Both halves go to all nodes.
    """
    for moment in shape.moments(shape.windows, shape.per_window / 2):
        yield moment, shape.any_node()
    for window in range(shape.windows):
        begin = window + 0.3 + 0.4 * shape.random.random()
        for _ in range(shape.count(shape.per_window / 2)):
            yield begin + shape.random.random() * FLASH_WINDOWS, shape.any_node()


def _batches(shape: _PatternShape) -> _Drawn:
    """Draws traffic in batches of twenty requests at a time, each batch on one node."""
    for moment in shape.moments(shape.windows, shape.per_window / BATCH_REQUESTS):
        node = shape.any_node()
        for _ in range(BATCH_REQUESTS):
            yield moment + shape.random.random() * INSTANT_WINDOWS, node


def _zipf_weights(count: int) -> list[float]:
    return [1 / (rank + 1) for rank in range(count)]


PATTERNS: Final[dict[str, Callable[[_PatternShape], _Drawn]]] = {
    "uniform": _spread(lambda nodes: [1.0] * nodes),
    "zipf": _spread(_zipf_weights),
    "single": _spread(lambda nodes: [1.0] + [0.0] * (nodes - 1)),
    "rotating": _rotating,
    "onoff": _onoff,
    "flash": _flash,
    "surge": _surge,
    "spray": _spray,
    "spike": _spike,
    "burst": _burst,
    "batches": _batches,
}


def _chooser(random: Random, weights: list[float]) -> Callable[[], int]:
    """Returns a function that draws an index of `weights`, each with a probability in proportion to its weight."""
    sums = list(accumulate(weights))
    last = len(weights) - 1
    return lambda: min(bisect(sums, random.random() * sums[-1]), last)
