"""How long a request has waited for the hub: the time that its own process has lost is not the hub's."""

# Theory of operation.
#
# The problem. A request waits for the hub for 25 ms, and then memory decides, which may admit more than is left. On
# cores with too much to do, or beside a handler that computes, that time passes while nothing of this process runs: the
# answer is there, and nothing has read it. Of five a minute such a fleet admitted ten to sixteen.
#
# How it works. A request sleeps for TURN_NS at a time. Of each sleep there does not count
#
#     what it took longer than that      the loop or the thread of the request was not run
#     all of it, if the batch that is    the runner of the exchanges was not run
#     to carry the request is not taken
#     what the runner, with a batch      likewise; it notes its turns while requests ask (`ShardState.turned_ns`)
#     under way, is late for its turn
#
# So a hub that is silent is waited for as long as the request says, and a process that stands still for longer, up to
# LOST_MAX_NS.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS
from reconverge.kernel import ShardState

TURN_NS: Final = 5 * MILLISECOND_NS
"""So long a request sleeps at a time: a fifth of what it waits by default, as long as Python lets one thread run while
others want to."""
LOST_MAX_NS: Final = SECOND_NS
"""So long a request waits for its own process at most, beside the time that it waits for the hub: a process that stands
still for longer is late with all its responses, and what refuses or admits then is memory."""


class Patience:
    """How long one request goes on waiting. Raises nothing."""

    def __init__(self, shards: Sequence[ShardState], within_ns: int, now_ns: int) -> None:
        self._shards = shards
        self._left_ns = within_ns
        """Of the time that the hub has."""
        self._lost_left_ns = LOST_MAX_NS
        self._since_ns = now_ns
        self._slept_ns = 0

    def sleep_ns(self, now_ns: int) -> int:
        """For how long to sleep now; 0 when the hub has not answered in time."""
        passed_ns = max(0, now_ns - self._since_ns)
        lost_ns = min(self._lost_ns(now_ns, passed_ns), self._lost_left_ns)
        self._lost_left_ns -= lost_ns
        self._left_ns -= passed_ns - lost_ns
        self._since_ns = now_ns
        self._slept_ns = max(0, min(TURN_NS, self._left_ns))
        return self._slept_ns

    def _lost_ns(self, now_ns: int, passed_ns: int) -> int:
        """How much of what has passed since the last look was not the hub's."""
        lost_ns = max(0, passed_ns - self._slept_ns)
        for shard in self._shards:
            if shard.under_way_ns >= NEVER_NS and shard.asking_ns <= self._since_ns:
                return passed_ns  # it should have been taken by now
            lost_ns = max(lost_ns, min(passed_ns, now_ns - shard.turned_ns - TURN_NS))
        return lost_ns
