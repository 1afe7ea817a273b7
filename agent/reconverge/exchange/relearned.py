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
    """Returns how long a hub grants nothing after a loss of data, in nanoseconds, for limits where it grants again.

    Considers the limits on which `answer` raises an allowance, which shows that this time is over. Returns the longest
    time of these limits; 0 if the answer raises no allowance.
    """
    longest_ns = 0
    for report, cell in zip(batch.cells, answer.cells, strict=False):
        # Grants to requests that wait for the hub are in other units; see `CellAnswer.allowance`.
        if cell.allowance > report.allowance and cell.epoch == report.epoch and cell.nodes < AT_HUB:
            table = tables.get(batch.limits[report.limit].name)
            longest_ns = max(longest_ns, 0 if table is None else table.relearns_ns)
    return longest_ns
