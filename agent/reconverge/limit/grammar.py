"""The parser of limit strings: `100/minute`, `5 per 10 seconds`, `10/s burst 20 as api`, several joined by `,` `;` `|`.

The grammar is a superset of the one of the `limits` package, with its units: m is a minute, mo a month of 30 days, a
year has 360 days. A window may be an ISO 8601 duration: `20/PT10M`, `1000 per P31D`. A month of 31 days is `P31D` or
`31 days`; `P1M` is an error, because months differ in length.

Work in progress is limited by `20 in flight` or `20 concurrent`; `lease 10s` sets for how long the slots of a node stay
taken after it has fallen silent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
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
"""Matches a word that is meant as an ISO 8601 duration, valid or not; no unit begins with a P."""
_TOKEN: Final = re.compile(r"(?P<number>[0-9]+(?:[._'][0-9]+)*)|(?P<word>[A-Za-z][A-Za-z0-9_.-]*)|(?P<mark>[/,;|])")
"""Matches a word of a limit string. A number may contain `.` and `'`, which no quota has, so that the error can show
the whole number as it should be written."""
_THOUSANDS: Final = re.compile(r"(?:,[0-9]{3})+")
"""Matches the part `,000` of a number that is written like 10,000."""
_DECIMAL_COMMA: Final = re.compile(r",([0-9]{1,2})(\s*(?:/|per))", re.IGNORECASE)
"""Matches the part `,5/` of a limit string such as `1,5/second`, whose number has a decimal comma."""
_BOUNDLESS: Final = frozenset({"unlimited", "none", "inf", "infinite", "infinity", "off"})
"""Words that people write in place of a quota if they want no limit."""
_MULTIPLES: Final = {"k": 1000, "m": 10**6, "g": 10**9, "b": 10**9}
"""Letters that people write for thousands, millions and thousands of millions."""
_SIGNS: Final = {
    "-": "a quota is 0 or more, as in 100/minute",
    "=": "leave it out, as in 10/s burst 20",
    ":": "write '/' or 'per', as in 100/minute",
    "\\": "write '/', as in 100/minute",
    "(": "a limit string is no call, write it like 100/minute",
}
"""Characters that no limit string has, each with the advice for an error message."""
_SIGNLESS: Final = "write digits and words with / , ; or | between them, as in 100/minute"
_PER: Final = re.compile(r"\s*(?:/|per(?![a-z]))\s*(?P<unit>[a-z]*)", re.IGNORECASE)
_EXPONENT: Final = re.compile(r"[eE][0-9]{1,2}")
_DECIMAL: Final = re.compile(r"[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota as it was written in a limit string; `position` is its offset in the string."""

    amount: int
    window_s: float
    burst: int | None
    name: str | None
    position: int
    warmup_s: float | None = None
    slots: bool = False
    """Whether the quota limits work in progress; `window_s` is 0 then."""
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
    scheme, found, _ = text.partition("://")
    if found:  # not shown whole, as it may have a password
        problem = "is a URL, not a limit; pass the hub as agent=, or to Agent, and here a limit like '100/minute'"
        raise InvalidLimit(f"{scheme}://...", problem)
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidLimit(text[:40] + "...", f"has {len(text)} characters, more than {TEXT_LENGTH_MAX}; shorten it")
    reader = _TextReader(text)
    quotas = [reader.quota()]
    while reader.take_mark(",;|"):
        if reader.ended():
            break
        quotas.append(reader.quota())
    reader.expect_end()
    return tuple(quotas)


