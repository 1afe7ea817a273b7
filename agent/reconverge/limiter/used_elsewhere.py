"""Charges a quota for use by clients outside this fleet, of which a called server has informed this node."""

# Theory of operation.
#
# Such a charge must end at a given moment, and not one window after it was made: if a server renews its quota at
# midnight, all of it is free then, and our window of a day must not keep yesterday's charge until tomorrow. So each
# charge is remembered, and given back with the first request for its key after that moment. If the process ends before,
# the charge lasts until its window is over, which refuses too much but never admits too much.
#
# Only one quota of a limit is charged: use of a quota for a minute is not charged to a quota for a day.

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.kernel import settle

if TYPE_CHECKING:
    from reconverge.kernel import Charged
    from reconverge.limiter.control import LimitControl

EXTRAS_MAX: Final = 1000
"""The largest number of charges to give back. If there are more, the oldest stay until the window ends."""


class Extra(NamedTuple):
    """One charge for requests of clients outside this fleet."""

    key: str
    charged: Charged
    amount: int
    made_ns: int
    until_ns: int


class UsedElsewhere:
    """The charges of one limit for requests of clients outside this fleet, such as other users of an API."""

    def __init__(self, control: LimitControl) -> None:
        self._control = control
        self._now_ns = control.clock.monotonic_ns
        self._extras: deque[Extra] = deque(maxlen=EXTRAS_MAX)

    def lower(self, key: str, quota: str, remaining: int, for_s: float | None) -> None:
        """Charges `key` as much as is needed so that no more than `remaining` is left of `quota`.

        The charge is given back after `for_s` seconds; if that is None, it counts until the quota's window ends.
        """
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
        """Gives back those charges of `key` whose time, `for_s` of `lower`, is over."""
        now_ns = self._now_ns()
        for _ in range(len(self._extras)):
            try:
                extra = self._extras.popleft()
            except IndexError:  # another thread has given back the last one
                return
            if extra.key == key and now_ns >= extra.until_ns:
                _give_back(extra, now_ns)
            else:
                self._extras.append(extra)


def _give_back(extra: Extra, now_ns: int) -> None:
    table, mark, unit = extra.charged
    if mark.cell is not table.cells.get(extra.key) or mark.reset_us != mark.cell.reset_us:
        return  # the node has forgotten the key since, with its charge
    if table.dated is not None and now_ns - extra.made_ns >= table.window_ns:
        return
    # Without a mark, because the one there is was made before the charge: a log would not find the charge by it, and a
    # bucket would take the charge for drained.
    table.correct(extra.key, mark.epoch, -extra.amount * unit)
    table.tell(extra.key)
