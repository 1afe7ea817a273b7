"""The policies, by name, with their settings. A policy decides how far a node may go beyond its allowance.

`kernel/table/slow_path.py` calls the policies, and for a paced limit `kernel/table/waiter.py`. They also exist in C, in
`kernel/native/reach.c`.
"""

# Theory of operation of the policy `balanced`.
#
# Allowances alone refuse too early: they are whole numbers, and arrive an exchange after the traffic. But a node that
# exceeds its allowance because it estimates that the others have used little admits too much: 5.5 % of the limit in the
# study behind the protocol, and up to 80 % when a crowd comes to all nodes at once. So the excess is bounded, and
# allowed only where the whole fleet is likely to stay within the limit:
#
# - The overdraft is a second allowance. The hub grants it like the first, so that those of all nodes sum to
#   `max_overshoot` of the capacity at most, whatever the nodes believe of each other.
# - On a calm key (all demand fits into the quota) a node may use its overdraft. On a hot key it may exceed the
#   allowance by one request, or a hundredth of its share: enough to make up for allowances being whole numbers. Without
#   this step limits of 20 refused 10 % too early in the study, with it 5 %; two requests gained next to nothing more.
#   The step is taken only in fixed windows, and not before the hub has answered in this window: at its start a crowd
#   may come to all nodes at once, and each of them would take a step.
# - Without a recent answer of the hub nothing is added: a node that is cut off has its allowance, and no more.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reconverge.errors import InvalidSetting, asked
from reconverge.hub.report import UNBOUNDED

OVERSHOOT_MIN = 0.001
"""The smallest overshoot other than 0: overdrafts are granted in thousandths of the capacity."""
OVERSHOOT_MAX = 1.0
"""The largest finite overshoot, the whole limit; a larger number was probably meant as a percentage."""


HUB: Final = "hub"
NODES: Final = "nodes"
SHARE: Final = "share"
"""The value of `cold_allowance` that stands for the quota divided by the number of nodes. As the value of
`when_hub_is_away`: a node goes on with its own parts of the quotas."""
ADMIT: Final = "admit"


class View(NamedTuple):
    """One node's knowledge of one key, by which a policy decides. Amounts are in cost, rates in cost per second."""

    capacity: int
    quota: int
    window_ns: int
    aligned: bool
    """Whether the limit has fixed windows, so that the count starts at zero with every window."""
    cost: int
    """The cost of the request that is being decided."""
    own: int
    """The cost charged by this node that still counts, rounded up."""
    allowance: int
    overdraft: int
    heard: float
    """The cost charged by the other nodes as of the hub's last answer, less the part that has expired since."""
    others: float
    """An estimate of the cost charged by the other nodes until now, if each has gone on at its last reported rate."""
    demand: float
    """The cost per second that requests at all nodes together asked for, admitted or refused."""
    own_demand: float
    last_demand: int
    """The cost that requests at all nodes together asked for in the previous window, admitted or refused."""
    nodes: int
    passed_ns: int
    """How much of the current window has passed, in nanoseconds."""
    staleness_ns: int
    interval_ns: int

    @property
    def fresh(self) -> bool:
        """Returns whether the hub's last answer is recent enough to admit anything beyond the allowance."""
        return self.staleness_ns <= FRESH_INTERVALS * self.interval_ns

    @property
    def calm(self) -> bool:
        """Returns whether the demand that is expected in this window is likely to fit into the quota."""
        if self.last_demand > self.quota:
            return False
        left_ns = self.window_ns - self.passed_ns if self.aligned else self.window_ns
        expected = max(self.demand, self.own_demand) * left_ns / 1e9
        used = self.own + self.others if self.aligned else 0.0
        return used + expected <= self.quota


FRESH_INTERVALS = 3
"""How many sync intervals old the hub's last answer may be; if it is older, exchanges have failed."""


def strict(view: View) -> int:
    """Returns the most cost that the node may have charged to the key: its allowance, and nothing beyond."""
    return view.allowance


HOT_SHARE = 0.01
"""On a hot key a node may go past its allowance by this share of the capacity, divided by the number of nodes."""


def balanced(view: View) -> int:
    """Returns the allowance plus a step beyond it, as far as all nodes together will probably stay within the limit.

    The step is the overdraft, which the hub grants, or less on a hot key (`hot_step`). Beyond the limit, the nodes
    together admit at most their overdrafts, and one request each. A node refuses too early only when traffic moves
    between nodes faster than they exchange, and its overdraft is too small. If the hub's last answer is too old,
    returns the allowance alone.
    """
    if not view.fresh:
        return view.allowance
    if view.calm:
        step = max(view.cost, view.overdraft)
    else:
        step = hot_step(view)
    return min(view.allowance + step, math.floor(view.capacity - view.others))


