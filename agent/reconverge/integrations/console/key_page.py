"""Describes the use of one key for each quota of a limit, on all nodes together, in numbers and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconverge.agent import Agent
from reconverge.agent.fleet_usage import FleetUsage, read_declared
from reconverge.contracts.model import same_cells
from reconverge.errors import HubUnavailable
from reconverge.hub.port import Hub
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import TIER, limit_of_quota
from reconverge.limiter.faces.limiter import Limiter


async def key_standing(agent: Agent, limits: Mapping[str, Limit], name: str, key: str) -> dict[str, Any]:
    """Returns the use of a key in the limit `name`, for each quota in `limits`. Raises InvalidKey.

    If several plans of contracts have the limit, they share one count of the key, and only the quota of the key's own
    plan is returned. If the hub does not answer, returns the numbers that this process knows, if it has the limit.
    """

    async def read(hub: Hub) -> dict[str, FleetUsage]:
        return await read_declared(limits, key, hub, agent.namespace)

    problem = ""
    usages: Mapping[str, FleetUsage] = {}
    try:
        usages = await agent.ask_hub(read)
    except HubUnavailable as error:
        problem = f"the hub does not answer ({error.kind}); the figures are those of this process"
        limiter = _limiter_here(agent, name, key)
        if limiter is not None:
            usages = await agent.fleet_usages(limiter, key)
    usages = _one_of_each_count(usages, limits)
    return {
        "limit": name,
        "key": key,
        "problem": problem,
        "quotas": [_table(quota, limits[quota], usage) for quota, usage in usages.items() if quota in limits],
    }


def _limiter_here(agent: Agent, name: str, key: str) -> Limiter | None:
    limiter = agent.limiters.get(name)
    if limiter is not None and not limiter.control.is_tier:
        return limiter
    tiers = [each for each in list(agent.limiters.values()) if each.control.is_tier and name in each.control.addresses]
    return next((each for each in tiers if key in each.control.table.cells), None)


def _one_of_each_count(usages: Mapping[str, FleetUsage], limits: Mapping[str, Limit]) -> dict[str, FleetUsage]:
    """Returns `usages` with only one quota for each count of the key: the quota of the key's own plan.

    Several plans may share a count. For each of their quotas, the hub answers with the quota's capacity, or with that
    of the key's own quota if this is smaller. So the largest capacity in the answers is that of the own quota, which is
    the smallest quota with this answer.
    """
    chosen: dict[str, FleetUsage] = {}
    for name in sorted(usages, key=lambda each: limits[each].capacity if each in limits else 0):
        beside = next((each for each in chosen if _count_alike(name, each, limits)), None)
        if beside is None or usages[name].limit > chosen[beside].limit:
            chosen.pop(beside or "", None)
            chosen[name] = usages[name]
    return chosen


def _count_alike(one: str, other: str, limits: Mapping[str, Limit]) -> bool:
    if TIER not in one or limit_of_quota(one) != limit_of_quota(other) or not {one, other} <= limits.keys():
        return False
    return same_cells(limits[one], limits[other])


def _table(quota: str, limit: Limit, usage: FleetUsage) -> dict[str, Any]:
    return {
        "name": quota,
        "said": str(limit),
        "used": usage.used,
        "left": usage.left,
        "allowances": usage.allowances,
        "limit": usage.limit,
        "nodes": usage.nodes,
        "next_free_s": usage.next_free,
        "learning_s": usage.learning,
        "fleetwide": usage.fleetwide,
        "sentence": sentence_of(usage),
    }


def sentence_of(usage: FleetUsage) -> str:
    """Returns a sentence for people: how much is left; or why requests are refused, and when the next one fits."""
    if usage.learning > 0:
        return (
            f"The hub has lost data and grants nothing of this key for {_written(usage.learning)}: nodes keep the"
            " allowances that they had."
        )
    if usage.left <= 0:
        free = f"one fits in {_written(usage.next_free)}" if usage.next_free > 0 else "one fits again at any moment"
        beyond = f", {usage.used - usage.limit} more than the limit" if usage.used > usage.limit else ""
        return f"Requests are refused: {usage.used} of {usage.limit} are used{beyond}; {free}, if nothing more is used."
    where = (
        f"{usage.allowances} of them are granted to {usage.nodes} nodes as allowances"
        if usage.allowances
        else "none of them is granted yet"
    )
    return f"{usage.left} of {usage.limit} are left; {where}."


def _written(seconds: float) -> str:
    for unit, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {word}"
    return f"{seconds:.1f} s"
