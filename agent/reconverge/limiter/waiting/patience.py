"""Measures how long a request has waited for the hub, without the times in which this process stood still."""

# Theory of operation.
#
# The problem. A request waits for the hub for 25 ms, and then memory decides, which may admit more than is left. On
# busy cores, or beside a handler that computes, that time passes while nothing of this process runs: the answer has
# come, but nothing has read it. Of five requests a minute such a fleet admitted ten to sixteen.
#
# How it works. The loop or thread that exchanges records for how long it stood still (`AskState.stood_by`): the time
# from a request's question until the batch is taken, and all delays of the loop's turns while a batch is under way.
# That time does not count, up to LOST_MAX_NS. It does no harm if the loop or thread of the request itself stands still:
# it reads the answer before it checks the time.
#
# The same holds before a hub has answered for the first time: the process has just started, must resolve the name,
# connect and present its credentials, and all workers of the machine do so at once. Then a request waits until
# LOST_MAX_NS are over. It is woken earlier if the connection fails. After one request has waited in vain, no other
# waits.
#
# A new hub grants no strict limit in its first second; a request then waits as if it had come at the end of that time.
#
# A request that still waits after an answer was not refused: another request has used the grant, and the hub is asked
# again. The request gets the whole time for each answer (`asked_ns` is from when a report carries the request);
# otherwise memory would decide only because the request was late to read a grant. Each such answer admits a request of
# the key, so there are few; and LOST_MAX_NS bounds the total.

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
    """Measures the time for which one request may still wait for the hub; standstills of this process do not count."""

    def __init__(self, shards: Sequence[ShardState], within_ns: int, began_ns: int, asked_ns: int) -> None:
        """Begins to measure. The request waits for answers of `shards`, and may wait for `within_ns` nanoseconds.

        It has waited since `began_ns`. Reports to the hub that are made after `asked_ns` contain its question.
        """
        self._within_ns = within_ns
        self._until_ns = began_ns + within_ns + LOST_MAX_NS
        self._shards = shards
        self._asked_ns = asked_ns
        self._began_ns = began_ns
        self._begin(began_ns)

    def begin_at(self, when_ns: int, now_ns: int) -> None:
        """Makes the request's waiting time begin at `when_ns`, because the hub grants nothing before that moment."""
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
