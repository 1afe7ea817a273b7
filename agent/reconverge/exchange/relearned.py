"""Detects from an answer that the hub, which has lost its data, grants allowances of strict limits again.

After a loss of data the hub grants nothing on a strict limit for some time. Each node estimates that time, so that it
neither asks in vain nor makes clients come back too early. The hub may grant again before that: an operator has
accepted the loss, or the node has noticed the loss late. An answer that raises an allowance above the reported one
shows that the hub grants again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconverge.hub.report import AT_HUB, Answer, Batch

if TYPE_CHECKING:
    from reconverge.kernel import Table


def longest_wait_over_ns(batch: Batch, answer: Answer, tables: Mapping[str, Table]) -> int:
    """Returns the longest wait, in nanoseconds, that `answer` shows to be over; 0 if the answer shows none.

    A hub that has lost its data waits before it grants a limit again; `Table.relearns_ns` is that time. The wait of a
    limit is over if `answer` raises an allowance of the limit above the one reported in `batch`.
    """
    longest_ns = 0
    for report, cell in zip(batch.cells, answer.cells, strict=False):
        # Grants to requests that wait for the hub are in other units; see `CellAnswer.allowance`.
        if cell.allowance > report.allowance and cell.epoch == report.epoch and cell.nodes < AT_HUB:
            table = tables.get(batch.limits[report.limit].name)
            longest_ns = max(longest_ns, 0 if table is None else table.relearns_ns)
    return longest_ns
