"""Whether what is used of a limit counts for longer than a lease on its lines lasts; see `reconverge.hub.stake`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconverge.clock import NEVER_NS
from reconverge.hub.report import UNBOUNDED

if TYPE_CHECKING:
    from reconverge.kernel.table.cells import Cells


def relearns_ns(table: Cells) -> int:
    """For how long a hub that has lost its data grants no lines on this limit; the hub has it as `learning_us`.

    Until all that may still be used of lines from before is over, where the policy has no overshoot. Elsewhere it is no
    longer than until the next exchanges.
    """
    if table.policy.overshoot_milli:
        return 0
    runs_out_ns = table.window_ns
    if table.meter.bucket:
        runs_out_ns = max(runs_out_ns, -(-table.window_ns * table.capacity // table.quota))
    return min(table.kernel.lease_ns + 2 * runs_out_ns, NEVER_NS // 2)


def outlasts_lease(table: Cells) -> bool:
    """Whether a window, or the time in which a bucket drains, outlasts the lease; never so without a bound."""
    runs_out_ns = table.window_ns
    if table.meter.bucket:
        drains_ns = table.window_ns * table.capacity // table.quota
        runs_out_ns = max(runs_out_ns, drains_ns) if table.stepwise else drains_ns
    return table.policy.overshoot_milli != UNBOUNDED and runs_out_ns > min(table.lease_ns, table.kernel.lease_ns)