def hot_step(view: View) -> int:
    """Returns by how much cost a node may exceed its allowance on a hot key, whose demand does not fit into the quota.

    That is the cost of one request or, if more, a hundredth of the node's share of the capacity, up to the overdraft.
    It makes up for allowances being whole numbers. The result is 0 for limits without fixed windows. It is also 0 at
    the start of a window until the hub has answered, as a crowd may come to all nodes then.
    """
    settled_ns = min(view.interval_ns, view.window_ns) // 2
    if not view.aligned or view.passed_ns - view.staleness_ns < settled_ns:
        return 0
    return max(view.cost, min(view.overdraft, math.floor(HOT_SHARE * view.capacity / max(1, view.nodes))))


def available(view: View) -> int:
    """Returns the capacity less the other nodes' expected use if the key is calm; if it is hot, decides as `balanced`.

    A key is calm while its demand fits into the quota. Practically never refuses too early, and goes on admitting while
    the hub is away. When a burst of requests for a calm key reaches all nodes within one exchange, each node may admit
    as much as the whole limit.
    """
    left = math.floor(view.capacity - view.others)
    if view.calm:
        return max(view.allowance, left)
    return max(view.allowance, min(view.allowance + hot_step(view), left))


def naive(view: View) -> int:
    """Returns the capacity less the use of the other nodes that the hub has reported last.

    Gateways that exchange counters periodically decide like this. Never refuses too early. The nodes together exceed
    the limit by all that they admit between two exchanges, and in a partition by the whole limit on each side. This
    policy is for comparisons only.
    """
    return math.floor(view.capacity - view.heard)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: `reach` returns the most cost that a node may have charged to a key, and settings bound the result."""

    name: str
    reach: Callable[[View], int]
    max_overshoot: float
    """The share of the capacity that the overdrafts of all nodes on a key may sum to."""
    cold_allowance: float | str
    """The fraction of the capacity that a node may admit on a key before the hub's first answer about it; or SHARE."""
    keeps_allowances: bool = False
    """Whether a node goes on using its allowances after its lease at the hub has ended."""
    merged_only: bool = False
    """Whether the policy ignores allowances, and decides only by the total use that the hub has merged."""
    scarce: str = HUB
    """Where the last few free requests of a key are kept while requests in doubt ask the hub: at the hub, which grants
    what each of them asks for, or at the nodes, to which the hub grants allowances in advance."""
    when_hub_is_away: str = SHARE
    """How a node decides while the hub does not answer it: SHARE, by its allowances and sealed shares as always; ADMIT,
    as `naive`, so that each node admits up to the whole quota."""

    @property
    def keeps_at_hub(self) -> bool:
        """Returns whether the hub may keep the last free requests of a key, in place of granting them in advance.

        That is so if `scarce` is HUB and the overshoot is bounded.
        """
        return self.scarce == HUB and not math.isinf(self.max_overshoot)

    @property
    def overshoot_milli(self) -> int:
        """Returns `max_overshoot` in thousandths, as a report carries it; UNBOUNDED if it is infinite."""
        return UNBOUNDED if math.isinf(self.max_overshoot) else math.floor(self.max_overshoot * 1000 + 1e-9)

    def bound(self, capacity: int, nodes: int, cost_max: int = 1) -> float:
        """Returns the most cost above the capacity that all nodes together may admit in one window.

        Nodes to which the hub has never answered about the key may admit more; see `cold`. With ADMIT this is the bound
        while nodes are cut off from the hub; otherwise the bound is that of SHARE.
        """
        if math.isinf(self.max_overshoot) or self.merged_only or self.when_hub_is_away == ADMIT:
            return float(capacity * (nodes - 1))
        if self.max_overshoot == 0:
            return 0.0
        return capacity * self.max_overshoot + nodes * cost_max

    def cold(self, capacity: int, nodes: int, cost_max: int = 1) -> float:
        """Returns the most cost that one node may admit on a key before the hub's first answer about the key.

        `nodes` is the number of nodes in the hub's last answer to this node; 0 if there was none. If `cold_allowance`
        is SHARE, the result is `capacity` divided by `nodes`, but no less than one request of `cost_max`; for 0 nodes
        it is the whole `capacity`. So N nodes that know of each other admit the capacity and N requests at most.
        """
        if self.cold_allowance != SHARE:
            return float(self.cold_allowance) * capacity
        return float(max(-(-capacity // nodes), min(cost_max, capacity)) if nodes > 0 else capacity)


STRICT = Policy("strict", strict, max_overshoot=0.0, cold_allowance=0.0)
BALANCED = Policy("balanced", balanced, max_overshoot=0.1, cold_allowance=SHARE)
AVAILABLE = Policy("available", available, max_overshoot=math.inf, cold_allowance=1.0, keeps_allowances=True)
NAIVE = Policy("naive", naive, max_overshoot=math.inf, cold_allowance=1.0, keeps_allowances=True, merged_only=True)

SLOTS_DEFAULT = STRICT
"""The policy of limits on work in progress. Work beyond the limit would need a connection or memory that is missing;
and a slot is free again when its work ends, so a refusal is soon over."""

POLICIES = {policy.name: policy for policy in (STRICT, BALANCED, AVAILABLE, NAIVE)}


def choose(
    name: str | None = None,
    *,
    max_overshoot: float | None = None,
    cold_allowance: float | str | None = None,
    scarce: str | None = None,
    when_hub_is_away: str | None = None,
    default: Policy = BALANCED,
) -> Policy:
    """Returns the policy `name`, or the one that `max_overshoot` implies, with the other settings that are not None.

    If `name` and `max_overshoot` are both None, the policy is `default`.

    Raises:
        InvalidSetting: the name is unknown, a number is out of range, or settings contradict each other.
    """
    if name is not None and (not isinstance(name, str) or name not in POLICIES):
        raise InvalidSetting("policy", name, f"is no policy; known: {', '.join(POLICIES)}{asked(name, POLICIES)}")
    if max_overshoot is not None and not _is_share(max_overshoot, math.inf):
        problem = "must be a number of 0 or more; 0.1 allows 10 % above the limit"
        raise InvalidSetting("max_overshoot", max_overshoot, problem)
    if max_overshoot is not None and 0 < max_overshoot < OVERSHOOT_MIN:
        raise InvalidSetting("max_overshoot", max_overshoot, f"must be 0 or at least {OVERSHOOT_MIN}")
    if max_overshoot is not None and OVERSHOOT_MAX < max_overshoot < math.inf:
        problem = "is a share of the limit, at most 1; write 0.1 for 10 %, or inf for no bound, or raise the limit"
        raise InvalidSetting("max_overshoot", max_overshoot, problem)
    if cold_allowance is not None and cold_allowance != SHARE and not _is_share(cold_allowance, 1.0):
        problem = f"must be {SHARE!r}, for the limit divided by the number of nodes, or a part of the limit from 0 to 1"
        raise InvalidSetting("cold_allowance", cold_allowance, problem)
    if name is None:
        policy = default if max_overshoot is None else _meant_by(max_overshoot)
    else:
        policy = POLICIES[name]
        if max_overshoot is not None and _meant_by(max_overshoot).reach is not policy.reach:
            raise InvalidSetting(
                "max_overshoot", max_overshoot, f"does not go with the policy {name!r}; leave one of the two out"
            )
    if max_overshoot is not None:
        policy = replace(policy, max_overshoot=float(max_overshoot))
    if cold_allowance is not None:
        if policy.max_overshoot == 0 and cold_allowance != 0:
            problem = "must be 0 in strict, a policy that never exceeds the limit"
            if name is None and max_overshoot is None:
                problem += "; limits on work in progress are strict by default; add policy='balanced'"
            raise InvalidSetting("cold_allowance", cold_allowance, problem)
        policy = replace(policy, cold_allowance=cold_allowance if cold_allowance == SHARE else float(cold_allowance))
    return _with_scarce(_with_away(policy, when_hub_is_away), scarce)


def _with_away(policy: Policy, when_hub_is_away: object) -> Policy:
    if when_hub_is_away is None:
        return policy
    if when_hub_is_away not in (SHARE, ADMIT):
        problem = (
            f"must be {SHARE!r} (each node goes on with its own part of a quota) or {ADMIT!r} (each node admits up to"
            " the whole quota)"
        )
        raise InvalidSetting("when_hub_is_away", when_hub_is_away, problem)
    if math.isinf(policy.max_overshoot):
        problem = f"has no effect in {policy.name!r}, which goes on admitting without the hub anyway; leave it out"
        raise InvalidSetting("when_hub_is_away", when_hub_is_away, problem)
    return replace(policy, when_hub_is_away=str(when_hub_is_away))


def _with_scarce(policy: Policy, scarce: object) -> Policy:
    if scarce is None:
        return policy
    if scarce not in (HUB, NODES):
        raise InvalidSetting(
            "scarce",
            scarce,
            f"must be {HUB!r} or {NODES!r}: the side that keeps the last few free requests of a key",
        )
    if scarce == HUB and math.isinf(policy.max_overshoot):
        raise InvalidSetting(
            "scarce", scarce, f"has no effect in {policy.name!r}, whose keys are never kept at the hub; leave it out"
        )
    return replace(policy, scarce=str(scarce))


def _meant_by(max_overshoot: float) -> Policy:
    if max_overshoot == 0:
        return STRICT
    return AVAILABLE if math.isinf(max_overshoot) else BALANCED


def _is_share(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
