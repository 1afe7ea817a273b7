"""The pause after failures: twice as long with each failure, up to a cap.

`Syncer.failed` in `exchange/syncer.py` computes the pause after a failed exchange here, and shortens it at random.
"""

# A node whose exchanges alone fail loses little by trying once a second, and every node notices within a second that a
# hub is back. The cap is part of the protocol: a hub that has lost its data waits until all nodes can have reported,
# and computes that time from this cap. So a random part may only make a pause shorter.

from __future__ import annotations

from typing import Final

from reconverge.clock import SECOND_NS

BACKOFF_CAP_NS: Final = SECOND_NS
"""The longest pause in nanoseconds; if the interval is longer, the pause is the interval."""
DOUBLINGS_MAX: Final = 30
"""The most times that a pause is doubled. The cap is reached long before; this keeps numbers small."""


def backoff_ns(interval_ns: int, failures_in_a_row: int) -> int:
    """Returns the nanoseconds to pause: the interval, doubled for each failure in a row but the first.

    A pause is at most BACKOFF_CAP_NS, or the interval if that is longer.
    """
    doublings = min(failures_in_a_row - 1, DOUBLINGS_MAX)
    return min(interval_ns << doublings, max(interval_ns, BACKOFF_CAP_NS))
