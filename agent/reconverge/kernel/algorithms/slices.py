"""Dates that are slices of the hub's window: with the present one count as many as make up a window."""

# Theory of operation.
#
# Two nodes see a slice end at different times, by the error of what each knows of the hub's clock. If one sees it end
# early, what expires with it goes back, is granted to another node, and may be charged there to the very slice that for
# that node is not over: the slice, and those before it, then hold more than the limit. A lag of twice one's own error,
# as sliding windows have, does not help: it is the other node's error that matters, and that may be larger.
#
# So the rule is one-sided: a slice begins as late as it may have, for charging and for expiring alike.
#
#     hub's clock       |  slice 7           |  slice 8
#     any node          |     slice 7           |  slice 8          never ahead: none gives back before the hub's own
#                                                                    slice is over
#     after an answer   the slice of the answer, at once            never behind the hub's word: none charges a grant
#                                                                    from slice 8 to slice 7
#
# Between the two no order of messages can hurt.

from __future__ import annotations

from reconverge.kernel.algorithms.history import History
from reconverge.kernel.cell import Cell
from reconverge.limit.limit import Limit


class Slices:
    """The window of `sliding-slices`, divided into equal parts.

    As known from counters in small buckets of time, of which a sliding window adds up the last few. An edge may fall
    between two nanoseconds: slices are numbered by an exact fraction of the window, so that every window's end is one.

    What was charged belongs to the slice in which its node believes to be, and no two nodes' clocks agree. So a slice
    begins as late as it may have by what this node knows of the hub's clock, but never later than what the hub has
    said: then a slice is over for the hub, and for whoever is granted what expires with it, when it is over for anyone.
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
        """The number of the slice, less the shift."""
        shard = cell.shard
        return (now_ns + shard.offset_ns - shard.late_ns) * self.lasts // self._window_ns - history.shift

    def begins_ns(self, cell: Cell, history: History, date: int) -> int:
        """The first nanosecond of a slice, by this node's clock."""
        shard = cell.shard
        return -(-(date + history.shift) * self._window_ns // self.lasts) - shard.offset_ns + shard.late_ns
