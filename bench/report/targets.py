"""The targets, with the measured figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from bench.capacity import asks, pieces, sync
from bench.decisions import decisions, felt, memory, threads
from bench.report.found import Row, find
from bench.web import limited, middleware, under_servers

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
DIRECTLY: Final = middleware.case_of("ASGI")
EXCHANGED: Final = f"{sync.OURS}: {sync.HOT}"
INTRODUCED: Final = f"{sync.OURS}: {sync.COLD}"


Measured: TypeAlias = Callable[[Iterable[Row]], float]


class NotMeasured(Exception):
    """Raised if a row is missing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with the bound that it should keep."""

    what: str
    unit: str
    bound: float
    at_least: bool
    measured: Callable[[Iterable[Row]], float]
    floor: Callable[[Iterable[Row]], float] | None = None
    """A function that returns the floor: the least cost of something like it, measured in the same run and unit."""
    floor_before: float | None = None
    """The floor in the run from which the bound was chosen, if one is known that is measured as `floor` is."""

    def met(self, value: float) -> bool:
        """Returns whether a figure keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    @property
    def in_floors(self) -> float | None:
        """Returns the bound as a multiple of the floor in the run from which it was chosen."""
        return None if self.floor_before is None else self.bound / self.floor_before


def judged(rows: Iterable[Row], targets: Iterable[Target]) -> list[tuple[Target, float | None, float | None]]:
    """Yields each target with the measured figure and its floor, or None if they were not measured."""
    rows = list(rows)
    return [(target, _if_measured(target.measured, rows), _if_measured(target.floor, rows)) for target in targets]


def _if_measured(find_it: Callable[[Iterable[Row]], float] | None, rows: Iterable[Row]) -> float | None:
    try:
        return None if find_it is None else find_it(rows)
    except NotMeasured:
        return None


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


def _quotient(part: str, case: str, dividend: str, divisor: str) -> Callable[[Iterable[Row]], float]:
    def measured(rows: Iterable[Row]) -> float:
        rows = list(rows)
        return _value(part, case, dividend)(rows) / _value(part, case, divisor)(rows)

    return measured


def _times(case: str, slower: str, faster: str) -> Callable[[Iterable[Row]], float]:
    """Returns the quotient of the two times.

    It is not the quotient of ratios to floors: a limiter that empties the caches makes its own floor slower.
    """
    return _quotient(decisions.PART, case, slower, faster)


def _at_most(
    what: str,
    bound: float,
    unit: str,
    measured: Callable[[Iterable[Row]], float],
    floor: Callable[[Iterable[Row]], float] | None = None,
    floor_before: float | None = None,
) -> Target:
    return Target(what, unit, bound, False, measured, floor, floor_before)  # noqa: FBT003  # `at_least`


def _added(case: str, what: str, floor: str, bound_us: float, floor_before_us: float | None = None) -> Target:
    """Makes a target for the time that a limit adds to a request."""
    return _at_most(
        f"{case}: {what}",
        bound_us,
        "µs added",
        _value(under_servers.PART, case, what),
        _value(under_servers.PART, case, floor),
        floor_before_us,
    )


Aim: TypeAlias = tuple[float, float | None]
"""The bound, and the floor in the run from which it was chosen."""


def _felt(what: str, name: str, floor: str, p50_us: Aim, p99_us: Aim | None = None) -> list[Target]:
    """Makes targets for one call after 3 ms of other work."""
    return [
        _at_most(
            f"one `allow` after 3 ms, {what}: {percentile}",
            figures[0],
            "µs",
            _value(felt.PART, felt.case_of(3.0, 0, percentile), name),
            _value(felt.PART, felt.case_of(3.0, 0, percentile), floor),
            figures[1],
        )
        for percentile, figures in (("p50", p50_us), ("p99", p99_us))
        if figures is not None
    ]


def _exchanged(what: str, bound_us: float, measured: Measured, floor: Measured | None) -> Target:
    """Makes a target for the cost of a part of an exchange."""
    return _at_most(f"exchange: {what}", bound_us, "µs for a key", measured, floor)


def _at_least(what: str, bound: float, unit: str, measured: Callable[[Iterable[Row]], float]) -> Target:
    return Target(what, unit, bound, at_least=True, measured=measured)


