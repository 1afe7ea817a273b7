"""The memory of earlier charges to a key, so that a charge can expire or be given back.

`History` is for algorithms in which every charge expires as a whole: it stores amounts by date. `Lows` is for buckets:
it stores the lowest level of the bucket since a charge. A refund can give back at most that much of the charge, because
the rest has drained.
"""

# Theory of operation.
#
# The problem. In a sliding log, or a window of slices, a charge counts for one window and then expires as a whole. One
# running count does not show how much of it expires next, nor when. A list of all charges would, but it grows with the
# requests, and every decision would have to search it for the oldest ones.
#
# What is kept. One entry for each date at which something was charged, the oldest first. A date is the number of a
# slice, or the moment of a charge in a log; `algorithms/dates.py` knows which. The sum of all entries is kept beside
# them, so a decision looks at the front of the list alone:
#
#     date        41     42     44     45, the present one
#     amount       7      1      2      5                       total 15
#                 expires next
#
# Entries whose date expires are removed at the front (`forget_before`), and charges are added at the back (`add`). If
# there are too many entries, the two oldest are merged into one with the later of their dates: the older charge then
# counts for longer than it has to, never for less.
#
# Debt. A settlement may charge more than a window holds. If the excess were an entry like any other it would expire
# with the rest, and a key that was settled for ten times its quota would be even after one window. So the excess is
# *owed*: it is part of the total and of no entry. An entry that expires is entered again for the window after, out of
# what is owed, until nothing is: as if the excess had been charged as soon as there was room for it. Of a key with a
# quota of 10 that was settled for 35:
#
#     window      1      2      3      4      5
#     entries    10     10     10      5      0
#     owed       25     15      5      0      0
#
# So a debt is paid off by a full window's worth in each window, and in the long run a key is admitted no more than its
# quota. While anything is owed, the entries repeat themselves from window to window. So the moment at which some part
# of the use has expired is found by a division, and it takes no longer to pay off a debt of 10^12 a year later than the
# next day (`_pay_off`).
#
# What is no debt. Nodes may together admit more than the capacity before they have heard of each other. What each of
# them admitted fits into its own window, so it is an entry and expires as any other use does. Only a settlement is
# owed. If a settlement gives cost back, it takes entries out, and debt takes their place at once: what counts is never
# less than if the true costs had been known from the start.
#
# At the hub a debt counts for two windows, the longest time for which a hub lets any use count, and the node reports it
# again before they end. Other nodes get it as a part of the total, and refuse.

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final

LOWS_MAX: Final = 32
"""The most levels that `Lows` stores. If there are more, it merges the two oldest, and a refund may give back a little
less."""
UNDATED = -(1 << 62)
"""A number that is lower than any date, for a history without a present date."""


