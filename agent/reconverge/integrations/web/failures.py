"""What breaks in an integration: always counted, and logged now and then."""

from __future__ import annotations

import logging
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.runtime.counters import Total

logger = logging.getLogger("reconverge")

QUIET_NS: Final = 60 * SECOND_NS
"""A failure is logged at most so often; the others are counted."""
KINDS_MAX: Final = 64
"""So many classes of errors are told apart."""
OTHER: Final = "other"


class Failures:
    """Counts failures by the class of their error. `goes` says in the log what becomes of the request."""

    def __init__(self, clock: Clock, goes: str = "goes on") -> None:
        self._now_ns = clock.monotonic_ns
        self._goes = goes
        # Without a lock, which a signal handler that fails would wait for in the middle of a failure.
        self._counts: dict[str, Total] = {}
        self._logged_ns: int | None = None
        self._said: dict[tuple[str, str], object] = {}

    def add(self, error: Exception, name: str, goes: str | None = None) -> None:
        """Count a failure about a limit, and log it: the first of its kind, and then one of all in a minute.

        `goes` says what becomes of the request, where that is not the same as ever.
        """
        now_ns = self._now_ns()
        kind = type(error).__name__
        known = kind in self._counts or len(self._counts) < KINDS_MAX
        self._counts.setdefault(kind if known else OTHER, Total()).add()
        mine = object()
        news = len(self._said) < KINDS_MAX and self._said.setdefault((name, kind), mine) is mine
        if not news and self._logged_ns is not None and now_ns - self._logged_ns < QUIET_NS:
            return
        self._logged_ns = now_ns
        logger.warning("reconverge: %r failed, and the request %s", name, goes or self._goes, exc_info=error)

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """How many there were of each class."""
        return {kind: total.value for kind, total in self._counts.copy().items()}
