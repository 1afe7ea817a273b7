"""Logs a warning about a middleware that is dropped before it serves a request, and so limited nothing.

A middleware takes an application and is one itself. Where the statement `RateLimitMiddleware(app, "5/minute")` drops
it, the server goes on calling the bare application.
"""

from __future__ import annotations

import logging
from weakref import finalize

logger = logging.getLogger("reconverge")


def warn_if_dropped(middleware: object) -> finalize:  # type: ignore[type-arg]  # of any arguments
    """Returns a finalizer that logs the warning, unless it is detached before; the end of the process logs nothing."""
    warning = finalize(middleware, _log, type(middleware).__name__)
    warning.atexit = False  # a process that only imports the application serves nothing
    return warning


def _log(name: str) -> None:
    logger.warning(
        "reconverge: a %s was made, and dropped before it served a request, so its limits limit nothing; keep it in "
        "the place of the application, as in app = %s(app, '100/minute')",
        name,
        name,
    )
