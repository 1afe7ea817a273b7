"""Replaces a node's last report of a cell by a new one: applies its reset, takes back allowances, stores its counts."""

from __future__ import annotations

from math import ceil

from reconverge.hub.report import CellReport
from reconverge_sync.merge import bounds
from reconverge_sync.merge.bounds import Fill
from reconverge_sync.merge.ledger import Entry, LedgerCell, LimitRule
from reconverge_sync.merge.sealing import says_sealed


def follow_reset(cell: LedgerCell, report: CellReport, rule: LimitRule, hub_us: int) -> CellReport:
    """Applies the reset in a node's report to the cell, and returns the report.

    If the reset is impossibly far in the future, it is not applied, and the returned report has the cell's last reset.
    """
    if report.reset_us > hub_us + bounds.RESET_AHEAD_MAX_US:
        return report._replace(reset_us=cell.reset_us)
    if report.reset_us > cell.reset_us:
        cell.forget(rule, report.reset_us)
    return report


def within_fill(cell: LedgerCell, entry: Entry, report: CellReport, rule: LimitRule) -> tuple[CellReport, Fill]:
    """Returns the report, with the level of its bucket cut down to the highest that counts, and the bound on the level.

    `entry` holds the node's last report. The report of a limit that is no bucket is returned unchanged.
    """
    most_milli = max(bounds.fill_max_milli(rule.capacity, rule.quota), 1000 * bounds.DEBT_MAX * entry.capacity)
    fill = Fill(most_milli, entry.previous)
    if not rule.bucket:
        return report, fill
    there_milli = cell.pooled_milli
    return report._replace(previous=min(report.previous, fill.beside(there_milli) - there_milli)), fill


def lower(cell: LedgerCell, entry: Entry, report: CellReport, rule: LimitRule) -> None:
    """Lowers the entry's allowances to those in the report, as the node has given back the difference; raises none.

    `take_counts` lowers the overdraft, because the part of it that is in use stays.
    """
    if not rule.fixed or report.epoch == cell.epoch:
        entry.allowance = min(report.allowance, entry.allowance)
    entry.vouchers = 0  # the node gives unused vouchers back, and used ones are in its counts
    entry.base = min(report.base, entry.base)
    entry.sealed = says_sealed(report, rule)


def take_counts(cell: LedgerCell, entry: Entry, report: CellReport, rule: LimitRule, hub_us: int, fill: Fill) -> None:
    """Replaces the counts of the node's last report in the entry by the counts of this report."""
    same_epoch = report.epoch == cell.epoch
    # A report from before the last reset: its counts are forgotten, its allowances and its need are not.
    counted = report.reset_us >= cell.reset_us
    if rule.bucket:
        drained = float(rule.refilled_us(cell.filled_us, hub_us)) * rule.quota * 1000 / rule.window_us
        charged = (report.current - entry.current) * 1000 if counted else 0
        left_milli = max(0.0, cell.fill_milli - drained)
        cell.fill_milli = min(max(0.0, left_milli + charged), max(left_milli, float(fill.most_milli)))
        cell.filled_us = hub_us
        if report.floats:
            if counted:
                cell.pour(rule, charged + report.previous, hub_us, fill)
            entry.previous = 0
        else:
            entry.previous = report.previous if counted else 0
        entry.current = report.current
    elif rule.dated:
        entry.current = report.current if counted else 0
        entry.current_until_us = hub_us + min(report.previous, rule.counts_for_us)
        entry.previous_until_us = hub_us + min(report.base, rule.counts_for_us)
    elif same_epoch:
        entry.current = report.current if counted else 0
        entry.previous = report.previous if counted and not rule.fixed else 0
    elif report.epoch == cell.epoch - 1 and counted and not rule.fixed:
        entry.previous = report.current
    used = entry.used(rule, cell, hub_us)
    entry.debt = max(0, ceil(used) - entry.allowance)
    # The node gives its unused overdraft back. A node that leaves reports no overdraft, but its use stays: another node
    # that got this overdraft would exceed the bound.
    entry.overdraft = min(entry.overdraft, max(report.overdraft, entry.debt))
    entry.need_milli = report.need_milli
    entry.demand_milli = report.demand_milli
    entry.window_demand = report.window_demand if same_epoch else 0
    if report.ask > 0 and entry.allowance - used < report.ask:
        entry.ask_since_us = entry.ask_since_us if entry.ask > 0 else hub_us
        entry.ask = report.ask
    else:
        entry.ask = 0
    entry.seen_us = hub_us
    entry.capacity = rule.own
    cell.capacity = min(cell.capacity, rule.own)
