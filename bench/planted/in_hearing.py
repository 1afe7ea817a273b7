"""Faults of a hub that hears: of the order of batches, of windows, and of what a report may change."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import ASKED, AT_BOTH, LEASES, MERGE, ExploredCase, Patch, PlantedFault
from reconverge.simulation.model.guards import ProofGuard

RULE: Final = f"{MERGE}/rule.py"
HEARING: Final = f"{MERGE}/hearing.py"
LEDGER: Final = f"{MERGE}/ledger.py"
WINDOWS: Final = f"{MERGE}/windows.py"
NEVER_AHEAD: Final = "no node of chaos is ahead of the hub's window"

IN_HEARING: Final = (
    PlantedFault(
        "hears old batches",
        "A batch that arrives late, or twice, changes the ledger.",
        (Patch(RULE, "batch.sequence <= record.sequence:\n", "batch.sequence < 0:\n"),),
        ExploredCase("slots", start=("hits 0", "exchanges 0", "loses request 0", "hits all and exchanges 0")),
        ProofGuard.SEQUENCE,
        chaos="replies-lost-on-mqtt",
        followed=("zombies",),
    ),
    PlantedFault(
        "takes the dead back",
        "A name whose lease is over may report again.",
        (
            Patch(
                RULE,
                "record is not None and (record.gone or hub_us - record.seen_us > record.lease_us):\n"
                "            record.gone = True",
                "record is not None and batch.sequence < 0:\n            record.gone = True",
            ),
        ),
        ExploredCase("fixed", grain="fine"),
        ProofGuard.GONE_STAYS_GONE,
        followed=("zombies",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "does not follow a node ahead",
        "A report from the next window counts in the hub's window.",
        (
            Patch(
                WINDOWS,
                "    return reported if reported == epoch + 1 else epoch\n\n\ndef calendar_epoch(",
                "    return epoch\n\n\ndef calendar_epoch(",
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.FOLLOW_AHEAD,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
        remark=NEVER_AHEAD,
    ),
    PlantedFault(
        "goes back a window",
        "A late report opens the window before once more.",
        (
            Patch(
                LEDGER,
                "        if epoch > self.epoch or epoch < self.epoch - 1:\n",
                "        if epoch != self.epoch:\n",
            ),
        ),
        ExploredCase("fixed", asking=True, start=("asks for all 0", "edge")),
        ProofGuard.NEVER_BACK,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
        remark=NEVER_AHEAD,
    ),
    PlantedFault(
        "opens windows by the nodes' clocks",
        "The hub stays in the window of the last report, also when its clock shows the next one.",
        (
            Patch(
                WINDOWS,
                "    return reported if reported == epoch + 1 else epoch\n\n\ndef calendar_epoch(",
                "    return min(reported, epoch + 1)\n\n\ndef calendar_epoch(",
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.HUBS_CLOCK,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "lowers by a report of another window",
        "A report of the window before lowers the allowance of this one.",
        (
            Patch(
                HEARING,
                "    if not rule.fixed or report.epoch == cell.epoch:\n        entry.allowance",
                "    if True:\n        entry.allowance",
            ),
        ),
        ExploredCase("fixed", grain="fine"),
        ProofGuard.LOWER_OWN_WINDOW,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "raises by a report",
        "A report of a larger allowance than the ledger has is believed.",
        (Patch(HEARING, "min(report.allowance, entry.allowance)", "report.allowance"),),
        ExploredCase("fixed", grain="fine"),
        ProofGuard.NONE_RISES_BY_REPORT,
        remark="the proof does without it: a node reports no more than the ledger has",
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "forgets use beyond an allowance",
        "What a node has used beyond its allowance is free for others.",
        (
            Patch(
                HEARING,
                "    entry.debt = max(0, ceil(used) - entry.allowance)\n",
                "    entry.debt = 0\n",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.DEBTS_COUNT,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "counts vouchers as unused",
        "What the hub has granted to requests is free for others until their node reports.",
        (
            Patch(
                LEDGER,
                "        self.current += entry.current + entry.vouchers\n",
                "        self.current += entry.current\n",
            ),
        ),
        ExploredCase("sliding", asking=True),
        ProofGuard.VOUCHERS_COUNT_UNTIL_REPORT,
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "forgets the window before",
        "Use of a node that holds nothing ends with the sliding window.",
        (
            Patch(
                LEDGER,
                "        return self.current + _faded(self.previous, rule, cell, hub_us)\n\n\ndef _within(",
                "        return self.current\n\n\ndef _within(",
            ),
        ),
        ExploredCase("sliding", asking=True, start=("asks for all 0", "exchanges 0", "edge")),
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "adds what is repeated",
        "Charges of a process are added to those of its last report, though both are sums.",
        (
            Patch(
                RULE,
                "max(known.charged, limit.charged)",
                "known.charged + limit.charged",
            ),
        ),
        ExploredCase("fixed"),
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "calls too much free",
        "Answers call two more free than there is.",
        (
            Patch(
                LEDGER,
                "            free=max(0, capacity - self.allowances - self.debts),\n",
                "            free=max(0, capacity - self.allowances - self.debts) + 2,\n",
            ),
        ),
        ExploredCase("fixed"),
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "forgets a cell that is ahead",
        "A cell that followed a node into the next window, and holds nothing, is dropped and begun anew.",
        (
            Patch(
                RULE,
                "        if is_ahead(batch.limits[report.limit], rule, cell.epoch, hub_us):\n",
                "        if False:\n",
            ),
        ),
        ExploredCase("fixed", asking=True, window_s=10.0, start=("asks for two 1", "edge")),
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
        remark=NEVER_AHEAD,
    ),
)
"""The faults of this kind, in the order of the table."""
