"""How long to pause after failures: twice as long each time, up to a cap.

`exchange/syncer.py` asks it when an exchange has failed (`Syncer.failed`), and shortens the pause at random.
"""

# A node that is alone in failing loses little by asking once a second, and a hub that comes back is heard of within a
# second. The cap is part of the protocol: a hub that has lost its data waits until all nodes can have spoken, and that
# reckons with this cap. Whatever is spread at random on top must therefore only make a pause shorter.

from __future__ import annotations

from typing import Final

from reconverge.clock import SECOND_NS

BACKOFF_CAP_NS: Final = SECOND_NS
"""The longest pause, unless the interval itself is longer."""
DOUBLINGS_MAX: Final = 30
"""So many times a pause is doubled at most; the cap is reached long before, and numbers stay small."""


def backoff_ns(interval_ns: int, failures_in_a_row: int) -> int:
    """Returns how long to pause after one or more failures in a row: the interval, doubled with each failure."""
    doublings = min(failures_in_a_row - 1, DOUBLINGS_MAX)
    return min(interval_ns << doublings, max(interval_ns, BACKOFF_CAP_NS))
