"""How far past its line a node may go: each policy by name, with its settings.

The functions are in `reach.py`; `kernel/table/slow_path.py` asks them, and `kernel/native/reach.c` has their twins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconverge.errors import InvalidSetting, asked
from reconverge.hub.report import UNBOUNDED
from reconverge.policies.reach import View, available, balanced, naive, strict

__all__ = ["AVAILABLE", "BALANCED", "NAIVE", "POLICIES", "STRICT", "Policy", "View", "choose"]


OVERSHOOT_MIN = 0.001
"""Overdrafts are dealt out in thousandths of the capacity."""
OVERSHOOT_MAX = 1000.0
"""Larger ones, of the largest quota, would not fit into the numbers that a hub can count with."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How much a node dares: a function from what it knows to how far its own use may reach, and three numbers."""

    name: str
    reach: Callable[[View], int]
    max_overshoot: float
    """The overdraft lines of all nodes sum to at most this share of the capacity."""
    cold_allowance: float
    """The share of the capacity that a node may admit on a key of which it has never heard from the hub."""
    keeps_lines: bool = False
    """Whether the lines stay in use when the node's lease is over."""
    merged_only: bool = False
    """Whether lines are of no interest at all, only merged totals."""

    @property
    def overshoot_milli(self) -> int:
        """`max_overshoot` as it travels in a report."""
        return UNBOUNDED if math.isinf(self.max_overshoot) else math.floor(self.max_overshoot * 1000 + 1e-9)

    def bound(self, capacity: int, nodes: int, cost_max: int = 1) -> float:
        """The declared bound on what a window may admit above the capacity, for a key known on all nodes, in cost."""
        if self.max_overshoot == 0:
            return 0.0
        if math.isinf(self.max_overshoot) or self.merged_only:
            return float(capacity * (nodes - 1))
        return capacity * self.max_overshoot + nodes * cost_max


STRICT = Policy("strict", strict, max_overshoot=0.0, cold_allowance=0.0)
BALANCED = Policy("balanced", balanced, max_overshoot=0.1, cold_allowance=1.0)
AVAILABLE = Policy("available", available, max_overshoot=math.inf, cold_allowance=1.0, keeps_lines=True)
NAIVE = Policy("naive", naive, max_overshoot=math.inf, cold_allowance=1.0, keeps_lines=True, merged_only=True)

POLICIES = {policy.name: policy for policy in (STRICT, BALANCED, AVAILABLE, NAIVE)}


def choose(
    name: str | None = None, *, max_overshoot: float | None = None, cold_allowance: float | None = None
) -> Policy:
    """The policy of that name, or the one that a `max_overshoot` means, with the given numbers in place of its own.

    Raises:
        InvalidSetting: the name is unknown, a number is out of range, or name and number contradict each other.
    """
    if name is not None and (not isinstance(name, str) or name not in POLICIES):
        raise InvalidSetting("policy", name, f"unknown; known: {', '.join(POLICIES)}{asked(name, POLICIES)}")
    if max_overshoot is not None and not _is_share(max_overshoot, math.inf):
        raise InvalidSetting("max_overshoot", max_overshoot, "must be 0 or more; 0.1 allows 10 % above the limit")
    if max_overshoot is not None and 0 < max_overshoot < OVERSHOOT_MIN:
        raise InvalidSetting("max_overshoot", max_overshoot, f"must be 0 or at least {OVERSHOOT_MIN}")
    if max_overshoot is not None and OVERSHOOT_MAX < max_overshoot < math.inf:
        problem = f"is a share of the limit, and must be at most {OVERSHOOT_MAX:g}, or infinite; 0.1 is 10 %"
        raise InvalidSetting("max_overshoot", max_overshoot, problem)
    if cold_allowance is not None and not _is_share(cold_allowance, 1.0):
        raise InvalidSetting("cold_allowance", cold_allowance, "must be from 0 to 1, a share of the limit")
    if name is None:
        policy = _meant_by(max_overshoot)
    else:
        policy = POLICIES[name]
        if max_overshoot is not None and _meant_by(max_overshoot).reach is not policy.reach:
            raise InvalidSetting(
                "max_overshoot", max_overshoot, f"does not go with the policy {name!r}; give one of them"
            )
    if max_overshoot is not None:
        policy = replace(policy, max_overshoot=float(max_overshoot))
    if cold_allowance is not None:
        if policy.max_overshoot == 0 and cold_allowance > 0:
            raise InvalidSetting("cold_allowance", cold_allowance, "must be 0 in strict, which never exceeds the limit")
        policy = replace(policy, cold_allowance=float(cold_allowance))
    return policy


def _meant_by(max_overshoot: float | None) -> Policy:
    if max_overshoot is None:
        return BALANCED
    if max_overshoot == 0:
        return STRICT
    return AVAILABLE if math.isinf(max_overshoot) else BALANCED


def _is_share(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
