"""Goal: the windows of a calendar are its days, weeks, months and years, wherever and whenever one looks.

Method: properties over zones whose clocks do unusual things, and the dates on which they do them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS
from reconverge.limit.calendar import LAST_S, UNITS, CalendarWindows, Unit, is_zone, unit_of
from tests.support.effort import tried

DAY, WEEK, MONTH, YEAR = UNITS
HOUR_NS = 3600 * SECOND_NS
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # midnight was skipped in spring
    "America/St_Johns",  # clocks were put back a minute after midnight
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # by half an hour
    "Pacific/Apia",  # has skipped a day
    "Pacific/Kwajalein",  # likewise
    "Pacific/Chatham",
)
MOMENTS_S = st.integers(0, 2**32) | st.sampled_from(
    [
        1325239200,
        1325239199,
        1162089059,
        1162089060,
        1162089660,
        1162092600,
        1540695600,
        1541300400,
        745934400,
        1761438000,
        1762063200,
    ]
)


@settings(max_examples=tried(400, long=1500))
@given(unit=st.sampled_from(UNITS), zone=st.sampled_from(ZONES), moment_s=MOMENTS_S, rest_ns=st.integers(0, 10**9 - 1))
def test_every_moment_is_in_one_window(unit: Unit, zone: str, moment_s: int, rest_ns: int) -> None:
    """The one whose number it has; the next begins where that ends, and none lasts longer than the longest."""
    windows = CalendarWindows(unit, zone)
    moment_ns = moment_s * SECOND_NS + rest_ns
    number = windows.number(moment_ns)
    opens_ns, closes_ns = windows.opens_ns(number), windows.opens_ns(number + 1)

    assert opens_ns <= moment_ns < closes_ns
    assert closes_ns - opens_ns <= windows.longest_ns
    afresh = CalendarWindows(unit, zone)
    assert number == afresh.number(closes_ns - 1)
    assert number < afresh.number(closes_ns)
    assert number > afresh.number(opens_ns - 1) or opens_ns <= 0
    assert (opens_ns, closes_ns) == (afresh.opens_ns(number), afresh.opens_ns(number + 1))


@settings(max_examples=tried(300, long=1000))
@given(zone=st.sampled_from(ZONES), moment_s=MOMENTS_S)
def test_a_day_lasts_from_midnight_to_midnight(zone: str, moment_s: int) -> None:
    """By the zone's own clocks; where those skip midnight, from the first moment of the day that there is."""
    windows = CalendarWindows(DAY, zone)
    opens_ns = windows.opens_ns(windows.number(moment_s * SECOND_NS))
    opened = datetime.fromtimestamp(opens_ns // SECOND_NS, ZoneInfo(zone))
    before = datetime.fromtimestamp(opens_ns // SECOND_NS - 1, ZoneInfo(zone))

    assert before.date() < opened.date()
    midnight = opened.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if opened.replace(tzinfo=None) != midnight:
        skipped = midnight.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(ZoneInfo(zone))
        assert skipped.replace(tzinfo=None) != midnight


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("UTC", (2025, 3, 30), 24),
        ("Europe/Berlin", (2025, 3, 30), 23),
        ("Europe/Berlin", (2025, 10, 26), 25),
        ("America/New_York", (2025, 11, 2), 25),
        ("America/Sao_Paulo", (2018, 11, 4), 23),
        ("Australia/Lord_Howe", (2025, 4, 6), 24.5),
        ("America/St_Johns", (2006, 10, 29), 25),
    ],
)
def test_a_day_is_longer_or_shorter_when_clocks_are_changed(zone: str, day: tuple[int, int, int], hours: float) -> None:
    """By as much as they are."""
    windows = CalendarWindows(DAY, zone)
    number = windows.number(_ns(*day, 12, zone=zone))

    assert hours * HOUR_NS == windows.opens_ns(number + 1) - windows.opens_ns(number)


def test_a_day_that_was_skipped_has_no_moment() -> None:
    """Samoa went from the 29th to the 31st of December 2011."""
    windows = CalendarWindows(DAY, "Pacific/Apia")
    number = windows.number(_ns(2011, 12, 29, 12, zone="Pacific/Apia"))

    assert windows.opens_ns(number + 1) == windows.opens_ns(number + 2)
    assert number + 2 == windows.number(windows.opens_ns(number + 1))


@pytest.mark.parametrize(
    ("unit", "first", "last"),
    [
        (WEEK, (2024, 12, 30), (2025, 1, 5)),
        (MONTH, (2024, 2, 1), (2024, 2, 29)),
        (MONTH, (2025, 2, 1), (2025, 2, 28)),
        (MONTH, (2025, 12, 1), (2025, 12, 31)),
        (YEAR, (2024, 1, 1), (2024, 12, 31)),
        (YEAR, (2025, 1, 1), (2025, 12, 31)),
    ],
)
def test_weeks_begin_on_monday_and_months_and_years_on_the_first(
    unit: Unit, first: tuple[int, int, int], last: tuple[int, int, int]
) -> None:
    """Leap years and all."""
    windows = CalendarWindows(unit, "Europe/Berlin")
    number = windows.number(_ns(*first, 0, zone="Europe/Berlin"))

    assert _ns(*first, 0, zone="Europe/Berlin") == windows.opens_ns(number)
    assert _ns(*last, 24, zone="Europe/Berlin") == windows.opens_ns(number + 1)


@pytest.mark.parametrize("moment_ns", [-(10**18), -1, (LAST_S + 1) * SECOND_NS, 10**20])
def test_a_moment_out_of_all_reason_is_in_some_window(moment_ns: int) -> None:
    """A hub's clock that is set to nonsense must not end the node."""
    windows = CalendarWindows(MONTH, "Asia/Kathmandu")

    number = windows.number(moment_ns)

    assert windows.opens_ns(number) < windows.opens_ns(number + 1)


def test_windows_of_one_seven_thirty_and_360_days_stand_for_the_calendars_units() -> None:
    """Limit strings write a day, a week, a month and a year so; and no others."""
    days = [unit.window_s // 86_400 for unit in UNITS]

    assert [1, 7, 30, 360] == days
    assert [*UNITS] == [unit_of(count * 86_400 * SECOND_NS) for count in days]
    assert unit_of(86_400 * SECOND_NS + 1) is None


@pytest.mark.parametrize("name", ["Europe/Berlyn", "", ".", "../etc/passwd", "America", "/etc/localtime", "\x00", "Ä"])
def test_what_is_no_zone_is_not_taken_for_one(name: str) -> None:
    """Neither unknown names nor such as lead elsewhere."""
    assert not is_zone(name)


def _ns(year: int, month: int, day: int, hour: int, *, zone: str) -> int:
    """A local time, as nanoseconds since 1970."""
    local = datetime(year, month, day, tzinfo=ZoneInfo(zone)) + timedelta(hours=hour)
    return round(local.timestamp()) * SECOND_NS
