"""As far as the fleet's total allows, as far as is known."""

from __future__ import annotations

from math import floor

from reconverge.policies.balanced import hot_step
from reconverge.policies.view import View


def available(view: View) -> int:
    """Whatever the others have most likely not used, while the key is calm; on a hot key as `balanced`.

    Practically never refuses too early, and goes on when the hub is away; over-admits by up to the limit on each node
    when a calm key bursts on all nodes within one round trip.
    """
    left = floor(view.capacity - view.others)
    if view.calm:
        return max(view.line, left)
    return max(view.line, min(view.line + hot_step(view), left))
