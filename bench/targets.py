"""What was aimed at, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bench import blocks, decisions, memory, sync, threads
from bench.found import Row, find

ALLOW: Final = "reconverge, `allow`"
HIT: Final = "reconverge, `hit`"
MANY: Final = "reconverge, `allow_many`, 256 at a time"
PURE: Final = "reconverge in pure Python, `allow`"
HOT: Final = decisions.case_of(10_000, "same strings", admitted=True)
MANY_HOT: Final = decisions.case_of(1_000_000, "same strings", admitted=True)
MANY_FRESH: Final = decisions.case_of(1_000_000, "fresh strings", admitted=True)
LIMITS: Final = "limits, fixed window"
FASTEST: Final = "rust-py-rate-limit, fixed window"
EXCHANGED: Final = f"{sync.OURS}: {sync.HOT}"


class NotMeasured(Exception):  # noqa: N818  # it states a fact
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
    """How many times as long the one takes, both as ratios to the floor beside them."""

    def measured(rows: Iterable[Row]) -> float:
        rows = list(rows)
        return _ratio(decisions.PART, case, slower)(rows) / _ratio(decisions.PART, case, faster)(rows)

    return measured


TARGETS: Final = (
    Target("`allow`, 10 k keys", "floors", 1.3, False, _ratio(decisions.PART, HOT, ALLOW)),
    Target("`allow`, 1 M keys, fresh strings", "floors", 0.5, False, _ratio(decisions.PART, MANY_FRESH, ALLOW)),
    Target("`hit`, 10 k keys", "floors", 1.5, False, _ratio(decisions.PART, HOT, HIT)),
    Target("`allow_many`, 1 M keys", "ns for a key", 120, False, _value(decisions.PART, MANY_HOT, MANY)),
    Target("`allow`: times faster than limits' fixed window", "times", 40, True, _times(HOT, LIMITS, ALLOW)),
    Target(
        "`hit`: times faster than limits' hit and get_window_stats",
        "times",
        80,
        True,
        _times(HOT, f"{LIMITS}, hit and get_window_stats", HIT),
    ),
    Target("`allow`: times faster than the fastest peer", "times", 3, True, _times(HOT, FASTEST, ALLOW)),
    Target(
        "`allow`: times less CPU of the client than limits on Redis",
        "times",
        500,
        True,
        _times(HOT, "limits on Redis, CPU of the client", ALLOW),
    ),
    Target("pure Python, `allow`, 10 k keys", "floors", 6, False, _ratio(decisions.PART, HOT, PURE)),
    Target("pure Python, `allow`: times faster than limits' fixed window", "times", 10, True, _times(HOT, LIMITS, PURE)),
    Target(
        "memory for each of 1 M keys, without the strings",
        "bytes",
        64,
        False,
        _value(memory.PART, memory.WHOLE, "reconverge, alone"),
    ),
    Target("exchange: take and install", "µs for a key", 0.25, False, _value(sync.PART, sync.DRAIN, EXCHANGED)),
    Target("exchange: the client, all of it", "µs for a key", 1.0, False, _value(sync.PART, sync.CLIENT, EXCHANGED)),
    Target(
        "8 threads decide as much as one",
        "of one",
        0.9,
        True,
        _ratio(threads.PART, threads.case_of(8), threads.OURS),
    ),
    Target(
        "longest call while 2 M keys come, beside a dictionary's",
        "of it",
        1.0,
        False,
        _ratio(blocks.PART, blocks.CASES["max"], blocks.OURS),
    ),
)
