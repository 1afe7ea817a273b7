"""Reads the limits of a server from the header fields of one of its responses.

Sources: RFC 9110 (Retry-After, Date, Age), draft-ietf-httpapi-ratelimit-headers-11, -07 and -06, and the documentation
of the services in `reconverge.integrations.servers`.
"""

# Theory of operation.
#
# A server's statement about its limits is about one quota, one operation and one moment, and a response rarely names
# all three in one field. So three parts are read separately, and no part is inferred from another:
#
#     pause     the time for which calls must stop, only after a refusal. With any other status, `Retry-After` means
#               something else: when to poll (202), when to follow a redirect, or when a window ends that still has room
#               (some limiters send it with every response). A refusal is the status 429, or a status that has other
#               meanings as well (403, 503) together with a time or a quota with nothing left.
#     numbers   the remaining part of a quota, with everything that identifies the quota. `server_numbers.py` decides
#               whether that quota is the limiter's own.
#     moment    times of day are compared with the response's Date, because both come from one clock, and the seconds
#               in `Age` are subtracted. Numbers in a cached response are old, so they are left out.
#
# Forms of a time. Servers write durations (30, 20.493, 6m0s, 12ms), moments (HTTP dates, RFC 3339) and seconds or
# milliseconds since 1970, in fields of the same name. The size of a number shows its meaning: the smallest time since
# 1970 that can occur would be thirty years as a duration. A negative number is neither a time nor a count.

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from reconverge.errors import MissingExtra
from reconverge.integrations.servers import ANY_SERVER, NumberFields, RefusalMark, Server
from reconverge.limiter.pauses import LONGEST_S

try:
    from http_sfv.dictionary import Dictionary
    from http_sfv.list import List
except ImportError as error:
    raise MissingExtra("reading rate limits from the header fields of servers", "http-sfv", "httpx,requests") from error

FIELD_LENGTH_MAX: Final = 1024
"""The most characters of a field; a longer field is ignored. Servers send a few policies of about forty characters
each. The parser of structured fields copies the rest of the text at each part, so its work grows with the square of the
length: half a megabyte at this length."""
EPOCH_MIN: Final = 1e9
"""A number from this on is a time since 1970; a smaller one is a duration in seconds."""
EPOCH_MAX: Final = 1e11
"""A time since 1970 from this on is not in seconds but in milliseconds, or an even smaller unit."""
UNITS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|us|µs|ns|d|h|m|s)", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_MILLISECONDS: Final = ("retry-after-ms", "x-ms-retry-after-ms")

Reach = Literal["quota", "operation", "all"]
"""The calls that a server's refusal stops: those that use the same quota ("quota"), those of the same method and path
("operation"), or all calls ("all")."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that a response states about one quota of the server; None for a number that it does not state."""

    remaining: int
    name: str = ""
    quota: int | None = None
    window: float | None = None
    reset: float | None = None
    """The seconds until the quota is renewed."""
    gradual: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """The contents of one response about the server's limits: numbers, and the time to pause."""

    pause: float | None = None
    """The seconds for which calls are to stop; None if the response is no refusal."""
    reach: Reach = "quota"
    numbers: tuple[Numbers, ...] = ()


def heard(
    status: int, fields: Mapping[str, str], *, now: float, server: Server = ANY_SERVER, resource: str | None = None
) -> Heard:
    """Returns the contents of a response about the server's limits.

    `fields` finds names in any case; `now` is in seconds since 1970. `resource` is the server's name of the quota that
    the call used, if that is known. A malformed field counts as missing, because the client cannot correct the server.
    """
    now = _moment(_field(fields, "Date")) or now
    age = _duration(_field(fields, "Age")) or 0.0
    numbers = [*_policies(fields), *(said for each in server.numbers if (said := _plain(fields, each, now)))]
    after = _retry_after(fields, now)
    empty = [said for said in numbers if said.remaining == 0]
    if not (status in server.refuses or (status in server.may_refuse and (empty or after is not None))):
        return Heard(numbers=() if age > 0 else tuple(numbers))
    ours = [said for said in empty if resource is None or is_named(said, resource)]
    if after is None:
        after = max((said.reset for said in ours or empty if said.reset is not None), default=server.pause_s)
    reach = _reach(fields, server)
    if reach == "quota" and empty and not ours:
        reach = "operation"  # a quota other than the limiter's refuses, so only this operation pauses
    return Heard(min(max(0.0, after - age), float(LONGEST_S)), reach, () if age > 0 else tuple(numbers))


