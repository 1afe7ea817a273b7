"""What one node knows of one shard of the hub: its time, the lease, and which cells have something to say."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconverge.clock import NEVER_NS
from reconverge.kernel._engine import ShardFields

if TYPE_CHECKING:
    from reconverge.kernel._cell import Cell


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
        self.unconfirmed = 0
        """Cells that have yet to be reported to a hub that has lost its data."""
        self.attended_until_ns = -NEVER_NS
        """Until when somebody has promised to look what is due; a decision after that calls for somebody."""
        self.early_ns = NEVER_NS
        """When to exchange ahead of time, because a cell wants it."""
        # Deques, because deciding threads append while the exchanging one takes, each without the other's lock.
        self.stirred: deque[Cell] = deque()
        """Cells with something new since their last report."""
        self.wanted: deque[Cell] = deque()
        """Cells that ask not to wait for the next regular exchange."""
        self._follow_ups: list[tuple[int, int, Cell]] = []
        self._follow_up_count = 0

    def follow_up(self, cell: Cell, due_ns: int) -> None:
        """Look at a quiet cell again at `due_ns`, in place of any earlier promise."""
        cell.due_ns = due_ns
        self._follow_up_count += 1  # breaks ties, as cells have no order
        heapq.heappush(self._follow_ups, (due_ns, self._follow_up_count, cell))

    def follow_up_due_ns(self) -> int:
        """When the next quiet cell has to be looked at."""
        while self._follow_ups and self._follow_ups[0][2].due_ns != self._follow_ups[0][0]:
            heapq.heappop(self._follow_ups)
        return self._follow_ups[0][0] if self._follow_ups else NEVER_NS

    def take_follow_ups(self, now_ns: int) -> Iterator[Cell]:
        """The quiet cells that are due, each once."""
        while self.follow_up_due_ns() <= now_ns:
            cell = heapq.heappop(self._follow_ups)[2]
            cell.due_ns = NEVER_NS
            yield cell
