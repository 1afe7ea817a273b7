"""Builds the console's pages about the fleet from the snapshots of its nodes: nodes, limits, keys and refusals."""

# Theory of operation.
#
# Exposure. A limit has a declared bound on what a window may admit beyond it, for one key and all nodes together. How
# much of that is possible at this moment depends on which nodes may go beyond their allowances now:
#
#     policy      declared bound      possible at this moment
#     strict      0                   0
#     balanced    s*C + N*c           s*C + F*c, as overdrafts are granted to all nodes together; 0 if F is 0
#     available   (N-1)*C             the same: a node that is cut off continues to admit
#
# with the capacity C, the overshoot s of the policy, the largest cost c of a request, N nodes that have the limit, and
# F of them that have had an answer from the hub within three sync intervals. A silent node (one without a recent
# snapshot) counts in N and not in F: its overdraft would come from the hub, which it does not reach. If a node has
# switched the limit off or to shadow, the limit has no bound, and the page shows none.
#
# New keys are not included, as in the table of bounds: until the hub's first answer about a key, each node admits by
# its `cold_allowance`.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from reconverge.agent.snapshots.snapshot import LimitSnapshot, NodeSnapshot
from reconverge.errors import InvalidLimit
from reconverge.integrations.console.seen import Seen
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import limit_of_quota
from reconverge.limiter.enforcement.switches import ON

NODES_SHOWN_MAX: Final = 1000
LIMITS_SHOWN_MAX: Final = 500
KEYS_SHOWN_MAX: Final = 50
DENIALS_SHOWN_MAX: Final = 50
SILENT: Final = "silent"
"""The state of a node that has left no snapshot for a while: it is cut off from the hub, or has ended."""


Node: TypeAlias = Seen[NodeSnapshot]
"""A node's snapshots, and how long the node has been silent."""


def exposure(limits: Sequence[tuple[LimitSnapshot, bool]]) -> tuple[float | None, float | None]:
    """Returns how much may be admitted beyond a limit: the amount possible at this moment, and the declared bound.

    None means that there is no bound. `limits` holds the limit as it is in each node's snapshot, with whether the
    snapshot is recent.
    """
    if any(each.switch != ON for each, _ in limits):
        return None, None
    capacity = max(each.capacity for each, _ in limits)
    cost = max(each.cost_max for each, _ in limits)
    overshoots = [each.overshoot for each, _ in limits]
    if None in overshoots:
        bound = float(capacity * (len(limits) - 1))
        return bound, bound
    most = max(each for each in overshoots if each is not None)
    if most == 0:
        return 0.0, 0.0
    daring = sum(each.dares and now for each, now in limits)
    return (most * capacity + daring * cost if daring else 0.0), most * capacity + len(limits) * cost


def view_of(nodes: Sequence[Node]) -> dict[str, Any]:
    """Returns the data of all console pages about the fleet, as a dict that JSON can express."""
    nodes = sorted(nodes, key=lambda node: (node.newest.host, node.newest.pid, node.name))[:NODES_SHOWN_MAX]
    return {
        "nodes": [_table_of_node(node) for node in nodes],
        "limits": _tables_of_limits(nodes)[:LIMITS_SHOWN_MAX],
        "keys": _top(nodes),
        "denials": _denials(nodes),
        "left_out": sum(node.newest.left_out for node in nodes),
        "hashed": any(node.newest.hashed for node in nodes),
    }


def _table_of_node(node: Node) -> dict[str, Any]:
    newest = node.newest
    admitted, refused = _rates(node)
    return {
        "name": node.name,
        "host": newest.host,
        "pid": newest.pid,
        "hub": newest.hub,
        "state": SILENT if node.silent_s else newest.state,
        "grounds": [_silence(node.silent_s), *newest.grounds] if node.silent_s else list(newest.grounds),
        "staleness": None if newest.staleness is None else newest.staleness + node.silent_s,
        "round_trip": newest.round_trip,
        "lease": newest.lease,
        "exchanges": newest.exchanges,
        "failures": newest.failures,
        "keys": newest.keys,
        "kernel": newest.kernel,
        "switch": newest.switch,
        "settings": newest.settings_version,
        "policies": sorted({each.policy for each in newest.limits}),
        "admitted_per_s": admitted,
        "refused_per_s": refused,
    }


def _silence(silent_s: float) -> str:
    return f"the node has left no snapshot for {silent_s:.0f} s: it is cut off from the hub, or has ended"


