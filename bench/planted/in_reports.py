"""Faults of a node that reports and hears: of its names, its lease, its reports, and the answers that it installs."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import CLOCKS, KERNEL, LAPSED, QUOTAS, REPORTS, SYNCER, ExploredCase, Patch, PlantedFault
from reconverge.simulation.explore.events import DRIFTING
from reconverge.simulation.model.guards import ProofGuard

_LATER: Final = "in exploration, of all limits only slots have a lease that is shorter than their node's"

IN_REPORTS: Final = (
    PlantedFault(
        "keeps what it gives back",
        "A node reports a lower allowance, and goes on by the one that it had.",
        (
            Patch(
                REPORTS,
                "    leaves = _leaves(cell, in_touch)\n",
                "    leaves, had = _leaves(cell, in_touch), cell.allowance\n",
            ),
            Patch(
                REPORTS,
                "    cell.asked = cell.ask = 0\n    return report\n",
                "    cell.asked = cell.ask = 0\n    cell.allowance = max(cell.allowance, had)\n    return report\n",
            ),
        ),
        ExploredCase(
            "fixed", quota=4, grain="fine", start=("hits 0", "exchanges 0", "hits 1", "exchanges 1", "interval")
        ),
        ProofGuard.LOWER_BEFORE_REPORT,
        chaos="partition-one",
    ),
    PlantedFault(
        "reports an allowance after its lease",
        "A node reports its allowance although its lease is over.",
        (
            Patch(
                REPORTS,
                "    if not table.policy.keeps_allowances and now_ns >= lease_until_ns(cell):\n"
                "        cell.allowance = cell.base = cell.overdraft = 0\n    early",
                "    early",
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.ZERO_AFTER_LEASE,
        remark="the proof does without it: the node takes another name by then",
        chaos="partition-one",
    ),
    PlantedFault(
        "gives back an overdraft in use",
        "A node gives back an overdraft that it is using.",
        (
            Patch(
                REPORTS,
                "min(cell.overdraft, max(part, used - cell.allowance))",
                "min(cell.overdraft, part)",
            ),
        ),
        ExploredCase("fixed", quota=40, policy="balanced at nodes"),
        ProofGuard.OVERDRAFT_IN_USE_STAYS,
        chaos="partition-one",
        remark="its part falls when nodes join, which in chaos they do where there is room",
    ),
    PlantedFault(
        "keeps its name after its lease",
        "A node goes on under its name when its lease is over.",
        (
            Patch(
                SYNCER, "        if self._answered and now_ns >= self._shard.lease_until_ns:\n", "        if False:\n"
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.NO_NAME_AFTER_LEASE,
        chaos="ask-killed",
        followed=("partition-one",),
    ),
    PlantedFault(
        "uses a name twice",
        "A node takes its old name again when its lease is over.",
        (
            Patch(
                SYNCER,
                "under the new one\n        self._name_number += 1\n",
                "under the new one\n",
            ),
        ),
        ExploredCase("fixed", faults=1, start=("hits 0", "exchanges 0", "lease", "exchanges 0")),
        ProofGuard.NAMES_ONCE,
        chaos="ask-killed",
        followed=("partition-one",),
    ),
    PlantedFault(
        "installs an allowance of another window",
        "A node installs the allowance of an answer about another window than its own.",
        (
            Patch(
                REPORTS,
                "    if same_epoch or not (table.meter.aligned or floats(cell)):\n",
                "    if same_epoch or not floats(cell):\n",
            ),
        ),
        ExploredCase("fixed", grain="fine"),
        ProofGuard.INSTALL_OWN_WINDOW,
        chaos="slow-link",
    ),
    PlantedFault(
        "keeps lapsed allowances",
        "A limit's lease is over before an answer comes, and the node keeps its allowance.",
        (
            Patch(
                SYNCER,
                "            self._kernel.give_up_lapsed_allowances(shard.index, now_ns=now_ns)\n",
                "",
            ),
        ),
        ExploredCase("slots", grain="fine"),
        remark=_LATER,
        chaos="partition-one",
    ),
    PlantedFault(
        "counts its lease from the answer",
        "A node's lease runs from when the answer came, and not from when the batch was sent.",
        (
            Patch(SYNCER, "lease_until_ns = sent_ns + int(", "lease_until_ns = now_ns + int("),
            Patch(SYNCER, "leased_ns = sent_ns - int(", "leased_ns = now_ns - int("),
        ),
        ExploredCase("slots", grain="fine", start=("hits 0", "sends 0", "arrives 0", "silence", "silence", "hears 0")),
        ProofGuard.LEASE_FROM_SENDING,
        chaos="replies-lost-on-mqtt",
        followed=("slow-link",),
    ),
    PlantedFault(
        "trusts the clocks' rates",
        "A node's lease is as long as the hub's, with nothing taken off for a hub's clock that is faster.",
        (
            Patch(SYNCER, "MICROSECOND_NS * (1 - DRIFT))", "MICROSECOND_NS)"),
            Patch(SYNCER, "sent_ns - int(batch.lease_us * MICROSECOND_NS * DRIFT)", "sent_ns"),
        ),
        ExploredCase(
            "slots",
            window_s=3.0,
            grain="fine",
            start=("hits 0", "exchanges 0", "drifts ahead", "hits 1"),
            more=(DRIFTING,),
        ),
        ProofGuard.LEASE_LESS_DRIFT,
        followed=("partition-one",),
        beyond_chaos=CLOCKS,
    ),
    PlantedFault(
        "takes a lease before all is confirmed",
        "A hub that has lost its data renews a lease before the node has reported each key.",
        (Patch(SYNCER, "        elif not shard.unconfirmed:\n", "        else:\n"),),
        ExploredCase("fixed"),
        ProofGuard.CONFIRM_BEFORE_LEASE,
        chaos="killed-quiet",
    ),
    PlantedFault(
        "installs the answer to a larger quota",
        "The quota falls while an answer is on its way, and the node installs it as it is.",
        (
            Patch(
                REPORTS,
                "    if capacity >= before:\n        return answer\n",
                "    if capacity >= 0:\n        return answer\n",
            ),
        ),
        ExploredCase("fixed", quota=4, grain="fine", start=("hits 0", "sends 0")),
        ProofGuard.ANSWERS_SCALE_DOWN,
        beyond_chaos=QUOTAS,
    ),
    PlantedFault(
        "reports what is already counted",
        "A node that gets another name reports what the hub goes on counting under the old one.",
        (
            Patch(
                f"{KERNEL}/reporting/renaming.py",
                "    if hub_remembers:\n        forget_confirmed(cell, now_ns)\n",
                "",
            ),
        ),
        ExploredCase("fixed"),
        remark="use that counts twice breaks no bound, and has ended before a recovery asks for the quota",
        followed=("partition-one",),
        beyond_chaos=LAPSED,
    ),
)
"""The faults of this kind, in the order of the table."""
