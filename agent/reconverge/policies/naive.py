"""What others do, to compare with: believe the last merged total."""

from __future__ import annotations

from math import floor

from reconverge.policies.view import View


def naive(view: View) -> int:
    """Whatever the others had not used when they were last heard of, as gateways with periodic counters do it.

    Never refuses too early. Over-admits by all that the others do between two exchanges, and in a partition by the
    whole limit on each side. For comparison only.
    """
    return floor(view.capacity - view.heard)
