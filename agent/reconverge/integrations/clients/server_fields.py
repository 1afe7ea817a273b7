"""Reads what a server says about its own limits from the fields of its responses.

Sources: RFC 9110 (Retry-After), draft-ietf-httpapi-ratelimit-headers-11, -07 and -06, and the older X-RateLimit fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from reconverge.errors import MissingExtra

try:
    from http_sfv.dictionary import Dictionary
    from http_sfv.list import List
except ImportError as error:
    raise MissingExtra("what servers say about their limits", "http-sfv", "httpx,requests") from error

HELD_MAX: Final = 86_400.0
"""Seconds; a server's wish to be left alone for longer than a day is cut to a day."""
FIELD_LENGTH_MAX: Final = 1024
"""Characters; a longer field is not read. Servers say a few policies, each in about forty. The reader of structured
fields copies the rest of a field with each part of it, which is the square of its length: half a megabyte of this.
"""
EPOCH_MIN: Final = 1e9
"""A reset that is larger than this is a moment, in seconds since 1970, and not how long it takes."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The limits that one response states; None if its fields cannot be understood."""

    hold: float | None = None
    """Seconds for which the server does not want to be asked again."""
    remaining: int | None = None
    """The rest of the server's quota; of several, the least."""


def heard(status: int, fields: Mapping[str, str], *, now: float) -> Heard:
    """Read a response; `fields` finds its names in any case, `now` is in seconds since 1970.

    A malformed field counts as missing: the other side is not ours to mend.
    """
    refused = status in (429, 503)
    after = _retry_after(_field(fields, "Retry-After"), _moment(_field(fields, "Date")) or now)
    policies = _policies(_field(fields, "RateLimit")) or _plain(fields, now)
    remaining, reset = min(policies, key=lambda policy: (policy[0], -(policy[1] or 0)), default=(None, None))
    hold = after
    if hold is None and refused and remaining == 0:
        hold = reset
    return Heard(hold=None if hold is None else min(hold, HELD_MAX), remaining=remaining)


def _field(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name, "")
    return value.strip() if len(value) <= FIELD_LENGTH_MAX else ""


def _retry_after(text: str, now: float) -> float | None:
    """Seconds, or a date, which is compared with the date of the same response: that is the same clock."""
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), HELD_MAX)
    moment = _moment(text)
    return None if moment is None else max(0.0, moment - now)


def _moment(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # of a year or a zone that no date can have
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except OverflowError:
        return None


def _policies(text: str) -> list[tuple[int, float | None]]:
    """Returns what is left, and the seconds until it is renewed, of each policy in a `RateLimit` field."""
    found: list[tuple[int, float | None]] = []
    if not text:
        return found
    for said in _listed(text) or [_named(text)]:
        left, reset = said
        if type(left) is int and left >= 0:
            found.append((left, float(reset) if type(reset) is int and reset >= 0 else None))
    return found


def _listed(text: str) -> list[tuple[object, object]]:
    """`"burst";r=57;t=22, "daily";r=3` (draft 11)."""
    items = List()
    try:
        items.parse(text.encode("ascii"))
    except ValueError:
        return []
    members = [getattr(item, "params", {}) for item in items]
    return [(params.get("r"), params.get("t")) for params in members]


def _named(text: str) -> tuple[object, object]:
    """`limit=100, remaining=57, reset=22` (drafts 7 and 8)."""
    members = Dictionary()
    try:
        members.parse(text.encode("ascii"))
    except ValueError:
        return None, None
    return getattr(members.get("remaining"), "value", None), getattr(members.get("reset"), "value", None)


def _plain(fields: Mapping[str, str], now: float) -> list[tuple[int, float | None]]:
    """The same of draft 6 and of the X- fields, one number in each."""
    for prefix in ("RateLimit-", "X-RateLimit-"):
        left = _number(_field(fields, f"{prefix}Remaining"))
        if left is None:
            continue
        reset = _number(_field(fields, f"{prefix}Reset"))
        if reset is not None and reset > EPOCH_MIN:
            reset -= now
        return [(max(0, math.floor(left)), None if reset is None else max(0.0, reset))]
    return []


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
