"""Goal: a duration in ISO 8601 is the seconds that it says, and what is of no one length is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.limit.durations import seconds_of_iso

FIELD = st.integers(min_value=0, max_value=10**6)


@given(weeks=FIELD, days=FIELD, hours=FIELD, minutes=FIELD, millis=FIELD)
def test_a_duration_is_the_sum_of_its_fields(weeks: int, days: int, hours: int, minutes: int, millis: int) -> None:
    """Weeks, days, hours, minutes and seconds with up to three decimals, each by its own length."""
    seconds = f"{millis // 1000}.{millis % 1000:03}"
    expected = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + millis / 1000

    assert expected == pytest.approx(seconds_of_iso(f"P{weeks}W{days}DT{hours}H{minutes}M{seconds}S"), rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "P1M",
        "P1Y",
        "10S",
        "PT1.S",
        "PT0.0001S",
        "P-1D",
        "P1D ",
        "PT1S2M",
        f"P{'9' * 13}D",
        "P\u06611D",
    ],
)
def test_what_is_of_no_one_length_is_refused(text: str) -> None:
    """Months, years, fields without a number or out of order, and parts of a millisecond."""
    with pytest.raises(ValueError, match="ISO 8601"):
        seconds_of_iso(text)
