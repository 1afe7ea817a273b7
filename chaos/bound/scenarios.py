"""Adapts scenarios of the catalogue to the model: the same faults and requests, with a limit that the model has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from chaos.fleet.plan import Request
from chaos.names import LIMIT_NAME, OURS
from chaos.scenarios.scenario import Scenario
from reconverge.kernel.shard import shard_of
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_SLICES, Limit
from reconverge.policies import choose
from reconverge.settings import lease_min_s
from reconverge.simulation.model.bound.watching_hub import is_bound
from reconverge.simulation.model.bound.worlds import KEYS_MAX

KINDS: Final = {"fixed": FIXED_WINDOW, "log": SLIDING_LOG, "slices": SLIDING_SLICES}
POLICIES: Final = ("strict", "balanced")


def bound(scenario: Scenario, kind: str, policy: str, short: bool = False) -> Scenario:  # noqa: FBT001, FBT002
    """Returns a scenario with a limit of `kind` under `policy`, our fleet alone, and the kernel in Python.

    If `short`, leases are as short as may be.
    """
    limit = Limit(scenario.limit.quota, scenario.limit.window, algorithm=KINDS[kind])
    assert is_bound(limit, choose(policy, cold_allowance=0.0))
    return replace(
        scenario,
        bound=True,
        limit=limit,
        policy_name=policy,
        cold_allowance=0.0,
        lease_s=lease_min_s(scenario.interval_s, scenario.timeout_s) if short else scenario.lease_s,
        pure_nodes=tuple(range(scenario.nodes)),
        rivals=(),
        expectations=(),
    )


def to_follow(scenario: Scenario, requests: Iterable[Iterable[Request]], shards: int) -> tuple[str, ...]:
    """Returns the keys to follow: those with the most requests, up to KEYS_MAX.

    If there are several shards, that is one key, of a shard that a fault concerns.
    """
    asked = Counter(request.key for share in requests for request in share)
    keys = [key for key, _ in asked.most_common()]
    if shards == 1:
        return tuple(keys[:KEYS_MAX])
    hit = frozenset[int]().union(*(spell.shards or range(shards) for spell in scenario.spells))
    return (next(key for key in keys if shard_of(range(shards), OURS, LIMIT_NAME, key) in hit),)
