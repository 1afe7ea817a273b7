"""Reads a server's own limits from the header fields of its responses.

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
    raise MissingExtra("reading rate limits from the header fields of servers", "http-sfv", "httpx,requests") from error

HELD_MAX: Final = 86_400.0
"""Seconds: the longest hold. If a server asks for more than a day, a day is used."""
FIELD_LENGTH_MAX: Final = 1024
"""Characters; a longer field is ignored. Servers send a few policies of about forty characters each. The parser of
structured fields copies the rest of the text at each part, so its work grows with the square of the length: half a
megabyte at this length."""
EPOCH_MIN: Final = 1e9
"""A larger reset is a time in seconds since 1970; a smaller one is a duration in seconds."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The limits that one response reports. A value is None if the response has no valid field for it."""

    hold: float | None = None
    """The seconds for which the server asks for no further requests."""
    remaining: int | None = None
    """The rest of the server's quota; the least, if it has several."""


def heard(status: int, fields: Mapping[str, str], *, now: float) -> Heard:
    """Returns the limits in a response; `fields` finds names in any case, `now` is in seconds since 1970.

    A malformed field counts as missing, because the client cannot correct the server.
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
    """Returns the seconds to wait by a Retry-After field.

    A date in this field is compared with `now`, the date of the response, because both are of the server's clock.
    """
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), HELD_MAX)
    moment = _moment(text)
    return None if moment is None else max(0.0, moment - now)


def _moment(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # for years or zones that do not exist
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except OverflowError:
        return None


def _policies(text: str) -> list[tuple[int, float | None]]:
    """Returns, for each policy in a `RateLimit` field, the remaining quota and the seconds until it is renewed."""
    found: list[tuple[int, float | None]] = []
    if not text:
        return found
    for said in _listed(text) or [_named(text)]:
        left, reset = said
        if type(left) is int and left >= 0:
            found.append((left, float(reset) if type(reset) is int and reset >= 0 else None))
    return found


def _listed(text: str) -> list[tuple[object, object]]:
    """Reads the form of draft 11, `"burst";r=57;t=22, "daily";r=3`. Returns each policy's remaining quota and reset."""
    items = List()
    try:
        items.parse(text.encode("ascii"))
    except ValueError:
        return []
    members = [getattr(item, "params", {}) for item in items]
    return [(params.get("r"), params.get("t")) for params in members]


def _named(text: str) -> tuple[object, object]:
    """Reads the form of drafts 7 and 8, `limit=100, remaining=57, reset=22`. Returns the remaining quota and reset."""
    members = Dictionary()
    try:
        members.parse(text.encode("ascii"))
    except ValueError:
        return None, None
    return getattr(members.get("remaining"), "value", None), getattr(members.get("reset"), "value", None)


def _plain(fields: Mapping[str, str], now: float) -> list[tuple[int, float | None]]:
    """Reads the fields of draft 6 and X-RateLimit; returns at most one remaining quota, with its seconds to renewal."""
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
