"""ISO 8601 durations such as `PT10S` and `P14D`, in seconds."""

from __future__ import annotations

import re
from typing import Final

_FIELDS: Final = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
"""The seconds in each field of an ISO 8601 duration. Months and years differ in length, so they are not allowed."""
_NUMBER: Final = r"[0-9]{1,12}"
_ISO: Final = re.compile(
    rf"P(?:(?P<weeks>{_NUMBER})W)?(?:(?P<days>{_NUMBER})D)?"
    rf"(?P<time>T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?(?:(?P<seconds>{_NUMBER}(?:\.[0-9]{{1,3}})?)S)?)?",
    re.IGNORECASE,
)


def seconds_of_iso(text: str) -> float:
    """Returns the length of an ISO 8601 duration in seconds. Raises ValueError if `text` is not one that is allowed."""
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(
            "is no ISO 8601 duration of weeks, days, hours, minutes and seconds, such as PT10S or P14D; "
            "a month is P30D or P31D"
        )
    fields = {name: found[name] for name in _FIELDS if found[name] is not None}
    if not fields or (found["time"] is not None and not fields.keys() & {"hours", "minutes", "seconds"}):
        raise ValueError("is an ISO 8601 duration without a number; write one like PT10S")
    seconds = float(sum(float(number) * _FIELDS[name] for name, number in fields.items()))
    return int(seconds) if seconds.is_integer() else seconds
