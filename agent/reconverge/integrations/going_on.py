"""Whatever breaks in an adapter, the request goes on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from reconverge.errors import InvalidCost

logger = logging.getLogger("reconverge")

P = ParamSpec("P")
Answer = TypeVar("Answer")
AnyUnbreakable = TypeVar("AnyUnbreakable", bound="Unbreakable")


class Unbreakable:
    """Counts what broke in methods that go on all the same."""

    def __init__(self) -> None:
        self.bugs = 0
        """How often something broke in here, and the request went on."""

    def note_bug(self, where: str, error: Exception) -> None:
        """Count it, and tell of the first time, the second, the fourth, and so on."""
        self.bugs += 1
        if self.bugs & (self.bugs - 1) == 0:
            text = "reconverge: %s broke, and the request goes on (%d times so far)"
            logger.error(text, where, self.bugs, exc_info=error)


def goes_on(
    answer: Any,
) -> Callable[[Callable[Concatenate[AnyUnbreakable, P], Answer]], Callable[Concatenate[AnyUnbreakable, P], Answer]]:
    """Have a method answer so when it breaks. Only a cost that is none is told to the caller, whose mistake it is."""

    def decorate(
        method: Callable[Concatenate[AnyUnbreakable, P], Answer],
    ) -> Callable[Concatenate[AnyUnbreakable, P], Answer]:
        @functools.wraps(method)
        def safe(self: AnyUnbreakable, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            try:
                return method(self, *args, **kwargs)
            except InvalidCost:
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, it is ours
                self.note_bug(method.__qualname__, error)
                otherwise: Answer = answer
                return otherwise

        return safe

    return decorate
