"""Passes the numbers of a limit, such as its quota, to the compiled kernel, which then decides in place of Python."""

# The compiled kernel decides about the limits that most users have: fixed windows, sliding windows and buckets that
# follow the clock, by one of the four policies. A second kernel for all limits would be twice the code to be wrong in.
# For all others C calls the Python method of the same name, on the same cell and under the same lock. `_known` returns
# whether C may decide about a limit; it must become false for any new feature that C does not have.

from __future__ import annotations

import sys
from typing import Any, Final, cast

from reconverge.clock import SystemClock
from reconverge.hub.report import CellReport
from reconverge.kernel.algorithms.bucket import Bucket
from reconverge.kernel.algorithms.windows import FixedWindow, SlidingWindow
from reconverge.kernel.engine import COMPILED, native
from reconverge.kernel.reporting.batches import hear, look_again_at, rebase, report_or_drop
from reconverge.kernel.table.lookup import use_if_left
from reconverge.kernel.table.state import LimitState
from reconverge.policies import ADMIT, AVAILABLE, BALANCED, NAIVE, SHARE, STRICT

KINDS: Final[dict[type, int]] = {FixedWindow: 0, SlidingWindow: 1, Bucket: 2}
"""The meters that the compiled kernel has, with their numbers in C; Python decides about limits with other meters."""
POLICIES: Final = {policy.reach: number for number, policy in enumerate((STRICT, BALANCED, AVAILABLE, NAIVE))}
"""The policies that the compiled kernel has, with their numbers in C; Python decides about limits with other
policies."""


def serve(table: LimitState) -> None:
    """Lets the compiled kernel decide about a limit if it can. The caller repeats this when the limit has changed."""
    store = cast("Any", table.cells)
    # The compiled kernel reads the same clock as Python on this system.
    own_clock = sys.platform == "linux" and table.now_ns is SystemClock.monotonic_ns
    clock = None if own_clock else table.now_ns
    kernel = table.kernel
    lone_shard = kernel.shards[0] if kernel.alone else None
    terms = _terms(table)
    store.serve(
        table,
        table.lock,
        clock,
        table.unit,
        kernel.key_bytes_max,
        table.additive,
        table.tallies,
        kernel.shards,
        lone_shard,
        table.evicted,
        table.peers,
        terms,
    )
    # Attributes of the instance hide the methods of its class.
    vars(table)["allow"] = store.allow
    table.compiled = terms is not None
    for name in ("hit", "settles", "test"):
        if table.compiled:
            vars(table)[name] = getattr(store, name)
        else:
            vars(table).pop(name, None)


def _known(table: LimitState) -> bool:
    return (
        not table.dropped
        and not table.edges.by_charge
        and type(table.meter) in KINDS
        and table.calendar is None
        and not table.limit.count_refused
        and table.unit == 1
        and table.policy.reach in POLICIES
    )


def _terms(table: LimitState) -> dict[str, Any] | None:
    if not _known(table):
        return None
    policy = table.policy
    return {
        "kind": KINDS[type(table.meter)],
        "window_ns": table.window_ns,
        "quota": table.quota,
        "capacity": table.capacity,
        "own_part": table.own_part,
        "nominal": table.nominal,
        "cost_max": table.cost_max,
        "soft": table.soft,
        "withheld": table.withheld,
        "idle_ns": table.meter.idle_ns,
        "keeps_allowances": policy.keeps_allowances,
        "merged_only": policy.merged_only,
        "overshoot_milli": policy.overshoot_milli,
        "admits_when_away": policy.when_hub_is_away == ADMIT,
        "policy": POLICIES[policy.reach],
        "cold_allowance": -1.0 if policy.cold_allowance == SHARE else policy.cold_allowance,
        "interval_ns": table.interval_ns,
        "interval_min_ns": table.interval_min_ns,
        "lease_ns": table.lease_ns,
        "lowered_ns": table.lowered_ns,
        "lowered_from": table.lowered_from,
        "relearns_ns": table.relearns_ns,
        "deals_shares_ns": table.deals_shares_ns,
        "silence_ns": table.silence_ns,
        "phase": table.phase,
        "small_allowances": table.small_allowances,
    }


if COMPILED:
    cast("Any", native).use(CellReport, report_or_drop, hear, look_again_at, rebase, use_if_left)
