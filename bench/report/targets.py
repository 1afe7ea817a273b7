"""What was aimed at, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bench.capacity import asks, sync
from bench.decisions import decisions, memory, threads
from bench.report.found import Row, find

ALLOW: Final = "reconverge, `allow`"
HIT: Final = "reconverge, `hit`"
MANY: Final = "reconverge, `allow_many`, 256 at a time"
PURE: Final = "reconverge in pure Python, `allow`"
HOT: Final = decisions.case_of(10_000, "same strings", admitted=True)
MANY_HOT: Final = decisions.case_of(1_000_000, "same strings", admitted=True)
MANY_FRESH: Final = decisions.case_of(1_000_000, "fresh strings", admitted=True)
LIMITS: Final = "limits, fixed window"
FASTEST: Final = "rust-py-rate-limit, fixed window"
LIMITS_STATS: Final = f"{LIMITS}, hit and get_window_stats"
ON_REDIS: Final = "limits on Redis, CPU of the client"
ALONE: Final = "reconverge, alone"
EXCHANGED: Final = f"{sync.OURS}: {sync.HOT}"


class NotMeasured(Exception):
    """A row is not there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and where it should be."""

    what: str
    unit: str
    bound: float
    at_least: bool
    measured: Callable[[Iterable[Row]], float]

    def met(self, value: float) -> bool:
        """Whether it is where it should be."""
        return value >= self.bound if self.at_least else value <= self.bound


def judged(rows: Iterable[Row]) -> list[tuple[Target, float | None]]:
    """All of them, with what was measured, or None if it was not."""
    rows = list(rows)
    found: list[tuple[Target, float | None]] = []
    for target in TARGETS:
        try:
            found.append((target, target.measured(rows)))
        except NotMeasured:
            found.append((target, None))
    return found


def _row(rows: Iterable[Row], part: str, case: str, what: str) -> Row:
    row = find(rows, part, case, what)
    if row is None or row.measured is None:
        raise NotMeasured
    return row


def _ratio(part: str, case: str, what: str) -> Callable[[Iterable[Row]], float]:
    def measured(rows: Iterable[Row]) -> float:
        ratio = _row(rows, part, case, what).ratio
        assert ratio is not None
        return ratio.median

    return measured


def _value(part: str, case: str, what: str) -> Callable[[Iterable[Row]], float]:
    def measured(rows: Iterable[Row]) -> float:
        value = _row(rows, part, case, what).measured
        assert value is not None
        return value.median

    return measured


def _times(case: str, slower: str, faster: str) -> Callable[[Iterable[Row]], float]:
    """How many times as long the one takes. Not by their floors: who empties the caches makes his own floor dearer."""

    def measured(rows: Iterable[Row]) -> float:
        rows = list(rows)
        return _value(decisions.PART, case, slower)(rows) / _value(decisions.PART, case, faster)(rows)

    return measured


def _at_most(what: str, bound: float, unit: str, measured: Callable[[Iterable[Row]], float]) -> Target:
    return Target(what, unit, bound, at_least=False, measured=measured)


def _at_least(what: str, bound: float, unit: str, measured: Callable[[Iterable[Row]], float]) -> Target:
    return Target(what, unit, bound, at_least=True, measured=measured)


TARGETS: Final = (
    _at_most("`allow`, 10 k keys", 1.3, "floors", _ratio(decisions.PART, HOT, ALLOW)),
    _at_most("`allow`, 1 M keys, fresh strings", 0.5, "floors", _ratio(decisions.PART, MANY_FRESH, ALLOW)),
    _at_most("`hit`, 10 k keys", 1.5, "floors", _ratio(decisions.PART, HOT, HIT)),
    _at_most("`allow_many`, 1 M keys", 120, "ns for a key", _value(decisions.PART, MANY_HOT, MANY)),
    _at_least("`allow`: faster than limits' fixed window", 40, "times", _times(HOT, LIMITS, ALLOW)),
    _at_least("`hit`: faster than limits' hit and get_window_stats", 80, "times", _times(HOT, LIMITS_STATS, HIT)),
    _at_least("`allow`: faster than the fastest peer", 3, "times", _times(HOT, FASTEST, ALLOW)),
    _at_least("`allow`: less CPU of the client than limits on Redis", 500, "times", _times(HOT, ON_REDIS, ALLOW)),
    _at_most("pure Python, `allow`, 10 k keys", 6, "floors", _ratio(decisions.PART, HOT, PURE)),
    _at_least("pure Python, `allow`: faster than limits' fixed window", 10, "times", _times(HOT, LIMITS, PURE)),
    _at_most("memory for each of 1 M keys, without the strings", 64, "bytes", _value(memory.PART, memory.WHOLE, ALONE)),
    _at_most("exchange: take and install", 0.25, "µs for a key", _value(sync.PART, sync.DRAIN, EXCHANGED)),
    _at_most("exchange: the client, all of it", 1.0, "µs for a key", _value(sync.PART, sync.CLIENT, EXCHANGED)),
    _at_most(
        "`ask`, 1,000 in doubt a second, 5 ms added: median",
        2,
        "round trips",
        _ratio(asks.PART, asks.case_of(asks.PROXIED, "median"), asks.ASK),
    ),
    _at_least("8 threads decide as much as one", 0.9, "of one", _ratio(threads.PART, threads.case_of(8), threads.OURS)),
)
