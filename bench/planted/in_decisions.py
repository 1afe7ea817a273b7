"""Faults of a node that decides: it goes beyond its allowance, its lease or its window."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import BUCKETS, KERNEL, QUOTAS, ExploredCase, Patch, PlantedFault
from reconverge.simulation.model.guards import ProofGuard

POLICIES_FILE: Final = "agent/reconverge/policies.py"
WINDOWS: Final = f"{KERNEL}/algorithms/windows.py"
BUCKET: Final = f"{KERNEL}/algorithms/bucket.py"

IN_DECISIONS: Final = (
    PlantedFault(
        "one too many",
        "A node admits one more than its allowance.",
        (
            Patch(
                f"{KERNEL}/table/slow_path.py",
                "    allowed = cost <= spare\n",
                "    allowed = cost <= spare + 1\n",
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.WITHIN_ALLOWANCE,
        chaos="killed-nodes",
    ),
    PlantedFault(
        "goes on after its lease",
        "A node uses its allowance when its lease is over.",
        (
            Patch(
                f"{KERNEL}/cell.py",
                "    return cell.allowance if table.policy.keeps_allowances else 0\n",
                "    return cell.allowance\n",
            ),
        ),
        ExploredCase(
            "fixed",
            start=(
                "hits 0",
                "exchanges 0",
                "lease",
                "hits all and exchanges 1",
                "edge",
                "hits all and exchanges 1",
                "edge",
                "after the edge",
                "hits all and exchanges 1",
            ),
        ),
        ProofGuard.NODE_STOPS_AT_LEASE,
        chaos="partition-one",
    ),
    PlantedFault(
        "dares without an answer",
        "A balanced node uses its overdraft although the hub does not answer.",
        (
            Patch(
                POLICIES_FILE,
                "    if not view.fresh:\n        return view.allowance\n    if view.calm:\n        step",
                "    if view.calm:\n        step",
            ),
        ),
        ExploredCase("fixed", quota=40, policy="balanced at nodes"),
        ProofGuard.BEYOND_WHILE_FRESH,
        chaos="partition-all",
        remark="a full key of chaos has taken its step beyond while answers were fresh",
    ),
    PlantedFault(
        "steps again and again",
        "A balanced node goes one step beyond what it has used, and not beyond its allowance.",
        (
            Patch(
                POLICIES_FILE,
                "    return min(view.allowance + step, math.floor(",
                "    return min(max(view.allowance, view.own) + step, math.floor(",
            ),
        ),
        ExploredCase(
            "fixed", asking=True, quota=40, policy="balanced at nodes", grain="fine", start=("asks all 1", "asks all 0")
        ),
        ProofGuard.ONE_REQUEST_BEYOND,
        chaos="partition-one",
    ),
    PlantedFault(
        "keeps its allowance over the edge",
        "A node begins a fixed window with the allowance of the window before.",
        (
            Patch(
                WINDOWS,
                "        cell.allowance = cell.base if opens else 0\n        cell.counted = 0\n",
                "        cell.allowance = max(cell.allowance, cell.base if opens else 0)\n        cell.counted = 0\n",
            ),
        ),
        ExploredCase("fixed", asking=True, start=("asks for all 0",)),
        ProofGuard.OPEN_FROM_BASE,
        chaos="killed-nodes",
    ),
    PlantedFault(
        "reads the clock early",
        "A node takes the hub's clock for exact while use fades.",
        (Patch(WINDOWS, "now_ns - cell.opened_ns - cell.lag_ns\n", "now_ns - cell.opened_ns\n"),),
        ExploredCase("sliding", grain="fine"),
        ProofGuard.CLOCK_READ_LATE,
        modelled=False,
        chaos="partition-half",
    ),
    PlantedFault(
        "keeps vouchers over the edge",
        "A node goes on with what the hub granted for the sliding window before.",
        (
            Patch(
                WINDOWS,
                "        if cell.at_hub:\n            cell.allowance = 0  ",
                "        if cell.at_hub and steps != 1:\n            cell.allowance = 0  ",
            ),
        ),
        ExploredCase("sliding", asking=True, quota=4),
        ProofGuard.VOUCHERS_END_WITH_WINDOW,
        modelled=False,
        chaos="ask-away",
    ),
    PlantedFault(
        "drains by the whole rate",
        "A node drains its bucket by the whole rate, and not by its part of it.",
        (
            Patch(
                BUCKET,
                "self._capacity if self._merged_only else min(cell.allowance, self._capacity)",
                "self._capacity if self._merged_only or cell.allowance else 0",
            ),
        ),
        ExploredCase("tokens", quota=4),
        ProofGuard.DRAINS_BY_ALLOWANCE,
        modelled=False,
        chaos="flapping",
    ),
    PlantedFault(
        "drains after its lease",
        "A node's bucket goes on draining when its lease is over.",
        (
            Patch(
                BUCKET,
                "now_ns if self._merged_only else min(now_ns, max(cell.marked_ns, lease_until_ns(cell)))",
                "now_ns",
            ),
        ),
        ExploredCase("tokens", quota=4, window_s=10.0),
        ProofGuard.DRAINS_IN_LEASE,
        modelled=False,
        beyond_chaos=BUCKETS,
    ),
    PlantedFault(
        "uses a voucher twice",
        "A node that has a grant of a bucket forgets what it has charged of it.",
        (
            Patch(
                BUCKET,
                "            return max(0, cell.charged + cell.used - cell.counted - cell.confirmed[1])\n",
                "            return cell.used\n",
            ),
        ),
        ExploredCase("tokens", asking=True),
        ProofGuard.CHARGES_WITHIN_VOUCHERS,
        modelled=False,
        beyond_chaos=BUCKETS,
    ),
    PlantedFault(
        "keeps its allowance when the quota falls",
        "A node goes on by the allowance of the former quota.",
        (
            Patch(
                f"{KERNEL}/table/changes.py",
                "        if table.capacity < before:\n            cell.allowance =",
                "        if table.capacity < 0:\n            cell.allowance =",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.SCALES_DOWN,
        beyond_chaos=QUOTAS,
    ),
    PlantedFault(
        "admits after every answer",
        "A request that has waited for the hub is admitted, also if the answer leaves nothing for it.",
        (
            Patch(
                f"{KERNEL}/composite/asking.py",
                "    spare = table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns)\n"
                "    return spare, cost <= spare\n",
                "    spare = table.meter.spare(cell, usable_allowance(cell, now_ns), now_ns)\n"
                "    return spare, cost <= spare or cell.heard\n",
            ),
        ),
        ExploredCase("fixed", asking=True),
        remark="requests of a small world wait at a gate, and this code is not theirs; chaos finds it by slots, as the "
        "keys that are followed are seldom full",
        chaos="ask-stopped",
    ),
)
"""The faults of this kind, in the order of the table."""
