"""Beginnings of windows and refills of buckets, as they are usually explained: brute force over all charges."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Protocol
from zoneinfo import ZoneInfo

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.limit import INTERVAL
from tests.support.kernel.reference import Reference

DAY_S = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PAGES: dict[int, Callable[[datetime], Hashable]] = {
    DAY_S: lambda local: local.date(),
    7 * DAY_S: lambda local: local.isocalendar()[:2],
    30 * DAY_S: lambda local: (local.year, local.month),
    360 * DAY_S: lambda local: local.year,
}
"""The page of a calendar that stands for a window, by the window's length."""


class PlacedReference(Reference, Protocol):
    """A reference that also knows at what moments something happens by itself."""

    def edge_ns(self, at_ns: int) -> int:
        """Returns the moment after `now_ns` at which the next window opens, or the present one ends."""
        ...

    def asked(self, at_ns: int) -> None:
        """Notes a request for the key, perhaps the first one."""
        ...


def page(limit: Limit, at_ns: int) -> Hashable:
    """Returns the page that the calendar on the wall shows at that moment."""
    local = (EPOCH + timedelta(seconds=at_ns // SECOND_NS)).astimezone(ZoneInfo(limit.timezone))
    return PAGES[round(limit.window)](local)


class Calendar:
    """Counts all charges since the calendar has had its present page."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.quota
        self._limit = limit
        self._charges: list[tuple[Hashable, int]] = []

    def used(self, at_ns: int) -> Fraction:
        now = page(self._limit, at_ns)
        return Fraction(sum(cost for then, cost in self._charges if then == now))

    def charge(self, at_ns: int, cost: int) -> None:
        self._charges.append((page(self._limit, at_ns), cost))

    def forget(self) -> None:
        self._charges.clear()

    def edge_ns(self, at_ns: int) -> int:
        """Finds the edge minute by minute, as no zone turns a page in between."""
        now = page(self._limit, at_ns)
        minute = at_ns // (60 * SECOND_NS) + 1
        for step in (DAY_S // 60, 60, 1):
            while page(self._limit, (minute + step - 1) * 60 * SECOND_NS) == now:
                minute += step
        return minute * 60 * SECOND_NS

    def asked(self, at_ns: int) -> None:
        """Does nothing."""


class FirstHit:
    """A window begins with the first charge, and the next one with the first charge after its end."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.quota
        self._window_ns = limit.window_ns
        self._windows: list[tuple[int, list[int]]] = []

    def used(self, at_ns: int) -> Fraction:
        return Fraction(sum(self._windows[-1][1]) if self._open(at_ns) else 0)

    def charge(self, at_ns: int, cost: int) -> None:
        """Charges a cost; 0 is no charge."""
        if cost > 0 and not self._open(at_ns):
            self._windows.append((at_ns, []))
        if cost > 0:
            self._windows[-1][1].append(cost)

    def forget(self) -> None:
        self._windows.clear()

    def edge_ns(self, at_ns: int) -> int:
        return self._windows[-1][0] + self._window_ns if self._open(at_ns) else at_ns + self._window_ns

    def asked(self, at_ns: int) -> None:
        """Does nothing."""

    def _open(self, at_ns: int) -> bool:
        return bool(self._windows) and at_ns < self._windows[-1][0] + self._window_ns


class Tokens:
    """A bucket that begins with some tokens, and gets more steadily, or a window's worth at each edge."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.capacity
        self._limit = limit
        self._initial = Fraction(limit.capacity if limit.initial is None else limit.initial)
        self._born_ns: int | None = None
        self._charges: list[tuple[int, int]] = []

    def used(self, at_ns: int) -> Fraction:
        """Returns the part that is missing from the bucket."""
        if self._born_ns is None:
            return self.capacity - self._initial
        tokens, last_ns = self._initial, self._born_ns
        for charged_ns, cost in [*self._charges, (at_ns, 0)]:
            tokens = min(Fraction(self.capacity), tokens + self._refilled(last_ns, charged_ns)) - cost
            last_ns = charged_ns
        return self.capacity - tokens

    def charge(self, at_ns: int, cost: int) -> None:
        self._charges.append((at_ns, cost))

    def forget(self) -> None:
        self._charges.clear()
        self._initial = Fraction(self.capacity)

    def edge_ns(self, at_ns: int) -> int:
        return (at_ns // self._limit.window_ns + 1) * self._limit.window_ns

    def asked(self, at_ns: int) -> None:
        """Creates the bucket, if it is not there."""
        self._born_ns = at_ns if self._born_ns is None else self._born_ns

    def _refilled(self, since_ns: int, until_ns: int) -> Fraction:
        window_ns, quota = self._limit.window_ns, self._limit.quota
        if self._limit.refill == INTERVAL:
            return Fraction(quota * (until_ns // window_ns - since_ns // window_ns))
        return Fraction(quota * (until_ns - since_ns), window_ns)
