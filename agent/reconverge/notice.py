"""What an operator should know about this installation, said once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from reconverge.clock import SECOND_NS
from reconverge.kernel import MISSING

if TYPE_CHECKING:
    from reconverge.kernel import WaitTable
    from reconverge.limit import Limit

logger = logging.getLogger("reconverge")

EXCHANGES_MIN: Final = 10
"""So many exchanges fit into a window in which nodes share a limit well."""

_said = False


def tell_of_installation() -> None:
    """Say that the compiled kernel is missing if it is, and nobody asked for that; the first time in this process."""
    global _said  # noqa: PLW0603  # it is about the process, and not about any agent
    if MISSING and not _said:
        _said = True
        logger.warning(
            "reconverge: the compiled kernel is missing, and decisions take about ten times as long; install a C "
            "compiler and Python's headers (on Debian: apt-get install gcc python3-dev), then reconverge again, with "
            "pip install --force-reinstall --no-deps --no-cache-dir; or set RECONVERGE_NO_EXTENSIONS=1 if so intended"
        )


def tell_of_short_windows(quotas: Mapping[str, Limit], tables: Iterable[WaitTable]) -> None:
    """Say of which quotas the windows are too short for the interval at which they are exchanged."""
    for table in tables:
        if table.name in quotas and table.limit.window_ns < EXCHANGES_MIN * table.interval_ns:
            logger.warning(
                "reconverge: %r has a window of %g s, and is exchanged every %g s; what a node hears of others comes "
                "when the window is over, so nodes share little. Exchange every %g s or more often (sync_interval), or "
                "use a longer window.",
                table.name,
                table.limit.window,
                table.interval_ns / SECOND_NS,
                table.limit.window / EXCHANGES_MIN,
            )


def tell_of_reentry(name: str) -> None:
    """Say that a limit was asked in the middle of a decision about it."""
    logger.warning(
        "reconverge: the limit %r was asked in the middle of a decision about it, by a signal handler, a finalizer or "
        "the like on the same thread. What asks so for admission is refused, because nothing can be charged at that "
        "moment; agent.stats() counts it as `reentered`. Give the handler a limit of its own if that happens often.",
        name,
    )
