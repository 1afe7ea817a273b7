"""Counts the work of reading a text, so that tests can measure its growth with the length without a clock.

Counted are the lines of Python that run, in any package, and work in C as far as it can be seen: the length of each
text and list that is put into a variable, and of the arguments of methods of texts and of regular expressions.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

LENGTHY: Final = (str, bytes, bytearray, list, tuple)
SHORT: Final = frozenset({"startswith", "endswith", "append", "isascii", "encode_into", "get"})
"""Methods that do not look at all of their object."""
SEARCHING: Final = frozenset({"search", "sub", "subn", "split", "findall", "finditer", "scanner"})
"""Methods of expressions that look through a text; the work of the others is counted by `regex_steps`."""
SLACK: Final = 400
"""The work that differs from one call to the next, for example to fill caches."""
FASTER: Final = 2.6
"""The largest ratio of the growth from 2n to 4n to that from n to 2n: it is two if work is linear, four if square."""


def work_of(read: Callable[[], object]) -> int:
    """Returns the work of reading a text."""
    work = 0
    known: dict[FrameType, dict[str, object]] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal work
        work += 1
        if event == "return":
            known.pop(frame, None)
            return trace
        before = known.setdefault(frame, {})
        for name, value in frame.f_locals.items():
            if isinstance(value, LENGTHY) and before.get(name) is not value:
                before[name] = value
                work += len(value)
        return trace

    def profile(frame: FrameType, event: str, called: Any) -> None:
        nonlocal work
        if event != "c_call" or called.__name__ in SHORT:
            return
        owner = getattr(called, "__self__", None)
        if isinstance(owner, (str, bytes, bytearray)):
            work += len(owner)
        elif called is unicodedata.normalize:
            work += max((marks_in_a_row(each) ** 2 for each in frame.f_locals.values() if type(each) is str), default=0)
        elif isinstance(owner, re.Pattern) and called.__name__ in SEARCHING:
            work += max((len(each) for each in frame.f_locals.values() if isinstance(each, (str, bytes))), default=0)

    before = sys.gettrace(), sys.getprofile()
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        read()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return work


def marks_in_a_row(text: str) -> int:
    """Returns the number of combining characters in a row: normalization sorts them by insertion."""
    most = count = 0
    for character in text:
        count = count + 1 if unicodedata.combining(character) else 0
        most = max(most, count)
    return most


def grows_too_fast(work: Callable[[int], int], length: int) -> bool:
    """Returns whether the work for a length, twice and four times the length grows faster than that.

    If a reader does something else from a length between the first two on, half of the second shows the growth.
    """
    once, twice, four_times = (work(length * times) for times in (1, 2, 4))
    return four_times - twice > FASTER * max(twice - once, twice // 2) + SLACK
