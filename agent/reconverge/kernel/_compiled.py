"""What the compiled kernel has to know of a limit to decide about it in place of Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from reconverge.clock import SystemClock
from reconverge.kernel._engine import COMPILED
from reconverge.kernel._meter import Bucket, FixedWindow, SlidingWindow
from reconverge.policies.strict import strict

if TYPE_CHECKING:
    from reconverge.kernel._table import Table

KINDS: Final[dict[type, int]] = {FixedWindow: 0, SlidingWindow: 1, Bucket: 2}
"""The meters that it knows; Python decides about the limits of all others, on the same cells."""


def serve(table: Table) -> None:
    """Have the compiled kernel decide about a limit, if there is one; to be called again when the limit has changed."""
    if not COMPILED:
        return
    store: Any = table.cells
    # The compiled clock is the one that Python reads on this system.
    own_clock = sys.platform == "linux" and table.now_ns is SystemClock.monotonic_ns
    clock = None if own_clock else table.now_ns
    store.serve(table, table.lock, clock, table.unit, table.additive, table.tallies, _terms(table))
    # Attributes of the instance hide the methods of its class.
    vars(table)["allow"] = store.allow
    if _known(table):
        vars(table)["hit"] = store.hit
    else:
        vars(table).pop("hit", None)


def _known(table: Table) -> bool:
    return (
        not table.particular
        and type(table.meter) in KINDS
        and table.calendar is None
        and not table.limit.count_refused
        and table.unit == 1
    )


def _terms(table: Table) -> dict[str, Any] | None:
    if not _known(table):
        return None
    policy, kernel = table.policy, table.kernel
    return {
        "kind": KINDS[type(table.meter)],
        "window_ns": table.window_ns,
        "quota": table.quota,
        "capacity": table.capacity,
        "nominal": table.nominal,
        "cost_max": table.cost_max,
        "soft": table.soft,
        "withheld": table.withheld,
        "idle_ns": table.meter.idle_ns,
        "keeps_lines": policy.keeps_lines,
        "merged_only": policy.merged_only,
        "overshoot_milli": policy.overshoot_milli,
        "strict": policy.reach is strict,
        "cold_allowance": policy.cold_allowance,
        "interval_ns": kernel.interval_ns,
        "interval_min_ns": kernel.interval_min_ns,
    }
