"""What becomes of the counts when a contract changes: which limits share them, and for how long a charge counts."""

from __future__ import annotations

from dataclasses import replace

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.contracts.model import COUNTED_BY
from reconverge.limit.grammar import Quota, parse_quotas
from reconverge.limit.limit import DRAINED, SLIDING_WINDOW, Limit


def same_cells(one: Limit, other: Limit) -> bool:
    """Whether two limits of one name share their counts: they differ in how much they admit, and in nothing else."""
    return all(getattr(one, name) == getattr(other, name) for name in COUNTED_BY)


def counts_for_s(limit: Limit) -> float:
    """For how many seconds a charge to such a limit may still count."""
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as in DRAINED:
        return window_s * max(1.0, limit.capacity / limit.quota)
    return 2 * window_s if limit.algorithm == SLIDING_WINDOW else window_s


def overridden(limit: Limit, override: str | Limit) -> Limit:
    """The limit with a customer's quota and burst in place of its own; all of it, if that is over another window."""
    if isinstance(override, Limit):
        return override
    quota = parse_quotas(override)[0]
    if window_of(quota) != (limit.window_ns, limit.warmup_ns):
        return replace(Limit.parse(override), name=None)
    return replace(limit, quota=quota.amount, burst=quota.burst)


def window_of(quota: Quota) -> tuple[int, int]:
    """The window and the warmup that a limit string says, in nanoseconds, as a limit has them."""
    window_ns, warmup_ns = (round(each * 1_000_000) * MICROSECOND_NS for each in (quota.window_s, quota.warmup_s or 0))
    return window_ns, warmup_ns
