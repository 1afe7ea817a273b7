"""Asks the hub for the use of a key on all nodes; if the hub does not answer, returns the use known to this node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from reconverge.agent.lifecycle import Lifecycle
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import HubUnavailable, InvalidLimit, LimitConflict
from reconverge.hub.fallback.opening import key_reader_at
from reconverge.hub.port import Hub
from reconverge.hub.reading import READ_MAX, KeyQuestion, KeyReading
from reconverge.kernel import Kernel, Table
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import TIER, limit_of_quota
from reconverge.limiter.faces.limiter import Limiter
from reconverge.policies import STRICT
from reconverge.runtime.truth import no_number

SECOND_US: Final = 1_000_000
KEY_BYTES_MAX: Final = 1 << 12
"""The length in bytes of the longest key that can be read by a program without limits of its own."""


@no_number("a usage of all nodes", "compare one of its numbers, as in usage.used > 90")
@dataclass(frozen=True, slots=True)
class FleetUsage:
    """The use of one quota by a key on all nodes together."""

    used: int
    """The cost that counts at present, on all nodes together, rounded up; of departed nodes, the most that they may
    have used."""
    left: int
    """The cost that still fits: `limit` less `used`, at least 0. Nodes may have used a part of it that they have yet to
    report."""
    allowances: int
    """The part of `left` that live nodes may use without the hub, by their last reports."""
    limit: int
    """The most that may be used: the quota (of a bucket, its capacity) plus the extra that `soft` allows. If live nodes
    declare different values, the smallest."""
    nodes: int
    """The number of live nodes that have the key."""
    next_free: float
    """The seconds until a cost of 1 fits, if nothing more is charged; 0.0 if it fits now."""
    learning: float
    """The seconds for which the hub grants nothing of this key because it has lost data; usually 0.0."""
    fleetwide: bool
    """Whether the hub has answered. If False, the values are from this node's memory, and `problem` has the reason."""
    problem: str = ""
    """A sentence about the reason why the hub has not answered; empty if it has."""


async def fleet_usages(limiter: Limiter, key: str, kernel: Kernel, lifecycle: Lifecycle) -> dict[str, FleetUsage]:
    """Returns the use of a key by the quotas of a limiter, as `Agent.fleet_usages` describes."""
    key = limiter.control.table.check_key(key)
    problem = f"{lifecycle.hub_name} keeps no keys" if kernel.alone else ""
    if not problem:
        try:
            asked = [(table, key) for table in limiter.control.tables]
            usages = await ask_fleet(asked, kernel, lifecycle)
            return {table.name: usage for table, usage in zip(limiter.control.tables, usages, strict=True)}
        except HubUnavailable as error:
            problem = str(error)
    return {table.name: _known_here(table, key, problem) for table in limiter.control.tables}


async def ask_fleet(asked: Sequence[tuple[Table, str]], kernel: Kernel, lifecycle: Lifecycle) -> list[FleetUsage]:
    """Returns the use of each key in `asked`, read at the hub in the event loop of a node's exchanges.

    Raises HubUnavailable.
    """

    async def read(hub: Hub) -> list[FleetUsage]:
        return await read_fleet(asked, kernel, hub, lifecycle.hub_name)

    return await lifecycle.answer(read, undone="the hub has not returned the fleet's usage")


async def read_fleet(asked: Sequence[tuple[Table, str]], kernel: Kernel, hub: Hub, hub_name: str) -> list[FleetUsage]:
    """Reads at a hub how much each key in `asked` has used. Returns the usages in the order of `asked`.

    `kernel` holds the tables of `asked`; it is a node's own kernel, or one from `asking_kernel`. Up to `READ_MAX` keys
    of one shard are read at the same moment. Raises HubUnavailable.
    """
    by_shard: dict[int, list[int]] = {}
    for place, (table, key) in enumerate(asked):
        by_shard.setdefault(table.shard_of(key).index, []).append(place)
    usages: dict[int, FleetUsage] = {}
    for shard, places in by_shard.items():
        reader = key_reader_at(hub, shard, hub_name)
        for begin in range(0, len(places), READ_MAX):
            batch = places[begin : begin + READ_MAX]
            questions = [KeyQuestion(kernel.declared(asked[place][0], shard), asked[place][1]) for place in batch]
            readings = await reader.read_keys(shard, questions)
            for place, reading in zip(batch, readings.keys, strict=True):
                usages[place] = _fleet_usage(asked[place][0], reading, readings.hub_us)
    return [usages[place] for place in range(len(asked))]


def asking_kernel(namespace: str, hub: Hub) -> Kernel:
    """Returns a kernel that decides nothing: it only declares limits, so that their keys can be read at `hub`."""
    return Kernel(
        SystemClock(),
        namespace=namespace,
        interval_ns=SECOND_NS,
        interval_min_ns=SECOND_NS,
        keys_max=1,
        key_bytes_max=KEY_BYTES_MAX,
        shards=hub.shards,
    )


async def read_declared(limits: Mapping[str, Limit], key: str, hub: Hub, namespace: str) -> dict[str, FleetUsage]:
    """Reads at the hub how much `key` has used of each of `limits`, which other nodes have declared.

    Returns the usages by the names of the limits. Leaves out a limit that is invalid or conflicts with another, because
    no node can have declared it. Raises HubUnavailable.
    """
    kernel = asking_kernel(namespace, hub)
    tables: dict[str, Table] = {}
    for name, limit in limits.items():
        with suppress(InvalidLimit, LimitConflict):
            if TIER in name:
                tables[name] = kernel.tier(name, limit, STRICT, reported_as=limit_of_quota(name))
            else:
                tables[name] = kernel.table(name, limit, STRICT)
    asked = [(table, key) for table in tables.values()]
    return dict(zip(tables, await read_fleet(asked, kernel, hub, repr(hub)), strict=True))


def _fleet_usage(table: Table, reading: KeyReading, hub_us: int) -> FleetUsage:
    used, limit = -(-reading.used // table.unit), reading.capacity // table.unit
    left = max(0, limit - used)
    return FleetUsage(
        used=used,
        left=left,
        allowances=min(reading.allowances // table.unit, left),
        limit=limit,
        nodes=reading.nodes,
        next_free=max(0, reading.free_us - hub_us) / SECOND_US,
        learning=max(0, reading.learns_until_us - hub_us) / SECOND_US,
        fleetwide=True,
    )


def _known_here(table: Table, key: str, problem: str) -> FleetUsage:
    usage, decision = table.usage(key), table.test(key)
    left = max(0, usage.limit - usage.total)
    return FleetUsage(
        used=usage.total,
        left=left,
        allowances=min(max(0, usage.allowance - usage.own), left),
        limit=usage.limit,
        nodes=1,
        next_free=0.0 if decision.allowed else decision.retry_after,
        learning=0.0,
        fleetwide=False,
        problem=problem,
    )
