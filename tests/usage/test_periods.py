"""Goal: periods are UTC's, and have one number and one name each. Method: edges, and back and forth."""

from __future__ import annotations

import pytest

from reconverge.errors import InvalidSetting
from reconverge.hub.usage import KINDS, Period
from reconverge.usage.periods import period_at, period_end_s, period_name, period_named, period_start_s
from tests.support.metered import NOVEMBER


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_s", [0, NOVEMBER, NOVEMBER - 1, 951_782_400, 1_709_164_800, 1_740_700_799])
def test_a_period_begins_and_ends_where_the_next_begins(kind: str, at_s: float) -> None:
    """The first second of a period is in it, its end is in the next, and the second before is in the one before."""
    period = period_at(kind, at_s)
    start_s, end_s = period_start_s(period), period_end_s(period)

    assert period == period_at(kind, start_s) == period_at(kind, end_s - 0.001)
    assert Period(kind, period.number + 1) == period_at(kind, end_s)
    assert Period(kind, period.number - 1) == period_at(kind, start_s - 0.001)
    assert period == period_named(period_name(period))


def test_months_are_those_of_the_calendar() -> None:
    """November has thirty days, and the February of 2028 twenty-nine."""
    november, february = period_named("2026-11"), period_named("2028-02")

    assert 30 * 86_400 == period_end_s(november) - period_start_s(november)
    assert NOVEMBER == period_start_s(november)
    assert 29 * 86_400 == period_end_s(february) - period_start_s(february)


@pytest.mark.parametrize("name", ["", "November", "2026-13", "2026-11-23T14", "2026-11-23T14:05"])
def test_what_names_no_period_is_refused(name: str) -> None:
    """Names without Z could be of another time zone."""
    with pytest.raises(InvalidSetting, match="is no period like"):
        period_named(name)


def test_there_are_no_other_kinds() -> None:
    """A kind that is misspelled is guessed at."""
    with pytest.raises(InvalidSetting, match="did you mean 'hour'"):
        period_at("hours", 0)
