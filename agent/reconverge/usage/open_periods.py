"""Records the periods (hours, days ...) for which a node has dropped its usage counts, so that it begins no new ones.

A row is a node's total for one customer, limit and route in one period; the node reports it under an account, its name
at the hub. A node that has dropped a row must not begin the row again under the same account: the new total would be
smaller, and lower the count at the hub.
"""

from __future__ import annotations

from typing import Final

from reconverge.hub.usage import KINDS, Period, Retention, counted_us
from reconverge.usage.periods import period_at

GONE_MAX: Final = 1000
"""The number of closed periods of each kind that are stored; all periods before the earliest of them are closed,
too."""


class OpenPeriods:
    """The periods in which a node may still begin rows of usage; every period that was not closed is open.

    The node closes a period when it has dropped the rows of that period. Only the latest GONE_MAX closed periods of
    each kind (hour, day ...) are stored; all periods before the earliest of them count as closed, too.
    """

    def __init__(self) -> None:
        self._gone: dict[str, set[int]] = {kind: set() for kind in KINDS}
        self._floor: dict[str, int] = {}

    def close(self, period: Period) -> None:
        """Closes a period, because the node has dropped all its rows."""
        kind, number = period
        gone = self._gone[kind]
        gone.add(number)
        if len(gone) > GONE_MAX:
            gone.remove(earliest := min(gone))
            self._floor[kind] = max(earliest + 1, self._floor.get(kind, earliest))

    def first_from(self, period: Period) -> Period:
        """Returns `period` if it is open, or else the first open period after it."""
        kind, number = period
        number = max(number, self._floor.get(kind, number))
        while number in self._gone[kind]:
            number += 1
        return Period(kind, number)

    def nearest_at_hub(self, kind: str, hub_us: int, kept: Retention) -> Period | None:
        """Returns the open period of a kind that is nearest to the hub's time, and in which the hub still counts usage.

        Returns None if there is no such period. `hub_us` is the hub's time in microseconds; `kept` is how many periods
        the hub keeps.
        """
        present = period_at(kind, hub_us / 1_000_000)
        ahead = self.first_from(present)
        if counted_us(ahead, kept)[0] <= hub_us:
            return ahead
        for number in range(present.number - 1, present.number - int(getattr(kept, kind)) - 1, -1):
            period = Period(kind, number)
            if self.first_from(period) == period:
                return period
        return None
