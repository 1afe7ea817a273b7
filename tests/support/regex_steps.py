"""Counts the steps that a regular expression takes on a text, as a backtracking matcher takes them.

Python's matcher does not report how often it has gone back. This one walks the same parsed expression in the same
order, and counts. It has none of the shortcuts of Python's, so it may count more, and never another power of the
length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import product
from typing import Any, Final, TypeAlias

parser: Final[Any] = import_module("re._parser")
compiler: Final[Any] = import_module("re._compiler")

STEPS_MAX: Final = 40_000
"""More steps than any expression takes in time proportional to the texts that are tried here."""
FOREIGN: Final = "\n/!"
"""The end of a text that matches but for this end."""
SAMPLES_MAX: Final = 6
PREFIXES_MAX: Final = 7
PUMPS_MAX: Final = 12

Go: TypeAlias = Callable[[int], bool]
"""Goes on from a place in the text; false if that leads to no match."""
Text: TypeAlias = str | bytes

_REPEATS: Final = (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT)
_OF_ONE: Final = (parser.LITERAL, parser.NOT_LITERAL, parser.ANY, parser.IN)


class TooManySteps(Exception):
    """Raised if a matcher has taken more steps than it may."""


class Matcher:
    """Matches one expression, and counts."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._flags = pattern.flags
        self.tree: Any = parser.parse(pattern.pattern, pattern.flags)
        self._fits: dict[tuple[int, Text], bool] = {}
        self._text: Text = ""
        self.steps = 0

    def fullmatches(self, text: Text) -> bool:
        self._text, end = text, len(text)
        return self._go(list(self.tree), 0, 0, lambda at: at == end)

    def matches(self, text: Text) -> bool:
        """Returns whether the text begins with a match."""
        self._text = text
        return self._go(list(self.tree), 0, 0, lambda _at: True)

    def found(self, text: Text) -> int:
        """Returns the number of matches in a text, one after the other."""
        self._text, at, count = text, 0, 0
        ends: list[int] = []

        def end(place: int) -> bool:
            ends.append(place)
            return True

        while at <= len(text):
            if self._go(list(self.tree), 0, at, end):
                count += 1
                at = max(ends[-1], at + 1)
            else:
                at += 1
        return count

    def _go(self, nodes: list[Any], number: int, at: int, go: Go) -> bool:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise TooManySteps
        if number == len(nodes):
            return go(at)
        node = nodes[number]
        kind, said = node
        rest: Go = lambda place: self._go(nodes, number + 1, place, go)  # noqa: E731  # it is one of several
        if kind in _OF_ONE:
            return self._is_one(node, at) and rest(at + 1)
        if kind in _REPEATS:
            return self._repeat(kind, said, at, rest)
        if kind is parser.SUBPATTERN:
            return self._go(list(said[3]), 0, at, rest)
        if kind is parser.BRANCH:
            return any(self._go(list(branch), 0, at, rest) for branch in said[1])
        if kind is parser.ATOMIC_GROUP:
            end = self._end_of(list(said), at)
            return end is not None and rest(end)
        if kind is parser.AT:
            return self._is_there(said, at) and rest(at)
        raise NotImplementedError(f"{kind} in an expression")

    def _end_of(self, nodes: list[Any], at: int) -> int | None:
        ends: list[int] = []

        def end(place: int) -> bool:
            ends.append(place)
            return True

        return ends[0] if self._go(nodes, 0, at, end) else None

    def _repeat(self, kind: Any, said: Any, at: int, rest: Go) -> bool:
        least, most, body = said[0], said[1], list(said[2])
        if len(body) == 1 and body[0][0] in _OF_ONE:
            return self._repeat_one(kind, least, most, body[0], at, rest)
        if kind is parser.POSSESSIVE_REPEAT:
            count = 0
            while count < most and (end := self._end_of(body, at)) is not None and end > at:
                at, count = end, count + 1
            return count >= least and rest(at)

        def again(place: int, count: int) -> bool:
            def once_more(end: int) -> bool:
                return (end > place or count < least) and again(end, count + 1)

            if count < least:
                return self._go(body, 0, place, once_more)
            if kind is parser.MIN_REPEAT:
                return rest(place) or (count < most and self._go(body, 0, place, once_more))
            return (count < most and self._go(body, 0, place, once_more)) or rest(place)

        return again(at, 0)

    def _repeat_one(self, kind: Any, least: int, most: int, node: Any, at: int, rest: Go) -> bool:
        if kind is parser.MIN_REPEAT:
            count = 0
            while True:
                if count >= least and rest(at + count):
                    return True
                if count >= most or not self._is_one(node, at + count):
                    return False
                count += 1
        count = 0
        while count < most and self._is_one(node, at + count):
            count += 1
        if kind is parser.POSSESSIVE_REPEAT:
            return count >= least and rest(at + count)
        return any(rest(at + each) for each in range(count, least - 1, -1))

    def _is_one(self, node: Any, at: int) -> bool:
        self.steps += 1
        if at >= len(self._text):
            return False
        character = self._text[at : at + 1]
        key = id(node), character
        if key not in self._fits:
            alone = parser.SubPattern(self.tree.state, [node])
            self._fits[key] = compiler.compile(alone, self._flags).fullmatch(character) is not None
        return self._fits[key]

    def _is_there(self, where: Any, at: int) -> bool:
        if where in (parser.AT_BEGINNING, parser.AT_BEGINNING_STRING):
            return at == 0
        if where in (parser.AT_END, parser.AT_END_STRING):
            return at >= len(self._text) - (self._text[-1:] in ("\n", b"\n") and where is parser.AT_END)
        if where is parser.AT_BOUNDARY:
            words = [bool(re.match(r"\w", str(self._text[place : place + 1]))) for place in (at - 1, at) if place >= 0]
            return words[0] != words[-1] if len(words) == 2 else words[0]
        raise NotImplementedError(f"{where} in an expression")


