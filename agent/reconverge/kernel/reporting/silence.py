"""Decides for how long a node reports nothing about a key that is charged, because no node needs the news."""

# Theory of operation.
#
# The problem. By the rule of `cell_reports.py` a key that is charged in each interval is reported in each interval, and
# a key that is charged once is checked again after T, 2T, 4T. With a thousand keys of a million an hour, none of them
# nearly used up, that was 3.25 reports for each request: the hub worked as much as if every request had asked it. Two
# thirds of these reports came from such checks, and none of them changed a decision.
#
# How it works. Deciding whether a threshold is reached takes k · log 1/ε messages for k nodes (Cormode, Muthukrishnan
# and Yi, SODA 2008), and not one message for each charge. So after an answer a cell (a key's record) is *comfortable*
# if its headroom is several times what it needs, and the fleet has several times what all nodes need. While it is
# comfortable, a charge neither queues the cell for a report nor calls for an exchange. The cell is reported when
#
#     an eighth of the headroom is used                  `speaks_below`: the next charge is the first to be reported
#     its headroom passes the low-water mark             as ever
#     the longest silence is over                        `silence_ns`: ten seconds, or a sixteenth of the window
#     its window begins                                  each window has to be granted anew
#
# Why the bound holds. Silence changes when a report is made, and nothing in the report: counts are sums, the allowance
# is lowered before it is reported, and a node admits no more than its allowance. If a node dies in silence, its whole
# allowance counts as used, and that contains the use that it did not report.
#
# What it costs. The headrooms of all nodes sum to at most what is left, so the hub's total lacks an eighth of what is
# left at most, and the charges of one interval. Another node that comes to lack something gets it when the cell is
# reported, which takes the longest silence at worst. So a cell is not comfortable while a quarter of the capacity or
# less is free of all needs; nor if its limit has few requests for each node, whose allowances move as a whole.
#
# A fixed window that is used up has no news before its end, except that its node still has requests. Refused requests
# do not queue its key, which is reported once in the longest silence.
#
# Silent cells are looked at on a grid of GRID_PARTS moments for each longest silence, so that they share batches. Each
# node has its own phase, or all processes of a machine, which share the monotonic clock, would exchange together.

from __future__ import annotations

from typing import Final

from reconverge.clock import seconds
from reconverge.hub.headroom import NEED_MARGIN, REQUESTS_MIN
from reconverge.kernel.cell import Cell, begins_with_base, closes_ns

NEEDS_MIN: Final = 4
"""Charges may go unreported only if the cost that the node may still admit is this many times the cost expected until
the next answer. The capacity that no node has used must be as many times the cost expected on all nodes."""
FREE_SHARE: Final = 0.25
"""Charges may go unreported only while this fraction of the capacity is left beyond the needs of all nodes. Of the
unused capacity, this fraction must be granted to no node."""
BASE_MARGIN: Final = 1.5
BASE_SHARE: Final = 0.8
"""Charges in a fixed window may go unreported only if the node begins the next window with an allowance of BASE_MARGIN
times its demand, or of BASE_SHARE of its fair part of the capacity. So it can go on admitting if the hub is away
then."""
GRID_PARTS: Final = 8
"""A key whose charges are not reported is checked at certain moments only: the multiples of 1/GRID_PARTS of the longest
silence, the time for which nothing need be reported."""


def is_comfortable(cell: Cell, headroom: int, expected: float) -> bool:
    """Returns whether charges to a key may go unreported, because no node will lack capacity of it meanwhile.

    `headroom` is the cost that the node may still admit by the hub's answer about the present window; `expected` is the
    cost of the requests that this node expects until the next answer.
    """
    table = cell.table
    if not _may_be_silent(cell) or cell.ask or cell.reserved or not cell.held:
        return False
    need = float(cell.need_milli) / 1000
    if headroom < max(need, NEEDS_MIN * (expected + table.unit)):
        return False
    left = cell.capacity - cell.fleet_used
    if cell.free < FREE_SHARE * left:
        return False
    needs = max(cell.fleet_needs, need)
    if not _begins_well(cell, needs):
        return False
    others = NEED_MARGIN * max(0.0, cell.fleet_demand - cell.demand) * seconds(table.interval_ns)
    return left >= max(NEEDS_MIN * (expected + others), needs + FREE_SHARE * cell.capacity)


def is_used_up(cell: Cell) -> bool:
    """Returns whether a key's fixed window is used up, by the hub's last answer, so that reports bring nothing.

    False if the quota is a few requests, and if the node would begin the next window with too small an allowance.
    """
    table = cell.table
    if not table.meter.aligned or cell.capacity - cell.fleet_used >= table.unit or not _may_be_silent(cell):
        return False
    return _begins_well(cell, max(cell.fleet_needs, float(cell.need_milli) / 1000))


def _may_be_silent(cell: Cell) -> bool:
    """Returns whether charges to the key may go unreported: its quota is large enough, and no request waits."""
    table = cell.table
    if not table.silence_ns or cell.at_hub or cell.waiters:
        return False
    return cell.capacity >= REQUESTS_MIN * cell.nodes * table.unit


def _begins_well(cell: Cell, needs: float) -> bool:
    """Returns whether the node begins the key's next window with enough allowance; `needs` is all nodes' need."""
    table = cell.table
    if not table.meter.aligned or table.small_allowances:
        return True
    share = float(cell.need_milli) / 1000 / needs if needs > 0 else 0.0
    enough = min(BASE_MARGIN * cell.demand * table.window_s, BASE_SHARE * cell.capacity * share)
    return cell.base >= max(enough, float(table.unit))


def speaks_below(cell: Cell) -> int:
    """Returns the headroom (the cost that may still be admitted) below which charges to the key are reported again.

    It is seven eighths of the headroom after the hub's last answer, computed from the low-water mark, which is six
    tenths of that (`cell.LOW_WATER`).
    """
    return cell.low_water + cell.low_water * 11 // 24


def looks_ns(cell: Cell, now_ns: int, *, asks: bool) -> int:
    """Returns when to check a key whose charges are not reported, in monotonic nanoseconds.

    That is after the longest silence or, if longer, after as much time as the key has had no request; rounded up to a
    grid of moments. If requests ask the hub (`asks`), a key with an allowance for the next window is checked soon after
    its present window ends.
    """
    table = cell.table
    silence_ns = table.silence_ns
    leaves_ns = cell.touched_ns + 2 * table.meter.idle_ns
    due_ns = now_ns + max(silence_ns, min(now_ns - cell.touched_ns, leaves_ns - now_ns))
    if begins_with_base(cell) and asks:
        # The base allowance of the next window goes back if no request has come, as other nodes ask for it.
        due_ns = min(due_ns, max(closes_ns(cell), now_ns) + table.interval_ns)
    grid_ns = max(table.interval_ns, silence_ns // GRID_PARTS)
    phase_ns = table.phase % grid_ns
    return -(-(due_ns - phase_ns) // grid_ns) * grid_ns + phase_ns