class _TextReader:
    """A parser of one limit string, which reads its words one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(0)
        self._next = 0

    def quota(self) -> Quota:
        """Reads the next quota: amount ('/' | 'per') window ['burst' number] ['warmup' duration] ['as' name].

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
            raise self._after_amount(amount, first.position)
        window_s = self._window_s()
        burst = self._number("the size of the burst") if self._take_word("burst") else None
        warmup_s = self._duration_s("the length of the warmup") if self._take_word("warmup") else None
        name = self._name() if self._take_word("as") else None
        return Quota(amount, window_s, burst, name, first.position, warmup_s)

    def take_mark(self, marks: str) -> bool:
        """Steps over the next word and returns True if it is one of the characters `marks`; otherwise returns False."""
        token = self._peek()
        found = token.kind == "mark" and token.text in marks
        self._next += found
        return found

    def ended(self) -> bool:
        return self._peek().kind == "end"

    def expect_end(self) -> None:
        if self.ended():
            return
        error = self._expected("'burst', 'warmup', 'as', a separator (, ; |) or the end")
        if self._take_word("and"):
            raise InvalidLimit(self._text, f"{error.problem}; write ',' in its place", error.position)
        if self.take_mark("/") or self._take_per():
            problem = (
                f"{error.problem}; each key has a count of its own, so leave this out, and pass the key to allow()"
            )
            raise InvalidLimit(self._text, f"{problem} or return it from key_func", error.position)
        raise error

    def _split(self, position: int) -> list[_LimitToken]:
        tokens: list[_LimitToken] = []
        while position < len(self._text):
            if self._text[position].isspace():
                position += 1
                continue
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                sign = self._text[position]
                raise InvalidLimit(self._text, f"unexpected {sign!r}; {_SIGNS.get(sign, _SIGNLESS)}", position)
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
        """Steps over "in flight" or "concurrent" and returns True if it comes next; otherwise returns False."""
        if self._take_word("concurrent"):
            return True
        if not self._take_word("in"):
            return False
        if not self._take_word("flight"):
            raise self._expected("'flight', as in '20 in flight'")
        return True

    def _take_per(self) -> bool:
        """Steps over "per" and returns True if it comes next; otherwise returns False.

        A number may follow without a blank, as in "5 per10 seconds", because the package `limits` reads that.
        """
        token = self._peek()
        if token.kind != "word" or token.text[: len("per")].lower() != "per":
            return False
        self._tokens[self._next :] = self._split(token.position + len("per"))
        return True

    def _number(self, what: str) -> int:
        token = self._peek()
        if token.kind != "number":
            error = self._expected(what)
            if token.text.lower() in _BOUNDLESS:
                problem = f"{error.problem}; for no limit, leave the limit out, or return None from a function"
                raise InvalidLimit(self._text, problem, error.position)
            raise error
        if not token.text.isdigit():
            problem = _whole(token.text, self._text[token.position + len(token.text) :])
            raise InvalidLimit(self._text, problem, token.position)
        if len(token.text) > DIGITS_MAX:
            problem = f"a number of {len(token.text)} digits is too large; {DIGITS_MAX} is the most"
            raise InvalidLimit(self._text, problem, token.position)
        self._next += 1
        return int(token.text)

    def _after_amount(self, amount: int, position: int) -> InvalidLimit:
        """Returns the error for an amount without a window; it shows how to write an amount such as 10k in digits."""
        error = self._expected("'/', 'per' or 'in flight'")
        token = self._peek()
        rest = self._text[token.position + len(token.text) :]
        thousands = _THOUSANDS.match(self._text, token.position)
        multiple = _multiple(token.text) if token.kind == "word" else None
        decimal = _DECIMAL_COMMA.match(self._text, token.position)
        if decimal is not None:
            return InvalidLimit(self._text, _whole(f"{amount}.{decimal[1]}", self._text[decimal.start(2) :]), position)
        if thousands is not None and not self._text[thousands.end() :][:1].isdigit():
            advice = f"write the number without a comma, as {amount}{thousands[0].replace(',', '')}"
        elif token.kind == "number":
            advice = f"write the number without a blank, as {self._text[position : token.position].strip()}{token.text}"
        elif multiple is not None and _PER.match(rest):
            advice = f"write the number in digits, as {amount * multiple}"
        elif token.kind == "word" and _PER.match(rest):
            advice = f"leave {token.text!r} out, as in {amount}{rest}"
        else:
            advice = f"write for example {amount}/minute, or {amount} in flight for what runs at once"
        return InvalidLimit(self._text, f"{error.problem}; {advice}", error.position)

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
        """Steps over the next word if it is an ISO 8601 duration, and returns its seconds; otherwise returns None."""
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
        if unit.text == "M":
            advice = "may be a minute or a month; write m or minute, or mo or month"
            raise InvalidLimit(self._text, f"the unit 'M' {advice}", unit.position)
        if unit.text.lower() not in UNITS_S:
            advice = f"use ms, s, m, h, d, w, mo, y or their names{asked(unit.text, UNITS_S)}"
            after = _PER.match(self._text, unit.position + len(unit.text))
            if after is not None and after["unit"].lower() in UNITS_S:
                advice = f"each key has a count of its own, so leave {unit.text!r} out, and return it from key_func"
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


def _multiple(word: str) -> int | None:
    """Returns the factor that `word` means directly after a number, such as 1000 for `k`; None for other words."""
    if word.lower() in _MULTIPLES:
        return _MULTIPLES[word.lower()]
    return 10 ** int(word[1:]) if _EXPONENT.fullmatch(word) else None


def _whole(text: str, rest: str) -> str:
    """Returns an error message about `text`, a number with other characters than digits.

    `rest` is the limit string after `text`.
    """
    digits = re.sub(r"[^0-9]", "", text)
    if _DECIMAL.fullmatch(text) is None:
        return f"{text!r} is not written in digits alone; write {digits}"
    value = Fraction(text)
    if value.denominator == 1:
        return f"{text!r} is not written in digits alone; write {value} or {digits}"
    window = _PER.match(rest)
    if window is None:
        return f"{text!r} is no whole number; write a smaller unit, as in 1500 ms for 1.5 seconds"
    unit = window["unit"] or "seconds"
    return f"{text!r} is no whole number; write {value.numerator}/{value.denominator} {unit}, which is the same rate"