def is_named(said: Numbers, name: str) -> bool:
    """Returns whether `said`, the server's numbers, are about the quota that the server calls `name`, in any case."""
    return said.name.casefold() == name.casefold()


def _reach(fields: Mapping[str, str], server: Server) -> Reach:
    if any(_has(fields, mark) for mark in server.stops_all):
        return "all"
    return "operation" if any(_has(fields, mark) for mark in server.stops_operation) else "quota"


def _has(fields: Mapping[str, str], mark: RefusalMark) -> bool:
    text = _field(fields, mark.field).casefold()
    return text != "" and text.startswith(mark.begins)


def _field(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name, "")
    return value.strip() if len(value) <= FIELD_LENGTH_MAX else ""


def _retry_after(fields: Mapping[str, str], now: float) -> float | None:
    """Returns the seconds to wait, from a field in milliseconds if there is one, or else from Retry-After.

    Returns None without both fields.
    """
    for name in _MILLISECONDS:
        milliseconds = _field(fields, name)
        if _NUMBER.fullmatch(milliseconds):
            return float(milliseconds) / 1000
    text = _field(fields, "Retry-After")
    wait = _wait(text, now)
    if wait is None and "," in text:  # the field is there twice
        return max((each for part in text.split(",") if (each := _wait(part.strip(), now)) is not None), default=None)
    return wait


def _wait(text: str, now: float) -> float | None:
    """Returns the seconds until the time in `text`: a duration, a date or seconds since 1970; None for other texts."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number < EPOCH_MIN:
            return number
        while number >= EPOCH_MAX:
            number /= 1000
        return max(0.0, number - now)
    duration = _duration(text)
    if duration is not None:
        return duration
    moment = _moment(text)
    return None if moment is None else max(0.0, moment - now)


def _duration(text: str) -> float | None:
    """Returns a duration in seconds, from a text such as 30, 6m0s or 12ms; None for any other text."""
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def _moment(text: str) -> float | None:
    """Returns the seconds since 1970 of an HTTP date or an RFC 3339 time; None for any other text."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text) if text[0].isdigit() and "-" in text[:5] else parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # for years or zones that do not exist
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except OverflowError:
        return None


def _policies(fields: Mapping[str, str]) -> list[Numbers]:
    """Returns the numbers in `RateLimit`, each with the quota and window of the same name in `RateLimit-Policy`."""
    text = _field(fields, "RateLimit")
    if not text:
        return []
    policies = dict(_listed(_field(fields, "RateLimit-Policy")))
    found: list[Numbers] = []
    for name, params in _listed(text) or [_named(text)]:
        left = _count(params.get("r"))
        policy = policies.get(name, {})
        if left is not None:
            quota, window, reset = _count(policy.get("q")), _count(policy.get("w")), _count(params.get("t"))
            found.append(Numbers(left, name, quota, window, reset))
    return found


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _listed(text: str) -> list[tuple[str, Mapping[str, object]]]:
    """Returns the items of a field such as `"burst";r=57;t=22, "daily";r=3` (draft 11), each with its parameters."""
    items = List()
    try:
        items.parse(text.encode("ascii"))
    except ValueError:
        return []
    named = [(getattr(item, "value", None), getattr(item, "params", {})) for item in items]
    return [(name, params) for name, params in named if isinstance(name, str)]


def _named(text: str) -> tuple[str, Mapping[str, object]]:
    """Returns the field `limit=100, remaining=57, reset=22` (drafts 7 and 8) as an item of draft 11 without a name."""
    members = Dictionary()
    try:
        members.parse(text.encode("ascii"))
    except ValueError:
        return "", {}
    return "", {
        short: getattr(members.get(name), "value", None) for short, name in (("r", "remaining"), ("t", "reset"))
    }


def _plain(fields: Mapping[str, str], names: NumberFields, now: float) -> Numbers | None:
    """Returns the numbers in the fields that `names` lists, one in each; None if the remaining quota is missing."""
    left = _field(fields, names.remaining)
    if not _NUMBER.fullmatch(left):
        return None
    limit = _field(fields, names.limit).partition(",")[0]  # draft 6 has policies behind the comma
    return Numbers(
        remaining=int(float(left)),
        name=names.name or _field(fields, names.name_field),
        quota=int(limit) if _NUMBER.fullmatch(limit) and limit.isdigit() else None,
        reset=_wait(_field(fields, names.reset), now),
        gradual=names.gradual,
    )
