"""Several quotas at once, by the compiled kernel: one call looks at all of them, and charges all if all admit.

The quotas are those of one limit (`all_of.py`), or of limits that decide about a request together (`joint.py`). These
two modules define the decisions, and make them in Python when the call cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.engine import COMPILED, Decision, Store, native


def stores_of(limit: Decider) -> tuple[Store, ...]:
    """Returns the store of each quota of a limit; empty if Python decides, or if a single quota may admit a request."""
    here = COMPILED and not limit.is_share and all(table.compiled for table in limit.tables)
    return tuple([table.cells for table in limit.tables]) if here else ()


def _in_python(*_arguments: object) -> None:
    """Returns None, by which callers learn that they must decide. Replaces `hit_all` if there is no compiled kernel."""


hit_all: Final[Callable[[bool, list[tuple[Store, ...]], list[str], list[int]], list[Decision] | int | None]] = (
    cast("Any", native).hit_all if COMPILED else _in_python
)
"""Decides about a request to several limits; takes `certain`, and for each limit its stores, the key and the cost.

If all quotas of all limits admit, charges all in one moment, and returns the binding decision of each limit. Otherwise
charges nothing, and returns the index of a limit that refuses for certain, or None if Python must decide, for example
because several quotas may refuse. With `certain`, only a cost within the node's own part of each quota is admitted.
"""
