"""Quantities as they are written on the command line: `2ms`, `1.5s`, `1%`."""

from __future__ import annotations

import re
from typing import Final

from reconverge.errors import InvalidSetting

_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|)")
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_PERCENT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)%")


def seconds(name: str, text: str) -> float:
    """Read a duration. Raises InvalidSetting."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a duration like 2ms or 0.5s")
    return float(match["number"]) * _UNITS_S[match["unit"]]


def percent(name: str, text: str) -> float:
    """Read a percentage. Raises InvalidSetting."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a percentage like 1%")
    return float(match["number"])
