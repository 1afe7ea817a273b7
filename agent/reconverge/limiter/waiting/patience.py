"""Measures how long a request has waited for the hub, without the times in which its own process stood still."""

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
#
# The same holds before a hub has answered for the first time: the process has just started, has yet to find the name,
# connect and present its credentials, and all workers of the machine do so at once. A request waits then until
# LOST_MAX_NS are over. It is woken earlier if the connection fails, and one that waited in vain is the last that waits.
#
# A hub that is new grants no strict limit in its first second, and then the request waits as if it had come at the end
# of that.
#
# What waits after that was not refused: another request has charged what was granted, and the hub is asked again. It
# has all its time for each answer (`asked_ns` is from when a report carries the request), or a request would be left to
# memory for looking late at a grant that is gone. Each such answer admits a request of the key, so there are few; and
# LOST_MAX_NS bounds all of it.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS
from reconverge.kernel import ShardState

LOST_MAX_NS: Final = SECOND_NS
"""The longest time, in nanoseconds, that a request may wait beyond its time for the hub's answer, if the process stands
still. After a longer standstill the node decides from memory."""
LOOK_NS: Final = MILLISECOND_NS
"""The shortest sleep, in nanoseconds, before a request that waits looks again whether the hub has answered."""


class Patience:
    """The time that one request waits for the hub's answer. Standstills of this process do not count."""

    def __init__(self, shards: Sequence[ShardState], within_ns: int, began_ns: int, asked_ns: int) -> None:
        """Starts measuring the wait of a request that asks the hubs of `shards`.

        The request has waited since `began_ns`, and each report since `asked_ns` has asked for it.
        """
        self._within_ns = within_ns
        self._until_ns = began_ns + within_ns + LOST_MAX_NS
        self._shards = shards
        self._asked_ns = asked_ns
        self._began_ns = began_ns
        self._begin(began_ns)

    def begin_at(self, when_ns: int, now_ns: int) -> None:
        """Restarts the waiting time of the request at `when_ns`, because the hub grants nothing before then."""
        if when_ns > self._began_ns:
            self._until_ns = when_ns + self._within_ns + LOST_MAX_NS
            self._began_ns = when_ns
            self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._began_ns = max(self._began_ns, now_ns)
        self._stood_ns = [shard.stood_by(now_ns) for shard in self._shards]

    def sleep_ns(self, now_ns: int) -> int:
        """Returns the nanoseconds for which the request may still sleep at `now_ns`; 0 if its time is over."""
        answered_ns = min(shard.acked_ns for shard in self._shards)
        if answered_ns == -NEVER_NS:
            self._asked_ns = 1 - NEVER_NS  # the hub has all its time after its first answer, also to an earlier batch
            return max(0, self._until_ns - now_ns)
        if answered_ns >= self._asked_ns:
            self._asked_ns = answered_ns + 1
            self._begin(now_ns)
        lost_ns = max(
            shard.stood_by(now_ns) - before_ns for shard, before_ns in zip(self._shards, self._stood_ns, strict=True)
        )
        left_ns = min(self._within_ns - (now_ns - self._began_ns) + lost_ns, self._until_ns - now_ns)
        if left_ns <= 0:
            return 0
        return max(left_ns, LOOK_NS) if lost_ns > 0 else left_ns
