"""Changes a limit's quota or policy while it is in use; earlier use still counts."""

# Theory of operation.
#
# A node may lower its allowances at any moment. When the capacity falls, it lowers them in the same proportion, so that
# the allowances of all nodes sum to the new capacity at most as soon as every node has changed. Only the hub raises
# allowances, once the last node has reported the larger capacity; until then the smallest capacity of all nodes counts.
#
# An answer to a report from before the change may be under way: its allowances were granted by the larger capacity. The
# node lowers them in the same way when the answer comes (`cell_reports.as_lowered`); otherwise the allowance would be
# as large as before until the next exchange. In general: a node's allowance is never a larger fraction of its capacity
# than it was of the capacity by which the hub has granted it. These fractions sum to one at most, as the hub grants by
# the smallest capacity of all nodes, and no change on a node makes its own fraction larger.
#
# Allowances of paced limits are parts of a rate, and the same holds for them: a node's rate is its quota times its
# part. The debt and the stored permits are rescaled, see `algorithms/paced.py`.

from __future__ import annotations

from dataclasses import fields
from typing import Final

from reconverge.hub.report import UNBOUNDED
from reconverge.kernel.algorithms.paced import PacedTerms
from reconverge.kernel.cell import low_water, measure
from reconverge.kernel.engine import Cell
from reconverge.kernel.reporting.cell_reports import keep_overdraft_within
from reconverge.kernel.reporting.requests import report_soon
from reconverge.kernel.table.state import LimitState, allowance_alone
from reconverge.limit.limit import Limit

CHANGEABLE: Final = frozenset({"quota", "burst", "soft", "max_debt", "costs"})
"""The fields of a limit that may change while it is in use, as they define how much it admits. The other fields define
how requests are counted: limits that differ in these do not share their counts."""


def counted_otherwise(one: Limit, other: Limit) -> list[str]:
    """Returns the names of the fields that differ between two limits and decide how requests are counted.

    Fields that only decide how much a limit admits are left out.
    """
    fixed = [field.name for field in fields(Limit) if field.name not in CHANGEABLE]
    return [name for name in fixed if getattr(other, name) != getattr(one, name)]


def why_not(table: LimitState, limit: Limit) -> str | None:
    """Returns why the table's limit cannot become `limit` while it is in use, as a phrase; None if it can do so."""
    changed = counted_otherwise(table.limit, limit)
    if changed:
        before = ", ".join(f"{name}={getattr(table.limit, name)!r}" for name in changed)
        return f"counts with {before}, which cannot change while it is in use"
    if limit.unit != table.unit:
        return (
            f"is a {limit.algorithm} that is counted in {_parts(table.unit)}, and {limit} would be counted in "
            f"{_parts(limit.unit)}, which cannot change while it is in use"
        )
    if table.limit not in (limit, table.pool):
        return "is the parent of shares of its quota, so the quota cannot change while it is in use"
    return None


def bring_up_to(table: LimitState, now_ns: int) -> list[Cell]:
    """Brings the counts of all keys up to `now_ns` by the limit still in force; returns all cells (counts of a key)."""
    cells = table.all_cells()
    for cell in cells:
        table.edges.advance(cell, now_ns)
        measure(cell)
    return cells


def _parts(unit: int) -> str:
    return "whole requests" if unit == 1 else f"parts of a request ({unit} make one)"


def note_lowering(table: LimitState, before: int, now_ns: int) -> None:
    """If the capacity was larger before (`before`), stores that, so that answers to earlier reports are scaled down.

    After several changes within a lease, stores the largest of the earlier capacities, which may scale an answer down
    too much. A change more than a lease ago is ignored, because an answer that comes so late grants nothing.
    """
    if table.capacity >= before:
        return
    recent = now_ns - table.lowered_ns < table.kernel.lease_ns
    table.lowered_from = max(before, table.lowered_from) if recent else before
    table.lowered_ns = now_ns


def terms_of(table: LimitState, cells: list[Cell]) -> list[PacedTerms | None]:
    """Returns for each key the rate at which it pays off its debt now; None for each if the limit is not paced."""
    pacer = table.pacer
    return [None if pacer is None else pacer.terms(cell) for cell in cells]


def adapt_to_quota(table: LimitState, cell: Cell, before: int, former: PacedTerms | None, now_ns: int) -> None:
    """Adapts a key's counts to a changed quota; `before` is the old capacity, `former` the key's old rate or None."""
    cell.room = -1
    if cell.shard.alone:
        cell.allowance = cell.base = allowance_alone(table, cell.key)
        cell.capacity = table.capacity
    else:
        cell.capacity = min(cell.capacity, table.capacity) if cell.heard else table.capacity
        if table.capacity < before:
            cell.allowance = cell.allowance * table.capacity // before
            cell.base = cell.base * table.capacity // before
            cell.overdraft = cell.overdraft * table.capacity // before
    if table.pacer is not None and former is not None:
        table.pacer.take_over(cell, former)
    if not cell.shard.alone:
        cell.low_water = low_water(table, max(0, table.meter.headroom(cell, now_ns)))
        report_soon(cell, now_ns)
    table.edges.set_until(cell, now_ns)


def adapt_to_policy(table: LimitState, cell: Cell, now_ns: int) -> None:
    """Adapts a key to its limit's new policy: lowers its overdraft to this node's part of the policy's overshoot."""
    cell.room = -1
    policy = table.policy
    if policy.overshoot_milli != UNBOUNDED:
        overdrafts = cell.capacity * policy.overshoot_milli // 1000
        keep_overdraft_within(cell, overdrafts // max(1, cell.nodes), table.meter.bound(cell, now_ns))
    if cell.shard.alone:
        cell.allowance = cell.base = allowance_alone(table, cell.key)
    else:
        report_soon(cell, now_ns)
    table.edges.set_until(cell, now_ns)
