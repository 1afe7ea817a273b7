"""Caps: the most to which published settings may raise a limit on a node."""

# A secret can be stolen, and a publisher can make mistakes. So the cap is applied on the node, each time its own limit
# or the published one changes, and a published limit string changes only quota and burst: with lower costs or another
# algorithm it could evade the cap.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.limit.grammar import Quota, parse_quotas
from reconverge.limit.limit import BURSTING, Limit
from reconverge.policies import BALANCED, OVERSHOOT_MIN, STRICT, Policy
from reconverge.published.layered import Layered

Quotas: TypeAlias = "dict[str, Limit]"
"""The quotas of a limit, by name."""


def layered_quotas(name: str, own: Quotas, text: str | None, caps: Quotas | None) -> Layered[Quotas]:
    """Returns a limit's quotas as a `Layered`: this node's `own`, and the published ones from the limit string `text`.

    If `text` is None, there are no published quotas. `caps` bound the published quotas; without caps the node's own
    quotas bound them, so that they can only be lower. Raises InvalidLimit as `quotas_as_said` does.
    """
    published = None if text is None else quotas_as_said(name, own, text)
    return Layered(own, published, own if caps is None else caps, leave=_all_capped)


def quotas_as_said(name: str, own: Mapping[str, Limit], text: str) -> dict[str, Limit]:
    """Returns the quotas `own` with the amount and burst of each replaced by those in the limit string `text`.

    Raises InvalidLimit unless the string has the same windows in the same order.
    """
    said = parse_quotas(text)
    if len(said) != len(own):
        raise InvalidLimit(
            text, f"has {len(said)} quotas, but {name!r} has {len(own)} on this node; give the same number"
        )
    return {quota_name: _with(limit, quota, text) for (quota_name, limit), quota in zip(own.items(), said, strict=True)}


def caps_as_said(name: str, own: Mapping[str, Limit], text: str) -> dict[str, Limit]:
    """Returns the caps on the quotas `own` of a limit, from the limit string `text`.

    Raises InvalidSetting if the windows differ from those of the limit, or a cap is lower than the limit itself.
    """
    try:
        caps = quotas_as_said(name, own, text)
    except InvalidLimit as error:
        raise InvalidSetting("cap", text, error.problem) from None
    for quota_name, limit in own.items():
        if capped(limit, caps[quota_name]) != limit:
            raise InvalidSetting("cap", text, f"is lower than the declared limit of {quota_name!r}, {limit}; raise it")
    return caps


def capped(limit: Limit, cap: Limit) -> Limit:
    """Returns `limit`, lowered if necessary, so that neither its quota nor its burst exceeds that of `cap`.

    The two must have the same window and algorithm; only quota and burst may differ.
    """
    quota = min(limit.quota, cap.quota)
    if limit.algorithm not in BURSTING:
        return limit if quota == limit.quota else replace(limit, quota=quota)
    keeps_burst = limit.nominal <= cap.nominal
    if keeps_burst and quota == limit.quota:
        return limit
    if limit.burst is None:
        lowered = replace(limit, quota=quota)
        if lowered.nominal <= cap.nominal:
            return lowered
    return replace(limit, quota=quota, burst=min(limit.nominal, cap.nominal) or None)


def _all_capped(quotas: Quotas, caps: Quotas) -> Quotas:
    return {name: capped(limit, caps[name]) for name, limit in quotas.items()}


def layered_overshoot(policy: Policy, max_overshoot: float | None) -> Layered[float]:
    """Returns a limit's largest overshoot as a `Layered`: the policy's value, and the published `max_overshoot`.

    The published value can only lower the policy's. It is None if nothing is published.
    """
    return Layered(policy.max_overshoot, max_overshoot, policy.max_overshoot)


def with_max_overshoot(policy: Policy, max_overshoot: float) -> Policy:
    """Returns the policy with its overshoot lowered to `max_overshoot`, or unchanged if it is not above that.

    The policy `naive` is returned unchanged, because it has no bound.
    """
    if max_overshoot >= policy.max_overshoot or policy.merged_only:
        return policy
    if max_overshoot < OVERSHOOT_MIN:
        lowered = STRICT
    else:
        lowered = replace(BALANCED, max_overshoot=float(max_overshoot), cold_allowance=policy.cold_allowance)
    return replace(lowered, scarce=policy.scarce, when_hub_is_away=policy.when_hub_is_away)


def _with(limit: Limit, said: Quota, text: str) -> Limit:
    if round(said.window_s * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS != limit.window_ns:
        raise InvalidLimit(text, f"has another window than {limit} on this node; give the same window", said.position)
    if said.name is not None and said.name != limit.name:
        raise InvalidLimit(
            text, f"names a quota {said.name!r} that this node does not have; leave the name out", said.position
        )
    if said.warmup_s is not None and said.warmup_s != limit.warmup:
        raise InvalidLimit(text, f"has another warmup than {limit} on this node; give the same warmup", said.position)
    return replace(limit, quota=said.amount, burst=said.burst)
