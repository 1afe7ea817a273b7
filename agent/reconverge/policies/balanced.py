"""A bounded step past the line, in calm times the larger one."""

# Theory of operation.
#
# Lines alone refuse too early: they are whole numbers, and arrive an exchange after the traffic. To go past the line on
# an estimate of what the others have used by now admits too much: 5.5 % of the limit in the study behind the protocol,
# and up to 80 % when a crowd comes to all nodes at once. So the step is bounded, and taken only where the whole fleet
# is likely to stay inside:
#
# - The overdraft is a second line. The hub grants it like the first, so that those of all nodes sum to `max_overshoot`
#   of the capacity at most, whatever the nodes believe of each other.
# - On a calm key (all that is being asked for fits into the quota) a node may use its overdraft. On a hot key it may go
#   past the line by one request, or a hundredth of its share: enough to make up for lines being whole numbers. Without
#   that step limits of 20 refused 10 % too early in the study, with it 5 %; two requests gained next to nothing more.
#   Only in fixed windows, and not before an answer from this window is there: at its start a crowd may come to all
#   nodes at once, and each of them would take a step.
# - Nothing without a fresh answer: a node that is cut off has its line, and no more.

from __future__ import annotations

from math import floor

from reconverge.policies.view import View

HOT_SHARE = 0.01
"""On a hot key the step is at most this share of the capacity, divided among the nodes."""


def balanced(view: View) -> int:
    """The line, and past it the overdraft that the hub has granted, while the whole fleet is expected to stay inside.

    Over-admits by at most the sum of the overdrafts, and one request on each node; refuses early only when traffic
    moves faster than exchanges and the overdraft does not reach either. Dares nothing once answers are missing.
    """
    if not view.fresh:
        return view.line
    if view.calm:
        step = max(view.cost, view.overdraft)
    else:
        step = hot_step(view)
    return min(view.line + step, floor(view.capacity - view.others))


def hot_step(view: View) -> int:
    """One request, or a hundredth of the node's share: enough to make up for lines being whole numbers.

    Only in fixed windows, and only once an answer has come from this window, so that the crowd at its start is known.
    """
    settled_ns = min(view.interval_ns, view.window_ns) // 2
    if not view.aligned or view.passed_ns - view.staleness_ns < settled_ns:
        return 0
    return max(view.cost, min(view.overdraft, floor(HOT_SHARE * view.capacity / max(1, view.nodes))))
