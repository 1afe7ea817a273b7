"""Faults of sealed shares: what a node may use of a small quota while the hub is away."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import ASKED, KERNEL, MERGE, ExploredCase, Patch, PlantedFault
from reconverge.simulation.explore.events import EARLY

SEALING: Final = f"{MERGE}/sealing.py"
RULE: Final = f"{MERGE}/rule.py"
SHARED: Final = (
    "asks for two 0",
    "asks for two 1",
    "asks for two 0",
    "edge",
    "after the edge",
    "edge",
    "after the edge",
)
"""Events after which one of two nodes can open a share."""
SECOND: Final = 1.0
"""A window in whose third part of three the lease of a small world's node still runs."""
SMALL: Final = ExploredCase("sliding", asking=True, quota=4, window_s=SECOND, start=SHARED, more=(EARLY,))
FIXED: Final = ExploredCase(
    "fixed",
    asking=True,
    quota=4,
    window_s=SECOND,
    start=("asks for two 0", "asks for two 1", "asks for two 0"),
    more=(EARLY,),
)

IN_SEALING: Final = (
    PlantedFault(
        "sets no share aside",
        "The hub grants what a node that it has not heard may have as an opened share.",
        (
            Patch(
                SEALING,
                "    return _opens_us(record) <= begins_us\n",
                "    return _opens_us(record) < 0 * begins_us\n",
            ),
        ),
        SMALL,
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "opens a share a window early",
        "A node opens its share in the first window that the hub sets it aside in, beside the use of the last one.",
        (
            Patch(
                f"{KERNEL}/algorithms/windows.py",
                "opens = (epoch - 1) * self._window_ns",
                "opens = epoch * self._window_ns",
            ),
        ),
        SMALL._replace(start=SHARED[:5]),
        modelled=False,
        chaos="ask-away",
    ),
    PlantedFault(
        "keeps an opened share open",
        "A node that hears the hub again goes on with the share in the next windows.",
        (
            Patch(
                f"{KERNEL}/algorithms/windows.py",
                "opens = (epoch - 1) * self._window_ns",
                "opens = not cell.at_hub or (epoch - 1) * self._window_ns",
            ),
        ),
        SMALL._replace(more=(EARLY, "second key")),
        modelled=False,
        chaos="ask-away",
    ),
    PlantedFault(
        "forgets who was away",
        "The hub takes a node that it hears again for one that has opened nothing, before all its keys are reported.",
        (Patch(SEALING, "    return any(record.apart_from_us <=", "    return False and any(record.apart_from_us <="),),
        SMALL._replace(more=(EARLY, "second key")),
        modelled=False,
        remark="found by tests/protocol/test_sealed_shares.py: a node reports the first key first",
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "believes that a share stays closed",
        "The report of a node that hears no answer, and has opened nothing yet, gives its share back.",
        (Patch(RULE, "        if rule.sliding and seals(rule) and is_apart(", "        if False and is_apart("),),
        SMALL._replace(
            start=("asks for two 0", "asks for two 1", "asks for two 0", "edge", "after the edge", "loses answer 0")
        ),
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "shares what lasts",
        "A share is given beside the allowance of another node, which outlasts its window.",
        (Patch(SEALING, "lasting = cell.allowances + cell.debts - others.held", "lasting = 0"),),
        ExploredCase(
            "sliding", asking=True, quota=4, window_s=SECOND, start=("hits all and exchanges 1",), more=(EARLY,)
        ),
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "begins a fixed window with a sealed share",
        "A node that hears the hub begins a window with its share, which the hub has granted to others.",
        (Patch(f"{KERNEL}/algorithms/windows.py", "opens = not cell.sealed or epoch", "opens = True or epoch"),),
        FIXED._replace(more=()),
        modelled=False,
        chaos="ask-stopped",
    ),
    PlantedFault(
        "closes all shares of fixed windows",
        "The hub grants what a node that it has not heard may have as an opened share of a fixed window.",
        (Patch(SEALING, "    return not may_have_opened(", "    return True or not may_have_opened("),),
        FIXED,
        modelled=False,
        beyond_chaos=ASKED,
    ),
    PlantedFault(
        "grants a base beside a share",
        "The hub grants an unsealed base to a node that still has the share, if the answer is lost.",
        (Patch(f"{MERGE}/granting.py", "    if entry.base > 0 and entry.sealed:", "    if False:"),),
        FIXED,
        modelled=False,
        remark="found by tests/protocol/test_fixed_shares.py",
        beyond_chaos=ASKED,
    ),
)
