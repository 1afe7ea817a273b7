"""Faults of a hub that gives up on a node, opens a window, lets use drain, or has lost its data."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import AFTER_A_LOSS, ASKED, AT_BOTH, LEASES, MERGE, ExploredCase, Patch, PlantedFault
from reconverge.simulation.model.guards import ProofGuard

RULE: Final = f"{MERGE}/rule.py"
LEDGER: Final = f"{MERGE}/ledger.py"
_HELD: Final = "        held = self.allowance + self.overdraft if counts else 0\n"

IN_DEPARTURES: Final = (
    PlantedFault(
        "does not wait for a lease",
        "The hub gives up on a node that has missed three exchanges.",
        (
            Patch(
                RULE,
                "            outlived = hub_us - seen_us > lease_us or",
                "            outlived = hub_us - seen_us > SILENT_INTERVALS * interval_us or",
            ),
        ),
        ExploredCase("slots", grain="fine", start=("hits 0", "exchanges 0")),
        ProofGuard.HUB_WAITS_FOR_LEASE,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "takes a dead node's allowance for free",
        "What a node held when its lease ended is free for others.",
        (Patch(LEDGER, _HELD, "        held = 0 if counts else 0\n"),),
        ExploredCase(
            "fixed",
            quota=4,
            window_s=10.0,
            grain="fine",
            start=("hits 0", "exchanges 0", "silence", "silence", "hits all 0", "hits 1", "silence"),
        ),
        ProofGuard.ALLOWANCE_COUNTS_AS_USED,
        followed=("partition-one",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "takes a dead node's overdraft for free",
        "The overdraft that a node held when its lease ended is free for others.",
        (Patch(LEDGER, _HELD, "        held = self.allowance if counts else 0\n"),),
        ExploredCase("fixed", quota=40, policy="balanced at nodes", window_s=10.0),
        ProofGuard.OVERDRAFT_COUNTS_AS_USED,
        followed=("partition-one",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "lets dates of the dead pass",
        "What a dead node held ends with the charges that it had reported.",
        (
            Patch(
                LEDGER,
                "self.current_until_us = max(self.current_until_us, idle_us + rule.window_us)",
                "self.current_until_us = max(self.current_until_us, 0)",
            ),
        ),
        ExploredCase("log"),
        ProofGuard.DATES_COUNT_A_WINDOW,
        followed=("partition-one",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "opens a window without bases",
        "The ledger opens a window with nothing, while nodes open it with their bases.",
        (
            Patch(LEDGER, "= max(0 if closed else self.base, self.current), 0, 0\n", "= self.current, 0, 0\n"),
            Patch(
                LEDGER,
                "self.allowances, self.debts, self.current, self.silent = self.bases, 0, 0, 0\n",
                "self.allowances, self.debts, self.current, self.silent = 0, 0, 0, 0\n",
            ),
        ),
        ExploredCase("fixed"),
        ProofGuard.ROLL_TAKES_BASES,
        chaos="partition-one-on-mqtt",
        followed=AT_BOTH,
    ),
    PlantedFault(
        "counts the dead in every later window",
        "What a dead node held counts as used in the window in which the hub looks, however late.",
        (Patch(LEDGER, "rule.bounded and (rule.bucket or hub_us - idle_us <= rule.counts_for_us)", "rule.bounded"),),
        ExploredCase(
            "fixed",
            quota=3,
            asking=True,
            start=("asks for two 0", "hits all and exchanges 1", "dies 1", "edge", "exchanges 0"),
        ),
        followed=("partition-one",),
        beyond_chaos=LEASES,
    ),
    PlantedFault(
        "folds the dead as old use",
        "What a dead node held fades as use of the window before.",
        (
            Patch(
                LEDGER,
                "            self.current += max(0, held - used)\n",
                "            self.previous += max(0, held - used) * rule.sliding\n"
                "            self.current += max(0, held - used) * (not rule.sliding)\n",
            ),
        ),
        ExploredCase("sliding"),
        ProofGuard.WHOLE_FADING_USE_FOLDS,
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "drains the hub's bucket by the whole rate",
        "The hub's own bucket drains by the part of the rate that nodes drain by, too.",
        (
            Patch(
                LEDGER,
                "max(0, min(self.capacity, rule.own) - self.allowances_of_nodes)",
                "max(0, min(self.capacity, rule.own))",
            ),
        ),
        ExploredCase(
            "tokens",
            quota=4,
            grain="fine",
            start=(
                "hits 0",
                "exchanges 0",
                "hits all 0",
                "exchanges 0",
                "hits all 0",
                "leaves 0",
                "hits 1",
                "exchanges 1",
                "silence",
                "hits all 1",
                "exchanges 1",
            ),
        ),
        ProofGuard.HUB_DRAINS_BY_REST,
        modelled=False,
        chaos="flapping-on-mqtt",
    ),
    PlantedFault(
        "forgets what it does not know",
        "A hub without data does not believe the allowances that nodes report.",
        (
            Patch(
                RULE,
                "= report.allowance, report.overdraft\n        entry.base = 0 if rule.dated else report.base\n",
                "= 0, 0\n        entry.base = 0\n",
            ),
        ),
        ExploredCase("slots", start=("hits 0", "exchanges 0", "rests long 0", "hits 0", "exchanges 0")),
        ProofGuard.WELCOME_BELIEVES,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
    PlantedFault(
        "welcomes the allowance of the window before",
        "A hub without data takes the allowance of the window before for that of its own.",
        (
            Patch(
                RULE,
                "entry, cell, rule) else report.base",
                "entry, cell, rule) else report.allowance",
            ),
        ),
        ExploredCase("fixed", quota=4),
        ProofGuard.WELCOME_BASE,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
    PlantedFault(
        "grants at once after a loss",
        "A hub that has lost its data grants before the nodes that hold allowances have reported.",
        (
            Patch(RULE, "        if hub_us < cell.learn_until_us:\n            return True\n", ""),
            Patch(
                RULE,
                "        return hub_us < self.born_us + learning_us(batch, rule, lost=self.lost) + self.grace_us\n",
                "        return False\n",
            ),
        ),
        ExploredCase("slots", start=("hits 0", "exchanges 0", "rests long 0", "hits 0", "exchanges 0")),
        ProofGuard.WAIT_AFTER_LOSS,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
    PlantedFault(
        "does not wait for a lease after a loss",
        "A hub that has lost its data waits for two windows, and for no lease.",
        (
            Patch(
                RULE,
                "        return batch.lease_us + rule.counts_for_us\n",
                "        return rule.counts_for_us\n",
            ),
        ),
        ExploredCase("slots", start=("hits 0", "exchanges 0", "rests long 0", "hits 0", "exchanges 0")),
        ProofGuard.WAIT_A_LEASE,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
    PlantedFault(
        "does not wait for windows after a loss",
        "A hub that has lost its data waits for a lease, and for no window.",
        (
            Patch(
                RULE,
                "        return batch.lease_us + rule.counts_for_us\n",
                "        return batch.lease_us\n",
            ),
        ),
        ExploredCase("log"),
        ProofGuard.WAIT_TWO_WINDOWS,
        chaos="partition-all-on-mqtt",
        followed=AFTER_A_LOSS,
    ),
)
"""The faults of this kind, in the order of the table."""
