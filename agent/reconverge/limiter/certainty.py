"""Functions for storages and guards: facts about a limit beside its decisions, such as certainty and known keys."""

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
    """Returns the refusal of a request, with a `retry_after` after which any node probably admits the request.

    The new `retry_after` is never shorter than that of `decision`. It is for clients that may reach another node when
    they retry. An admission is returned as it is.
    """
    return of_any_node(limiter.control.enforcement.table, decision, key, cost, kind)


def has_charged(decision: Decision) -> bool:
    """Returns whether the request was charged. It was not if the limit is off, or is in shadow and would refuse it."""
    return decision.allowed and decision.switch != OFF and not decision.would_refuse


def cost_in_first_quota(limiter: Limiter, cost: int, kind: str | None) -> int:
    """Returns the cost of a request; with several quotas, by the table of costs of the first."""
    return cost if kind is None else limiter.control.tables[0].cost_of(cost, kind)


def left_in_doubt(limiter: Limiter, decision: Decision, key: str) -> int:
    """Returns how much is left of the quota that has refused a request in doubt, as far as this node knows.

    `decision.remaining` is no substitute: in a refusal it is always less than the request's cost.
    """
    usage = limiter.usages(key).get(decision.binding)
    return decision.remaining if usage is None else max(decision.remaining, usage.limit - usage.total)


def left_of_others(limiter: Limiter, decision: Decision, key: str) -> list[Decision]:
    """Returns the numbers of all quotas of a limit but the one that a decision is about, as admissions that cost 0.

    Returns none for a share, of which one quota has to admit and not all, and none for a ban.
    """
    control = limiter.control
    tables = control.tables
    if len(tables) == 1 or control.borrows or all(table.name != decision.binding for table in tables):
        return []
    return [table.test(key, 0) for table in tables if table.name != decision.binding]


def others_hold(limiter: Limiter, decision: Decision, key: str, cost: int) -> bool:
    """Returns whether other nodes hold enough unused allowance for a refused request, which they will give back.

    Returns False if the hub does not answer.
    """
    if decision.allowed or decision.certain or decision.reentered:
        return False
    cell = limiter.control.table.cells.get(key)
    heard = cell is not None and cell.heard and not cell.shard.in_vain
    return heard and cost <= left_in_doubt(limiter, decision, key)


def never_admitted(limiter: Limiter, key: str) -> Decision:
    """Returns the refusal of a request that costs more than the limit can ever admit; its wait is infinite."""
    return replace(limiter.test(key, 0), allowed=False, retry_after=inf)


def known_keys(limiter: Limiter) -> list[str]:
    """Returns the keys that this node counts one by one."""
    return list(limiter.control.table.cells)


def is_known(limiter: Limiter, key: str) -> bool:
    """Whether this node has a count for this key alone."""
    return key in limiter.control.table.cells


def is_alone(limiter: Limiter) -> bool:
    """Whether the limit belongs to a node without a hub."""
    return limiter.control.table.kernel.alone


def leave_spare_at_hub(limiter: Limiter, *, leave: bool = True) -> None:
    """Lets the hub keep the free part of a small quota, so that no node holds spare allowance; with False, ends that.

    See `Table.leave_spare_at_hub`. On a node without a hub nothing changes.
    """
    if not is_alone(limiter):
        limiter.control.table.leave_spare_at_hub(leave=leave)


def leaves_spare_at_hub(limiter: Limiter) -> bool:
    """Whether the free part of a quota is kept at the hub."""
    return not limiter.control.table.keeps_spare
