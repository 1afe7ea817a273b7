"""Goal: what is unusual about a limit's windows or bucket is checked where it is declared, and shown.

Method: every field with what goes with it and with what does not.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import Agent, Limit, LimitConflict
from reconverge.limit import FILLED

DAY_S = 86_400


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


@pytest.mark.parametrize("algorithm", FILLED)
@pytest.mark.parametrize("initial", [0, 1, 20])
def test_a_bucket_begins_with_anything_up_to_its_capacity(algorithm: str, initial: int) -> None:
    """Both ends are included; what is missing is withheld."""
    limit = Limit(10, 60, algorithm=algorithm, burst=20, initial=initial)

    assert 20 - initial == limit.withheld
    assert f"10/60s burst 20 ({algorithm}, initial {initial})" == str(limit)


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
