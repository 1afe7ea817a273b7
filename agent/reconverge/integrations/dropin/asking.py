"""Lets a storage of another library ask the hub about a request that memory alone cannot decide.

A request may wait for the answer, because callers of a storage expect to wait for a server.
"""

# Theory of operation.
#
# A storage decides with `limiter.ask`, as guards do. So if a key of a fixed or sliding window is scarce (few requests
# are left), its free quota is kept at the hub, and no node is granted what it has not asked for.
#
# The hub cannot do this for a moving window: from the dates in reports, it cannot know how much of a node's use still
# counts, so it grants allowances ahead of need. Of a quota of five, four nodes would be granted one request each, and
# the fifth request would be granted to no node. So for a small quota of a moving window, nodes take no allowance ahead
# of need, and the unused part stays at the hub (`Table.leave_spare_at_hub`). If a node has not used what it was
# granted, it gives that back, which takes a little longer than the hub's answer to a question. So if the quota has room
# according to that answer, a refused request waits for its turn, for the rest of the time that `in_doubt` allows. At
# most as many requests wait for a key as its quota admits.
#
# Nothing waits on a thread that runs an event loop, because that would block the loop; there memory decides. From
# memory, the part that stays at the hub cannot be used, so nodes then take allowances ahead of need again.

from __future__ import annotations

import logging
from typing import Final

from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.decision import Decision
from reconverge.limiter.asking import within_s
from reconverge.limiter.certainty import is_alone, leave_spare_at_hub, leaves_spare_at_hub, others_hold
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

SMALL: Final = 32
"""The largest quota of a limit whose unused part stays at the hub: no node holds a part of it, so each admitted request
costs an exchange."""


class StorageAsking:
    """Decides by the limits of one storage, and asks the hub if memory alone cannot decide.

    Args:
        in_doubt: "ask:25ms" to wait for the hub's answer for at most 25 ms, or "refuse" to let memory decide; see
            `within_s`.
    """

    def __init__(self, in_doubt: object) -> None:
        self._within_s = within_s(in_doubt)
        self._logged = LoggedOnce()

    def prepare(self, limiter: RateLimiter) -> None:
        """If `limiter` has a small quota, makes nodes leave its unused part at the hub, so that no node holds it.

        Must be called when the limit is declared.
        """
        if self._within_s > 0 and _is_small(limiter):
            leave_spare_at_hub(limiter)

    def hit(self, limiter: RateLimiter, key: str, cost: int) -> Decision:
        """Decides as `limiter.hit` does. If memory is not certain, asks the hub, and blocks this thread meanwhile."""
        if self._within_s == 0:
            return limiter.hit(key, cost)
        if has_a_loop():
            self._do_without(limiter)
            return limiter.hit(key, cost)
        began_ns = SystemClock.monotonic_ns()
        decision = limiter.ask_blocking(key, cost, within=self._within_s)
        left_s = self._left_s(limiter, decision, key, cost, began_ns)
        if left_s <= 0:
            return decision
        return limiter.wait_blocking(key, cost, timeout=left_s, max_queue=limiter.limit.quota)

    async def hit_async(self, limiter: RateLimiter, key: str, cost: int) -> Decision:
        """Decides as `hit`, without blocking the event loop. Returns the decision."""
        if self._within_s == 0:
            return limiter.hit(key, cost)
        began_ns = SystemClock.monotonic_ns()
        decision = await limiter.ask(key, cost, within=self._within_s)
        left_s = self._left_s(limiter, decision, key, cost, began_ns)
        if left_s <= 0:
            return decision
        return await limiter.wait(key, cost, timeout=left_s, max_queue=limiter.limit.quota)

    def _left_s(self, limiter: RateLimiter, decision: Decision, key: str, cost: int, began_ns: int) -> float:
        """Returns the seconds for which a refused request may wait for quota that other nodes may give back.

        Returns 0 if the request must not wait.
        """
        if not leaves_spare_at_hub(limiter) or not others_hold(limiter, decision, key, cost):
            return 0.0
        return max(0.0, self._within_s - (SystemClock.monotonic_ns() - began_ns) / SECOND_NS)

    def _do_without(self, limiter: RateLimiter) -> None:
        if leaves_spare_at_hub(limiter):
            leave_spare_at_hub(limiter, leave=False)
        if _is_small(limiter) and self._logged.is_new():
            logger.warning(
                "reconverge: the limit %r is used on the thread of an event loop, which must not wait for the hub, so"
                " the node decides from its memory, and may refuse or admit requests of small quotas wrongly. Where the"
                " library can await its storage, write async+reconverge+redis://",
                limiter.name,
            )


def _is_small(limiter: RateLimiter) -> bool:
    """Returns whether a limit has a quota of at most SMALL, and there may be other nodes.

    Returns False with a manual clock, with which a wait might never end.
    """
    return limiter.limit.quota <= SMALL and not is_alone(limiter) and not isinstance(limiter.control.clock, ManualClock)
