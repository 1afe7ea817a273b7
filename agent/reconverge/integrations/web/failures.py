"""Failures of an integration: always counted, logged now and then, and never the end of a request."""

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
"""A failure is logged at most so often; the others are counted."""
KINDS_MAX: Final = 64
"""So many classes of errors are counted apart."""
OTHER: Final = "other"


class Failures:
    """Counts failures by the class of their error. `goes` is the log's word for the request's fate."""

    def __init__(self, clock: Clock, goes: str = "goes on") -> None:
        self._now_ns = clock.monotonic_ns
        self._goes = goes
        # Without a lock, which a signal handler that fails would wait for in the middle of a failure.
        self._counts: dict[str, Total] = {}
        self._log = LogThrottle(1, within_ns=QUIET_NS)
        self._logged = LoggedOnce(KINDS_MAX)

    def add(self, error: Exception, name: str, goes: str | None = None) -> None:
        """Count a failure about a limit, and log it: the first of its kind, and then one of all in a minute.

        `goes` is the request's fate, where that is not the usual one.
        """
        now_ns = self._now_ns()
        kind = type(error).__name__
        known = kind in self._counts or len(self._counts) < KINDS_MAX
        self._counts.setdefault(kind if known else OTHER, Total()).add()
        if not self._logged.is_new((name, kind)) and not self._log.allows(now_ns):
            return
        self._log.note(now_ns)
        logger.warning("reconverge: %r failed, and the request %s", name, goes or self._goes, exc_info=error)

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """How many there were of each class."""
        return {kind: total.value for kind, total in self._counts.copy().items()}


P = ParamSpec("P")
Answer = TypeVar("Answer")
AnyUnbreakable = TypeVar("AnyUnbreakable", bound="Unbreakable")


class Unbreakable:
    """Counts what broke in methods that go on all the same."""

    def __init__(self) -> None:
        self.failures = Failures(SystemClock())

    @property
    def bugs(self) -> int:
        """How often something broke in here, and the request went on."""
        return self.failures.total


def goes_on(
    answer: Any,
) -> Callable[[Callable[Concatenate[AnyUnbreakable, P], Answer]], Callable[Concatenate[AnyUnbreakable, P], Answer]]:
    """Makes a method return `answer` when it breaks.

    A cost that is none is still raised, as it is the caller's mistake.
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
                except Exception as error:  # noqa: BLE001  # as below
                    self.failures.add(error, method.__qualname__)
                    return answer

            return cast("Callable[Concatenate[AnyUnbreakable, P], Answer]", safe_async)

        @functools.wraps(method)
        def safe(self: AnyUnbreakable, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            try:
                return method(self, *args, **kwargs)
            except InvalidCost:
                raise
            except Exception as error:  # noqa: BLE001  # any error here is ours
                self.failures.add(error, method.__qualname__)
                otherwise: Answer = answer
                return otherwise

        return safe

    return decorate
