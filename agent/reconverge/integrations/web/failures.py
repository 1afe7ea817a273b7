"""Counts the failures of an integration and logs some of them; no failure ends a request."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import InvalidCost
from reconverge.runtime.log_throttle import LoggedOnce, LogThrottle
from reconverge.runtime.threads import Total

logger = logging.getLogger("reconverge")

QUIET_NS: Final = 60 * SECOND_NS
"""The shortest time, in nanoseconds, between two log messages about failures; all failures are counted."""
KINDS_MAX: Final = 64
"""The most classes of errors with a count of their own."""
OTHER: Final = "other"


class Failures:
    """Counts failures by the class of their error, and logs some.

    Each log message ends with `goes`, a text that states how the request is treated, such as "goes on".
    """

    def __init__(self, clock: Clock, goes: str = "goes on") -> None:
        self._now_ns = clock.monotonic_ns
        self._goes = goes
        # No lock: a signal handler that interrupts `add` and then fails itself would wait for the lock for ever.
        self._counts: dict[str, Total] = {}
        self._log = LogThrottle(1, within_ns=QUIET_NS)
        self._logged = LoggedOnce(KINDS_MAX)

    def add(self, error: Exception, name: str, goes: str | None = None) -> None:
        """Counts a failure, and logs each kind of failure once, then one failure a minute.

        `name` is the function that failed. `goes` states how the request is treated now, if it is not treated as the
        constructor's `goes` states.
        """
        now_ns = self._now_ns()
        kind = type(error).__name__
        known = kind in self._counts or len(self._counts) < KINDS_MAX
        self._counts.setdefault(kind if known else OTHER, Total()).add()
        if not self._logged.is_new((name, kind)) and not self._log.allows(now_ns):
            return
        self._log.note(now_ns)
        logger.warning(
            "reconverge: the function %r failed, and the request %s; correct the function",
            name,
            goes or self._goes,
            exc_info=error,
        )

    @property
    def total(self) -> int:
        """Returns the number of failures."""
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Returns the number of failures of each class of errors."""
        return {kind: total.value for kind, total in self._counts.copy().items()}

    def __repr__(self) -> str:
        return f"Failures({self.counts()})"


P = ParamSpec("P")
Answer = TypeVar("Answer")
AnyUnbreakable = TypeVar("AnyUnbreakable", bound="Unbreakable")


class Unbreakable:
    """A base class: methods decorated with `goes_on` count errors and return a default instead of raising them."""

    def __init__(self) -> None:
        self.failures = Failures(SystemClock())

    @property
    def bugs(self) -> int:
        """Returns the number of unexpected errors in methods decorated with `goes_on`."""
        return self.failures.total


def goes_on(
    answer: Any,
) -> Callable[[Callable[Concatenate[AnyUnbreakable, P], Answer]], Callable[Concatenate[AnyUnbreakable, P], Answer]]:
    """Returns a decorator that makes a method return `answer` if it raises an error, which is counted and logged.

    InvalidCost is still raised, because an invalid cost is the caller's mistake.
    """

    def decorate(
        method: Callable[Concatenate[AnyUnbreakable, P], Answer],
    ) -> Callable[Concatenate[AnyUnbreakable, P], Answer]:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def safe_async(self: AnyUnbreakable, /, *args: P.args, **kwargs: P.kwargs) -> Any:
                try:
                    return await method(self, *args, **kwargs)
                except InvalidCost:
                    raise
                except Exception as error:  # noqa: BLE001  # as in `safe`
                    self.failures.add(error, method.__qualname__)
                    return answer

            return cast("Callable[Concatenate[AnyUnbreakable, P], Answer]", safe_async)

        @functools.wraps(method)
        def safe(self: AnyUnbreakable, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            try:
                return method(self, *args, **kwargs)
            except InvalidCost:
                raise
            except Exception as error:  # noqa: BLE001  # any other error is a bug of this library
                self.failures.add(error, method.__qualname__)
                otherwise: Answer = answer
                return otherwise

        return safe

    return decorate
