"""Reads usage for the console's charts: of the latest minutes, hours, days or months, by limit and customer."""

# Theory of operation.
#
# Usage is added up at the hub, and stored in pages, each for one period and shard. A console reads the pages over the
# connections of its agent, on the event loop that also runs the agent's exchanges with the hub. So each page is
# requested separately, and exchanges run in between.
#
# A chart has some dozens of periods, and a period of all customers has sixteen pages a shard. Usage of past periods
# hardly changes, so their sums are cached for a minute, and those of the present period for a few seconds; one chart is
# read at a time. The cache holds sums by limit and the largest customers of each, never all customers.

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple, cast

from reconverge.agent import Agent
from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.fallback.opening import hubs_in
from reconverge.hub.port import Hub, UsageHub, UsageLedger
from reconverge.hub.usage import DAY, HOUR, MINUTE, MONTH, NOTHING, Counts, Period, UsageRow
from reconverge.integrations.contracts.problems import Problem
from reconverge.usage.periods import period_at, period_name
from reconverge.usage.reading import totals

SHOWN: Final[Mapping[str, int]] = {MINUTE: 30, HOUR: 24, DAY: 30, MONTH: 12}
"""The number of periods in a chart, by kind; hubs keep all of these."""
TOP: Final = 10
LIMITS_MAX: Final = 100
"""The most limits listed for a period, those with the largest use; the sum over all limits includes the others."""
KEPT_MAX: Final = 200
"""The most periods whose sums are cached."""
KEPT_NS: Final = 60 * SECOND_NS
"""The nanoseconds for which sums of a past period are cached. They may still change, because nodes that were cut off
report late."""
PRESENT_NS: Final = 5 * SECOND_NS
READ_S: Final = 20.0
"""The most seconds that reading one chart may take."""
UNSUPPORTED: Final = "usage is not added up at this hub, or only within each process; use a Redis or a broker of MQTT"
ALL: Final = ""
"""The name that stands for all limits together."""


class Sums(NamedTuple):
    """The usage in one period, summed by limit and for all limits together."""

    counts: Mapping[str, Counts]
    top: Mapping[str, Sequence[tuple[str, Counts]]]
    """The customers with the highest cost, by limit."""


class _PageLinks:
    def __init__(self, agent: Agent, shards: int) -> None:
        self._agent = agent
        self.shards = shards

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        return await self._agent.ask_hub(lambda hub: _ledger(hub).totals(period, shard, page))


class UsagePages:
    """Reads usage for charts. The methods raise HubUnavailable, and Problem for a period that cannot be shown."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._reading = asyncio.Lock()
        self._kept: OrderedDict[tuple[Period, str], tuple[Sums, int]] = OrderedDict()
        """The cached sums by period and customer, each with the monotonic time at which it expires."""
        agent.on_forget(self.forget)

    def forget(self, is_named: Callable[[str], bool]) -> None:  # noqa: ARG002  # all are dropped
        """Drops the cached sums of all customers, not only of those in `is_named`, when an identity is erased."""
        self._kept.clear()

    async def chart(self, kind: str, *, identity: str = "", limit: str = ALL) -> dict[str, Any]:
        """Returns the usage of the last periods of one kind, such as days, the newest last.

        An empty `identity` stands for all customers, and an empty `limit` for all limits.
        """
        if kind not in SHOWN:
            raise Problem(422, f"must be one of {', '.join(SHOWN)}, not {kind[:100]!r}", parameter="period")
        last = period_at(kind, self._clock.wall_ns() / SECOND_NS)
        periods = [Period(kind, last.number - ago) for ago in reversed(range(SHOWN[kind]))]
        try:
            async with self._reading, asyncio.timeout(READ_S):
                pages = _PageLinks(self._agent, await self._agent.ask_hub(_shards))
                sums = [await self._sums(pages, each, identity, is_over=each != last) for each in periods]
        except TimeoutError:
            raise HubUnavailable(
                "timeout", f"usage by the {kind} was not read from the hub within {READ_S:g} s; try again"
            ) from None
        except HubUnavailable as error:
            if error.kind == "unsupported":
                raise Problem(501, UNSUPPORTED) from None
            raise
        used: dict[str, int] = {}
        for each in sums:
            for name, counts in each.counts.items():
                used[name] = used.get(name, 0) + counts.requests + counts.refused
        return {
            "period": kind,
            "points": [
                {"name": period_name(period), **each.counts.get(limit, NOTHING)._asdict()}
                for period, each in zip(periods, sums, strict=True)
            ],
            "limits": sorted(name for name in used if name != ALL),
            "present": period_name(last),
            "top": [{"identity": name, **counts._asdict()} for name, counts in sums[-1].top.get(limit, ())],
        }

    async def _sums(self, pages: _PageLinks, period: Period, identity: str, *, is_over: bool) -> Sums:
        place, now_ns = (period, identity), self._clock.monotonic_ns()
        known = self._kept.get(place)
        if known is not None and now_ns < known[1]:
            return known[0]
        ledger = cast("UsageLedger", pages)  # only `shards` and `totals` of it are used
        try:
            found = await totals(ledger, period, by=("identity", "limit"), identity=identity or None)
        except InvalidSetting as error:  # the identity cannot be a customer's
            raise Problem(422, str(error), parameter="identity") from None
        rows = [(key.identity, key.limit, counts) for key, counts in found.items()]
        sums = await asyncio.to_thread(_summed, rows)
        self._kept[place] = sums, now_ns + (KEPT_NS if is_over else PRESENT_NS)
        self._kept.move_to_end(place)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return sums


def _summed(rows: Sequence[tuple[str, str, Counts]]) -> Sums:
    counts: dict[str, Counts] = {}
    by_customer: dict[str, dict[str, Counts]] = {}
    for identity, limit, more in rows:
        for name in (limit, ALL):
            counts[name] = _plus(counts.get(name, NOTHING), more)
            customers = by_customer.setdefault(name, {})
            customers[identity] = _plus(customers.get(identity, NOTHING), more)
    kept = {ALL, *nlargest(LIMITS_MAX, counts, key=lambda name: counts[name].cost)}
    return Sums(
        {name: counts[name] for name in kept & counts.keys()},
        {
            name: nlargest(TOP, by_customer[name].items(), key=lambda each: each[1].cost)
            for name in kept & counts.keys()
        },
    )


def _plus(one: Counts, other: Counts) -> Counts:
    return Counts(one.cost + other.cost, one.requests + other.requests, one.refused + other.refused)


async def _shards(hub: Hub) -> int:
    return _ledger(hub).shards


def _ledger(hub: Hub) -> UsageLedger:
    """Returns the record of usage that `hub` keeps; for a hub with a fallback, the record of the main hub.

    Nodes report no usage to a fallback. Raises HubUnavailable if the hub keeps no usage.
    """
    first: object = hubs_in(hub)[0]
    if not isinstance(first, UsageHub):
        raise HubUnavailable("unsupported", UNSUPPORTED, applied=False)
    return first.usage
