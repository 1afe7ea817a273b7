"""Periods for which usage is counted (minutes, hours, days and months of UTC): their numbers, names and moments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from reconverge.arguments import checked_class
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.usage import (
    DAY,
    EPOCH_YEAR,
    HOUR,
    KINDS,
    LENGTH_MS,
    MINUTE,
    MONTH,
    MONTHS,
    Period,
    Retention,
    period_end_s,
    period_start_s,
)
from reconverge.settings import check_count

__all__ = [
    "checked_kind",
    "period_at",
    "period_end_s",
    "period_name",
    "period_named",
    "period_start_s",
    "periods_of_minute",
]

MINUTES_MAX: Final = 4_223_371_680
"""The minutes until the end of the year 9999, where Python's calendar ends."""
MILLISECONDS_MIN: Final = 10**12
"""From this number on, a moment is taken for one in milliseconds. A node whose clock is wrong may have any other."""
EARLIER: Final = "; write an earlier period by its date, as 2026-11 or 2026-11-23"
_FORMATS: Final = {MINUTE: "%Y-%m-%dT%H:%MZ", HOUR: "%Y-%m-%dT%HZ", DAY: "%Y-%m-%d", MONTH: "%Y-%m"}


def checked_kind(kind: object) -> str:
    """Returns `kind` if it is one of `KINDS`. Raises InvalidSetting if it is not."""
    if kind not in KINDS and isinstance(kind, str) and _named(kind) is not None:
        problem = f"is one period, where a kind of periods belongs; write one of {', '.join(KINDS)}: all that are due"
        raise InvalidSetting("period", kind, f"{problem} are exported, and each once")
    if kind not in KINDS:
        raise InvalidSetting("period", kind, f"is none of {', '.join(KINDS)}{asked(kind, KINDS)}{EARLIER}")
    return str(kind)


def checked_kept(kept: Retention | None) -> Retention:
    """Returns how many periods hubs keep; None means the default. Raises InvalidSetting for a number below 1."""
    kept = Retention() if kept is None else checked_class("kept", kept, Retention, "write kept=Retention(day=400)")
    for name, value in kept._asdict().items():
        check_count(f"kept.{name}", value)
    return kept


def period_at(kind: str, at_s: float) -> Period:
    """Returns the period that contains the moment `at_s`, in seconds since 1970. `kind`: minute, hour, day or month.

    Raises InvalidSetting for any other kind, and for a moment that is no such number.
    """
    checked_kind(kind)
    given: object = at_s
    if not isinstance(given, int | float):
        write = "moment.timestamp()" if isinstance(given, datetime) else "time.time()"
        raise InvalidSetting("at_s", given, f"is no number of seconds since 1970; write {write}")
    if not at_s < (MINUTES_MAX * 60 if kind == MONTH else MILLISECONDS_MIN):
        raise InvalidSetting("at_s", at_s, "is past the year 9999; write seconds since 1970, not milliseconds")
    if kind == MONTH:
        moment = datetime.fromtimestamp(at_s // 1, UTC)
        return Period(kind, (moment.year - EPOCH_YEAR) * MONTHS + moment.month - 1)
    return Period(kind, int(at_s // (LENGTH_MS[kind] / 1000)))


def period_name(period: Period) -> str:
    """Returns the name of a period: `2026-11`, `2026-11-23`, `2026-11-23T14Z` or `2026-11-23T14:05Z`."""
    return datetime.fromtimestamp(period_start_s(period), UTC).strftime(_FORMATS[period.kind])


def period_named(name: str) -> Period:
    """Returns the period of a name like those that `period_name` returns. Raises InvalidSetting for any other name."""
    found = _named(name)
    if found is None:
        problem = "is no period like 2026-11, 2026-11-23, 2026-11-23T14Z or 2026-11-23T14:05Z"
        raise InvalidSetting("period", name, problem)
    return period_at(*found)


def _named(name: str) -> tuple[str, float] | None:
    """Returns the kind and a moment of the period of a name; None for any other name."""
    for kind, form in _FORMATS.items():
        try:
            moment = datetime.strptime(name, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return kind, moment.timestamp()
    return None


def periods_of_minute(minute: int) -> tuple[Period, ...]:
    """Returns four periods: the minute with the number `minute` since 1970, and its hour, day and month.

    A minute before 1970 or after the year 9999 is replaced by the nearest minute between these.
    """
    return tuple(period_at(kind, min(max(0, minute), MINUTES_MAX - 1) * 60) for kind in KINDS)
