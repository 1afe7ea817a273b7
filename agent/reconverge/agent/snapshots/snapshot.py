"""The state of one node for consoles: made of the agent's statistics, and validated when a console reads it."""

# Theory of operation.
#
# A snapshot is JSON of a bounded size. A pure function makes it of `Agent.stats()`, the declared limits, the keys that
# have used most of their limits, and the events that hooks received; so it costs decisions nothing.
#
# It travels through the hub, where each client could have written another one. So the reader checks everything: each
# field has a type and a bound, one wrong field makes the whole snapshot unreadable, and text is shown as text.
#
# The field `dares` is true if a node may go beyond its allowances at this moment; a console computes the live exposure
# of a limit from it. A node that gets no answer from its hub may use its allowances, and no more.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite, isinf
from typing import Any, Final, TypeVar

from reconverge.clock import SECOND_NS
from reconverge.hub.board import SNAPSHOT_BYTES_MAX
from reconverge.kernel import Table
from reconverge.limit.limit import Limit
from reconverge.policies import FRESH_INTERVALS
from reconverge.stats import STATES, AgentStats, Health, LimitStats

T = TypeVar("T")

VERSION: Final = 1
"""The version of a snapshot's fields; a console shows a node with another version as one that it cannot read."""
LIMITS_MAX: Final = 100
"""The most limits in a snapshot, those with most decisions; fewer if they do not fit into its size."""
KEYS_MAX: Final = 20
DENIALS_MAX: Final = 20
KEYS_OF_DENIAL_MAX: Final = 3
TEXT_MAX: Final = 512
"""The length of the longest text in a snapshot, in characters."""
NUMBER_MAX: Final = 1e18


@dataclass(frozen=True, slots=True)
class LimitSnapshot:
    """One quota of a limit on one node: its declaration, and the counts of its decisions. Amounts are in requests."""

    name: str
    said: str
    """The limit as text, such as `100/minute`."""
    declared: Mapping[str, Any]
    """The fields of `Limit` that differ from their defaults, by name."""
    policy: str
    overshoot: float | None
    """The `max_overshoot` of the limit's policy; None if the policy has no bound."""
    capacity: int
    cost_max: int
    """The highest cost of one request, as named in the limit's `costs`."""
    dares: bool
    """Whether the policy now lets the node admit more than its allowance, the part of the quota that the hub granted
    it."""
    switch: str
    admitted: int
    refused: int
    would_refuse: int
    overadmitted: int
    keys: int
    in_use: int | None = None
    """The number of slots in use on this node; None for a limit on a rate."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The use of one quota by a key on all nodes, as far as this node knows."""

    limit: str
    key: str
    used: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Denial:
    """The refusals of one quota on one node, within about a second."""

    at: float
    """The time of the refusals, in seconds since 1970."""
    limit: str
    count: int
    keys: tuple[str, ...]
    """Some of the keys for which requests were refused."""


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The state of one node for consoles. Times are in seconds."""

    host: str
    pid: int
    at: float
    """The time when the snapshot was made, in seconds since 1970 by the node's clock."""
    hub: str
    kernel: str
    state: str
    grounds: tuple[str, ...]
    keys: int
    staleness: float | None
    """The age in seconds of the hub's last answer; with several shards, of the oldest. None before the first answer and
    without a hub."""
    lease: float | None
    round_trip: float
    exchanges: int
    failures: int
    settings_version: int
    """The version of the published settings in force; 0 if there are none."""
    switch: str
    """The switch of all limits together, "on", "shadow" or "off", as the agent has set it."""
    hashed: bool = False
    """Whether keys in the snapshot are hashes, as at a hub that must not see keys."""
    limits: tuple[LimitSnapshot, ...] = ()
    left_out: int = 0
    """The number of limits left out of the snapshot for lack of room."""
    top: tuple[KeyUse, ...] = ()
    denials: tuple[Denial, ...] = ()
    """The last denials on the node, the newest at the end."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The parts of a node's snapshot that are no statistics: its host, its process, the time and its switch."""

    host: str
    pid: int
    at: float
    switch: str
    hashed: Callable[[str], str] | None = None
    """A function that hashes a key for readers outside of the node; None if they may see the key."""


def snapshot_of(
    place: NodePlace,
    stats: AgentStats,
    health: Health,
    tables: Mapping[str, Table],
    *,
    top: Iterable[KeyUse] = (),
    denials: Sequence[Denial] = (),
) -> NodeSnapshot:
    """Returns the snapshot of a node, made of its statistics, its health and its tables (counts by limit and key)."""
    shards = stats.exchanges
    oldest = max((shard.staleness for shard in shards), default=float("inf"))
    newest = min((shard.staleness for shard in shards), default=float("inf"))
    lease = min((shard.lease for shard in shards), default=float("inf"))
    most_asked = sorted(stats.limits.items(), key=lambda item: -(item[1].admitted + item[1].refused))
    hashed = place.hashed or str
    known = [(tables[name], each) for name, each in most_asked if name in tables]
    limits = tuple(_limit_of(table, each, newest) for table, each in known[:LIMITS_MAX])
    return NodeSnapshot(
        host=place.host[:TEXT_MAX],
        pid=place.pid,
        at=place.at,
        hub=stats.hub[:TEXT_MAX],
        kernel=stats.kernel,
        state=health.state,
        grounds=tuple(each[:TEXT_MAX] for each in health.grounds[:10]),
        keys=stats.keys,
        staleness=oldest if isfinite(oldest) else None,
        lease=lease if isfinite(lease) else None,
        round_trip=max((shard.round_trip for shard in shards), default=0.0),
        exchanges=sum(shard.exchanges for shard in shards),
        failures=sum(sum(shard.failures.values()) for shard in shards),
        settings_version=0 if stats.orders is None else stats.orders.version,
        switch=place.switch,
        hashed=place.hashed is not None,
        limits=limits,
        left_out=len(known) - len(limits),
        top=tuple(KeyUse(each.limit, hashed(each.key), each.used, each.capacity) for each in top)[:KEYS_MAX],
        denials=tuple(
            replace(each, keys=tuple(map(hashed, each.keys[:KEYS_OF_DENIAL_MAX]))) for each in denials[-DENIALS_MAX:]
        ),
    )


