"""The pure decision core: `_pure` is its definition."""

from __future__ import annotations

from reconverge.kernel._lows import Mark
from reconverge.kernel._pure import Kernel
from reconverge.kernel._shard import NEVER_NS
from reconverge.kernel._table import Table, Verdict
from reconverge.kernel._wait import Turn, WaitTable

IMPLEMENTATION = "pure"
"""Which of the twins is in use."""

__all__ = ["IMPLEMENTATION", "NEVER_NS", "Kernel", "Mark", "Table", "Turn", "Verdict", "WaitTable"]
