"""Goal: what cannot be a limit is refused where it is declared, by an error with the value and what would be one.

Method: every field with all that it cannot be, beyond both ends of its range, and beside what it does not go with.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import InvalidLimit, Limit
from reconverge.limit import ALGORITHMS, BUCKETS, FILLED, METERED, QUOTA_MAX, SLICES_MAX
from reconverge.limit.checks import SOFT_MAX
from tests.limit.test_limit import TEN_YEARS_S
from tests.support.kernel.odd import HUGE, named

DAY_S = 86_400
NAN, INFINITE = float("nan"), float("inf")
NO_NUMBERS = [True, False, 1.0, 1.5, NAN, INFINITE, "1", b"1", [1]]
"""Nothing is rounded or taken for a number."""
FIXED: dict[str, Any] = {"window": DAY_S, "algorithm": "fixed-window"}
CALENDAR: dict[str, Any] = {**FIXED, "align": "calendar"}

REFUSED: list[tuple[str, dict[str, Any], list[Any], str]] = [
    ("quota", {}, [*NO_NUMBERS, None, -1, QUOTA_MAX + 1, HUGE, -HUGE], "the quota"),
    ("window", {}, [0, -1, 0.000_999, TEN_YEARS_S + 1, NAN, INFINITE, -INFINITE, HUGE, -HUGE], "1 ms and ten years"),
    ("window", {}, [True, "60", b"60", [60], 60j], "not a number of seconds"),
    ("burst", {"algorithm": "token-bucket"}, [*NO_NUMBERS, 0, -1, QUOTA_MAX + 1, HUGE], "the burst"),
    (
        "algorithm",
        {"burst": 7},
        [name for name in METERED if name not in BUCKETS],
        r"a burst needs a bucket \(token-bucket, gcra, leaky-bucket\)",
    ),
    ("slices", {"algorithm": "sliding-slices"}, [*NO_NUMBERS, 0, -1, SLICES_MAX + 1, HUGE], "slices"),
    (
        "algorithm",
        {"slices": 10},
        [name for name in METERED if name != "sliding-slices"],
        "slices go with sliding-slices, not with",
    ),
    (
        "algorithm",
        {"count_refused": True},
        [name for name in METERED if name != "sliding-log"],
        "count_refused goes with sliding-log, not with",
    ),
    ("count_refused", {"algorithm": "sliding-log"}, [None, 0, 1, "yes"], "neither True nor False"),
    (
        "algorithm",
        {},
        ["", "fixed", "FIXED-WINDOW", "sliding_window", 7, None, []],
        "known: fixed-window, sliding-window, sliding-slices, sliding-log, token-bucket",
    ),
    ("soft", {}, [-0.1, SOFT_MAX + 0.1, HUGE, True, "10%", None, NAN, INFINITE], "soft"),
    (
        "window",
        CALENDAR,
        [1, 3600, DAY_S - 1, DAY_S + 1, 2 * DAY_S, 31 * DAY_S, 365 * DAY_S],
        r"1 \(day\), 7 \(week\), 30 \(month\), 360 \(year\)",
    ),
    *(
        ("align", {**FIXED, "algorithm": name}, ["first-hit", "calendar"], f"fixed-window alone, not with {name}")
        for name in ALGORITHMS
        if name != "fixed-window"
    ),
    ("align", FIXED, ["", "Calendar", "hour", None, 1, HUGE, ["clock"]], "known: clock, first-hit, calendar"),
    ("timezone", CALENDAR, ["Europe/Berlyn", "America", "../x"], r"unknown timezone .*'Europe/Berlin'"),
    ("timezone", CALENDAR, ["", "x" * 65, None, 1, HUGE, b"UTC"], "is not a name like 'Europe/Berlin'"),
    (
        "align",
        {**FIXED, "timezone": "Europe/Berlin"},
        ["clock", "first-hit"],
        "goes with align='calendar' alone; leave it out",
    ),
    (
        "initial",
        {"algorithm": "token-bucket", "burst": 20},
        [-1, 21, True, 1.0, "1", HUGE],
        r"initial=.* is not (a whole number|between 0 and 20)",
    ),
    *(
        (field, {"algorithm": name}, [value], f"goes with token-bucket and gcra, not {name}")
        for name in ALGORITHMS
        if name not in FILLED
        for field, value in {"initial": 1, "refill": "interval"}.items()
    ),
    ("refill", {"algorithm": "gcra"}, ["", "Greedy", "steps", None, 1], "known: greedy, interval"),
]
"""A field, what is declared beside it, what it cannot be then, and what the error has to name."""


@pytest.mark.parametrize(
    ("field", "beside", "value", "problem"),
    [(field, beside, value, problem) for field, beside, values, problem in REFUSED for value in values],
    ids=lambda each: named(each) if not isinstance(each, dict) else "-".join(map(str, each.values())),
)
def test_what_cannot_be_a_limit_is_refused(field: str, beside: dict[str, Any], value: Any, problem: str) -> None:
    """The error names the fact, the value and what would do."""
    arguments: dict[str, Any] = {"quota": 10, "window": 60, **beside, field: value}
    with pytest.raises(InvalidLimit, match=problem):
        Limit(**arguments)
