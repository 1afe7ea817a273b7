"""Detects from an answer that a hub which has lost its data grants strict limits again.

After a loss of data each node estimates for itself how long the hub will grant nothing on a strict limit, so that it
neither asks in vain nor makes clients come back too early. The hub may grant again sooner than that: because an
operator has accepted the loss, or because the node noticed the loss late. The node finds that out when an answer raises
an allowance above the reported one, as a hub that still waits raises none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconverge.hub.report import AT_HUB, Answer, Batch

if TYPE_CHECKING:
    from reconverge.kernel import Table


def longest_wait_over_ns(batch: Batch, answer: Answer, tables: Mapping[str, Table]) -> int:
    """Returns for how many nanoseconds a hub that lost its data would have granted nothing on the limits in `answer`.

    It is the longest such time of the limits on which `answer` raises an allowance, which shows that it is over; 0 if
    `answer` raises none.
    """
    longest_ns = 0
    for report, cell in zip(batch.cells, answer.cells, strict=False):
        # Grants to requests that wait for the hub are in other units; see `CellAnswer.allowance`.
        if cell.allowance > report.allowance and cell.epoch == report.epoch and cell.nodes < AT_HUB:
            table = tables.get(batch.limits[report.limit].name)
            longest_ns = max(longest_ns, 0 if table is None else table.relearns_ns)
    return longest_ns
