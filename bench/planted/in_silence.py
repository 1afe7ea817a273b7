"""Faults of silence and recall: of charges, allowances and keys that a node does not report for a while."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import KERNEL, MERGE, QUOTAS, ExploredCase, Patch, PlantedFault
from reconverge.simulation.explore.events import RECKLESS

RENAMING: Final = f"{KERNEL}/reporting/renaming.py"
SILENT: Final = ("hits 0", "exchanges 0")
"""Events after which a node is silent about the key."""
NOT_ABSURD: Final = "chaos has the constants of silence that agents have"
SECONDS: Final = 3.0
"""A window in which the hub can recall a key before the silence about it is over, as a node with nothing to report
exchanges each second; and one no longer than a lease, as allowances are small in longer ones."""
LASTING_S: Final = 10.0
"""A window that goes on when a lease is over. At the end of a window a node counts its silent charges by itself."""

IN_SILENCE: Final = (
    PlantedFault(
        "trusts the recall",
        "The hub recalls a key, and takes the other nodes' allowances back before these have reported.",
        (
            Patch(
                f"{MERGE}/recalling.py",
                "        self.kept.pop((name, report.key), None)\n",
                "        for other, held in cell.entries.items():\n"
                "            if other != batch.node:\n"
                "                cell.count(held, -1)\n"
                "                held.allowance = min(held.allowance, int(held.used(rule, cell, hub_us)))\n"
                "                cell.count(held)\n"
                "        self.kept.pop((name, report.key), None)\n",
            ),
        ),
        ExploredCase("fixed", quota=5, window_s=SECONDS, start=SILENT, more=(RECKLESS,)),
        reckless=True,
        chaos="partition-one-on-mqtt",
        followed=("partition-one-on-mqtt", "recalls-lost"),
    ),
    PlantedFault(
        "lowers by a recall alone",
        "A node that hears a recall lowers its allowance by the needs in it, which are outdated, before its report.",
        (
            Patch(
                f"{KERNEL}/reporting/requests.py",
                "    cell.free = 0\n",
                "    cell.free = 0\n    cell.allowance = cell.allowance * cell.need_milli // max(1, needs_milli)\n",
            ),
        ),
        ExploredCase("fixed", quota=5, window_s=SECONDS, start=SILENT, more=(RECKLESS,)),
        reckless=True,
        remark="an allowance that falls breaks no bound; here it rises if the key's need exceeds an outdated sum",
        chaos="recalls-lost",
    ),
    PlantedFault(
        "forgets silent charges when its lease ends",
        "A node that gets another name reports nothing of what it charged in silence.",
        (
            Patch(
                RENAMING,
                "    table.edges.advance(cell, now_ns)\n    measure(cell)\n    table.meter.leave_hub(cell)\n",
                "    table.edges.advance(cell, now_ns)\n"
                "    cell.used = cell.counted if cell.comfortable else cell.used\n"
                "    measure(cell)\n    table.meter.leave_hub(cell)\n",
            ),
        ),
        ExploredCase("fixed", quota=5, window_s=LASTING_S, start=(*SILENT, "hits 0", "lease"), more=(RECKLESS,)),
        reckless=True,
        chaos="ask-killed",
        followed=("recalls-lost",),
        remark=NOT_ABSURD,
    ),
    PlantedFault(
        "goes on in silence after its lease",
        "A node that is silent about a key charges it on the fast path when its lease is over.",
        (
            Patch(
                f"{KERNEL}/algorithms/edges.py",
                "        if not table.policy.keeps_allowances and now_ns < leased_until_ns:\n",
                "        if not table.policy.keeps_allowances and now_ns < leased_until_ns and not cell.comfortable:\n",
            ),
        ),
        ExploredCase("tokens", quota=5, grain="fine", window_s=10.0, start=(*SILENT, "hits 0"), more=(RECKLESS,)),
        reckless=True,
        chaos="ask-killed",
        followed=("recalls-lost",),
        remark=NOT_ABSURD,
    ),
    PlantedFault(
        "stays silent after a loss",
        "A hub has lost its data, and a node does not report the keys about which it is silent.",
        (
            Patch(
                RENAMING,
                "    if not cell.heard:\n        return  # it holds no allowance, and is to be reported anyway\n",
                "    if not cell.heard or cell.comfortable:\n        return\n",
            ),
        ),
        ExploredCase("fixed", quota=5, policy="balanced at nodes", window_s=SECONDS, start=SILENT, more=(RECKLESS,)),
        reckless=True,
        chaos="killed-quiet",
        remark=NOT_ABSURD,
    ),
    PlantedFault(
        "forgets what is silent",
        "The hub gives up on what a node holds of a key that it has not reported for a quarter of the window.",
        (
            Patch(
                f"{MERGE}/rule.py",
                "hub_us - entry.seen_us > lives_us\n",
                "hub_us - entry.seen_us > rule.window_us / 4\n",
            ),
        ),
        ExploredCase("fixed", quota=5, window_s=SECONDS, start=SILENT, more=(RECKLESS,)),
        reckless=True,
        chaos="partition-one-on-mqtt",
        followed=("partition-one-on-mqtt", "recalls-lost"),
    ),
    PlantedFault(
        "is silent about a quota that fell",
        "A node that is silent about a key goes on by the allowance of the former quota.",
        (
            Patch(
                f"{KERNEL}/table/changes.py",
                "        if table.capacity < before:\n            cell.allowance =",
                "        if table.capacity < before and not cell.comfortable:\n            cell.allowance =",
            ),
        ),
        ExploredCase("fixed", quota=5, window_s=SECONDS, start=SILENT, more=(RECKLESS,)),
        reckless=True,
        beyond_chaos=QUOTAS,
    ),
)
"""The faults of this kind, in the order of the table."""
