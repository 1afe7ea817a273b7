"""Dates that are single moments: what was charged within a window before this one counts."""

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
