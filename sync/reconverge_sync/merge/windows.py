"""Determines the present window of a key, by the hub's clock, the node's report and the hub's memory.

Three ways to lay windows out: end to end from 1970 on; by a calendar, of which the nodes report no more than the window
that they are in; and from the first hit, in which case the number of a window is the moment at which it began.
"""

# Theory of operation.
#
# Nodes and hub must name the same window by the same number, though their clocks differ, messages are late, and the hub
# inside Redis knows no time zones.
#
# - Windows of one length are `time // length`. The hub's clock decides. The hub follows a node that is slightly ahead
#   into the next window, because its counts belong there, but follows no node back. So the cell stays until that window
#   has opened by the hub's clock, too: a new cell would grant the window before once more.
# - A calendar's windows have no common length (a day has 23 to 25 hours), so the node's report says which window it is
#   in and when that opens and closes. The hub believes that if its own clock is in that window; else it takes the
#   window before or after. A late message moves no cell back, and a node whose clock is far ahead moves no cell
#   forward.
# - A window that begins with the first hit has the microsecond of its beginning for its number, and between two windows
#   the cell has the negative of the moment at which the next may begin. Between windows all allowances are bases, so
#   any node may open one without asking; the first that a node reports is the window for all. The next must not begin
#   within a window's length of the last beginning: allowances are granted once for each window, and two that overlap
#   would be one window with twice the capacity.

from __future__ import annotations

from reconverge.hub.report import CellReport, LimitReport
from reconverge_sync.merge.ledger import LimitRule


def place_epoch(limit: LimitReport, rule: LimitRule, report: CellReport, known: int | None, hub_us: int) -> int:
    """Returns the number of the window that a key is in at the hub, considering the node's report.

    `known` is the key's window so far; None for a new key.
    """
    if rule.slots:
        return 0
    if rule.first_hit:
        return first_hit_epoch(limit, hub_us, report.epoch, -1 if known is None else known, asked=report.ask > 0)
    if limit.closes_us > 0:
        return calendar_epoch(limit, hub_us, report.epoch, known)
    # The capacity that is free from a window's edge on must not be free a moment early by any node's clock.
    return hub_us // limit.window_us if rule.stepwise else uniform_epoch(limit, hub_us, report.epoch)


def uniform_epoch(limit: LimitReport, hub_us: int, reported: int) -> int:
    """Returns the number of the present window, counted from 1970; the next number if the node has `reported` it."""
    epoch = hub_us // limit.window_us
    return reported if reported == epoch + 1 else epoch


def calendar_epoch(limit: LimitReport, hub_us: int, reported: int, known: int | None) -> int:
    """Returns the number of the present window of a calendar: the `reported` one, or its neighbour by the hub's clock.

    A late message never moves a key back to an earlier window, and a node whose clock is far ahead never moves it on.
    """
    if known is not None and hub_us < limit.opens_us - (limit.closes_us - limit.opens_us):
        return known
    if hub_us < limit.opens_us:
        epoch = limit.window - 1
    elif hub_us < limit.closes_us:
        epoch = limit.window
    else:
        epoch = limit.window + 1 if known is None else max(limit.window + 1, known)
    return reported if reported == epoch + 1 else epoch


def is_ahead(limit: LimitReport, rule: LimitRule, epoch: int, hub_us: int) -> bool:
    """Returns whether the key's window `epoch`, taken over from a node, is not open yet by the hub's clock."""
    if rule.slots or rule.first_hit:
        return False
    return epoch > (calendar_epoch(limit, hub_us, -1, None) if limit.closes_us > 0 else hub_us // limit.window_us)


def first_hit_epoch(limit: LimitReport, hub_us: int, reported: int, known: int, *, asked: bool) -> int:
    """Returns the moment at which the key's window began; if no window is open, minus the moment of the next one.

    An open window stays. The next window is the first that a node reports; or it begins now, if a node had to ask for a
    request that did not fit into its base (the allowance for a new window). Two windows of a key never begin within one
    window's length of each other, as allowances are granted once for each window.
    """
    window_us = limit.window_us
    open_at_node = reported >= 0 and abs(hub_us - reported) < window_us
    if known >= 0 and abs(hub_us - known) < window_us and not (open_at_node and reported >= known + window_us):
        return known
    free_us = known + window_us if known >= 0 else -known
    if free_us > hub_us + window_us:
        free_us = 1  # the hub's clock has gone back
    if open_at_node:
        return max(min(reported, hub_us), free_us)
    return max(hub_us, free_us) if asked else -free_us


def same_window(limit: LimitReport, one: int, other: int) -> bool:
    """Returns whether two windows that began with first hits overlap, or neither of the two is open."""
    if one < 0 or other < 0:
        return one < 0 and other < 0
    return abs(one - other) < limit.window_us
