"""Goal: what is unusual about a limit's windows or bucket is checked where it is declared, and shown.

Method: every field with what goes with it and with what does not.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import Agent, InvalidLimit, Limit, LimitConflict
from reconverge.limit import ALGORITHMS, FILLED
from tests.support.kernel.odd import HUGE, named

DAY_S = 86_400
OTHERS = [name for name in ALGORITHMS if name not in FILLED]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("100/day", "100/86400s (fixed-window, calendar of Europe/Berlin)"),
        ("100/24 hours", "100/86400s (fixed-window, calendar of Europe/Berlin)"),
        ("100/week", "100/604800s (fixed-window, calendar of Europe/Berlin)"),
        ("100/month", "100/2592000s (fixed-window, calendar of Europe/Berlin)"),
        ("100/year", "100/31104000s (fixed-window, calendar of Europe/Berlin)"),
    ],
)
def test_a_calendar_goes_with_days_weeks_months_and_years(text: str, shown: str) -> None:
    """However they are written."""
    limit = Limit.parse(text, algorithm="fixed-window", align="calendar", timezone="Europe/Berlin")

    assert shown == str(limit)


@pytest.mark.parametrize("window_s", [1, 3600, DAY_S - 1, DAY_S + 1, 2 * DAY_S, 31 * DAY_S, 365 * DAY_S])
def test_a_calendar_goes_with_no_other_window(window_s: float) -> None:
    """The error says with which it does."""
    with pytest.raises(InvalidLimit, match=r"1 \(day\), 7 \(week\), 30 \(month\), 360 \(year\)"):
        Limit(1, window_s, algorithm="fixed-window", align="calendar")


@pytest.mark.parametrize("align", ["first-hit", "calendar"])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "fixed-window"])
def test_only_fixed_windows_can_begin_elsewhere(align: str, algorithm: str) -> None:
    """The error names the algorithm that goes, and the one that does not."""
    with pytest.raises(InvalidLimit, match=f"goes with fixed-window alone, not with {algorithm}"):
        Limit(1, DAY_S, algorithm=algorithm, align=align)


@pytest.mark.parametrize("align", ["", "Calendar", "hour", None, 1, HUGE, ["clock"]], ids=named)
def test_any_other_alignment_is_refused(align: Any) -> None:
    """The error lists what there is."""
    with pytest.raises(InvalidLimit, match="known: clock, first-hit, calendar"):
        Limit(1, DAY_S, algorithm="fixed-window", align=align)


@pytest.mark.parametrize("timezone", ["Europe/Berlyn", "America", "../x"])
def test_an_unknown_timezone_is_refused(timezone: str) -> None:
    """The error says what a name of one looks like."""
    with pytest.raises(InvalidLimit, match=r"unknown timezone .*'Europe/Berlin'"):
        Limit(1, DAY_S, algorithm="fixed-window", align="calendar", timezone=timezone)


@pytest.mark.parametrize("timezone", ["", "x" * 65, None, 1, HUGE, b"UTC"], ids=named)
def test_what_is_no_name_is_no_timezone(timezone: Any) -> None:
    """Nor is anything looked up under it."""
    with pytest.raises(InvalidLimit, match="is not a name like 'Europe/Berlin'"):
        Limit(1, DAY_S, algorithm="fixed-window", align="calendar", timezone=timezone)


@pytest.mark.parametrize("align", ["clock", "first-hit"])
def test_a_timezone_needs_a_calendar(align: str) -> None:
    """It would be ignored otherwise, which nobody wants who gives one."""
    with pytest.raises(InvalidLimit, match="goes with align='calendar' alone; leave it out"):
        Limit(1, DAY_S, algorithm="fixed-window", align=align, timezone="Europe/Berlin")


@pytest.mark.parametrize("algorithm", FILLED)
@pytest.mark.parametrize("initial", [0, 1, 20])
def test_a_bucket_begins_with_anything_up_to_its_capacity(algorithm: str, initial: int) -> None:
    """Both ends are included; what is missing is withheld."""
    limit = Limit(10, 60, algorithm=algorithm, burst=20, initial=initial)

    assert 20 - initial == limit.withheld
    assert f"10/60s burst 20 ({algorithm}, initial {initial})" == str(limit)


@pytest.mark.parametrize("initial", [-1, 21, True, 1.0, "1", HUGE], ids=named)
def test_any_other_initial_is_refused(initial: Any) -> None:
    """The error says what it is not."""
    with pytest.raises(InvalidLimit, match=r"initial=.* is not (a whole number|between 0 and 20)"):
        Limit(10, 60, algorithm="token-bucket", burst=20, initial=initial)


@pytest.mark.parametrize("algorithm", OTHERS)
@pytest.mark.parametrize("fields", [{"initial": 1}, {"refill": "interval"}])
def test_only_buckets_begin_and_refill(algorithm: str, fields: dict[str, Any]) -> None:
    """The error says what has a beginning and a refill."""
    with pytest.raises(InvalidLimit, match=f"goes with token-bucket and gcra, not {algorithm}"):
        Limit(10, 60, algorithm=algorithm, **fields)


@pytest.mark.parametrize("refill", ["", "Greedy", "steps", None, 1], ids=named)
def test_any_other_refill_is_refused(refill: Any) -> None:
    """The error lists what there is."""
    with pytest.raises(InvalidLimit, match="known: greedy, interval"):
        Limit(10, 60, algorithm="gcra", refill=refill)


def test_a_limit_string_takes_fields_that_it_cannot_say() -> None:
    """And the rest of it as ever."""
    limit = Limit.parse("10/s burst 20 as api", initial=5, refill="interval")

    assert Limit(10, 1, algorithm="token-bucket", burst=20, name="api", initial=5, refill="interval") == limit
    assert "10/1s burst 20 (token-bucket, initial 5, refill interval)" == str(limit)


@pytest.mark.parametrize(
    "fields",
    [{"align": "first-hit"}, {"align": "calendar"}, {"align": "calendar", "timezone": "Asia/Kathmandu"}],
)
def test_where_windows_begin_is_part_of_the_limit(fields: dict[str, Any]) -> None:
    """One name cannot stand for two limits that differ in nothing else."""
    agent = Agent("memory://")
    agent.limit("x", Limit(10, DAY_S, algorithm="fixed-window"))

    with pytest.raises(LimitConflict):
        agent.limit("x", Limit(10, DAY_S, algorithm="fixed-window", **fields))
