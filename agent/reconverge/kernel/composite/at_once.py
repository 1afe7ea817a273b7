"""Decides about several quotas in one call of the compiled kernel, which charges all of them if all admit.

The quotas belong to one limit (`all_of.py`), or to limits that decide about a request together (`joint.py`). Those two
modules define the decisions, and make them in Python when the compiled kernel cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.engine import COMPILED, Decision, Store, native


def stores_of(limit: Decider) -> tuple[Store, ...]:
    """Returns the store of keys of each quota of a limit, for `hit_all`; empty if `hit_all` cannot decide here.

    `hit_all` cannot decide about a share, where one of two tables may admit a request, nor in an interpreter without
    the compiled kernel.
    """
    here = COMPILED and not limit.is_share and all(table.compiled for table in limit.tables)
    return tuple([table.cells for table in limit.tables]) if here else ()


def _in_python(*_arguments: object) -> None:
    """Replaces `hit_all` where there is no compiled kernel: returns None, so that the caller decides in Python."""


hit_all: Final[Callable[[bool, list[tuple[Store, ...]], list[str], list[int]], list[Decision] | int | None]] = (
    cast("Any", native).hit_all if COMPILED else _in_python
)
"""Decides about a request to several limits. Arguments: `certain`, and for each limit its stores, its key and its cost.

If all quotas of all limits admit the request, charges all in one moment, and returns for each limit the decision of its
binding quota. Otherwise charges nothing, and returns the index of a limit that refuses with certainty, or None if
Python must decide, for example because several quotas may refuse. If `certain` is True, admits only a cost within the
node's own part of each quota."""
