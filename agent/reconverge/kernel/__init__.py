"""The kernel, which decides about requests without I/O: Python code defines it; `native/` repeats most of it in C."""

from __future__ import annotations

from reconverge.clock import NEVER_NS
from reconverge.kernel.algorithms.slots import lease_is_over, lease_left_ns
from reconverge.kernel.cell import measure
from reconverge.kernel.composite.all_of import AllQuotas, settle
from reconverge.kernel.composite.asking import AskGate, DecidingRule, Settled, Word
from reconverge.kernel.composite.at_once import hit_all, stores_of
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.composite.gate import AllOf, Costs, Gate, Turn, gate_of
from reconverge.kernel.composite.joint import Claimed, Joint, Part, hit_at_once, settle_jointly
from reconverge.kernel.composite.many import Many, many_of
from reconverge.kernel.composite.shared import ShareLimit
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import (
    COMPILED,
    IMPLEMENTATION,
    MISSING,
    PYTHON_IS_ASKED_FOR,
    WITHOUT_LOCK,
    Cell,
    Decision,
    Reentered,
    Reentry,
    Shadowed,
    Unlimited,
    WouldRefuse,
    first_odd_cell,
)
from reconverge.kernel.evicted import HASH_KEY_BYTES
from reconverge.kernel.fleet_wait import for_any_node
from reconverge.kernel.kernel import Kernel
from reconverge.kernel.lock import in_a_decision
from reconverge.kernel.newcomers import NEW_KEYS_MAX
from reconverge.kernel.reporting.asks import ASKS_MAX, TURN_NS
from reconverge.kernel.reporting.deferred import LimitInterval
from reconverge.kernel.shard import ShardState
from reconverge.kernel.table.table import Charged, Table, Verdict

__all__ = [
    "ASKS_MAX",
    "COMPILED",
    "HASH_KEY_BYTES",
    "IMPLEMENTATION",
    "MISSING",
    "NEVER_NS",
    "NEW_KEYS_MAX",
    "PYTHON_IS_ASKED_FOR",
    "TURN_NS",
    "WITHOUT_LOCK",
    "AllOf",
    "AllQuotas",
    "AskGate",
    "Cell",
    "Charged",
    "Claimed",
    "Costs",
    "Decider",
    "DecidingRule",
    "Decision",
    "Gate",
    "Joint",
    "Kernel",
    "LimitInterval",
    "Many",
    "Part",
    "Reentered",
    "Reentry",
    "Settled",
    "Shadowed",
    "ShardState",
    "ShareLimit",
    "Table",
    "Turn",
    "Unlimited",
    "Usage",
    "Verdict",
    "Word",
    "WouldRefuse",
    "first_odd_cell",
    "for_any_node",
    "gate_of",
    "hit_all",
    "hit_at_once",
    "in_a_decision",
    "lease_is_over",
    "lease_left_ns",
    "many_of",
    "measure",
    "settle",
    "settle_jointly",
    "stores_of",
]
