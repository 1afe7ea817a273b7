"""The parser of limit strings: `100/minute`, `5 per 10 seconds`, `10/s burst 20 as api`, several joined by `,` `;` `|`.

The grammar is a superset of the one of the `limits` package, with its units: m is a minute, mo a month of 30 days, a
year has 360 days. A window may be an ISO 8601 duration: `20/PT10M`, `1000 per P31D`. A month of 31 days is `P31D` or
`31 days`; `P1M` is an error, because months differ in length.

Work in progress is limited by `20 in flight` or `20 concurrent`, with `lease 10s` for slots that stay taken longer
after their node has fallen silent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconverge.errors import InvalidLimit, asked, shown
from reconverge.limit.durations import seconds_of_iso

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400

UNITS_S: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), _MINUTE_S),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), _HOUR_S),
    **dict.fromkeys(("d", "day", "days"), _DAY_S),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY_S),
    **dict.fromkeys(("mo", "month", "months"), 30 * _DAY_S),
    **dict.fromkeys(("y", "year", "years"), 360 * _DAY_S),
}
"""The seconds in each unit, by every spelling of the unit."""

TEXT_LENGTH_MAX: Final = 1000
DIGITS_MAX: Final = 18

_ISO: Final = re.compile(r"[Pp](?:[0-9]|[Tt]).*|[Pp]")
"""A text that is meant as an ISO 8601 duration; no unit begins with a P."""
_TOKEN: Final = re.compile(r"(?P<number>[0-9]+)|(?P<word>[A-Za-z][A-Za-z0-9_.-]*)|(?P<mark>[/,;|])")


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota of a limit string, as it was written, and its position in the text."""

    amount: int
    window_s: float
    burst: int | None
    name: str | None
    position: int
    warmup_s: float | None = None
    slots: bool = False
    """Whether the quota limits work in progress; the window is 0 then."""
    lease_s: float | None = None


@dataclass(frozen=True, slots=True)
class _LimitToken:
    kind: str
    text: str
    position: int


def parse_quotas(text: str) -> tuple[Quota, ...]:
    """Returns all quotas of a limit string, at least one.

    Raises:
        InvalidLimit: the text cannot be read; the message names the place, and what was expected there.
    """
    if not isinstance(text, str):
        raise InvalidLimit(shown(text), f"a limit is a string like '100/minute', not {type(text).__name__}")
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidLimit(text[:40] + "...", f"{len(text)} characters are more than {TEXT_LENGTH_MAX}")
    reader = _TextReader(text)
    quotas = [reader.quota()]
    while reader.take_mark(",;|"):
        if reader.ended():
            break
        quotas.append(reader.quota())
    reader.expect_end()
    return tuple(quotas)


def admits_nothing(limits: object) -> bool:
    """Whether a limit string, or one in a list of quotas, has a quota of 0. Raises InvalidLimit."""
    if isinstance(limits, str):
        return any(quota.amount == 0 for quota in parse_quotas(limits))
    return isinstance(limits, Sequence) and any(admits_nothing(each) for each in limits if isinstance(each, str))


