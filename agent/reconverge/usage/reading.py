"""Reads the usage of a fleet: totals, the largest consumers, identities with many addresses, the load of each node."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from reconverge.arguments import checked_class
from reconverge.errors import InvalidSetting
from reconverge.hub.port import AddressLedger, UsageHub, UsageLedger
from reconverge.hub.usage import HOUR, NOTHING, PAGES, Counts, NodeLoad, Period, UsageKey, shard_of
from reconverge.settings import check_count
from reconverge.usage.addresses import MANY, unusual_of

FIELDS: Final = UsageKey._fields
"""The fields by which totals can be divided."""
TOP: Final = 10
PERIOD: Final = "write period_at('month', time.time()), or another kind and moment"
Ledger = TypeVar("Ledger", bound=UsageLedger)


def checked_ledger(ledger: Ledger, call: str) -> Ledger:
    """Returns `ledger`. Raises InvalidSetting if it is a hub, or no usage ledger; the error shows the `call`."""
    found: object = ledger
    if not isinstance(found, UsageHub) and hasattr(found, "shards"):
        return ledger
    what = "is a hub, and its ledger is wanted" if isinstance(found, UsageHub) else "is no usage ledger of a hub"
    raise InvalidSetting("ledger", found, f"{what}; write {call}(hub.usage, ...)")


def checked_period(period: object) -> Period:
    """Returns `period`. Raises InvalidSetting if it is no `Period`, such as the name of one."""
    return checked_class("period", period, Period, PERIOD)


async def totals(
    ledger: UsageLedger,
    period: Period,
    *,
    by: Iterable[str] = FIELDS,
    identity: str | None = None,
    limit: str | None = None,
) -> dict[UsageKey, Counts]:
    """Returns the usage in a period by key, summed over all nodes, as far as they have reported it.

    Args:
        ledger: the usage ledger of a hub: `hub.usage`.
        period: the period to read; see `period_at`.
        by: any of identity, limit and route. Rows with the same values of these fields are added up; the other fields
            of the resulting key are "".
        identity: the customer whose use is read; None for all customers.
        limit: the limit whose charges are read; None for all limits.

    Raises:
        InvalidSetting: `by` names another field, or the ledger or the period is none.
        HubUnavailable: the hub does not answer.
    """
    checked_ledger(ledger, "totals")
    checked_period(period)
    fields = set(by)
    if not fields <= set(FIELDS):
        raise InvalidSetting("by", sorted(fields - set(FIELDS)), f"is unknown; `by` may name {', '.join(FIELDS)}")
    shards = range(ledger.shards) if identity is None else (shard_of(identity, ledger.shards),)
    sums: dict[UsageKey, Counts] = {}
    for shard in shards:
        for page in range(PAGES):
            for row in await ledger.totals(period, shard, page):
                if identity not in (None, row.key.identity) or limit not in (None, row.key.limit):
                    continue
                key = UsageKey(*(value if name in fields else "" for name, value in zip(FIELDS, row.key, strict=True)))
                before = sums.get(key, NOTHING)
                sums[key] = Counts(*(one + other for one, other in zip(before, row.counts, strict=True)))
    return sums


async def top(
    ledger: UsageLedger,
    period: Period,
    *,
    most: int = TOP,
    by: str = "cost",
    limit: str | None = None,
) -> list[tuple[str, Counts]]:
    """Returns the identities with the highest "cost", "requests" or "refused" in a period, the highest first.

    Costs of different limits are added up, unless one `limit` is named. Raises InvalidSetting, HubUnavailable.
    """
    if by not in Counts._fields:
        raise InvalidSetting("by", by, f"is none of {', '.join(Counts._fields)}")
    check_count("most", most)
    place = Counts._fields.index(by)
    found = await totals(ledger, period, by=("identity",), limit=limit)
    largest: Callable[[tuple[UsageKey, Counts]], int] = lambda each: each[1][place]  # noqa: E731  # typed
    return [(key.identity, counts) for key, counts in heapq.nlargest(most, found.items(), key=largest)]


async def from_many_addresses(ledger: UsageLedger, hour: Period, *, least: int = MANY) -> dict[str, int]:
    """Returns the identities that have come from at least `least` addresses in an hour, to all nodes together.

    Returns the number of addresses by identity, the highest first. It is an estimate, with a standard error of
    `reconverge.usage.addresses.ERROR`. An address that came to several nodes counts once. A hub stores the addresses of
    this hour and the hour before, for up to 5,000 identities on each shard.

    Raises:
        InvalidSetting: the period is no hour, or the hub does not merge addresses.
        HubUnavailable: the hub does not answer.
    """
    found: object = checked_ledger(ledger, "from_many_addresses")
    check_count("least", least)
    checked_period(hour)
    if not isinstance(found, AddressLedger):
        problem = "is of a hub that cannot merge the addresses of nodes; read each node's own in UsageReporter.stats()"
        raise InvalidSetting("ledger", type(ledger).__name__, problem)
    if hour.kind != HOUR:
        raise InvalidSetting(
            "hour", str(hour), "is no hour, and addresses are counted by the hour; write one like 2026-11-23T14Z"
        )
    secret = await found.address_secret()
    unusual: dict[str, int] = {}
    for shard in range(ledger.shards):
        unusual |= unusual_of(await found.address_sketches(hour.number, shard, secret), least=least)
    return dict(sorted(unusual.items(), key=lambda each: -each[1]))


async def fleet_load(ledger: UsageLedger) -> list[NodeLoad]:
    """Returns each node's load, the busiest first, for load balancing. Raises HubUnavailable.

    A node sends its load with each report. A node that has sent no report for two minutes is left out.
    """
    return sorted(await checked_ledger(ledger, "fleet_load").loads(), key=lambda load: -load.cost_per_s)
