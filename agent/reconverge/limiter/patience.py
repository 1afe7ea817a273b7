"""How long a request waits for the hub: the time that its own process has lost is not the hub's."""

# Theory of operation.
#
# The problem. A request waits for the hub for 25 ms, and then memory decides, which may admit more than is left. On
# cores with too much to do, or beside a handler that computes, that time passes while nothing of this process runs: the
# answer is there, and nothing has read it. Of five a minute such a fleet admitted ten to sixteen.
#
# How it works. What exchanges notes for how long it stood still (`AskState.stood_by`): from when a request asks until
# its batch is taken, and while a batch is under way whatever its turns are late. That time does not count, up to
# LOST_MAX_NS. The loop or thread of the request itself may stand still as it likes: it looks at what has been answered
# before it looks at the time.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.kernel import ShardState

LOST_MAX_NS: Final = SECOND_NS
"""So long a request waits for its own process at most, beside the time that it waits for the hub: a process that stands
still for longer is late with all its responses, and memory decides."""
LOOK_NS: Final = MILLISECOND_NS
"""Between two looks at least, while the process stands still."""


class Patience:
    """How long one request goes on waiting."""

    def __init__(self, shards: Sequence[ShardState], within_ns: int, now_ns: int) -> None:
        self._within_ns = within_ns
        self._began_ns = now_ns
        self._shards = [(shard, shard.stood_by(now_ns)) for shard in shards]

    def sleep_ns(self, now_ns: int) -> int:
        """For how long to sleep now; 0 when the hub has not answered in time."""
        lost_ns = max(shard.stood_by(now_ns) - before_ns for shard, before_ns in self._shards)
        left_ns = self._within_ns - (now_ns - self._began_ns) + min(lost_ns, LOST_MAX_NS)
        if left_ns <= 0:
            return 0
        return max(left_ns, LOOK_NS) if lost_ns > 0 else left_ns
