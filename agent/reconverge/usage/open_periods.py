"""Keeps track of the periods in which an account may still begin rows.

A node that has dropped a row never begins it again under the same account: a smaller count would lower the hub's.
"""

from __future__ import annotations

from typing import Final

from reconverge.hub.usage import KINDS, Period, Retention, counted_us
from reconverge.usage.periods import period_at

GONE_MAX: Final = 1000
"""How many closed periods of each kind are remembered one by one; all periods before the earliest of them are
closed, too."""


class OpenPeriods:
    """The periods that are still open.

    A period is closed when its rows were dropped; so are all before the earliest few.
    """

    def __init__(self) -> None:
        self._gone: dict[str, set[int]] = {kind: set() for kind in KINDS}
        self._floor: dict[str, int] = {}

    def close(self, period: Period) -> None:
        """Closes a period, because its rows were dropped."""
        kind, number = period
        gone = self._gone[kind]
        gone.add(number)
        if len(gone) > GONE_MAX:
            gone.remove(earliest := min(gone))
            self._floor[kind] = max(earliest + 1, self._floor.get(kind, earliest))

    def first_from(self, period: Period) -> Period:
        """Returns the period itself if it is open, or else the first open one after it."""
        kind, number = period
        number = max(number, self._floor.get(kind, number))
        while number in self._gone[kind]:
            number += 1
        return Period(kind, number)

    def nearest_at_hub(self, kind: str, hub_us: int, kept: Retention) -> Period | None:
        """Returns the open period nearest to the hub's present that the hub counts; None if there is none."""
        present = period_at(kind, hub_us / 1_000_000)
        ahead = self.first_from(present)
        if counted_us(ahead, kept)[0] <= hub_us:
            return ahead
        for number in range(present.number - 1, present.number - int(getattr(kept, kind)) - 1, -1):
            period = Period(kind, number)
            if self.first_from(period) == period:
                return period
        return None
