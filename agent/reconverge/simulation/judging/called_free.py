"""Checks whether an answer of the hub has ever reported more cost free than one central limiter would still admit."""

# Theory of operation.
#
# A limit is exceeded only after the hub has granted what is not there, and often much later: nodes that are idle use no
# allowance. So each answer is judged as well. What it calls free may be granted to the next node, and must be free in
# truth: in one bucket into which all charges went, or in the count of one window.
#
# Only limits are judged whose use at a moment can be computed: buckets, and windows that begin by the clock and do not
# fade. A run in which the hub loses its data, or the limit changes, has moments at which the hub knows less, or grants
# by another capacity; such grants are judged only by what is admitted with them.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from reconverge.limit.limit import FIRST_HIT, FIXED_WINDOW, INTERVAL, PACED, Limit
from reconverge.simulation.truth import CalledFree, DecidedRequest

BITS: Final = 1e-6
"""The largest error in the level of a bucket that comes of floating point."""


def is_plain(limit: Limit) -> bool:
    """Whether the free cost of a limit at a given time follows from its charges alone."""
    if limit.algorithm in PACED or limit.withheld > 0:
        return False
    fixed = limit.counts_as == FIXED_WINDOW and limit.align != FIRST_HIT and limit.calendar is None
    return limit.bucket or fixed


def too_free(limit: Limit, decided: Sequence[DecidedRequest], called: Sequence[CalledFree]) -> list[str]:
    """Returns a sentence for each of the answers in `called` that reported more cost free than there was.

    For strict only.
    """
    truth: _CalledBucket | _Windows = _CalledBucket(limit) if limit.bucket else _Windows()
    problems: list[str] = []
    counted = 0
    for one in called:
        for charge in decided[counted : one.decided]:
            if charge.allowed:
                truth.charge(charge)
        counted = max(counted, one.decided)
        over = one.free + truth.used(one) - limit.capacity
        if over > BITS:
            problems.append(f"{one.key} at {one.hub_ns}: the hub calls {one.free} free, {over:.3f} more than there is")
    return problems


class _Windows:
    """The cost charged to each window of each key, as an observer adds it up."""

    def __init__(self) -> None:
        self._used: defaultdict[tuple[str, int], int] = defaultdict(int)

    def charge(self, one: DecidedRequest) -> None:
        self._used[one.key, one.epoch] += one.cost

    def used(self, one: CalledFree) -> float:
        return self._used[one.key, one.epoch]


class _CalledBucket:
    """A bucket for each key, to which an observer adds all charges."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._levels: dict[str, tuple[float, int]] = {}

    def charge(self, one: DecidedRequest) -> None:
        self._levels[one.key] = self._level(one.key, one.hub_ns) + one.cost, one.hub_ns

    def used(self, one: CalledFree) -> float:
        return self._level(one.key, one.hub_ns)

    def _level(self, key: str, hub_ns: int) -> float:
        level, marked_ns = self._levels.get(key, (0.0, hub_ns))
        window_ns = self._limit.window_ns
        passed = hub_ns - marked_ns
        if self._limit.refill == INTERVAL:
            passed = (hub_ns // window_ns - marked_ns // window_ns) * window_ns
        return max(0.0, level - self._limit.quota * passed / window_ns)