def samples(nodes: Iterable[Any]) -> list[str]:
    """Yields a few texts that match, with each part as short as possible, or once, or twice."""
    texts = [""]
    for kind, said in nodes:
        texts = [before + after for before, after in product(texts, _samples_of(kind, said))][: SAMPLES_MAX * 4]
    return list(dict.fromkeys(texts))[:SAMPLES_MAX]


def _samples_of(kind: Any, said: Any) -> list[str]:
    if kind in _OF_ONE:
        return _characters(kind, said)
    if kind in _REPEATS:
        body = samples(said[2])
        least = min(said[0], 8)
        return list(dict.fromkeys([each * count for count in (max(least, 1), least) for each in body]))
    if kind is parser.SUBPATTERN:
        return samples(said[3])
    if kind is parser.BRANCH:
        return [each for branch in said[1] for each in samples(branch)[:3]]
    if kind is parser.ATOMIC_GROUP:
        return samples(said)
    return [""]


def _characters(kind: Any, said: Any) -> list[str]:
    """One or two characters for a part that stands for one."""
    if kind is parser.LITERAL:
        return [chr(said)]
    if kind is parser.IN and said[0][0] is not parser.NEGATE:
        of: dict[Any, Callable[[Any], str]] = {parser.LITERAL: chr, parser.RANGE: lambda ends: chr(ends[0])}
        return [of[each](ends) if each in of else "1" for each, ends in said][:2]
    outside = {chr(said)} if kind is parser.NOT_LITERAL else set[str]()
    if kind is parser.IN:
        outside = {chr(ends) for each, ends in said if each is parser.LITERAL}
    return [next(each for each in "a1 -" if each not in outside)]


def hostile_texts(matcher: Matcher, length: int) -> Iterator[str]:
    """Yields texts of about a length: the beginning of a matching one, a part of it again and again, and an end."""
    matching = samples(matcher.tree)
    prefixes = list(dict.fromkeys(text[:end] for text in matching for end in range(min(len(text), 6) + 1)))
    parts = dict.fromkeys(text[start : start + size] for size in (1, 2, 3) for text in matching for start in range(8))
    pumps = list(dict.fromkeys([*(part for part in parts if part), *matching, " ", "a"]))
    for prefix, pump, suffix in product(prefixes[:PREFIXES_MAX], filter(None, pumps[:PUMPS_MAX]), ("", FOREIGN)):
        yield f"{prefix}{pump * (length // len(pump))}{suffix}"