SPEED: Final = (
    *_felt(
        "a Redis, first charge since the last report",
        f"{felt.REDIS}: {felt.FIRST}",
        felt.FLOOR,
        (3, 1.7),
        (15, None),
    ),
    *_felt("a Redis, new keys", f"{felt.REDIS}: {felt.NEW}", felt.FLOOR_NEW, (7, 1.7), (25, 5.9)),
    *_felt("in memory, one hot key", f"{felt.MEMORY}: {felt.HOT}", felt.FLOOR, (1.2, None)),
    *_felt("in memory, new keys", f"{felt.MEMORY}: {felt.NEW}", felt.FLOOR_NEW, (3, None)),
    _at_most(
        "a new key beyond `max_keys` after 3 ms: p50",
        1.2,
        "of a new key below it",
        _quotient(
            felt.PART,
            felt.case_of(3.0, 0, "p50"),
            f"{felt.MEMORY}: {felt.BEYOND}",
            f"{felt.MEMORY}: {felt.NEW}",
        ),
    ),
    _added(DIRECTLY, limited.LIMITED, limited.COUNTING, 2.5),
    _added(DIRECTLY, limited.REFUSED, limited.COUNTING, 4),
    _added(DIRECTLY, middleware.BY_ADDRESS, limited.COUNTING, 3),
    _added(DIRECTLY, middleware.NO_FIELDS, limited.COUNTING_ALONE, 1.5),
    _added(under_servers.case_of("ASGI", under_servers.H11), limited.LIMITED, limited.CONSTANT, 10, 3.5),
    _added(under_servers.case_of("ASGI", under_servers.HTTPTOOLS), limited.LIMITED, limited.CONSTANT, 6, 1.2),
    _added(under_servers.case_of("FastAPI", under_servers.H11), limited.LIMITED, limited.TRIVIAL, 23, 9.8),
    _added(under_servers.case_of("FastAPI", under_servers.HTTPTOOLS), limited.LIMITED, limited.TRIVIAL, 18, 9.8),
    _added(under_servers.case_of("Flask", under_servers.GTHREAD), limited.LIMITED, limited.CONSTANT, 12, 4),
    _exchanged(
        "take and install",
        0.25,
        _value(sync.PART, sync.DRAIN, EXCHANGED),
        _value(pieces.PART, pieces.DICTIONARY, pieces.FLOOR),
    ),
    _exchanged(
        "the client, all of it",
        1.0,
        _value(sync.PART, sync.CLIENT, EXCHANGED),
        _value(pieces.PART, pieces.CLIENT, pieces.FLOOR),
    ),
    _exchanged(
        "the Redis, a hot key",
        5,
        _value(sync.PART, sync.SERVER, EXCHANGED),
        _value(pieces.PART, pieces.SERVER, pieces.FLOOR),
    ),
    _exchanged(
        "the Redis, a key that is used once in a window of ten intervals, for each of them",
        1.5,
        _value(pieces.PART, pieces.COLD_KEYS, pieces.OURS),
        _value(pieces.PART, pieces.SERVER, pieces.FLOOR),
    ),
    _exchanged("install, keys new to the hub", 1, _value(sync.PART, "install", INTRODUCED), None),
    *(
        _exchanged(
            case,
            10,
            _value(pieces.PART, case, pieces.OURS),
            _value(pieces.PART, case, pieces.FLOOR),
        )
        for case in pieces.DATED.values()
    ),
    _at_most(
        pieces.DEMO,
        10,
        "µs",
        _value(pieces.PART, pieces.DEMO, pieces.OURS),
        _value(pieces.PART, pieces.DEMO, pieces.FLOOR),
    ),
)
"""The targets of `bench.speed`: times that users feel."""

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
    _at_most(
        "`ask`, 1,000 in doubt a second, 5 ms added: median",
        2,
        "round trips",
        _ratio(asks.PART, asks.case_of(asks.PROXIED, "median"), asks.ASK),
    ),
    _at_least("8 threads decide as much as one", 0.9, "of one", _ratio(threads.PART, threads.case_of(8), threads.OURS)),
)
"""The targets of `bench`: the cost of a decision beside that of other limiters."""
