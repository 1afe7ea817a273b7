"""Refuses to compare a result with a truth value or a number, which can only be a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_ORDERS: Final = ("__lt__", "__le__", "__gt__", "__ge__")


def no_number(noun: str, remedy: str, *, text: str = "") -> Callable[[type[T]], type[T]]:
    """Decorates a class of results, so that `==` with True or False, and `<` or `>` with a number, raise TypeError.

    A result never equals False, so without the error, `if result == False` would let every request through. `noun`
    names the result in the error, and `remedy` is the sentence after it. With a `text`, `==` with a string is an error,
    too, which ends with that sentence.
    """

    def decorate(kind: type[T]) -> type[T]:
        equal: Callable[[Any, object], bool] = kind.__eq__

        def compared(other: object, advice: str = remedy) -> TypeError:
            return TypeError(f"{noun} is compared with {other!r}; {advice}")

        def is_equal(self: object, other: object) -> bool:
            if isinstance(other, bool):
                raise compared(other)
            if text and isinstance(other, str):
                raise compared(other, text)
            return equal(self, other)

        def is_ordered(_self: object, other: object) -> Any:
            if isinstance(other, int | float):
                raise compared(other)
            return NotImplemented

        for name in _ORDERS:
            setattr(kind, name, is_ordered)
        setattr(kind, "__eq__", is_equal)  # noqa: B010  # mypy takes an assignment for a mistake
        return kind

    return decorate
