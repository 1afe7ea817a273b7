"""Bounds on a node's reports, so that no report has an effect for longer than its limit allows.

A node is trusted to count: it may use up every key that it is asked about. It is not trusted to report sensible
numbers. A number that is merely large, from a fault of its memory or a faulty program, must not leave data that never
expire, nor take a key from all other nodes for longer than the node could have done by using it.

A batch is refused as a whole if it has windows, quotas, leases or intervals beyond the values that an agent accepts as
a setting. Other numbers can be too large without a fault of the node, such as a debt from settling, or allowances from
before a quota was lowered. These numbers are cut down to where more would have no effect. `exchange.lua` does the same.

The level of a bucket is cut down by the bucket's capacity, and that may fall: by a change of the limit, or as a key
changes to a smaller plan. Use from before the fall stays (`Fill`), as the capacity may rise again before that use has
drained.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.report import UNBOUNDED, Batch, CellReport, LimitReport
from reconverge.limit.limit import QUOTA_MAX

DAY_US: Final = 86_400_000_000
WINDOW_MAX_US: Final = 3660 * DAY_US
"""The longest window that can be declared, in microseconds. A bucket that takes longer to drain is forgotten after this
time."""
LEASE_MAX_US: Final = 60 * DAY_US
"""The longest lease that can be declared, in microseconds: a bridge between regions declares seven weeks."""
INTERVAL_MAX_US: Final = DAY_US
DEBT_MAX: Final = 10
"""The highest level at which a bucket counts, as a multiple of its capacity, or of its quota if that is larger. A
higher level would only keep it full for longer after its node has gone."""
NEEDS_MAX: Final = 100
"""The largest need of a paced limit that counts, as a multiple of the capacity."""
NEED_MAX_MILLI: Final = 10**15
SAID_MAX: Final = 2**43
"""The largest number that a report of a cell may have: more than any node asks for, yet a thousand such numbers have an
exact sum in Lua."""
NAMES_SHOWN_MAX: Final = 100
RESET_AHEAD_MAX_US: Final = DAY_US
"""A reset whose moment is further in the future than this, in microseconds, is ignored: until that moment no other
reset of the key would take effect."""


def check(batch: Batch) -> None:
    """Raises HubUnavailable if no agent would send this batch: a window, quota, lease or interval is out of bounds."""
    sane = batch.lease_us <= LEASE_MAX_US and batch.interval_us <= INTERVAL_MAX_US
    if not (sane and all(_sane(limit) for limit in batch.limits)):
        limits = (
            ", ".join(repr(limit.name) for limit in batch.limits if not _sane(limit))[:NAMES_SHOWN_MAX] or "a limit"
        )
        raise HubUnavailable(
            "protocol",
            f"the batch of shard {batch.shard} is malformed: the lease of {batch.lease_us} us, the interval of "
            f"{batch.interval_us} us, or the window or quota of {limits} is too large; {ONE_VERSION}",
            applied=False,
        )


def _sane(limit: LimitReport) -> bool:
    return (
        limit.window_us <= WINDOW_MAX_US
        and limit.quota <= QUOTA_MAX
        and limit.capacity <= QUOTA_MAX
        and limit.withheld <= limit.capacity
        and limit.interval_us <= INTERVAL_MAX_US
    )


def overdraft_max(limit: LimitReport) -> int:
    """Returns the largest sum of the overdrafts of all nodes on a limit."""
    if limit.overshoot_milli == UNBOUNDED:
        return limit.capacity
    return int(min(float(limit.capacity) * limit.overshoot_milli // 1000, float(SAID_MAX)))


def fill_max_milli(capacity: int, quota: int) -> int:
    """Returns the highest level of a bucket that a report may declare, in thousandths; `quota` is per window."""
    return 1000 * DEBT_MAX * max(capacity, quota)


class Fill(NamedTuple):
    """The highest levels that the hub accepts for buckets after one node's report, in thousandths.

    The levels of the node's own bucket and the hub's bucket sum to `most_milli` at most, unless they exceeded it
    before. So the level is bounded, however often a node reports, and the report of a smaller capacity forgives no use.
    """

    most_milli: int
    """The higher of two bounds: for the limit as the node declares it now, and as it was declared when the node got its
    allowance."""
    own_milli: int
    """The level of the node's own bucket by its last report."""

    def beside(self, there_milli: int) -> int:
        """Returns how full the hub's own bucket may be, in thousandths, after the node's bucket was poured into it.

        `there_milli` is the level of the hub's bucket before that.
        """
        return max(self.most_milli, there_milli + self.own_milli)


def within_bounds(limit: LimitReport, report: CellReport, *, bucket: bool, dated: bool, slots: bool) -> CellReport:
    """Returns a cell's report with each number cut down to the highest value that makes a difference.

    For the level of a bucket see `Fill`. Slots have no windows and no resets, as work in progress cannot be forgotten.
    """
    if slots:
        report = report._replace(epoch=0, previous=0, base=0, window_demand=0, reset_us=0)
    capacity = limit.capacity
    previous_max = report.previous if bucket or dated else SAID_MAX
    base_max = report.previous if dated else capacity
    return report._replace(
        current=max(-SAID_MAX if bucket else 0, min(report.current, SAID_MAX)),
        previous=min(report.previous, previous_max),
        allowance=min(report.allowance, capacity),
        base=min(report.base, base_max),
        overdraft=min(report.overdraft, overdraft_max(limit)),
        need_milli=min(report.need_milli, 1000 * NEEDS_MAX * capacity, NEED_MAX_MILLI),
        ask=report.ask if report.ask <= max(capacity, limit.quota) else 0,
        demand_milli=min(report.demand_milli, SAID_MAX),
        window_demand=min(report.window_demand, SAID_MAX),
    )
