"""Whatever breaks in an adapter, the request goes on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from reconverge.clock import SystemClock
from reconverge.errors import InvalidCost
from reconverge.integrations.web.failures import Failures

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
    """Have a method answer so when it breaks. Only a cost that is none is told to the caller, whose mistake it is."""

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
            except Exception as error:  # noqa: BLE001  # whatever it is, it is ours
                self.failures.add(error, method.__qualname__)
                otherwise: Answer = answer
                return otherwise

        return safe

    return decorate
