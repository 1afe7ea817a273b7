"""In which periods an account can still begin rows.

A row that is gone is never begun again under the same account: a smaller count would take away what the hub has of it.
"""

from __future__ import annotations

from typing import Final

from reconverge.hub.usage import KINDS, Period, Retention, counted_us
from reconverge.usage.periods import period_at

GONE_MAX: Final = 1000
"""So many periods of each kind are known to be gone one by one; none is begun any more before the earliest of them."""


class OpenPeriods:
    """All but those that are gone, and those before the earliest ones of them."""

    def __init__(self) -> None:
        self._gone: dict[str, set[int]] = {kind: set() for kind in KINDS}
        self._floor: dict[str, int] = {}

    def close(self, period: Period) -> None:
        """The rows of that period are gone."""
        kind, number = period
        gone = self._gone[kind]
        gone.add(number)
        if len(gone) > GONE_MAX:
            gone.remove(earliest := min(gone))
            self._floor[kind] = max(earliest + 1, self._floor.get(kind, earliest))

    def first_from(self, period: Period) -> Period:
        """That period, or the first after it that is open."""
        kind, number = period
        number = max(number, self._floor.get(kind, number))
        while number in self._gone[kind]:
            number += 1
        return Period(kind, number)

    def nearest_at_hub(self, kind: str, hub_us: int, kept: Retention) -> Period | None:
        """The open period that is nearest to the hub's present, of those that the hub counts; None if there is none."""
        present = period_at(kind, hub_us / 1_000_000)
        ahead = self.first_from(present)
        if counted_us(ahead, kept)[0] <= hub_us:
            return ahead
        for number in range(present.number - 1, present.number - int(getattr(kept, kind)) - 1, -1):
            period = Period(kind, number)
            if self.first_from(period) == period:
                return period
        return None
