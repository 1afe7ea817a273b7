"""Numbers that only rise, counted from everywhere at once and read at any time, without a lock.

A signal handler or a finalizer may count in the middle of its own thread's counting: it would wait for a plain lock for
ever, and two statements such as `total += 1` would lose what came in between. Here one step of a C iterator counts, and
nothing else of the interpreter's runs in the middle of that.
"""

from __future__ import annotations

import sys
from itertools import repeat
from operator import length_hint
from typing import Final

MOST: Final = sys.maxsize


class Total:
    """One number."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = repeat(None, MOST)

    def add(self, count: int = 1) -> None:
        """Count up. An exception in the middle of several leaves those counted that were before it."""
        for _ in range(count):
            next(self._left)

    @property
    def value(self) -> int:
        """The number as it is now."""
        return MOST - length_hint(self._left)
