"""Goal: a row that is gone is never begun again, and the hub takes what is. Method: numbers of periods."""

from __future__ import annotations

from reconverge.hub.usage import Period, Retention
from reconverge.usage.open_periods import GONE_MAX, OpenPeriods
from reconverge.usage.periods import period_at
from tests.support.metered import NOVEMBER

NOW_US = int(NOVEMBER * 1e6)
PRESENT = period_at("minute", NOVEMBER)


def minute(number: int) -> Period:
    """So many minutes after the present one."""
    return Period("minute", PRESENT.number + number)


def closed(*numbers: int) -> OpenPeriods:
    """All periods but these."""
    periods = OpenPeriods()
    for number in numbers:
        periods.close(minute(number))
    return periods


def test_what_comes_for_a_period_that_is_gone_is_for_the_first_after_it() -> None:
    """Of the same kind; all others stay as they are."""
    periods = closed(0, 1, 3)

    assert minute(2) == periods.first_from(minute(0))
    assert minute(4) == periods.first_from(minute(3))
    assert minute(-1) == periods.first_from(minute(-1))
    assert Period("hour", PRESENT.number) == periods.first_from(Period("hour", PRESENT.number))


def test_beyond_the_bound_none_is_begun_before_the_earliest() -> None:
    """A clock that was ahead for a while closes nothing of the present."""
    periods = closed(10_000, *range(-GONE_MAX, 0))

    assert minute(0) == periods.first_from(minute(-GONE_MAX - 1))
    assert minute(5) == periods.first_from(minute(5))
    assert minute(10_001) == periods.first_from(minute(10_000))


def test_the_hub_counts_the_period_that_is_nearest_to_its_present() -> None:
    """The present one, one that is no more than five minutes ahead, or one before that is kept."""
    kept = Retention(minute=2)
    nearest = [closed(*gone).nearest_at_hub("minute", NOW_US, kept) for gone in ((), range(5), range(6), range(-1, 6))]

    assert [minute(0), minute(5), minute(-1), minute(-2)] == nearest
    assert closed(*range(-2, 6)).nearest_at_hub("minute", NOW_US, kept) is None
