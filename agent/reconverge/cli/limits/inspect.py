"""The command `reconverge inspect`: explains which limit refuses one key in the whole fleet, and for how long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import typer

from reconverge.agent.assembly import hasher_of
from reconverge.agent.fleet_usage import FleetUsage, asking_kernel, read_fleet
from reconverge.cli.limits.declared import (
    ROUTED,
    FileOption,
    KeyArgument,
    LimitsOption,
    OwnNamespaceOption,
    advice_on_unknown,
    declared,
)
from reconverge.cli.shared.asking import ask_hub
from reconverge.cli.shared.options import HubOption, JsonOption
from reconverge.cli.shared.tables import Row, tell_table
from reconverge.contracts.explaining import printable, written_wait
from reconverge.hub.hashing import hashing
from reconverge.hub.port import Hub
from reconverge.hub.registry import redacted
from reconverge.kernel import Table
from reconverge.limit.limit import Limit

KEY_BYTES_MAX = 256
"""The longest key of an agent with default settings, in bytes."""


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """The use of a key by the whole fleet under one quota, as the hub knows it."""

    name: str
    limit: Limit
    usage: FleetUsage

    @property
    def allowed(self) -> bool:
        """Whether the quota has room for a request of cost 1, as far as the hub knows."""
        return self.usage.left > 0 and not self.usage.learning

    @property
    def free_in_s(self) -> float:
        """Returns the seconds until a request of cost 1 fits, if nothing more is charged; 0.0 if it fits now."""
        return max(self.usage.next_free, self.usage.learning)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields that `--json` prints."""
        usage = self.usage
        return {
            "limit": self.name,
            "declared": str(self.limit),
            "allowed": self.allowed,
            "quota": usage.limit,
            "used": usage.used,
            "remaining": usage.left,
            "allowances": usage.allowances,
            "nodes": usage.nodes,
            "free_in_s": round(self.free_in_s, 3),
            "learning_s": round(usage.learning, 3),
        }

    def row(self) -> Row:
        """Returns the state of the key as a row of the table that `reconverge inspect` prints."""
        free = "now" if self.allowed else _wait(self)
        usage = self.usage
        return (self.name, str(self.limit), *map(str, (usage.used, usage.left, usage.allowances, usage.nodes)), free)


HEADS: Row = ("limit", "declared", "used", "remaining", "lines", "nodes", "free")


def inspect(
    key: KeyArgument,
    hub: HubOption,
    namespace: OwnNamespaceOption = None,
    limit: LimitsOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a key is refused or not: by which limit, how much is used and left, and when a request fits again.

    The answer is for the whole fleet, as the nodes have reported to the hub; nothing is charged, and no node is needed.
    Switches are ignored: `switch` shows those that are published. For limits of contracts use `contracts explain`.
    """
    own = declared(limit, file, namespace)
    tables = [table for limiter in own.agent.limiters.values() for table in limiter.control.tables]

    async def ask(opened: Hub) -> tuple[list[KeyStanding], list[str]]:
        known = set(await opened.totals())
        hasher = hasher_of(None, namespace=own.namespace)
        reader = opened if hasher is None else hashing(opened, hasher)
        standings = await _read(reader, redacted(hub), own.namespace, tables, key)
        return standings, advice_on_unknown((each.name for each in tables), known)

    standings, advice = ask_hub(hub, own.namespace, ask, what="no keys can be inspected")
    refusing = sorted((each for each in standings if not each.allowed), key=lambda each: -each.free_in_s)
    if as_json:
        said = {
            "key": key,
            "namespace": own.namespace,
            "allowed": not refusing,
            "refused_by": [each.name for each in refusing],
            "limits": [each.as_json() for each in standings],
        }
        typer.echo(json.dumps(said, indent=2))
    else:
        typer.echo(_sentence(printable(key), standings, refusing) + "\n")
        tell_table(HEADS, [each.row() for each in standings])
    for sentence in advice:
        typer.echo(f"reconverge: {sentence}", err=True)


async def _read(hub: Hub, name: str, namespace: str, tables: list[Table], key: str) -> list[KeyStanding]:
    """Returns the state of a key at the hub for each of `tables`, which stand for one quota each.

    Raises InvalidKey, and HubUnavailable with `name` as the hub's name.
    """
    kernel = asking_kernel(namespace, hub)
    asked = [kernel.table(each.name, each.limit, each.policy) for each in tables]
    usages = await read_fleet([(each, each.check_key(key)) for each in asked], kernel, hub, name)
    return [KeyStanding(table.name, table.limit, usage) for table, usage in zip(asked, usages, strict=True)]


def _sentence(key: str, standings: list[KeyStanding], refusing: list[KeyStanding]) -> str:
    if not refusing:
        tightest = min(standings, key=lambda each: each.usage.left)
        said = f"{key} can go on: {tightest.usage.left} of {tightest.usage.limit} are left by {tightest.name}."
        if any(each.usage.nodes for each in standings):
            return said
        apart = f"nodes that declare another window or algorithm count apart, so give each limit as they do; {ROUTED}"
        return f"{said} No node has reported {key} lately; {apart}."
    first, *others = refusing
    usage = first.usage
    more = f", and by {', '.join(each.name for each in others)}" if others else ""
    if usage.learning:
        return (
            f"{key} is refused by {first.name}{more}: the hub has lost data, and grants nothing of this key for"
            f" {written_wait(usage.learning)}."
        )
    return f"{key} is refused by {first.name}{more}: {usage.used} of {usage.limit} are used; free {_wait(first)}."


def _wait(standing: KeyStanding) -> str:
    if standing.limit.slots and not standing.usage.learning:
        return "when something in progress ends"
    return f"in {written_wait(standing.free_in_s)}"
