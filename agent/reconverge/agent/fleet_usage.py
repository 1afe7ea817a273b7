"""What the whole fleet has used of a key: asked of the hub, or else as far as this node knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconverge.agent.lifecycle import Lifecycle
from reconverge.errors import HubUnavailable
from reconverge.hub.opening import key_reader_at
from reconverge.hub.port import Hub
from reconverge.hub.reading import KeyQuestion, KeyReading, KeyReadings
from reconverge.kernel import Kernel, Table
from reconverge.limiter.limiter import Limiter

SECOND_US: Final = 1_000_000
ANSWERS: Final = 2
"""So many times as long as an exchange may take the answer is waited for: the runner may be in the midst of one."""


@dataclass(frozen=True, slots=True)
class FleetUsage:
    """How much of one quota a key has used on all nodes together."""

    used: int
    """Cost that still counts, as far as the nodes have reported it, and what departed nodes may have used; rounded up.
    """
    left: int
    """What the limit has left beside that, some of which may be in use on lines already."""
    lines: int
    """What live nodes may still use of their lines, as of the same moment; it is part of `left`."""
    limit: int
    """The quota (for a bucket: its capacity), with what `soft` adds; the smallest of all live nodes."""
    nodes: int
    """How many live nodes have the key."""
    next_free: float
    """Seconds until a cost of 1 fits if nothing more is charged; 0.0 if it fits now."""
    learning: float
    """Seconds for which the hub grants nothing more of this key: it has lost data, and knows less than it did."""
    fleetwide: bool
    """Whether the hub has answered; if not, all this is as far as this node knows, and `problem` says why."""
    problem: str = ""
    """Why the hub has not answered, in a sentence; empty if it has."""


async def fleet_usages(
    limiter: Limiter, key: str, kernel: Kernel, lifecycle: Lifecycle, *, timeout_s: float
) -> dict[str, FleetUsage]:
    """See `Agent.fleet_usages`."""
    key = limiter.table.check_key(key)
    problem = f"{lifecycle.hub_name} keeps no keys" if kernel.alone else ""
    if not problem:
        try:
            return await _ask(limiter.tables, key, kernel, lifecycle, timeout_s=timeout_s)
        except HubUnavailable as error:
            problem = str(error)
    return {table.name: _known_here(table, key, problem) for table in limiter.tables}


async def _ask(
    tables: Sequence[Table], key: str, kernel: Kernel, lifecycle: Lifecycle, *, timeout_s: float
) -> dict[str, FleetUsage]:
    """What the hub knows. Raises HubUnavailable."""
    by_shard: dict[int, list[Table]] = {}
    for table in tables:
        by_shard.setdefault(kernel.shard_of(table.reported_as, key).index, []).append(table)

    async def read(hub: Hub) -> list[KeyReadings]:
        readings: list[KeyReadings] = []
        for shard, asked in by_shard.items():
            questions = [KeyQuestion(kernel.declared(table, shard), key) for table in asked]
            readings.append(await key_reader_at(hub, shard, lifecycle.hub_name).read_keys(shard, questions))
        return readings

    try:
        answered = await asyncio.wait_for(asyncio.wrap_future(lifecycle.ask(read)), ANSWERS * timeout_s)
    except TimeoutError:
        raise HubUnavailable("timeout", f"no answer within {ANSWERS * timeout_s:g} s") from None
    told = {
        table.name: _told(table, reading, readings.hub_us)
        for asked, readings in zip(by_shard.values(), answered, strict=True)
        for table, reading in zip(asked, readings.keys, strict=True)
    }
    return {table.name: told[table.name] for table in tables}


def _told(table: Table, reading: KeyReading, hub_us: int) -> FleetUsage:
    """What the hub's answer means in requests."""
    used, limit = -(-reading.used // table.unit), reading.capacity // table.unit
    return FleetUsage(
        used=used,
        left=max(0, limit - used),
        lines=reading.lines // table.unit,
        limit=limit,
        nodes=reading.nodes,
        next_free=max(0, reading.free_us - hub_us) / SECOND_US,
        learning=max(0, reading.learns_until_us - hub_us) / SECOND_US,
        fleetwide=True,
    )


def _known_here(table: Table, key: str, problem: str) -> FleetUsage:
    """What this node knows."""
    usage, decision = table.usage(key), table.test(key)
    return FleetUsage(
        used=usage.total,
        left=max(0, usage.limit - usage.total),
        lines=max(0, usage.line - usage.own),
        limit=usage.limit,
        nodes=1,
        next_free=0.0 if decision.allowed else decision.retry_after,
        learning=0.0,
        fleetwide=False,
        problem=problem,
    )
