"""Faults of a hub that grants: its sums exceed what there is, or it does not write down what it grants."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import AFTER_A_LOSS, ASKED, AT_BOTH, LEASES, MERGE, QUOTAS, ExploredCase, Patch, PlantedFault
from reconverge.simulation.model.guards import ProofGuard

RULE: Final = f"{MERGE}/rule.py"
LEDGER: Final = f"{MERGE}/ledger.py"
GRANTING: Final = f"{MERGE}/granting.py"
ANSWER_HOLDS: Final = "the proof does without it: an answer grants no more than there is room for"
_UNBOUNDED_RAISE: Final = Patch(
    GRANTING,
    "    raised = max(0, min(wanted, free))\n    if head",
    "    raised = max(0, wanted)\n    if head",
)
_UNBOUNDED_ANSWER: Final = Patch(LEDGER, "    return max(0, amount - max(0, total - room))\n", "    return amount\n")
_UNBOUNDED_OVERDRAFT: Final = Patch(
    GRANTING,
    "    entry.overdraft += max(0, min(part - entry.overdraft, free))\n",
    "    entry.overdraft = part\n",
)

IN_GRANTING: Final = (
    PlantedFault(
        "writes down more than there is",
        "The ledger has more allowances than the capacity; answers grant what there is.",
        (_UNBOUNDED_RAISE,),
        ExploredCase("fixed", quota=4),
        ProofGuard.ALLOWANCES_WITHIN,
        remark=ANSWER_HOLDS,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "grants more than there is",
        "The ledger has more allowances than the capacity, and answers grant them.",
        (_UNBOUNDED_RAISE, _UNBOUNDED_ANSWER),
        ExploredCase("fixed", quota=4),
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "bases beyond the capacity",
        "The ledger has more bases than the capacity; answers grant what there is.",
        (
            Patch(
                GRANTING,
                "max(0, min(start - entry.base, own - cell.bases - entry.base))",
                "max(0, start - entry.base)",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.BASES_WITHIN,
        remark=ANSWER_HOLDS,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "raises the base of a node behind",
        "A node that has yet to open the hub's window gets a larger base, with which it opens that window.",
        (
            Patch(
                GRANTING,
                "or report.epoch != cell.epoch or entry.need_milli == 0:\n",
                "or entry.need_milli == 0:\n",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.BASE_OWN_WINDOW,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "grants to a node behind",
        "A node that has yet to open the hub's window gets an allowance of it.",
        (
            Patch(
                GRANTING,
                "    if not rule.fixed or (report.epoch == cell.epoch and not cell.resting(rule)):\n",
                "    if not rule.fixed or not cell.resting(rule):\n",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.ALLOWANCE_OWN_WINDOW,
        remark="the proof does without it: the node installs an allowance of its own window alone",
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "overdrafts beyond their sum",
        "Each node gets its part of the overdraft without regard to what the others have, and answers grant it.",
        (_UNBOUNDED_OVERDRAFT, _UNBOUNDED_ANSWER),
        ExploredCase("fixed", quota=4, policy="balanced at nodes"),
        ProofGuard.OVERDRAFTS_WITHIN,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "forgets what departed overdrafts used",
        "What departed nodes have used beyond the capacity does not count against overdrafts.",
        (
            Patch(
                GRANTING,
                "    overdrafts -= max(0, held - capacity)\n",
                "",
            ),
        ),
        ExploredCase("fixed", quota=40, policy="balanced at nodes"),
        ProofGuard.OVERDRAFTS_LESS_EXCESS,
        followed=("terminated-nodes",),
        beyond_chaos=LEASES,
        remark="where nodes of chaos leave, there is room, so that no overdraft is in use",
    ),
    PlantedFault(
        "grants a leaver's overdraft again",
        "A node that leaves gives back an overdraft that it has used, and the hub grants it to others.",
        (
            Patch(
                f"{MERGE}/hearing.py",
                "min(entry.overdraft, max(report.overdraft, entry.debt))",
                "min(entry.overdraft, report.overdraft)",
            ),
            Patch(
                RULE,
                "                if left and entry.allowance == 0 and entry.overdraft <= entry.debt:\n"
                "                    entry.overdraft = 0  "
                "# the overdraft that a departed node has used is a part of its debt\n",
                "",
            ),
        ),
        ExploredCase("fixed", quota=40, policy="balanced at nodes"),
        followed=("terminated-nodes",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "does not write down a grant",
        "The hub answers with a larger allowance, and its ledger keeps the smaller one.",
        (
            Patch(
                RULE,
                "        forgotten = report.forgotten\n        # A grant to a node that leaves",
                "        forgotten, had = report.forgotten, entry.allowance\n        # A grant to a node that leaves",
            ),
            Patch(
                RULE,
                "        answer = cell.answer(rule, batch.node, entry, hub_us, lent)\n",
                "        answer = cell.answer(rule, batch.node, entry, hub_us, lent)\n        cell.count(entry, -1)\n"
                "        entry.allowance = min(entry.allowance, had)\n        cell.count(entry)\n",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.RAISE_BEFORE_ANSWER,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "does not write down a voucher",
        "The hub grants what waits, and does not write it down.",
        (
            Patch(
                f"{MERGE}/asking.py",
                "        entry.allowance = max(entry.allowance, ceil(used)) + self.granted\n",
                "        entry.vouchers = 0\n",
            ),
        ),
        ExploredCase("sliding", asking=True),
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "answers beyond the room",
        "Nodes bring more allowances along than there is capacity, and answers grant them.",
        (_UNBOUNDED_ANSWER,),
        ExploredCase("fixed", quota=4),
        ProofGuard.ANSWER_WITHIN_ROOM,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
    PlantedFault(
        "deals out the largest capacity",
        "Of nodes that differ in the quota, the largest counts.",
        (
            Patch(
                RULE,
                "            capacity = min(capacity, entry.capacity)\n",
                "            capacity = max(capacity, entry.capacity)\n",
            ),
            Patch(
                f"{MERGE}/hearing.py",
                "    cell.capacity = min(cell.capacity, rule.own)\n",
                "    cell.capacity = max(cell.capacity, rule.own)\n",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.SMALLEST_CAPACITY,
        beyond_chaos=QUOTAS,
    ),
)
"""The faults of this kind, in the order of the table."""
