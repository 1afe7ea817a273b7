"""How low a bucket has been: what was poured in before that has drained, and cannot be given back any more."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reconverge.kernel.cell import Cell

LOWS_MAX = 32
"""Beyond so many the two oldest become one, at the price of giving back a little less."""


class Mark(NamedTuple):
    """Where and when something was charged."""

    cell: Cell
    epoch: int
    reset_us: int
    look: int
    """How often the bucket's level had been looked at by then; of what has dates, its date."""


class Lows:
    """The lowest level of one bucket since any earlier look at it, as far as that still matters.

    Had a charge been smaller by some amount, the bucket would be lower by as much today, but for the times at which it
    would have been dry already: so today's difference is the amount, or the lowest level since if that is less.
    """

    __slots__ = ("_lows", "looks")

    def __init__(self) -> None:
        self.looks = 0
        self._lows: list[tuple[int, int]] = []
        """Looks and levels, both rising: a level matters until a lower one is seen."""

    def note(self, level: int) -> None:
        """The bucket has come down to `level`."""
        self.looks += 1
        while self._lows and self._lows[-1][1] >= level:
            self._lows.pop()
        self._lows.append((self.looks, level))
        if len(self._lows) > LOWS_MAX:
            self._lows[:2] = [(self._lows[1][0], self._lows[0][1])]

    def since(self, look: int) -> int:
        """The lowest level that was noted after that look; there must be one."""
        return self._lows[bisect_right(self._lows, look, key=itemgetter(0))][1]

    def lower(self, amount: int) -> None:
        """So much was given back: the bucket need never have been as high as it was."""
        self._lows = [(look, max(0, level - amount)) for look, level in self._lows]
