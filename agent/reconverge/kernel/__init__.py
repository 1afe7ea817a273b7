"""The pure decision core: `_pure` is its definition."""

from __future__ import annotations

from reconverge.kernel._pure import Kernel
from reconverge.kernel._table import Table

IMPLEMENTATION = "pure"
"""Which of the twins is in use."""

__all__ = ["IMPLEMENTATION", "Kernel", "Table"]
