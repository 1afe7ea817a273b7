"""Functions that storages and web guards need about a limit, such as whether this node counts a key."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from reconverge.decision import Decision
from reconverge.kernel import for_any_node as of_any_node
from reconverge.limiter.enforcement.switches import OFF
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter


def hit_at_once(limiter: RateLimiter, key: str, cost: int, kind: str | None = None) -> Decision | None:
    """Decides as `limiter.hit` if the hub's answer could not change that; else charges nothing, and returns None."""
    board = limiter.control.enforcement
    if board.answers is board.on and not board.on.settles(key, cost, kind):
        return None
    return limiter.hit(key, cost, kind)


def for_any_node(limiter: Limiter, decision: Decision, key: str, cost: int = 1, kind: str | None = None) -> Decision:
    """Returns the refusal `decision` with another `retry_after`: then probably any node admits the request.

    A client needs this time if its retry may reach another node. It is never shorter than that of `decision`. An
    admission is returned unchanged.
    """
    return of_any_node(limiter.control.enforcement.table, decision, key, cost, kind)


def has_charged(decision: Decision) -> bool:
    """Returns whether the decision charged a cost: it is an admission, and not only because of "off" or "shadow"."""
    return decision.allowed and decision.switch != OFF and not decision.would_refuse


def cost_in_first_quota(limiter: Limiter, cost: int, kind: str | None) -> int:
    """Returns what the limit's first quota charges for `cost` requests of `kind`; if `kind` is None, `cost` itself."""
    return cost if kind is None else limiter.control.tables[0].cost_of(cost, kind)


def left_in_doubt(limiter: Limiter, decision: Decision, key: str) -> int:
    """Returns how much is still free for `key`, on all nodes as far as this node knows, in the quota that has refused.

    Use it in place of `decision.remaining`, which for a refusal is less than the request's cost, even if other nodes
    have room.
    """
    usage = limiter.usages(key).get(decision.binding)
    return decision.remaining if usage is None else max(decision.remaining, usage.limit - usage.total)


def left_of_others(limiter: Limiter, decision: Decision, key: str) -> list[Decision]:
    """Returns a decision about a cost of 0 for each quota of a limit, except the one that has decided.

    The `remaining` of such a decision is the cost left. The list is empty for a limit with one quota, for a limit that
    may borrow from a parent, and after a ban.
    """
    control = limiter.control
    tables = control.tables
    if len(tables) == 1 or control.borrows or all(table.name != decision.binding for table in tables):
        return []
    return [table.test(key, 0) for table in tables if table.name != decision.binding]


def others_hold(limiter: Limiter, decision: Decision, key: str, cost: int) -> bool:
    """Returns whether other nodes probably have free allowance for a request that this node refused in doubt.

    Returns False if the hub does not answer, or has never answered about `key`.
    """
    if decision.allowed or decision.certain or decision.reentered:
        return False
    cell = limiter.control.table.cells.get(key)
    heard = cell is not None and cell.heard and not cell.shard.in_vain
    return heard and cost <= left_in_doubt(limiter, decision, key)


def never_admitted(limiter: Limiter, key: str) -> Decision:
    """Returns a refusal with an infinite `retry_after`, for a cost that exceeds all that the limit ever admits."""
    return replace(limiter.test(key, 0), allowed=False, retry_after=inf)


def known_keys(limiter: Limiter) -> list[str]:
    """Returns the keys of which this node has counts."""
    return list(limiter.control.table.cells)


def is_known(limiter: Limiter, key: str) -> bool:
    """Returns whether this node has counts of `key`."""
    return key in limiter.control.table.cells


def is_alone(limiter: Limiter) -> bool:
    """Returns whether the limit belongs to a node without a hub."""
    return limiter.control.table.kernel.alone


def leave_spare_at_hub(limiter: Limiter, *, leave: bool = True) -> None:
    """Makes the hub keep the free part of each small quota, so that nodes hold no unused allowance.

    With `leave=False`, nodes hold free parts again. Without a hub nothing changes.
    """
    if not is_alone(limiter):
        limiter.control.table.leave_spare_at_hub(leave=leave)


def leaves_spare_at_hub(limiter: Limiter) -> bool:
    """Returns whether the hub keeps the free part of each small quota, as `leave_spare_at_hub` sets it."""
    return not limiter.control.table.keeps_spare
