"""The CPU time that keys far from their limits take of a Redis, with silence and without.

Run as `python -m bench.capacity.silence`; prints tab-separated rows. Each node asks about each key once in
each sync interval or more often, for at most a tenth of the limit. The fleet with silence is measured for a whole
window, with its beginning, and the other one for a fifth of a window, in virtual time. The rows of MANY keys are the
line through the two sizes before them. A single node stands for callers that always come to the same node.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from bench.capacity.fleet import Fleet, Shape
from bench.servers import redis_on_loopback
from reconverge.clock import SECOND_NS
from reconverge.hub.headroom import SILENCE_MAX_S
from reconverge.limit import Limit

NODES: Final = (1, 4)
ASKED: Final = 20
"""The limit, as a multiple of one request on each node in each interval. A key is asked about again with each report,
so at most twice in an interval."""
WINDOWS: Final = ((30, 300), (300, 600), (300, 300))
"""The window in seconds, and the number of sync intervals in it."""
SIZES: Final = (100, 400)
MANY: Final = 100_000
WARMUP: Final = 50
"""Intervals after which each node holds enough of each key. Until the node that came first reports again, the others
report in each interval."""
LOUD_SHARE: Final = 5
"""The fleet without silence is measured for a window divided by this number: each interval is like any other."""
HEADS: Final = (
    "nodes", "window s", "interval s", "keys", "reports/s without", "reports/s with", "times fewer",
    "% of a core without", "% of a core with", "times less",
)  # fmt: skip


def load_of(
    port: int, nodes: int, window_s: int, intervals: int, keys: int, max_silence_ns: int
) -> tuple[float, float]:
    """Returns the reports per second of a fleet, and the share of a core that the server needs for them, in percent."""
    shape = Shape(
        nodes,
        keys,
        intervals=intervals,
        rounds=intervals if max_silence_ns else intervals // LOUD_SHARE,
        limit=Limit(ASKED * nodes * intervals, window_s),
        max_silence_ns=max_silence_ns,
        warmup=WARMUP if max_silence_ns else 2,
    )
    with Fleet(port, shape) as fleet:
        spent = asyncio.run(fleet.run())
    return spent.cells / spent.seconds, spent.server_us / spent.seconds / 1e4


def at_many(values: Sequence[float], sizes: Sequence[int]) -> float:
    """Returns the value at MANY keys of the line through the values at two sizes."""
    return values[1] + (values[1] - values[0]) / (sizes[1] - sizes[0]) * (MANY - sizes[1])


def rows(port: int, sizes: Sequence[int]) -> Iterator[Sequence[object]]:
    """Yields a row of the table for each number of nodes, window and size."""
    for nodes, (window_s, intervals) in product(NODES, WINDOWS):
        place = (nodes, window_s, window_s / intervals)
        found = []
        for keys in sizes:
            of_both = (load_of(port, nodes, window_s, intervals, keys, each) for each in (0, SILENCE_MAX_S * SECOND_NS))
            found.append([value for load in of_both for value in load])
            yield *place, keys, *_with_ratios(found[-1])
        line = [at_many(values, sizes) for values in zip(*found, strict=True)]
        yield *place, f"{MANY} (line)", *_with_ratios(line)


def _with_ratios(values: Sequence[float]) -> Sequence[str]:
    reports, core, fewer, less = values
    return (
        *(f"{value:.1f}" for value in (reports, fewer, reports / fewer)),
        *(f"{value:.3g}" for value in (core, less)),
        f"{core / less:.1f}",
    )


def main() -> int:
    """Print the table. Returns the exit status, 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.silence", description=__doc__)
    parser.add_argument("--keys", type=int, nargs=2, default=SIZES, help="two numbers of keys (default: %(default)s)")
    options = parser.parse_args()
    print(*HEADS, sep="\t")
    with redis_on_loopback() as port:
        for row in rows(port, options.keys):
            print(*row, sep="\t", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
