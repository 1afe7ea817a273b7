"""What one node has charged to one key, and when: for algorithms in which every charge expires as a whole."""

from __future__ import annotations

from bisect import bisect_left

UNDATED = -(1 << 62)
"""Earlier than any date."""


class History:
    """Amounts by date, the oldest first.

    A date is a whole number that rises with time; what it is the number of is not known here. Amounts of the same date
    are one entry; an amount that was given back whole is none.

    An exception out of a signal handler may interrupt a change in the middle. `changing` stays set then, and the next
    change has total and entries agree again first (`mend`).
    """

    __slots__ = (
        "_amounts",
        "_dates",
        "_first",
        "changing",
        "confirmed",
        "date",
        "others_until_ns",
        "pending",
        "reported",
        "shift",
        "total",
    )

    def __init__(self) -> None:
        self.date = UNDATED
        """The present one."""
        self.shift = 0
        """What to add to these dates to have the hub's, if the hub has any."""
        self.total = 0
        self.changing = False
        """Whether a change has begun and not ended."""
        self.pending = 0
        """What is to be added with that change, and is not in the total yet."""
        self._dates: list[int] = []
        self._amounts: list[int] = []
        self._first = 0
        """Where the entries begin that count."""
        self.reported = 0
        """How much of the total the last report told of; what expires or is given back is the oldest of it."""
        self.confirmed = 0
        """The same of the last report that was answered."""
        self.others_until_ns = 0
        """When what was heard of the others does not count any more."""

    def __len__(self) -> int:
        return len(self._dates) - self._first

    @property
    def oldest(self) -> int | None:
        """The date of what expires first."""
        return self._dates[self._first] if self._first < len(self._dates) else None

    @property
    def newest(self) -> int | None:
        """The date of what expires last."""
        return self._dates[-1] if self._first < len(self._dates) else None

    def mend(self) -> int:
        """Have all agree with the entries, after a change that was interrupted; returns what is in use.

        Dates come and go before their amounts do, so the lengths tell what was missed.
        """
        missed = len(self._amounts) - len(self._dates)
        if missed < 0:
            del self._dates[missed:]
        elif missed > 0 and self._first < missed and 0 in self._amounts:
            self._amounts.remove(0)
        elif missed > 0:
            del self._amounts[:missed]
            self._first = 0
        self._first = min(self._first, len(self._dates))
        self.total = sum(self._amounts[self._first :])
        self.reported, self.confirmed = min(self.reported, self.total), min(self.confirmed, self.total)
        self.changing = False
        return self.total + self.pending

    def add(self, amount: int, entries_max: int) -> None:
        """Charge something now; beyond `entries_max` the two oldest become one, which expires with the younger."""
        if self.newest == self.date:
            self._amounts[-1] += amount
            self.total += amount
            self.pending = 0
            return
        self._dates.append(self.date)
        self._amounts.append(amount)
        self.total += amount
        self.pending = 0
        if len(self) > entries_max:
            self._amounts[self._first + 1] += self._amounts[self._first]
            self._drop(1)

    def forget_before(self, date: int) -> None:
        """Let go of everything with an earlier date."""
        first = bisect_left(self._dates, date, self._first)
        self._shrink(sum(self._amounts[self._first : first]))
        self._drop(first - self._first)

    def trim(self, enough: int) -> None:
        """Let go of the oldest entries as long as more than `enough` remains without them."""
        while self.total > enough and self.total - self._amounts[self._first] > enough:
            self._shrink(self._amounts[self._first])
            self._drop(1)

    def take_oldest(self, amount: int) -> int:
        """Take so much out, or all there is, the oldest first; returns how much that was."""
        taken = min(amount, self.total)
        left = taken
        while left > 0:
            here = min(left, self._amounts[self._first])
            self._amounts[self._first] -= here
            left -= here
            if not self._amounts[self._first]:
                self._drop(1)
        self._shrink(taken)
        return taken

    def take_from(self, date: int, amount: int) -> None:
        """Take out of what was charged at that date so much, or as much as is left of it.

        An entry that has become one with a younger one is found there.
        """
        place = bisect_left(self._dates, date, self._first)
        if place < len(self._dates):
            taken = min(amount, self._amounts[place])
            self._amounts[place] -= taken
            self._shrink(taken)
            if not self._amounts[place]:
                del self._dates[place], self._amounts[place]

    def date_freeing(self, amount: int) -> int | None:
        """With the expiry of which date at least `amount` will have expired; None if there is less than that."""
        freed = 0
        for place in range(self._first, len(self._dates)):
            freed += self._amounts[place]
            if freed >= amount:
                return self._dates[place]
        return None

    def clear(self) -> None:
        """Forget all that was charged."""
        self._dates.clear()
        self._amounts.clear()
        self._first = self.total = self.reported = self.confirmed = 0

    def _shrink(self, amount: int) -> None:
        self.total -= amount
        self.reported = max(0, self.reported - amount)
        self.confirmed = max(0, self.confirmed - amount)

    def _drop(self, count: int) -> None:
        """Leave so many entries behind; the lists are cut when half of them is, so that this is cheap on average."""
        self._first += count
        if self._first >= len(self):
            del self._dates[: self._first], self._amounts[: self._first]
            self._first = 0
