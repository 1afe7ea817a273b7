"""Reads the quotas of a limit from limit strings or `Limit` objects, and gives each quota its name."""

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
"""The sign between the limit's name and the rest in the name of a contract's quota, such as `api@5/60s`."""
QUOTAS_MAX: Final = 16
"""The most quotas of one limit; each of them decides about every request."""
_WRITTEN_LIMIT: Final = re.compile(r"[0-9]+/[0-9]*[a-zA-Z]+$")
"""Matches a name such as `5/minute`, which was probably meant as the limit."""
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
    """Returns the quotas of a limit, each under its name at the hub and in the statistics.

    A single quota has the limit's name. Of several quotas, the first has the limit's name, and each further one adds
    its number, as in `api#2`. A quota with a name of its own ("as daily") adds that name instead, as in `api#daily`.
    The name of a limit has no "#", so only two quotas of one limit can collide.

    Raises:
        InvalidLimit: a quota or its name cannot be used, or two quotas have the same name.
        InvalidSetting: a setting here, such as `soft`, contradicts the same setting in the limit itself.
    """
    check_name(name)
    try:
        limits = _limits(limit, algorithm)
    except InvalidLimit as error:
        if _WRITTEN_LIMIT.match(name):
            problem = f"stands in place of the name, before {shown(limit)}; write agent.limit({limit!r}, {name!r})"
            raise InvalidLimit(name, problem) from error
        raise
    settings: dict[str, Any] = {"max_debt": max_debt, "costs": costs}
    if soft is not None:
        settings["soft"] = fraction_of(soft)
    limits = [_with(each, settings) for each in limits]
    if soft is not None and settings["soft"] and all(0 < each.capacity == each.nominal for each in limits):
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
    """Returns a limit on work in progress; `limit` is a number of slots, a limit string or a `Limit`.

    Raises InvalidLimit.
    """
    if isinstance(limit, int) and not isinstance(limit, bool):
        return Limit(limit, algorithm=CONCURRENCY, lease=lease)
    if isinstance(limit, str):
        limit = Limit.parse(limit)
    if not isinstance(limit, Limit) or not limit.slots:
        problem = "is not a limit on work in progress, such as 20 or '20 in flight'; declare a rate with agent.limit"
        raise InvalidLimit(shown(limit), problem)
    if lease is not None and limit.lease != in_seconds(lease):
        raise InvalidSetting("lease", lease, f"the limit has a lease of {limit.lease:g} s already; leave one out")
    return limit


def check_rate(name: str, quotas: Mapping[str, Limit]) -> None:
    """Raises InvalidLimit for a limit on work in progress, because `Agent.limit` declares only rates."""
    for each in quotas.values():
        if each.slots and len(quotas) == 1:  # for several, the kernel raises a closer error
            problem = f"limits work in progress, not a rate; declare it with agent.concurrency({name!r}, ...)"
            raise InvalidLimit(str(each), problem)


def _limits(limit: object, algorithm: str | None) -> list[Limit]:
    if isinstance(limit, Limit):
        limits = [limit]
    elif isinstance(limit, Sequence) and not isinstance(limit, str | bytes):
        limits = [part for each in limit for part in _parts(each, algorithm)]
    else:
        limits = list(Limit.parse_all(limit, algorithm=algorithm))  # type: ignore[arg-type]  # it raises
    if not 1 <= len(limits) <= QUOTAS_MAX:
        raise InvalidLimit(shown(limit), f"a limit has 1 to {QUOTAS_MAX} quotas, not {len(limits)}")
    for each in limits:
        if algorithm is not None and algorithm != each.algorithm:
            raise InvalidSetting(
                "algorithm", algorithm, f"the limit has the algorithm {each.algorithm!r} already; leave one out"
            )
    return limits


def _parts(limit: object, algorithm: str | None) -> Sequence[Limit]:
    if isinstance(limit, Limit):
        return [limit]
    if isinstance(limit, str):
        return Limit.parse_all(limit, algorithm=algorithm)
    raise InvalidLimit(
        shown(limit), f"each of several quotas must be a limit string or a Limit object, not {type(limit).__name__}"
    )


def _with(limit: Limit, settings: Mapping[str, Any]) -> Limit:
    """Returns `limit` with each of `settings` that is not None.

    Raises InvalidSetting if `limit` has another value for one.
    """
    changes = {field: value for field, value in settings.items() if value is not None}
    for field, value in changes.items():
        said = getattr(limit, field)
        if said and said != value:
            raise InvalidSetting(field, value, f"the limit has {shown(said)} already; leave one out")
    return replace(limit, **changes) if changes else limit


def limit_of_quota(name: str) -> str:
    """Returns the name of the limit to which a quota belongs: `api` for `api#2` or `api@5/60s`.

    `api#2` is the second quota of a limit, `api@5/60s` the quota of one plan in contracts. A published switch ("off")
    is for a limit as a whole, not for one of its quotas. The name of a limit has no "#" and no "@".
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
    """Returns `soft` as a fraction of the quota: 0.1 for 0.1 or "10%". Raises InvalidSetting for any other text."""
    if not isinstance(soft, str):
        return soft
    match = _PERCENT.fullmatch(soft.strip())
    if match is None:
        raise InvalidSetting("soft", soft, "is neither a fraction like 0.1 nor a percentage like '10%'")
    return float(match["number"]) / 100