class _TextReader:
    """Reads the words of one limit string, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(0)
        self._next = 0

    def quota(self) -> Quota:
        """Reads: amount ('/' | 'per') window ['burst' number] ['warmup' duration] ['as' name].

        Or: amount ('in' 'flight' | 'concurrent') ['lease' duration] ['as' name]. A window and a duration are each an
        ISO 8601 duration, or a number and a unit; a window may leave the number out.
        """
        first = self._peek()
        amount = self._number("a number of requests, like 100 in 100/minute")
        if self._take_slots():
            lease_s = self._duration_s("the length of the lease") if self._take_word("lease") else None
            name = self._name() if self._take_word("as") else None
            return Quota(amount, 0.0, None, name, first.position, slots=True, lease_s=lease_s)
        if not (self.take_mark("/") or self._take_per()):
            raise self._expected("'/', 'per' or 'in flight'")
        window_s = self._window_s()
        burst = self._number("the size of the burst") if self._take_word("burst") else None
        warmup_s = self._duration_s("the length of the warmup") if self._take_word("warmup") else None
        name = self._name() if self._take_word("as") else None
        return Quota(amount, window_s, burst, name, first.position, warmup_s)

    def take_mark(self, marks: str) -> bool:
        """Steps over the next word if it is one of `marks`. Returns whether it was."""
        token = self._peek()
        found = token.kind == "mark" and token.text in marks
        self._next += found
        return found

    def ended(self) -> bool:
        """Whether all words have been read."""
        return self._peek().kind == "end"

    def expect_end(self) -> None:
        """Raises InvalidLimit unless all words have been read."""
        if not self.ended():
            raise self._expected("'burst', 'warmup', 'as', a separator (, ; |) or the end")

    def _split(self, position: int) -> list[_LimitToken]:
        tokens: list[_LimitToken] = []
        while position < len(self._text):
            if self._text[position].isspace():
                position += 1
                continue
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                raise InvalidLimit(self._text, f"unexpected {self._text[position]!r}", position)
            tokens.append(_LimitToken(match.lastgroup, match.group(), position))
            position = match.end()
        tokens.append(_LimitToken("end", "the end", position))
        return tokens

    def _peek(self) -> _LimitToken:
        return self._tokens[self._next]

    def _take_word(self, word: str) -> bool:
        token = self._peek()
        found = token.kind == "word" and token.text.lower() == word
        self._next += found
        return found

    def _take_slots(self) -> bool:
        """Steps over "in flight" or "concurrent" if that is next. Returns whether it was."""
        if self._take_word("concurrent"):
            return True
        if not self._take_word("in"):
            return False
        if not self._take_word("flight"):
            raise self._expected("'flight', as in '20 in flight'")
        return True

    def _take_per(self) -> bool:
        """Steps over "per", which may touch the word after it: `limits` reads "5 per10 seconds", too.

        Returns whether it was there.
        """
        token = self._peek()
        if token.kind != "word" or token.text[: len("per")].lower() != "per":
            return False
        self._tokens[self._next :] = self._split(token.position + len("per"))
        return True

    def _number(self, what: str) -> int:
        token = self._peek()
        if token.kind != "number":
            raise self._expected(what)
        if len(token.text) > DIGITS_MAX:
            raise InvalidLimit(self._text, f"a number of {len(token.text)} digits is too large", token.position)
        self._next += 1
        return int(token.text)

    def _window_s(self) -> float:
        window = self._peek()
        seconds = self._iso_s()
        if seconds is None:
            multiple = self._number("a number") if window.kind == "number" else 1
            seconds = multiple * (self._unit_s() if multiple else 1)
        if seconds == 0:
            raise InvalidLimit(self._text, "a window cannot be of length 0", window.position)
        return seconds

    def _duration_s(self, what: str) -> float:
        seconds = self._iso_s()
        return self._number(what) * self._unit_s() if seconds is None else seconds

    def _iso_s(self) -> float | None:
        """Reads an ISO 8601 duration if one is next. Returns its seconds, or None if the next word is no duration."""
        token = self._peek()
        if token.kind != "word" or _ISO.fullmatch(token.text) is None:
            return None
        self._next += 1
        try:
            return seconds_of_iso(token.text)
        except ValueError as error:
            raise InvalidLimit(self._text, f"{token.text!r} {error}", token.position) from None

    def _unit_s(self) -> float:
        unit = self._peek()
        if unit.kind != "word":
            raise self._expected("a unit, like second, minute, hour or day")
        if unit.text.lower() not in UNITS_S:
            advice = f"use ms, s, m, h, d, w, mo, y or their names{asked(unit.text, UNITS_S)}"
            raise InvalidLimit(self._text, f"unknown unit {unit.text!r}; {advice}", unit.position)
        self._next += 1
        return UNITS_S[unit.text.lower()]

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "word":
            raise self._expected("a name")
        self._next += 1
        return token.text

    def _expected(self, what: str) -> InvalidLimit:
        token = self._peek()
        found = "the text ends" if token.kind == "end" else f"found {token.text!r}"
        return InvalidLimit(self._text, f"expected {what}, but {found}", token.position)
