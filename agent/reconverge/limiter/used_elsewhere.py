"""Charges a quota for what clients outside this fleet have used of it, until a moment at which that counts no more."""

# Theory of operation.
#
# The charge ends at its own moment, and not one window after it was made: a server that renews its quota at midnight
# has all of it then, and our window of a day must not hold yesterday's difference until tomorrow. So each charge is
# remembered, and given back when its key is asked about after that moment. A process that ends before leaves the
# charge to the window, which is too careful and no more.
#
# Only one quota of a limit is charged: a quota for a day does not pay for what was used of a quota for a minute.

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.kernel import settle

if TYPE_CHECKING:
    from reconverge.kernel import Charged
    from reconverge.limiter.control import LimitControl

EXTRAS_MAX: Final = 1000
"""The most charges that are given back; beyond that, the oldest stay until the window ends."""


class Extra(NamedTuple):
    """A charge for the use of others."""

    key: str
    charged: Charged
    amount: int
    made_ns: int
    until_ns: int


class UsedElsewhere:
    """The charges of one limit for what others have used."""

    def __init__(self, control: LimitControl) -> None:
        self._control = control
        self._now_ns = control.clock.monotonic_ns
        self._extras: deque[Extra] = deque(maxlen=EXTRAS_MAX)

    def lower(self, key: str, quota: str, remaining: int, for_s: float | None) -> None:
        """Lowers what is left of a quota for a key to `remaining`, for some seconds, or until its window ends."""
        _, charges = self._control.enforcement.answers.hit_and_mark(key, 0, None)
        for charged in charges:
            if charged.table.name != quota:
                continue
            amount = (charged.table.test(key, 0).remaining - remaining) // charged.unit
            if amount > 0:
                settle([charged], key, amount)
                if for_s is not None:
                    now_ns = self._now_ns()
                    self._extras.append(Extra(key, charged, amount, now_ns, now_ns + round(for_s * SECOND_NS)))

    def give_back(self, key: str) -> None:
        """Gives back the charges of a key that have come to their end."""
        now_ns = self._now_ns()
        for _ in range(len(self._extras)):
            try:
                extra = self._extras.popleft()
            except IndexError:  # another thread gives back as well
                return
            if extra.key == key and now_ns >= extra.until_ns:
                _give_back(extra, now_ns)
            else:
                self._extras.append(extra)


def _give_back(extra: Extra, now_ns: int) -> None:
    table, mark, unit = extra.charged
    if mark.cell is not table.cells.get(extra.key) or mark.reset_us != mark.cell.reset_us:
        return  # the key has been forgotten since, and the charge with it
    if table.dated is not None and now_ns - extra.made_ns >= table.window_ns:
        return
    # Without the mark, which is of the moment before the charge: a log would look for the charge there, and a bucket
    # would take it for drained.
    table.correct(extra.key, mark.epoch, -extra.amount * unit)
    table.tell(extra.key)