def _rates(node: Node, name: str | None = None) -> tuple[float, float]:
    """Returns the requests that a node admitted and refused per second between its two snapshots.

    `name` selects one limit; None sums up all limits. Both numbers are 0.0 if the node has only one snapshot. Requests
    that were admitted only because the limit was in shadow count as admitted.
    """
    before, newest, passed_s = node.before, node.newest, node.passed_s
    if before is None or not passed_s:
        return 0.0, 0.0
    counted = {each.name: each for each in before.limits}
    admitted = refused = 0
    for each in newest.limits:
        known = counted.get(each.name)
        if known is not None and name in (None, each.name):
            admitted += max(0, each.admitted - known.admitted) + max(0, each.would_refuse - known.would_refuse)
            refused += max(0, each.refused - known.refused)
    return admitted / passed_s, refused / passed_s


def _tables_of_limits(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    by_name: dict[str, list[tuple[LimitSnapshot, Node]]] = {}
    for node in nodes:
        for each in node.newest.limits:
            by_name.setdefault(each.name, []).append((each, node))
    tables = [_table_of_limit(name, declared_at) for name, declared_at in sorted(by_name.items())]
    return sorted(tables, key=lambda table: (-table["refused_per_s"], -table["admitted_per_s"], table["name"]))


def _table_of_limit(name: str, declared_at: Sequence[tuple[LimitSnapshot, Node]]) -> dict[str, Any]:
    limits = [each for each, _ in declared_at]
    live, bound = exposure([(each, not node.silent_s) for each, node in declared_at])
    rates = [_rates(node, name) for _, node in declared_at]
    return {
        "name": name,
        "limit": limit_of_quota(name),
        "said": _most_common(each.said for each in limits),
        "policy": _most_common(each.policy for each in limits),
        "switch": _most_common(each.switch for each in limits),
        "declared_alike": len({(each.said, each.policy, each.switch) for each in limits}) == 1,
        "nodes": len(limits),
        "keys": max(each.keys for each in limits),
        "capacity": max(each.capacity for each in limits),
        "admitted": sum(each.admitted + each.would_refuse for each in limits),
        "refused": sum(each.refused for each in limits),
        "would_refuse": sum(each.would_refuse for each in limits),
        "overadmitted": max(each.overadmitted for each in limits),
        "in_use": _in_use(declared_at),
        "admitted_per_s": sum(admitted for admitted, _ in rates),
        "refused_per_s": sum(refused for _, refused in rates),
        "exposure": live,
        "bound": bound,
    }


def _in_use(declared_at: Sequence[tuple[LimitSnapshot, Node]]) -> int | None:
    """Returns how many slots are in use on all nodes that are not silent; None for a limit on a rate."""
    slots = [each.in_use for each, node in declared_at if each.in_use is not None and not node.silent_s]
    return sum(slots) if slots else None


def _most_common(words: Iterable[str]) -> str:
    return Counter(words).most_common(1)[0][0]


def _top(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Returns the keys that have used most of their capacity. If several nodes report a key, the largest use counts."""
    most: dict[tuple[str, str], tuple[int, int]] = {}
    for node in nodes:
        for each in node.newest.top if not node.silent_s else ():
            place = each.limit, each.key
            most[place] = max(most.get(place, (0, 0)), (each.used, each.capacity))
    fullest = sorted(most.items(), key=lambda item: (-item[1][0] / max(1, item[1][1]), item[0]))
    return [
        {"limit": limit, "key": key, "used": used, "capacity": capacity}
        for (limit, key), (used, capacity) in fullest[:KEYS_SHOWN_MAX]
    ]


def _denials(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Returns the last denials of all nodes, the newest first: one entry for each limit and the keys of an event."""
    found: dict[tuple[str, tuple[str, ...]], tuple[float, int]] = {}
    for node in nodes:
        for each in node.newest.denials:
            place = each.limit, tuple(sorted(each.keys))
            at, count = found.get(place, (0.0, 0))
            found[place] = max(at, each.at), count + each.count
    newest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        {"at": at, "limit": limit, "count": count, "keys": list(keys)}
        for (limit, keys), (at, count) in newest[:DENIALS_SHOWN_MAX]
    ]


def limits_named(nodes: Sequence[Node], name: str) -> Mapping[str, Limit]:
    """Returns a limit's quotas by name, each as most nodes declare it; empty if no snapshot has the limit.

    An invalid declaration is left out: it comes from a snapshot, and any client of the hub can write one.
    """
    declared: dict[str, list[LimitSnapshot]] = {}
    for node in nodes:
        for each in node.newest.limits:
            if limit_of_quota(each.name) == name:
                declared.setdefault(each.name, []).append(each)
    made: dict[str, Limit] = {}
    for quota, declared_at in sorted(declared.items()):
        said = _most_common(each.said for each in declared_at)
        fields = next(each.declared for each in declared_at if each.said == said)
        try:
            made[quota] = Limit(**fields)
        except (InvalidLimit, TypeError, ValueError):
            continue
    return made
