"""Detects from an answer that a hub which has lost its data grants strict limits again.

After a loss a node reckons for itself how long the hub will grant nothing of a strict limit, so that it neither asks in
vain nor tells clients to come again too early. The hub may be ready sooner: because an operator has adopted the loss,
or because the node noticed the loss late. An allowance that is larger than the one that was reported shows that: a hub
that waits grants none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconverge.hub.report import AT_HUB, Answer, Batch

if TYPE_CHECKING:
    from reconverge.kernel import Table


def longest_wait_over_ns(batch: Batch, answer: Answer, tables: Mapping[str, Table]) -> int:
    """Returns the longest time to relearn, over the limits on which the answer grants an allowance; 0 if none."""
    longest_ns = 0
    for report, cell in zip(batch.cells, answer.cells, strict=False):
        # Grants to requests that ask are in other units, see `CellAnswer.allowance`.
        if cell.allowance > report.allowance and cell.epoch == report.epoch and cell.nodes < AT_HUB:
            table = tables.get(batch.limits[report.limit].name)
            longest_ns = max(longest_ns, 0 if table is None else table.relearns_ns)
    return longest_ns
