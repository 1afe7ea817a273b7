"""Names of quotas for clients: those that the application has given, or else the rate, such as `5/minute`."""

# Theory of operation.
#
# A limit without a name of its own still needs one at the hub, which must be the same in every process and belong to
# one place of the program. So that name is made of a module, a function or a hash. Clients must not see such names:
# they are long, and tell about the inside of the program. A quota's rate says more to a client, and is in the same
# response anyway.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.limit.limit import Limit

_UNITS: Final = {"1s": "second", "60s": "minute", "3600s": "hour", "86400s": "day"}


def shown_name(name: str, limit_name: str, quotas: Mapping[str, Limit], given: str | None) -> str:
    """Returns the name for clients of the quota `name`, which belongs to the limit `limit_name`.

    `given` is the name that the application has given to the limit, if any; it replaces the limit's name. A name
    outside of `quotas` is that of the limit's ban.
    """
    rest = name.removeprefix(limit_name)
    if given is not None:
        return f"{given}{rest}"
    limit = quotas.get(name)
    if limit is None:
        return f"{rate_of(next(iter(quotas.values())))}{rest}"
    return limit.name or rate_of(limit)


def rate_of(limit: Limit) -> str:
    """Returns a quota as a short text, such as `5/minute` or `20 in flight`."""
    if limit.slots:
        return f"{limit.quota} in flight"
    quota, _, window = str(limit).partition(" ")[0].partition("/")
    return f"{quota}/{_UNITS.get(window, window)}"
