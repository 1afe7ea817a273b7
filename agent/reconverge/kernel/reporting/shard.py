"""What one node knows of one shard of the hub: its time, the lease, and which cells have something to say."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.engine import ShardFields
from reconverge.kernel.reporting.deferred import Later


class ShardState(ShardFields):
    """One shard of the hub as seen from here. Moments are monotonic nanoseconds."""

    def __init__(self, index: int, *, alone: bool, offset_ns: int) -> None:
        self.index = index
        self.alone = alone
        """There is no other node: every line is the whole capacity, and nothing is ever reported."""
        self.start_over(offset_ns)

    def start_over(self, offset_ns: int) -> None:
        """Know nothing of the hub but what the wall clock says."""
        self.offset_ns = offset_ns
        """What to add to the monotonic clock to have the hub's."""
        self.refreshed_ns = -NEVER_NS
        """When that was last compared, on a node that has no hub to ask."""
        self.lag_ns = 0
        """Twice the error of that."""
        self.late_ns = 0
        """How much less than that it may be; never so much that the hub's clock would be behind what the hub has said.
        """
        self.round_trip_ns = 0
        self.acked_ns = -NEVER_NS
        """When the last batch that was answered had been sent."""
        self.lease_until_ns = NEVER_NS if self.alone else -NEVER_NS
        self.leased_ns = NEVER_NS if self.alone else -NEVER_NS
        """From when on the leases run, which are of various lengths; earlier than that by what a clock may err."""
        self.lost_ns = -NEVER_NS
        """When it was last heard that the hub had lost its data."""
        self.voided: set[str] = set()
        """Limits whose lines have been given up because their lease was over, since the leases began to run."""
        self.not_taken = 0
        """How often the hub had no room for a key."""
        self.keeps_until_ns = -NEVER_NS
        """Until when the hub is not asked to take over what was used of keys that leave."""
        self.unconfirmed = 0
        """Cells that have yet to be reported to a hub that has lost its data."""
        self.attended_until_ns = -NEVER_NS
        """Until when somebody has promised to look what is due; a decision after that calls for somebody."""
        self.early_ns = NEVER_NS
        """When to exchange ahead of time, because a cell wants it."""
        self.later = Later()
        """What waits until its limit is due."""
        self.begin()
