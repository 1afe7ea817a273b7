"""The pure decision core: `_pure` is its definition."""

from __future__ import annotations

from reconverge.kernel._elastic import Elastic
from reconverge.kernel._joint import Joint, settle
from reconverge.kernel._pure import Kernel
from reconverge.kernel._shard import NEVER_NS
from reconverge.kernel._table import Charged, Table, Verdict
from reconverge.kernel._wait import Turn, WaitTable

IMPLEMENTATION = "pure"
"""Which of the twins is in use."""

__all__ = [
    "IMPLEMENTATION",
    "NEVER_NS",
    "Charged",
    "Elastic",
    "Joint",
    "Kernel",
    "Table",
    "Turn",
    "Verdict",
    "WaitTable",
    "settle",
]
