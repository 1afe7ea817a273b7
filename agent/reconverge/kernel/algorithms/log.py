"""Dates that are single moments: what was charged within a window before this one counts."""

# Stamps of a microsecond or of a thousandth of the window would let requests take the fast path for as long as a stamp
# lasts, but that is what slices do, with slices one can choose. A log is exact, and has an end: capacity + 1 entries of
# about 52 bytes, so a quota of at most 100,000. A debt from settling ends with its window: carried over, a debt of 900
# of 100 would refuse 900 requests in nine windows in which nothing was charged, and the promise of a log admits those.

from __future__ import annotations

from reconverge.kernel.algorithms.history import History
from reconverge.kernel.cell import Cell
from reconverge.limit.limit import Limit


class Moments:
    """The window of `sliding-log`: of every charge the nanosecond is remembered, by this node's own clock.

    The log of timestamps that limiters keep in a sorted set. Nothing but how long ago a charge was is asked, so clocks
    need not agree, and nothing is judged late. Every charge has to be written down, so none is simply added.
    """

    additive = False
    follows_hub = False
    carries_debt = False

    def __init__(self, limit: Limit) -> None:
        self.lasts = limit.window_ns
        self.entries_max = limit.capacity + 1

    def date(self, cell: Cell, history: History, now_ns: int) -> int:
        """This moment."""
        return now_ns

    def begins_ns(self, cell: Cell, history: History, date: int) -> int:
        """That moment."""
        return date
