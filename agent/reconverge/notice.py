"""What an operator should know about this installation, said once."""

from __future__ import annotations

import logging

from reconverge.kernel import MISSING

logger = logging.getLogger("reconverge")

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


def tell_of_reentry(name: str) -> None:
    """Say that a limit was asked in the middle of a decision about it."""
    logger.warning(
        "reconverge: the limit %r was asked in the middle of a decision about it, by a signal handler, a finalizer or "
        "the like on the same thread. What asks so for admission is refused, because nothing can be charged at that "
        "moment; agent.stats() counts it as `reentered`. Give the handler a limit of its own if that happens often.",
        name,
    )
