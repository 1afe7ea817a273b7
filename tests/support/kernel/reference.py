"""The algorithms as they are usually explained: brute force over all charges, in exact fractions."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from math import ceil, floor
from typing import Protocol

from reconverge import Limit


class Reference(Protocol):
    """One key of one limit. Moments are wall nanoseconds."""

    capacity: int

    def used(self, at_ns: int) -> Fraction:
        """Returns the use at that moment, if nothing more is charged until then."""
        ...

    def charge(self, at_ns: int, cost: int) -> None:
        """Charges a cost."""
        ...

    def forget(self) -> None:
        """Resets the key."""
        ...


class FixedWindow:
    """Counts all charges since the window began."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.quota
        self._window_ns = limit.window_ns
        self._charges: list[tuple[int, int]] = []

    def used(self, at_ns: int) -> Fraction:
        return Fraction(self._charged_in(at_ns // self._window_ns))

    def charge(self, at_ns: int, cost: int) -> None:
        self._charges.append((at_ns, cost))

    def forget(self) -> None:
        self._charges.clear()

    def _charged_in(self, window: int) -> int:
        return sum(cost for at_ns, cost in self._charges if at_ns // self._window_ns == window)


class SlidingWindow(FixedWindow):
    """Counts all charges since the window began, and of the window before as much as is still covered."""

    def used(self, at_ns: int) -> Fraction:
        window, passed_ns = divmod(at_ns, self._window_ns)
        in_sight = 1 - Fraction(passed_ns, self._window_ns)
        return self._charged_in(window) + self._charged_in(window - 1) * in_sight


class SlidingSlices(FixedWindow):
    """Counts all charges in the slice of this moment, and in as many slices before it as make up a window with it."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        assert limit.slices is not None
        self._slices = limit.slices
        self._slice_ns = Fraction(limit.window_ns, limit.slices)

    def used(self, at_ns: int) -> Fraction:
        present = at_ns // self._slice_ns
        counted = range(present - self._slices + 1, present + 1)
        return Fraction(sum(cost for charged_ns, cost in self._charges if charged_ns // self._slice_ns in counted))


class SlicesInDebt:
    """Computes slices one by one: a cost settled beyond a full window counts as charged as soon as there is room.

    All moments are numbers of slices. A refund is taken from the slice in which the cost was charged.
    """

    def __init__(self, limit: Limit) -> None:
        assert limit.slices is not None
        self.capacity = limit.capacity
        self._slices = limit.slices
        self._slice_ns = Fraction(limit.window_ns, limit.slices)
        self._charged: dict[int, int] = {}
        self._owed = 0
        self._present: int | None = None

    def used(self, at_ns: int) -> int:
        """Returns the use at that moment, if nothing more is charged until then."""
        later = deepcopy(self)
        later.advance(at_ns)
        return later._window() + later._owed

    def charge(self, at_ns: int, cost: int) -> int:
        """Charges a cost that fits. Returns the number of its slice."""
        self.advance(at_ns)
        self._add(cost)
        return self._slice

    def settle(self, at_ns: int, difference: int, charged_in: int) -> None:
        """Corrects a charge in that slice by `difference`."""
        self.advance(at_ns)
        if difference > 0:
            fits = max(0, min(difference, self.capacity - self._window()))
            self._add(fits)
            self._owed += difference - fits
        elif charged_in > self._slice - self._slices:
            self._charged[charged_in] -= min(-difference, self._charged[charged_in])
            self._pay()

    def advance(self, at_ns: int) -> None:
        """Goes to a slice, slice by slice, and pays off the debt on the way."""
        until = int(at_ns // self._slice_ns)
        self._present = until if self._present is None else self._present
        while self._present < until:
            self._present += 1
            self._pay()

    @property
    def _slice(self) -> int:
        assert self._present is not None
        return self._present

    def _window(self) -> int:
        return sum(cost for number, cost in self._charged.items() if number > self._slice - self._slices)

    def _add(self, cost: int) -> None:
        self._charged[self._slice] = self._charged.get(self._slice, 0) + cost

    def _pay(self) -> None:
        paid = max(0, min(self._owed, self.capacity - self._window()))
        self._add(paid)
        self._owed -= paid


class SlidingLog(FixedWindow):
    """Counts all charges of less than a window ago."""

    def used(self, at_ns: int) -> Fraction:
        return Fraction(sum(cost for charged_ns, cost in self._charges if at_ns - charged_ns < self._window_ns))


class TokenBucket:
    """Tokens flow in up to the capacity, and each charge takes some out."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.capacity
        self._tokens_per_ns = Fraction(limit.quota, limit.window_ns)
        self._charges: list[tuple[int, int]] = []

    def used(self, at_ns: int) -> Fraction:
        """Returns the part that is missing from the bucket."""
        tokens, last_ns = Fraction(self.capacity), 0
        for charged_ns, cost in [*self._charges, (at_ns, 0)]:
            tokens = min(Fraction(self.capacity), tokens + (charged_ns - last_ns) * self._tokens_per_ns) - cost
            last_ns = charged_ns
        return self.capacity - tokens

    def charge(self, at_ns: int, cost: int) -> None:
        self._charges.append((at_ns, cost))

    def forget(self) -> None:
        self._charges.clear()


class VirtualScheduling:
    """GCRA in the words of ITU-T I.371: each unit of cost moves the theoretical arrival time on by one increment."""

    def __init__(self, limit: Limit) -> None:
        self.capacity = limit.capacity
        self._increment_ns = Fraction(limit.window_ns, limit.quota)
        self._arrival_ns = Fraction(0)

    def used(self, at_ns: int) -> Fraction:
        """Returns how far the theoretical arrival time is ahead, in increments."""
        return max(Fraction(0), self._arrival_ns - at_ns) / self._increment_ns

    def charge(self, at_ns: int, cost: int) -> None:
        self._arrival_ns = max(Fraction(at_ns), self._arrival_ns) + cost * self._increment_ns

    def forget(self) -> None:
        self._arrival_ns = Fraction(0)


def fits(reference: Reference, at_ns: int, cost: int) -> bool:
    """Whether `cost` can be admitted at that moment."""
    return reference.used(at_ns) + cost <= reference.capacity


def left(reference: Reference, at_ns: int) -> int:
    """The largest cost that can be admitted at that moment."""
    return max(0, floor(reference.capacity - reference.used(at_ns)))


def used_up(reference: Reference, at_ns: int) -> int:
    """Returns the use at that moment, as a whole number."""
    return ceil(reference.used(at_ns))
