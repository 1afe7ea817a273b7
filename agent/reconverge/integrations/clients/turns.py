"""Waits on the calling thread until a limit admits a call, even if the thread runs an event loop, as in a notebook."""

# A cell of a notebook runs in an event loop, and a call of `requests` in it blocks that loop, whether a limit waits or
# not. So such a call may wait, too, but not in the queue: a coroutine of the same loop may be first in the queue, and
# could never leave it while the loop is blocked.

from __future__ import annotations

import logging
import threading
from typing import Final
from weakref import WeakSet

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.decision import Decision
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.interruptions import has_a_loop

logger = logging.getLogger("reconverge")

NAP_MIN_S: Final = 0.001
NAP_MAX_S: Final = 3600.0
"""The longest single sleep, in seconds."""
_logged: Final = WeakSet[RateLimiter]()
"""The limiters for which the warning about a blocked event loop was logged."""


def wait_for_turn(
    limiter: RateLimiter,
    key: str,
    cost: int,
    *,
    timeout_s: float | None,
    max_queue: int | None,
    kind: str | None,
    within_s: float,
) -> Decision:
    """Waits as `RateLimiter.wait_blocking` does, if no event loop runs on this thread.

    On an event loop's thread, logs a warning once for each limiter, and then sleeps and calls `limiter.hit` again until
    the call is admitted or `timeout_s` is over; such a call has no place in the queue.
    """
    if not has_a_loop():
        return limiter.wait_blocking(key, cost, timeout=timeout_s, max_queue=max_queue, kind=kind, within=within_s)
    began_ns = SystemClock.monotonic_ns()
    while True:
        decision = limiter.hit(key, cost, kind)
        waited_s = (SystemClock.monotonic_ns() - began_ns) / SECOND_NS
        late = timeout_s is not None and waited_s + decision.retry_after > timeout_s
        if decision or late or max_queue == 0:
            return decision
        if limiter not in _logged:
            _logged.add(limiter)
            logger.warning(
                "reconverge: a call by limit %r waits on the thread of an event loop, and blocks that loop meanwhile;"
                " outside of notebooks, call with httpx.AsyncClient or on another thread",
                limiter.name,
            )
        threading.Event().wait(min(max(decision.retry_after, NAP_MIN_S), NAP_MAX_S))  # fork: this call alone uses it
