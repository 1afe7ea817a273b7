"""Finds quotas that can never refuse, because another quota of the same limit is always used up first."""

# Theory of operation.
#
# `100/hour; 200/minute` means nothing but `100/hour`; most likely the windows are swapped. A quota is idle if the most
# that another one admits always fits into it, however requests come:
#
#     alike       the same window, counted in the same way, of which the other quota has less
#     buckets     the other holds less, and fills up more slowly
#     windows     all that the other admits within two windows of this one, which a sliding window adds up, is less
#
# A fixed window admits up to twice its quota around a boundary, and so does a window of slices at most; a sliding
# window or log admits its quota, and of the next window as much of it as has gone by. For all other pairs nothing is
# said: a warning that is wrong is worse than none.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reconverge.limit.limit import (
    CALENDAR,
    FILLED,
    FIXED_WINDOW,
    GREEDY,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    Limit,
)

WINDOWS: Final = (FIXED_WINDOW, SLIDING_WINDOW, SLIDING_SLICES, SLIDING_LOG)
_SLIDING: Final = (SLIDING_WINDOW, SLIDING_LOG)


def idle_in(quotas: Mapping[str, Limit]) -> Iterator[tuple[str, str]]:
    """Yields the name of each idle quota of a limit, with the name of one that is always used up first."""
    names = list(quotas)
    for place, name in enumerate(names):
        for other in names[:place] + names[place + 1 :]:
            idle = _is_idle(quotas[name], beside=quotas[other])
            if idle and not (names.index(other) > place and _is_idle(quotas[other], beside=quotas[name])):
                yield name, other
                break


def _is_idle(limit: Limit, *, beside: Limit) -> bool:
    if not beside.capacity or limit.costs != beside.costs or limit.count_refused or limit.align == CALENDAR:
        return False
    if limit.algorithm == beside.algorithm and limit.algorithm in WINDOWS:
        alike = replace(beside, quota=limit.quota, name=limit.name, soft=limit.soft)
        if limit == alike:
            return beside.capacity <= limit.nominal
    if limit.algorithm in FILLED:
        filled = beside.algorithm in FILLED and limit.initial is None and limit.refill == beside.refill == GREEDY
        return filled and beside.capacity <= limit.nominal and _rate(beside) <= _rate(limit)
    if limit.algorithm not in WINDOWS or beside.algorithm not in WINDOWS or beside.align == CALENDAR:
        return False
    share = 2 * limit.window_ns / beside.window_ns
    most = beside.capacity * (1 + share if beside.algorithm in _SLIDING else 2)
    return share <= 1 and most <= limit.nominal


def _rate(limit: Limit) -> float:
    return limit.quota / limit.window_ns
