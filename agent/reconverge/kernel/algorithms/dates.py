"""Dates of charges: a charge counts in full until its date expires. A date is a moment, or a slice of a window."""

# Slices. Theory of operation.
#
# For two nodes a slice ends at different times, because each estimates the hub's clock with an error. If it ends early
# for one node, that node gives back the allowance for expired charges; the hub grants it to another node, which may
# charge it to the same slice, not yet over there: this slice and those before it then contain more than the limit. A
# lag of twice the node's own error, as in sliding windows, does not help: the other node's error may be larger.
#
# So the rule is one-sided: for a node, a slice begins at the latest moment at which it may begin at the hub, for
# charges and for their expiry alike.
#
#     hub's clock       |  slice 7           |  slice 8
#     any node          |     slice 7           |  slice 8          never ahead: no node gives anything back before the
#                                                                    hub's own slice is over
#     after an answer   the slice of the answer, at once            never behind an answer: no node charges a grant of
#                                                                    slice 8 to slice 7
#
# With both rules, no order of messages does harm.
#
# Moments of a log.
#
# Coarse time stamps, of a microsecond or a thousandth of the window, would let requests take the fast path for as long
# as a stamp lasts. But `sliding-slices` does just that, with a number of slices that the user chooses. A log is exact,
# and its size is bounded: capacity + 1 entries of about 52 bytes, so a quota of at most 100,000.
#
# A settlement beyond the quota leaves a debt, and in a log that debt ends with its window, because a log promises to
# admit every request that fits among the charges of the last window. With a quota of 100, a debt of 900 that was
# carried over would refuse requests in nine further windows in which nothing was charged.

from __future__ import annotations

from typing import Protocol

from reconverge.kernel.cell import Cell
from reconverge.kernel.history import History
from reconverge.limit.limit import Limit


class Dating(Protocol):
    """A rule that gives each charge a date; the date decides when the charge expires."""

    additive: bool
    """Whether a date lasts for a while, as a slice does, so that the fast path may add charges until it is over."""
    follows_hub: bool
    """Whether dates are computed from the hub's clock, which may be set back."""
    lasts: int
    """For how many dates a charge counts, including its own date."""
    entries_max: int
    """The most dates for which a key's history stores an amount."""
    carries_debt: bool
    """Whether cost that a settlement charges beyond the capacity counts in later windows, until it is paid off."""

    def date(self, cell: Cell, history: History, now_ns: int) -> int:
        """Returns the date of a charge that is made now."""
        ...

    def begins_ns(self, cell: Cell, history: History, date: int) -> int:
        """Returns the moment at which `date` begins, by this node's clock."""
        ...


class Moments:
    """The dates of `sliding-log`: the nanosecond of each charge, by this node's own clock.

    This is the log of timestamps that other limiters keep in a sorted set. Only the age of a charge matters, so clocks
    need not agree. Every charge needs an entry of its own, so the fast path cannot just add to a counter.
    """

    additive = False
    follows_hub = False
    carries_debt = False

    def __init__(self, limit: Limit) -> None:
        self.lasts = limit.window_ns
        self.entries_max = limit.capacity + 1

    def date(self, cell: Cell, history: History, now_ns: int) -> int:
        """Returns `now_ns`, as a date is a moment here."""
        return now_ns

    def begins_ns(self, cell: Cell, history: History, date: int) -> int:
        """Returns `date` itself, which is a moment."""
        return date


class Slices:
    """The dates of `sliding-slices`: numbers of equal parts of a window.

    The use is the sum of the counts of the last few slices. The edge of a slice may fall between two nanoseconds: a
    slice is an exact fraction of the window, so that every window's end is the edge of a slice.

    A node puts a charge into the slice in which its own clock is, and no two nodes' clocks agree. So a node begins a
    slice at the latest moment at which the hub's clock may begin it, as far as the node knows that clock, but never
    later than the time in the hub's last answer. When a slice is over for any node, it is over for the hub, and for the
    nodes to which the hub then grants the room of expired charges.
    """

    additive = True
    follows_hub = True
    carries_debt = True

    def __init__(self, limit: Limit) -> None:
        assert limit.slices is not None
        self._window_ns = limit.window_ns
        self.lasts = limit.slices
        self.entries_max = limit.slices + 1

    def date(self, cell: Cell, history: History, now_ns: int) -> int:
        """Returns the number of the present slice by the hub's clock, minus `history.shift`.

        `history.shift` is how far the hub's slices are ahead of the cell's dates, after corrections of the hub's clock.
        """
        shard = cell.shard
        return (now_ns + shard.offset_ns - shard.late_ns) * self.lasts // self._window_ns - history.shift

    def begins_ns(self, cell: Cell, history: History, date: int) -> int:
        """Returns the first nanosecond of the slice `date`, by this node's clock."""
        shard = cell.shard
        return -(-(date + history.shift) * self._window_ns // self.lasts) - shard.offset_ns + shard.late_ns