def _limit_of(table: Table, stats: LimitStats, staleness_s: float) -> LimitSnapshot:
    policy, limit = table.policy, table.limit
    unbounded = isinf(policy.max_overshoot)
    fresh = staleness_s * SECOND_NS <= FRESH_INTERVALS * table.interval_ns
    costs = sorted((limit.costs or {}).values())
    return LimitSnapshot(
        name=table.name,
        said=str(limit)[:TEXT_MAX],
        declared=_declared(limit),
        policy=policy.name,
        overshoot=None if unbounded else policy.max_overshoot,
        capacity=table.capacity // table.unit,
        cost_max=costs[-1] if costs else 1,
        dares=unbounded or (policy.max_overshoot > 0 and fresh),
        switch=stats.switch,
        admitted=stats.admitted,
        refused=stats.refused,
        would_refuse=stats.would_refuse,
        overadmitted=stats.overadmitted,
        keys=stats.keys,
        in_use=stats.in_use,
    )


def _declared(limit: Limit) -> dict[str, Any]:
    aside = ("name", "costs", "max_debt")
    said = {each.name: getattr(limit, each.name) for each in fields(limit) if each.name not in aside}
    usual = {each.name: each.default for each in fields(limit)}
    return {name: value for name, value in said.items() if name == "quota" or value != usual[name]}


# ---------------------------------------------------------------- as bytes


def encoded(snapshot: NodeSnapshot) -> bytes:
    """Returns a snapshot as bytes for the hub.

    If it would be too long, leaves out old denials, then keys that have used little, then limits.
    """
    said: dict[str, Any] = {"version": VERSION, **_table(snapshot)}
    for name in ("limits", "top", "denials"):
        said[name] = list(map(_table, said[name]))
    while True:
        payload = json.dumps(said, separators=(",", ":"), allow_nan=False).encode("ascii")
        if len(payload) <= SNAPSHOT_BYTES_MAX:
            return payload
        if len(said["denials"]) > 1:
            said["denials"] = said["denials"][(len(said["denials"]) + 1) // 2 :]
        elif len(said["top"]) > 1:
            said["top"] = said["top"][: len(said["top"]) // 2]
        elif said["limits"]:
            kept = len(said["limits"]) // 2
            said["left_out"] += len(said["limits"]) - kept
            said["limits"] = said["limits"][:kept]
        else:
            said["grounds"] = said["denials"] = said["top"] = ()


def _table(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def decoded(payload: bytes) -> NodeSnapshot | None:
    """Returns the snapshot of a node that `payload` contains; None if it is invalid, or of another version."""
    if len(payload) > SNAPSHOT_BYTES_MAX:
        return None
    try:
        said = json.loads(payload, parse_constant=_no_number)
        return _snapshot(said) if isinstance(said, dict) and said.pop("version", None) == VERSION else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _snapshot(said: dict[str, Any]) -> NodeSnapshot:
    inner: dict[str, Any] = {
        "grounds": tuple(_listed(said["grounds"], str)),
        "limits": tuple(LimitSnapshot(**each) for each in _listed(said["limits"], dict)),
        "top": tuple(KeyUse(**each) for each in _listed(said["top"], dict)),
        "denials": tuple(map(_denial, _listed(said["denials"], dict))),
    }
    made = NodeSnapshot(**said | inner)
    for each in (made, *made.limits, *made.top, *made.denials):
        _check_members(each)
    if made.state not in STATES:
        raise ValueError(made.state)
    return made


def _denial(said: dict[str, Any]) -> Denial:
    said["keys"] = tuple(_listed(said["keys"], str))
    return Denial(**said)


def _listed(said: object, kind: type[T]) -> list[T]:
    if not isinstance(said, list) or len(said) > LIMITS_MAX or not all(isinstance(each, kind) for each in said):
        raise TypeError(type(said))
    return said


_KINDS: Final[dict[str, frozenset[type]]] = {
    "str": frozenset({str}),
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "int | None": frozenset({int, type(None)}),
    "float": frozenset({int, float}),
    "float | None": frozenset({int, float, type(None)}),
    "Mapping[str, Any]": frozenset({dict}),
}
"""By the annotation of a field, the types that its value may have when it is read from JSON."""


_MEMBERS: Final = {
    part: [(each.name, _KINDS[str(each.type)]) for each in fields(part) if str(each.type) in _KINDS]
    for part in (NodeSnapshot, LimitSnapshot, KeyUse, Denial)
}
"""By class, its fields with the types of their values; not its tuples, whose items are checked one by one."""


def _check_members(made: Any) -> None:
    for name, kinds in _MEMBERS[type(made)]:
        value = getattr(made, name)
        kind = type(value)
        if kind not in kinds:
            raise TypeError(name)
        if kind is str:
            if len(value) > TEXT_MAX:
                raise ValueError(name)
        elif (kind is int or kind is float) and not abs(value) <= NUMBER_MAX:
            raise ValueError(name)
