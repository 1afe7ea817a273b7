"""What a node knows of one key at one moment, for a policy to judge by."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """One key as one node sees it. Amounts are cost; rates are cost per second."""

    capacity: int
    quota: int
    window_ns: int
    aligned: bool
    """Whether the count starts at zero with every window."""
    cost: int
    """What the request at hand would use up."""
    own: int
    """What this node has used, rounded up."""
    line: int
    overdraft: int
    heard: float
    """What the others had used at the last answer, less what has faded since."""
    others: float
    """What the others may have used by now, if they go on as they did."""
    demand: float
    """What all nodes together are asked for."""
    own_demand: float
    last_demand: int
    """What all nodes together were asked for in the window before."""
    nodes: int
    passed_ns: int
    """How much of the window has passed."""
    staleness_ns: int
    interval_ns: int

    @property
    def fresh(self) -> bool:
        """Whether the last answer is recent enough to dare anything on."""
        return self.staleness_ns <= FRESH_INTERVALS * self.interval_ns

    @property
    def calm(self) -> bool:
        """Whether all that is being asked for is likely to fit into the quota."""
        if self.last_demand > self.quota:
            return False
        left_ns = self.window_ns - self.passed_ns if self.aligned else self.window_ns
        expected = max(self.demand, self.own_demand) * left_ns / 1e9
        used = self.own + self.others if self.aligned else 0.0
        return used + expected <= self.quota


FRESH_INTERVALS = 3
"""An answer older than this many exchanges means that some were missed."""