class History:
    """The amounts that were charged, by date, the oldest first.

    A date is a whole number that rises with time; this class does not know its unit. Amounts of the same date share one
    entry; an entry whose amount was given back entirely is removed.

    An exception out of a signal handler may interrupt a change. Then `changing` stays set, and the next change first
    makes the total and the entries agree again (`mend`).
    """

    __slots__ = (
        "_amounts",
        "_dates",
        "_first",
        "changing",
        "confirmed",
        "date",
        "others_from_ns",
        "others_until_ns",
        "owed",
        "pending",
        "reported",
        "shift",
        "total",
    )

    def __init__(self) -> None:
        self.date = UNDATED
        """The present date: a new charge is entered under it."""
        self.shift = 0
        """The number to add to a date of this history to get the hub's date; 0 if the hub has no dates of its own."""
        self.total = 0
        """The use: the sum of the entries and the debt."""
        self.owed = 0
        """The debt: use that did not fit into a window. While it is not 0, the entries fill a window."""
        self.changing = False
        """Whether a change of this history has begun and not ended."""
        self.pending = 0
        """The amount that the change in progress will add; `total` does not contain it yet."""
        self._dates: list[int] = []
        self._amounts: list[int] = []
        self._first = 0
        """The index of the first entry that still counts."""
        self.reported = 0
        """The part of `total` that the last report contained, less the amounts that have expired or were given back
        since."""
        self.confirmed = 0
        """The part of `total` that the last report with an answer contained, less the amounts that have expired or were
        given back since."""
        self.others_from_ns = 0
        """The monotonic moment before which none of the use reported by other nodes expires."""
        self.others_until_ns = 0
        """The monotonic moment from which none of the use reported by other nodes counts."""

    def __len__(self) -> int:
        return len(self._dates) - self._first

    @property
    def oldest(self) -> int | None:
        """Returns the date of the entry that expires first; None if there is no entry."""
        return self._dates[self._first] if self._first < len(self._dates) else None

    @property
    def newest(self) -> int | None:
        """Returns the date of the entry that expires last; None if there is no entry."""
        return self._dates[-1] if self._first < len(self._dates) else None

    def mend(self) -> int:
        """Makes all fields agree with the entries after a change that was interrupted; returns the use.

        A change adds or removes a date before its amount, so the lengths of the two lists show which step is missing.
        """
        missed = len(self._amounts) - len(self._dates)
        if missed < 0:
            del self._dates[missed:]
        elif missed > 0 and 0 in self._amounts[self._first :]:  # an entry whose amount is 0 was about to be removed
            del self._amounts[self._amounts.index(0, self._first)]
        elif missed > 0:
            del self._amounts[:missed]
            self._first = 0
        self._first = min(self._first, len(self._dates))
        self.total = sum(self._amounts[self._first :]) + self.owed
        self.reported, self.confirmed = min(self.reported, self.total), min(self.confirmed, self.total)
        self.changing = False
        return self.total + self.pending

    def add(self, amount: int, entries_max: int) -> None:
        """Charges `amount` at the present date.

        If there are then more than `entries_max` entries, merges the two oldest into one at the later date.
        """
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

    def defer(self, amount: int) -> None:
        """Moves `amount` of the latest charge from its entry to the debt."""
        self.owed += amount
        self._amounts[-1] -= amount
        if not self._amounts[-1]:
            del self._dates[-1], self._amounts[-1]

    def charge_owed(self, most: int, entries_max: int) -> None:
        """Moves debt into the entry of the present date, until all entries sum to `most` or no debt is left."""
        amount = min(self.owed, most - (self.total - self.owed))
        if amount > 0:
            self.pending = amount
            self.owed -= amount
            self.total -= amount
            self.add(amount, entries_max)

    def forget_before(self, date: int, lasts: int) -> None:
        """Removes all entries before `date`. In place of each, enters as much of the debt at its date plus `lasts`."""
        if self.owed:
            self._pay_off(date, lasts)
        first = bisect_left(self._dates, date, self._first)
        self._shrink(sum(self._amounts[self._first : first]))
        self._drop(first - self._first)

    def _pay_off(self, date: int, lasts: int) -> None:
        """For each entry before `date`, enters as much of the debt at its date plus `lasts`, and removes the entry.

        All windows that the debt fills completely are skipped in one step. If an exception interrupts this function,
        the history counts too much as used, never too little.
        """
        a_window = self.total - self.owed
        if a_window <= 0:
            return
        windows = min(self.owed // a_window, (date - 1 - self._dates[-1]) // lasts + 1)
        if windows > 0:
            self._dates[self._first :] = [each + windows * lasts for each in self._dates[self._first :]]
            self.owed -= windows * a_window
            self._shrink(windows * a_window)
        while self.owed and self._dates[self._first] < date:
            expired = self._amounts[self._first]
            again = min(self.owed, expired)
            self._dates.append(self._dates[self._first] + lasts)
            self._amounts.append(again)
            self.owed -= again
            self._drop(1)
            self._shrink(expired)

    def trim(self, enough: int) -> None:
        """Removes the oldest entries as long as the remaining ones sum to more than `enough`."""
        while self.total > enough and self.total - self._amounts[self._first] > enough:
            self._shrink(self._amounts[self._first])
            self._drop(1)

    def take_oldest(self, amount: int) -> int:
        """Removes `amount` of use, or all use if there is less: first the oldest entries, at last the debt.

        Returns the removed amount.
        """
        taken = min(amount, self.total)
        left = min(taken, self.total - self.owed)
        self.owed -= taken - left
        while left > 0:
            here = min(left, self._amounts[self._first])
            self._amounts[self._first] -= here
            left -= here
            if not self._amounts[self._first]:
                self._drop(1)
        self._shrink(taken)
        return taken

    def take_newest(self, amount: int) -> None:
        """Removes `amount` from the newest entries, or all entries if they sum to less."""
        while amount > 0 and self._first < len(self._dates):
            taken = min(amount, self._amounts[-1])
            self._amounts[-1] -= taken
            self._shrink(taken)
            amount -= taken
            if not self._amounts[-1]:
                del self._dates[-1], self._amounts[-1]

    def take_from(self, date: int, amount: int) -> None:
        """Removes `amount` from the entry at `date`, or the whole entry if it is less.

        If that entry was merged into a younger one, removes the amount from the younger entry.
        """
        place = bisect_left(self._dates, date, self._first)
        if place < len(self._dates):
            taken = min(amount, self._amounts[place])
            self._amounts[place] -= taken
            self._shrink(taken)
            if not self._amounts[place]:
                del self._dates[place], self._amounts[place]

    def date_freeing(self, amount: int, lasts: int, pending: int = 0) -> int | None:
        """Returns the first date after whose expiry at least `amount` of the use has expired; None if the use is less.

        Debt takes the place of each expired entry, at its date plus `lasts`. `pending` is use at the present date that
        has no entry yet.
        """
        if amount > self.total + pending:
            return None
        later = 0
        a_window = self.total - self.owed + pending
        if self.owed and a_window > 0:
            windows = (amount - 1) // a_window
            amount -= windows * a_window
            later = windows * lasts
        freed = 0
        for place in range(self._first, len(self._dates)):
            freed += self._amounts[place]
            if freed >= amount:
                return self._dates[place] + later
        return self.date + later

    def clear(self) -> None:
        """Forgets all charges."""
        self._dates.clear()
        self._amounts.clear()
        self._first = self.total = self.owed = self.reported = self.confirmed = 0

    def _shrink(self, amount: int) -> None:
        self.total -= amount
        self.reported = max(0, self.reported - amount)
        self.confirmed = max(0, self.confirmed - amount)

    def _drop(self, count: int) -> None:
        """Marks the `count` oldest entries as expired, and deletes expired entries once they are half of the lists."""
        self._first += count
        if self._first >= len(self):
            del self._dates[: self._first], self._amounts[: self._first]
            self._first = 0


class Lows:
    """The lowest levels of a bucket since earlier moments, called looks, which are numbered.

    From them follows by how much the bucket's level would be lower now if an earlier charge had been smaller by some
    amount: by that amount, or by the lowest level since the charge if that is less, as no level is below zero.
    """

    __slots__ = ("_at_hub", "_lows", "looks")

    def __init__(self) -> None:
        self.looks = 0
        self._lows: list[tuple[int, int]] = []
        """Pairs of a look's number and the level then, both rising: a level is removed when a lower or equal level is
        added."""
        self._at_hub: list[tuple[int, int]] = []
        """Pairs as in `_lows`, of a moment and the part of the hub's bucket that this node's charges then filled."""

    def note(self, level: int) -> None:
        """Stores that the bucket's level is `level` now, as a new look."""
        self.looks += 1
        _note(self._lows, self.looks, level)

    def note_at_hub(self, moment_ns: int, level: int) -> None:
        """Stores that this node's charges fill at least `level` of the hub's bucket at `moment_ns`."""
        _note(self._at_hub, moment_ns, level)

    def since(self, look: int) -> int:
        """Returns the lowest level stored after the look number `look`; there must have been a later look."""
        return self._lows[bisect_right(self._lows, look, key=itemgetter(0))][1]

    def since_at_hub(self, moment_ns: int, level: int) -> int:
        """Returns the lowest level at the hub stored after `moment_ns`; `level`, the present one, if there is none."""
        place = bisect_right(self._at_hub, moment_ns, key=itemgetter(0))
        return self._at_hub[place][1] if place < len(self._at_hub) else level

    def lower(self, amount: int) -> None:
        """Lowers all stored levels by `amount`, which was given back, but none below zero."""
        self._lows = [(look, max(0, level - amount)) for look, level in self._lows]

    def lower_at_hub(self, amount: int) -> None:
        """Lowers all stored levels at the hub by `amount`, which was given back, but none below zero."""
        self._at_hub = [(moment_ns, max(0, level - amount)) for moment_ns, level in self._at_hub]


def _note(lows: list[tuple[int, int]], look: int, level: int) -> None:
    while lows and lows[-1][1] >= level:
        lows.pop()
    lows.append((look, level))
    if len(lows) > LOWS_MAX:
        lows[:2] = [(lows[1][0], lows[0][1])]
