"""How the quotas of a limit are read, and named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from reconverge.clock import Seconds, in_seconds
from reconverge.errors import InvalidLimit, InvalidSetting, shown
from reconverge.limit.checks import NAME_LENGTH_MAX, check_name
from reconverge.limit.limit import CONCURRENCY, Limit

TIER: Final = "@"
"""Between the name of a limit and the terms of one plan of contracts, in the name of that quota."""
QUOTAS_MAX: Final = 16
"""Of one limit. Each is decided about in every request."""
_PERCENT: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?%")


def quotas_of(
    name: str,
    limit: str | Limit | Sequence[str | Limit],
    *,
    algorithm: str | None = None,
    soft: float | str | None = None,
    max_debt: int | None = None,
    costs: Mapping[str, int] | None = None,
) -> dict[str, Limit]:
    """The quotas of a limit, each under the name by which the hub and the statistics know it.

    A quota alone has the limit's name. Of several, the first has it, too, and the others add their number, as in
    `api#2`; whichever is called something ("as daily") adds that instead, as in `api#daily`. No limit's own name has
    a "#", so that only two quotas of one limit can collide.

    Raises:
        InvalidLimit: a quota or its name cannot be used, or two have the same name.
        InvalidSetting: a setting contradicts the limit itself.
    """
    check_name(name)
    limits = _limits(limit, algorithm)
    settings: dict[str, Any] = {"max_debt": max_debt, "costs": costs}
    if soft is not None:
        settings["soft"] = fraction_of(soft)
    limits = [_with(each, settings) for each in limits]
    if soft is not None and settings["soft"] and all(each.capacity == each.nominal for each in limits):
        most = max(each.nominal for each in limits)
        problem = f"adds less than one request to {most}, so it has no effect; give at least {ceil(1000 / most) / 1000}"
        raise InvalidSetting("soft", soft, f"{problem}, or leave it out")
    if len(limits) == 1:
        return {name: limits[0]}
    named: dict[str, Limit] = {}
    for number, each in enumerate(limits, start=1):
        quota_name = _quota_name(name, number, each)
        if quota_name in named:
            raise InvalidLimit(str(each), f"limit {name!r} has two quotas named {quota_name!r}; rename one")
        named[quota_name] = each
    return named


def slots_of(limit: int | str | Limit, lease: Seconds | None = None) -> Limit:
    """A limit on work in progress, of a number of slots, a limit string or a `Limit`. Raises InvalidLimit."""
    if isinstance(limit, int) and not isinstance(limit, bool):
        return Limit(limit, algorithm=CONCURRENCY, lease=lease)
    if isinstance(limit, str):
        limit = Limit.parse(limit)
    if not isinstance(limit, Limit) or not limit.slots:
        problem = (
            "is no limit on what is in progress, such as 20 slots or '20 in flight'; declare a rate with agent.limit"
        )
        raise InvalidLimit(shown(limit), problem)
    if lease is not None and limit.lease != in_seconds(lease):
        raise InvalidSetting("lease", lease, f"the limit has a lease of {limit.lease:g} s already; leave one out")
    return limit


def check_rate(name: str, quotas: Mapping[str, Limit]) -> None:
    """Raise InvalidLimit for a limit on what is in progress in the place of one on a rate."""
    for each in quotas.values():
        if each.slots and len(quotas) == 1:  # of several the kernel knows more to say
            problem = f"limits what is in progress, and no rate; declare it with agent.concurrency({name!r}, ...)"
            raise InvalidLimit(str(each), problem)


def _limits(limit: object, algorithm: str | None) -> list[Limit]:
    if isinstance(limit, Limit):
        limits = [limit]
    elif isinstance(limit, Sequence) and not isinstance(limit, str | bytes):
        limits = [part for each in limit for part in _parts(each, algorithm)]
    else:
        limits = list(Limit.parse_all(limit, algorithm=algorithm))  # type: ignore[arg-type]  # which tells what it is
    if not 1 <= len(limits) <= QUOTAS_MAX:
        raise InvalidLimit(shown(limit), f"a limit has 1 to {QUOTAS_MAX} quotas, not {len(limits)}")
    for each in limits:
        if algorithm is not None and algorithm != each.algorithm:
            raise InvalidSetting(
                "algorithm", algorithm, f"the limit has the algorithm {each.algorithm!r} already; leave one out"
            )
    return limits


def _parts(limit: object, algorithm: str | None) -> Sequence[Limit]:
    """One of several: a quota, or a limit string."""
    if isinstance(limit, Limit):
        return [limit]
    if isinstance(limit, str):
        return Limit.parse_all(limit, algorithm=algorithm)
    raise InvalidLimit(
        shown(limit), f"several quotas are given as limit strings or Limit objects, not {type(limit).__name__}"
    )


def _with(limit: Limit, settings: Mapping[str, Any]) -> Limit:
    """The limit with the settings beside it, unless these contradict it."""
    changes = {field: value for field, value in settings.items() if value is not None}
    for field, value in changes.items():
        said = getattr(limit, field)
        if said and said != value:
            raise InvalidSetting(field, value, f"the limit has {shown(said)} already; leave one out")
    return replace(limit, **changes) if changes else limit


def limit_of_quota(name: str) -> str:
    """The name of the limit that a quota belongs to, by which all of its quotas are switched.

    It is `api` of `api#2`, the second quota of a limit, and of `api@5/60s`, what one plan of contracts says of it. No
    limit's own name has a "#" or an "@".
    """
    return name.partition("#")[0].partition(TIER)[0]


def _quota_name(name: str, number: int, limit: Limit) -> str:
    if limit.name is not None:
        name = f"{name}#{check_name(limit.name)}"
    elif number > 1:
        name = f"{name}#{number}"
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidLimit(name, f"the name of a quota has at most {NAME_LENGTH_MAX} characters, not {len(name)}")
    return name


def fraction_of(soft: float | str) -> float:
    """A fraction of the quota, which may be written as a percentage. Raises InvalidSetting."""
    if not isinstance(soft, str):
        return soft
    match = _PERCENT.fullmatch(soft.strip())
    if match is None:
        raise InvalidSetting("soft", soft, "is neither a share like 0.1 nor a percentage like '10%'")
    return float(match["number"]) / 100
