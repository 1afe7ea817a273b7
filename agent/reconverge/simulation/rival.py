"""What others do, to compare with: believe the merged total, and expect the others to go on as they did."""

from __future__ import annotations

import math
from math import floor
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.policies import POLICIES, Policy, View


def predictive(view: View) -> int:
    """Whatever the others are not expected to have used by now, at the pace at which they were last seen to use it.

    As token buckets do it that predict their peers. Over-admits when traffic changes faster than exchanges; in a
    partition the expectation grows old. For comparison only.
    """
    if view.aligned:
        seen_ns = view.passed_ns - view.staleness_ns
        pace = view.heard / seen_ns if seen_ns > 0 else 0.0
    else:
        pace = min(max(0.0, view.demand - view.own_demand) / SECOND_NS, view.quota / view.window_ns)
    return floor(view.capacity - view.heard - pace * (view.staleness_ns + view.interval_ns // 2))


PREDICTIVE: Final = Policy(
    "predictive", predictive, max_overshoot=math.inf, cold_allowance=1.0, keeps_lines=True, merged_only=True
)

COMPARED: Final = {**POLICIES, PREDICTIVE.name: PREDICTIVE}
"""Every policy that a simulation can run, ours and others'."""
