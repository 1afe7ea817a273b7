"""Quantities as they are written on the command line: `2ms`, `1.5s`, `1%`."""

from __future__ import annotations

import re
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting

ROUND_TRIP_MAX: Final = 0.8
"""In seconds. Messages take up to a fifth longer than half of it."""
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|)")
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_PERCENT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)%")


def seconds(name: str, text: str) -> float:
    """Read a duration. Raises InvalidSetting."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a duration like 2ms or 0.5s")
    return float(match["number"]) * _UNITS_S[match["unit"]]


def round_trip_ns(name: str, text: str) -> int:
    """Read the round trip to a hub. Raises InvalidSetting, also when no exchange could ever be over in time."""
    time_s = seconds(name, text)
    if time_s > ROUND_TRIP_MAX:
        raise InvalidSetting(name, text, f"must be at most {ROUND_TRIP_MAX:g}s: a node gives up an exchange after 1 s")
    return round(time_s * SECOND_NS)


def percent(name: str, text: str) -> float:
    """Read a percentage. Raises InvalidSetting."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a percentage like 1%")
    return float(match["number"])
