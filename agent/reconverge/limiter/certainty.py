"""Facts about a limit that its decisions do not show, such as the keys that it knows, for storages and web guards."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from reconverge.decision import Decision
from reconverge.kernel import for_any_node as of_any_node
from reconverge.limiter.enforcement.switches import OFF
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter


def hit_at_once(limiter: RateLimiter, key: str, cost: int, kind: str | None = None) -> Decision | None:
    """Decides as `limiter.hit` if the decision is certain; else charges nothing and returns None."""
    board = limiter.control.enforcement
    if board.answers is board.on and not board.on.settles(key, cost, kind):
        return None
    return limiter.hit(key, cost, kind)


def for_any_node(limiter: Limiter, decision: Decision, key: str, cost: int = 1, kind: str | None = None) -> Decision:
    """Returns a refusal with the time `retry_after`, in seconds, after which any node probably admits the request.

    The new `retry_after` is never shorter than that of `decision`. It is for clients that may reach another node when
    they retry. If `decision` is an admission, it is returned unchanged.
    """
    return of_any_node(limiter.control.enforcement.table, decision, key, cost, kind)


def has_charged(decision: Decision) -> bool:
    """Returns whether the request was charged: not if it was refused, or if the limit is off or shadow admitted it."""
    return decision.allowed and decision.switch != OFF and not decision.would_refuse


def cost_in_first_quota(limiter: Limiter, cost: int, kind: str | None) -> int:
    """Returns the charge for a request in the limit's first quota, by that quota's table of costs."""
    return cost if kind is None else limiter.control.tables[0].cost_of(cost, kind)


def left_in_doubt(limiter: Limiter, decision: Decision, key: str) -> int:
    """Returns the cost that is left, as far as this node knows, in the quota that refused a request in doubt.

    `decision.remaining` is no substitute: in a refusal it is always less than the request's cost.
    """
    usage = limiter.usages(key).get(decision.binding)
    return decision.remaining if usage is None else max(decision.remaining, usage.limit - usage.total)


def left_of_others(limiter: Limiter, decision: Decision, key: str) -> list[Decision]:
    """Returns what is left in each quota of a limit except `decision`'s own: one admission with a cost of 0 for each.

    The list is empty for a share, of which only one quota has to admit, and for a ban.
    """
    control = limiter.control
    tables = control.tables
    if len(tables) == 1 or control.borrows or all(table.name != decision.binding for table in tables):
        return []
    return [table.test(key, 0) for table in tables if table.name != decision.binding]


def others_hold(limiter: Limiter, decision: Decision, key: str, cost: int) -> bool:
    """Returns whether other nodes hold enough unused allowance for a refused request, and will give it back.

    Returns False if the hub does not answer.
    """
    if decision.allowed or decision.certain or decision.reentered:
        return False
    cell = limiter.control.table.cells.get(key)
    heard = cell is not None and cell.heard and not cell.shard.in_vain
    return heard and cost <= left_in_doubt(limiter, decision, key)


def never_admitted(limiter: Limiter, key: str) -> Decision:
    """Returns the refusal of a request whose cost exceeds all that the limit ever admits; its wait is infinite."""
    return replace(limiter.test(key, 0), allowed=False, retry_after=inf)


def known_keys(limiter: Limiter) -> list[str]:
    """Returns the keys that this node counts separately."""
    return list(limiter.control.table.cells)


def is_known(limiter: Limiter, key: str) -> bool:
    """Whether this node counts this key separately."""
    return key in limiter.control.table.cells


def is_alone(limiter: Limiter) -> bool:
    """Whether the limit belongs to a node without a hub."""
    return limiter.control.table.kernel.alone


def leave_spare_at_hub(limiter: Limiter, *, leave: bool = True) -> None:
    """Lets the hub keep the free part of a small quota, so that nodes hold no unused allowance.

    If `leave` is False, nodes hold free parts again. On a node without a hub nothing changes. See
    `Table.leave_spare_at_hub`.
    """
    if not is_alone(limiter):
        limiter.control.table.leave_spare_at_hub(leave=leave)


def leaves_spare_at_hub(limiter: Limiter) -> bool:
    """Returns whether the hub keeps the free part of the limit's small quota; see `leave_spare_at_hub`."""
    return not limiter.control.table.keeps_spare
